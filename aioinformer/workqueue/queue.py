"""`WorkQueue`: hands each item to one worker at a time and loses no request.

An item that the queue knows is in one of three states. `add()` and `done()` move it,
`get()` takes it:

    unknown --add--> QUEUED --get--> WORKING --done--> unknown
                        ^               |
                        |              add
                        |               v
                        +----done---- AGAIN

No other call changes a state. There is no await between a check and the change.
Notifications only wake a waiting worker, which then takes the item by itself.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections import deque
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, TypeVar

from aioinformer._condition import LoopLock, owned_lock
from aioinformer.errors import OptionsError, QueueShutDown, WrongLoop
from aioinformer.metrics import NULL_SINK, MetricsSink
from aioinformer.model.times import seconds_of, timeout_of
from aioinformer.workqueue.delayed_items import DelayedItems
from aioinformer.workqueue.limiters import default_controller_rate_limiter
from aioinformer.workqueue.metrics import WorkQueueMetrics

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Callable,
        Hashable,
        Iterator,
        Mapping,
    )
    from contextlib import AbstractAsyncContextManager
    from datetime import timedelta

    from aioinformer.workqueue.limiters import RateLimiter

__all__ = ["DelayingQueue", "QueuedItems", "RateLimitingQueue", "WorkQueue"]

T = TypeVar("T", bound="Hashable")

_QUEUED: Final = 1
_WORKING: Final = 2
_AGAIN: Final = 3  # in work, and added again

# Adding an item takes about 1 us, so a turn of the loop lasts about 1 ms when other
# threads add many.
ADDED_PER_TURN = 1000


class _Phase(enum.Enum):
    OPEN = "open"
    DRAINING = "draining"
    SHUT = "shut"


_OPEN: Final = _Phase.OPEN


class QueuedItems(Protocol[T]):
    """The queued items of a work queue in their order. A deque is one."""

    def append(self, item: T, /) -> None:
        """Add an item that is not queued."""

    def popleft(self) -> T:
        """Remove and return the next item. Raise `IndexError` if there is none."""

    def clear(self) -> None:
        """Remove all items."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[T]: ...


