"""`DeltaFIFO`: the queue of changes between the reflector and the store.

All deltas of one key are popped together, in order. Its first delta determines the
place of a key in the queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from aioinformer._condition import LoopCondition
from aioinformer.cache.deltas import (
    DeletedFinalStateUnknown,
    Delta,
    Deltas,
    DeltaType,
    Replacement,
)
from aioinformer.cache.queue import (
    BATCH_LIMIT,
    DeltaReader,
    ExpectedObjects,
    Progress,
    process_entries,
)
from aioinformer.errors import OptionsError, QueueShutDown
from aioinformer.metrics import NULL_SINK, GuardedSink
from aioinformer.model.keys import meta_namespace_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aioinformer.cache.interface import Contents
    from aioinformer.cache.queue import KnownObjects
    from aioinformer.metrics import MetricsSink

__all__ = ["DeltaFIFO"]

T = TypeVar("T")


class DeltaFIFO(Generic[T]):
    """Changes of objects by key, waiting for the store.

    `replace` queues the objects of a list one by one, as client-go's DeltaFIFO does.
    `replace_all` queues the list as one entry. Deltas queued before and after that
    entry are popped before and after it, never together. Of two deletions of one key in
    a row, the queue keeps the one with more information.

    Changes are plain methods that notify an `asyncio.Condition`; `pop`, `pop_batch` and
    `wait_filled` wait for it. Changes are atomic: if one raises, nothing was queued.
    (client-go leaves the first part of a list queued.) Changes raise `NoKey` for an
    object without a key, and `WrongLoop` while a task waits in another loop or thread.

    Args:
        key_func: Function that returns the key of an object; by default
            `"namespace/name"` of its metadata.
        known_objects: Objects that the consumer has, such as its store; never written.
            They determine which objects a list deletes, which deletions are queued, and
            which objects are resynced.
        transformer: Function called once with each object; its result is queued. It is
            not called for tombstones, resyncs, and lists queued as one entry. If it
            fails, nothing is queued.
        emit_replaced: True to queue listed objects as REPLACED deltas, False as SYNC
            deltas, like a resync.
        name: Name in log, metrics and `repr()`.
        metrics: Sink of `informer_queued_items`, a gauge, and of
            `informer_processing_latency_seconds` for the calls that `pop` makes. Both
            have the label `name`.

    Raises:
        OptionsError: If the transformer is not a plain function.
    """

    def __init__(
        self,
        *,
        key_func: Callable[[T], str] = meta_namespace_key,
        known_objects: KnownObjects[T] | None = None,
        transformer: Callable[[T], T] | None = None,
        emit_replaced: bool = True,
        name: str = "",
        metrics: MetricsSink = NULL_SINK,
    ) -> None:
        self.name = name
        self._metrics = GuardedSink(metrics, name, name=name)
        self._reader = DeltaReader(key_func, transformer)
        self._expected = ExpectedObjects(known_objects)
        self._list_type = DeltaType.REPLACED if emit_replaced else DeltaType.SYNC
        self._progress = Progress()
        self._condition = LoopCondition(f"DeltaFIFO {name}".rstrip())
        self._closed = False
        # True once the consumer calls `applied()`, which measures the depth. Measuring
        # it for each entry makes the pipeline of an informer slower by half.
        self._measures_batches = False

        # Invariants: the keys between two replacements in the queue are the keys of one
        # segment, each once. There is one segment more than replacements. Several
        # deltas of one key are in a list.
        self._queue: deque[str | Replacement[T]] = deque()
        self._segments: deque[dict[str, Delta[Any] | list[Delta[Any]]]] = deque([{}])

    def __len__(self) -> int:
        return len(self._queue)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        name = f"{self.name} " if self.name else ""
        return f"<DeltaFIFO {name}{state} waiting={len(self)}>"

    @property
    def closed(self) -> bool:
        """True after `close()`. Queued entries can still be popped."""
        return self._closed

    @property
    def has_synced(self) -> bool:
        """True once the first list was popped, or a change came before any list.

        As in client-go: a queue that is filled by hand needs no list. Entries count
        when they have been processed.
        """
        return self._progress.has_synced

    # ------------------------------------------------------------ queueing

    def add(self, obj: T) -> None:
        """Queue an ADDED delta."""
        self._change(DeltaType.ADDED, obj)

    def update(self, obj: T) -> None:
        """Queue an UPDATED delta."""
        self._change(DeltaType.UPDATED, obj)

    def delete(self, obj: T | DeletedFinalStateUnknown[T]) -> None:
        """Queue a DELETED delta, unless the object is neither queued nor known.

        Without known objects, as in client-go, the queue alone decides.

        Args:
            obj: Last state of the object, or a tombstone.
        """
        self._condition.notify_change()
        key = self.key_of(obj)
        if key in self._segments[-1] or self._expected.has(key):
            self._change(DeltaType.DELETED, obj)
        else:
            self._progress.change_queued()

    def replace(self, objects: Iterable[T], resource_version: str = "") -> None:
        """Queue each object of a complete list, and a deletion of all others.

        The listed objects come first. Then come deletions of queued objects, with the
        state queued last, and of known objects, with the known state.

        Args:
            objects: All objects that exist; one that is listed twice is queued twice.
            resource_version: Version of the list.
        """
        self._condition.notify_change()
        listed = self._reader.read_list(objects, self._list_type)
        queued = {key: _newest(it) for key, it in self._segments[-1].items()}
        deleted = list(self._expected.deletions({key for key, _ in listed}, queued))
        for key, delta in (*listed, *deleted):
            self._put(key, delta)

        if resource_version:
            self._progress.version_queued(resource_version)

        self._progress.list_queued()
        self._measure_depth()

    def replace_all(self, contents: Contents[T], resource_version: str) -> None:
        """Queue a complete list as one entry.

        Args:
            contents: All objects that exist, ready to be swapped into a store. They
                must not change any more, and are not transformed.
            resource_version: Version of the list.
        """
        self._condition.notify_change()
        self._queue.append(Replacement(contents, resource_version))
        self._segments.append({})
        self._expected.listed = contents
        self._progress.queued += 1
        self._progress.version_queued(resource_version)
        self._progress.list_queued()
        self._measure_depth()

    def resync(self) -> None:
        """Queue a SYNC delta for each known object that has no queued delta.

        That blocks the event loop for about a microsecond per object.
        """
        self._condition.notify_change()
        for key, delta in self._expected.syncs(self.newest):
            self._put(key, delta)

        self._measure_depth()

    def bookmark(self, resource_version: str) -> None:
        """Queue the version of the store after all deltas queued so far.

        It is not an entry: consecutive bookmarks replace each other. (In client-go each
        is an entry, and an option drops them.)
        """
        self._condition.notify_change()
        self._progress.version_queued(resource_version)
        self._measure_depth()

    def feed(self, batch: Iterable[Delta[T]], resource_version: str = "") -> None:
        """Queue a batch of deltas and notify the consumer once.

        Deletions are queued whether the object is known or not, as the server sent
        them.

        Args:
            batch: Deltas in order; may be empty. Queue tombstones with `delete`.
            resource_version: Version of the store after the batch; empty if unknown.

        Raises:
            NoKey: If an object has no key; nothing was queued.
            WrongLoop: If a task waits in another event loop; nothing was queued.
            Exception: Error of the transformer; nothing was queued.
        """
        self._condition.notify_change()
        keys, deltas = self._reader.read_batch(batch)
        put = self._put
        for key, delta in zip(keys, deltas, strict=True):
            put(key, delta)

        progress = self._progress
        if keys:
            progress.change_queued()

        if resource_version:
            progress.version_queued(resource_version)

        if self._metrics.enabled:
            self._measure_depth()

    def close(self) -> None:
        """End all waits. Idempotent.

        Queued entries can still be popped. As in client-go, more can be queued and
        popped, too.

        Raises:
            WrongLoop: If a task waits in another event loop or thread.
        """
        self._condition.notify_change()
        self._closed = True

    # ------------------------------------------------------------ popping

    def pop_nowait(self) -> Deltas[T] | Replacement[T]:
        """Pop the next entry.

        Raises:
            asyncio.QueueEmpty: If there is none.
            QueueShutDown: If there is none, and the queue is closed.
        """
        if not self._queue:
            raise (
                QueueShutDown(f"{self!r} is closed and empty")
                if self._closed
                else asyncio.QueueEmpty
            )

        entry = self._take()
        self._progress.popped += 1
        if self._metrics.enabled and not (self._measures_batches and self._queue):
            self._measure_depth()

        return entry

    async def pop(
        self, process: Callable[[Deltas[T] | Replacement[T], bool], None]
    ) -> None:
        """Wait for the next entry, pop it and call `process` with it.

        The entry counts for `has_synced` when `process` returns or raises. (In
        client-go that differs between its queues.) Slow calls are logged if entries
        pile up. While there are entries, `pop` does not suspend. If you pop many
        entries in a row, let other tasks run in between.

        Args:
            process: Plain function, called with the entry, and with True if the queue
                had not synced before. If it raises `Requeue`, the entry is queued
                again, and other tasks run.

        Raises:
            QueueShutDown: If the queue is closed and empty.
            OptionsError: If `process` is a coroutine function or a generator function;
                the entry is queued again.
            WrongLoop: If it has to wait, and a task waits in another event loop.
            Exception: Error of `process`, or the cause of its `Requeue`.

        Cancellation:
            Safe: nothing was popped, or the entry was processed.
        """
        await self._wait_for_entry()
        initial = not self.has_synced
        key, entry = self._head_key(), self._take()
        await self._process({key: entry}, lambda: process(entry, initial))

    async def pop_batch(
        self,
        process_batch: Callable[[list[Deltas[T]], bool], None],
        process: Callable[[Deltas[T] | Replacement[T], bool], None],
        *,
        limit: int = BATCH_LIMIT,
    ) -> None:
        """Wait for entries, pop up to `limit` of them and process them in one call.

        A batch ends where the first list ends.

        Args:
            process_batch: Function called with the deltas of several keys, and with
                True if the queue had not synced before.
            process: Function called for a single entry, as by `pop`. A whole list is
                always a single entry.
            limit: Maximum number of entries in a batch, at least 1.

        Raises:
            OptionsError: If the limit is less than 1.
            QueueShutDown: If the queue is closed and empty.
            Exception: Error of the called function, or the cause of its `Requeue`.
                A `Requeue` queues the whole batch again.

        Cancellation:
            Safe: nothing was popped, or the batch was processed.
        """
        if limit < 1:
            raise OptionsError(f"limit must be at least 1, not {limit}")

        await self._wait_for_entry()
        initial = not self.has_synced
        # Entries count once they are processed, so these are left of the first list.
        limit = min(limit, self._progress.left_to_sync or limit)
        batch = {self._head_key(): self._take()}
        while self._queue and len(batch) < limit and None not in batch:
            key = self._head_key()
            if key is None:
                break

            batch[key] = self._take()

        entries = list(batch.values())
        if len(entries) == 1:
            await self._process(batch, lambda: process(entries[0], initial))
        else:
            changes = cast("list[Deltas[T]]", entries)
            await self._process(batch, lambda: process_batch(changes, initial))

    async def wait_filled(self) -> None:
        """Wait for an entry, or for a version to apply.

        Raises:
            QueueShutDown: If the queue is closed and empty.

        Cancellation:
            Safe: nothing is popped.
        """
        await self._condition.wait_for(self._can_progress)
        if self._closed and not (self._queue or self._progress.has_version):
            raise QueueShutDown(f"{self!r} is closed and empty")

    def applied(self) -> str | None:
        """Return the version of the store after everything popped was applied.

        Returns:
            Version of the newest batch whose deltas, and those of all batches before
            it, were popped; None if it is the same as last time.
        """
        self._measures_batches = True
        if self._metrics.enabled and self._queue:
            self._measure_depth()

        return self._progress.applied()

    def newest(self, key: str) -> Delta[T] | None:
        """Return the newest delta queued for `key` after the last list, or None."""
        queued = self._segments[-1].get(key)
        return None if queued is None else _newest(queued)

    def key_of(
        self, obj: T | DeletedFinalStateUnknown[T] | Sequence[Delta[Any]]
    ) -> str:
        """Return the key of an object, of a tombstone, or of the newest of some deltas.

        Raises:
            OptionsError: If the list of deltas is empty.
            NoKey: If the key function fails, or returns no string.
        """
        return self._reader.key_of(obj)

    # ------------------------------------------------------------ helpers

    def _change(self, kind: DeltaType, obj: T | DeletedFinalStateUnknown[T]) -> None:
        self._condition.notify_change()
        key = self.key_of(obj)
        self._put(key, self._reader.read(kind, obj))
        self._progress.change_queued()
        self._measure_depth()

    def _put(self, key: str, delta: Delta[Any]) -> None:
        segment = self._segments[-1]
        queued = segment.get(key)
        if queued is None:
            segment[key] = delta
            self._queue.append(key)
            self._progress.queued += 1
            return

        deltas = queued if isinstance(queued, list) else [queued]
        if deltas[-1].type is DeltaType.DELETED and delta.type is DeltaType.DELETED:
            deltas[-1] = _fuller(deltas[-1], delta)
        else:
            deltas.append(delta)

        segment[key] = deltas

    def _head_key(self) -> str | None:
        """Return the key of the first entry, None for a whole list."""
        head = self._queue[0]
        return head if isinstance(head, str) else None

    def _take(self) -> Deltas[T] | Replacement[T]:
        """Take the first entry out. It does not count as popped yet."""
        entry = self._queue.popleft()
        if isinstance(entry, str):
            deltas = self._segments[0].pop(entry)
            return deltas if isinstance(deltas, list) else [deltas]

        self._segments.popleft()
        if entry.contents is self._expected.listed:
            self._expected.listed = None

        return entry

    async def _process(
        self,
        entries: Mapping[str | None, Deltas[T] | Replacement[T]],
        process: Callable[[], object],
    ) -> None:
        await process_entries(
            entries,
            process,
            queue=self,
            name=self.name or "DeltaFIFO",
            metrics=self._metrics,
            done=self._done,
            put_back=self._put_back,
        )

    def _done(self, keys: Iterable[str | None]) -> None:
        self._progress.popped += sum(1 for _ in keys)

    def _put_back(
        self, entries: Mapping[str | None, Deltas[T] | Replacement[T]]
    ) -> None:
        for key, entry in entries.items():
            if isinstance(entry, Replacement):
                # At the front: everything queued is newer than the list.
                self._queue.appendleft(entry)
                self._segments.appendleft({})
                self._expected.listed = self._expected.listed or entry.contents
                return  # a list is popped alone

            assert key is not None
            if len(self._segments) == 1 and key not in self._segments[0]:
                self._segments[0][key] = [*entry]
                self._queue.append(key)
                self._progress.queued += 1

        # At the end, so that other keys do not wait for them.
        self._progress.hold_back()
        self._done(entries)

    def _can_progress(self) -> bool:
        progress = self._progress
        return bool(
            self._queue
            or progress.versions
            or progress.passed is not None
            or self._closed
        )

    async def _wait_for_entry(self) -> None:
        """Wait for an entry. No other task runs before this returns."""
        if not self._queue:
            await self._condition.wait_for(lambda: self._queue or self._closed)
            if not self._queue:
                raise QueueShutDown(f"{self!r} is closed and empty")

    def _measure_depth(self) -> None:
        if self._metrics.enabled:
            self._metrics.gauge("informer_queued_items", len(self._queue))


def _newest(queued: Delta[T] | list[Delta[T]]) -> Delta[T]:
    return queued[-1] if isinstance(queued, list) else queued


def _fuller(first: Delta[Any], second: Delta[Any]) -> Delta[Any]:
    """Return the one of two deletions that has more information on the last state."""
    if type(first.object) is not DeletedFinalStateUnknown:
        return first

    last = second.object
    if isinstance(last, DeletedFinalStateUnknown) and last.obj is None:
        return first

    return second
