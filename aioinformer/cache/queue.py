"""Common parts of the queues, and their protocols."""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, cast

from aioinformer._user_code import guarded_logger, user_errors
from aioinformer.cache.deltas import DeletedFinalStateUnknown, Delta, DeltaType, Requeue
from aioinformer.errors import OptionsError
from aioinformer.model.callables import check_plain
from aioinformer.model.keys import key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized

    from aioinformer.cache.deltas import Deltas, Replacement, ResyncAll
    from aioinformer.cache.interface import Contents
    from aioinformer.metrics import GuardedSink

__all__ = [
    "BATCH_LIMIT",
    "DeltaReader",
    "ExpectedObjects",
    "KnownObjects",
    "Progress",
    "Queue",
    "process_entries",
    "slow_after",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
E = TypeVar("E")

logger: Final = guarded_logger(__name__)

BATCH_LIMIT = 1000
"""Default size of a batch, as in client-go. A larger one gains little and takes
long."""

# client-go's thresholds for logging slow processing.
DEPTH_TO_LOG = 10
SLOW_SECONDS = 0.1
SLOWEST_SECONDS = 1.0


class KnownObjects(Protocol[T_co]):
    """Objects that the consumer of a queue has, such as a `Store`."""

    def list_keys(self) -> list[str]:
        """Return the keys of all objects."""

    def get_by_key(self, key: str) -> T_co | None:
        """Return the object with this key, or None."""


class Queue(Protocol[T]):
    """Deltas and lists between one reflector and one store.

    `DeltaFIFO` and `OrderedFIFO` implement it. Both are unbounded: if a reflector
    waited for room, it would not read its watch, and the server would end the watch. A
    relist would follow. The consumer runs in the same loop and gets its share of time,
    so the queue only grows during a burst.
    """

    def __len__(self) -> int:
        """Return the number of entries."""

    def feed(self, batch: Iterable[Delta[T]], resource_version: str = "") -> None:
        """Queue deltas in order, and the version of the store after them."""

    def replace_all(self, contents: Contents[T], resource_version: str) -> None:
        """Queue a complete list as one entry."""

    def newest(self, key: str) -> Delta[T] | None:
        """Return the newest delta queued for `key` after the last list, or None."""

    async def wait_filled(self) -> None:
        """Wait for an entry, or for a version to apply."""

    def pop_nowait(self) -> Deltas[T] | Replacement[T] | ResyncAll:
        """Pop the next entry."""

    def applied(self) -> str | None:
        """Return the newest version whose entries were all popped, if it changed."""

    @property
    def has_synced(self) -> bool:
        """True once all entries of the first list were popped."""

    def close(self) -> None:
        """End all waits."""


class DeltaReader(Generic[T]):
    """Reader of deltas: returns their keys, and transforms their objects.

    Args:
        key_func: Function that returns the key of an object.
        transformer: Function that returns what to queue for an object, or None.

    Raises:
        OptionsError: If the transformer is not a plain function.
    """

    __slots__ = ("_transformer", "key_func")

    def __init__(
        self, key_func: Callable[[T], str], transformer: Callable[[T], T] | None
    ) -> None:
        if transformer is not None:
            check_plain(transformer, "the transformer")

        self.key_func: Callable[[T], str] = key_func
        self._transformer = transformer

    def key_of(
        self, obj: T | DeletedFinalStateUnknown[T] | Sequence[Delta[Any]]
    ) -> str:
        """Return the key of an object, of a tombstone, or of the newest of some deltas.

        Raises:
            OptionsError: If the list of deltas is empty.
            NoKey: If the key function fails, or returns no string.
        """
        if isinstance(obj, list):
            if not obj:
                raise OptionsError("an empty list of deltas has no key")

            return self.key_of(obj[-1].object)

        if isinstance(obj, DeletedFinalStateUnknown):
            return obj.key

        return key_of(cast("T", obj), self.key_func)

    def read(self, kind: DeltaType, obj: T | DeletedFinalStateUnknown[T]) -> Delta[Any]:
        """Return a delta of a transformed object."""
        return Delta(kind, self._transformed(obj))

    def read_list(
        self, objects: Iterable[T], kind: DeltaType
    ) -> list[tuple[str, Delta[Any]]]:
        """Return the keys and deltas of listed objects."""
        keyed = [(self.key_of(obj), obj) for obj in objects]
        return [(key, self.read(kind, obj)) for key, obj in keyed]

    def read_batch(self, batch: Iterable[Delta[T]]) -> tuple[list[str], list[Delta[T]]]:
        """Return the keys of deltas, and the deltas with transformed objects."""
        deltas = list(batch)
        key_func = self.key_func
        try:
            keys = [key_func(delta.object) for delta in deltas]
        except Exception:  # noqa: BLE001 - raised again below, with the object
            keys = []

        if {*map(type, keys)} != {str}:
            # Half as fast, because each call is checked.
            keys = [key_of(delta.object, key_func) for delta in deltas]

        if self._transformer is not None:
            deltas = [
                it if it.type is DeltaType.SYNC else self.read(it.type, it.object)
                for it in deltas
            ]

        return keys, deltas

    def _transformed(self, obj: Any) -> Any:
        if self._transformer is None or isinstance(obj, DeletedFinalStateUnknown):
            return obj

        return self._transformer(obj)


class ExpectedObjects(Generic[T]):
    """Objects that the consumer will have before it pops deltas queued now.

    These are its known objects or, while a whole list is queued, those of the last
    list.

    The known objects may be a user's class and fail. That is logged, and does not
    prevent a list from being queued.

    Args:
        known: Objects that the consumer has; None if there are none.
    """

    __slots__ = ("known", "listed")

    def __init__(self, known: KnownObjects[T] | None) -> None:
        self.known: KnownObjects[T] | None = known
        self.listed: Contents[T] | None = None

    def list_keys(self) -> list[str]:
        """Return the keys of all expected objects."""
        if self.listed is not None:
            return list(self.listed.objects)

        return [] if self.known is None else self.known.list_keys()

    def get(self, key: str) -> T | None:
        """Return an object; None if there is none, or if its look-up fails."""
        try:
            return self._get(key)
        except user_errors():  # a user's store: logged and dropped
            logger.exception("look-up of %s in known_objects failed", key)
            return None

    def has(self, key: str) -> bool:
        """Return True for an expected object, and if its look-up fails."""
        try:
            return self._get(key) is not None
        except user_errors():  # a user's store: logged and dropped
            logger.exception("look-up of %s in known_objects failed", key)
            return True

    def deletions(
        self, listed: set[str], queued: Mapping[str, Delta[Any]]
    ) -> Iterator[tuple[str, Delta[Any]]]:
        """Yield deletions of objects that are queued or expected but not listed.

        Args:
            listed: Keys of the list.
            queued: Newest delta of each key since the last whole list.
        """
        for key, newest in queued.items():
            if key not in listed and newest.type is not DeltaType.DELETED:
                yield key, _deletion(key, newest.object)

        for key in self.list_keys():
            if key not in listed and key not in queued:
                yield key, _deletion(key, self.get(key))

    def syncs(
        self, newest: Callable[[str], Delta[T] | None]
    ) -> Iterator[tuple[str, Delta[T]]]:
        """Yield a SYNC delta for each object without a queued delta.

        After a queued delta, a SYNC delta would have an older state.
        """
        for key in self.list_keys():
            if newest(key) is None:
                obj = self.get(key)
                if obj is not None:
                    yield key, Delta(DeltaType.SYNC, obj)

    def _get(self, key: str) -> T | None:
        if self.listed is not None:
            return self.listed.objects.get(key)

        return None if self.known is None else self.known.get_by_key(key)


def _deletion(key: str, last: Any) -> Delta[Any]:
    return Delta(DeltaType.DELETED, DeletedFinalStateUnknown(key, last))


class Progress:
    """Position of the consumer: whether it has synced, and which version it applied.

    Attributes:
        queued: Number of entries queued so far.
        popped: Number of entries popped and processed so far.
        versions: Versions that are not applied yet, each with the number of entries
            queued before it. These numbers differ, and new versions drop passed ones.
            So there are at most as many as there were entries at once, and one more.
        passed: Newest version whose entries were all popped. None if there is none, or
            `applied()` has returned it.
    """

    __slots__ = ("_to_sync", "passed", "popped", "queued", "versions")

    def __init__(self) -> None:
        self.queued: int = 0
        self.popped: int = 0
        # A version is applied when as many entries were popped as had been queued
        # before it: each of its deltas is in one of these entries.
        self.versions: deque[tuple[int, str]] = deque()
        self.passed: str | None = None
        # Entries to pop until it has synced; None before the first change or list.
        self._to_sync: int | None = None

    @property
    def has_synced(self) -> bool:
        """True once the first list was popped, or a change came before any list."""
        return self._to_sync is not None and self.popped >= self._to_sync

    @property
    def has_version(self) -> bool:
        """True if a version is waiting to be applied."""
        return self.passed is not None or bool(self.versions)

    @property
    def left_to_sync(self) -> int:
        """Number of entries left of the first list; 0 if there are none."""
        return max((self._to_sync or 0) - self.popped, 0)

    def change_queued(self) -> None:
        """Record a change. Before any list, it makes the queue synced."""
        if self._to_sync is None:
            self._to_sync = 0

    def list_queued(self) -> None:
        """Record a list. The queue has synced when the first one was popped."""
        if self._to_sync is None:
            self._to_sync = self.queued

    def version_queued(self, version: str) -> None:
        """Record the version of the store after all entries queued so far."""
        versions = self.versions
        if versions:
            self._pass_versions()
            if versions and versions[-1][0] == self.queued:
                versions.pop()

        versions.append((self.queued, version))

    def applied(self) -> str | None:
        """Return the newest version whose entries were all popped, if it changed."""
        if self.versions:
            self._pass_versions()

        version, self.passed = self.passed, None
        return version

    def hold_back(self) -> None:
        """Delay versions and sync until all entries queued now are popped."""
        self._pass_versions()
        if self.versions:
            newest = self.versions[-1][1]
            self.versions.clear()
            self.versions.append((self.queued, newest))

        if self.left_to_sync:
            self._to_sync = self.queued

    def _pass_versions(self) -> None:
        versions = self.versions
        while versions and versions[0][0] <= self.popped:
            self.passed = versions.popleft()[1]


async def process_entries(
    entries: Mapping[str | None, E],
    process: Callable[[], object],
    *,
    queue: Sized,
    name: str,
    metrics: GuardedSink,
    done: Callable[[Iterable[str | None]], None],
    put_back: Callable[[Mapping[str | None, E]], None],
) -> None:
    """Process popped entries, and put them back if the function raises `Requeue`.

    After a `Requeue` other tasks run, as a consumer that always fails must not block
    the event loop.

    Args:
        entries: Popped entries by key.
        process: Function that processes them.
        queue: Their queue, for its length.
        name: Name of the queue, for the log.
        metrics: Sink of `informer_queued_items` and
            `informer_processing_latency_seconds`.
        done: Function called with the keys of processed entries.
        put_back: Function called with entries to be queued again.

    Raises:
        Exception: Error of the function, or the cause of its `Requeue`.
    """
    depth = len(queue)
    requeue: Requeue | None = None
    began = perf_counter()
    try:
        _refuse_coroutine(process())
    except Requeue as exc:
        requeue = exc
    finally:
        if requeue is None:
            done(entries)
        else:
            # No waiter to notify: the queue was not empty until now.
            put_back(entries)

        seconds = perf_counter() - began
        if depth > DEPTH_TO_LOG and seconds > slow_after(len(entries)):
            logger.warning(
                "%s: slow processing of %s took %.3f s (entries=%d, queued=%d)",
                name,
                next(iter(entries)) or "a whole list",
                seconds,
                len(entries),
                depth,
            )

        metrics.gauge("informer_queued_items", len(queue))
        metrics.observe("informer_processing_latency_seconds", seconds)

    if requeue is not None:
        await asyncio.sleep(0)
        if requeue.__cause__ is not None:
            raise requeue.__cause__


def slow_after(entries: int) -> float:
    """Return the seconds after which processing so many entries is logged as slow."""
    return min(SLOW_SECONDS * entries, SLOWEST_SECONDS)


def _refuse_coroutine(result: object) -> None:
    """Requeue the entry if its function returned a coroutine or a generator.

    The result is checked, as checking the function would take as long as a whole `pop`.
    """
    if isinstance(result, CoroutineType | GeneratorType | AsyncGeneratorType):
        if not isinstance(result, AsyncGeneratorType):
            result.close()

        name = result.__qualname__
        reason = f"{name} must be a plain function to process entries"
        raise Requeue from OptionsError(reason)
