"""Metrics of work queues, for collecting and plain sinks."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from metrics_helpers import PlainSink, ReadSink
from queue_helpers import DisabledSink, error_in_thread

from aioinformer.workqueue import PriorityQueue, WorkQueue
from aioinformer.workqueue.metrics import AGES_SECONDS, KEPT

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUED = "workqueue_queue_duration_seconds"
WORKED = "workqueue_work_duration_seconds"
UNFINISHED = ("workqueue_unfinished_work_seconds", ("pods",))
LONGEST = ("workqueue_longest_running_processor_seconds", ("pods",))
ADDS = ("workqueue_adds_total", ("pods",))
RETRIES = ("workqueue_retries_total", ("pods",))

each_sink = pytest.mark.parametrize("make", [PlainSink, ReadSink])


def read(sink: PlainSink) -> None:
    """Read the metrics, as a scrape does."""
    if isinstance(sink, ReadSink):
        sink.read()


@each_sink
async def test_metrics_count_effective_adds(make: Callable[[], PlainSink]) -> None:
    sink = make()
    queue = WorkQueue[str]("pods", metrics=sink)
    counted = []

    def look() -> None:
        read(sink)
        counted.append(sink.counts[ADDS])

    queue.add("a")
    look()
    queue.add("a")  # queued already
    look()
    await queue.get()
    queue.add("a")  # in work: counts
    look()
    queue.add("a")  # added before
    queue.done("a")
    look()
    queue.done(await queue.get())
    look()

    assert counted == [1, 1, 2, 2, 2]


@each_sink
async def test_metrics_show_the_depth(make: Callable[[], PlainSink]) -> None:
    sink = make()
    queue = WorkQueue[str]("pods", metrics=sink)
    depths = []

    def look() -> None:
        read(sink)
        depths.append(sink.depths("pods"))

    queue.add("a")
    queue.add("b")
    look()
    await queue.get()
    look()
    queue.add("a")
    queue.done("a")
    look()
    queue.get_nowait()
    look()
    await queue.shut_down_with_drain(0)
    look()

    assert depths == [{"": number} for number in (2, 1, 2, 1, 0)]


@each_sink
async def test_queue_duration_is_from_add_to_get(
    make: Callable[[], PlainSink],
) -> None:
    sink = make()
    queue = WorkQueue[str]("pods", metrics=sink)

    queue.add("a")
    await asyncio.sleep(2)
    queue.add("a")
    await asyncio.sleep(1)
    await queue.get()
    await asyncio.sleep(4)
    queue.add("a")  # while in work: the wait starts now
    await asyncio.sleep(5)
    queue.done("a")
    await queue.get()
    read(sink)

    assert sink.observed[QUEUED] == [3, 5]


@each_sink
async def test_work_duration_is_from_get_to_done(
    make: Callable[[], PlainSink],
) -> None:
    sink = make()
    queue = WorkQueue[str]("pods", metrics=sink)

    for seconds in (2, 0, 7):
        queue.add("a")
        async with queue.item():
            await asyncio.sleep(seconds)
            queue.add("a")

        queue.done("a")  # not in work
        queue.done(queue.get_nowait())

    read(sink)

    assert sink.observed[WORKED] == [2, 0, 0, 0, 7, 0]


@each_sink
async def test_metrics_count_retries_of_an_open_queue(
    make: Callable[[], PlainSink],
) -> None:
    sink = make()
    queue = WorkQueue[str]("pods", metrics=sink)

    queue.add_after("a", 1)
    queue.add_after("a", 2)
    queue.add_after("b", 0)
    queue.shut_down()
    queue.add_after("c", 1)
    read(sink)

    assert sink.counts[RETRIES] == 3
    assert sink.counts[ADDS] == 1


@each_sink
async def test_items_given_up_by_drain_stay_counted_as_added(
    make: Callable[[], PlainSink],
) -> None:
    sink = make()
    queue = WorkQueue[str]("pods", metrics=sink)
    for item in "abc":
        queue.add(item)

    await queue.get()
    queue.add("a")
    await queue.shut_down_with_drain(1)
    queue.done("a")
    read(sink)

    assert sink.counts[ADDS] == 4
    assert sink.depths("pods") == {"": 0}
    assert len(sink.observed[QUEUED]) == 1


async def test_ages_of_work_grow_until_it_is_done() -> None:
    sink = ReadSink()
    queue = WorkQueue[str]("pods", metrics=sink)
    queue.add("a")
    queue.add("b")
    ages = []

    def look() -> None:
        sink.read()
        ages.append((sink.gauges[UNFINISHED], sink.gauges[LONGEST]))

    look()
    await queue.get()
    await asyncio.sleep(10)
    await queue.get()
    await asyncio.sleep(5)
    look()
    queue.done("a")
    look()
    queue.done("b")
    look()

    assert ages == [(0, 0), (20, 15), (5, 5), (0, 0)]


async def test_plain_sink_gets_ages_twice_a_second() -> None:
    sink = PlainSink()
    queue = WorkQueue[str]("pods", metrics=sink)
    ages = set()
    queue.add("hangs")
    await queue.get()

    for _ in range(40):
        await asyncio.sleep(0.1)
        queue.add("a")
        queue.done(await queue.get())
        ages.add(sink.gauges.get(LONGEST))

    times = sorted(age for age in ages if age is not None)
    gaps = [later - before for before, later in pairwise(times)]
    assert len(times) >= 7
    assert all(gap >= AGES_SECONDS - 1e-9 for gap in gaps)


async def test_plain_sink_gets_zero_ages_at_once() -> None:
    sink = PlainSink()
    queue = WorkQueue[str]("pods", metrics=sink)
    queue.add("a")
    queue.add("b")
    await queue.get()
    await asyncio.sleep(AGES_SECONDS)
    await queue.get()
    queue.done("b")
    before = sink.gauges[LONGEST]

    queue.done("a")

    assert before == AGES_SECONDS
    assert sink.gauges[UNFINISHED] == sink.gauges[LONGEST] == 0


# ---------------------------------------------------------------- when, and what it costs


async def test_collecting_sink_is_not_called_for_each_item() -> None:
    sink = ReadSink()
    queue = WorkQueue[int]("pods", metrics=sink)
    before = sink.calls

    for item in range(KEPT - 1):
        queue.add(item)
        queue.done(await queue.get())

    assert sink.calls == before
    assert sink.observed[WORKED] == []


async def test_durations_do_not_accumulate_between_reads() -> None:
    sink = ReadSink()
    queue = WorkQueue[int]("pods", metrics=sink)
    number = 3 * KEPT + 1

    for item in range(number):
        queue.add(item)
        queue.done(await queue.get())

    before = len(sink.observed[WORKED]), len(sink.observed[QUEUED])
    sink.read()

    assert before == (3 * KEPT, 3 * KEPT)
    assert len(sink.observed[WORKED]) == len(sink.observed[QUEUED]) == number
    assert sink.counts[ADDS] == number


async def test_all_series_exist_from_start() -> None:
    sink = ReadSink()
    WorkQueue[str]("pods", metrics=sink)

    assert set(sink.counts) == {ADDS, RETRIES}
    assert sink.depths("pods") == {"": 0}
    assert set(sink.gauges) == {("workqueue_depth", ("pods", "")), UNFINISHED, LONGEST}
    assert dict(sink.observed) == {QUEUED: [], WORKED: []}


async def test_metrics_can_be_collected_in_other_thread() -> None:
    sink = ReadSink()
    queue = WorkQueue[str]("pods", metrics=sink)
    queue.add("a")
    await queue.get()
    await asyncio.sleep(3)
    queue.add("b")

    error = error_in_thread(sink.read)

    assert error is None
    assert sink.counts[ADDS] == 2
    assert sink.gauges[LONGEST] == 3


async def test_metrics_set_no_timer() -> None:
    queue = WorkQueue[str]("pods", metrics=ReadSink())
    queue.add("a")
    await queue.get()

    scheduled = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]

    assert [timer for timer in scheduled if not timer.cancelled()] == []


async def test_disabled_sink_is_never_called() -> None:
    sink = DisabledSink()
    queue = WorkQueue[str]("pods", metrics=sink)

    queue.add("a")
    queue.done(await queue.get())
    await queue.shut_down_with_drain()

    assert not sink.counts
    assert not sink.gauges


async def test_unused_queue_with_metrics_is_freed() -> None:
    queue = WorkQueue[str]("pods", metrics=PlainSink())
    queue.add("a")
    queue.done(await queue.get())
    alive = weakref.ref(queue)
    gc.disable()
    try:
        del queue
        assert alive() is None
    finally:
        gc.enable()


def test_items_queued_before_the_loop_runs_wait_from_its_start() -> None:
    sink, began = ReadSink(), time.monotonic()
    queue = WorkQueue[str]("pods", metrics=sink)
    queue.add("a")
    queue.add("b")
    queue.get_nowait()

    async def use() -> None:
        queue.done("a")
        await queue.get()

    asyncio.run(use())
    took = time.monotonic() - began
    sink.read()

    assert sink.counts[ADDS] == 2
    # Time of the real clock, which advanced during the test.
    assert all(0 <= seconds <= took for seconds in sink.observed[QUEUED])
    assert all(0 <= seconds <= took for seconds in sink.observed[WORKED])
    assert len(sink.observed[QUEUED]) == 2


# ---------------------------------------------------------------- a sink that fails


class BrokenSink(PlainSink):
    def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
        raise ZeroDivisionError


async def test_failing_sink_loses_no_item(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = WorkQueue[str]("pods", metrics=BrokenSink())

    queue.add_after("a", 1)
    queue.add_after("b", 2)
    taken = [await queue.get(), await queue.get()]
    for item in taken:
        queue.done(item)

    assert taken == ["a", "b"]
    assert await queue.shut_down_with_drain() == frozenset()
    assert len(caplog.records) == 1
    assert "'pods': the metrics sink failed" in caplog.text


# ---------------------------------------------------------------- priorities


@each_sink
async def test_depth_is_measured_by_priority(
    make: Callable[[], PlainSink],
) -> None:
    sink = make()
    queue = PriorityQueue[str]("pods", metrics=sink)
    depths = []

    def look() -> None:
        read(sink)
        depths.append(sink.depths("pods"))

    queue.add("a", 5)
    queue.add("b")
    queue.add("c")
    look()
    queue.add("c", 5)
    look()
    queue.get_nowait()
    queue.get_nowait()
    look()

    assert depths == [{"5": 1, "0": 2}, {"5": 2, "0": 1}, {"5": 0, "0": 1}]


async def test_many_priorities_have_few_labels() -> None:
    sink = ReadSink()
    queue = PriorityQueue[int]("pods", metrics=sink)
    for number in range(100):
        queue.add(number, number)
        sink.read()

    full = sink.depths("pods")
    for _ in range(100):
        queue.get_nowait()

    sink.read()
    empty = sink.depths("pods")

    assert len(full) == 26
    assert full["other"] == 75
    assert set(full.values()) == {1, 75}
    assert set(empty.values()) == {0}


async def test_durations_are_measured_with_priorities() -> None:
    sink = ReadSink()
    queue = PriorityQueue[str]("pods", metrics=sink)
    queue.add("later", -100)
    await asyncio.sleep(2)
    queue.add("now")
    await asyncio.sleep(1)

    taken = [queue.get_nowait(), queue.get_nowait()]
    sink.read()

    assert taken == ["now", "later"]
    assert sink.observed[QUEUED] == [1, 3]
