"""`Broadcaster`: one sequence of events, told to any number of watches.

Theory of operation. What was sent and every `watch()` stand in one line, `incoming`;
whenever something changes (something is sent, a watch is read or stopped) the line is
worked off from its front as far as possible, synchronously and in the task that made
the change. There is no task between::

    action(), watch()  ->  incoming  ->  the queue of each watch  ->  its reader

Where readers are waited for, an event is added to every queue, and the line stands
still as long as one of the queues holds more than it should.
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

# As client-go's: enough that a sender need not wait for the readers each time.
INCOMING_LENGTH = 25


class FullChannelBehavior(enum.Enum):
    """What happens to an event when the queue of a watch is full."""

    WAIT_IF_CHANNEL_FULL = "wait"
    """The events behind it wait, for all watches, until that one was read or stopped."""

    DROP_IF_CHANNEL_FULL = "drop"
    """That watch misses it, and counts it in `skipped`."""


class Broadcaster:
    """Tells events to any number of watches, as client-go's does.

    Guarantees:
        A watch gives the events sent after the call of `watch()`, and none from before.
        They come in the order of the calls that sent them.
        Who is cancelled while it waits takes its event, or its watch, back.

    Not guaranteed:
        Any order between watches.

    Lifetime: Owns no task. It belongs to the event loop in which it is first used.
        Whoever has a watch must read it or stop it, or it holds up the others, and
        `shutdown()`.

    Args:
        queue_length: How many events may lie unread in each watch.
        full_channel_behavior: What happens to one more than that.
        incoming_length: How many events may wait to be told before their senders do.
            client-go's "long queue" is one of `queue_length`.

    Raises:
        OptionsError: If a length is too small. With `DROP_IF_CHANNEL_FULL` a queue of
            length 0 would never be told anything.

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
            raise OptionsError(f"queue_length is {least} or more, not {queue_length}")

        if incoming_length < 1:
            raise OptionsError(f"incoming_length is 1 or more, not {incoming_length}")

        self._queue_length = queue_length
        self._distributor = _Distributor(incoming_length, drops=self._drops)

    # ---------------------------------------------------------------- sending

    async def action(
        self,
        what: WatchEvent | EventType | str,
        obj: KubeObject | Mapping[str, Any] | None = None,
    ) -> None:
        """Send an event, given as such or as its type and its object.

        Waits while `incoming_length` others wait to be told. Where events are dropped
        it lets the other tasks run once if some watch is full now, as the burst of one
        sender would otherwise drop what readers are about to take.

        Raises:
            QueueShutDown: If `shutdown()` was called.
            OptionsError: If it is no event.
            DecodeError: If the object's metadata has the wrong shape.
            WrongLoop: If called in another event loop or thread.

        Cancellation:
            Takes the event back while it waits for its place; behind that it is sent.
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
        """Send an event if it need not wait for that.

        Returns:
            False if it was dropped, as `incoming_length` others wait to be told.

        Raises:
            QueueShutDown: If `shutdown()` was called.
            OptionsError: If it is no event.
            DecodeError: If the object's metadata has the wrong shape.
            WrongLoop: If called in another event loop or thread.
        """
        event = WatchEvent.of(what, obj)
        self._distributor.check_open()
        return self._distributor.offer(event)

    # ---------------------------------------------------------------- watching

    async def watch(self) -> Watch:
        """Begin a watch of what is sent from now on.

        Returns when what was sent before has been told to the others.

        Raises:
            QueueShutDown: If `shutdown()` was called.
            WrongLoop: If called in another event loop or thread.

        Cancellation:
            Safe: there is no watch then.
        """
        return await self._begin(self._queue_length, ())

    async def watch_with_prefix(self, events: Iterable[WatchEvent]) -> Watch:
        """Begin a watch that gives these events first, then what is sent from now on.

        Its queue is longer where it has to be: it holds all of them, and one more.

        Raises:
            QueueShutDown: If `shutdown()` was called.
            WrongLoop: If called in another event loop or thread.

        Cancellation:
            Safe: there is no watch then.
        """
        prefix = tuple(events)
        return await self._begin(max(self._queue_length, len(prefix) + 1), prefix)

    async def shutdown(self) -> None:
        """Take nothing more, tell what was sent, and end all watches. Idempotent.

        Waits for readers where a queue is full and events are not dropped. What lies
        unread in a watch when it ends can still be read.

        Raises:
            WrongLoop: If called in another event loop or thread.

        Cancellation:
            Safe: the broadcaster goes on ending, call again to wait for it.
        """
        await self._distributor.close()

    async def _begin(self, length: int, prefix: tuple[WatchEvent, ...]) -> Watch:
        self._distributor.check_open()
        watch = _BroadcastWatch(self._distributor, length, prefix)
        try:
            await self._distributor.send(watch)
            await watch.registered.wait()
        except BaseException:
            watch.stop()  # one that nobody has would hold up all others for ever
            raise

        return watch

    def __repr__(self) -> str:
        return f"<Broadcaster {self._distributor}>"


class _Distributor:
    """The line of what came in, and the watches that it is told to."""

    def __init__(self, incoming_length: int, *, drops: bool) -> None:
        self._drops = drops
        self._loop: asyncio.AbstractEventLoop | None = None
        # A watch in it is to be registered when its turn comes.
        # Invariant: something is in it => some watch is overfull.
        self._incoming: Channel[WatchEvent | _BroadcastWatch] = Channel(incoming_length)
        # Kept in the order of their registration; the values say nothing.
        self._watches: dict[_BroadcastWatch, None] = {}
        # Invariant: those of `_watches` that hold one more than their queues should.
        self._overfull: set[_BroadcastWatch] = set()
        self._closing = False
        self._ended = asyncio.Event()

    @property
    def has_full_watch(self) -> bool:
        """True while some watch has no room for an event."""
        return any(watch.full for watch in self._watches)

    async def send(self, item: WatchEvent | _BroadcastWatch) -> None:
        """Put it into the line, or wait until it may stand there."""
        if not self.offer(item):
            await self._incoming.send(item)

    def offer(self, item: WatchEvent | _BroadcastWatch) -> bool:
        """Put it into the line, if that is not full."""
        if not self._incoming.offer(item):
            return False

        self._pump()
        return True

    def made_room(self, watch: _BroadcastWatch) -> None:
        """Go on, as `watch` was read."""
        self._overfull.discard(watch)
        self._pump()

    def forget(self, watch: _BroadcastWatch) -> None:
        """Go on without `watch`, which was stopped."""
        self._watches.pop(watch, None)
        self._overfull.discard(watch)
        self._pump()

    async def close(self) -> None:
        """Work off the line, then end all watches; wait for that."""
        self.check_loop()
        self._closing = True
        self._pump()
        await self._ended.wait()

    def _pump(self) -> None:
        """Work off the line, as far as the watches have room."""
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
            watch.tell(event, drops=self._drops)
            if watch.overfull:
                self._overfull.add(watch)

    def _end(self) -> None:
        for watch in self._watches:
            watch.end()

        self._watches.clear()
        self._ended.set()

    def check_open(self) -> None:
        """Refuse to begin anything after the end, or elsewhere."""
        self.check_loop()
        if self._closing:
            raise QueueShutDown("broadcaster already stopped")

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
    """What a broadcaster tells one reader."""

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
        """Events missed so far, because they came while the queue was full."""
        return self._missed

    @property
    def full(self) -> bool:
        """True while there is no room for an event."""
        return len(self._channel) >= self._channel.room

    @property
    def overfull(self) -> bool:
        """True while it holds more events than its queue should."""
        return self._channel.overfull

    def tell(self, event: WatchEvent, *, drops: bool) -> None:
        """Add an event; one for which there is no room may be dropped."""
        if not drops:
            self._channel.put(event)
        elif not self._channel.offer(event):
            self._missed += 1

    def end(self) -> None:
        """Nothing follows; what is unread can still be read."""
        self._channel.close()

    async def _receive(self, most: int | None) -> list[WatchEvent]:
        self._distributor.check_loop()
        return await super()._receive(most)

    def _made_room(self) -> None:
        self._distributor.made_room(self)

    def _close(self) -> None:
        super()._close()
        self._distributor.forget(self)
