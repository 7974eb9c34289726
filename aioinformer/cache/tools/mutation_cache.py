"""`MutationCache`: a program's own writes, until a store shows them.

A store follows the server with a delay. A program that writes an object and reads it at
once would see the old state. This cache returns the response of the write instead,
while the store has nothing newer.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from aioinformer._user_code import user_errors
from aioinformer.cache.deltas import DeletedFinalStateUnknown
from aioinformer.cache.index import pack_values, unpack_values
from aioinformer.cache.store import Indexer
from aioinformer.cache.tools.stores import LoopClock
from aioinformer.errors import OptionsError
from aioinformer.model.keys import key_of
from aioinformer.model.object_meta import version_number
from aioinformer.model.times import Duration, seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioinformer.cache.index import IndexFunction
    from aioinformer.cache.store import Store

__all__ = ["MutationCache", "Versioned"]


class Versioned(Protocol):
    """Object with a uid and a version, such as a `KubeObject`."""

    @property
    def uid(self) -> str:
        """Uid; an empty one is unknown and equals no other."""

    @property
    def resource_version(self) -> str:
        """Decimal number; an empty one counts as 0."""


T = TypeVar("T", bound=Versioned)


class _Held(NamedTuple, Generic[T]):
    """Written object of a key, or a tombstone without one."""

    obj: T | None
    uid: str
    version: int
    until: float


class MutationCache(Generic[T]):
    """Reads that include recent own writes; client-go's MutationCache.

    Pass it the response of each own write, and read through it. As a handler of the
    store's informer it drops outdated writes early. It also ignores a late response of
    a write to an object that was deleted meanwhile::

        mutations = MutationCache(informer.indexer)
        informer.add_event_handler(
            on_add=mutations.on_add_or_update,
            on_update=mutations.on_add_or_update,
            on_delete=mutations.on_delete,
        )

        mutations.mutation(await client.update(PODS, changed))
        mutations.get_by_key(changed.key)  # sees it

    May be used from any thread.

    Args:
        store: Store to read; an `Indexer` for `by_index`.
        ttl: Maximum time to keep a write, in seconds or as a timedelta.
        include_adds: True to show written objects that the store does not have. Without
            the handler for deletions, an object that was created and deleted again is
            shown for up to `ttl`.
        max_size: Maximum number of writes; the least recently used one is dropped
            first.
        clock: Function that returns seconds; by default the time of the running loop.

    Raises:
        OptionsError: If `ttl` is not finite, or `ttl` or `max_size` is not above 0.
    """

    def __init__(
        self,
        store: Store[T],
        *,
        ttl: Duration = 300.0,
        include_adds: bool = False,
        max_size: int = 100,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._store = store
        self._ttl = seconds_of(ttl)
        self._include_adds = include_adds
        self._max_size = max_size
        if self._ttl <= 0 or max_size <= 0:
            raise OptionsError(
                f"ttl and max_size must be positive, not {ttl} and {max_size}"
            )

        self._clock = clock or LoopClock()
        # In the order of their last use.
        self._held: OrderedDict[str, _Held[T]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of kept writes and tombstones, including outdated ones."""
        return len(self._held)

    def __repr__(self) -> str:
        return f"<MutationCache of {len(self)} over {self._store!r}>"

    # ------------------------------------------------------------ reads

    def get_by_key(self, key: str) -> T | None:
        """Return the newer of the stored and the written object, or None."""
        if not self._held:
            return self._store.get_by_key(key)

        with self._lock:
            held = self._find_write(key)

        # Last: a write that was dropped as outdated is in the store by now.
        stored = self._store.get_by_key(key)
        if held is None or held.obj is None:
            return stored

        if stored is None:
            return held.obj if self._include_adds else None

        if not _reaches(stored, held.version):
            return held.obj

        with self._lock:
            if self._held.get(key) is held:
                del self._held[key]

        return stored

    def by_index(self, name: str, value: str) -> list[T]:
        """Return the objects that have `value` in the index `name`, in a new list.

        A written object has its new index values. (In client-go it has those of the
        stored object.) If the index function fails for it, it has none.

        Raises:
            OptionsError: If there is no such index, or the store has no indexes.
        """
        if not isinstance(self._store, Indexer):
            raise OptionsError(f"{self._store!r} has no indexes")

        with self._lock:
            written = [key for key, held in self._held.items() if held.obj is not None]

        found = self._store.by_index(name, value)
        if not written:
            return found

        function = self._store.indexers[name]
        result = {key_of(obj, self._store.key_func): obj for obj in found}
        for key in written:
            newest = self.get_by_key(key)
            if newest is not None and value in _values_of(function, newest):
                result[key] = newest
            else:
                result.pop(key, None)

        return list(result.values())

    # ------------------------------------------------------------ own writes

    def mutation(self, obj: T) -> None:
        """Keep the response of a write, unless a newer state is known.

        Args:
            obj: Object in the server's response, with its new version.

        Raises:
            NoKey: If it has no key.
            OptionsError: If its version is not a decimal number, so no state can be
                newer.
        """
        key = key_of(obj, self._store.key_func)
        version = _number(obj)
        if version < 0:
            raise OptionsError(
                f"cannot compare resource version {obj.resource_version!r}: not a number"
            )

        stored = self._store.get_by_key(key)
        with self._lock:
            held = self._find_write(key)
            if held is not None and _rejects(held, obj.uid, version):
                return

            if stored is None or not _reaches(stored, version):
                self._keep(key, obj, obj.uid, version)

    # ------------------------------------------------------------ events of the store

    def on_add_or_update(self, *states: T) -> None:
        """Drop the write to an object that is stored in a newer state.

        Args:
            states: States of the object. The last one counts, so that this can be a
                handler for `on_add` and for `on_update`.

        Raises:
            NoKey: If it has no key.
        """
        obj = states[-1]
        key = key_of(obj, self._store.key_func)
        with self._lock:
            held = self._find_write(key)
            if held is not None and _reaches(obj, held.version):
                del self._held[key]

    def on_delete(self, obj: T | DeletedFinalStateUnknown[T]) -> None:
        """Drop the write to an object that the store does not have any more.

        The deletion is remembered for `ttl`, so that a late response of a write is
        ignored.

        Args:
            obj: Last known state. Without a state, nothing can be remembered.

        Raises:
            NoKey: If it has no key.
        """
        if isinstance(obj, DeletedFinalStateUnknown):
            if obj.obj is None:
                with self._lock:
                    self._held.pop(obj.key, None)

                return

            obj = obj.obj

        key = key_of(obj, self._store.key_func)
        with self._lock:
            held = self._find_write(key)
            # A newer write with another uid means that the object exists again.
            if held is None or _same(held, obj.uid) or _reaches(obj, held.version):
                self._keep(key, None, obj.uid, _number(obj))

    # ------------------------------------------------------------ helpers, locked

    def _find_write(self, key: str) -> _Held[T] | None:
        """Return the write that is kept for a key, unless it has expired."""
        held = self._held.get(key)
        if held is None:
            return None

        if held.until < self._clock():
            del self._held[key]
            return None

        self._held.move_to_end(key)
        return held

    def _keep(self, key: str, obj: T | None, uid: str, version: int) -> None:
        self._held[key] = _Held(obj, uid, version, self._clock() + self._ttl)
        self._held.move_to_end(key)
        if len(self._held) > self._max_size:
            self._held.popitem(last=False)


def _number(obj: Versioned) -> int:
    """Return a version as a number; -1 if it is not one."""
    return version_number(obj.resource_version or "0")


def _reaches(obj: Versioned, version: int) -> bool:
    """Return True if an object is as new as a version, or cannot be compared."""
    number = _number(obj)
    return number < 0 or number >= version


def _same(held: _Held[T], uid: str) -> bool:
    return held.uid != "" and held.uid == uid


def _rejects(held: _Held[T], uid: str, version: int) -> bool:
    """Return True if something newer than a write is known."""
    if held.obj is None and (_same(held, uid) or held.version == version):
        return True

    return held.version > version


def _values_of(function: IndexFunction[T], obj: T) -> Iterable[str]:
    try:
        return unpack_values(pack_values(function(obj)))
    except user_errors():  # reported by the store when the object arrives
        return ()
