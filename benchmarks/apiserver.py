"""Watches and changes that the API server for tests serves on one core.

The server runs in a process of its own, pinned to one core, and holds realistic pods. On
another core, one process reads raw bytes from many watches and sends changes. Every
change carries the time of its request, so that each watch measures its lag. At the end,
every watch must have received every change, once and in order.

There are three runs: changes by `PATCH` and by `PUT` of the status over HTTP, as
controllers and kubelets make them, and changes by the methods that arrange objects.

    python benchmarks/apiserver.py [--quick] [--rounds N] [--json]
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import re
import resource
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.corpus import pods
from bench.figures import OURS, Figure, median
from bench.script import Options, run

from aioinformer.model.resources import NAMESPACES, PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from multiprocessing.connection import Connection

BENCHMARK = "apiserver"
RATE = 500
CONNECTIONS = 32  # User agents of the writers: controllers and kubelets.
WATCH = "/api/v1/pods?watch=1&resourceVersion={}&timeoutSeconds=600"
# Stamp in a change: the time of its request, and its number.
STAMP = re.compile(rb'"message":"stamp ([0-9]+) ([0-9.]+)"')

# ---------------------------------------------------------------- the server


def serve(core: int, count: int, pipe: Connection) -> None:
    """Run the server on one core. `pipe` gets its address, and sends commands."""
    os.sched_setaffinity(0, {core})
    asyncio.run(_serve(pods(count), pipe))


async def _serve(bodies: list[dict[str, Any]], pipe: Connection) -> None:
    async with APIServer() as server:
        for name in sorted({body["metadata"]["namespace"] for body in bodies}):
            server.create(NAMESPACES, {"metadata": {"name": name}})

        names = []
        began = time.perf_counter()
        for body in bodies:
            del body["metadata"]["resourceVersion"]
            made = server.create(PODS, body)["metadata"]
            names.append((made["namespace"], made["name"]))

        took = time.perf_counter() - began
        pipe.send((server.url, names, took))
        loop = asyncio.get_running_loop()
        while (command := await loop.run_in_executor(None, pipe.recv)) != "end":
            await _obey(server, command, names, pipe)


async def _obey(
    server: APIServer, command: Any, names: list[tuple[str, str]], pipe: Connection
) -> None:
    match command:
        case "use":
            used = resource.getrusage(resource.RUSAGE_SELF)
            now = time.perf_counter()
            pipe.send((used.ru_utime + used.ru_stime, now, server.resource_version))
        case ("arrange", rate, count):

            async def change(number: int) -> None:
                namespace, name = names[number % len(names)]
                server.patch(PODS, name, stamped(number), namespace=namespace)

            await paced(rate, count, change)
            pipe.send("arranged")
        case _:
            raise ValueError(command)


# ---------------------------------------------------------------- changes


def stamped(number: int) -> dict[str, Any]:
    """Return a patch of a pod's status that carries a number and the time."""
    return {"status": {"message": f"stamp {number} {time.perf_counter():.6f}"}}


async def paced(
    rate: float, count: int, change: Callable[[int], Awaitable[None]]
) -> float:
    """Make a number of changes at a rate, and return the maximum delay."""
    loop = asyncio.get_running_loop()
    start, behind = loop.time(), 0.0
    for number in range(count):
        wait = start + number / rate - loop.time()
        behind = max(behind, -wait)
        await asyncio.sleep(max(0.0, wait))
        await change(number)

    return behind


