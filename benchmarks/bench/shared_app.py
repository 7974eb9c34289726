"""ASGI app with a copy of the pods, in each worker of uvicorn, controlled through a socket.

The copy is an informer, with a directory that the workers share or without, or the
hashes of a Redis server that another process fills.
"""

from __future__ import annotations

import asyncio
import os
import time
import traceback
from contextlib import asynccontextmanager, suppress
from multiprocessing import connection
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from aioinformer import Client, KubeObject, SharedInformerFactory, index_by
from bench.resident import memory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from multiprocessing.connection import Connection

    from aioinformer import SharedInformer

__all__ = [
    "SETTINGS",
    "Changed",
    "Copy",
    "Ready",
    "Settings",
    "Spent",
    "app",
    "informer_of",
    "private_memory",
]

SETTINGS = "SHARED_APP"
"""Name of the environment variable with the settings, as JSON."""

TIMEOUT_SECONDS = 300.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of all workers.

    Attributes:
        control: Path of the socket that commands come from.
        url: Address of the API server; empty for an app without a copy.
        cache_dir: Directory that the workers share; empty for none.
        compression: Compression of an informer without a directory; empty for none.
        redis: Path of the socket of a Redis server; empty for an informer.
    """

    control: str
    url: str = ""
    cache_dir: str = ""
    compression: str = ""
    redis: str = ""


class Ready(msgspec.Struct, frozen=True):
    """First message of a worker.

    Attributes:
        pid: Process.
        at: Time when the copy was complete, by `time.monotonic()`.
    """

    pid: int
    at: float


class Spent(msgspec.Struct, frozen=True):
    """Durations of many reads, in microseconds, and what they returned in total."""

    microseconds: list[float]
    found: int


class Changed(msgspec.Struct, frozen=True):
    """Changes that reached a handler.

    Attributes:
        latencies: Milliseconds from the server to the handler.
        cpu: Share of a core that the process used meanwhile.
    """

    latencies: list[float]
    cpu: float


class Copy(Protocol):
    """Copy of all pods."""

    @property
    def latencies(self) -> list[float]:
        """Latencies of the changes so far, in milliseconds."""

    async def get(self, key: str) -> int:
        """Read one pod; return the number of pods found."""

    async def by_node(self, node: str) -> int:
        """Read the pods of a node; return their number."""

    async def select(self, selector: str) -> int:
        """Read the pods that match a selector; return their number."""

    def writes(self) -> bool:
        """Return True if this process writes the copy."""

    async def told(self) -> None:
        """Wait until the handler has got each pod once."""


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Respond to requests with a few bytes, and to commands from the start."""
    if scope["type"] != "lifespan":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})
        return

    settings = msgspec.json.decode(os.environ[SETTINGS], type=Settings)
    await receive()
    with connection.Client(settings.control) as pipe:
        async with _copy_of(settings) as copy:
            pipe.send(Ready(os.getpid(), time.monotonic()))
            await send({"type": "lifespan.startup.complete"})
            async with asyncio.TaskGroup() as tasks:
                obeying = tasks.create_task(_obey(pipe, copy))
                await receive()
                pipe.close()
                obeying.cancel()

    await send({"type": "lifespan.shutdown.complete"})


async def _obey(pipe: Connection, copy: Copy) -> None:
    with suppress(EOFError, OSError):
        while True:
            command, *arguments = await asyncio.to_thread(pipe.recv)
            try:
                answer = await _answer(copy, command, *arguments)
            except Exception:
                # The lifespan waits for the shutdown before it would raise.
                traceback.print_exc()
                pipe.close()
                raise

            pipe.send(answer)


async def _answer(copy: Copy, command: str, *arguments: Any) -> Any:
    match command, *arguments:
        case "memory", *_:
            return private_memory()
        case "writes", *_:
            return copy.writes()
        case "told", *_:
            await copy.told()
            return time.monotonic()
        case (("get" | "by_node" | "select"), whats):
            return await _spend(getattr(copy, command), whats)
        case "watch", count:
            return await _watch(copy, count)
        case _:
            raise ValueError(command)


async def _spend(read: Any, whats: list[str]) -> Spent:
    spent = []
    found = 0
    for what in whats:
        begun = time.perf_counter_ns()
        found += await read(what)
        spent.append((time.perf_counter_ns() - begun) / 1000)

    return Spent(spent, found)


async def _watch(copy: Copy, count: int) -> Changed:
    began, cpu = time.monotonic(), time.process_time()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        # A wake-up for each change would count as the worker's work.
        while len(copy.latencies) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    used = (time.process_time() - cpu) / (time.monotonic() - began)
    return Changed(copy.latencies, used)


def private_memory() -> float:
    """Return the anonymous memory of this process in MiB, without mapped files."""
    return memory("RssAnon") / 1024


# ---------------------------------------------------------------- the copies


def _copy_of(settings: Settings) -> AbstractAsyncContextManager[Copy]:
    if settings.redis:
        from bench.redis_store import redis_copy  # loads the package redis

        return redis_copy(settings.redis)

    return _informer_copy(settings) if settings.url else _no_copy()


class Nothing:
    """No copy, for the memory of the app alone."""

    def __init__(self) -> None:
        self.latencies: list[float] = []

    async def get(self, key: str) -> int:
        """Find nothing."""
        return 0

    by_node = select = get

    def writes(self) -> bool:
        """Return False."""
        return False

    async def told(self) -> None:
        """Return at once."""


@asynccontextmanager
async def _no_copy() -> AsyncIterator[Copy]:
    # Other apps have an entered client, too.
    async with Client.from_url("http://127.0.0.1:9"):
        yield Nothing()


def informer_of(factory: SharedInformerFactory, compression: str) -> SharedInformer:
    """Return the informer of all measurements."""
    # Only the writer of a cache lists, which needs no compression of its own.
    more: dict[str, Any] = {"compression": compression} if compression else {}
    indexers = {"node": index_by("spec.nodeName")}
    return factory.informer("v1", "pods", indexers=indexers, **more)


class InformerCopy:
    """Copy by an informer."""

    def __init__(self, informer: SharedInformer) -> None:
        self.latencies: list[float] = []
        self._informer = informer
        self._lister = informer.lister
        self._handler = informer.add_event_handler(on_update=self._updated)

    async def get(self, key: str) -> int:
        """Read one pod."""
        return self._lister.get(key) is not None

    async def by_node(self, node: str) -> int:
        """Read the pods of a node."""
        return len(self._lister.by_index("node", node))

    async def select(self, selector: str) -> int:
        """Read the pods that match a selector."""
        return len(self._lister.list(selector))

    def writes(self) -> bool:
        """Return True if the reflector runs here."""
        cache = self._informer.status.cache
        return cache is None or cache.role == "writer"

    async def told(self) -> None:
        """Wait for the handler."""
        await self._handler.wait_synced()

    async def _updated(self, old: KubeObject, new: KubeObject) -> None:
        self.latencies.append((time.time_ns() - int(new.resource_version)) / 1e6)


@asynccontextmanager
async def _informer_copy(settings: Settings) -> AsyncIterator[Copy]:
    client = Client.from_url(settings.url)
    more: dict[str, Any] = (
        {"cache_dir": settings.cache_dir} if settings.cache_dir else {}
    )
    factory = SharedInformerFactory(client, **more)
    copy = InformerCopy(informer_of(factory, settings.compression))
    async with factory:
        await factory.wait_for_cache_sync(timeout=TIMEOUT_SECONDS)
        yield copy
