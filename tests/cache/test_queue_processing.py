"""Processing of popped entries: errors, requeueing, slow calls, metrics."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from budget_helpers import Clock
from each_case import each_case
from fifo_helpers import (
    Fifo,
    Thing,
    again,
    deltas,
    holding,
    nothing,
    put,
    take_all,
)
from queue_helpers import settle

from aioinformer.cache import FIFO, DeltaFIFO, OrderedFIFO, Requeue
from aioinformer.cache.queue import slow_after


@pytest.fixture(params=[DeltaFIFO, OrderedFIFO])
def fifo(request: pytest.FixtureRequest) -> Fifo:
    return request.param()


@pytest.fixture(params=[DeltaFIFO, OrderedFIFO, FIFO])
def queue(request: pytest.FixtureRequest) -> Fifo:
    """Provide each queue, including the one that returns objects."""
    return request.param()


# ---------------------------------------------------------------- processing


async def test_queue_has_synced_after_the_last_listed_entry_was_processed(
    queue: Fifo,
) -> None:
    during: list[tuple[bool, bool]] = []

    def process(entry: object, initial: bool) -> None:
        during.append((initial, queue.has_synced))

    queue.replace([Thing("a"), Thing("b")])
    queue.add(Thing("c"))
    while len(queue):
        await queue.pop(process)

    # In client-go, waiters may see it while the last entry is processed.
    one_entry = isinstance(queue, OrderedFIFO)
    assert during == [(True, False)] * (1 if one_entry else 2) + [(False, True)]


async def test_entry_whose_processing_fails_counts_as_popped(fifo: Fifo) -> None:
    def fail(entry: object, initial: bool) -> None:
        raise ZeroDivisionError

    fifo.feed(deltas("a", "b"), "7")

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await fifo.pop(fail)

    assert take_all(fifo) == []
    assert fifo.applied() == "7"


async def test_version_is_not_applied_while_its_entry_is_processed(fifo: Fifo) -> None:
    during: list[str | None] = []
    fifo.feed(deltas("a"), "7")

    await fifo.pop(lambda entry, initial: during.append(fifo.applied()))

    assert [*during, fifo.applied()] == [None, "7"]


# ---------------------------------------------------------------- going back


@pytest.mark.parametrize(
    ("kind", "entries"),
    [
        # By key, it is queued at the end: other keys need not wait for it.
        pytest.param(DeltaFIFO, ["+b1", "+a1 ~a2"], id="DeltaFIFO"),
        # In order, it is queued at the front.
        pytest.param(OrderedFIFO, ["+a1", "+b1", "~a2"], id="OrderedFIFO"),
    ],
)
async def test_requeued_entry_is_queued_again(kind: Any, entries: list[str]) -> None:
    fifo = kind()
    put(fifo, "+a1", "+b1", "~a2")

    await fifo.pop(again)

    assert take_all(fifo) == entries


async def test_fifo_queues_a_requeued_object_at_the_end() -> None:
    fifo = FIFO[Thing]()
    fifo.replace([Thing("a"), Thing("b")])

    await fifo.pop(again)

    assert fifo.list_keys() == ["b", "a"]
    assert not fifo.has_synced


async def test_requeued_entry_is_dropped_if_a_newer_one_is_queued(queue: Fifo) -> None:
    def outdate(entry: object, initial: bool) -> None:
        queue.update(Thing("a", 2))
        raise Requeue

    queue.add(Thing("a", 1))

    await queue.pop(outdate)

    # An ordered queue has the old state, too, before the newer one.
    left = len(queue)
    newest = [queue.pop_nowait() for _ in range(left)][-1]
    assert left == (2 if isinstance(queue, OrderedFIFO) else 1)
    assert (newest if isinstance(newest, Thing) else newest[0].object).version == 2


async def test_requeued_change_is_dropped_if_a_whole_list_is_queued() -> None:
    fifo = DeltaFIFO[Thing]()
    put(fifo, "+a1", "=5")

    await fifo.pop(again)

    assert take_all(fifo) == ["=5"]


async def test_requeued_list_goes_back_to_the_front(fifo: Fifo) -> None:
    put(fifo, "=5", "+a1", "=6", "~a2")

    await fifo.pop(again)
    synced = fifo.has_synced

    assert take_all(fifo) == ["=5", "+a1", "=6", "~a2"]
    assert not synced


async def test_requeued_resync_goes_back_to_the_front() -> None:
    fifo = OrderedFIFO[Thing]()
    put(fifo, "@", "+a1")

    await fifo.pop(again)

    assert take_all(fifo) == ["@", "+a1"]


async def test_requeued_list_is_known_again_for_resyncs() -> None:
    fifo = DeltaFIFO[Thing]()
    put(fifo, "=5")

    await fifo.pop(again)
    fifo.resync()

    assert take_all(fifo) == ["=5", ".a0", ".b0", ".c0"]


async def test_requeued_list_is_known_again_for_deletions() -> None:
    fifo = OrderedFIFO(known_objects=holding("x1"))
    put(fifo, "=5")

    await fifo.pop(again)
    fifo.replace([Thing("a", 7)])

    assert take_all(fifo) == ["=5", "!b0", "!c0", "*a7"]


async def test_newest_ignores_requeued_changes_before_a_list() -> None:
    fifo = OrderedFIFO[Thing]()
    put(fifo, "+a1", "=5")
    await fifo.pop(again)
    before_list = fifo.newest("a")

    fifo.add(Thing("b", 1))
    fifo.pop_nowait()
    fifo.pop_nowait()
    await fifo.pop(lambda entry, initial: _change_again(fifo, "b"))
    newest = fifo.newest("b")

    assert before_list is None
    assert newest is not None
    assert newest.object.version == 2


def _change_again(fifo: Fifo, key: str) -> None:
    """Queue a newer change while the older one is processed, then requeue that."""
    fifo.update(Thing(key, 2))
    raise Requeue


async def test_version_waits_for_requeued_entries(fifo: Fifo) -> None:
    fifo.feed(deltas("a"), "7")
    fifo.feed(deltas("b"), "8")
    await fifo.pop(again)

    history = [fifo.applied()]
    while len(fifo):
        fifo.pop_nowait()
        history.append(fifo.applied())

    by_key = isinstance(fifo, DeltaFIFO)
    assert history == ([None, None, "8"] if by_key else [None, "7", "8"])


async def test_version_does_not_wait_for_a_later_requeued_entry(
    fifo: Fifo,
) -> None:
    fifo.feed(deltas("a"), "7")
    fifo.feed(deltas("b"), "8")
    fifo.pop_nowait()

    await fifo.pop(again)

    assert fifo.applied() == "7"


async def test_queue_has_not_synced_while_a_listed_entry_is_requeued() -> None:
    fifo = DeltaFIFO[Thing]()
    fifo.replace([Thing("a"), Thing("b")], "5")

    await fifo.pop(again)
    await fifo.pop(nothing)
    before = fifo.has_synced
    await fifo.pop(nothing)

    assert not before
    assert fifo.has_synced


async def test_sync_waits_for_the_change_that_replaces_a_requeued_entry() -> None:
    fifo = DeltaFIFO[Thing]()
    fifo.replace([Thing("a", 1)], "5")

    await fifo.pop(lambda entry, initial: _change_again(fifo, "a"))
    before = (fifo.has_synced, fifo.applied())
    await fifo.pop(nothing)

    assert before == (False, None)
    assert (fifo.has_synced, fifo.applied()) == (True, "5")


async def test_requeue_raises_its_cause(queue: Fifo) -> None:
    def fail(entry: object, initial: bool) -> None:
        raise Requeue from ZeroDivisionError("busy")

    queue.add(Thing("a"))

    with pytest.raises(ZeroDivisionError, match="busy"):
        await queue.pop(fail)

    assert len(queue) == 1


async def test_entry_that_is_always_requeued_does_not_block_the_loop(
    queue: Fifo,
) -> None:
    turns = 0
    queue.add(Thing("a"))

    async def consume() -> None:
        while True:
            await queue.pop(again)

    consumer = asyncio.create_task(consume())
    async with asyncio.timeout(1):
        while turns < 20:
            await asyncio.sleep(0)
            turns += 1

    consumer.cancel()
    await asyncio.wait({consumer})
    assert consumer.cancelled()
    assert len(queue) == 1


async def test_requeued_entry_goes_to_another_waiting_task(queue: Fifo) -> None:
    taken: list[object] = []
    poppers = [
        asyncio.create_task(queue.pop(again)),
        asyncio.create_task(queue.pop(lambda entry, initial: taken.append(entry))),
    ]
    await settle()

    queue.add(Thing("a"))
    async with asyncio.timeout(1):
        for popper in poppers:
            await popper

    assert len(taken) == 1


# ---------------------------------------------------------------- slow processing


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("aioinformer.cache.queue.perf_counter", clock)
    return clock


@each_case("entries, seconds", [(1, 0.1), (2, 0.2), (10, 1.0), (11, 1.0), (1000, 1.0)])
def test_slow_processing_threshold_grows_with_entries(
    entries: int, seconds: float
) -> None:
    assert slow_after(entries) == pytest.approx(seconds)


@pytest.mark.parametrize("waiting", [10, 11])
async def test_slow_processing_is_logged_while_many_wait(
    fifo: Fifo, clock: Clock, waiting: int, caplog: pytest.LogCaptureFixture
) -> None:
    fifo.name = "pods"
    for number in range(waiting + 1):
        fifo.add(Thing(f"key-{number}"))

    def work(entry: object, initial: bool) -> None:
        clock.work(milliseconds=110)

    with caplog.at_level(logging.WARNING, "aioinformer"):
        await fifo.pop(work)

    texts = [record.getMessage() for record in caplog.records]
    if waiting == 10:
        assert texts == []
    else:
        assert len(texts) == 1
        assert texts[0].startswith("pods: slow processing of key-0 took 0.110 s")
        assert texts[0].endswith("(entries=1, queued=11)")


async def test_quick_processing_is_not_logged(
    fifo: Fifo, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(100):
        fifo.add(Thing(f"key-{number}"))

    await fifo.pop(lambda entry, initial: clock.work(milliseconds=90))

    assert caplog.records == []


# ---------------------------------------------------------------- metrics


class Sink:
    enabled = True

    def __init__(self) -> None:
        self.measured: list[tuple[str, float, str]] = []

    def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
        raise AssertionError("nothing here is a counter")

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        self.measured.append((name, value, labels["name"]))

    def observe(self, name: str, /, *values: float, **labels: str) -> None:
        assert all(0 <= value < 10 for value in values)
        self.measured.append((name, -1.0, labels["name"]))


@pytest.mark.parametrize("kind", [DeltaFIFO, OrderedFIFO, FIFO])
async def test_depth_and_latency_are_measured(kind: Any) -> None:
    sink = Sink()
    queue = kind(name="pods", metrics=sink)

    queue.add(Thing("a"))
    queue.add(Thing("b"))
    await queue.pop(nothing)
    queue.pop_nowait()

    depth, latency = "informer_queued_items", "informer_processing_latency_seconds"
    assert sink.measured == [
        (depth, 1, "pods"),
        (depth, 2, "pods"),
        (depth, 1, "pods"),
        (latency, -1, "pods"),
        (depth, 0, "pods"),
    ]


async def test_pop_nowait_measures_depth(fifo: Fifo) -> None:
    sink = Sink()
    queue = type(fifo)(metrics=sink)
    queue.feed(deltas("a", "b", "c"), "7")

    for _ in range(3):
        queue.pop_nowait()

    assert [value for _, value, _ in sink.measured] == [3, 2, 1, 0]


async def test_depth_is_measured_once_for_a_consumer_that_applies_batches(
    fifo: Fifo,
) -> None:
    sink = Sink()
    queue = type(fifo)(metrics=sink)
    queue.applied()
    queue.feed(deltas("a", "b", "c", "d"), "7")

    queue.pop_nowait()
    queue.pop_nowait()
    queue.applied()
    queue.pop_nowait()
    queue.pop_nowait()
    queue.applied()

    assert [value for _, value, _ in sink.measured] == [4, 2, 0]


async def test_failing_sink_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(Sink):
        def gauge(self, name: str, value: float, /, **labels: str) -> None:
            raise ZeroDivisionError

    queue = DeltaFIFO[Thing](name="pods", metrics=Failing())

    put(queue, "+a1", "+b1")
    await queue.pop(nothing)

    assert [it.getMessage() for it in caplog.records] == [
        "pods: the metrics sink failed"
    ]
