"""Resyncs: a handler is reminded of every stored object, period after period.

Each handler has a timer of its own, which asks the store and never the server. What is
reminded of is the state that the handler was told last, so nothing comes out of order.
(client-go has one timer for all handlers of an informer, and rounds their periods.)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from aioinformer.errors import OptionsError
from aioinformer.informer.notifications import Updated, object_of
from aioinformer.model.times import seconds_of

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterator

    from aioinformer.informer.handlers.inbox import Batch
    from aioinformer.informer.notifications import Notification
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.times import Duration

__all__ = [
    "MINIMUM_SECONDS",
    "ListOncePerTurn",
    "Resync",
    "ResyncBatch",
    "resync_seconds",
]

MINIMUM_SECONDS = 1.0
"""The shortest period, as in client-go: a resync tells of every object there is."""


def resync_seconds(period: Duration | None) -> float:
    """The period in seconds; 0 for none.

    Raises:
        OptionsError: If it is negative, not finite, or shorter than a second. (client-go
            makes it a second, and says so in the log.)
    """
    seconds = 0.0 if period is None else seconds_of(period)
    if seconds and seconds < MINIMUM_SECONDS:
        raise OptionsError(
            f"resync_period is 0 for none, or at least {MINIMUM_SECONDS:g} s: {period}"
        )

    return seconds


class Stored(Protocol):
    """What a resync asks of the store."""

    def list(self) -> list[KubeObject]:
        """Every object."""

    def get_by_key(self, key: str) -> KubeObject | None:
        """The object of that key, or None."""


class ListOncePerTurn:
    """A store that is listed once for all who ask in one turn of the loop.

    Handlers that were added together are reminded together. With 100 of them and 100,000
    objects, a list for each would hold up the loop for half a second.
    """

    def __init__(self, store: Stored) -> None:
        self._store = store
        self._objects: builtins.list[KubeObject] | None = None

    def list(self) -> builtins.list[KubeObject]:
        """Every object, of this turn's beginning at the oldest; not to be changed."""
        if self._objects is None:
            self._objects = self._store.list()
            asyncio.get_running_loop().call_soon(self._forget)

        return self._objects

    def get_by_key(self, key: str) -> KubeObject | None:
        """The object of that key, or None."""
        return self._store.get_by_key(key)

    def _forget(self) -> None:
        self._objects = None


class ResyncBatch:
    """One resync: a batch that is made one by one, while it is delivered.

    Left out are objects that something waited for when it began, and those that have
    changed since: the change waits behind it.

    It keeps the objects of its beginning, also while newer states replace them: one
    older state of each object at most, as there is one reminder at a time.
    """

    __slots__ = ("_objects", "_on_told", "_store", "skipped")

    def __init__(self, store: Stored, on_told: Callable[[], None]) -> None:
        self._store = store
        self._objects = store.list()
        self._on_told = on_told
        self.skipped: set[str] = set()
        """Keys that are left out."""

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Notification | None]:
        left = len(self._objects)
        for obj in self._objects:
            left -= 1
            if not left:
                self._on_told()  # here, as nobody may ask for what is behind the last

            if obj.key in self.skipped or self._store.get_by_key(obj.key) is not obj:
                yield None
            else:
                yield Updated(obj, obj, True)


class Resync:
    """The timer of one handler: every `seconds`, a reminder is put into its inbox.

    A reminder that is not told yet stands for those that come due meanwhile: so a slow
    handler has one of them at most.

    Args:
        seconds: From one to the next; the first comes that long after `start()`.
        store: Where the objects are.
    """

    def __init__(self, seconds: float, store: Stored) -> None:
        self.seconds = seconds
        self._store = store
        self._put: Callable[[Batch], None] = _nowhere
        self._timer: asyncio.TimerHandle | None = None
        self._reminder: ResyncBatch | None = None

    def start(self, put: Callable[[Batch], None]) -> None:
        """Begin to remind, by giving batches to `put`, until `stop()`."""
        self._put = put
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.seconds, self._due)

    def stop(self) -> None:
        """Remind no more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

        self._reminder = None

    def passing(
        self, events: Iterator[Notification | None]
    ) -> Iterator[Notification | None]:
        """The same events, noted as those that waited before a reminder."""
        for event in events:
            reminder = self._reminder
            if reminder is not None and event is not None and not _is_reminding(event):
                reminder.skipped.add(object_of(event).key)

            yield event

    def _due(self) -> None:
        assert self._timer is not None  # it has just fired
        loop = asyncio.get_running_loop()
        now = loop.time()
        # In step with the first one, but what was missed is not made up for.
        following = self._timer.when() + self.seconds
        if following <= now:
            following = now + self.seconds

        self._timer = loop.call_at(following, self._due)
        if self._reminder is None:
            reminder = ResyncBatch(self._store, self._told)
            if len(reminder):
                self._reminder = reminder
                self._put(reminder)

    def _told(self) -> None:
        self._reminder = None


def _is_reminding(event: Notification) -> bool:
    return isinstance(event, Updated) and event.resync


def _nowhere(_: Batch) -> None:
    """Before `start()`."""
