"""Fakes: watches whose events come from a test, or never.

For tests of code that only reads a watch. For a whole collection with lists and
watches, use `aioinformer.testing.FakeListerWatcher`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

from aioinformer.errors import OptionsError, QueueShutDown
from aioinformer.watch.events import EventType, WatchEvent
from aioinformer.watch.interface import Watch
from aioinformer.watch.tools.channel import Channel, ChannelWatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.errors import ApiError
    from aioinformer.model.objects import KubeObject

__all__ = ["EmptyWatch", "FakeWatch", "RaceFreeFakeWatch"]

Body: TypeAlias = "KubeObject | Mapping[str, Any]"

# As in client-go.
DEFAULT_SIZE = 100


class EmptyWatch(Watch):
    """Watch that has ended before it started. Stopping it is harmless."""

    async def _fetch(self) -> list[WatchEvent]:
        return []

    def _close(self) -> None:
        pass

    def __repr__(self) -> str:
        return "<EmptyWatch>"


class _SentByHand(ChannelWatch):
    """Base of both fakes: the end that a server makes, and a new start."""

    def end(self) -> None:
        """End the watch as a server does: events sent before can be read. Idempotent.

        Waiting senders get the error of `action()`.
        """
        self._channel.close()

    def reset(self) -> None:
        """Open it again, empty. An open watch is stopped first.

        A waiting reader gets the end of the old watch, even if it only runs later.
        """
        self.stop()
        self._channel = Channel(self._channel.room)
        self._stopped = self._ended = False


class FakeWatch(_SentByHand):
    """Watch whose events are sent by hand. Senders wait for the reader.

    The sending methods return when the reader has taken the event or, with a buffer,
    when there was room for it. Events are read in the order in which they were sent. It
    is like client-go's `FakeWatcher`, except that `stop()` is for the reader and drops
    unread events. `end()` ends the watch as a server does.

    Args:
        size: Number of unread events before senders wait.

    Raises:
        OptionsError: If that is negative.

    Example:
        A reader that is tested::

            watch = FakeWatch()
            async with asyncio.TaskGroup() as group:
                group.create_task(reader(watch))
                await watch.add({"metadata": {"name": "web"}})
                watch.end()
    """

    def __init__(self, size: int = 0) -> None:
        if size < 0:
            raise OptionsError(f"size must be at least 0, not {size}")

        super().__init__(Channel(size))

    async def add(self, obj: Body) -> None:
        """Send an ADDED event; see `action()`."""
        await self.action(EventType.ADDED, obj)

    async def modify(self, obj: Body) -> None:
        """Send a MODIFIED event; see `action()`."""
        await self.action(EventType.MODIFIED, obj)

    async def delete(self, obj: Body) -> None:
        """Send a DELETED event; see `action()`."""
        await self.action(EventType.DELETED, obj)

    async def bookmark(self, obj: Body | str) -> None:
        """Send a BOOKMARK event of an object or of a version; see `action()`."""
        await self.action(_bookmark_of(obj))

    async def error(self, error: ApiError | Body) -> None:
        """Send an ERROR event of an error or of a Status; see `action()`.

        The watch is still open then. A server's watch ends after it, so call `end()`
        next.
        """
        await self.action(WatchEvent.of_error(error))

    async def action(
        self, what: WatchEvent | EventType | str, obj: Body | None = None
    ) -> None:
        """Send an event, given as such or as its type and its object.

        Raises:
            QueueShutDown: If the watch is stopped or has ended, or did so before the
                event was taken.
            OptionsError: If it is not an event.
            DecodeError: If the object's metadata has the wrong shape.
            WrongLoop: If a task waits in another event loop or thread.

        Cancellation:
            The event is withdrawn, unless the reader (or the buffer) has it already.
        """
        if not await self._channel.send(WatchEvent.of(what, obj)):
            raise QueueShutDown("cannot send an event: the watch has been stopped")


class RaceFreeFakeWatch(_SentByHand):
    """Watch whose events are sent by hand, by plain methods that never wait.

    Events sent after `stop()` are ignored, so a test need not know which comes first.
    It is like client-go's `RaceFreeFakeWatcher`, except that `stop()` is for the reader
    and drops unread events. `end()` ends the watch as a server does.

    Args:
        size: Maximum number of unread events.

    Raises:
        OptionsError: If the size is below 1.
    """

    def __init__(self, size: int = DEFAULT_SIZE) -> None:
        if size < 1:
            raise OptionsError(f"size must be at least 1, not {size}")

        super().__init__(Channel(size))

    def add(self, obj: Body) -> None:
        """Send an ADDED event; see `action()`."""
        self.action(EventType.ADDED, obj)

    def modify(self, obj: Body) -> None:
        """Send a MODIFIED event; see `action()`."""
        self.action(EventType.MODIFIED, obj)

    def delete(self, obj: Body) -> None:
        """Send a DELETED event; see `action()`."""
        self.action(EventType.DELETED, obj)

    def bookmark(self, obj: Body | str) -> None:
        """Send a BOOKMARK event of an object or of a version; see `action()`."""
        self.action(_bookmark_of(obj))

    def error(self, error: ApiError | Body) -> None:
        """Send an ERROR event of an error or of a Status; see `action()`.

        The watch is still open then. A server's watch ends after it, so call `end()`
        next.
        """
        self.action(WatchEvent.of_error(error))

    def action(
        self, what: WatchEvent | EventType | str, obj: Body | None = None
    ) -> None:
        """Send an event, given as such or as its type and its object.

        Ignored once the watch is stopped or has ended.

        Raises:
            asyncio.QueueFull: If the buffer is full.
            OptionsError: If it is not an event.
            DecodeError: If the object's metadata has the wrong shape.
            WrongLoop: If a task waits in another event loop or thread.
        """
        event = WatchEvent.of(what, obj)
        if not self._channel.offer(event) and not self._channel.closed:
            room = self._channel.room
            raise asyncio.QueueFull(f"no room for {event}: {room} events are unread")


def _bookmark_of(obj: Body | str) -> WatchEvent:
    body = {"metadata": {"resourceVersion": obj}} if isinstance(obj, str) else obj
    return WatchEvent.of(EventType.BOOKMARK, body)
