"""`Registration`: state of a handler, and its removal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from fake_source import FakeSource, Page, Stream, added, thing
from informer_helpers import Recorder, Slow, running, settle
from queue_helpers import error_in_thread

from aioinformer.errors import InformerStopped, InternalError, WrongLoop
from aioinformer.informer import SharedInformer

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.informer import Registration
    from aioinformer.informer.notifications import Notification


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
def pods(stream: Stream) -> SharedInformer:
    page = Page([thing("a"), thing("b")], version=5)
    return SharedInformer(FakeSource([page], [stream]), name="pods")


async def test_handler_is_synced_when_it_handled_the_first_list(
    pods: SharedInformer, looptime: float
) -> None:
    registration = pods.add_event_handler(on_event=Slow(3), name="slow")
    texts = [repr(registration)]

    async with running(pods.run()):
        await pods.wait_synced()
        states = [registration.has_synced]
        texts.append(repr(registration))
        await registration.wait_synced()
        states.append(registration.has_synced)

    assert states == [False, True]
    assert looptime == 6
    assert registration.name == "pods/slow"
    assert texts == [
        "<Registration pods/slow not synced depth=0>",
        "<Registration pods/slow not synced depth=2>",
    ]
    assert repr(registration) == "<Registration pods/slow synced depth=0>"


async def test_failing_handler_is_synced_too(pods: SharedInformer) -> None:
    def handler(event: Notification) -> None:
        raise ValueError(event)

    registration = pods.add_event_handler(on_event=handler)

    async with running(pods.run()):
        await registration.wait_synced()


async def test_late_handler_is_synced_after_its_snapshot(
    pods: SharedInformer, looptime: float
) -> None:
    async with running(pods.run()):
        await pods.wait_synced()
        registration = pods.add_event_handler(on_event=Slow())
        at_once = registration.has_synced
        await registration.wait_synced()

    assert not at_once
    assert looptime == 2


async def test_handler_of_an_empty_cache_is_synced_at_once() -> None:
    pods = SharedInformer(FakeSource())

    async with running(pods.run()):
        await pods.wait_synced()

        assert pods.add_event_handler(on_event=Recorder()).has_synced


async def test_depth_and_age_describe_the_queued_events(
    pods: SharedInformer, stream: Stream
) -> None:
    registration = pods.add_event_handler(on_event=Slow(10))
    values = [(registration.depth, registration.age)]

    async with running(pods.run()):
        await asyncio.sleep(4)
        values.append((registration.depth, registration.age))
        stream.send(added(thing("c", 6)))
        await asyncio.sleep(14)  # both listed objects are delivered after 20 s
        values.append((registration.depth, registration.age))
        await asyncio.sleep(4)
        values.append((registration.depth, registration.age))

    assert values == [(0, 0.0), (2, 4.0), (2, 18.0), (1, 18.0)]


async def test_handler_can_remove_itself(pods: SharedInformer) -> None:
    record: list[str] = []

    async def handler(event: Notification) -> None:
        record.append(str(type(event).__name__))
        await registration.aclose()
        record.append("closed")

    registration = pods.add_event_handler(on_event=handler)

    async with running(pods.run()):
        await settle()
        await registration.aclose()

    assert record == ["Added", "closed"]


async def test_aclose_waits_for_the_running_call(
    pods: SharedInformer, looptime: float
) -> None:
    handler = Slow(5)
    registration = pods.add_event_handler(on_event=handler)

    async with running(pods.run()):
        await asyncio.sleep(1)
        registration.remove()
        registration.remove()
        removed_at = float(looptime)
        await registration.aclose()

    assert removed_at == 1
    assert looptime == 5
    assert handler.record == ["a"]


async def test_handler_stays_removed_when_aclose_is_cancelled(
    pods: SharedInformer, stream: Stream
) -> None:
    handler = Slow(5)
    registration = pods.add_event_handler(on_event=handler)

    async with running(pods.run()):
        await asyncio.sleep(1)
        async with running(registration.aclose()):
            await settle()

        stream.send(added(thing("c", 6)))
        await asyncio.sleep(20)

    assert handler.record == ["a"]


@pytest.mark.parametrize("when", ["idle", "stopped"])
async def test_aclose_of_an_idle_handler_returns_at_once(
    pods: SharedInformer, when: str
) -> None:
    registration = pods.add_event_handler(on_event=Recorder())
    if when == "stopped":
        async with running(pods.run()):
            await settle()

    async with asyncio.timeout(1):
        await registration.aclose()


async def test_wait_synced_of_a_removed_handler_raises(
    pods: SharedInformer,
) -> None:
    registration = pods.add_event_handler(on_event=Recorder())
    registration.remove()

    with pytest.raises(InformerStopped, match="pods/Recorder has ended"):
        await registration.wait_synced()


async def test_wait_synced_fails_when_the_informer_ends() -> None:
    pods = SharedInformer(FakeSource([InternalError("a bug")]))
    registration = pods.add_event_handler(on_event=Recorder())
    waiter = asyncio.create_task(registration.wait_synced())
    await settle()

    with pytest.raises(InternalError):
        await pods.run()

    with pytest.raises(InformerStopped):
        await waiter


@pytest.mark.parametrize(
    "use",
    [
        lambda registration: registration.remove(),
        lambda registration: registration.age,
        lambda registration: asyncio.run(registration.wait_synced()),
        lambda registration: asyncio.run(registration.aclose()),
    ],
    ids=["remove", "age", "wait_synced", "aclose"],
)
async def test_registration_refuses_another_loop(
    pods: SharedInformer, use: Callable[[Registration], object]
) -> None:
    handler = Slow()
    registration = pods.add_event_handler(on_event=handler)

    async with running(pods.run()):
        await settle()
        error = error_in_thread(lambda: use(registration))
        await asyncio.sleep(5)

    assert isinstance(error, WrongLoop)
    assert handler.record == ["a", "b"]


async def test_registration_can_be_read_in_any_thread(pods: SharedInformer) -> None:
    registration = pods.add_event_handler(on_event=Slow())

    async with running(pods.run()):
        await settle()

        assert error_in_thread(lambda: repr(registration)) is None
