"""`WorkQueue`: hands each item to one worker at a time, and forgets no request.

Theory of operation. An item the queue knows is in one of three states; `add` and
`done` move it, `get` takes it:

    unknown --add--> QUEUED --get--> WORKING --done--> unknown
                        ^               |
                        |              add
                        |               v
                        +----done---- AGAIN

Whatever else is called changes nothing. Between a check and the change there is no
await; futures only wake a waiter, which then takes the item itself.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from contextlib import asynccontextmanager, suppress
from threading import get_ident
from typing import TYPE_CHECKING, Final, TypeVar

from aioinformer.errors import QueueShutDown
from aioinformer.metrics import NULL_SINK, MetricsSink
from aioinformer.model.durations import seconds_of
from aioinformer.workqueue.ownership import OwnedByLoop

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Hashable, Iterable
    from datetime import timedelta

__all__ = ["WorkQueue"]

T = TypeVar("T", bound="Hashable")

_QUEUED: Final = 1
_WORKING: Final = 2
_AGAIN: Final = 3  # in work, and asked for once more


class _Phase(enum.Enum):
    OPEN = "open"
    DRAINING = "draining"
    SHUT = "shut"


_OPEN: Final = _Phase.OPEN


class WorkQueue(OwnedByLoop[T]):
    """A queue of distinct hashable items, such as object keys, for any number of workers.

    A worker takes an item with `get()` and must call `done()` for it; `item()` and
    `async for` do that by themselves.

    Guarantees:
        Items are handed out in the order in which they were first added.
        An item that is queued already is not queued twice.
        One item is never handed out again before its `done()`; if it was added
        meanwhile, it is then queued once more, at the end.
        A worker that is cancelled while it waits takes no item with it.

    Not guaranteed:
        Any order between workers that wait.

    Lifetime:
        Owns no task. It belongs to the event loop in which it is first used; every
        method but `add_threadsafe()` raises `WrongLoop` in another thread. Another
        loop in the same thread is noticed where the queue waits or stops being empty.
        Reading `len()`, `shutting_down` and `repr()` is allowed anywhere.

    Args:
        name: Names the queue in metrics and in `repr()`.
        metrics: Takes `workqueue_adds_total` (items already queued do not count),
            `workqueue_retries_total` and `workqueue_depth`, all with the label `name`.
    """

    def __init__(self, name: str = "", *, metrics: MetricsSink = NULL_SINK) -> None:
        super().__init__()
        self.name = name
        self._metrics = metrics if metrics.enabled else None
        self._phase = _OPEN

        # Invariant: item in _queue  <=>  _states[item] is _QUEUED. No duplicates.
        self._queue: deque[T] = deque()
        self._states: dict[T, int] = {}

        # Invariant: an open queue with items in it keeps nobody waiting, except those
        # whose future is done already.
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._drains: set[asyncio.Future[None]] = set()

        # Wanted, but never going to be handed out: only once the queue is closed.
        self._left: set[T] = set()
        self._granted: set[T] = set()

    def __len__(self) -> int:
        """How many items are queued; those in work or delayed do not count."""
        return len(self._queue)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {' '.join(self._describe())}>"

    @property
    def shutting_down(self) -> bool:
        """True once `shut_down()` or `shut_down_with_drain()` was called."""
        return self._phase is not _OPEN

    # ------------------------------------------------------------ items

    def add(self, item: T) -> None:
        """Ask for `item` to be worked on.

        Does nothing if it is queued already, or once the queue is shutting down
        (`shut_down_with_drain()` names the one exception).

        Raises:
            WrongLoop: If called from another thread: use `add_threadsafe()`.
        """
        if get_ident() != self._thread and not self._admits(item):
            return

        states = self._states
        if item not in states:
            queue = self._queue
            if not queue and not self._waiters:
                self._check_loop()

            states[item] = _QUEUED
            queue.append(item)
            if self._waiters:
                self._wake_next()
        elif states[item] == _WORKING:
            states[item] = _AGAIN
        else:
            return

        if self._metrics is not None:
            self._metrics.count("workqueue_adds_total", name=self.name)
            self._measure_depth(self._metrics)

    async def get(self) -> T:
        """Wait for the next item and take it; `done()` must follow.

        Does not wait, not even for one turn of the loop, if an item is queued.

        Raises:
            QueueShutDown: If the queue is shutting down and nothing is queued.
            WrongLoop: If called from another loop.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        if get_ident() != self._thread:
            self._check_loop()

        queue = self._queue
        while not queue:
            if self._phase is not _OPEN:
                raise QueueShutDown(f"{self!r} is shut down and empty")

            await self._wait_filled()

        # `get_nowait()`, written out: the call would be a tenth of the whole.
        item = queue.popleft()
        self._states[item] = _WORKING
        if self._metrics is not None:
            self._measure_depth(self._metrics)

        return item

    def get_nowait(self) -> T:
        """Take the next item; `done()` must follow.

        Raises:
            asyncio.QueueEmpty: If nothing is queued.
            QueueShutDown: If nothing is queued and the queue is shutting down.
            WrongLoop: If called from another loop.
        """
        if get_ident() != self._thread:
            self._check_loop()

        if not self._queue:
            if self._phase is _OPEN:
                raise asyncio.QueueEmpty

            raise QueueShutDown(f"{self!r} is shut down and empty")

        item = self._queue.popleft()
        self._states[item] = _WORKING
        if self._metrics is not None:
            self._measure_depth(self._metrics)

        return item

    def done(self, item: T) -> None:
        """Say that the work on `item` has ended, well or badly.

        If it was added meanwhile it is queued again. Does nothing for an item that is
        not in work.

        Raises:
            WrongLoop: If called from another loop.
        """
        if get_ident() != self._thread:
            self._check_loop()

        state = self._states.pop(item, None)
        if state == _WORKING:
            if self._drains and not self._states:
                self._end_drains()
        elif state is not None:
            self._put_back(item, state)

    @asynccontextmanager
    async def item(self) -> AsyncIterator[T]:
        """Take the next item for one `async with` block, and call `done()` after it.

        `done()` is called however the block ends. To have the item again, add it (or
        `add_after`, `add_rate_limited`) inside of the block.

        Raises:
            QueueShutDown: If the queue is shutting down and nothing is queued.

        Cancellation:
            Safe while it waits: nothing is lost.
        """
        item = await self.get()
        try:
            yield item
        finally:
            self.done(item)

    async def __aiter__(self) -> AsyncGenerator[T, None]:
        """Yield items until the queue is shut down and empty.

        `done()` is called for an item when the loop asks for the next one. Where the
        loop is left early (`break`, `return`, an exception), it is called as soon as
        the event loop has closed the generator; `contextlib.aclosing(aiter(queue))`
        makes that certain and immediate.
        """
        while True:
            try:
                item = await self.get()
            except QueueShutDown:
                return

            try:
                yield item
            finally:
                self.done(item)

    # ------------------------------------------------------------ shutting down

    def shut_down(self) -> None:
        """Take no more items; what is queued is still handed out. Idempotent.

        An item that was added again while in work is still queued by its `done()`.
        Delayed items are dropped. Waiting workers get `QueueShutDown` once nothing is
        queued; a `shut_down_with_drain()` that waits returns at once.

        Raises:
            WrongLoop: If called from another loop.
        """
        self._check_loop()
        self._take_inbox()
        self._left.update(self._take_delayed())
        self._close(_Phase.SHUT)
        self._end_drains()

    async def shut_down_with_drain(
        self, timeout: float | timedelta | None = None
    ) -> frozenset[T]:
        """Take no new items, and wait until all that are known have been worked on.

        Workers must go on calling `get()` and `done()`: they are handed what is
        queued, what is delayed (at once, its delay is cut), and what was added again
        while in work. During the drain an item in work may be added again once, so
        that a failure gets one more attempt; after that it counts as not done.

        It holds the event loop for about 0.7 us for each item that is delayed when it
        is called, and 0.2 us for each that is queued when the time is over: 0.1 s for
        150,000 delayed ones.

        Args:
            timeout: How long to wait, in seconds or as a `timedelta`; None for ever.

        Returns:
            The items not done: still in work, never handed out, or asked for again in
            vain. Empty if everything was done. What it returns is not handed out
            afterwards.

        Raises:
            WrongLoop: If called from another loop.

        Cancellation:
            Safe: the queue goes on draining, call again to wait for it.
        """
        limit = None if timeout is None else seconds_of(timeout)
        self._begin_drain()

        if self._states:
            ended = self._running_loop().create_future()
            self._drains.add(ended)
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(limit):
                        await ended
            finally:
                self._drains.discard(ended)

        return self._give_up()

    def _begin_drain(self) -> None:
        self._check_loop()
        self._take_inbox()
        for item in self._take_delayed():
            self.add(item)

        if self._phase is _OPEN:
            self._close(_Phase.DRAINING)

    def _close(self, phase: _Phase) -> None:
        self._phase = phase
        self._thread = 0  # from now on each `add()` has to look at the phase
        while self._waiters:
            self._wake_next()

    def _give_up(self) -> frozenset[T]:
        """Close for good; what is queued will not be handed out any more."""
        self._close(_Phase.SHUT)
        self._left.update(self._queue)
        for item in self._queue:
            del self._states[item]

        self._queue.clear()
        for item, state in self._states.items():
            if state == _AGAIN:
                self._states[item] = _WORKING
                self._left.add(item)

        if not self._states:
            self._end_drains()

        if self._metrics is not None:
            self._measure_depth(self._metrics)

        return frozenset(self._left | self._states.keys())

    def _admits(self, item: T) -> bool:
        self._check_loop()
        if self._phase is _OPEN:
            return True

        self._add_late(item)
        return False

    def _add_late(self, item: T) -> None:
        if self._states.get(item) != _WORKING:
            return

        if self._phase is _Phase.DRAINING and item not in self._granted:
            self._granted.add(item)
            self._states[item] = _AGAIN
        else:
            self._left.add(item)

    def _take_delayed(self) -> Iterable[T]:
        """Take out everything that waits for its time; for subclasses with delays."""
        return ()

    # ------------------------------------------------------------ waking

    def _put_back(self, item: T, state: int) -> None:
        """Undo what `done()` took out of `_states`."""
        self._states[item] = _QUEUED
        if state == _AGAIN:
            self._queue.append(item)
            self._wake_next()
            if self._metrics is not None:
                self._measure_depth(self._metrics)

    async def _wait_filled(self) -> None:
        waiter = self._running_loop().create_future()
        self._waiters.append(waiter)
        woken = False
        try:
            await waiter
            woken = True
        finally:
            if not woken:
                self._abandon(waiter)

    def _abandon(self, waiter: asyncio.Future[None]) -> None:
        if waiter.done() and not waiter.cancelled():
            # Woken for an item and cancelled in the same turn: the item still lies in
            # the queue, so the wake-up must reach somebody else.
            if self._queue:
                self._wake_next()

            return

        with suppress(ValueError):
            self._waiters.remove(waiter)

    def _wake_next(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _end_drains(self) -> None:
        for ended in self._drains:
            if not ended.done():
                ended.set_result(None)

    # ------------------------------------------------------------ telling

    def _describe(self) -> list[str]:
        working = len(self._states) - len(self._queue)
        parts = [self.name] if self.name else []
        parts += [self._phase.value, f"queued={len(self._queue)}", f"working={working}"]
        return parts

    def _measure_depth(self, metrics: MetricsSink) -> None:
        metrics.gauge("workqueue_depth", len(self._queue), name=self.name)
