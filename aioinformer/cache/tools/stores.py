"""`ExpirationStore` and `UndeltaStore`: client-go's other stores.

An expiration store is client-go's expiration cache and TTL store. It has no background
task: reads remove the expired objects that they find.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from aioinformer._user_code import user_errors
from aioinformer.cache.store import Store
from aioinformer.errors import HandlerError, OptionsError
from aioinformer.model.callables import check_plain
from aioinformer.model.keys import key_of, meta_namespace_key
from aioinformer.model.times import Duration, seconds_of

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterable

    from aioinformer.cache.interface import Contents

__all__ = [
    "ExpirationPolicy",
    "ExpirationStore",
    "LoopClock",
    "TTLPolicy",
    "UndeltaStore",
]


T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class ExpirationPolicy(Protocol[T_contra]):
    """Decision on which objects have expired."""

    def is_expired(self, obj: T_contra, age: float) -> bool:
        """Return True if `obj`, written `age` seconds ago, has expired."""


@dataclass(frozen=True, slots=True)
class TTLPolicy:
    """Policy by which all objects expire after the same time.

    Attributes:
        ttl: Seconds, or a timedelta. An object of exactly this age has not expired.
            With 0 or less none ever does.

    Raises:
        OptionsError: If it is not finite.
    """

    ttl: Duration

    def __post_init__(self) -> None:
        seconds_of(self.ttl)

    def is_expired(self, obj: object, age: float) -> bool:
        """Return True if `age` is more than `ttl`, and `ttl` more than 0."""
        return 0 < seconds_of(self.ttl) < age


class _Entry(NamedTuple, Generic[T]):
    obj: T
    written: float


class ExpirationStore(Generic[T]):
    """Objects by key, each until it has expired.

    Writes and reads may come from any thread.

    Args:
        policy: Decision on what has expired, such as `TTLPolicy(30)`. Its errors are
            raised to the reader.
        key_func: Function that returns the key of an object; by default
            `"namespace/name"` of its metadata.
        clock: Function that returns seconds; by default the time of the running loop.
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
        # Reads from any thread remove expired objects. A policy may read, too.
        self._lock = threading.RLock()

    def __len__(self) -> int:
        """Return the number of keys in `list_keys`."""
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get_by_key(key) is not None

    def __repr__(self) -> str:
        return f"<ExpirationStore {len(self)} objects>"

    @property
    def resource_version(self) -> str:
        """Version last passed to `replace` or `applied`; empty before that."""
        return self._resource_version

    # ------------------------------------------------------------ reads

    def get_by_key(self, key: str) -> T | None:
        """Return the object under `key`; None if there is none, or it has expired."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or self._expires(key, entry, self._clock()):
                return None

            return entry.obj

    def get(self, obj: T) -> T | None:
        """Return the object with the key of `obj`, as `get_by_key` does.

        Raises:
            NoKey: If `obj` has no key.
        """
        return self.get_by_key(key_of(obj, self.key_func))

    def list(self) -> builtins.list[T]:
        """Return all objects that have not expired, in a new list."""
        with self._lock:
            entries = list(self._entries.items())
            now = self._clock() if entries else 0.0
            return [it.obj for key, it in entries if not self._expires(key, it, now)]

    def list_keys(self) -> builtins.list[str]:
        """Return all keys, in a new list; expired ones until a read removes them."""
        return list(self._entries)

    # ------------------------------------------------------------ writes

    def add(self, obj: T) -> None:
        """Store an object, in place of one with the same key. Its age starts at 0.

        Raises:
            NoKey: If `obj` has no key; nothing is written.
        """
        entry = _Entry(obj, self._clock())
        with self._lock:
            self._entries[key_of(obj, self.key_func)] = entry

    update = add

    def delete(self, obj: T) -> None:
        """Remove the object with the key of `obj`, if there is one.

        Raises:
            NoKey: If `obj` has no key; nothing is written.
        """
        key = key_of(obj, self.key_func)
        with self._lock:
            self._entries.pop(key, None)

    def replace(self, objects: Iterable[T], resource_version: str = "") -> None:
        """Replace all objects at once; of several objects with one key the last wins.

        Raises:
            NoKey: If an object has no key; nothing is written.
        """
        now = self._clock()
        entries = {key_of(obj, self.key_func): _Entry(obj, now) for obj in objects}
        with self._lock:
            self._entries = entries
            self._resource_version = resource_version

    def applied(self, resource_version: str) -> None:
        """Set the version that the store has applied."""
        self._resource_version = resource_version

    def resync(self) -> None:
        """Do nothing: a store has no handlers."""

    def _expires(self, key: str, entry: _Entry[T], now: float) -> bool:
        """Return True and remove the object if it has expired."""
        if not self._policy.is_expired(entry.obj, now - entry.written):
            return False

        # The policy may have removed or replaced it.
        if self._entries.get(key) is entry:
            del self._entries[key]

        return True


class LoopClock:
    """Clock of the loop that runs at the first call.

    After that call it may be read from any thread, and after the loop has ended.
    """

    def __init__(self) -> None:
        self._time: Callable[[], float] | None = None

    def __call__(self) -> float:
        """Return seconds since an arbitrary moment.

        Raises:
            OptionsError: If no loop has been running so far: pass `clock=`.
        """
        if self._time is None:
            try:
                self._time = asyncio.get_running_loop().time
            except RuntimeError as exc:
                raise OptionsError("no event loop is running: pass clock=") from exc

        return self._time()


class UndeltaStore(Store[T]):
    """Store that pushes its whole content after each write.

    It turns changes back into states, for programs that act on the state as a whole and
    have few objects: the cost of a write grows with their number. A write that changes
    nothing is pushed, too. Refused writes and reads are not.

    Args:
        push: Function called after each write, with all objects in a new list. It must
            not wait. Its errors are reported, as the write has already happened.
        key_func: Key function, see `Store`.
        on_error: Function called with errors of `push`; logged by default.

    Raises:
        OptionsError: If `push` or `on_error` is not a plain function.
    """

    def __init__(
        self,
        push: Callable[[builtins.list[T]], None],
        *,
        key_func: Callable[[T], str] = meta_namespace_key,
        on_error: Callable[[HandlerError], None] | None = None,
    ) -> None:
        super().__init__(key_func=key_func, on_error=on_error)
        check_plain(push, "the push function")
        self._push = push

    def add(self, obj: T) -> None:
        """Store an object, and push."""
        super().add(obj)
        self._hand_on()

    update = add

    def delete(self, obj: T) -> None:
        """Remove an object, and push, whether it was there or not."""
        super().delete(obj)
        self._hand_on()

    def swap(self, replacement: Contents[T], resource_version: str = "") -> Contents[T]:
        """Replace the contents, and push. `replace` ends in this, so it pushes once."""
        old = super().swap(replacement, resource_version)
        self._hand_on()
        return old

    def _hand_on(self) -> None:
        objects = self.list()
        try:
            self._push(objects)
        except user_errors() as exc:  # reported
            name = getattr(self._push, "__qualname__", repr(self._push))
            failure = HandlerError("push function", name, objects)
            failure.__cause__ = exc
            self.report(failure)