class Writer:
    """Keep-alive connection that changes the status of pods.

    Args:
        port: Port of the server.
        whole: True to read the pod and replace it, instead of patching it.
    """

    def __init__(self, port: int, *, whole: bool) -> None:
        self._port = port
        self._whole = whole
        self._lock = asyncio.Lock()

    async def open(self) -> None:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self._port, limit=1 << 20
        )

    async def change(self, namespace: str, name: str, number: int) -> None:
        """Change one pod."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        async with self._lock:
            if not self._whole:
                kind = "application/merge-patch+json"
                await self._ask("PATCH", f"{path}/status", stamped(number), kind)
                return

            body = json.loads(await self._ask("GET", path))
            body["status"] |= stamped(number)["status"]
            await self._ask("PUT", f"{path}/status", body)

    async def _ask(
        self, method: str, path: str, body: Any = None, kind: str = "application/json"
    ) -> bytes:
        data = b"" if body is None else compact(body)
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\n"
        head += f"User-Agent: kubelet/v1.36.0\r\nContent-Length: {len(data)}\r\n\r\n"
        self._writer.write(head.encode() + data)
        head_bytes = await self._reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: ([0-9]+)", head_bytes)
        assert length is not None
        response = await self._reader.readexactly(int(length[1]))
        assert b" 200 OK" in head_bytes, (head_bytes, response[:500])
        return response

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


# ---------------------------------------------------------------- watches


class Watch(asyncio.Protocol):
    """Raw watch that records the changes it received, and their lag.

    Args:
        path: Path of the watched collection.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.numbers: list[int] = []
        self.lags: list[float] = []
        self.bytes = 0
        self._tail = b""
        self._awaited = 0
        self._done = asyncio.Event()

    async def received(self, count: int) -> None:
        """Wait until a number of changes has been received."""
        self._awaited = count
        if len(self.numbers) < count:
            await self._done.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request of the watch."""
        assert isinstance(transport, asyncio.Transport)
        transport.write(f"GET {self._path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        """Find the stamps in the received bytes."""
        now = time.perf_counter()
        self.bytes += len(data)
        data = self._tail + data
        end = 0
        for found in STAMP.finditer(data):
            self.numbers.append(int(found[1]))
            self.lags.append(now - float(found[2]))
            end = found.end()

        if self._awaited and len(self.numbers) >= self._awaited:
            self._done.set()

        # A stamp may be split between two chunks.
        self._tail = data[max(end, len(data) - 100) :]


# ---------------------------------------------------------------- the measurement


@dataclass(frozen=True, kw_only=True)
class Size:
    """Size of the measurement. `seconds` is the duration of each run."""

    pods: int
    watches: int
    seconds: int


class Bench:
    """One server, and the measurements of it."""

    def __init__(self, pipe: Connection, size: Size) -> None:
        self._pipe = pipe
        self._size = size
        self._url, self._names, self._took = pipe.recv()
        self._port = int(self._url.rpartition(":")[2])

    async def run(self) -> dict[str, float]:
        """Make all runs, and return the figures of each."""
        figures = {"pods_created_per_second": self._size.pods / self._took}
        for how in ("patch", "put", "arranged"):
            found = await self._run(how)
            figures |= {f"{how}_{name}": value for name, value in found.items()}

        self._pipe.send("end")
        return figures

    async def _run(self, how: str) -> dict[str, float]:
        loop = asyncio.get_running_loop()
        _, _, version = self._use()
        path = WATCH.format(version)
        watches = []
        transports = []
        for _ in range(self._size.watches):
            transport, watch = await loop.create_connection(
                lambda: Watch(path), "127.0.0.1", self._port
            )
            transports.append(transport)
            watches.append(watch)

        await asyncio.sleep(0.5)
        used, began, _ = self._use()
        count = int(RATE * self._size.seconds)
        behind = await self._change(how, count)
        used_until, ended, _ = self._use()
        await self._wait_told(watches, count)
        for transport in transports:
            transport.close()

        return self._figures(watches, count) | {
            "changes_per_second": count / (ended - began),
            "core": (used_until - used) / (ended - began),
            "cpu_ms_per_change": (used_until - used) / count * 1000,
            "writer_behind_ms": behind * 1000,
        }

    async def _change(self, how: str, count: int) -> float:
        if how == "arranged":
            loop = asyncio.get_running_loop()
            self._pipe.send(("arrange", RATE, count))
            await loop.run_in_executor(None, self._pipe.recv)
            return 0.0

        writers = [Writer(self._port, whole=how == "put") for _ in range(CONNECTIONS)]
        for writer in writers:
            await writer.open()

        async with asyncio.TaskGroup() as group:

            async def change(number: int) -> None:
                namespace, name = self._names[number % len(self._names)]
                writer = writers[number % CONNECTIONS]
                group.create_task(writer.change(namespace, name, number))

            behind = await paced(RATE, count, change)

        for writer in writers:
            writer.close()

        return behind

    async def _wait_told(self, watches: list[Watch], count: int) -> None:
        async with asyncio.timeout(30):
            await asyncio.gather(*(watch.received(count) for watch in watches))

    def _figures(self, watches: list[Watch], count: int) -> dict[str, float]:
        """Check the received changes. The last receipt of each change counts."""
        last = [0.0] * count
        first = watches[0].numbers
        assert sorted(first) == list(range(count)), (
            "a change is missing or was received twice"
        )
        for watch in watches:
            assert watch.numbers == first, "two watches have different orders"
            for number, lag in zip(watch.numbers, watch.lags, strict=True):
                last[number] = max(last[number], lag)

        last.sort()
        return {
            "lag_p50_ms": last[count // 2] * 1000,
            "lag_p99_ms": last[count * 99 // 100] * 1000,
            "lag_max_ms": last[-1] * 1000,
            "mib_to_watches": sum(watch.bytes for watch in watches) / 2**20,
        }

    def _use(self) -> tuple[float, float, str]:
        self._pipe.send("use")
        used: tuple[float, float, str] = self._pipe.recv()
        return used


# Reported values of each run, and their units.
SHOWN = {
    "changes_per_second": "changes/s",
    "core": "of a core",
    "cpu_ms_per_change": "ms CPU/change",
    "lag_p50_ms": "ms",
    "lag_p99_ms": "ms",
    "lag_max_ms": "ms",
}


def measure(options: Options) -> Iterator[Figure]:
    size = Size(pods=20_000, watches=50, seconds=10)
    if options.quick:
        size = Size(pods=200, watches=3, seconds=1)

    runs = [measured_alone(size) for _ in range(options.rounds)]
    yield figure("pods created", "pods/s", "pods_created_per_second", runs)
    for how in ("patch", "put", "arranged"):
        for name, unit in SHOWN.items():
            what = name.removesuffix("_ms").replace("_", " ")
            yield figure(f"{how}: {what}", unit, f"{how}_{name}", runs)


def figure(case: str, unit: str, name: str, runs: list[dict[str, float]]) -> Figure:
    return median(BENCHMARK, case, OURS, unit, [one[name] for one in runs])


def measured_alone(size: Size) -> dict[str, float]:
    """Pin the server to the last core, and its clients to the others."""
    allowed = os.sched_getaffinity(0)
    cores = sorted(allowed)
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("fork")
    arguments = (cores[-1], size.pods, there)
    server = context.Process(target=serve, args=arguments, daemon=True)
    server.start()
    if len(cores) > 1:
        os.sched_setaffinity(0, set(cores[:-1]))

    try:
        return asyncio.run(Bench(here, size).run())
    finally:
        server.kill()
        server.join()
        os.sched_setaffinity(0, allowed)


if __name__ == "__main__":
    sys.exit(run(measure, rounds=1))
