"""Pods that grow to twice their size, in an informer with a memory budget.

The pods come from another process by a pipe, as the informer takes them.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any

import msgspec

from aioinformer import KubeObject, SharedInformer
from aioinformer.informer.memory_budget import MemoryBudget
from aioinformer.informer.store.memory_limiter import MemoryLimiter
from aioinformer.model.views import ObjectContext
from aioinformer.watch import EventType, WatchEvent
from aioinformer.watch.interface import Watch
from bench.alone import alone, companion
from bench.corpus import FIRST_VERSION, unordered_pods
from bench.resident import forget_peak, memory, resident

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from multiprocessing.connection import Connection

    from aioinformer.watch.interface import ListOptions, WatchOptions

__all__ = ["Growth", "measured"]

_PAGE = 500
_BATCH = 16
"""Events in one chunk."""

_ORIGINAL = "kubectl.kubernetes.io/last-applied-configuration"


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """Resident memory in bytes, without that of the program before the list.

    Attributes:
        listed: Memory when all pods are listed.
        grown: Memory when all pods have grown.
        peak: Peak of all that.
        held: Bytes that the informer counts in the end.
        compressed: Number of compressed bodies in the end.
        seconds: Duration of the growth.
    """

    listed: int
    grown: int
    peak: int
    held: int
    compressed: int
    seconds: float


def measured(count: int, limit: int | None) -> Growth:
    """List pods, and change all of them, in two new processes.

    Args:
        count: Number of pods.
        limit: Budget in bytes; None for none.
    """
    with companion(_serve, count) as pipe:
        return alone(_measure, pipe, count, limit)


def _measure(pipe: Connection, count: int, limit: int | None) -> Growth:
    return asyncio.run(_grow(pipe, count, limit))


async def _grow(pipe: Connection, count: int, limit: int | None) -> Growth:
    limiter = None if limit is None else MemoryLimiter(MemoryBudget(limit))
    source = _Growing(pipe)
    pods = SharedInformer(source, limiter=limiter)  # type: ignore[arg-type]
    runs = [pods.run()] if limiter is None else [pods.run(), limiter.run()]
    tasks = [asyncio.create_task(it) for it in runs]
    before = resident()
    forget_peak()
    source.may_list.set()
    await pods.wait_synced()
    await asyncio.sleep(1)
    listed = resident()
    began = asyncio.get_running_loop().time()
    source.may_grow.set()
    await pods.wait_for_version(str(FIRST_VERSION + 2 * count - 1))
    seconds = asyncio.get_running_loop().time() - began
    await asyncio.sleep(1)
    grown, peak = resident(), memory("VmHWM")
    for body in _grown(count):
        stored = pods.indexer.get_by_key(KubeObject.of(body).key)
        assert stored is not None, "an object is missing"
        assert stored.raw == body, "the store has something else"

    status = pods.status.memory
    for task in tasks:
        task.cancel()

    await asyncio.wait(tasks)
    return Growth(
        listed=(listed - before) * 1024,
        grown=(grown - before) * 1024,
        peak=(peak - before) * 1024,
        held=0 if status is None else status.held,
        compressed=0 if status is None else status.compressed,
        seconds=seconds,
    )


# ---------------------------------------------------------------- the server's side


def _serve(pipe: Connection, count: int) -> None:
    """Send the pods, and then the grown ones: the lengths of some, and their bytes."""
    for bodies, together in ((_listed(count), _PAGE), (_grown(count), _BATCH)):
        while some := list(islice(bodies, together)):
            pipe.send([len(body) for body in some])
            pipe.send_bytes(b"".join(some))

        pipe.send([])


def _encoded(pod: Any) -> bytes:
    return msgspec.json.encode(pod | {"apiVersion": "v1", "kind": "Pod"})


def _listed(count: int) -> Iterator[bytes]:
    yield from map(_encoded, unordered_pods(count, 1))


def _grown(count: int) -> Iterator[bytes]:
    """Yield the pods with another one of their size in an annotation."""
    others = unordered_pods(count, 2)
    for number, (pod, other) in enumerate(
        zip(unordered_pods(count, 1), others, strict=True)
    ):
        pod["metadata"]["resourceVersion"] = str(FIRST_VERSION + count + number)
        original = msgspec.json.encode(other).decode()
        # Quotes would be escaped, and the pod three times as large.
        pod["metadata"]["annotations"][_ORIGINAL] = original.replace('"', "'")
        yield _encoded(pod)


# ---------------------------------------------------------------- the informer's side


class _Growing:
    """Source of the pods, which waits until they are wanted."""

    def __init__(self, pipe: Connection) -> None:
        self.may_list = asyncio.Event()
        self.may_grow = asyncio.Event()
        self._pipe = pipe

    @asynccontextmanager
    async def list(self, _: ListOptions) -> AsyncIterator[_Pages]:
        await self.may_list.wait()
        yield _Pages(self._pipe)

    @asynccontextmanager
    async def watch(self, _: WatchOptions) -> AsyncIterator[_Changes]:
        yield _Changes(self.may_grow, self._pipe)


class _Objects:
    """Objects from a pipe. As a decoder makes them, all of a response share a context."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._context = ObjectContext()

    async def next(self) -> list[KubeObject]:
        lengths = await asyncio.to_thread(self._pipe.recv)
        if not lengths:
            return []

        received = await asyncio.to_thread(self._pipe.recv_bytes)
        ends = list(accumulate(lengths))
        return [
            self._object(received[end - length : end])
            for length, end in zip(lengths, ends, strict=True)
        ]

    def _object(self, body: bytes) -> KubeObject:
        it = KubeObject.of(body)
        return KubeObject(
            body, it.key, it.uid, it.resource_version, it.label_set, self._context
        )


class _Pages:
    """All pages of the list in one."""

    resource_version = str(FIRST_VERSION)
    continue_token = ""
    skipped = 0
    unreadable: tuple[str, ...] = ()

    def __init__(self, pipe: Connection) -> None:
        self._objects = _Objects(pipe)

    async def __aiter__(self) -> AsyncIterator[list[KubeObject]]:
        while objects := await self._objects.next():
            yield objects


class _Changes(Watch):
    """A watch that shows each pod grown, and then nothing."""

    def __init__(self, may_grow: asyncio.Event, pipe: Connection) -> None:
        super().__init__()
        self._may_grow = may_grow
        self._objects = _Objects(pipe)

    def _close(self) -> None:
        self._may_grow.set()

    async def _fetch(self) -> list[WatchEvent]:
        await self._may_grow.wait()
        objects = await self._objects.next()
        if not objects:
            await asyncio.Event().wait()

        return [WatchEvent(EventType.MODIFIED, it) for it in objects]
