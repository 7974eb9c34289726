"""`DeltaFIFO`: the queue of changes between the reflector and the store.

One producer, one consumer. The state changes in plain methods; the condition only
wakes. Whatever waits for one key is handed out together, in the order it came; keys
take their place in line with their first waiting change and keep it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from aioinformer.cache.deltas import Delta, DeltaType, Replacement
from aioinformer.errors import QueueShutDown
from aioinformer.model.keys import meta_namespace_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioinformer.cache.store import Contents

__all__ = ["DeltaFIFO"]

T = TypeVar("T")


class DeltaFIFO(Generic[T]):
    """Changes of objects, by key, waiting for the store.

    `add`, `update`, `delete`, `replace` and `pop_nowait` change the state and wake
    nobody; `feed` makes a batch of changes and wakes the consumer once.

    A replacement is one entry: what was queued before it is handed out before it, what
    comes later after it, and never together. (client-go's DeltaFIFO queues each object
    of a list by itself; its newer queue has one entry for the whole list, as here.)

    Two deletions of one key in a row become one, the first, which knows more.

    Args:
        key_func: The key of an object; `"namespace/name"` of its metadata if left out.
    """

    def __init__(self, *, key_func: Callable[[T], str] = meta_namespace_key) -> None:
        self._key_func = key_func

        # Invariants: the keys between two replacements in the queue are the keys of one
        # segment, each once. There is one segment more than replacements.
        self._queue: deque[str | Replacement[T]] = deque()
        self._segments: deque[dict[str, Delta[T]]] = deque([{}])

        # For each batch, how many entries had been queued when it was in, and its
        # version. Its changes are all taken when as many entries have been popped:
        # a change is in the entry of its key, at the end of the line or before.
        # No two have the same number, and with each new one those passed are dropped: so
        # there are never more than there were entries at once, and one.
        self._marks: deque[tuple[int, str]] = deque()
        self._version: str | None = None
        self._queued = 0
        self._popped = 0

        # How many entries the first list was, or None before it.
        self._initial: int | None = None
        self._closed = False
        self._filled = asyncio.Condition()

    def __len__(self) -> int:
        return len(self._queue)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<DeltaFIFO {state} waiting={len(self._queue)}>"

    # ------------------------------------------------------------ state changes

    def add(self, obj: T) -> None:
        """Queue that an object is new."""
        self._add(Delta(DeltaType.ADDED, obj))

    def update(self, obj: T) -> None:
        """Queue that an object changed."""
        self._add(Delta(DeltaType.UPDATED, obj))

    def delete(self, obj: T) -> None:
        """Queue that an object is gone; `obj` is its last state."""
        self._add(Delta(DeltaType.DELETED, obj))

    def replace(self, contents: Contents[T], resource_version: str) -> None:
        """Queue that `contents` are everything there is, as of `resource_version`."""
        self._queue.append(Replacement(contents, resource_version))
        self._segments.append({})
        self._queued += 1
        self._mark(resource_version)
        if self._initial is None:
            self._initial = self._queued

    def pop_nowait(self) -> list[Delta[T]] | Replacement[T]:
        """Take the next entry: all changes of one key, oldest first, or a replacement.

        Raises:
            asyncio.QueueEmpty: There is nothing now.
            QueueShutDown: There is nothing, and nothing will come: it is closed.
        """
        entry = self.take()
        return entry if isinstance(entry, Replacement) else entry.oldest_first()

    def take(self) -> Delta[T] | Replacement[T]:
        """As `pop_nowait`, but of the changes of a key only the newest.

        It has the others with it: see `Delta.older`.
        """
        if not self._queue:
            raise QueueShutDown("closed") if self._closed else asyncio.QueueEmpty

        self._popped += 1
        entry = self._queue.popleft()
        if isinstance(entry, str):
            return self._segments[0].pop(entry)

        self._segments.popleft()
        return entry

    def newest(self, key: str) -> Delta[T] | None:
        """The newest change that waits for `key`, if it came behind any replacement."""
        return self._segments[-1].get(key)

    def applied(self) -> str | None:
        """What the consumer may say after it has applied all that it took.

        Returns:
            The version of the newest batch all of whose changes, and those of all
            earlier ones, have been taken; None if that is no other than last time.
        """
        self._pass_marks()
        version, self._version = self._version, None
        return version

    # ------------------------------------------------------------ waiting

    async def feed(self, batch: Iterable[Delta[T]], resource_version: str = "") -> None:
        """Queue a batch of changes and wake the consumer once.

        Args:
            batch: Changes in their order; may be empty.
            resource_version: The version up to which the batch brings everything;
                empty if that is not known.

        Raises:
            Exception: Whatever the key function raised; nothing was queued.

        Cancellation:
            Safe: either the whole batch is queued, or nothing.
        """
        deltas = list(batch)
        keys = [self._key_func(delta.object) for delta in deltas]
        async with self._filled:
            # Atomic: no await until the whole batch is queued.
            for key, delta in zip(keys, deltas, strict=True):
                self._put(key, delta)

            if resource_version:
                self._mark(resource_version)

            self._filled.notify_all()

    async def feed_replacement(
        self, contents: Contents[T], resource_version: str
    ) -> None:
        """Queue a replacement and wake the consumer.

        Cancellation:
            Safe: it is queued, or it is not.
        """
        async with self._filled:
            self.replace(contents, resource_version)
            self._filled.notify_all()

    async def wait_filled(self) -> None:
        """Wait until there is something to take, or a version to apply.

        Raises:
            QueueShutDown: It is closed, and everything has been taken.

        Cancellation:
            Safe: nothing is taken.
        """
        if not self._has_news():
            await self._wait_for(self._has_news)

    async def pop(
        self, process: Callable[[list[Delta[T]] | Replacement[T]], None]
    ) -> None:
        """Wait for the next entry, take it, and hand it to `process`.

        Raises:
            QueueShutDown: It is closed, and everything has been taken.
            Exception: Whatever `process` raised; the entry counts as taken.

        Cancellation:
            Safe: nothing is taken.
        """
        await self._wait_for(lambda: bool(self._queue))
        process(self.pop_nowait())

    async def close(self) -> None:
        """Let nobody wait any longer; what is queued can still be taken. Idempotent."""
        async with self._filled:
            self._closed = True
            self._filled.notify_all()

    @property
    def has_synced(self) -> bool:
        """True when the first complete list, and what came before it, was taken."""
        return self._initial is not None and self._popped >= self._initial

    # ------------------------------------------------------------ helpers

    def _add(self, delta: Delta[T]) -> None:
        self._put(self._key_func(delta.object), delta)

    def _put(self, key: str, delta: Delta[T]) -> None:
        waiting = self._segments[-1]
        before = waiting.get(key)
        if before is None:
            delta.older = None
            self._queue.append(key)
            self._queued += 1
        elif before.type is DeltaType.DELETED and delta.type is DeltaType.DELETED:
            return
        else:
            # One list goes from the newest to the next newest: were it a chain, freeing
            # a long one would overflow the stack of the interpreter.
            older, before.older = before.older or [], None
            older.append(before)
            delta.older = older

        waiting[key] = delta

    def _mark(self, version: str) -> None:
        """What is queued so far brings everything up to `version`."""
        self._pass_marks()
        if self._marks and self._marks[-1][0] == self._queued:
            self._marks.pop()

        self._marks.append((self._queued, version))

    def _pass_marks(self) -> None:
        while self._marks and self._marks[0][0] <= self._popped:
            self._version = self._marks.popleft()[1]

    def _has_news(self) -> bool:
        return bool(self._queue or self._marks or self._version is not None)

    async def _wait_for(self, there_is: Callable[[], bool]) -> None:
        """Wait until it is true; nothing comes between that and what follows."""
        async with self._filled:
            while not there_is():
                if self._closed:
                    raise QueueShutDown("closed")

                await self._filled.wait()
