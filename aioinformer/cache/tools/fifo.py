"""`FIFO` and `OrderedFIFO`: client-go's other queues.

`FIFO` hands out the newest state of each object, in the order in which they were first
queued. `OrderedFIFO`, client-go's RealFIFO, hands out every change, in the order in
which the reflector received it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from aioinformer._condition import LoopCondition
from aioinformer.cache.deltas import (
    DeletedFinalStateUnknown,
    Delta,
    Deltas,
    DeltaType,
    Replacement,
    ResyncAll,
)
from aioinformer.cache.queue import (
    BATCH_LIMIT,
    DeltaReader,
    ExpectedObjects,
    Progress,
    process_entries,
)
from aioinformer.cache.store import Store
from aioinformer.errors import OptionsError, QueueShutDown
from aioinformer.metrics import NULL_SINK, GuardedSink
from aioinformer.model.keys import key_of, meta_namespace_key

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aioinformer.cache.interface import Contents
    from aioinformer.cache.queue import KnownObjects
    from aioinformer.metrics import MetricsSink

__all__ = ["FIFO", "OrderedFIFO"]

T = TypeVar("T")


class FIFO(Generic[T]):
    """Objects that wait to be processed, each once and in its newest state.

    It returns states, not changes: a deletion only removes an object from the
    queue. The queue can be read and written like a `Store` of waiting objects. Unlike a
    store it belongs to one event loop, also for reading.

    Waiting is as in `DeltaFIFO`. Changes raise `NoKey` for an object without a key, and
    `WrongLoop` while a task waits in another loop or thread. Then nothing has changed.

    Args:
        key_func: Function that returns the key of an object; by default
            `"namespace/name"` of its metadata.
        name: Name in log, metrics and `repr()`.
        metrics: Sink of `informer_queued_items`, a gauge, and of
            `informer_processing_latency_seconds` for the calls that `pop` makes. Both
            have the label `name`.
    """

    def __init__(
        self,
        *,
        key_func: Callable[[T], str] = meta_namespace_key,
        name: str = "",
        metrics: MetricsSink = NULL_SINK,
    ) -> None:
        self.name = name
        self._metrics = GuardedSink(metrics, name, name=name)
        self._condition = LoopCondition(f"FIFO {name}".rstrip())
        self._closed = False
        self.key_func = key_func

        # In queue order. An object that changes keeps its place.
        self._objects: OrderedDict[str, T] = OrderedDict()

        # Keys of the first list that were neither processed nor deleted; None before
        # the first change or list.
        self._initial: set[str] | None = None

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        name = f"{self.name} " if self.name else ""
        return f"<FIFO {name}{state} waiting={len(self)}>"

    @property
    def closed(self) -> bool:
        """True after `close()`. Queued objects can still be popped."""
        return self._closed

    @property
    def has_synced(self) -> bool:
        """True once the first list was processed, or an object came before any list."""
        return self._initial is not None and not self._initial

    # ------------------------------------------------------------ reads

    def get_by_key(self, key: str) -> T | None:
        """Return the queued object with this key, or None."""
        return self._objects.get(key)

    def get(self, obj: T) -> T | None:
        """Return the queued object with the key of `obj`, or None."""
        return self._objects.get(key_of(obj, self.key_func))

    def list(self) -> builtins.list[T]:
        """Return all queued objects in their order, in a new list."""
        return [*self._objects.values()]

    def list_keys(self) -> builtins.list[str]:
        """Return the keys of all queued objects in their order, in a new list."""
        return [*self._objects]

    # ------------------------------------------------------------ state changes

    def add(self, obj: T) -> None:
        """Queue an object, in place of a queued one with the same key."""
        self._condition.check_loop()
        self._objects[key_of(obj, self.key_func)] = obj
        self._begin()
        self._notify()

    update = add

    def delete(self, obj: T) -> None:
        """Remove the object with the key of `obj` from the queue, if it is there.

        If it is added again, it is queued at the end. (In client-go it gets its old
        place.)
        """
        self._condition.check_loop()
        key = key_of(obj, self.key_func)
        self._objects.pop(key, None)
        self._begin().discard(key)
        self._notify()

    def replace(self, objects: Iterable[T], resource_version: str = "") -> None:
        """Replace all queued objects; of several with one key the last wins.

        Args:
            objects: All objects that exist, in their order.
            resource_version: Not used; stores and other queues need it.
        """
        self._condition.check_loop()
        key_func = self.key_func
        self._objects = OrderedDict((key_of(obj, key_func), obj) for obj in objects)
        if self._initial is None:
            self._initial = set(self._objects)
        else:
            self._initial &= self._objects.keys()

        self._notify()

    def resync(self) -> None:
        """Do nothing: all objects are queued already."""

    def close(self) -> None:
        """End all waits; queued objects can still be popped. Idempotent."""
        self._condition.check_loop()
        self._closed = True
        self._notify()

    # ------------------------------------------------------------ popping

    def pop_nowait(self) -> T:
        """Pop the next object.

        Raises:
            asyncio.QueueEmpty: If there is none.
            QueueShutDown: If there is none, and the queue is closed.
        """
        if not self._objects:
            raise (
                QueueShutDown(f"{self!r} is closed and empty")
                if self._closed
                else asyncio.QueueEmpty
            )

        key, obj = self._objects.popitem(last=False)
        self._done((key,))
        self._measure_depth()
        return obj

    async def pop(self, process: Callable[[T, bool], None]) -> None:
        """Wait for the next object, pop it and call `process`; see `DeltaFIFO.pop`.

        Cancellation:
            Safe: nothing was popped, or the object was processed.
        """
        await self._condition.wait_for(lambda: self._closed or self._objects)
        if not self._objects:
            raise QueueShutDown(f"{self!r} is closed and empty")

        initial = not self.has_synced
        key, obj = self._objects.popitem(last=False)
        await process_entries(
            {key: obj},
            lambda: process(obj, initial),
            queue=self,
            name=self.name or "FIFO",
            metrics=self._metrics,
            done=self._done,
            put_back=self._put_back,
        )

    # ------------------------------------------------------------ helpers

    def _begin(self) -> set[str]:
        if self._initial is None:
            self._initial = set()

        return self._initial

    def _done(self, keys: Iterable[str | None]) -> None:
        self._begin().difference_update(keys)

    def _put_back(self, entries: Mapping[str | None, T]) -> None:
        for key, obj in entries.items():
            self._objects.setdefault(cast("str", key), obj)

    def _notify(self) -> None:
        self._condition.notify_all()
        self._measure_depth()

    def _measure_depth(self) -> None:
        self._metrics.gauge("informer_queued_items", len(self._objects))


class OrderedFIFO(Generic[T]):
    """Changes of objects in the order of their arrival, waiting for the store.

    Nothing is merged, and deletions of unknown objects are queued, too. A list or a
    resync is one entry: the consumer has the store, so it compares or repeats the
    objects. With `known_objects`, lists and resyncs are queued by objects instead. (In
    client-go these are two modes, with options that exclude each other.)

    The queue is unbounded: a reflector that waited for room would not read its watch,
    which the server then ends. (client-go's holds its lock while 2000 or more entries
    wait; here no lock is held.)

    Waiting and errors are as in `DeltaFIFO`.

    Args:
        key_func: Function that returns the key of an object; by default
            `"namespace/name"` of its metadata.
        known_objects: Objects that the consumer has, such as its store; never written.
            None to queue lists and resyncs as one entry.
        transformer: Function called once with each object; its result is queued. It is
            not called for tombstones, resyncs, and lists queued as one entry. If it
            fails, nothing is queued.
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
        name: str = "",
        metrics: MetricsSink = NULL_SINK,
    ) -> None:
        self.name = name
        self._metrics = GuardedSink(metrics, name, name=name)
        self._reader = DeltaReader(key_func, transformer)
        self._expected = ExpectedObjects(known_objects)
        self._progress = Progress()
        self._condition = LoopCondition(f"OrderedFIFO {name}".rstrip())
        self._closed = False
        # True once the consumer calls `applied()`, which measures the depth. Measuring
        # it for each entry makes the pipeline of an informer slower by half.
        self._measures_batches = False

        # Invariants: an entry without a key is a list or a resync. `_newest` has the
        # keys that were queued after the last list, each with its newest delta.
        self._queue: deque[tuple[str | None, Delta[Any] | Replacement[T] | ResyncAll]]
        self._queue = deque()
        self._newest: dict[str, Delta[Any]] = {}

    def __len__(self) -> int:
        return len(self._queue)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        name = f"{self.name} " if self.name else ""
        return f"<OrderedFIFO {name}{state} waiting={len(self)}>"

    @property
    def closed(self) -> bool:
        """True after `close()`. Queued entries can still be popped."""
        return self._closed

    @property
    def has_synced(self) -> bool:
        """True once the first list was popped, or a change came before any list."""
        return self._progress.has_synced

    # ------------------------------------------------------------ queueing

    def add(self, obj: T) -> None:
        """Queue an ADDED delta."""
        self._change(DeltaType.ADDED, obj)

    def update(self, obj: T) -> None:
        """Queue an UPDATED delta."""
        self._change(DeltaType.UPDATED, obj)

    def delete(self, obj: T | DeletedFinalStateUnknown[T]) -> None:
        """Queue a DELETED delta, whether the object is known or not.

        Args:
            obj: Last state of the object, or a tombstone.
        """
        self._change(DeltaType.DELETED, obj)

    def replace(self, objects: Iterable[T], resource_version: str = "") -> None:
        """Queue a complete list: as one entry, or by objects with known objects.

        By objects, deletions of queued or known objects that are not listed come first,
        then the listed objects in order.

        Args:
            objects: All objects that exist. In one entry, of several with one key the
                last wins.
            resource_version: Version of the list.
        """
        self._condition.check_loop()
        listed = self._reader.read_list(objects, DeltaType.REPLACED)
        if self._expected.known is None:
            contents = Store[T](key_func=self._reader.key_func).replacement()
            for key, delta in listed:
                contents.put(key, delta.object)

            self.replace_all(contents, resource_version)
            return

        queued = self._newest_queued()
        deleted = list(self._expected.deletions({key for key, _ in listed}, queued))
        for key, delta in (*deleted, *listed):
            self._put(key, delta)

        if resource_version:
            self._progress.version_queued(resource_version)

        self._progress.list_queued()
        self._notify()

    def replace_all(self, contents: Contents[T], resource_version: str) -> None:
        """Queue a complete list as one entry.

        Args:
            contents: All objects that exist, ready to be swapped into a store. They
                must not change any more, and are not transformed.
            resource_version: Version of the list.
        """
        self._condition.check_loop()
        self._put_whole(Replacement(contents, resource_version))
        self._newest = {}
        self._expected.listed = contents
        self._progress.version_queued(resource_version)
        self._progress.list_queued()
        self._notify()

    def resync(self) -> None:
        """Queue one entry that makes the consumer repeat all its objects.

        With known objects, queue a SYNC delta for each object without a queued delta
        instead. That blocks the event loop for about a microsecond per object.
        """
        self._condition.check_loop()
        if self._expected.known is None:
            self._put_whole(ResyncAll())
        else:
            for key, delta in self._expected.syncs(self.newest):
                self._put(key, delta)

        self._notify()

    def bookmark(self, resource_version: str) -> None:
        """Queue the version of the store after all entries queued so far."""
        self._condition.check_loop()
        self._progress.version_queued(resource_version)
        self._notify()

    def feed(self, batch: Iterable[Delta[T]], resource_version: str = "") -> None:
        """Queue a batch of deltas and notify the consumer once; see `DeltaFIFO.feed`."""
        self._condition.check_loop()
        keys, deltas = self._reader.read_batch(batch)
        put = self._put
        for key, delta in zip(keys, deltas, strict=True):
            put(key, delta)

        if keys:
            self._progress.change_queued()

        if resource_version:
            self._progress.version_queued(resource_version)

        self._notify()

    def close(self) -> None:
        """End all waits; queued entries can still be popped. Idempotent."""
        self._condition.check_loop()
        self._closed = True
        self._notify()

    # ------------------------------------------------------------ popping

    def pop_nowait(self) -> Deltas[T] | Replacement[T] | ResyncAll:
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
        self, process: Callable[[Deltas[T] | Replacement[T] | ResyncAll, bool], None]
    ) -> None:
        """Wait for the next entry, pop it and call `process`; see `DeltaFIFO.pop`.

        An entry that is queued again is put at the front.

        Cancellation:
            Safe: nothing was popped, or the entry was processed.
        """
        await self._wait_for_entry()
        initial = not self.has_synced
        key, entry = self._queue[0][0], self._take()
        await self._process({key: entry}, lambda: process(entry, initial))

    async def pop_batch(
        self,
        process_batch: Callable[[list[Deltas[T]], bool], None],
        process: Callable[[Deltas[T] | Replacement[T] | ResyncAll, bool], None],
        *,
        limit: int = BATCH_LIMIT,
    ) -> None:
        """Wait for entries and process up to `limit` of them in one call.

        As `DeltaFIFO.pop_batch`. A batch has each key once, and a resync is always a
        single entry.

        Cancellation:
            Safe: nothing was popped, or the batch was processed.
        """
        if limit < 1:
            raise OptionsError(f"limit must be at least 1, not {limit}")

        await self._wait_for_entry()
        initial = not self.has_synced
        # Entries count once they are processed, so these are left of the first list.
        limit = min(limit, self._progress.left_to_sync or limit)
        batch = {self._queue[0][0]: self._take()}
        while self._queue and len(batch) < limit and None not in batch:
            key = self._queue[0][0]
            if key is None or key in batch:
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
        if not self._can_progress():
            await self._condition.wait_for(self._can_progress)

        if self._closed and not (self._queue or self._progress.has_version):
            raise QueueShutDown(f"{self!r} is closed and empty")

    def applied(self) -> str | None:
        """Return the version of the store after everything popped was applied.

        Returns:
            Version; None if it is the same as last time.
        """
        self._measures_batches = True
        if self._metrics.enabled and self._queue:
            self._measure_depth()

        return self._progress.applied()

    def newest(self, key: str) -> Delta[T] | None:
        """Return the newest delta queued for `key` after the last list, or None."""
        return self._newest.get(key)

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
        self._condition.check_loop()
        key = self.key_of(obj)
        self._put(key, self._reader.read(kind, obj))
        self._progress.change_queued()
        self._notify()

    def _put(self, key: str, delta: Delta[Any]) -> None:
        self._queue.append((key, delta))
        self._newest[key] = delta
        self._progress.queued += 1

    def _put_whole(self, entry: Replacement[T] | ResyncAll) -> None:
        self._queue.append((None, entry))
        self._progress.queued += 1

    def _take(self) -> Deltas[T] | Replacement[T] | ResyncAll:
        """Take the first entry out. It does not count as popped yet."""
        key, entry = self._queue.popleft()
        if isinstance(entry, Delta):
            if key is not None and self._newest.get(key) is entry:
                del self._newest[key]

            return [entry]

        if isinstance(entry, Replacement) and entry.contents is self._expected.listed:
            self._expected.listed = None

        return entry

    async def _process(
        self,
        entries: Mapping[str | None, Deltas[T] | Replacement[T] | ResyncAll],
        process: Callable[[], object],
    ) -> None:
        await process_entries(
            entries,
            process,
            queue=self,
            name=self.name or "OrderedFIFO",
            metrics=self._metrics,
            done=self._done,
            put_back=self._put_back,
        )

    def _done(self, keys: Iterable[str | None]) -> None:
        self._progress.popped += sum(1 for _ in keys)

    def _put_back(
        self, entries: Mapping[str | None, Deltas[T] | Replacement[T] | ResyncAll]
    ) -> None:
        # At the front, to keep the order: everything queued is newer.
        for key, entry in reversed([*entries.items()]):
            if isinstance(entry, list):
                self._queue.appendleft((key, entry[0]))
                if key is not None and self._expected.listed is None:
                    self._newest.setdefault(key, entry[0])

                continue

            self._queue.appendleft((key, entry))
            if isinstance(entry, Replacement):
                self._expected.listed = self._expected.listed or entry.contents

    def _newest_queued(self) -> dict[str, Delta[Any]]:
        """Return the newest delta of each key after the last list, in queue order."""
        queued: dict[str, Delta[Any]] = {}
        for key, entry in self._queue:
            if isinstance(entry, Delta) and key is not None:
                queued[key] = entry
            else:
                queued = {}  # a list: a resync is queued by objects here

        return queued

    def _can_progress(self) -> bool:
        return bool(self._queue or self._progress.has_version or self._closed)

    async def _wait_for_entry(self) -> None:
        """Wait for an entry. No other task runs before this returns."""
        if not self._queue:
            await self._condition.wait_for(lambda: self._queue or self._closed)
            if not self._queue:
                raise QueueShutDown(f"{self!r} is closed and empty")

    def _notify(self) -> None:
        self._condition.notify_all()
        if self._metrics.enabled:
            self._measure_depth()

    def _measure_depth(self) -> None:
        self._metrics.gauge("informer_queued_items", len(self._queue))
