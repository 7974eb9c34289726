"""`SharedInformer`: single run, drain on stop, and death by bugs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from fake_source import FakeSource, Page, Silence, Stream, added, thing
from informer_helpers import Recorder, Slow, pods_of, running, settle

from aioinformer.errors import InformerStopped, InternalError, OptionsError
from aioinformer.informer import SharedInformer
from aioinformer.informer.handlers.processor import Processor
from aioinformer.informer.store.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.informer.notifications import Notification

# ---------------------------------------------------------------- once


async def test_informer_runs_only_once() -> None:
    pods = pods_of()

    async with running(pods.run()):
        await settle()
        with pytest.raises(OptionsError, match="pods runs only once"):
            await pods.run()

        assert pods.has_synced
        assert pods.status.phase == "watching", "the second call changed nothing"

    with pytest.raises(OptionsError):
        await pods.run()


async def test_abandoned_informer_does_not_run() -> None:
    pods = pods_of()
    registration = pods.add_event_handler(on_event=Recorder())
    waiters = [
        asyncio.create_task(pods.wait_synced()),
        asyncio.create_task(registration.wait_synced()),
    ]
    await settle()

    pods.abandon()
    pods.abandon()

    for waiter in waiters:
        with pytest.raises(InformerStopped):
            await waiter

    with pytest.raises(InformerStopped):
        await pods.run()

    assert pods.status.phase == "stopped"


# ---------------------------------------------------------------- drain


async def test_handlers_finish_queued_events_on_stop(looptime: float) -> None:
    pods = pods_of()
    handler = Slow(2)
    pods.add_event_handler(on_event=handler)

    async with running(pods.run()) as task:
        await asyncio.sleep(1)

    assert task.cancelled()
    assert handler.record == ["a", "b"]
    assert looptime == 4


async def test_handlers_have_5_s_to_finish(looptime: float) -> None:
    pods = pods_of()
    slow, stuck = Slow(3), Slow(1000)
    pods.add_event_handler(on_event=slow)
    pods.add_event_handler(on_event=stuck)

    async with running(pods.run()):
        await asyncio.sleep(1)

    assert looptime == 6
    assert (slow.record, slow.running) == (["a", "b"], 0)
    assert (stuck.record, stuck.running) == ([], 0)


async def test_dropped_notifications_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pods = pods_of()
    pods.add_event_handler(on_event=Slow(1000), name="stuck")
    pods.add_event_handler(on_event=Slow(1), name="done")

    async with running(pods.run()):
        await asyncio.sleep(1)

    (warning,) = [it.message for it in caplog.records if it.levelname == "WARNING"]
    assert warning == (
        "handler pods/stuck: dropping 2 notifications, not delivered within 5 s of the "
        "informer's stop"
    )


async def test_handler_that_does_not_stop_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(_: Notification) -> None:
        for _turn in range(3):
            try:
                await asyncio.sleep(15)
            except asyncio.CancelledError:
                continue

    pods = pods_of()
    pods.add_event_handler(on_event=handler, name="stubborn")
    pods.add_event_handler(on_event=Recorder())

    async with running(pods.run()):
        await asyncio.sleep(1)

    (warning,) = [it.message for it in caplog.records if "Cancelled" in it.message]
    assert warning == (
        "handler pods/stubborn did not stop within 10 s of its cancellation (does it "
        "swallow CancelledError?)"
    )


async def test_connection_is_closed_before_handlers_finish() -> None:
    source = FakeSource([Page([thing("a")], version=5)])
    pods = SharedInformer(source)
    pods.add_event_handler(on_event=Slow(2))
    open_at = []

    async with running(pods.run()) as task:
        await asyncio.sleep(1)
        open_at.append(source.open)
        task.cancel()
        await settle()
        open_at.append(source.open)

        assert not task.done()

    assert open_at == [1, 0]


async def test_handlers_can_read_while_they_finish() -> None:
    pods = pods_of()
    found = []

    async def handler(event: Notification) -> None:
        await asyncio.sleep(1)
        found.append(len(pods.lister.list()))

    pods.add_event_handler(on_event=handler)

    async with running(pods.run()):
        await settle()

    assert found == [2, 2]


async def test_second_cancellation_ends_the_informer_at_once(looptime: float) -> None:
    pods = pods_of()
    stuck = Slow(1000)
    registration = pods.add_event_handler(on_event=stuck)

    async with running(pods.run()) as task:
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.sleep(2)
        assert not task.done()
        task.cancel()
        await asyncio.wait({task})

    assert task.cancelled()
    assert looptime == 3
    assert stuck.running == 0
    with pytest.raises(InformerStopped):
        await registration.wait_synced()


async def test_informer_can_be_stopped_before_the_first_response(
    looptime: float,
) -> None:
    pods = pods_of(Silence())
    pods.add_event_handler(on_event=Slow())

    async with running(pods.run()) as task:
        await settle()

    assert task.cancelled()
    assert looptime == 0


async def test_handler_added_after_the_end_is_refused() -> None:
    pods = pods_of()
    async with running(pods.run()):
        await settle()

    with pytest.raises(InformerStopped, match="pods has ended"):
        pods.add_event_handler(on_event=Recorder())

    with pytest.raises(InformerStopped):
        pods.add_indexers({})


# ---------------------------------------------------------------- bugs


class Bug(InternalError):
    """A made-up bug of the package."""


async def dies(*_: object, **__: object) -> None:
    await asyncio.sleep(1)
    raise Bug("broken invariant") from KeyError("why")


@pytest.mark.parametrize(
    ("owner", "method"),
    [(Pipeline, "run"), (Pipeline, "stage"), (Pipeline, "commit"), (Processor, "run")],
    ids=["pipeline", "staging", "commit", "processor"],
)
async def test_informer_dies_of_a_bug_and_reports_it(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str
) -> None:
    monkeypatch.setattr(owner, method, dies)
    pods = pods_of()
    registration = pods.add_event_handler(on_event=Recorder())
    waiters = [
        asyncio.create_task(registration.wait_synced()),
        asyncio.create_task(pods.wait_for_version("99")),
    ]

    with pytest.raises(Bug) as raised:
        await pods.run()

    assert isinstance(raised.value.__cause__, KeyError), "the cause is kept"
    for waiter in waiters:
        with pytest.raises(InformerStopped):
            await waiter

    assert pods.status.phase == "stopped"
    for use in (
        pods.lister.list,
        lambda: pods.add_event_handler(on_event=Recorder()),
    ):
        with pytest.raises(InformerStopped) as stopped:
            use()

        assert stopped.value.__cause__ is raised.value


async def test_wait_synced_raises_when_the_informer_dies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Pipeline, "stage", dies)
    pods = pods_of()
    waiter = asyncio.create_task(pods.wait_synced())

    with pytest.raises(Bug):
        await pods.run()

    with pytest.raises(InformerStopped) as stopped:
        await waiter

    assert isinstance(stopped.value.__cause__, Bug)


async def test_handlers_finish_queued_events_when_the_informer_dies(
    monkeypatch: pytest.MonkeyPatch, looptime: float
) -> None:
    monkeypatch.setattr(Pipeline, "feed", dies)
    pods = pods_of(watches=(Stream([added(thing("c", 9))]),))
    handler = Slow(2)
    pods.add_event_handler(on_event=handler)

    with pytest.raises(Bug):
        await pods.run()

    assert handler.record == ["a", "b"]
    assert looptime == 4


async def test_several_bugs_at_once_are_raised_as_a_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for method in ("run", "stage"):
        monkeypatch.setattr(Pipeline, method, dies)

    with pytest.raises(ExceptionGroup) as raised:
        await pods_of().run()

    assert raised.group_contains(Bug, depth=2)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(lambda: FakeSource([Silence()]), id="listing"),
        pytest.param(lambda: FakeSource([Page([thing("a")])]), id="watching"),
        pytest.param(lambda: FakeSource([OSError()]), id="dead"),
    ],
)
async def test_stopped_informer_leaves_nothing(
    source: Callable[[], FakeSource],
) -> None:
    answers = source()
    pods = SharedInformer(answers)
    pods.add_event_handler(on_event=Slow(1000))
    tasks = asyncio.all_tasks()

    task = asyncio.create_task(pods.run())
    await settle()
    task.cancel()
    await asyncio.wait({task})

    assert asyncio.all_tasks() == tasks
    assert answers.open == 0
    if not task.cancelled():
        assert isinstance(task.exception(), OSError)
