"""`Broadcaster`: one sequence of events for any number of watches.

Sent events and new watches wait in one queue, `incoming`. After each change (an event
is sent, a watch is read or stopped) the queue is processed as far as possible,
synchronously and in the task that made the change. There is no task between::

    action(), watch()  ->  incoming  ->  the queue of each watch  ->  its reader

If events are not dropped, an event is added to the queue of every watch. While one of
these is overfull, `incoming` is not processed.
"""

from __future__ import annotations

import asyncio
import enum
from typing import TYPE_CHECKING, Any

from aioinformer.errors import OptionsError, QueueShutDown, WrongLoop
from aioinformer.watch.events import EventType, WatchEvent
from aioinformer.watch.tools.channel import Channel, ChannelWatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aioinformer.model.objects import KubeObject
    from aioinformer.watch.interface import Watch

__all__ = ["Broadcaster", "FullChannelBehavior"]

# As in client-go: enough that senders rarely wait for the readers.
INCOMING_LENGTH = 25


class FullChannelBehavior(enum.Enum):
    """Treatment of an event when the queue of a watch is full."""

    WAIT_IF_CHANNEL_FULL = "wait"
    """Wait: further events wait, for all watches, until that watch is read or stopped."""

    DROP_IF_CHANNEL_FULL = "drop"
    """Drop: that watch misses the event, and counts it in `skipped`."""


class Broadcaster:
    """Sender of events to any number of watches, as in client-go.

    Guarantees:
        A watch gets the events sent after the call of `watch()`, and no earlier ones.
        They have the order of the calls that sent them. If a sender or watcher is
        cancelled while it waits, its event or watch is withdrawn.

    Not guaranteed:
        Any order between watches.

    Lifetime:
        Owns no task. It belongs to the event loop in which it is first used. Read or
        stop every watch: otherwise it blocks the others, and `shutdown()`.

    Args:
        queue_length: Maximum number of unread events in each watch.
        full_channel_behavior: Treatment of an event for a watch whose queue is full.
        incoming_length: Maximum number of waiting events before senders wait. In
            client-go's "long queue" broadcaster it is `queue_length`.

    Raises:
        OptionsError: If a length is too small. With `DROP_IF_CHANNEL_FULL` a queue of
            length 0 would never get an event.

    Example:
        ::

            broadcaster = Broadcaster(100, FullChannelBehavior.DROP_IF_CHANNEL_FULL)
            async with await broadcaster.watch() as watch:
                await broadcaster.action("ADDED", {"metadata": {"name": "web"}})
                event = await anext(watch)
            await broadcaster.shutdown()
    """

    def __init__(
        self,
        queue_length: int,
        full_channel_behavior: FullChannelBehavior = (
            FullChannelBehavior.WAIT_IF_CHANNEL_FULL
        ),
        *,
        incoming_length: int = INCOMING_LENGTH,
    ) -> None:
        self._drops = full_channel_behavior is FullChannelBehavior.DROP_IF_CHANNEL_FULL
        least = 1 if self._drops else 0
        if queue_length < least:
            raise OptionsError(
                f"queue_length must be at least {least}, not {queue_length}"
            )

        if incoming_length < 1:
            raise OptionsError(
                f"incoming_length must be at least 1, not {incoming_length}"
            )

        self._queue_length = queue_length
        self._distributor = _Distributor(incoming_length, drops=self._drops)

    # ---------------------------------------------------------------- sending

    async def action(
        self,
        what: WatchEvent | EventType | str,
        obj: KubeObject | Mapping[str, Any] | None = None,
    ) -> None:
        """Send an event, passed as a `WatchEvent` or as its type and its object.

        Waits while `incoming_length` others are waiting. If events are dropped and a
        watch is full now, it lets other tasks run once: otherwise the burst of one
        sender would drop events that readers are about to read.

        Raises:
            QueueShutDown: If `shutdown()` was called.
            OptionsError: If it is not an event.
            DecodeError: If the object's metadata has the wrong shape.
            WrongLoop: If called in another event loop or thread.

        Cancellation:
            While it waits for room, the event is withdrawn; after that it is sent.
        """
        event = WatchEvent.of(what, obj)
        self._distributor.check_open()
        await self._distributor.send(event)
        if self._drops and self._distributor.has_full_watch:
            await asyncio.sleep(0)

    def action_or_drop(
        self,
        what: WatchEvent | EventType | str,
        obj: KubeObject | Mapping[str, Any] | None = None,
    ) -> bool:
        """Send an event if there is room for it now.

        Returns:
            False if the event was dropped because `incoming_length` others are waiting.

        Raises:
            QueueShutDown: If `shutdown()` was called.
            OptionsError: If it is not an event.
            DecodeError: If the object's metadata has the wrong shape.
            WrongLoop: If called in another event loop or thread.
        """
        event = WatchEvent.of(what, obj)
        self._distributor.check_open()
        return self._distributor.offer(event)

    # ---------------------------------------------------------------- watching

    async def watch(self) -> Watch:
        """Start a watch of the events sent from now on.

        Returns when the other watches have all earlier events.

        Raises:
            QueueShutDown: If `shutdown()` was called.
            WrongLoop: If called in another event loop or thread.

        Cancellation:
            Safe: there is no watch then.
        """
        return await self._begin(self._queue_length, ())

    async def watch_with_prefix(self, events: Iterable[WatchEvent]) -> Watch:
        """Start a watch of these events, and then of those sent from now on.

        Its queue has room for all of them and one more, if `queue_length` is smaller.

        Raises:
            QueueShutDown: If `shutdown()` was called.
            WrongLoop: If called in another event loop or thread.

        Cancellation:
            Safe: there is no watch then.
        """
        prefix = tuple(events)
        return await self._begin(max(self._queue_length, len(prefix) + 1), prefix)

    async def shutdown(self) -> None:
        """Accept no more events, deliver those sent, and end all watches. Idempotent.

        Waits for readers if a queue is full and events are not dropped. Unread events
        of a watch can still be read after its end.

        Raises:
            WrongLoop: If called in another event loop or thread.

        Cancellation:
            Safe: the shutdown continues, call again to wait for it.
        """
        await self._distributor.close()

    async def _begin(self, length: int, prefix: tuple[WatchEvent, ...]) -> Watch:
        self._distributor.check_open()
        watch = _BroadcastWatch(self._distributor, length, prefix)
        try:
            await self._distributor.send(watch)
            await watch.registered.wait()
        except BaseException:
            watch.stop()  # without a reader it would block all others forever
            raise

        return watch

    def __repr__(self) -> str:
        return f"<Broadcaster {self._distributor}>"


