"""Looking at items that wait, without taking them."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aioinformer.workqueue import ItemExponentialFailureRateLimiter, PriorityQueue
from aioinformer.workqueue.delayed_items import DelayedItems
from aioinformer.workqueue.priority import PrioritizedItems

NAMES = st.sampled_from("abcd")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), NAMES, st.integers(-3, 3)),
        st.tuples(st.just("take"), st.just(""), st.just(0)),
        st.tuples(st.just("later"), st.just(""), st.integers(1, 9)),
    ),
    max_size=60,
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


# The oldest item is moved, so that another one waits longest.
MOVED = [
    ("add", "a", 0),
    ("later", "", 1),
    ("add", "b", 0),
    ("later", "", 1),
    ("add", "a", 1),
]


@example(MOVED, 20.0)
@given(STEPS, st.sampled_from([0.0, 20.0]))
def test_upcoming_items_are_those_taken_next(
    steps: list[tuple[str, str, int]], ageing: float
) -> None:
    items, clock = PrioritizedItems[str](ageing), Clock()
    items.start_clock(clock)
    queued: dict[str, float] = {}
    for step, name, number in steps:
        match step:
            case "later":
                clock.now += number
            case "take" if queued:
                del queued[items.popleft()]
            case "add" if name not in queued:
                items.requested[name] = number
                items.append(name)
                queued[name] = clock.now
            case "add" if number > items.priority_of(name):
                before = dict(items.upcoming())[name]
                items.raise_to(name, number)
                # A request that keeps its place keeps its time.
                if dict(items.upcoming())[name] != before:
                    queued[name] = clock.now
            case _:
                pass

        upcoming = dict(items.upcoming())
        waits = {name: clock.now - since for name, since in queued.items()}
        if ageing:
            assert upcoming == waits
            assert items.longest_wait() == max(waits.values(), default=None)
        else:
            assert upcoming == dict.fromkeys(waits)
            assert items.longest_wait() is None

    expected = [name for name, _ in items.upcoming()]
    assert [items.popleft() for _ in queued] == expected


async def test_soonest_items_are_found_among_outdated_entries() -> None:
    items, loop = DelayedItems[int](), asyncio.get_running_loop()

    def add(item: int, deadline: float) -> None:
        items.add(item, deadline, loop, lambda _: None)

    for item in range(100):
        add(item, 1000.0 + item * 37 % 100)

    for item in range(0, 100, 3):
        add(item, 500.0 + item)

    for item in range(0, 100, 2):
        assert items.discard(item)

    add(4, 500.0)
    assert items.discard(4)
    add(4, 500.0)  # the same deadline again
    assert not items.discard(6)

    expected = sorted(
        ((items.deadline(item), item) for item in (*range(1, 100, 2), 4)), key=str
    )
    assert len(items.soonest(1000)) == len(items) == 51
    assert [(due, item) for item, due in items.soonest(1000).items()] == sorted(
        expected, key=lambda it: (it[0] or 0.0, it[1])
    )
    assert list(items.soonest(3)) == [4, 3, 9]
    assert items.soonest(0) == {}
    items.take_all()
    assert items.soonest(3) == {}


async def test_item_whose_delay_is_cancelled_is_not_added() -> None:
    limiter = ItemExponentialFailureRateLimiter(5, 5)
    queue = PriorityQueue[str]("q", rate_limiter=limiter)
    queue.add_after("a", 5, priority=3)
    queue.add_after("b", 7)
    assert dict(queue.next_delayed(10)) == pytest.approx({"a": 5, "b": 7})
    assert [item for item, _ in queue.next_delayed(1)] == ["a"]

    assert queue.cancel_delay("a")
    assert not queue.cancel_delay("a")
    await asyncio.sleep(10)
    assert await queue.get() == "b"
    assert (len(queue), queue.delayed) == (0, 0)
    queue.add_after("a", 1)
    await asyncio.sleep(2)
    assert await queue.get_with_priority() == ("a", 0), "its priority was dropped"
