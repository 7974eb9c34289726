"""A web app whose informers have all objects of a large cluster, controlled through a pipe."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from typing import TYPE_CHECKING, Any, TypedDict

import zstandard
from aiohttp import web

from aioinformer import (
    Added,
    Client,
    Resource,
    SharedInformerFactory,
    strip_managed_fields,
)
from aioinformer.informer.notifications import object_of
from bench.digest import digest
from bench.large_cluster import OTHERS
from bench.resident import forget_peak, memory, resident

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    from aioinformer.informer.notifications import Notification

__all__ = ["Settings", "run_large_app", "without_dictionary"]

TIMEOUT_SECONDS = 900.0


class Settings(TypedDict, total=False):
    """Options of the informers, besides the compression."""

    drops_managed_fields: bool
    metadata_only: bool
    memory_budget: str


def run_large_app(
    pipe: Connection, url: str, core: int | None, settings: Settings
) -> None:
    """Serve until killed.

    It responds to each command, a tuple, when it is done: `("sync", objects)`,
    `("followed", changes)`, `("relist", objects)`, `("rest", seconds)`, and
    `("digests",)` with those of all collections by name. The response to `("follow",)`
    is empty. The others are dictionaries: when it began and ended by
    `time.monotonic()`, seconds, CPU in percent of a core, memory and its peak in KiB,
    delays of changes in milliseconds.

    Args:
        pipe: Pipe for the port and the memory of the start, then for the responses.
        url: Address of the API server.
        core: Core to use; None for any.
        settings: Options of the informers.
    """
    if core is not None:
        os.sched_setaffinity(0, {core})

    asyncio.run(_run(pipe, url, settings))


async def _run(pipe: Connection, url: str, settings: Settings) -> None:
    async with Client.from_url(url) as client:
        app = _App(client, settings)
        runner = web.AppRunner(app.routes(), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        gc.collect()
        gc.freeze()  # as a web app does before it serves
        pipe.send((runner.addresses[0][1], {"resident": resident()}))
        while True:
            command, *arguments = await asyncio.to_thread(pipe.recv)
            pipe.send(await getattr(app, command)(*arguments))


class _App:
    """Informers, the handlers that count, and what they have measured."""

    def __init__(self, client: Client, settings: Settings) -> None:
        drops = settings.get("drops_managed_fields", False)
        self._factory = SharedInformerFactory(
            client,
            transform=strip_managed_fields if drops else None,
            memory_budget=settings.get("memory_budget"),
        )
        partial = settings.get("metadata_only", False)
        self._informers = {
            name: self._factory.informer(
                Resource("", "v1", name), compression="zstd", metadata_only=partial
            )
            for name in ("pods", *(f"others{number}" for number in range(OTHERS)))
        }
        self._handlers = [
            it.add_event_handler(on_event=self._changed)
            for it in self._informers.values()
        ]
        self._pods = self._informers["pods"].store
        self._delays: list[float] | None = []  # None while they are not measured
        self._count = 0
        self._expected = -1
        self._reached = asyncio.Event()
        self._last = 0.0

    def routes(self) -> web.Application:
        async def respond(request: web.Request) -> web.Response:
            return web.json_response({"pods": len(self._pods)})

        app = web.Application()
        app.router.add_get("/", respond)
        return app

    async def _changed(self, event: Notification) -> None:
        if isinstance(event, Added) and event.initial:
            return

        version = int(object_of(event).resource_version)
        if self._delays is not None:
            self._delays.append((time.time_ns() - version) / 1e6)

        self._count += 1
        self._last = time.monotonic()
        if self._count == self._expected:
            self._reached.set()

    async def _counted(self, number: int) -> None:
        self._expected = number
        if self._count < number:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await self._reached.wait()

        self._reached.clear()
        self._count = 0

    # ------------------------------------------------------------ commands

    async def sync(self, objects: int) -> dict[str, Any]:
        """List everything."""
        forget_peak()
        began = _Beginning()
        await self._factory.start()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            for handler in self._handlers:
                await handler.wait_synced()

        found = sum(len(it.store) for it in self._informers.values())
        assert found == objects, f"{found} objects, not {objects}"
        return began.until(time.monotonic())

    async def follow(self) -> dict[str, Any]:
        """Begin to measure changes."""
        self._beginning = _Beginning()
        return {}

    async def followed(self, changes: int) -> dict[str, Any]:
        """Wait for the last one of some changes."""
        await self._counted(changes)
        delays, self._delays = self._delays, []
        return {**self._beginning.until(self._last), "delays": delays}

    async def relist(self, objects: int) -> dict[str, Any]:
        """Wait until all objects have changed, and no body is a difference any more.

        The result has the seconds until handlers were told, as `told`. Nothing is measured
        until the end, as that would stop the event loop.
        """
        forget_peak()
        began, self._delays = _Beginning(), None
        await self._counted(objects)
        told = self._last
        for _ in range(10 * int(TIMEOUT_SECONDS)):
            memory = self._informers["pods"].status.memory
            if memory is None or not memory.differences:
                measured = began.until(time.monotonic())
                return measured | {"told": told - measured["began"]}

            await asyncio.sleep(0.1)

        raise TimeoutError("bodies are still differences")

    async def rest(self, seconds: float) -> dict[str, Any]:
        """Do nothing."""
        began = _Beginning()
        await asyncio.sleep(seconds)
        return began.until(time.monotonic())

    async def digests(self) -> dict[str, str]:
        """Compute the digest of each store."""
        return {
            name: digest(obj.raw for obj in it.store.list())
            for name, it in self._informers.items()
        }


class _Beginning:
    """Time and CPU at the beginning of a measurement."""

    def __init__(self) -> None:
        self._time = time.monotonic()
        self._cpu = time.process_time()

    def until(self, end: float) -> dict[str, float]:
        """Return what was used."""
        cpu = time.process_time() - self._cpu
        peak = memory("VmHWM")
        return {
            "began": self._time,
            "ended": end,
            "seconds": end - self._time,
            "cpu": 100 * cpu / (end - self._time),
            "peak": peak,
            "resident": resident(),
        }


def without_dictionary(bodies: Sequence[bytes]) -> float:
    """Return the mean size in KiB of bodies that zstd compresses one by one."""
    compress = zstandard.ZstdCompressor(level=3).compress
    return sum(len(compress(it)) for it in bodies) / len(bodies) / 1024