class _Distributor:
    """Incoming queue, and the watches that get its events."""

    def __init__(self, incoming_length: int, *, drops: bool) -> None:
        self._drops = drops
        self._loop: asyncio.AbstractEventLoop | None = None
        # Events, and watches to be registered.
        # Invariant: if it is not empty, a watch is overfull.
        self._incoming: Channel[WatchEvent | _BroadcastWatch] = Channel(incoming_length)
        # In the order of their registration; the values are not used.
        self._watches: dict[_BroadcastWatch, None] = {}
        # Invariant: the watches that have one event more than their queues should.
        self._overfull: set[_BroadcastWatch] = set()
        self._closing = False
        self._ended = asyncio.Event()

    @property
    def has_full_watch(self) -> bool:
        """True while a watch has no room for an event."""
        return any(watch.full for watch in self._watches)

    async def send(self, item: WatchEvent | _BroadcastWatch) -> None:
        """Add an item to the incoming queue; wait for room."""
        if not self.offer(item):
            await self._incoming.send(item)

    def offer(self, item: WatchEvent | _BroadcastWatch) -> bool:
        """Add an item to the incoming queue, unless that is full."""
        if not self._incoming.offer(item):
            return False

        self._pump()
        return True

    def made_room(self, watch: _BroadcastWatch) -> None:
        """Continue after `watch` was read."""
        self._overfull.discard(watch)
        self._pump()

    def forget(self, watch: _BroadcastWatch) -> None:
        """Continue without `watch`, which was stopped."""
        self._watches.pop(watch, None)
        self._overfull.discard(watch)
        self._pump()

    async def close(self) -> None:
        """Process the incoming queue, then end all watches; wait for that."""
        self.check_loop()
        self._closing = True
        self._pump()
        await self._ended.wait()

    def _pump(self) -> None:
        """Process the incoming queue, as far as the watches have room."""
        while not self._overfull and (items := self._incoming.take(1)):
            item = items[0]
            if isinstance(item, WatchEvent):
                self._distribute(item)
            elif not item.stopped:
                self._watches[item] = None
                item.registered.set()

        if self._closing and not self._overfull:
            self._end()

    def _distribute(self, event: WatchEvent) -> None:
        for watch in self._watches:
            watch.deliver(event, drops=self._drops)
            if watch.overfull:
                self._overfull.add(watch)

    def _end(self) -> None:
        for watch in self._watches:
            watch.end()

        self._watches.clear()
        self._ended.set()

    def check_open(self) -> None:
        """Refuse a call after the shutdown, or in another loop."""
        self.check_loop()
        if self._closing:
            raise QueueShutDown("the broadcaster has been shut down")

    def check_loop(self) -> None:
        """Bind to the running loop if there is none yet; refuse another one."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None

        if self._loop is None:
            self._loop = running
        elif self._loop is not running:
            raise WrongLoop("the broadcaster belongs to another event loop or thread")

    def __str__(self) -> str:
        ended = "ended" if self._ended.is_set() else "ending"
        state = ended if self._closing else "open"
        watches, incoming = len(self._watches), len(self._incoming)
        return f"{state} watches={watches} incoming={incoming}"


class _BroadcastWatch(ChannelWatch):
    """Watch of one reader of a broadcaster."""

    def __init__(
        self, distributor: _Distributor, length: int, prefix: Iterable[WatchEvent]
    ) -> None:
        super().__init__(Channel(length))
        self.registered = asyncio.Event()
        self._distributor = distributor
        self._missed = 0
        for event in prefix:
            self._channel.put(event)

    @property
    def skipped(self) -> int:
        """Number of events missed so far because the queue was full."""
        return self._missed

    @property
    def full(self) -> bool:
        """True while there is no room for an event."""
        return len(self._channel) >= self._channel.room

    @property
    def overfull(self) -> bool:
        """True while it has more events than its queue should."""
        return self._channel.overfull

    def deliver(self, event: WatchEvent, *, drops: bool) -> None:
        """Add an event; without room it may be dropped."""
        if not drops:
            self._channel.put(event)
        elif not self._channel.offer(event):
            self._missed += 1

    def end(self) -> None:
        """End the watch; unread events can still be read."""
        self._channel.close()

    async def _receive(self, most: int | None) -> list[WatchEvent]:
        self._distributor.check_loop()
        return await super()._receive(most)

    def _made_room(self) -> None:
        self._distributor.made_room(self)

    def _close(self) -> None:
        super()._close()
        self._distributor.forget(self)
