"""`Processor` with handlers that fail, cancel themselves, or do not stop."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from fake_source import thing
from informer_helpers import (
    Recorder,
    Slow,
    Stage,
    events,
    name_of,
    running,
    settle,
)

from aioinformer._tasks import unwrap_group
from aioinformer.errors import InternalError
from aioinformer.informer import Added

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    from informer_helpers import Handler

    from aioinformer.informer.notifications import Notification


@pytest.fixture
def processor() -> Stage:
    return Stage()


# ---------------------------------------------------------------- failures


def fails_plainly(_: Notification) -> None:
    raise ValueError("no")


async def fails_at_once(_: Notification) -> None:
    raise ValueError("no")


async def fails_later(_: Notification) -> None:
    await asyncio.sleep(1)
    raise ValueError("no")


def ends_an_iteration(_: Notification) -> None:
    raise StopIteration("no")


def gives_up(_: Notification) -> None:
    raise asyncio.CancelledError("no")


async def gives_up_at_once(_: Notification) -> None:
    raise asyncio.CancelledError("no")


async def gives_up_later(_: Notification) -> None:
    await asyncio.sleep(1)
    raise asyncio.CancelledError("no")


async def awaits_what_is_cancelled(_: Notification) -> None:
    task = asyncio.create_task(asyncio.sleep(9))
    await asyncio.sleep(0)
    task.cancel("no")
    await task


async def cancels_its_task(_: Notification) -> None:
    cancel_own_task()
    await asyncio.sleep(1)


async def cancels_its_task_later(_: Notification) -> None:
    await asyncio.sleep(1)
    cancel_own_task()
    await asyncio.sleep(1)


def cancel_own_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel("no")


@pytest.mark.parametrize(
    "fails",
    [
        fails_plainly,
        fails_at_once,
        fails_later,
        ends_an_iteration,
        gives_up,
        gives_up_at_once,
        gives_up_later,
        awaits_what_is_cancelled,
        cancels_its_task,
        cancels_its_task_later,
    ],
)
async def test_failure_is_reported_and_the_next_event_delivered(
    processor: Stage,
    fails: Handler,
) -> None:
    record = []

    def handler(event: Notification) -> Awaitable[None] | None:
        record.append(name_of(event))
        return fails(event) if event.obj.name == "b" else None  # type: ignore[union-attr]

    listener = processor.listen(handler)
    other = Recorder()
    processor.listen(other)

    async with running(processor.run()):
        processor.publish(events("a", "b", "c"))
        processor.publish(events("d"))
        await processor.drained()

        assert not listener.ended

    assert record == ["a", "b", "c", "d"]
    assert other.record == record
    (failure,) = processor.failures
    assert (failure.where, failure.name) == ("handler", "pods/greet")
    assert failure.subject == Added(thing("b"))
    cause = failure.__cause__
    assert isinstance(cause, ValueError | StopIteration | asyncio.CancelledError)


async def stream(_: Notification) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("returned", [stream, lambda _: (it for it in "a")])
async def test_handler_that_returns_a_generator_is_reported(
    processor: Stage, returned: Any
) -> None:
    processor.listen(lambda event: returned(event))  # its signature does not show it

    async with running(processor.run()):
        processor.publish(events("a"))
        await processor.drained()

    (failure,) = processor.failures
    assert isinstance(failure.__cause__, TypeError)
    assert "which has not run" in str(failure.__cause__)


async def cancels_its_task_at_its_end(_: Notification) -> None:
    await asyncio.sleep(1)
    cancel_own_task()


async def cancels_its_task_twice(_: Notification) -> None:
    cancel_own_task()
    try:
        await asyncio.sleep(1)
    except asyncio.CancelledError:
        cancel_own_task()


async def takes_its_cancelling_back(_: Notification) -> None:
    cancel_own_task()
    task = asyncio.current_task()
    assert task is not None
    try:
        await asyncio.sleep(1)
    except asyncio.CancelledError:
        task.uncancel()


async def has_a_timeout(_: Notification) -> None:
    try:
        async with asyncio.timeout(1):
            await asyncio.Event().wait()
    except TimeoutError:
        await asyncio.sleep(1)


@pytest.mark.parametrize(
    "handler",
    [
        lambda _: cancel_own_task(),
        cancels_its_task_at_its_end,
        cancels_its_task_twice,
        takes_its_cancelling_back,
        has_a_timeout,
    ],
    ids=["plain", "at-its-end", "twice", "taken-back", "timeout"],
)
async def test_handler_that_cancels_its_task_is_called_again(
    processor: Stage,
    handler: Handler,
) -> None:
    calls = 0

    def counted(event: Notification) -> Awaitable[None] | None:
        nonlocal calls
        calls += 1
        return handler(event)

    listener = processor.listen(counted)

    async with running(processor.run()):
        processor.publish(events("a", "b"))
        processor.publish(events("c"))
        await listener.wait_idle()

    assert calls == 3
    assert processor.failures == []
    assert listener.ended


async def test_handler_cannot_swallow_its_own_stop(processor: Stage) -> None:
    record = []

    async def handler(event: Notification) -> None:
        record.append(name_of(event))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(1)
            record.append("swallowed")

    processor.listen(handler)

    async with running(processor.run()):
        processor.publish(events("a", "b"))
        await settle()

    assert record == ["a", "swallowed"]


async def test_handler_that_fails_during_the_stop_is_reported(
    processor: Stage,
) -> None:
    async def handler(_: Notification) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("in clean-up")

    listener = processor.listen(handler)

    async with running(processor.run()):
        processor.publish(events("a", "b"))
        await settle()

    assert [str(failure.__cause__) for failure in processor.failures] == ["in clean-up"]
    assert listener.ended


async def test_stop_in_the_turn_in_which_a_handler_cancels_itself_ends_it(
    processor: Stage,
) -> None:
    handler = Recorder()

    def cancels(event: Notification) -> None:
        handler(event)
        cancel_own_task()
        task.cancel()

    processor.listen(cancels)
    task = asyncio.create_task(processor.run())
    await settle()
    processor.publish(events("a", "b"))

    await asyncio.wait({task})

    assert task.cancelled()
    assert handler.record in (["a"], ["a", "b"])


@pytest.mark.parametrize("waits", [False, True], ids=["idle", "in-a-call"])
async def test_processor_fails_when_the_task_of_a_handler_is_cancelled_from_outside(
    processor: Stage, waits: bool
) -> None:
    """Otherwise the handler would silently miss every later change."""

    async def handler(_: Notification) -> None:
        await asyncio.Event().wait()

    listener = processor.listen(handler)
    other = processor.listen(Recorder(), name="pods/other")
    life = asyncio.create_task(processor.run())
    await settle()
    if waits:
        processor.publish(events("a"))
        await settle()

    (task,) = (it for it in asyncio.all_tasks() if "pods/greet" in it.get_name())
    task.cancel()
    with pytest.raises(ExceptionGroup) as failed:
        await life

    assert isinstance(unwrap_group(failed.value), InternalError)
    assert listener.ended
    assert other.ended


@pytest.mark.parametrize("waits", [False, True], ids=["idle", "in-a-call"])
async def test_processor_that_drains_removes_a_handler_whose_task_is_cancelled(
    processor: Stage, caplog: pytest.LogCaptureFixture, waits: bool
) -> None:
    """The informer is stopping, and other handlers continue with queued events."""
    listener = processor.listen(Slow())
    slow = Slow(2.0)
    processor.listen(slow, name="pods/other")
    async with running(processor.run()):
        await settle()
        processor.publish(events("a", "b")[: 2 if waits else 0])
        draining = asyncio.create_task(processor.drained())
        await settle()
        (task,) = (it for it in asyncio.all_tasks() if "pods/greet" in it.get_name())
        task.cancel()
        await draining
        await settle()

        assert listener.ended
        assert listener.depth == 0, "no events are queued for it"
        assert slow.record == (["a", "b"] if waits else [])

    assert caplog.messages == [
        "handler pods/greet stopped: other code cancelled its task"
    ]


async def test_removal_and_stop_are_not_reported_as_cancellations(
    processor: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    removed = processor.listen(Recorder())
    processor.listen(Recorder())
    async with running(processor.run()):
        await settle()
        processor.remove(removed)
        await settle()

    assert caplog.messages == []


# ---------------------------------------------------------------- leftover cancellations


async def has_a_group_that_fails(_: Notification) -> None:
    async def fails() -> None:
        raise ValueError("in a task")

    async with asyncio.TaskGroup() as group:
        group.create_task(fails())


async def cancels_itself_and_has_a_timeout(event: Notification) -> None:
    cancel_own_task()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(1)

    await has_a_timeout(event)


@pytest.mark.parametrize(
    "handler", [has_a_group_that_fails, cancels_itself_and_has_a_timeout]
)
async def test_cancellation_left_by_a_call_does_not_end_the_handler(
    processor: Stage, handler: Handler
) -> None:
    """Up to Python 3.12 a TaskGroup does not always take back its cancellation."""
    calls = 0

    def counted(event: Notification) -> Awaitable[None] | None:
        nonlocal calls
        calls += 1
        return handler(event)

    listener = processor.listen(counted)

    async with running(processor.run()):
        processor.publish(events("a", "b"))
        processor.publish(events("c"))
        await listener.wait_idle()
        assert not listener.ended

    assert calls == 3


@pytest.mark.parametrize("waits", [False, True], ids=["plain", "waits"])
async def test_cancellation_of_one_call_does_not_count_for_the_next(
    processor: Stage, waits: bool
) -> None:
    """The calls follow each other without a wait."""
    calls = 0

    async def handler(event: Notification) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            await has_a_timeout(event)
        elif calls == 2:
            cancel_own_task()
            if waits:
                await asyncio.sleep(0)

    listener = processor.listen(handler)

    async with running(processor.run()):
        processor.publish(events("a", "b", "c", "d"))
        await listener.wait_idle()
        assert not listener.ended

    assert calls == 4


async def test_stop_works_after_a_call_took_back_its_cancellation(
    processor: Stage,
) -> None:
    """A cancellation by a call does not excuse it from a later stop."""
    handled = asyncio.Event()
    ended = False

    async def handler(event: Notification) -> None:
        nonlocal ended
        if name_of(event) == "a":
            cancel_own_task()
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_soon(task.uncancel)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1)

            await asyncio.sleep(1)
            handled.set()
        else:
            try:
                await asyncio.Event().wait()
            finally:
                ended = True

    processor.listen(handler)
    task = asyncio.create_task(processor.run())
    await settle()
    processor.publish(events("a", "b"))
    await handled.wait()
    await settle()
    task.cancel()
    await settle()

    assert task.done()
    assert ended
