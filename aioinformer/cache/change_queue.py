"""`ChangeQueue`: what `DeltaFIFO` and `OrderedFIFO` share.

That is how changes get in, which versions are applied by what was taken, when the queue
has synced, and what a list means for objects that it does not have. In which order
entries come out, and what is handed out together, is up to each of the two.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from aioinformer.cache.deltas import (
    DeletedFinalStateUnknown,
    Delta,
    DeltaType,
    Replacement,
)
from aioinformer.cache.known import Known
from aioinformer.cache.poppable import Poppable
from aioinformer.errors import OptionsError
from aioinformer.metrics import NULL_SINK
from aioinformer.model.functions import check_plain
from aioinformer.model.keys import key_of, meta_namespace_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from aioinformer.cache.deltas import Deltas, ResyncAll
    from aioinformer.cache.queue import KnownObjects
    from aioinformer.cache.store import Contents
    from aioinformer.metrics import MetricsSink

__all__ = ["BATCH_LIMIT", "ChangeQueue"]

T = TypeVar("T")
E = TypeVar("E")

BATCH_LIMIT = 1000
"""client-go's: long enough to be worth a batch, short enough to let others in."""


class ChangeQueue(Poppable[E], Generic[T, E]):
    """The base of the queues of changes.

    All state changes are plain methods and happen whole or, if the key function or the
    transformer fails for one of the objects, not at all. (client-go leaves the first
    part of a list queued then.)

    Args:
        key_func: The key of an object; `"namespace/name"` of its metadata if left out.
        known_objects: What the consumer has, such as its store; only read.
        transformer: Called once with each object that gets in by itself, except with
            tombstones and resyncs; what it returns is queued. Contents of
            `replace_all` do not pass it.
        name: As for all queues: names it in log, metrics and `repr()`.
        metrics: As for all queues: takes depth and latency.

    Raises:
        OptionsError: The transformer is no plain function.
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
        super().__init__(name, metrics)
        self._key_func = key_func
        self._known = Known(known_objects)
        if transformer is not None:
            check_plain(transformer, "the transformer")

        self._transformer = transformer

        # For each batch, how many entries had been queued when it was in, and its
        # version. Its changes are all taken when as many entries have been popped:
        # a change is in the entry of its key, at the end of the line or before.
        # No two have the same number, and with each new one those passed are dropped: so
        # there are never more than there were entries at once, and one.
        self._marks: deque[tuple[int, str]] = deque()
        self._version: str | None = None
        self._queued = 0
        self._popped = 0

        # How many entries have to be popped until it has synced; None before the first.
        self._initial: int | None = None

    # ------------------------------------------------------------ for each of the two

    @abstractmethod
    def _put(self, key: str, delta: Delta[Any]) -> None:
        """Queue a change, and count it if that is one entry more."""

    @abstractmethod
    def _put_whole(self, entry: Replacement[T]) -> None:
        """Queue a whole list, and count it."""

    @abstractmethod
    def take(self) -> Delta[T] | Replacement[T] | ResyncAll:
        """Take the next entry, of the changes of a key the newest."""

    @abstractmethod
    def newest(self, key: str) -> Delta[T] | None:
        """The newest change that waits for `key`, if it came behind any whole list."""

    # ------------------------------------------------------------ changes

    def add(self, obj: T) -> None:
        """Queue that an object is new."""
        self._change(DeltaType.ADDED, obj)

    def update(self, obj: T) -> None:
        """Queue that an object changed."""
        self._change(DeltaType.UPDATED, obj)

    def replace_all(self, contents: Contents[T], resource_version: str) -> None:
        """Queue as one entry that `contents` are everything there is.

        Args:
            contents: Ready to be swapped into a store; not changed any more.
            resource_version: The version of the list.
        """
        self._check_loop()
        self._put_whole(Replacement(contents, resource_version))
        self._known.listed = contents
        self._mark(resource_version)
        self._list_is_in()
        self._wake()

    def bookmark(self, resource_version: str) -> None:
        """What is queued so far brings everything up to this version.

        It is no entry: one that follows another takes its place. (In client-go each is
        one, and there the queue may be told to drop them.)
        """
        self._check_loop()
        self._mark(resource_version)
        self._wake()

    def key_of(
        self, obj: T | DeletedFinalStateUnknown[T] | Sequence[Delta[Any]]
    ) -> str:
        """The key of an object, of a tombstone, or of the newest of some changes.

        Raises:
            OptionsError: If there are no changes.
            NoKey: If the key function fails, or answers no string.
        """
        if isinstance(obj, list):
            if not obj:
                raise OptionsError("no changes, and so no key")

            return self.key_of(obj[-1].object)

        if isinstance(obj, DeletedFinalStateUnknown):
            return obj.key

        return key_of(cast("T", obj), self._key_func)

    async def feed(self, batch: Iterable[Delta[T]], resource_version: str = "") -> None:
        """Queue a batch of changes and wake the consumer once.

        Deletions are queued whether anything is known of the object or not: who feeds a
        batch has seen them.

        Args:
            batch: Changes in their order; may be empty. None of a tombstone: what stands
                for an object that is gone has its way in through `delete`.
            resource_version: The version up to which the batch brings everything;
                empty if that is not known.

        Raises:
            NoKey: One of the objects has no key; nothing was queued.
            WrongLoop: Somebody waits in another event loop; nothing was queued.
            Exception: Whatever the transformer raised; nothing was queued.

        Cancellation:
            Safe: it does not wait, and there is no half of a batch.
        """
        self._check_loop()
        deltas = list(batch)
        keys = self._keys_of(deltas)
        if self._transformer is not None:
            deltas = [
                delta
                if delta.type is DeltaType.SYNC
                else Delta(delta.type, self._transformed(delta.object))
                for delta in deltas
            ]

        put = self._put
        for key, delta in zip(keys, deltas, strict=True):
            put(key, delta)

        if keys and self._initial is None:
            self._initial = 0

        if resource_version:
            self._mark(resource_version)

        self._wake()

    async def feed_replacement(
        self, contents: Contents[T], resource_version: str
    ) -> None:
        """As `replace_all`.

        Cancellation:
            Safe: it does not wait.
        """
        self.replace_all(contents, resource_version)

    # ------------------------------------------------------------ taking

    @property
    def has_synced(self) -> bool:
        """True when all of the first list was taken, or a change came before any list.

        As in client-go: who adds an object by hand needs no list. What is popped counts
        when it has been processed.
        """
        return self._initial is not None and self._popped >= self._initial

    def applied(self) -> str | None:
        """What the consumer may say after it has applied all that it took.

        Returns:
            The version of the newest batch all of whose changes, and those of all
            earlier ones, have been taken; None if that is no other than last time.
        """
        self._pass_marks()
        version, self._version = self._version, None
        if self._metrics.enabled:
            self._measure_depth()

        return version

    async def wait_filled(self) -> None:
        """Wait until there is something to take, or a version to apply.

        Raises:
            QueueShutDown: It is closed, and everything has been taken.

        Cancellation:
            Safe: nothing is taken.
        """
        if not self._has_news():
            await self._until(self._has_news)

    async def pop_batch(
        self,
        process_batch: Callable[[list[Deltas[T]], bool], None],
        process: Callable[[E, bool], None],
        *,
        limit: int = BATCH_LIMIT,
    ) -> None:
        """Wait for entries, take up to `limit` of them, and have them processed at once.

        In a batch each key is there once, and it ends where the first list ends.

        Args:
            process_batch: Called with the changes of several keys, and whether the
                queue had not synced before.
            process: Called instead where there is just one entry, as `pop` does: a
                whole list and a resync always come alone.
            limit: The most entries in a batch, at least 1.

        Raises:
            OptionsError: If the limit is less than 1.
            QueueShutDown: It is closed, and everything has been taken.
            Exception: Whatever was raised by the function that was called, or the
                cause of its `Requeue`, which brings back the whole batch.

        Cancellation:
            Safe: nothing is taken, or the batch has been dealt with.
        """
        if limit < 1:
            raise OptionsError(f"a batch has at least one entry, not {limit}")

        await self._until(self.__len__)
        initial = not self.has_synced
        batch = self._take_batch(limit)
        entries = list(batch.values())
        if len(entries) == 1:
            requeue = self._run(batch, lambda: process(entries[0], initial))
        else:
            changes = cast("list[Deltas[T]]", entries)
            requeue = self._run(batch, lambda: process_batch(changes, initial))

        await self._settle(requeue)

    def _take_batch(self, limit: int) -> dict[str | None, E]:
        # What is taken counts when it is done: not yet.
        if self._initial is not None and self._initial > self._popped:
            limit = min(limit, self._initial - self._popped)

        batch: dict[str | None, E] = {}
        while len(self) and len(batch) < limit:
            key = self._head_key()
            if batch and (key is None or key in batch):
                break

            batch[key] = self._take_first()
            if key is None:
                break

        return batch

    def _finish(self, keys: Iterable[str | None]) -> None:
        self._popped += sum(1 for _ in keys)

    # ------------------------------------------------------------ how changes get in

    def _change(self, kind: DeltaType, obj: T | DeletedFinalStateUnknown[T]) -> None:
        self._check_loop()
        key = self.key_of(obj)
        self._put(key, Delta(kind, self._transformed(obj)))
        self._initial = self._initial or 0
        self._wake()

    def _keys_of(self, deltas: list[Delta[T]]) -> list[str]:
        key_func = self._key_func
        with suppress(Exception):  # it comes again below, where it has its object
            keys = [key_func(delta.object) for delta in deltas]
            if {*map(type, keys)} <= {str}:
                return keys

        # One by one takes twice as long.
        return [key_of(delta.object, key_func) for delta in deltas]

    def _transformed(self, obj: Any) -> Any:
        """An object as the transformer leaves it; tombstones do not pass it."""
        if self._transformer is None or isinstance(obj, DeletedFinalStateUnknown):
            return obj

        return self._transformer(obj)

    def _listed(
        self, objects: Iterable[T], kind: DeltaType
    ) -> list[tuple[str, Delta[Any]]]:
        """The objects of a list as changes, with their keys."""
        keyed = [(self.key_of(obj), obj) for obj in objects]
        return [(key, Delta(kind, self._transformed(obj))) for key, obj in keyed]

    def _ends(
        self, listed: set[str], queued: Mapping[str, Delta[Any]]
    ) -> Iterator[tuple[str, Delta[Any]]]:
        """Deletions of what is queued or known, and in a list no more.

        Args:
            listed: The keys of the list.
            queued: The newest change of each key, since the last whole list.
        """
        for key, newest in queued.items():
            if key not in listed and newest.type is not DeltaType.DELETED:
                yield key, _end(key, newest.object)

        for key in self._known.list_keys():
            if key not in listed and key not in queued:
                yield key, _end(key, self._known.get(key))

    def _resync_known(self) -> None:
        """Queue each known object for whose key nothing waits.

        Else an old state would overtake a newer one.
        """
        self._check_loop()
        for key in self._known.list_keys():
            if self.newest(key) is None:
                obj = self._known.get(key)
                if obj is not None:
                    self._put(key, Delta(DeltaType.SYNC, obj))

        self._wake()

    # ------------------------------------------------------------ versions

    def _list_is_in(self) -> None:
        """The first list sets how much has to be taken until it has synced."""
        if self._initial is None:
            self._initial = self._queued

    def _mark(self, version: str) -> None:
        """What is queued so far brings everything up to `version`."""
        self._pass_marks()
        if self._marks and self._marks[-1][0] == self._queued:
            self._marks.pop()

        self._marks.append((self._queued, version))

    def _pass_marks(self) -> None:
        while self._marks and self._marks[0][0] <= self._popped:
            self._version = self._marks.popleft()[1]

    def _hold_back(self) -> None:
        """Nothing counts as applied, nor as synced, before all that is queued now.

        As when an entry goes back into the line: what was to be applied with it waits.
        """
        self._pass_marks()
        if self._marks:
            self._marks = deque([(self._queued, self._marks[-1][1])])

        if not self.has_synced and self._initial is not None:
            self._initial = self._queued

    def _has_news(self) -> bool:
        return bool(len(self) or self._marks or self._version is not None)


def _end(key: str, last: Any) -> Delta[Any]:
    return Delta(DeltaType.DELETED, DeletedFinalStateUnknown(key, last))
