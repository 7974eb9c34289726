"""G10, for any sequence of calls: the queue against a model of it.

One key is never worked on twice at once; a key added while in work is worked on again;
a drain loses nothing that it does not return.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

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

from aioinformer.errors import QueueShutDown
from aioinformer.workqueue import DelayingQueue

if TYPE_CHECKING:
    from collections.abc import Callable

ITEMS = st.sampled_from("abcde")
DELAYS = st.integers(min_value=-1, max_value=6)


class Model:
    """What the queue should do, said as plainly as possible and without speed."""

    def __init__(self) -> None:
        self.queued: list[str] = []
        self.working: set[str] = set()
        self.again: set[str] = set()
        self.delayed: dict[str, tuple[float, int]] = {}
        self.phase = "open"
        self.granted: set[str] = set()
        self.refused: set[str] = set()
        self.now = 0.0
        self.asked = 0

    def add(self, item: str) -> None:
        if self.phase == "open":
            if item in self.working:
                self.again.add(item)
            elif item not in self.queued:
                self.queued.append(item)
        elif item in self.working and item not in self.again:
            if self.phase == "draining" and item not in self.granted:
                self.granted.add(item)
                self.again.add(item)
            else:
                self.refused.add(item)

    def add_after(self, item: str, delay: float) -> None:
        if delay <= 0 or self.phase != "open":
            self.add(item)
            return

        self.asked += 1
        deadline = (self.now + delay, self.asked)
        known = self.delayed.get(item)
        if known is None or deadline[0] < known[0]:
            self.delayed[item] = deadline

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for item in self.take_delayed(self.now):
            self.add(item)

    def take_delayed(self, until: float) -> list[str]:
        due = [item for item, (when, _) in self.delayed.items() if when <= until]
        due.sort(key=self.delayed.__getitem__)
        for item in due:
            del self.delayed[item]

        return due

    def done(self, item: str) -> None:
        self.working.discard(item)
        if item in self.again:
            self.again.discard(item)
            self.queued.append(item)

    def shut_down(self) -> None:
        self.refused.update(self.take_delayed(float("inf")))
        self.phase = "shut"

    def drain(self) -> None:
        for item in self.take_delayed(float("inf")):
            self.add(item)

        if self.phase == "open":
            self.phase = "draining"

    def give_up(self) -> frozenset[str]:
        left = self.refused | set(self.queued) | self.working
        self.refused |= set(self.queued) | self.again
        self.queued.clear()
        self.again.clear()
        self.phase = "shut"
        return frozenset(left)


class QueueMachine(RuleBasedStateMachine):
    """Drives a queue and its model through the same calls, in one loop.

    The loop runs only inside of the rules, so its turns are part of the sequence.
    """

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.loop = asyncio.new_event_loop()
        self.clock = 0.0
        self.loop.time = lambda: self.clock  # type: ignore[method-assign]
        self.queue = DelayingQueue[str]()
        self.getters: list[asyncio.Task[str]] = []
        self.drains: list[asyncio.Task[frozenset[str]]] = []

    def teardown(self) -> None:
        for task in (*self.getters, *self.drains):
            task.cancel()

        self.in_loop(lambda: None)
        self.loop.close()

    def in_loop(self, call: Callable[[], object]) -> None:
        """Make a call inside of the loop, then let every task run until it waits."""

        async def run() -> None:
            call()
            for _ in range(6):
                await asyncio.sleep(0)

        self.loop.run_until_complete(run())

    def collect(self) -> None:
        """Compare what ended in the last turns with what the model says."""
        for getter in [task for task in self.getters if task.done()]:
            self.getters.remove(getter)
            if getter.cancelled():
                continue

            if isinstance(getter.exception(), QueueShutDown):
                assert self.model.phase != "open"
                assert not self.model.queued
            else:
                self.took(getter.result())

        for drain in [task for task in self.drains if task.done()]:
            self.drains.remove(drain)
            assert drain.result() == self.model.give_up()

    def took(self, item: str) -> None:
        assert item not in self.model.working  # never in two hands
        assert item == self.model.queued.pop(0)  # in order, none left out
        self.model.working.add(item)

    @initialize()
    def bind(self) -> None:
        self.in_loop(lambda: self.queue.done("nothing"))

    @rule(item=ITEMS)
    def add(self, item: str) -> None:
        self.model.add(item)
        self.in_loop(lambda: self.queue.add(item))
        self.collect()

    @rule(item=ITEMS)
    def add_threadsafe(self, item: str) -> None:
        self.model.add(item)
        self.queue.add_threadsafe(item)
        self.in_loop(lambda: None)
        self.collect()

    @rule(item=ITEMS, delay=DELAYS)
    def add_after(self, item: str, delay: int) -> None:
        self.model.add_after(item, delay)
        self.in_loop(lambda: self.queue.add_after(item, delay))
        self.collect()

    @rule(seconds=st.integers(min_value=1, max_value=4))
    def advance(self, seconds: int) -> None:
        self.clock += seconds
        self.model.advance(seconds)
        self.in_loop(lambda: None)
        self.collect()

    @rule(item=ITEMS)
    def done(self, item: str) -> None:
        self.model.done(item)
        self.in_loop(lambda: self.queue.done(item))
        self.collect()

    @rule()
    def get_nowait(self) -> None:
        def call() -> None:
            if self.model.queued:
                self.took(self.queue.get_nowait())
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

        self.model.add(item)
        self.in_loop(call)
        self.collect()

    @precondition(lambda self: len(self.drains) < 1)
    @rule()
    def drain(self) -> None:
        drain = self.queue.shut_down_with_drain
        self.model.drain()
        self.in_loop(lambda: self.drains.append(self.loop.create_task(drain())))
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

    @invariant()
    def queue_and_model_agree(self) -> None:
        working = len(self.model.working)
        assert len(self.queue) == len(self.model.queued)
        assert self.queue.shutting_down == (self.model.phase != "open")
        assert repr(self.queue) == (
            f"<DelayingQueue {self.model.phase} queued={len(self.model.queued)} "
            f"working={working} delayed={len(self.model.delayed)}>"
        )

    @invariant()
    def nobody_waits_for_what_is_there(self) -> None:
        assert not (self.getters and self.model.queued)

    @invariant()
    def a_drain_ends_when_all_is_done(self) -> None:
        assert not self.drains or self.model.queued or self.model.working

    @invariant()
    def there_is_at_most_one_timer(self) -> None:
        scheduled = self.loop._scheduled  # type: ignore[attr-defined]
        live = [timer for timer in scheduled if not timer.cancelled()]
        assert len(live) == (1 if self.model.delayed else 0)


TestQueueMachine = QueueMachine.TestCase


@given(
    plan=st.lists(st.tuples(ITEMS, st.integers(min_value=0, max_value=5)), max_size=30),
    workers=st.integers(min_value=1, max_value=4),
    timeout=st.none() | st.integers(min_value=0, max_value=10),
)
async def test_g10_a_drain_loses_nothing_that_it_does_not_return(
    plan: list[tuple[str, int]], workers: int, timeout: int | None
) -> None:
    queue = DelayingQueue[str]()
    in_work: set[str] = set()
    wanted: dict[str, int] = {}
    finished: dict[str, int] = {}

    async def work(seconds: int) -> None:
        async for item in queue:
            assert item not in in_work
            in_work.add(item)
            seen = wanted[item]
            await asyncio.sleep(seconds)
            finished[item] = seen
            in_work.discard(item)

    async with asyncio.TaskGroup() as group:
        for seconds in range(workers):
            group.create_task(work(seconds))

        for number, (item, delay) in enumerate(plan):
            wanted[item] = number
            queue.add_after(item, delay)
            await asyncio.sleep(delay % 2)

        left = await queue.shut_down_with_drain(timeout)
        finished_in_time = dict(finished)

    undone = {item for item in wanted if finished_in_time.get(item) != wanted[item]}
    assert undone <= left
    assert timeout is not None or not left
