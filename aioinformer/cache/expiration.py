"""`ExpirationStore`: objects that are gone when they have been there for too long.

client-go's expiration cache and TTL store. Nothing runs beside it: what has expired goes
when a read meets it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from aioinformer.cache.clock import LoopClock
from aioinformer.model.keys import key_of, meta_namespace_key
from aioinformer.model.times import Duration, seconds_of

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterable

__all__ = ["ExpirationPolicy", "ExpirationStore", "TTLPolicy"]

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class ExpirationPolicy(Protocol[T_contra]):
    """Says which objects have expired."""

    def is_expired(self, obj: T_contra, age: float) -> bool:
        """True if `obj`, written `age` seconds ago, has expired."""


@dataclass(frozen=True, slots=True)
class TTLPolicy:
    """All objects expire after the same time.

    Attributes:
        ttl: Seconds, or a timedelta. What is exactly so old has not expired yet; with
            0 or less nothing ever does.

    Raises:
        OptionsError: It is not finite.
    """

    ttl: Duration

    def __post_init__(self) -> None:
        seconds_of(self.ttl)

    def is_expired(self, obj: object, age: float) -> bool:
        """True if `age` is more than `ttl`, and that is more than 0."""
        return 0 < seconds_of(self.ttl) < age


class _Entry(NamedTuple, Generic[T]):
    obj: T
    written: float


class ExpirationStore(Generic[T]):
    """Objects by key, each until it has expired.

    Writes and reads may come from any thread.

    Args:
        policy: Says what has expired, such as `TTLPolicy(30)`. What it raises goes to
            the reader.
        key_func: The key of an object; `"namespace/name"` of its metadata if left out.
        clock: Seconds since some moment; the time of the running loop if left out.
    """

    def __init__(
        self,
        policy: ExpirationPolicy[T],
        *,
        key_func: Callable[[T], str] = meta_namespace_key,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.key_func = key_func
        self._policy = policy
        self._clock = clock or LoopClock()
        self._entries: dict[str, _Entry[T]] = {}
        self._resource_version = ""
        # Reads take out what has expired, from any thread. A policy may read.
        self._lock = threading.RLock()

    def __len__(self) -> int:
        """How many keys there are, as `list_keys`."""
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get_by_key(key) is not None

    def __repr__(self) -> str:
        return f"<ExpirationStore {len(self)} objects>"

    @property
    def resource_version(self) -> str:
        """The version that `replace` or `applied` was given last; empty before."""
        return self._resource_version

    # ------------------------------------------------------------ reads

    def get_by_key(self, key: str) -> T | None:
        """The object under `key`; None if there is none, or if it has expired."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or self._expires(key, entry, self._clock()):
                return None

            return entry.obj

    def get(self, obj: T) -> T | None:
        """The object with the key of `obj`, as `get_by_key`.

        Raises:
            NoKey: `obj` has no key.
        """
        return self.get_by_key(key_of(obj, self.key_func))

    def list(self) -> builtins.list[T]:
        """All objects that have not expired, in a fresh list."""
        with self._lock:
            entries = list(self._entries.items())
            now = self._clock() if entries else 0.0
            return [it.obj for key, it in entries if not self._expires(key, it, now)]

    def list_keys(self) -> builtins.list[str]:
        """All keys, in a fresh list; also those of what has expired unnoticed."""
        return list(self._entries)

    # ------------------------------------------------------------ writes

    def add(self, obj: T) -> None:
        """Enter an object, or replace the one with its key: its time begins anew.

        Raises:
            NoKey: `obj` has no key; nothing is written.
        """
        entry = _Entry(obj, self._clock())
        with self._lock:
            self._entries[key_of(obj, self.key_func)] = entry

    update = add

    def delete(self, obj: T) -> None:
        """Take out the object with the key of `obj`; no error if there is none.

        Raises:
            NoKey: `obj` has no key; nothing is written.
        """
        key = key_of(obj, self.key_func)
        with self._lock:
            self._entries.pop(key, None)

    def replace(self, objects: Iterable[T], resource_version: str = "") -> None:
        """Put `objects` in the place of everything, all of them written at one time.

        Of several objects with one key the last wins.

        Raises:
            NoKey: One of them has no key; nothing is written.
        """
        now = self._clock()
        entries = {key_of(obj, self.key_func): _Entry(obj, now) for obj in objects}
        with self._lock:
            self._entries = entries
            self._resource_version = resource_version

    def applied(self, resource_version: str) -> None:
        """Everything up to this version is in the store."""
        self._resource_version = resource_version

    def resync(self) -> None:
        """Do nothing: there is nobody behind a store to be told again."""

    def _expires(self, key: str, entry: _Entry[T], now: float) -> bool:
        """True if it has expired; then it goes."""
        if not self._policy.is_expired(entry.obj, now - entry.written):
            return False

        # Perhaps it is gone, or another one is there: a policy may read and write.
        if self._entries.get(key) is entry:
            del self._entries[key]

        return True
