"""Waiting for queues: notifications, closing, cancellation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from fifo_helpers import (
    Fifo,
    Record,
    Thing,
    again,
    deltas,
    listing,
    nothing,
    put,
    take_all,
)
from queue_helpers import settle

from aioinformer.cache import FIFO, DeltaFIFO, OrderedFIFO
from aioinformer.errors import QueueShutDown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@pytest.fixture(params=[DeltaFIFO, OrderedFIFO])
def fifo(request: pytest.FixtureRequest) -> Fifo:
    return request.param()


@pytest.fixture
def record() -> Record:
    return Record()


# ---------------------------------------------------------------- waiting


def test_pop_nowait_of_empty_queue_raises(fifo: Fifo) -> None:
    with pytest.raises(asyncio.QueueEmpty):
        fifo.pop_nowait()


each_call = pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda fifo: fifo.add(Thing("a")), id="add"),
        pytest.param(lambda fifo: fifo.update(Thing("a")), id="update"),
        pytest.param(lambda fifo: fifo.replace([Thing("a")], "7"), id="replace"),
        pytest.param(lambda fifo: fifo.replace_all(listing(), "7"), id="replace_all"),
        pytest.param(lambda fifo: fifo.bookmark("7"), id="bookmark"),
        pytest.param(lambda fifo: fifo.feed(deltas("a", "b")), id="feed"),
        pytest.param(lambda fifo: fifo.feed([], "7"), id="feed-version"),
    ],
)
each_wait = pytest.mark.parametrize(
    "wait",
    [
        pytest.param(lambda fifo: fifo.wait_filled(), id="wait_filled"),
        pytest.param(lambda fifo: fifo.pop(nothing), id="pop"),
        pytest.param(lambda fifo: fifo.pop_batch(nothing, nothing), id="pop_batch"),
    ],
)


@each_call
async def test_plain_methods_notify_all_waiting_tasks(fifo: Fifo, call: Any) -> None:
    waiters = [asyncio.create_task(fifo.wait_filled()) for _ in range(2)]
    await settle()

    waited = not any(waiter.done() for waiter in waiters)
    call(fifo)

    assert waited
    async with asyncio.timeout(1):
        for waiter in waiters:
            await waiter


async def test_deletion_notifies_waiting_tasks() -> None:
    fifo = OrderedFIFO[Thing]()
    waiter = asyncio.create_task(fifo.pop(nothing))
    await settle()

    fifo.delete(Thing("a"))

    async with asyncio.timeout(1):
        await waiter


async def test_resync_notifies_waiting_tasks() -> None:
    fifo = OrderedFIFO[Thing]()
    waiter = asyncio.create_task(fifo.pop(nothing))
    await settle()

    fifo.resync()

    async with asyncio.timeout(1):
        await waiter


@each_call
async def test_wait_filled_returns_immediately_after_change(
    fifo: Fifo, call: Any
) -> None:
    call(fifo)

    with pytest.raises(StopIteration):
        fifo.wait_filled().send(None)


async def test_wait_filled_takes_nothing(fifo: Fifo) -> None:
    fifo.feed(deltas("a"), "7")

    await fifo.wait_filled()
    await fifo.wait_filled()

    assert take_all(fifo) == ["~a0"]
    await fifo.wait_filled()
    assert fifo.applied() == "7"


async def test_wait_filled_remembers_a_version_that_was_passed_while_marking(
    fifo: Fifo,
) -> None:
    fifo.feed(deltas("a"), "7")
    fifo.pop_nowait()
    fifo.bookmark("8")
    fifo._progress._pass_versions()

    with pytest.raises(StopIteration):
        fifo.wait_filled().send(None)

    assert fifo.applied() == "8"


async def test_empty_feed_without_a_version_ends_no_wait(fifo: Fifo) -> None:
    waiter = asyncio.create_task(fifo.wait_filled())
    await settle()

    fifo.feed([])
    await settle()
    woken = waiter.done()
    fifo.feed(deltas("a"))
    await waiter

    assert not woken


async def test_pop_passes_each_entry_to_processor(fifo: Fifo, record: Record) -> None:
    fifo.feed(deltas("a", "b"), "7")
    fifo.replace_all(listing(), "8")

    for _ in range(3):
        await fifo.pop(record)

    assert record == ["~a0", "~b0", "=8"]


async def test_pop_waits_for_an_entry(fifo: Fifo, record: Record) -> None:
    popper = asyncio.create_task(fifo.pop(record))
    await settle()

    fifo.feed(deltas("a"))
    await popper

    assert record == ["~a0"]


async def test_each_entry_goes_to_one_of_several_consumers(
    fifo: Fifo, record: Record
) -> None:
    poppers = [asyncio.create_task(fifo.pop(record)) for _ in range(3)]
    await settle()

    fifo.feed(deltas("a", "b"))
    await settle()
    waiting = [popper for popper in poppers if not popper.done()]
    fifo.feed(deltas("c"))
    await asyncio.wait(poppers)

    assert len(waiting) == 1
    assert record == ["~a0", "~b0", "~c0"]


async def test_queue_keeps_order_of_each_producer(fifo: Fifo) -> None:
    """Two producers and a consumer run concurrently. Each object has its own key."""
    seen: list[Thing] = []

    async def produce(name: str) -> None:
        for number in range(500):
            fifo.add(Thing(f"{name}{number}", number))
            if number % 7 == 0:
                await asyncio.sleep(0)

    def process(entry: Any, initial: bool) -> None:
        seen.extend(delta.object for delta in entry)

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        for name in "ab":
            tasks.create_task(produce(name))

        for _ in range(1000):
            await fifo.pop(process)

    for name in "ab":
        numbers = [thing.version for thing in seen if thing.key[0] == name]
        assert numbers == list(range(500))


# ---------------------------------------------------------------- closing


async def test_close_wakes_all_waiting_tasks(fifo: Fifo) -> None:
    waits: list[Awaitable[None]] = [fifo.wait_filled() for _ in range(10)]
    waits += [fifo.pop(nothing) for _ in range(10)]
    waits += [fifo.pop_batch(nothing, nothing) for _ in range(10)]
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await settle()

    fifo.close()
    await asyncio.wait(tasks, timeout=1)

    assert [type(task.exception()) for task in tasks] == [QueueShutDown] * 30


async def test_close_of_a_fifo_wakes_all_waiting_tasks() -> None:
    fifo = FIFO[Thing]()
    tasks = [asyncio.create_task(fifo.pop(nothing)) for _ in range(10)]
    await settle()

    fifo.close()
    await asyncio.wait(tasks, timeout=1)

    assert [type(task.exception()) for task in tasks] == [QueueShutDown] * 10


async def test_entries_of_closed_queue_can_be_popped(
    fifo: Fifo, record: Record
) -> None:
    fifo.feed(deltas("a", "b"), "7")
    before = fifo.closed

    fifo.close()
    fifo.close()  # idempotent
    await fifo.wait_filled()
    await fifo.pop(record)
    put(fifo, "+c1")

    assert [*record, *take_all(fifo)] == ["~a0", "~b0", "+c1"]
    await fifo.wait_filled()  # there is a version
    assert fifo.applied() == "7"
    assert (before, fifo.closed) == (False, True)


@each_wait
async def test_closed_and_empty_queue_raises_queue_shut_down(
    fifo: Fifo, wait: Callable[[Fifo], Awaitable[None]]
) -> None:
    fifo.close()

    with pytest.raises(QueueShutDown):
        fifo.pop_nowait()

    with pytest.raises(QueueShutDown):
        await wait(fifo)


# ---------------------------------------------------------------- cancellation


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda fifo: fifo.pop(nothing), id="pop"),
        pytest.param(lambda fifo: fifo.pop_batch(nothing, nothing), id="pop_batch"),
    ],
)
async def test_queue_coroutines_without_wait_do_not_suspend(
    fifo: Fifo, work: Any
) -> None:
    """Each does all of its work in its first step, or none."""
    fifo.feed(deltas("a"))
    task = asyncio.create_task(work(fifo))
    task.cancel()
    await asyncio.wait({task})
    untouched = len(fifo) == 1 and not fifo.closed

    with pytest.raises(StopIteration):
        work(fifo).send(None)

    assert task.cancelled()
    assert untouched


@pytest.mark.parametrize("cancel_first", [True, False], ids=["before", "after"])
@each_wait
async def test_waiter_cancelled_as_batch_arrives_takes_nothing(
    fifo: Fifo, wait: Any, cancel_first: bool
) -> None:
    waiter = asyncio.create_task(wait(fifo))
    await settle()

    if cancel_first:
        waiter.cancel()

    fifo.feed(deltas("a"))
    waiter.cancel()
    await asyncio.wait({waiter})

    assert waiter.cancelled()
    assert take_all(fifo) == ["~a0"]


async def test_waiter_cancelled_as_batch_arrives_leaves_it_to_another(
    fifo: Fifo, record: Record
) -> None:
    first = asyncio.create_task(fifo.pop(nothing))
    second = asyncio.create_task(fifo.pop(record))
    await settle()

    fifo.feed(deltas("a"))
    first.cancel()
    async with asyncio.timeout(1):
        await second

    assert record == ["~a0"]
    assert first.cancelled()


async def test_waiter_cancelled_during_close_leaves_no_waiter(
    fifo: Fifo,
) -> None:
    first = asyncio.create_task(fifo.pop(nothing))
    second = asyncio.create_task(fifo.pop(nothing))
    await settle()

    fifo.close()
    first.cancel()
    async with asyncio.timeout(1):
        await asyncio.wait({first, second})

    assert first.cancelled()
    assert isinstance(second.exception(), QueueShutDown)


async def test_pop_cancelled_after_a_requeue_loses_nothing(
    fifo: Fifo,
) -> None:
    """The turn after a requeue is its only wait while it holds an entry."""
    fifo.add(Thing("a"))
    popper = fifo.pop(again)
    popper.send(None)

    with pytest.raises(asyncio.CancelledError):
        popper.throw(asyncio.CancelledError())

    assert take_all(fifo) == ["+a0"]


async def test_timeout_around_wait_filled_loses_nothing(fifo: Fifo) -> None:
    async def feed() -> None:
        await asyncio.sleep(3)  # ends in the very turn in which the timeout cancels
        fifo.feed(deltas("a"))

    feeder = asyncio.create_task(feed())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            await fifo.wait_filled()

    await feeder
    assert take_all(fifo) == ["~a0"]
