"""Pods in a Redis server: one process fills it from an informer, all workers read it.

Bodies and labels are two hashes by key, each node has a set of keys, and changes are
published with their bodies. That is what programs do whose workers share a copy today.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec

from aioinformer import Client, KubeObject, SharedInformerFactory
from aioinformer.model.selectors import LabelSelector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from multiprocessing.connection import Connection
    from pathlib import Path

    from redis.asyncio import Redis

__all__ = ["RedisCopy", "fill", "missing", "redis_copy", "redis_server"]

PODS, LABELS, CHANGES, COMPLETE = "pods", "labels", "changes", "complete"
START_SECONDS = 10.0


def missing() -> str:
    """Return the reason why Redis cannot be measured; empty if it can."""
    if shutil.which("redis-server") is None:
        return "redis-server is not installed"

    return "" if find_spec("redis") else "the package redis is not installed"


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Run a Redis server without persistence for the time of a block.

    Yields:
        Path of its socket.
    """
    path = folder / "redis.sock"
    options = ("--port", "0", "--unixsocket", str(path), "--save", "", "--dir", folder)
    quiet = ("--loglevel", "warning")
    process = subprocess.Popen(
        ["redis-server", *options, *quiet], stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not path.exists():
            if time.monotonic() > deadline:
                raise RuntimeError("redis-server did not start")

            time.sleep(0.01)

        yield str(path)
    finally:
        process.kill()
        process.wait()


def _client(path: str) -> Redis:
    from redis.asyncio import Redis

    return Redis(unix_socket_path=path)


# ---------------------------------------------------------------- the writing process


def fill(pipe: Connection, url: str, path: str) -> None:
    """Copy the pods of a server until killed; send something once all are stored.

    Args:
        pipe: Pipe for that message.
        url: Address of the API server.
        path: Path of the socket of the Redis server.
    """
    asyncio.run(_fill(pipe, url, path))


async def _fill(pipe: Connection, url: str, path: str) -> None:
    redis = _client(path)
    factory = SharedInformerFactory(Client.from_url(url))
    informer = factory.informer("v1", "pods")

    async def added(pod: KubeObject) -> None:
        await _put(redis, pod)

    async def updated(old: KubeObject, new: KubeObject) -> None:
        await _put(redis, new, publish=True)

    handler = informer.add_event_handler(added, updated)
    async with factory:
        await handler.wait_synced()
        await redis.set(COMPLETE, 1)
        pipe.send(True)
        await asyncio.Event().wait()


async def _put(redis: Redis, pod: KubeObject, *, publish: bool = False) -> None:
    body = bytes(pod.raw)
    together: Any = redis.pipeline(transaction=True)
    together.hset(PODS, pod.key, body)
    together.hset(LABELS, pod.key, msgspec.json.encode(pod.labels))
    together.sadd(f"node:{pod.at('spec.nodeName')}", pod.key)
    if publish:
        together.publish(CHANGES, body)

    await together.execute()


# ---------------------------------------------------------------- the reading processes


class RedisCopy:
    """Pods in Redis, read without decoding their bodies."""

    def __init__(self, redis: Redis) -> None:
        self.latencies: list[float] = []
        self._redis: Any = redis

    async def get(self, key: str) -> int:
        """Read one pod."""
        return await self._redis.hget(PODS, key) is not None

    async def by_node(self, node: str) -> int:
        """Read the pods of a node."""
        return await self._read(await self._redis.smembers(f"node:{node}"))

    async def select(self, selector: str) -> int:
        """Read all labels, then the pods that match."""
        wanted = LabelSelector.parse(selector)
        labels = await self._redis.hgetall(LABELS)
        decode = msgspec.json.Decoder(dict[str, str]).decode
        keys = [key for key, it in labels.items() if wanted.matches(decode(it))]
        return await self._read(keys)

    async def _read(self, keys: Any) -> int:
        return len(await self._redis.hmget(PODS, list(keys))) if keys else 0

    def writes(self) -> bool:
        """Return False: a process beside the workers does."""
        return False

    async def told(self) -> None:
        """Return at once: nothing tells the stored pods."""

    async def follow(self) -> None:
        """Receive changes until cancelled."""
        decode = msgspec.json.Decoder(_Pod).decode
        subscription = self._redis.pubsub()
        await subscription.subscribe(CHANGES)
        async for message in subscription.listen():
            if message["type"] == "message":
                version = decode(message["data"]).metadata.version
                self.latencies.append((time.time_ns() - int(version)) / 1e6)


class _Metadata(msgspec.Struct):
    version: str = msgspec.field(name="resourceVersion")


class _Pod(msgspec.Struct):
    metadata: _Metadata


@asynccontextmanager
async def redis_copy(path: str) -> AsyncIterator[RedisCopy]:
    """Wait until the pods are stored, and follow their changes."""
    redis = _client(path)
    copy = RedisCopy(redis)
    while not await redis.get(COMPLETE):  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(copy.follow())
        yield copy
        following.cancel()
