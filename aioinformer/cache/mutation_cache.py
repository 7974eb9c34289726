"""`MutationCache`: own writes laid over a store, until the store has caught up.

A store follows the server at some distance. Who writes an object and reads it right
behind that would find it as it was before; laid over the store, the answer of the write
is found instead, for as long as the store has nothing newer.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from aioinformer._user_code import user_errors
from aioinformer.cache.clock import LoopClock
from aioinformer.cache.deltas import DeletedFinalStateUnknown
from aioinformer.cache.store import Indexer
from aioinformer.errors import OptionsError
from aioinformer.model.keys import key_of, version_number
from aioinformer.model.times import Duration, seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioinformer.cache.index import Index
    from aioinformer.cache.store import Store

__all__ = ["MutationCache", "Versioned"]


class Versioned(Protocol):
    """An object that says which one it is, and of what version, as `KubeObject`."""

    @property
    def uid(self) -> str:
        """Who it is; empty if unknown, which equals no other."""

    @property
    def resource_version(self) -> str:
        """A decimal number; empty counts as 0."""


T = TypeVar("T", bound=Versioned)


class _Held(NamedTuple, Generic[T]):
    """What is laid over a key: an object, or a tombstone without one."""

    obj: T | None
    uid: str
    version: int
    until: float


class MutationCache(Generic[T]):
    """Reads through what was written lately; client-go's MutationCache.

    Give it the answer of each own write, and read through it. Told of what happens to
    the store, it forgets early what that outdates, and does not take the late answer of
    a write to an object that was deleted meanwhile for a living one::

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
        store: What it is laid over; an `Indexer` for `by_index`.
        ttl: Seconds, or a timedelta, for which a write is kept at most.
        include_adds: Show written objects that the store does not have. Without being
            told of deletions, an object that was created and deleted again is then
            shown for up to `ttl`.
        max_size: So many writes are kept at most; the one used longest ago goes first.
        clock: Seconds since some moment; the time of the running loop if left out.

    Raises:
        OptionsError: If `ttl` is not finite, or one of `ttl` and `max_size` is not more
            than 0.
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
            raise OptionsError(f"ttl={ttl} and max_size={max_size} must be more than 0")

        self._clock = clock or LoopClock()
        # The one used longest ago first.
        self._held: OrderedDict[str, _Held[T]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many writes and tombstones are kept; some may be outdated."""
        return len(self._held)

    def __repr__(self) -> str:
        return f"<MutationCache of {len(self)} over {self._store!r}>"

    # ------------------------------------------------------------ reads

    def get_by_key(self, key: str) -> T | None:
        """The newer one of what the store has and what was written, or None."""
        if not self._held:
            return self._store.get_by_key(key)

        with self._lock:
            held = self._look(key)

        # Behind that: the store has by now what was forgotten because the store had it.
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
        """The objects that have `value` in the index `name`, in a fresh list.

        A written object counts with the values that it has now; client-go answers what
        the store would, and so gives it under its old values. Where the index function
        fails it has none.

        Raises:
            OptionsError: There is no such index, or the store has no indexes.
        """
        if not isinstance(self._store, Indexer):
            raise OptionsError(f"{self._store!r} has no indexes")

        with self._lock:
            written = [key for key, held in self._held.items() if held.obj is not None]

        found = self._store.by_index(name, value)
        if not written:
            return found

        index = self._store.contents.indexes[name]
        result = {key_of(obj, self._store.key_func): obj for obj in found}
        for key in written:
            newest = self.get_by_key(key)
            if newest is not None and value in _answers(index, newest):
                result[key] = newest
            else:
                result.pop(key, None)

        return list(result.values())

    # ------------------------------------------------------------ own writes

    def mutation(self, obj: T) -> None:
        """Lay what a write answered over the store, unless something newer is known.

        Args:
            obj: The object as the server answered it, with its new version.

        Raises:
            NoKey: It has no key.
            OptionsError: Its version is no decimal number, so nothing can be newer.
        """
        key = key_of(obj, self._store.key_func)
        version = _number(obj)
        if version < 0:
            raise OptionsError(
                f"versions are not comparable here: {obj.resource_version!r}"
            )

        stored = self._store.get_by_key(key)
        with self._lock:
            held = self._look(key)
            if held is not None and _rejects(held, obj.uid, version):
                return

            if stored is None or not _reaches(stored, version):
                self._lay(key, obj, obj.uid, version)

    # ------------------------------------------------------------ what the store learns

    def on_add_or_update(self, *states: T) -> None:
        """The store has this object: forget what it outdates.

        Args:
            states: The last one counts, so that this can be a handler of `on_add` and of
                `on_update`.

        Raises:
            NoKey: It has no key.
        """
        obj = states[-1]
        key = key_of(obj, self._store.key_func)
        with self._lock:
            held = self._look(key)
            if held is not None and _reaches(obj, held.version):
                del self._held[key]

    def on_delete(self, obj: T | DeletedFinalStateUnknown[T]) -> None:
        """The store does not have this object any more: forget what was written to it.

        For `ttl` it is remembered, so that the late answer of a write to it is ignored.

        Args:
            obj: Its last known state. Of one without any, nothing can be remembered.

        Raises:
            NoKey: It has no key.
        """
        if isinstance(obj, DeletedFinalStateUnknown):
            if obj.obj is None:
                with self._lock:
                    self._held.pop(obj.key, None)

                return

            obj = obj.obj

        key = key_of(obj, self._store.key_func)
        with self._lock:
            held = self._look(key)
            # A newer one of another uid was written: it exists again.
            if held is None or _same(held, obj.uid) or _reaches(obj, held.version):
                self._lay(key, None, obj.uid, _number(obj))

    # ------------------------------------------------------------ helpers, locked

    def _look(self, key: str) -> _Held[T] | None:
        """What is laid over the key, if its time is not over."""
        held = self._held.get(key)
        if held is None:
            return None

        if held.until < self._clock():
            del self._held[key]
            return None

        self._held.move_to_end(key)
        return held

    def _lay(self, key: str, obj: T | None, uid: str, version: int) -> None:
        self._held[key] = _Held(obj, uid, version, self._clock() + self._ttl)
        self._held.move_to_end(key)
        if len(self._held) > self._max_size:
            self._held.popitem(last=False)


def _number(obj: Versioned) -> int:
    """The version as a number; -1 if it is none."""
    return version_number(obj.resource_version or "0")


def _reaches(obj: Versioned, version: int) -> bool:
    """True if it is as new as that; also if that cannot be told: the store is right."""
    number = _number(obj)
    return number < 0 or number >= version


def _same(held: _Held[T], uid: str) -> bool:
    return held.uid != "" and held.uid == uid


def _rejects(held: _Held[T], uid: str, version: int) -> bool:
    """True if something newer is known than what was written."""
    if held.obj is None and (_same(held, uid) or held.version == version):
        return True

    return held.version > version


def _answers(index: Index[T], obj: T) -> Iterable[str]:
    try:
        return index.answers(obj)
    except user_errors():  # reported by the store when the object arrives
        return ()