class WorkQueue(Generic[T]):
    """Queue of distinct hashable items, such as object keys, for its workers.

    A worker takes an item with `get()` and must call `done()` for it. `item()` and
    `async for` call `done()` themselves. There may be any number of workers. Items can
    be added after a delay, and retried with a backoff.

    Guarantees:
        Items are handed out in the order in which they were first added.
        An item that is queued is not queued twice.
        An item is not handed out again before its `done()`. If it was added meanwhile,
        `done()` queues it once more, at the end.
        A worker that is cancelled while it waits takes no item.
        A delayed item waits for its earliest deadline: a later one changes nothing.
        Items that are due together are added in the order of their deadlines, then of
        the calls.

    Not guaranteed:
        Any order between waiting workers.
        That adding an item without a delay ends its delay. The item is added again when
        its delay ends, as in client-go.
        That `done()` forgets the failures of an item. Call `forget()` when it succeeded
        or is given up. Otherwise its next failure waits as long as if there had been no
        success.

    Lifetime:
        Owns no task, and one timer while items are delayed. It belongs to the event
        loop in which it is first used. Every method but `add_threadsafe()` raises
        `WrongLoop` in another thread. Another loop in the same thread is noticed when
        the queue waits, or when it stops being empty. `len()`, `shutting_down` and
        `repr()` may be read anywhere.

    Args:
        name: Name in metrics and in `repr()`.
        rate_limiter: Limiter that computes the delays of retries, for this queue only.
            By default `default_controller_rate_limiter()`.
        metrics: Sink of the metrics of client-go's work queues, `workqueue_depth` and
            the others; see `WorkQueueMetrics`. A failing sink is logged once.

    Raises:
        OptionsError: If the rate limiter lacks a method.

    Example:
        >>> async def work_on_one(queue: WorkQueue[str]) -> None:
        ...     async with queue.item() as key:
        ...         try:
        ...             await reconcile(key)
        ...         except OSError:
        ...             queue.add_rate_limited(key)
        ...         else:
        ...             queue.forget(key)
    """

    def __init__(
        self,
        name: str = "",
        *,
        rate_limiter: RateLimiter[T] | None = None,
        metrics: MetricsSink = NULL_SINK,
    ) -> None:
        self.name = name
        self._limiter = _checked_limiter(rate_limiter)
        self._phase = _OPEN

        # Invariant: item in _queued  <=>  _states[item] is _QUEUED. No duplicates.
        self._queued, self._depths = self._make_queued()
        self._states: dict[T, int] = {}

        # Plain methods notify it: the turn of the loop is its lock.
        self._filled = asyncio.Condition(LoopLock())
        # Number of workers that wait in `get()`, notified or not.
        self._suspended = 0
        # Upper bound of the number of those that are not notified: cancelled ones count
        # until they run.
        self._waiting = 0
        self._drains: set[asyncio.Future[None]] = set()

        # Added items that will not be handed out. Used once the queue is closed.
        self._left: set[T] = set()
        self._granted: set[T] = set()
        self._delayed = DelayedItems[T]()
        self._cuts_delays = True

        # Getting the running loop costs as much as the rest of `add()`, getting the
        # thread half of that. Checking whether this thread holds a lock is nearly free.
        # So the loop's thread holds `_loop_thread` while the queue is bound and open.
        # Methods call `_check_loop()` if it is not held, or if they are slow anyway. No
        # thread ever waits for it.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = owned_lock()

        # Calls of `add()` from other threads.
        self._inbox: deque[tuple[Any, ...]] = deque()
        # Invariant: while this is true, the loop is going to look into the inbox.
        self._inbox_scheduled = False

        self._metrics: WorkQueueMetrics[T] | None = None
        self._on_added: Callable[[T], None] | None = None
        self._on_taken: Callable[[T], None] | None = None
        self._on_done: Callable[[T], None] | None = None
        self.set_metrics(metrics)

    def __len__(self) -> int:
        """Return the number of queued items, without those in work or delayed."""
        return len(self._queued)

    def __repr__(self) -> str:
        name = f" {self.name}" if self.name else ""
        working = len(self._states) - len(self._queued)
        return (
            f"<{type(self).__name__}{name} {self._phase.value} "
            f"queued={len(self._queued)} working={working} delayed={len(self._delayed)}>"
        )

    @property
    def shutting_down(self) -> bool:
        """True after `shut_down()` or `shut_down_with_drain()`."""
        return self._phase is not _OPEN

    # ------------------------------------------------------------ items

    def add(self, item: T) -> None:
        """Queue an item, unless it is queued.

        An item in work is queued again by its `done()`. Once the queue is shutting down
        this does nothing (`shut_down_with_drain()` has one exception).

        Raises:
            WrongLoop: If called from another thread: use `add_threadsafe()`.
        """
        if not self._loop_thread._is_owned() and not self._admits(item):  # noqa: SLF001
            return

        states = self._states
        if item not in states:
            queued = self._queued
            if self._waiting:
                self._waiting -= 1
                self._filled.notify()
            elif not queued:
                self._check_loop()

            states[item] = _QUEUED
            queued.append(item)
        elif states[item] == _WORKING:
            states[item] = _AGAIN
        else:
            return

        on_added = self._on_added
        if on_added is not None:
            on_added(item)

    def add_threadsafe(self, item: T) -> None:
        """Queue an item, from any thread.

        The queue's loop adds it in one of its next turns, a thousand items in each. If
        the queue has not been used in a loop yet, its first use there adds it. Items of
        one thread keep their order. A shut-down that follows finds them added.

        Raises:
            WrongLoop: If the loop of this queue was closed, and the queue was not shut
                down before.
        """
        self._add_from_thread(item)

    def add_after(self, item: T, delay: float | timedelta) -> None:
        """Add an item when `delay` has passed, or at once if that is not above 0.

        If it is delayed already, the earlier time counts. Does nothing once the queue
        is shut down. While it drains, the delay is cut and this is `add()`, unless the
        drain returns delayed items.

        Args:
            item: Item to add.
            delay: Seconds, or a `timedelta`.

        Raises:
            OptionsError: If the delay is not finite.
            WrongLoop: If called from another loop or thread, or outside of any loop.
        """
        if self._delay(item, delay):
            self.add(item)

    def add_rate_limited(self, item: T) -> None:
        """Add an item after the delay that the rate limiter returns.

        The limiter counts the attempt even if the queue is shutting down.

        Raises:
            WrongLoop: If called from another loop or thread, or outside of any loop.
        """
        self.add_after(item, self._limited(item))

    def forget(self, item: T) -> None:
        """Forget the failures of an item, so that its next delay is short.

        This does not end the work on it: call `done()`, too.

        Raises:
            WrongLoop: If called from another loop or thread.
        """
        self._check_loop()
        self._limiter.forget(item)

    def num_requeues(self, item: T) -> int:
        """Return how often an item was added rate-limited since `forget()`.

        Raises:
            WrongLoop: If called from another loop or thread.
        """
        self._check_loop()
        return self._limiter.num_requeues(item)

    async def get(self) -> T:
        """Wait for the next item and take it. `done()` must follow.

        If an item is queued this does not suspend, not even for one turn of the loop.

        Raises:
            QueueShutDown: If the queue is shutting down and empty.
            WrongLoop: If called from another loop.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        if not self._loop_thread._is_owned():  # noqa: SLF001
            self._check_loop()

        queued = self._queued
        while not queued:
            if self._phase is not _OPEN:
                raise QueueShutDown(f"{self!r} is shut down and empty")

            self._check_loop()
            self._waiting += 1
            self._suspended += 1
            try:
                await self._filled.wait()
            except BaseException:
                # It may have been notified in the same turn: the item is for another
                # worker.
                if queued:
                    self._filled.notify()

                raise
            finally:
                self._suspended -= 1
                self._waiting = min(self._waiting, self._suspended)

        # `get_nowait()` written out: the call would be a tenth of the whole.
        item = queued.popleft()
        self._states[item] = _WORKING
        on_taken = self._on_taken
        if on_taken is not None:
            on_taken(item)

        return item

    def get_nowait(self) -> T:
        """Take the next item. `done()` must follow.

        Raises:
            asyncio.QueueEmpty: If the queue is empty.
            QueueShutDown: If the queue is shutting down and empty.
            WrongLoop: If called from another loop.
        """
        if not self._loop_thread._is_owned():  # noqa: SLF001
            self._check_loop()

        if not self._queued:
            if self._phase is _OPEN:
                raise asyncio.QueueEmpty

            raise QueueShutDown(f"{self!r} is shut down and empty")

        item = self._queued.popleft()
        self._states[item] = _WORKING
        on_taken = self._on_taken
        if on_taken is not None:
            on_taken(item)

        return item

    def done(self, item: T) -> None:
        """End the work on an item, whether it succeeded or failed.

        If it was added meanwhile, it is queued again. Does nothing for an item that is
        not in work.

        Raises:
            WrongLoop: If called from another loop.
        """
        in_loop = self._loop_thread._is_owned()  # noqa: SLF001
        if not in_loop:
            self._check_loop()

        state = self._states.pop(item, None)
        if state == _WORKING:
            # A drain only waits while the queue is closed.
            if not in_loop and not self._states:
                self._end_drains()
        elif state is None or not self._put_back(item, state):
            return

        on_done = self._on_done
        if on_done is not None:
            on_done(item)

    def item(self) -> AbstractAsyncContextManager[T]:
        """Take the next item for one `async with` block, and call `done()` after it.

        `done()` is called however the block ends. To get the item again, add it inside
        the block (`add`, `add_after` or `add_rate_limited`).

        Raises:
            QueueShutDown: If the queue is shutting down and empty.

        Cancellation:
            Safe while it waits: nothing is lost.
        """
        return self._item()

    @asynccontextmanager
    async def _item(self) -> AsyncIterator[T]:
        item = await self.get()
        try:
            yield item
        finally:
            self.done(item)

    async def __aiter__(self) -> AsyncGenerator[T, None]:
        """Yield items until the queue is shut down and empty.

        `done()` is called for an item when the next one is requested. If the loop is
        left early (`break`, `return`, an exception), `done()` is called when the event
        loop closes the generator. `contextlib.aclosing(aiter(queue))` closes it at
        once.
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
        """Accept no more items. Queued ones are still handed out. Idempotent.

        An item that was added again while in work is still queued by its `done()`.
        Delayed items are dropped. Waiting workers get `QueueShutDown` once the queue is
        empty. A waiting `shut_down_with_drain()` returns at once.

        Raises:
            WrongLoop: If called from another loop.
        """
        self._check_loop()
        self._add_from_inbox()
        self._leave_delayed()
        self._close(_Phase.SHUT)
        self._end_drains()

    async def shut_down_with_drain(
        self,
        timeout: float | timedelta | None = None,
        *,
        delayed: Literal["run", "return"] = "run",
    ) -> frozenset[T]:
        """Accept no new items, and wait until all known ones are done.

        Workers must go on calling `get()` and `done()`: they get queued items, and
        items that were added again while in work. During the drain an item in work may
        be added again once, so that a failure gets one more attempt. After that it
        counts as not done. A worker that finds the queue empty gets `QueueShutDown`,
        even while others work. So a worker that adds an item again must be there to
        take it.

        (client-go's drain does not wait for queued items that no worker has taken, and
        loses delayed ones.)

        It blocks the event loop for about 0.7 us for each delayed item, and after a
        timeout for 0.2 us for each queued one: 0.1 s for 150,000 delayed items.

        Args:
            timeout: Maximum seconds to wait, or a `timedelta`. None for no limit.
            delayed: Treatment of delayed items, and of items in work that are added
                with a delay meanwhile. `"run"` hands them out at once, `"return"`
                counts them as not done.

        Returns:
            Items that are not done: in work, never handed out, or added again too late.
            They are not handed out afterwards.

        Raises:
            OptionsError: If the timeout is not finite, or `delayed` is neither value.
            WrongLoop: If called from another loop.

        Cancellation:
            Safe: the queue continues to drain, call again to wait for it.
        """
        limit = timeout_of(timeout)
        if delayed not in {"run", "return"}:
            raise OptionsError(f"delayed must be 'run' or 'return', not {delayed!r}")

        self._begin_drain(cut_delays=delayed == "run")
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

    def set_metrics(self, sink: MetricsSink) -> None:
        """Set the sink of metrics, unless the queue has one."""
        if self._metrics is not None or not sink.enabled:
            return

        metrics = self._metrics = WorkQueueMetrics(self.name, sink, self._depths)
        for item, state in self._states.items():
            metrics.adopt(item, queued=state != _WORKING, working=state != _QUEUED)

        if self._loop is not None:
            metrics.start_clock(clock_of(self._loop))

        self._on_added, self._on_taken, self._on_done = metrics.hooks()

    def reopen(self) -> frozenset[T]:
        """Accept items again, after the queue was shut down. It is empty then.

        Queued and delayed items are dropped. Items in work stay in work until their
        `done()`. The rate limiter keeps its counts: call `forget()` for dropped items.

        Returns:
            Items that were not done: dropped, or in work.

        Raises:
            WrongLoop: If called from another loop.
        """
        self._check_loop()
        self._add_from_inbox()
        self._leave_delayed()
        dropped = self._give_up()
        self._left.clear()
        self._granted.clear()
        self._cuts_delays = True
        self._phase = _OPEN
        if self._loop is not None:
            self._loop_thread.acquire(blocking=False)

        if self._metrics is not None:
            self._metrics.resume()

        return dropped

    def forget_metrics(self) -> None:
        """Have the metrics sink drop the series of this queue, and stop measuring.

        For a queue that is no longer used. `reopen()` measures again. Only a
        `ForgettingSink` drops series.
        """
        if self._metrics is not None:
            self._metrics.forget()

    def _begin_drain(self, *, cut_delays: bool) -> None:
        self._check_loop()
        self._add_from_inbox()
        self._cuts_delays = cut_delays
        if cut_delays:
            for item in self._delayed.take_all():
                self._add_due(item)
        else:
            self._leave_delayed()

        if self._phase is _OPEN:
            self._close(_Phase.DRAINING)

    def _close(self, phase: _Phase) -> None:
        self._phase = phase
        if self._loop_thread._is_owned():  # noqa: SLF001
            # From now on every call checks the loop and the phase.
            self._loop_thread.release()

        self._filled.notify_all()

    def _end_drains(self) -> None:
        for ended in self._drains:
            if not ended.done():
                ended.set_result(None)

    def _give_up(self) -> frozenset[T]:
        """Shut the queue down. Queued items are not handed out any more."""
        self._close(_Phase.SHUT)
        dropped = [*self._queued]
        for item in dropped:
            del self._states[item]

        self._queued.clear()
        for item, state in self._states.items():
            if state == _AGAIN:
                self._states[item] = _WORKING
                dropped.append(item)

        if not self._states:
            self._end_drains()

        if self._metrics is not None:
            self._metrics.changed()

        self._left.update(dropped)
        return frozenset(self._left | self._states.keys())

    def _admits(self, item: T) -> bool:
        self._check_loop()
        if self._phase is _OPEN:
            return True

        again = self._phase is _Phase.DRAINING and item not in self._granted
        if again and self._states.get(item) == _WORKING:
            self._granted.add(item)
            return True

        self._refuse(item)
        return False

    def _refuse(self, item: T) -> None:
        """Record an item in work that was added again but will not be handed out."""
        if self._states.get(item) == _WORKING:
            self._left.add(item)

    # ------------------------------------------------------------ delays

    @property
    def delayed(self) -> int:
        """Number of items that are to be added later."""
        return len(self._delayed)

    def seconds_until(self, item: T) -> float | None:
        """Return the seconds until a delayed item is added; None without a delay."""
        due = self._delayed.deadline(item)
        return None if due is None else max(0.0, due - self._running_loop().time())

    def next_delayed(self, limit: int) -> list[tuple[T, float]]:
        """Return the delayed items that are added next, with the seconds until then.

        The call takes time for these items, not for all that are delayed.

        Args:
            limit: Maximum number of items.
        """
        if not self._delayed:
            return []

        now = self._running_loop().time()
        soonest = self._delayed.soonest(limit)
        return [(item, max(0.0, due - now)) for item, due in soonest.items()]

    def cancel_delay(self, item: T) -> bool:
        """Drop the delay of an item, so that it is not added later.

        The item stays queued or in work, if it is. The rate limiter keeps its count:
        see `forget()`.

        Returns:
            True if the item was delayed.

        Raises:
            WrongLoop: If called from another loop or thread.
        """
        self._check_loop()
        return self._delayed.discard(item)

    def _limited(self, item: T) -> float:
        """Return the delay of the rate limiter."""
        self._running_loop()  # before the limiter counts something
        return self._limiter.when(item)

    def _delay(self, item: T, delay: float | timedelta) -> bool:
        """Delay an item. Return True if it is to be added now instead."""
        seconds = seconds_of(delay)
        loop = self._running_loop()
        if self.shutting_down:
            if seconds <= 0 or self._cuts_delays:
                return True

            self._refuse(item)
            return False

        if self._metrics is not None:
            self._metrics.retries += 1
            self._metrics.changed()

        if seconds <= 0:
            return True

        self._delayed.add(item, loop.time() + seconds, loop, self._add_due)
        return False

    def _leave_delayed(self) -> None:
        """Drop all delayed items. A drain returns them."""
        self._left.update(self._delayed.take_all())

    # ------------------------------------------------------------ for PriorityQueue

    def _make_queued(self) -> tuple[QueuedItems[T], Callable[[], Mapping[str, int]]]:
        """Return a container for queued items, and a function of depths by priority."""
        queued: deque[T] = deque()
        return queued, lambda: {"": len(queued)}

    def _start_clock(self, clock: Callable[[], float]) -> None:
        """Use this clock from now on. Called once, when the queue gets its loop."""
        if self._metrics is not None:
            self._metrics.start_clock(clock)
            self._on_added, self._on_taken, self._on_done = self._metrics.hooks()

    def _is_to_be_queued(self, item: T) -> bool:
        """Return True if an item is queued, or will be by its `done()`."""
        return self._states.get(item, _WORKING) != _WORKING

    def _add_due(self, item: T) -> None:
        """Add an item whose delay is over."""
        self.add(item)

    def _put_back(self, item: T, state: int) -> bool:
        """Restore a state that `done()` removed. Return True if the item was in work."""
        self._states[item] = _QUEUED
        if state != _AGAIN:
            return False

        self._queued.append(item)
        if self._waiting:
            self._waiting -= 1
            self._filled.notify()

        return True

    # ------------------------------------------------------------ loop and threads

    def _add_from_thread(self, item: T, *more: object) -> None:
        """Have the loop call `add()` with these arguments."""
        hash(item)  # an unhashable item is the caller's error, not the loop's

        # In this order: a call that binds the loop looks into the inbox afterwards.
        self._inbox.append((item, *more))
        loop = self._loop
        if loop is None or (self._inbox_scheduled and not loop.is_closed()):
            return

        try:
            self._schedule_inbox(loop)
        except RuntimeError as exc:
            if not self.shutting_down:
                raise WrongLoop(f"the event loop of {self!r} has been closed") from exc

    def _schedule_inbox(self, loop: asyncio.AbstractEventLoop) -> None:
        # First: the loop may make the call before this one returns.
        self._inbox_scheduled = True
        loop.call_soon_threadsafe(self._add_some_from_inbox, loop)

    def _add_some_from_inbox(self, loop: asyncio.AbstractEventLoop) -> None:
        """Add items from other threads, in several turns if there are many."""
        # First: items that come from now on may be missed here.
        self._inbox_scheduled = False
        try:
            self._add_from_inbox(ADDED_PER_TURN)
        finally:
            if self._inbox:
                self._schedule_inbox(loop)

    def _add_from_inbox(self, limit: float = inf) -> None:
        while self._inbox and limit > 0:
            limit -= 1
            self.add(*self._inbox.popleft())

    def _check_loop(self) -> asyncio.AbstractEventLoop | None:
        """Bind to the running loop if there is none yet. Return the queue's loop.

        Returns:
            Loop, or None outside of any loop for a queue that is filled beforehand.

        Raises:
            WrongLoop: If the running loop is not the queue's.
        """
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None

        if self._loop is running:
            return running

        if self._loop is not None or running is None:
            raise WrongLoop(f"{self!r} belongs to another event loop or thread")

        self._loop = running
        if not self.shutting_down:
            self._loop_thread.acquire(blocking=False)

        self._start_clock(clock_of(running))
        self._add_some_from_inbox(running)
        return running

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        loop = self._check_loop()
        if loop is None:
            raise WrongLoop(f"{self!r} needs a running event loop for this")

        return loop


DelayingQueue = WorkQueue
"""client-go's name for queues with delays. Every `WorkQueue` has them."""

RateLimitingQueue = WorkQueue
"""client-go's name for queues with retries. Every `WorkQueue` has them."""


def _checked_limiter(given: RateLimiter[T] | None) -> RateLimiter[T]:
    if given is None:
        return default_controller_rate_limiter()

    for method in ("when", "forget", "num_requeues"):
        if not callable(getattr(given, method, None)):
            raise OptionsError(f"rate_limiter={given!r} has no method {method}()")

    return given


def clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Return the clock of a loop, at two thirds of the cost where that is possible."""
    plain = getattr(loop.time, "__func__", None) is asyncio.BaseEventLoop.time
    return time.monotonic if plain else loop.time
