"""`Pipeline`: applies the changes and lists of a reflector to the store.

All changes of an informer's store are here, in synchronous steps. A step first changes
the store and then publishes notifications, without an `await` in between. So a handler
never sees a store older than its notification, and a handler added between two steps
gets exactly the objects of the store. Errors of index functions are reported at the end
of a step, as `on_error` may add a handler.

The store may be on disk: then a step is one transaction, and its notifications are
entries of a journal.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from aioinformer._user_code import guarded_logger
from aioinformer.budget import LoopBudget, release
from aioinformer.cache.delta_fifo import DeltaFIFO
from aioinformer.cache.deltas import Delta, DeltaType, Replacement
from aioinformer.cache.index import NAMESPACE_INDEX, Index
from aioinformer.cache.memory import MemoryContents
from aioinformer.cache.split_dict import parts_of, release_maps
from aioinformer.informer.listwatch.watch_events import same_state
from aioinformer.informer.notifications import (
    MOVED,
    Added,
    Deleted,
    Notification,
    Updated,
    object_of,
)
from aioinformer.informer.store.compressor import BodyCompressor
from aioinformer.informer.store.decoded_sweep import DecodedSweep
from aioinformer.informer.store.difference import difference_of, unselected
from aioinformer.informer.store.memory_limiter import BudgetedStore
from aioinformer.informer.store.repetitions import Repetitions
from aioinformer.informer.store.staged_list import StagedList, newest_version
from aioinformer.informer.store.store_metrics import StoreMetrics
from aioinformer.informer.store.stored_bytes import OBJECT_BYTES, StoredBytes
from aioinformer.informer.store.transformer import (
    Transformer,
    identity_of,
    is_left_out,
    transform_deletion,
    transform_state,
)
from aioinformer.informer.store.waiters import StoreWaiters
from aioinformer.metrics import NULL_SINK
from aioinformer.model.compression import SAMPLES
from aioinformer.model.object_meta import version_number

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, MutableMapping
    from typing import NoReturn

    from aioinformer.cache.interface import Contents
    from aioinformer.cache.queue import Queue
    from aioinformer.cache.store import Indexer
    from aioinformer.informer.handlers.inbox import Batch
    from aioinformer.informer.listwatch.interface import Selects
    from aioinformer.informer.store.difference import Difference
    from aioinformer.informer.store.memory_limiter import MemoryLimiter
    from aioinformer.informer.store.publisher import Publisher
    from aioinformer.informer.store.shared_store import SharedStore
    from aioinformer.metrics import MetricsSink
    from aioinformer.model.objects import KubeObject

__all__ = ["Pipeline"]

logger: Final = guarded_logger(__name__)


# Changes between two checks of the budget; each takes about two microseconds.
_CHANGES_BETWEEN_CHECKS = 8


# Objects of an added list that are queued in one step, at two microseconds each.
_OBJECTS_FED_AT_ONCE = 256


class Pipeline:
    """Pipeline of a reflector's changes and lists into the store and to handlers.

    The pipeline is the `ReflectorStore` of its reflector: it stages lists beside the
    store, and queues changes. `run()` applies queued lists and changes.

    The transform is called once for each received state of an object. A relist does not
    transform unchanged objects again. (client-go's queue does, and it transforms
    streamed lists twice.)

    Args:
        indexer: Store of the informer; only its pipelines write to it.
        publisher: Publisher of the changes, which notifies the handlers.
        on_synced: Function called when the first complete list is in the store. It must
            not wait.
        transformer: Caller of the user's transform, which may be set until the
            reflector runs.
        queue: Queue between reflector and store. None for a `DeltaFIFO`.
        waiters: Waiters for states of the store, woken in the step that changes it.
        compressor: Compressor of stored bodies.
        metrics: Sink of measurements; see `StoreMetrics`.
        limiter: Limiter of the memory of a factory; None for no limit.
        name: Name in the log.
        namespace: Namespace of all objects, if the store is shared with others. A list
            then replaces the objects of this namespace. The others are copied, in
            slices, at a microsecond each. Requires an index by namespace.
        shared: State that the pipelines of one store share. None for a store of its
            own.
    """

    def __init__(
        self,
        indexer: Indexer[KubeObject],
        publisher: Publisher,
        on_synced: Callable[[], None] = lambda: None,
        transformer: Transformer | None = None,
        queue: Queue[KubeObject] | None = None,
        waiters: StoreWaiters | None = None,
        compressor: BodyCompressor | None = None,
        metrics: MetricsSink = NULL_SINK,
        *,
        limiter: MemoryLimiter | None = None,
        name: str = "informer",
        namespace: str = "",
        shared: SharedStore | None = None,
    ) -> None:
        self._name = name
        self._indexer = indexer
        self._publisher = publisher
        self._on_synced = on_synced
        self._transformer = Transformer() if transformer is None else transformer
        self._waiters = StoreWaiters() if waiters is None else waiters
        self._compressor = BodyCompressor() if compressor is None else compressor
        self._sink = metrics
        self.metrics: StoreMetrics | None = None
        """Measurements; None until `run()` has found an enabled sink."""
        self.bytes: StoredBytes | None = None
        """Count of the stored objects in memory, if a sink or a limiter needs it."""
        self._limiter = limiter
        # What the limiter knows of the store; None on disk, and without a limiter.
        self._memory: BudgetedStore | None = None
        self.namespace = namespace
        """Namespace of its objects; empty if it has the whole store."""
        self._shared = shared
        if shared is not None:
            shared.pipelines.append(self)

        if queue is None:
            queue = DeltaFIFO(key_func=attrgetter("key"))

        self._fifo = queue
        # The list that is being staged.
        self._staged: StagedList | None = None
        # The complete list in the queue.
        self._committed: Contents[KubeObject] | None = None
        # Keys of its objects whose bodies are differences from stored ones.
        self._differences: list[tuple[str, ...]] = []
        # Its selection, if that is another one than before.
        self._selects: Selects | None = None
        # The list that follows a reset of the server's history, until it is applied.
        self._reset_list: Contents[KubeObject] | None = None
        # Clear while a complete list is queued, or replaces the stored objects.
        self._may_stage = asyncio.Event()
        self._may_stage.set()
        # Identities of objects whose newest state the transform left out.
        self._left_out: MutableMapping[str, KubeObject] = {}
        # The version up to which everything was fed; None before the first list.
        self._version: str | None = None
        self._repetitions = Repetitions(self.known)
        # The version up to which everything fed is in the store.
        self._applied_version = ""
        # Functions to call once everything that was fed is applied.
        self._on_applied: list[Callable[[], None]] = []
        self._decoded = DecodedSweep(lambda: publisher.busy)
        self.synced: bool = False
        """True once a complete list is in the store and was published, and the server
        has confirmed it: it was listed now, or its watch was resumed."""
        self._duplicates = 0

    @property
    def version(self) -> str:
        """Version up to which everything fed is in the store."""
        if self._shared is None:
            return self._indexer.resource_version

        return self._applied_version

    @property
    def duplicates(self) -> int:
        """Number of changes that were dropped because the list had them already."""
        return self._duplicates + self._repetitions.dropped

    @property
    def waiting(self) -> int:
        """Number of queued entries."""
        return len(self._fifo)

    def resume(self, version: str, deletions: Mapping[str, int] | None = None) -> None:
        """Continue a store that has a complete list, before the reflector runs.

        It is not synced before it is confirmed, or has the next list.

        Args:
            version: Version up to which everything is in the store.
            deletions: Versions of later deletions that are in the store, by key.
        """
        self._version = self._applied_version = version
        self._repetitions.resumed(deletions or {})

    def confirm(self) -> None:
        """Make the resumed store synced, once everything fed so far is applied."""
        if len(self._fifo):
            self._on_applied.append(self._confirmed)
        else:
            self._confirmed()

    def known(self, key: str) -> KubeObject | None:
        """Return the newest state that was fed for `key`, applied or still queued.

        None if the object is unknown or deleted. Objects that the transform left out
        have only their identity and version.
        """
        left_out = self._left_out.get(key)
        if left_out is not None:
            return left_out

        queued = self._fifo.newest(key)
        if queued is not None:
            return None if queued.type is DeltaType.DELETED else queued.object

        contents = self._committed or self._indexer.contents  # neither is ever false
        return contents.objects.get(key)

    async def stage(
        self, objects: list[KubeObject], *, after_reset: bool = False
    ) -> None:
        """Stage some objects of the current list.

        Stored objects with the same uid and version are reused. So a relist needs no
        second copy of all objects. If the list has an object twice, the newer state is
        staged, or the later one if their versions cannot be compared.

        Args:
            objects: Objects as the server sent them.
            after_reset: True if the same version may be another state. Then stored
                objects are only reused if they are equal.

        Cancellation:
            Leaves the list incomplete: `discard()` it.
        """
        staged = await self._begin_staging()
        if self._compressor.due:
            await self._compressor.renew(self._listed)

        current = self._indexer.contents
        # Usually a first list, whose objects need no checks.
        put = staged.contents.put if self._takes_all(current) else None
        listed = staged.contents.objects
        # A look-up on disk takes as long as some steps, also where nothing is stored.
        stored = current.objects or {}
        staged.newest = newest_version(
            [staged.newest, *map(attrgetter("resource_version"), objects)]
        )
        budget = LoopBudget.current()
        await budget.start()
        memory = self._memory
        for obj in objects:
            if put is not None and obj.key not in listed:
                put(obj.key, obj)
                if memory is not None:
                    staged.bytes += OBJECT_BYTES + len(obj.body)
                    staged.uncompressed.append(obj.key)

            elif not staged.is_ahead_of(obj):  # pages may differ in age
                old = stored.get(obj.key)
                self._stage(obj, old, staged, current, after_reset=after_reset)

            if budget.over():
                await budget.start()

        budget.end()
        if objects:
            # One of them, at random: a list may have a pattern.
            staged.divide(objects[hash(objects[-1].key) % len(objects)].key)

        if memory is not None:
            memory.received(staged.bytes)

        if self._compressor.on and len(staged.uncompressed) >= SAMPLES:
            await staged.compress(self._compressor)
            if memory is not None:
                memory.received(staged.bytes)

    async def stage_unreadable(self, keys: list[str]) -> None:
        """Stage the stored states of objects that exist but cannot be read.

        Otherwise they would seem deleted.

        Cancellation:
            Leaves the list incomplete: `discard()` it.
        """
        staged = await self._begin_staging()
        current = self._indexer.contents
        budget = LoopBudget.current()
        await budget.start()
        for key in keys:
            old = current.objects.get(key)
            if key in staged:
                pass  # the list also has a readable state of it
            elif old is not None:
                staged.keep(key, old, current)
            elif key in self._left_out:
                staged.leave_out(key, self._left_out[key])

            if budget.over():
                await budget.start()

        budget.end()

    def stage_deleted(self, keys: list[str]) -> None:
        """Unstage objects that were deleted while the list was streamed.

        Unknown keys are ignored.

        Cancellation:
            Leaves the list incomplete: `discard()` it.
        """
        staged = self._staged
        if staged is not None:
            for key in keys:
                staged.remove(key)

    async def discard(self) -> None:
        """Drop the staged objects, because the list failed.

        Cancellation:
            Safe: they are dropped.
        """
        staged, self._staged = self._staged, None
        if staged is not None:
            freeing = staged.contents.release()
            del staged
            if self._memory is not None:
                self._memory.received(0)

            await freeing

    async def commit(
        self,
        resource_version: str,
        *,
        after_reset: bool = False,
        selects: Selects | None = None,
    ) -> None:
        """Queue the staged objects as a complete list.

        Args:
            resource_version: Version of the list.
            after_reset: True after a history reset: the changes are logged as a
                warning.
            selects: Function of the selection of the list, if that is another one than
                before. Stored objects that it does not select have moved.

        Cancellation:
            Safe: it is queued, or it is not.
        """
        staged = await self._begin_staging()
        if self._compressor.on and (staged.uncompressed or self._compressor.waits):
            await staged.compress(self._compressor)

        self._staged = None
        self._may_stage.clear()
        self._committed = staged.contents
        staged.end_differences()
        self._differences = staged.differences
        self._reset_list = staged.contents if after_reset else None
        self._selects = selects
        before = parts_of(self._left_out)
        self._left_out = staged.left_out
        self._version = resource_version
        self._repetitions.listed(resource_version, staged.newest)
        self._fifo.replace_all(staged.contents, resource_version)
        if len(before) > 1:  # there were many
            await release_maps(before)

    async def clear(self) -> None:
        """Remove all objects, because the server no longer has the resource.

        That is like an empty list: the store is emptied in one step, and handlers get
        `Deleted(final_state_unknown=True)` for each object. The store stays synced and
        keeps its version: if the resource is served again, versions continue. Before
        the first list, nothing happens.

        Cancellation:
            Safe: it is queued, or it is not.
        """
        await self.discard()
        if self._version is not None:
            await self.commit(self._version)

    async def feed(
        self, deltas: list[Delta[KubeObject]], resource_version: str
    ) -> None:
        """Queue changes, and the version of the store after them.

        Cancellation:
            Safe: all of them are queued, or none.
        """
        metrics = self.metrics
        arrival = 0.0 if metrics is None else asyncio.get_running_loop().time()
        if self._compressor.due:
            await self._compressor.renew(self.known)

        repetitions, bookmark = self._repetitions, not deltas
        if expected := repetitions.expected:
            deltas = repetitions.without(deltas)

        newest: dict[str, KubeObject | None] | None = None
        if self._transformer.enabled:
            newest = {}
            deltas = await self._transformed(deltas, newest)

        self._fifo.feed(deltas, resource_version)
        self._version = resource_version or self._version
        if metrics is not None and deltas:
            metrics.arrived(arrival, len(self._fifo))

        if expected:
            repetitions.reached(resource_version, bookmark=bookmark)

        if newest is None:
            return

        for key, obj in newest.items():
            if obj is not None and is_left_out(obj):
                self._left_out[key] = obj
            else:
                self._left_out.pop(key, None)

    async def narrow(self, selects: Selects) -> None:
        """Queue the removal of all objects that are not selected any more, as moved.

        The queue must be empty: see `applied`.

        Cancellation:
            May queue the removal of some of them only.
        """
        stored = list(self._indexer.contents.objects.values())
        gone = await unselected(stored, selects)
        leaving = [Delta(DeltaType.DELETED, obj, MOVED) for obj in gone]
        for obj in await unselected(list(self._left_out.values()), selects):
            del self._left_out[obj.key]

        for start in range(0, len(leaving), _OBJECTS_FED_AT_ONCE):
            self._fifo.feed(leaving[start : start + _OBJECTS_FED_AT_ONCE])
            await asyncio.sleep(0)

    async def widen(
        self, objects: list[KubeObject], resource_version: str, repeated: int
    ) -> None:
        """Queue the objects of a list that is added to the known objects.

        A name may belong to one object in the list, and to another one in the store.
        Then the newer one stays, and the watch repeats the end of the other.

        Args:
            objects: Objects as the server sent them.
            resource_version: Version of the store after them. The watch continues from
                it.
            repeated: Version up to which the watch repeats changes that the store has.

        Cancellation:
            May queue some of the objects only.
        """
        newest = newest_version(["", *map(attrgetter("resource_version"), objects)])
        self._repetitions.widened(max(repeated, version_number(newest)))
        for start in range(0, len(objects), _OBJECTS_FED_AT_ONCE):
            listed = objects[start : start + _OBJECTS_FED_AT_ONCE]
            await self.feed([Delta(DeltaType.ADDED, it) for it in listed], "")
            await asyncio.sleep(0)

        await self.feed([], resource_version)

    async def applied(self) -> None:
        """Wait until everything that was fed is in the store.

        Cancellation:
            Safe.
        """
        while len(self._fifo) or not self._may_stage.is_set():
            await self._may_stage.wait()
            if len(self._fifo):
                empty = asyncio.Event()
                self._on_applied.append(empty.set)
                await empty.wait()

    # ------------------------------------------------------------ staging

    async def _begin_staging(self) -> StagedList:
        """Return the list that is being staged. Only one at a time is under way."""
        if self._staged is None:
            await self._may_stage.wait()
            self._staged = StagedList(self._indexer.replacement())

        return self._staged

    def _takes_all(self, current: Contents[KubeObject]) -> bool:
        """Return True if listed objects can be staged without checks or conversions."""
        known = current.objects or self._left_out
        converted = self._transformer.function or self._compressor.on
        return not (known or converted)

    def _stage(
        self,
        obj: KubeObject,
        old: KubeObject | None,
        staged: StagedList,
        current: Contents[KubeObject],
        *,
        after_reset: bool,
    ) -> None:
        key = obj.key
        same = old is not None and same_state(old, obj)
        if old is not None and same and not after_reset:
            staged.keep(key, old, current)
            return

        left_out = self._left_out.get(key)
        if left_out is not None and same_state(left_out, obj) and not after_reset:
            staged.leave_out(key, left_out)
            return

        taken = self._transformer(obj)
        if taken is None:
            staged.leave_out(key, identity_of(obj))
        elif old is not None and same and old == taken:
            staged.keep(key, old, current)
        else:
            packed = self._compressor.pack_listed(taken, old)
            staged.put(packed.key, packed, taken)
            if packed is taken and (self._compressor.waits or self._memory is not None):
                staged.uncompressed.append(key)

    def _listed(self, key: str) -> KubeObject | None:
        """Return the staged state of an object, or the one known before."""
        staged = self._staged
        listed = None if staged is None else staged.contents.objects.get(key)
        return self.known(key) if listed is None else listed

    async def _transformed(
        self, deltas: list[Delta[KubeObject]], newest: dict[str, KubeObject | None]
    ) -> list[Delta[KubeObject]]:
        """Transform the objects of changes; return the resulting changes.

        Args:
            deltas: Changes as the server sent them.
            newest: Filled with the newest known state of each changed object.
        """
        result: list[Delta[KubeObject]] = []
        budget = LoopBudget.current()
        await budget.start()
        for delta in deltas:
            key = delta.object.key
            before = newest[key] if key in newest else self.known(key)
            if delta.type is DeltaType.DELETED:
                newest[key] = None
                change = transform_deletion(self._transformer, delta, before)
            elif before is not None and same_state(before, delta.object):
                self._duplicates += 1  # its untransformed content is not known any more
                change = None
            else:
                newest[key], change = transform_state(self._transformer, delta, before)

            if change is not None:
                result.append(change)

            if budget.over():
                await budget.start()

        budget.end()
        return result

    # ------------------------------------------------------------ applying

    async def run(self) -> NoReturn:
        """Apply queued entries until cancelled.

        Cancellation:
            Stops it; entries still queued are not applied.
        """
        budget = LoopBudget.current()
        apply: Callable[[LoopBudget], Awaitable[None]] = self._apply_slice
        if self._shared is not None:
            apply = partial(self._apply_exclusively, self._shared)

        await self._join_limiter()
        try:
            while True:
                if self.metrics is None and self._sink.enabled:
                    await self._count()
                    self.metrics = StoreMetrics(self._sink)

                await self._fifo.wait_filled()
                await apply(budget)
        finally:
            self._decoded.stop()
            if self._memory is not None:
                self._memory.leave()

    def wake(self) -> None:
        """Make `run()` look at the sink, which may have been enabled.

        Raises:
            WrongLoop: If called from another event loop or thread.
        """
        if self._version is not None and self.metrics is None:
            self._fifo.feed([], self._version)

    async def _join_limiter(self) -> None:
        """Join the limiter of the factory, unless the store is on disk."""
        if self._limiter is None or not _in_memory(self._indexer.contents):
            return

        self.bytes = StoredBytes(ordered=True)
        await self._count()
        self._memory = BudgetedStore(
            self._limiter,
            self._indexer,
            self._compressor,
            self.bytes,
            self._current,
            self._is_changing,
        )
        self._memory.join()

    def _is_changing(self) -> bool:
        """Return True while a list is received that refers to stored objects."""
        received = self._staged is not None or self._committed is not None
        return received or (self._shared is not None and self._shared.lock.locked())

    async def _count(self) -> None:
        """Count the stored objects, unless they are counted already, or on disk."""
        counted = self.bytes and self.bytes.counted
        if _in_memory(self._indexer.contents) and not counted:
            self.bytes = self.bytes or StoredBytes()
            # Other pipelines of the store may replace the mapping meanwhile.
            await self.bytes.listed(dict(self._current().items()), {})

    async def _apply_exclusively(self, shared: SharedStore, budget: LoopBudget) -> None:
        """Apply a part of the queue, while no other pipeline changes the store."""
        async with shared.lock:
            await self._apply_slice(budget)

    async def _apply_slice(self, budget: LoopBudget) -> None:
        """Apply a part of the queue: some changes, or up to one complete list."""
        if self.metrics is not None:
            self.metrics.begin()

        await budget.start()
        indexer = self._indexer
        indexer.holding = True  # as in `step()`, inline for speed
        try:
            replacement = self._apply_changes(budget)
        finally:
            indexer.holding = False
            if indexer.held:
                indexer.report_held()

        budget.end()
        if replacement is not None:
            await self._apply_replacement(replacement)
            del replacement

        if self._decoded.bodies:
            self._decoded.begin()

    def _apply_changes(self, budget: LoopBudget) -> Replacement[KubeObject] | None:
        """Apply entries until the slice is over, or up to a replacement.

        Atomic: store, listeners' queues and version change together.
        """
        notifications: list[Notification] = []
        fifo, contents, shared = self._fifo, self._indexer.contents, self._shared
        metrics = self.metrics
        queued = len(fifo)
        with contents.step():
            replacement = self._pop(contents, notifications, budget)
            if notifications:
                if self._decoded.bodies is None:
                    self._decoded.note(object_of(notifications[0]))

                if metrics is None:
                    self._publisher.publish(notifications)
                else:
                    self._publisher.publish(notifications, metrics.oldest)

            if replacement is None and (version := fifo.applied()) is not None:
                self._applied_version = version
                self._indexer.applied(version if shared is None else shared.version)

        if notifications and isinstance(contents, MemoryContents):
            contents.divide(object_of(notifications[-1]).key)

        if self._memory is not None:
            self._memory.settle()

        if metrics is not None:
            popped = queued - len(fifo)
            metrics.applied(popped)
            if popped and replacement is None:
                metrics.took()

        waiters = self._waiters
        if waiters.waiting:
            waiters.changed(notifications)
            waiters.applied(self._version_in)

        if self._on_applied and not len(fifo) and replacement is None:
            waiting, self._on_applied = self._on_applied, []
            for call in waiting:
                call()

        return replacement

    def _pop(
        self,
        contents: Contents[KubeObject],
        notifications: list[Notification],
        budget: LoopBudget,
    ) -> Replacement[KubeObject] | None:
        """Pop entries and apply them, until the slice is over, or up to a replacement."""
        fifo = self._fifo
        until_check = _CHANGES_BETWEEN_CHECKS
        while len(fifo):
            entry: Any = fifo.pop_nowait()  # `feed()` queues no tombstones
            if type(entry) is not list:
                if isinstance(entry, Replacement):
                    return entry

                continue  # a resync by the queue: ignored, as handlers have their own

            for delta in entry:
                self._apply(delta, contents, notifications)
                until_check -= 1

            if until_check <= 0:
                if budget.over():
                    break

                until_check = _CHANGES_BETWEEN_CHECKS

        return None

    def _apply(
        self,
        delta: Delta[KubeObject],
        contents: Contents[KubeObject],
        notifications: list[Notification],
    ) -> None:
        """Apply one change to the store, and append its notifications."""
        obj = delta.object
        key = obj.key
        old = contents.objects.get(key)
        if delta.type is DeltaType.DELETED:
            if old is not None:
                contents.remove(key)
                if self.bytes is not None:
                    self.bytes.changed(old, None)

                seen = old.uid == obj.uid
                last = obj if seen else old
                notifications.append(Deleted(last, not seen, delta.reason))

            return

        if (
            old is not None
            and old.resource_version == obj.resource_version
            and same_state(old, obj)
            and old == obj
        ):
            # The list had it, but did not tell that it was ahead: it was unreadable
            # there, or the versions of list and objects cannot be compared.
            self._duplicates += 1
            return

        taken = obj
        if self._compressor.on:
            obj = self._compressor(obj, old)

        contents.put(key, obj, taken)
        if self.bytes is not None:
            self.bytes.changed(old, obj)

        if old is None:
            notifications.append(Added(obj))
        elif old.uid == obj.uid:
            notifications.append(Updated(old, obj))
        else:
            # The deletion was missed: another object has that name now.
            notifications.append(Deleted(old, True))
            notifications.append(Added(obj))

    async def _apply_replacement(self, replacement: Replacement[KubeObject]) -> None:
        """Replace all objects by a complete list, and publish the changes.

        Slow work comes first. Then store and listeners' queues change in one step. So
        if the informer is stopped after that, its handlers still get the whole list.
        """
        new, publisher = replacement.contents, self._publisher
        now = await self._complete(new)
        before = self._current()
        if self.bytes is not None and _in_memory(new):
            await self.bytes.listed(now, before)

        # Without an await from here to the swap, unless there are handlers: one that is
        # added meanwhile would miss the changes.
        first = not self.synced
        # Nobody has seen the stored objects that a first list replaces.
        reset = self._reset_list is new and not first
        selects, self._selects = self._selects, None
        prepared: list[Batch] = []

        def prepare(batch: list[Notification]) -> None:
            prepared.append(publisher.prepare(batch))

        if not before:
            prepared = await publisher.prepare_list(now, initial=first)

        difference: Difference | None = None
        if before and (reset or publisher.wants_changes):
            difference = await difference_of(
                before, now, prepare, initial=first, selects=selects
            )

        was_empty = not before
        # May be newer than the list, if a bookmark was queued after it.
        version = self._fifo.applied() or replacement.resource_version
        indexer, shared = self._indexer, self._shared
        with indexer.step():
            self._applied_version = version
            old = indexer.swap(new, version if shared is None else shared.version)
            if was_empty:
                publisher.publish_list(now, prepared, initial=first)
            else:
                for batch in prepared:
                    publisher.publish(batch)

        if self.metrics is not None:
            self.metrics.took()

        if self._committed is new:
            self._committed = self._reset_list = None

        if self._memory is not None:
            self._memory.received(0)
            self._memory.replaced(self._differences)
            self._differences = []

        if difference is not None and (reset or difference):
            what = "list after a history reset" if reset else "relist"
            level = logging.WARNING if reset else logging.INFO
            text = "%s: %s changed the store (%s objects=%d)"
            logger.log(level, text, self._name, what, difference, len(now))

        if (one := next(map(now.get, now), None)) is not None:
            self._decoded.note(one)

        self._waiters.replaced(before, now)
        self._confirmed()
        self._waiters.applied(self._version_in)
        freeing = old.release()
        del old, before
        await freeing
        await release(prepared)
        self._may_stage.set()

    def _confirmed(self) -> None:
        """Record that the server has confirmed the store; only the first time counts."""
        if self.synced:
            return

        self.synced = True
        if self._shared is None or self._shared.synced:
            self._publisher.mark_synced()

        self._on_synced()

    def _current(self) -> Mapping[str, KubeObject]:
        """Return the stored objects that the next list replaces."""
        return self._objects_of(self._indexer.contents)

    def _objects_of(self, contents: Contents[KubeObject]) -> Mapping[str, KubeObject]:
        """Return the objects of this pipeline in some contents of the store."""
        if self._shared is None:
            return contents.objects

        index = contents.indexes[NAMESPACE_INDEX]
        assert isinstance(index, Index), "a store on disk is not shared"
        found: Mapping[str, KubeObject] = index.buckets.get(self.namespace or "", {})
        return found

    async def _complete(self, new: Contents[KubeObject]) -> Mapping[str, KubeObject]:
        """Make a list the contents of the whole store. Return the objects listed."""
        if self._shared is None:
            await self._indexer.complete(new)
            return new.objects

        assert isinstance(new, MemoryContents), "a store on disk is not shared"
        current = self._indexer.contents
        replaced = self._current()
        budget = LoopBudget.current()
        await budget.start()
        for key, obj in current.objects.items():
            if key not in replaced:
                new.keep(key, obj, current)

            if budget.over():
                new.divide(key)
                await budget.start()

        budget.end()
        await self._indexer.complete(new)
        return self._objects_of(new)

    def _version_in(self, namespace: str | None) -> str:
        """Return the version up to which a namespace, or all, is in the store."""
        if namespace is None or self._shared is None:
            return self._indexer.resource_version

        return self._shared.version_in(namespace)


def _in_memory(contents: Contents[KubeObject]) -> bool:
    """Return False for contents on disk."""
    return isinstance(contents, MemoryContents)
