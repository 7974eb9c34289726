"""Resyncs: periodic notifications of every stored object.

Each handler has its own timer. A resync reads the store, not the server. It repeats the
state of the last notification, so no notification is out of order. (client-go has one
timer for all handlers of an informer, and rounds their periods.)
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
"""Shortest period, as in client-go: a resync notifies of every object."""


def resync_seconds(period: Duration | None) -> float:
    """Return the period in seconds; 0 for none.

    Raises:
        OptionsError: If it is negative, not finite, or above 0 but below a second.
            (client-go raises it to a second, with a log line.)
    """
    seconds = 0.0 if period is None else seconds_of(period)
    if seconds and seconds < MINIMUM_SECONDS:
        raise OptionsError(
            f"resync_period must be 0 or at least {MINIMUM_SECONDS:g} s, not {period}"
        )

    return seconds


class ResyncSource(Protocol):
    """Objects that a resync reads."""

    def list(self) -> list[KubeObject]:
        """Return all objects."""

    def get_by_key(self, key: str) -> KubeObject | None:
        """Return the object with this key, or None."""


class ListOncePerTurn:
    """List of a store, shared by all resyncs in one iteration of the loop.

    Handlers added together resync together. With 100 handlers and 100,000 objects, a
    list for each would block the loop for half a second.
    """

    def __init__(self, source: ResyncSource) -> None:
        self._source = source
        self._objects: builtins.list[KubeObject] | None = None

    def list(self) -> builtins.list[KubeObject]:
        """Return all objects, as of this iteration of the loop. Do not change the list."""
        if self._objects is None:
            self._objects = self._source.list()
            asyncio.get_running_loop().call_soon(self._forget)

        return self._objects

    def get_by_key(self, key: str) -> KubeObject | None:
        """Return the object with this key, or None."""
        return self._source.get_by_key(key)

    def _forget(self) -> None:
        self._objects = None


class ResyncBatch:
    """Batch of one resync, which creates its notifications on delivery.

    Two kinds of objects are skipped: objects with a notification that was delivered
    while the batch was queued, and objects that have changed since the batch was
    created, as the change is queued, too.

    The batch refers to the objects that were stored when it was created, even if they
    change later. That is at most one old state per object, as a handler has one resync
    at a time.
    """

    __slots__ = ("_objects", "_on_delivered", "_source", "skipped")

    def __init__(self, source: ResyncSource, on_delivered: Callable[[], None]) -> None:
        self._source = source
        self._objects = source.list()
        self._on_delivered = on_delivered
        self.skipped: set[str] = set()
        """Keys of skipped objects."""

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Notification | None]:
        left = len(self._objects)
        for obj in self._objects:
            left -= 1
            if not left:
                # Before the last item, as the reader may not request another one.
                self._on_delivered()

            if obj.key in self.skipped or self._source.get_by_key(obj.key) is not obj:
                yield None
            else:
                yield Updated(obj, obj, True)


class Resync:
    """Resync timer of one handler, which puts a batch into its inbox periodically.

    No batch is added while the previous one is undelivered, so a slow handler has at
    most one.

    Args:
        seconds: Seconds between resyncs, and from `start()` to the first one.
        source: Store of the objects.
    """

    def __init__(self, seconds: float, source: ResyncSource) -> None:
        self.seconds = seconds
        self._source = source
        self.on_due: Callable[[], None] | None = None
        """Function called in place of reading `source`; must not wait."""
        self._put: Callable[[Batch], None] = _drop_batch
        self._timer: asyncio.TimerHandle | None = None
        self._queued: ResyncBatch | None = None

    def start(self, put: Callable[[Batch], None]) -> None:
        """Start the timer; it passes batches to `put` until `stop()`."""
        self._put = put
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.seconds, self._due)

    def stop(self) -> None:
        """Stop the timer. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

        self._queued = None

    def apply(
        self, events: Iterator[Notification | None]
    ) -> Iterator[Notification | None]:
        """Yield the events unchanged; a queued resync then skips their objects."""
        for event in events:
            batch = self._queued
            if batch is not None and event is not None and not _is_resync(event):
                batch.skipped.add(object_of(event).key)

            yield event

    def _due(self) -> None:
        assert self._timer is not None  # it has just fired
        loop = asyncio.get_running_loop()
        now = loop.time()
        # Multiples of the period since the first one; missed resyncs are skipped.
        following = self._timer.when() + self.seconds
        if following <= now:
            following = now + self.seconds

        self._timer = loop.call_at(following, self._due)
        if self.on_due is not None:
            self.on_due()
        elif self._queued is None:
            batch = ResyncBatch(self._source, self._delivered)
            if len(batch):
                self._queued = batch
                self._put(batch)

    def _delivered(self) -> None:
        self._queued = None


def _is_resync(event: Notification) -> bool:
    return isinstance(event, Updated) and event.resync


def _drop_batch(_: Batch) -> None:
    """Drop a batch; used before `start()`."""
