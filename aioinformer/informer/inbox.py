"""The inbox of a handler: what it is to be told, and how much of that is done.

What goes in are batches, which all handlers share and nobody may change. A snapshot (the
first list, or what a late handler is told first) is one batch of objects, from which
notifications are made while they are delivered. So a handler costs a queue entry for
each batch, and a slow one delays nobody else.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from aioinformer.informer.notifications import Added

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioinformer.informer.notifications import Notification
    from aioinformer.model.objects import KubeObject

__all__ = ["Batch", "Inbox", "Snapshot"]


class Batch(Protocol):
    """Notifications that several handlers share; nobody may change it.

    None stands for one that was counted, but is not to be told any more.
    """

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Notification | None]: ...


class Snapshot:
    """Objects that are told as `Added`, made one by one."""

    __slots__ = ("_initial", "_objects")

    def __init__(self, objects: list[KubeObject], *, initial: bool = True) -> None:
        self._objects = objects
        self._initial = initial

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Notification]:
        for obj in self._objects:
            yield Added(obj, self._initial)


class Inbox:
    """Everything as it came, in its order, without bound.

    The notifications are numbered in the order in which they were put, from 0 on.
    """

    def __init__(self) -> None:
        self._queue: asyncio.Queue[tuple[float, Batch] | None] = asyncio.Queue()
        self._oldest = 0.0
        # Invariant: 0 <= delivered <= queued.
        self.queued = 0
        """Notifications that were ever put."""
        self.delivered = 0
        """How many of them are done with; counted by who takes them."""
        self.initial: int | None = None
        """How many are of the initial state; None before that is known."""

    @property
    def depth(self) -> int:
        """Notifications that wait, those in work included."""
        return self.queued - self.delivered

    @property
    def finished(self) -> int:
        """All notifications of a lower number are done with."""
        return self.delivered

    @property
    def synced(self) -> bool:
        """Those of the initial state are done with."""
        return self.initial is not None and self.finished >= self.initial

    @property
    def oldest(self) -> float:
        """The loop's time at which the oldest of those that wait was put."""
        return self._oldest

    def put(self, batch: Batch, now: float) -> None:
        """Add a batch that is not empty."""
        if self.queued == self.delivered:
            self._oldest = now

        self._queue.put_nowait((now, batch))
        self.queued += len(batch)

    def take_now(self) -> Iterable[Notification | None] | None:
        """What `take()` would give at once; None if it would have to do something."""
        if self._queue.empty():
            return None

        entry = self._queue.get_nowait()
        if entry is None:
            return ()

        self._oldest, batch = entry
        return batch

    async def take(self) -> Iterable[Notification | None]:
        """Wait for notifications; they leave the inbox as they are iterated over.

        Nothing comes of an inbox that was cleared; then it is to be asked no more.

        Cancellation:
            Safe: nothing is lost.
        """
        entry = await self._queue.get()
        if entry is None:
            return ()

        self._oldest, batch = entry
        return batch

    def clear(self) -> None:
        """Drop everything, and wake who waits for more."""
        while not self._queue.empty():
            self._queue.get_nowait()  # or whoever holds a registration would keep it

        self._queue.put_nowait(None)
