"""`PrioritizedItems`: ranks, depths and costs."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from queue_helpers import CountedTime

from aioinformer.workqueue.priority import (
    DISTINCT_LABELS,
    EMPTY_PLACES_KEPT,
    OTHER_LABEL,
    PrioritizedItems,
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return CountedTime(self.now)


def ranked(ageing: float = 0.0) -> tuple[PrioritizedItems[str], Clock]:
    line, clock = PrioritizedItems[str](ageing), Clock()
    line.start_clock(clock)
    return line, clock


def put(line: PrioritizedItems[str], item: str, priority: int) -> None:
    line.requested[item] = priority
    line.append(item)


def rest_of(line: PrioritizedItems[str]) -> list[str]:
    return [line.popleft() for _ in range(len(line))]


def test_popleft_of_no_items_raises_index_error() -> None:
    line, _ = ranked()

    with pytest.raises(IndexError):
        line.popleft()


def test_only_stale_places_count_as_empty() -> None:
    line, _ = ranked()
    put(line, "a", 0)
    line.raise_to("a", 1)
    line.popleft()

    with pytest.raises(IndexError):
        line.popleft()

    assert len(line) == 0
    assert list(line) == []


def test_default_priority_is_0() -> None:
    line, _ = ranked()
    put(line, "low", -1)
    line.append("usual")

    assert line.priority_of("usual") == 0
    assert rest_of(line) == ["usual", "low"]


def test_requested_priority_is_used_once() -> None:
    line, _ = ranked()
    put(line, "a", 5)
    line.popleft()

    line.append("a")

    assert line.priority_of("a") == 0


def test_requested_priority_can_be_raised() -> None:
    line, _ = ranked()
    line.requested["a"] = 1

    line.raise_to("a", 2)

    assert [line.priority_of(item) for item in "ab"] == [2, 0]
    assert len(line) == 0
    line.append("a")
    assert line.priority_of("a") == 2
    assert not line.requested


def test_clear_removes_items_and_priorities() -> None:
    line, _ = ranked()
    put(line, "a", 1)
    put(line, "b", 1)
    line.raise_to("b", 3)
    line.requested["c"] = 2

    line.clear()

    assert line.depths() == {"0": 0}
    assert not line.requested
    line.append("c")
    assert rest_of(line) == ["c"]


def test_step_of_priority_equals_ageing() -> None:
    line, clock = ranked(ageing=10)
    put(line, "low", -1)
    clock.now = 9.9
    put(line, "just in time", 0)
    clock.now = 10.1
    put(line, "too late", 0)

    assert rest_of(line) == ["just in time", "low", "too late"]


def test_strict_order_ignores_time() -> None:
    line, clock = ranked()
    put(line, "low", -1)
    clock.now = 1e9
    put(line, "high", 0)

    assert rest_of(line) == ["high", "low"]


def test_depths_count_queued_items() -> None:
    line, _ = ranked()
    for item, priority in {"a": 1, "b": 1, "c": 2}.items():
        put(line, item, priority)

    line.requested["d"] = 1
    before = line.depths()
    line.raise_to("a", 2)
    raised = line.depths()
    rest_of(line)

    assert before == {"0": 0, "1": 2, "2": 1}
    assert raised == {"0": 0, "1": 1, "2": 2}
    assert line.depths() == {"0": 0, "1": 0, "2": 0}


def test_first_priorities_keep_their_labels() -> None:
    line, _ = ranked()
    for number in range(3 * DISTINCT_LABELS):
        put(line, f"item-{number}", number)
        line.depths()
        line.popleft()

    put(line, "a", 0)
    put(line, "b", 3 * DISTINCT_LABELS - 1)
    depths = line.depths()

    assert len(depths) == DISTINCT_LABELS + 1
    assert {label: n for label, n in depths.items() if n} == {"0": 1, OTHER_LABEL: 1}
    assert len(line._labels) == DISTINCT_LABELS


def test_too_many_stale_places_are_dropped() -> None:
    line, _ = ranked()
    for number in range(40):
        put(line, f"other-{number}", 0)

    put(line, "a", 0)
    for priority in range(1, 10_000):
        line.raise_to("a", priority)

    assert sum(len(row) for row in line._rows.values()) <= 41 + EMPTY_PLACES_KEPT
    assert len(line._firsts) == len(line._rows)
    assert rest_of(line) == ["a", *(f"other-{number}" for number in range(40))]


@pytest.mark.parametrize("priority", [-1, 0, 1])
def test_append_and_popleft_cost_logarithm_of_priorities(
    priority: int,
) -> None:
    line, clock = ranked(ageing=1)
    number = 10_000
    before = CountedTime.comparisons
    for item in range(number):
        clock.now += 0.001
        put(line, f"item-{item}", priority * item)

    rest_of(line)

    # For each item at most once up the heap, once down and once up, with two comparisons of
    # each pair.
    assert CountedTime.comparisons - before < 6 * number * math.log2(number)


def test_cost_of_few_priorities_does_not_grow_with_items() -> None:
    line, clock = ranked(ageing=1)
    number, before = 10_000, CountedTime.comparisons
    for item in range(number):
        clock.now += 0.001
        put(line, f"item-{item}", item % 4)

    rest_of(line)

    # At most two levels of four first places, with two comparisons of each pair.
    assert CountedTime.comparisons - before < 8 * number


def test_item_raised_in_place_counts_for_its_new_priority() -> None:
    line, clock = ranked(ageing=1)
    put(line, "old", 0)
    clock.now = 10.0

    line.raise_to("old", 2)
    line.raise_to("old", 3)
    raised = line.depths(), line.priority_of("old")
    line.popleft()

    assert raised == ({"0": 0, "3": 1}, 3)
    assert line.last_priority == 3
    assert line.depths() == {"0": 0, "3": 0}
    assert not line.requested


@pytest.mark.parametrize("ageing", [0.0, 0.5])
def test_many_raises_keep_order_and_depths(ageing: float) -> None:
    """Compare with a list of the items. Empty places are dropped many times."""
    line, clock = ranked(ageing)
    rng = random.Random(4)
    there: dict[str, list[float]] = {}  # rank, number, priority

    def rank(priority: int) -> float:
        return clock.now * (ageing > 0) - priority * (ageing or 1)

    for number in range(6000):
        clock.now += rng.random()
        item, priority = f"item-{rng.randrange(40)}", rng.randrange(30)
        if item not in there:
            there[item] = [rank(priority), number, priority]
            put(line, item, priority)
        elif priority > there[item][2]:
            line.raise_to(item, priority)
            if rank(priority) < there[item][0]:
                there[item][:2] = [rank(priority), number]

            there[item][2] = priority
        elif rng.random() < 0.2:
            first = min(there, key=there.__getitem__)
            assert line.popleft() == first
            assert line.last_priority == there.pop(first)[2]

        counts = Counter(str(int(priority)) for *_, priority in there.values())
        places = sum(len(row) for row in line._rows.values())
        assert line._empty == places - len(line)
        if number % 50 == 0 and len(counts) < DISTINCT_LABELS:
            line._labels = {0: "0"}
            assert {k: n for k, n in line.depths().items() if n} == counts

    assert rest_of(line) == sorted(there, key=there.__getitem__)
    assert set(line.depths().values()) == {0}


def test_items_added_before_the_clock_keep_their_order() -> None:
    line, clock = PrioritizedItems[str](1.0), Clock()
    put(line, "a", 0)
    put(line, "b", 3)
    line.raise_to("a", 3)
    clock.now = 1e6

    line.start_clock(clock)
    put(line, "late", 2)
    line.raise_to("late", 3)

    assert rest_of(line) == ["b", "a", "late"]
