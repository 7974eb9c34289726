"""G10 for any sequence of calls: the queues against a model.

One key is never processed twice at once. A key added during its processing is
processed again. A drain loses only what it returns.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import given
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from metrics_helpers import PlainSink, ReadSink

from aioinformer.errors import QueueShutDown
from aioinformer.workqueue import (
    ItemExponentialFailureRateLimiter,
    PriorityQueue,
    WorkQueue,
)
from examples import examples

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(order=True)
class Queued:
    """A queued item; the lowest comes first.

    Of equal ranks, the item queued with the lower priority comes first: it is older.
    """

    rank: float
    place: int
    requested: int
    item: str
    priority: int


class Model:
    """Model of every kind of queue.

    Args:
        ageing: Seconds for each step of priority; 0 for strict ones; None for a queue
            that knows no priorities.
    """

    def __init__(self, ageing: float | None) -> None:
        self.ageing = ageing
        self.line: list[Queued] = []
        self.working: set[str] = set()
        self.again: dict[str, int] = {}
        self.delayed: dict[str, tuple[float, int, int]] = {}
        self.failures: dict[str, int] = {}
        self.phase = "open"
        self.cuts_delays = True
        self.granted: set[str] = set()
        self.refused: set[str] = set()
        self.now = 0.0
        self.requested = 0

        # Expected values of metrics.
        self.adds = 0
        self.retries = 0
        self.taken = 0
        self.finished = 0

    @property
    def queued(self) -> set[str]:
        return {it.item for it in self.line}

    # ------------------------------------------------------------ adding

    def add(self, item: str, priority: int) -> None:
        if self.phase == "open":
            self._add_open(item, priority)
        elif item in self.working and item not in self.again:
            if self.phase == "draining" and item not in self.granted:
                self.granted.add(item)
                self.again[item] = priority
                self.adds += 1
            else:
                self.refused.add(item)

    def _add_open(self, item: str, priority: int) -> None:
        if item in self.again:
            self.again[item] = max(priority, self.again[item])
        elif item in self.working:
            self.again[item] = priority
            self.adds += 1
        elif item not in self.queued:
            self.put(item, priority)
            self.adds += 1
        else:
            self._raise(item, priority)

    def _raise(self, item: str, priority: int) -> None:
        known = next(it for it in self.line if it.item == item)
        if self.ageing is None or priority <= known.priority:
            return

        if known.rank <= self.rank_of(priority):
            known.priority = priority
        else:
            self.line.remove(known)
            self.put(item, priority)

    def rank_of(self, priority: int) -> float:
        """Return the rank of an item that is queued now."""
        if not self.ageing:
            return -priority

        return self.now - priority * self.ageing

    def put(self, item: str, priority: int) -> None:
        self.requested += 1
        place = 0 if self.ageing is None else priority
        rank = self.rank_of(place)
        self.line.append(Queued(rank, place, self.requested, item, priority))

    def add_after(self, item: str, delay: float, priority: int) -> None:
        if self.phase != "open":
            if delay <= 0 or self.cuts_delays:
                self.add(item, priority)
            elif item in self.working and item not in self.again:
                self.refused.add(item)

            return

        self.retries += 1
        if delay <= 0:
            self.add(item, priority)
            return

        self.requested += 1
        when, requested, before = self.delayed.get(item, (float("inf"), 0, priority))
        if self.now + delay < when:
            when, requested = self.now + delay, self.requested

        self.delayed[item] = (when, requested, max(before, priority))

    def add_rate_limited(self, item: str, priority: int) -> None:
        self.failures[item] = self.failures.get(item, 0) + 1
        self.add_after(item, 2 ** (self.failures[item] - 1), priority)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self._add_due(self.now)

    def _add_due(self, until: float) -> None:
        for item in self._due(until):
            self.add(item, self.delayed.pop(item)[2])

    def _due(self, until: float) -> list[str]:
        due = [item for item, (when, *_) in self.delayed.items() if when <= until]
        return sorted(due, key=self.delayed.__getitem__)

    # ------------------------------------------------------------ working

    def take(self, item: str) -> None:
        assert item not in self.working  # never processed twice at once
        first = min(self.line)
        assert item == first.item  # in order, none left out
        self.line.remove(first)
        self.working.add(item)
        self.taken += 1

    def done(self, item: str) -> None:
        if item not in self.working:
            return

        self.finished += 1
        self.working.remove(item)
        if item in self.again:
            self.put(item, self.again.pop(item))

    # ------------------------------------------------------------ shutting down

    def _leave_delayed(self) -> None:
        self.refused.update(self.delayed)
        self.delayed.clear()

    def shut_down(self) -> None:
        self._leave_delayed()
        self.phase = "shut"

    def drain(self, *, cut_delays: bool) -> None:
        self.cuts_delays = cut_delays
        if cut_delays:
            self._add_due(float("inf"))
        else:
            self._leave_delayed()

        if self.phase == "open":
            self.phase = "draining"

    def give_up(self) -> frozenset[str]:
        left = self.refused | self.queued | self.working
        self.refused |= self.queued | self.again.keys()
        self.line.clear()
        self.again.clear()
        self.phase = "shut"
        return frozenset(left)


ITEMS = st.sampled_from("abcde")
DELAYS = st.integers(min_value=-1, max_value=6)
PRIORITIES = st.integers(min_value=-2, max_value=2)


class QueueMachine(RuleBasedStateMachine):
    """A state machine that drives a queue and its model by the same calls.

    The loop runs only inside of the rules, so its turns are part of the sequence.
    """

    ageing: ClassVar[float | None] = None
    make_sink: ClassVar[type[PlainSink]] = ReadSink

    def make(self, sink: PlainSink) -> WorkQueue[str]:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(self.ageing)
        self.loop = asyncio.new_event_loop()
        self.clock = 0.0
        self.loop.time = lambda: self.clock  # type: ignore[method-assign]
        self.sink = self.make_sink()
        self.queue = self.make(self.sink)
        self.getters: list[asyncio.Task[str]] = []
        self.drains: list[asyncio.Task[frozenset[str]]] = []

    def teardown(self) -> None:
        for task in (*self.getters, *self.drains):
            task.cancel()

        self.in_loop(lambda: None)
        self.loop.close()

    def in_loop(self, call: Callable[[], object]) -> None:
        """Make a call inside the loop, then let every task run until it waits."""

        async def run() -> None:
            call()
            for _ in range(6):
                await asyncio.sleep(0)

        self.loop.run_until_complete(run())

    def collect(self) -> None:
        """Compare the calls that ended in the last turns with the model."""
        for getter in [task for task in self.getters if task.done()]:
            self.getters.remove(getter)
            if getter.cancelled():
                continue

            if isinstance(getter.exception(), QueueShutDown):
                assert self.model.phase != "open"
                assert not self.model.line
            else:
                self.model.take(getter.result())

        for drain in [task for task in self.drains if task.done()]:
            self.drains.remove(drain)
            assert drain.result() == self.model.give_up()

    def priority(self, priority: int) -> tuple[int, ...]:
        """Return the argument, if the queue has it."""
        return () if self.ageing is None else (priority,)

    @initialize()
    def bind(self) -> None:
        self.in_loop(lambda: self.queue.done("nothing"))

    # ------------------------------------------------------------ adding

    @rule(item=ITEMS, priority=PRIORITIES)
    def add(self, item: str, priority: int) -> None:
        self.model.add(item, priority)
        self.in_loop(lambda: self.queue.add(item, *self.priority(priority)))
        self.collect()

    @rule(item=ITEMS, priority=PRIORITIES)
    def add_threadsafe(self, item: str, priority: int) -> None:
        self.model.add(item, priority)
        self.queue.add_threadsafe(item, *self.priority(priority))
        self.in_loop(lambda: None)
        self.collect()

    @rule(item=ITEMS, delay=DELAYS, priority=PRIORITIES)
    def add_after(self, item: str, delay: int, priority: int) -> None:
        more = self.priority(priority)
        self.model.add_after(item, delay, priority)
        self.in_loop(lambda: self.queue.add_after(item, delay, *more))
        self.collect()

    @rule(item=ITEMS, priority=PRIORITIES)
    def add_rate_limited(self, item: str, priority: int) -> None:
        more = self.priority(priority)
        self.model.add_rate_limited(item, priority)
        self.in_loop(lambda: self.queue.add_rate_limited(item, *more))
        self.collect()

    @rule(item=ITEMS)
    def forget(self, item: str) -> None:
        self.model.failures.pop(item, None)
        self.in_loop(lambda: self.queue.forget(item))

    @rule(seconds=st.integers(min_value=1, max_value=4))
    def advance(self, seconds: int) -> None:
        self.clock += seconds
        self.model.advance(seconds)
        self.in_loop(lambda: None)
        self.collect()

    # ------------------------------------------------------------ working

    @rule(item=ITEMS)
    def done(self, item: str) -> None:
        self.model.done(item)
        self.in_loop(lambda: self.queue.done(item))
        self.collect()

    @rule()
    def get_nowait(self) -> None:
        def call() -> None:
            if self.model.line:
                self.model.take(self.queue.get_nowait())
                return

            empty = asyncio.QueueEmpty if self.model.phase == "open" else QueueShutDown
            with pytest.raises(empty):
                self.queue.get_nowait()

        self.in_loop(call)
        self.collect()

    @precondition(lambda self: len(self.getters) < 3)
    @rule()
    def get(self) -> None:
        get = self.queue.get
        self.in_loop(lambda: self.getters.append(self.loop.create_task(get())))
        self.collect()

    @precondition(lambda self: self.getters)
    @rule(item=ITEMS, data=st.data(), first=st.booleans())
    def cancel_a_get_as_an_item_arrives(
        self, item: str, data: st.DataObject, first: bool
    ) -> None:
        getter = data.draw(st.sampled_from(self.getters))

        def call() -> None:
            if first:
                getter.cancel()

            self.queue.add(item)
            getter.cancel()

        self.model.add(item, 0)
        self.in_loop(call)
        self.collect()

    # ------------------------------------------------------------ shutting down

    @precondition(lambda self: len(self.drains) < 1)
    @rule(cut_delays=st.booleans())
    def drain(self, cut_delays: bool) -> None:
        self.model.drain(cut_delays=cut_delays)
        drain = self.queue.shut_down_with_drain(
            delayed="run" if cut_delays else "return"
        )
        self.in_loop(lambda: self.drains.append(self.loop.create_task(drain)))
        self.collect()

    @precondition(lambda self: self.drains)
    @rule()
    def cancel_the_drain(self) -> None:
        drain = self.drains.pop()
        self.in_loop(drain.cancel)

    @rule()
    def shut_down(self) -> None:
        self.model.shut_down()
        self.in_loop(self.queue.shut_down)
        self.collect()

    # ------------------------------------------------------------ invariants

    @invariant()
    def queue_and_model_agree(self) -> None:
        working = len(self.model.working)
        assert len(self.queue) == len(self.model.line)
        assert self.queue.shutting_down == (self.model.phase != "open")
        assert repr(self.queue) == (
            f"<{type(self.queue).__name__} pods {self.model.phase} "
            f"queued={len(self.model.line)} working={working} "
            f"delayed={len(self.model.delayed)}>"
        )

    @invariant()
    def no_caller_waits_while_entries_are_available(self) -> None:
        assert not (self.getters and self.model.line)

    @invariant()
    def a_drain_ends_when_all_is_done(self) -> None:
        assert not self.drains or self.model.line or self.model.working

    @invariant()
    def there_is_at_most_one_timer(self) -> None:
        scheduled = self.loop._scheduled  # type: ignore[attr-defined]
        live = [timer for timer in scheduled if not timer.cancelled()]
        assert len(live) == (1 if self.model.delayed else 0)

    @invariant()
    def metrics_and_model_agree(self) -> None:
        sink, model = self.sink, self.model
        if isinstance(sink, ReadSink):
            sink.read()

        depths = Counter(it.priority for it in model.line)
        received = {
            label: depth for label, depth in sink.depths("pods").items() if depth
        }
        if self.ageing is None:
            assert received == ({"": len(model.line)} if model.line else {})
        else:
            assert received == {str(priority): n for priority, n in depths.items()}

        waits = sink.observed["workqueue_queue_duration_seconds"]
        works = sink.observed["workqueue_work_duration_seconds"]
        assert sink.counts["workqueue_adds_total", ("pods",)] == model.adds
        assert sink.counts["workqueue_retries_total", ("pods",)] == model.retries
        assert (len(waits), len(works)) == (model.taken, model.finished)
        assert all(0 <= seconds <= self.clock for seconds in (*waits, *works))


class PlainMachine(QueueMachine):
    def make(self, sink: PlainSink) -> WorkQueue[str]:
        limiter = ItemExponentialFailureRateLimiter(1, 2**60)
        return WorkQueue("pods", rate_limiter=limiter, metrics=sink)


class AgeingMachine(QueueMachine):
    ageing = 1.0

    def make(self, sink: PlainSink) -> WorkQueue[str]:
        limiter = ItemExponentialFailureRateLimiter(1, 2**60)
        return PriorityQueue(
            "pods", ageing=self.ageing, rate_limiter=limiter, metrics=sink
        )


class StrictMachine(AgeingMachine):
    ageing = 0.0
    make_sink = PlainSink


TestQueueMachine = PlainMachine.TestCase
TestPriorityMachine = AgeingMachine.TestCase
TestStrictMachine = StrictMachine.TestCase
TestQueueMachine.settings = examples(50)
TestPriorityMachine.settings = examples(50)
# Only its order differs.
TestStrictMachine.settings = examples(20)


Plan = st.lists(st.tuples(ITEMS, DELAYS, PRIORITIES), max_size=30)
Cancellations = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 8), st.integers(0, 3)), max_size=8
)


@pytest.mark.parametrize("make", [WorkQueue, PriorityQueue])
@given(
    plan=Plan,
    cancellations=Cancellations,
    timeout=st.none() | st.integers(min_value=0, max_value=10),
)
async def test_G10_drain_loses_only_what_it_returns(
    make: type[WorkQueue[str]],
    plan: list[tuple[str, int, int]],
    cancellations: list[tuple[int, int, int]],
    timeout: int | None,
) -> None:
    """Producers, and workers that are cancelled at any time and in any turn."""
    queue = make()
    loop = asyncio.get_running_loop()
    in_work: set[str] = set()
    wanted: dict[str, int] = {}
    finished: dict[str, int] = {}

    async def work_on_one(seconds: int) -> None:
        async with queue.item() as item:
            assert item not in in_work
            in_work.add(item)
            seen = wanted[item]
            try:
                await asyncio.sleep(seconds)
                finished[item] = seen
            finally:
                in_work.discard(item)
                if finished.get(item) != seen:
                    queue.add(item)

    async def work(seconds: int) -> None:
        with suppress(QueueShutDown):
            while True:
                await work_on_one(seconds)

    async def keep_working(number: int, group: asyncio.TaskGroup) -> None:
        """Replace a cancelled worker after it has requeued its item."""
        for which, moment, turns in cancellations:
            if which == number:
                worker = group.create_task(work(number))
                await asyncio.sleep(max(0.0, moment - loop.time()))
                for _ in range(turns):
                    await asyncio.sleep(0)

                worker.cancel()
                await asyncio.wait({worker})

        await work(number)

    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(keep_working(number, group))

        for number, (item, delay, priority) in enumerate(plan):
            wanted[item] = number
            if isinstance(queue, PriorityQueue):
                queue.add_after(item, delay, priority)
            else:
                queue.add_after(item, delay)

            await asyncio.sleep(max(0, delay) % 2)

        left = await queue.shut_down_with_drain(timeout)
        finished_in_time = dict(finished)

    undone = {item for item in wanted if finished_in_time.get(item) != wanted[item]}
    assert undone <= left
    assert timeout is not None or cancellations or not left
