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
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from aioinformer.errors import OptionsError, QueueShutDown
from aioinformer.metrics import NULL_SINK, MetricsSink
from aioinformer.model.times import timeout_of
from aioinformer.workqueue.measures import Meter
from aioinformer.workqueue.taking import Taking
from aioinformer.workqueue.waiting import Waiters

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping
    from datetime import timedelta

    from aioinformer.workqueue.lines import Line

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


class WorkQueue(Taking[T]):
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
        metrics: Takes the metrics of client-go's work queues, `workqueue_depth` and the
            others; see `Meter`. One that fails is complained of once, in the log.
    """

    def __init__(self, name: str = "", *, metrics: MetricsSink = NULL_SINK) -> None:
        super().__init__()
        self.name = name
        self._phase = _OPEN

        # Invariant: item in _line  <=>  _states[item] is _QUEUED. No duplicates.
        self._line, depths = self._new_line()
        self._states: dict[T, int] = {}

        # Invariant: an open queue with items in it keeps nobody waiting, except those
        # whose future is done already.
        self._waiters = Waiters()
        self._drains: set[asyncio.Future[None]] = set()

        # Wanted, but never going to be handed out: only once the queue is closed.
        self._left: set[T] = set()
        self._granted: set[T] = set()
        self._cuts_delays = True

        self._meter: Meter[T] | None = None
        self._added: Callable[[T], None] | None = None
        self._taken: Callable[[T], None] | None = None
        self._finished: Callable[[T], None] | None = None
        if metrics.enabled:
            self._meter = Meter(name, metrics, depths)
            self._added, self._taken, self._finished = self._meter.hooks()

    def _new_line(self) -> tuple[Line[T], Callable[[], Mapping[str, int]]]:
        """Make the line, and what says its depth by the label `priority`."""
        line: deque[T] = deque()
        return line, lambda: {"": len(line)}

    def _bound(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._meter is not None:
            self._meter.start_clock(loop)
            self._added, self._taken, self._finished = self._meter.hooks()

    def __len__(self) -> int:
        """How many items are queued; those in work or delayed do not count."""
        return len(self._line)

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
        if not self._held._is_owned() and not self._admits(item):  # noqa: SLF001
            return

        states = self._states
        if item not in states:
            line = self._line
            if self._waiters:
                self._waiters.wake_one()
            elif not line:
                self._check_loop()

            states[item] = _QUEUED
            line.append(item)
        elif states[item] == _WORKING:
            states[item] = _AGAIN
        else:
            return

        added = self._added
        if added is not None:
            added(item)

    async def get(self) -> T:
        """Wait for the next item and take it; `done()` must follow.

        Does not wait, not even for one turn of the loop, if an item is queued.

        Raises:
            QueueShutDown: If the queue is shutting down and nothing is queued.
            WrongLoop: If called from another loop.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        if not self._held._is_owned():  # noqa: SLF001 - see OwnedByLoop
            self._check_loop()

        line = self._line
        while not line:
            if self._phase is not _OPEN:
                raise QueueShutDown(f"{self!r} is shut down and empty")

            await self._waiters.wait(self._running_loop(), line)

        # `get_nowait()`, written out: the call would be a tenth of the whole.
        item = line.popleft()
        self._states[item] = _WORKING
        taken = self._taken
        if taken is not None:
            taken(item)

        return item

    def get_nowait(self) -> T:
        """Take the next item; `done()` must follow.

        Raises:
            asyncio.QueueEmpty: If nothing is queued.
            QueueShutDown: If nothing is queued and the queue is shutting down.
            WrongLoop: If called from another loop.
        """
        if not self._held._is_owned():  # noqa: SLF001 - see OwnedByLoop
            self._check_loop()

        if not self._line:
            if self._phase is _OPEN:
                raise asyncio.QueueEmpty

            raise QueueShutDown(f"{self!r} is shut down and empty")

        item = self._line.popleft()
        self._states[item] = _WORKING
        taken = self._taken
        if taken is not None:
            taken(item)

        return item

    def done(self, item: T) -> None:
        """Say that the work on `item` has ended, well or badly.

        If it was added meanwhile it is queued again. Does nothing for an item that is
        not in work.

        Raises:
            WrongLoop: If called from another loop.
        """
        usual = self._held._is_owned()  # noqa: SLF001 - see OwnedByLoop
        if not usual:
            self._check_loop()

        state = self._states.pop(item, None)
        if state == _WORKING:
            # Nobody waits for the end of a queue that is open.
            if not usual and not self._states:
                self._end_drains()
        elif state is None or not self._put_back(item, state):
            return

        finished = self._finished
        if finished is not None:
            finished(item)

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
        self._leave_delayed()
        self._close(_Phase.SHUT)
        self._end_drains()

    async def shut_down_with_drain(
        self,
        timeout: float | timedelta | None = None,
        *,
        delayed: Literal["run", "return"] = "run",
    ) -> frozenset[T]:
        """Take no new items, and wait until all that are known have been worked on.

        Workers must go on calling `get()` and `done()`: they are handed what is
        queued, and what was added again while in work. During the drain an item in work
        may be added again once, so that a failure gets one more attempt; after that it
        counts as not done. A worker that finds nothing queued gets `QueueShutDown` even
        while others work, so whoever puts an item back must be there to take it.

        (client-go's drain does not wait for what is queued and nobody has taken yet, and
        loses what is delayed.)

        It holds the event loop for about 0.7 us for each item that is delayed when it
        is called, and 0.2 us for each that is queued when the time is over: 0.1 s for
        150,000 delayed ones.

        Args:
            timeout: How long to wait, in seconds or as a `timedelta`; None for ever.
            delayed: What becomes of items that wait for their time, and of those in work
                that are added with a delay meanwhile: `"run"` hands them out at once,
                without the delay; `"return"` counts them as not done.

        Returns:
            The items not done: still in work, never handed out, or asked for again in
            vain. Empty if everything was done. What it returns is not handed out
            afterwards.

        Raises:
            OptionsError: If the timeout is not finite, or `delayed` is neither of them.
            WrongLoop: If called from another loop.

        Cancellation:
            Safe: the queue goes on draining, call again to wait for it.
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

    def _begin_drain(self, *, cut_delays: bool) -> None:
        self._check_loop()
        self._take_inbox()
        self._cuts_delays = cut_delays
        if cut_delays:
            for item in self._take_delayed():
                self._add_due(item)
        else:
            self._leave_delayed()

        if self._phase is _OPEN:
            self._close(_Phase.DRAINING)

    def _close(self, phase: _Phase) -> None:
        self._phase = phase
        self._look_closer()
        self._waiters.wake_all()

    def _give_up(self) -> frozenset[T]:
        """Close for good; what is queued will not be handed out any more."""
        self._close(_Phase.SHUT)
        dropped = [*self._line]
        for item in dropped:
            del self._states[item]

        self._line.clear()
        for item, state in self._states.items():
            if state == _AGAIN:
                self._states[item] = _WORKING
                dropped.append(item)

        if not self._states:
            self._end_drains()

        if self._meter is not None:
            self._meter.changed()

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
        """Remember what is asked for in vain while it is in work."""
        if self._states.get(item) == _WORKING:
            self._left.add(item)

    def forget_metrics(self) -> None:
        """Have the metrics sink drop the series of this queue; it measures no more.

        For a queue that is not used any more. Only a `ForgettingSink` drops series.
        """
        if self._meter is not None:
            self._meter.forget()

    # ------------------------------------------------------------ for subclasses

    def _wants(self, item: T) -> bool:
        """True if it is queued, or will be when it is done."""
        return self._states.get(item, _WORKING) != _WORKING

    def _take_delayed(self) -> Iterable[T]:
        """Take out everything that waits for its time, the earliest first."""
        return ()

    def _leave_delayed(self) -> None:
        """Drop everything that waits for its time; a drain returns it."""
        self._left.update(self._take_delayed())

    def _add_due(self, item: T) -> None:
        """Add what has waited for its time."""
        self.add(item)

    # ------------------------------------------------------------ helpers

    def _put_back(self, item: T, state: int) -> bool:
        """Undo what `done()` took out of `_states`; false if it was not in work."""
        self._states[item] = _QUEUED
        if state != _AGAIN:
            return False

        self._line.append(item)
        self._waiters.wake_one()
        return True

    def _end_drains(self) -> None:
        for ended in self._drains:
            if not ended.done():
                ended.set_result(None)

    # ------------------------------------------------------------ telling

    def _describe(self) -> list[str]:
        working = len(self._states) - len(self._line)
        parts = [self.name] if self.name else []
        parts += [self._phase.value, f"queued={len(self._line)}", f"working={working}"]
        return parts
