"""`DeltaFIFO`: who is woken by what, closing, and cancellation at each wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from fifo_helpers import Thing, deltas, listing, put, take_all, text_of
from queue_helpers import settle

from aioinformer.cache import DeltaFIFO
from aioinformer.errors import QueueShutDown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@pytest.fixture
def fifo() -> DeltaFIFO[Thing]:
    return DeltaFIFO()


# ---------------------------------------------------------------- waiting


def test_an_empty_queue_has_nothing_to_pop(fifo: DeltaFIFO[Thing]) -> None:
    for take in (fifo.pop_nowait, fifo.take):
        with pytest.raises(asyncio.QueueEmpty):
            take()


each_feed = pytest.mark.parametrize(
    "feed",
    [
        pytest.param(lambda fifo: fifo.feed(deltas("a", "b")), id="changes"),
        pytest.param(lambda fifo: fifo.feed_replacement(listing(), "7"), id="list"),
        pytest.param(lambda fifo: fifo.feed([], "7"), id="version"),
    ],
)
Feed = Any  # Callable[[DeltaFIFO[Thing]], Awaitable[None]], which pytest cannot see


@each_feed
async def test_wait_filled_is_woken_by(fifo: DeltaFIFO[Thing], feed: Feed) -> None:
    waiter = asyncio.create_task(fifo.wait_filled())
    await settle()

    waited = not waiter.done()
    await feed(fifo)

    assert waited
    async with asyncio.timeout(1):
        await waiter


@each_feed
async def test_wait_filled_does_not_wait_after(
    fifo: DeltaFIFO[Thing], feed: Feed
) -> None:
    await feed(fifo)

    with pytest.raises(StopIteration):
        fifo.wait_filled().send(None)


async def test_wait_filled_takes_nothing(fifo: DeltaFIFO[Thing]) -> None:
    await fifo.feed(deltas("a"), "7")

    await fifo.wait_filled()
    await fifo.wait_filled()

    assert take_all(fifo) == ["~a0"]
    await fifo.wait_filled()
    assert fifo.applied() == "7"


async def test_wait_filled_remembers_a_version_that_was_passed_while_marking(
    fifo: DeltaFIFO[Thing],
) -> None:
    await fifo.feed(deltas("a"), "7")
    fifo.take()
    await fifo.feed([], "8")
    fifo._pass_marks()

    with pytest.raises(StopIteration):
        fifo.wait_filled().send(None)

    assert fifo.applied() == "8"


async def test_plain_methods_wake_nobody(fifo: DeltaFIFO[Thing]) -> None:
    waiter = asyncio.create_task(fifo.wait_filled())
    await settle()

    put(fifo, "+a1", "=5", "-b1")
    await settle()
    woken = waiter.done()
    await fifo.feed([])
    await waiter

    assert not woken
    assert take_all(fifo) == ["+a1", "=5", "-b1"]


async def test_a_feed_without_news_wakes_nobody(fifo: DeltaFIFO[Thing]) -> None:
    waiter = asyncio.create_task(fifo.wait_filled())
    await settle()

    await fifo.feed([])
    await settle()
    woken = waiter.done()
    await fifo.feed(deltas("a"))
    await waiter

    assert not woken


async def test_pop_hands_each_entry_to_the_processor(fifo: DeltaFIFO[Thing]) -> None:
    record: list[str] = []
    await fifo.feed(deltas("a", "b"), "7")
    await fifo.feed_replacement(listing(), "8")

    for _ in range(3):
        await fifo.pop(lambda entry: record.append(text_of(entry)))

    assert record == ["~a0", "~b0", "=8"]


async def test_pop_waits_for_an_entry(fifo: DeltaFIFO[Thing]) -> None:
    record: list[str] = []
    popper = asyncio.create_task(fifo.pop(lambda entry: record.append(text_of(entry))))
    await settle()

    await fifo.feed(deltas("a"))
    await popper

    assert record == ["~a0"]


async def test_each_entry_goes_to_one_of_many_poppers(fifo: DeltaFIFO[Thing]) -> None:
    record: list[str] = []
    poppers = [
        asyncio.create_task(fifo.pop(lambda entry: record.append(text_of(entry))))
        for _ in range(3)
    ]
    await settle()

    await fifo.feed(deltas("a", "b"))
    await settle()
    waiting = [popper for popper in poppers if not popper.done()]
    await fifo.feed(deltas("c"))
    await asyncio.wait(poppers)

    assert len(waiting) == 1
    assert record == ["~a0", "~b0", "~c0"]


async def test_an_entry_whose_processor_fails_counts_as_taken(
    fifo: DeltaFIFO[Thing],
) -> None:
    def fail(entry: object) -> None:
        raise ZeroDivisionError

    await fifo.feed(deltas("a", "b"), "7")

    with pytest.raises(ZeroDivisionError):
        await fifo.pop(fail)

    assert take_all(fifo) == ["~b0"]
    assert fifo.applied() == "7"


# ---------------------------------------------------------------- closing


async def test_close_wakes_everybody(fifo: DeltaFIFO[Thing]) -> None:
    waits: list[Awaitable[None]] = [fifo.wait_filled() for _ in range(5)]
    waits += [fifo.pop(lambda entry: None) for _ in range(5)]
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await settle()

    await fifo.close()
    await asyncio.wait(tasks, timeout=1)

    assert [type(task.exception()) for task in tasks] == [QueueShutDown] * 10


async def test_what_is_queued_can_be_taken_from_a_closed_queue(
    fifo: DeltaFIFO[Thing],
) -> None:
    record: list[str] = []
    await fifo.feed(deltas("a", "b"), "7")

    await fifo.close()
    await fifo.close()  # idempotent
    await fifo.wait_filled()
    await fifo.pop(lambda entry: record.append(text_of(entry)))
    put(fifo, "+c1")

    assert [*record, *take_all(fifo)] == ["~a0", "~b0", "+c1"]
    await fifo.wait_filled()  # there is a version
    assert fifo.applied() == "7"


@pytest.mark.parametrize(
    "wait",
    [
        pytest.param(lambda fifo: fifo.wait_filled(), id="wait_filled"),
        pytest.param(lambda fifo: fifo.pop(lambda entry: None), id="pop"),
    ],
)
async def test_a_closed_and_empty_queue_raises(
    fifo: DeltaFIFO[Thing], wait: Callable[[DeltaFIFO[Thing]], Awaitable[None]]
) -> None:
    await fifo.close()

    for take in (fifo.pop_nowait, fifo.take):
        with pytest.raises(QueueShutDown):
            take()

    with pytest.raises(QueueShutDown):
        await wait(fifo)


# ---------------------------------------------------------------- cancellation


@pytest.mark.parametrize(
    ("work", "left"),
    [
        pytest.param(lambda fifo: fifo.feed(deltas("b"), "9"), ["~a0"], id="feed"),
        pytest.param(
            lambda fifo: fifo.feed_replacement(listing(), "9"), ["~a0"], id="list"
        ),
        pytest.param(
            lambda fifo: fifo.pop(lambda entry: fifo.update(Thing("taken"))),
            ["~a0"],
            id="pop",
        ),
    ],
)
async def test_a_call_cancelled_before_its_turn_changes_nothing(
    fifo: DeltaFIFO[Thing], work: Any, left: list[str]
) -> None:
    """Its turn is the lock of the condition, which the test holds."""
    await fifo.feed(deltas("a"), "7")
    async with fifo._filled:
        task = asyncio.create_task(work(fifo))
        await settle()
        task.cancel()
        await asyncio.wait({task})

    assert task.cancelled()
    assert take_all(fifo) == left
    assert fifo.applied() == "7"


@pytest.mark.parametrize("cancel_first", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    "wait",
    [
        pytest.param(lambda fifo: fifo.wait_filled(), id="wait_filled"),
        pytest.param(lambda fifo: fifo.pop(lambda entry: None), id="pop"),
    ],
)
async def test_a_waiter_cancelled_as_a_batch_arrives_takes_nothing(
    fifo: DeltaFIFO[Thing], wait: Any, cancel_first: bool
) -> None:
    waiter = asyncio.create_task(wait(fifo))
    await settle()

    if cancel_first:
        waiter.cancel()

    await fifo.feed(deltas("a"))
    waiter.cancel()
    await asyncio.wait({waiter})

    assert waiter.cancelled()
    assert take_all(fifo) == ["~a0"]


async def test_a_waiter_cancelled_as_a_batch_arrives_leaves_it_to_another(
    fifo: DeltaFIFO[Thing],
) -> None:
    record: list[str] = []
    first = asyncio.create_task(fifo.pop(lambda entry: None))
    second = asyncio.create_task(fifo.pop(lambda entry: record.append(text_of(entry))))
    await settle()

    await fifo.feed(deltas("a"))
    first.cancel()
    async with asyncio.timeout(1):
        await second

    assert record == ["~a0"]
    assert first.cancelled()


async def test_a_timeout_around_wait_filled_loses_nothing(
    fifo: DeltaFIFO[Thing],
) -> None:
    async def feed() -> None:
        await asyncio.sleep(3)  # ends in the very turn in which the timeout cancels
        await fifo.feed(deltas("a"))

    feeder = asyncio.create_task(feed())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            await fifo.wait_filled()

    await feeder
    assert take_all(fifo) == ["~a0"]
