"""`SharedInformer`: cancellation in any turn of the loop, and by called code."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from fake_source import (
    FakeSource,
    Page,
    Stream,
    added,
    deleted,
    error_event,
    modified,
    states_of,
    thing,
)
from informer_helpers import Even, Recorder, Slow, pods_of, running, settle
from pipeline_helpers import View
from task_helpers import cancelled_after

from aioinformer.errors import InformerStopped, InternalError, ServerError
from aioinformer.informer import SharedInformer

if TYPE_CHECKING:
    from aioinformer.errors import HandlerError
    from aioinformer.model import KubeObject
    from aioinformer.watch import WatchEvent

BUSY = ServerError("busy", status=503)

# ---------------------------------------------------------------- by its caller


def script() -> FakeSource:
    """Make a source with a list, an expired watch, a failed list, a list and a watch."""
    return FakeSource(
        [
            Page([thing("a"), thing("b")], version=5, token="t"),
            Page([thing("c")], version=5),
            BUSY,
            Page([thing("a", 9), thing("d", 7)], version=9),
        ],
        [
            Stream([modified(thing("a", 6)), added(thing("d", 7))], [error_event(410)]),
            Stream([deleted(thing("a", 10))]),
        ],
    )


# Possible contents of the store from each moment on: at the start, at the list after
# the 410, and at the list after the refused one.
STATES = ["", "a@1 b@1 c@1", "a@6 b@1 c@1 d@7", "a@9 d@7", "d@7"]
MOMENTS = {0.0: STATES[:3], 0.5: STATES[2:3], 1.7: STATES[2:]}


async def read_events(pods: SharedInformer) -> None:
    async with pods.events() as events:
        async for _ in events:
            pass


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
async def test_informer_cancelled_in_any_turn_leaves_nothing(
    moment: float, twice: bool
) -> None:
    """Waiters raise, and handlers have every stored object."""
    before = asyncio.all_tasks()
    seen = set()
    for turns in range(1, 60):
        source = script()
        pods = SharedInformer(source, rng=Even(), transform=lambda obj: obj)
        view = View()
        pods.add_event_handler(on_event=view)
        users = [
            asyncio.create_task(use)
            for use in (
                pods.wait_for_version("100"),
                pods.wait_until(lambda store: False),
                pods.wait_until(lambda obj: False, "default/none"),
                read_events(pods),
            )
        ]
        times = 2 if twice else 1
        task = await cancelled_after(pods.run(), turns, times, moment=moment)
        ends = await asyncio.gather(*users, return_exceptions=True)

        assert task.cancelled()
        assert {type(end) for end in ends} == {InformerStopped}
        assert source.open == 0
        assert asyncio.all_tasks() == before
        seen.add(" ".join(sorted(states_of(pods.store.list()))))
        assert view.broken == []
        if not twice:
            stored = {obj.key: obj.resource_version for obj in pods.store.list()}
            assert view.objects == stored

    assert sorted(seen) == sorted(MOMENTS[moment])


# ---------------------------------------------------------------- by user code


def cancelled(*_: object, **__: object) -> NoReturn:
    """Raise the error of a cancelled future."""
    raise asyncio.CancelledError


def fails(_: object) -> NoReturn:
    raise ValueError


class Sink:
    """A sink that raises."""

    enabled = True
    count = gauge = observe = staticmethod(cancelled)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"transform": cancelled}, id="transform"),
        pytest.param({"indexers": {"team": cancelled}}, id="index-function"),
        pytest.param({"transform": fails, "on_error": cancelled}, id="on_error"),
        pytest.param({"metrics": Sink()}, id="metrics"),
        pytest.param({}, id="handler-filter-watch-error-handler"),
    ],
)
async def test_user_code_that_raises_cancelled_error_ends_nothing(
    options: dict[str, Any],
) -> None:
    stream, page = Stream(), Page([thing("a")], version=5)
    pods = pods_of(BUSY, page, watches=(stream,), **options)
    seen = Recorder()
    pods.add_event_handler(on_event=cancelled)
    pods.add_event_handler(on_event=seen, filter=cancelled)
    pods.set_watch_error_handler(cancelled)

    async with running(pods.run()):
        await pods.wait_synced(timeout=30)
        stream.send(modified(thing("a", 6)))
        await asyncio.sleep(1)
        phase, stored = pods.status.phase, states_of(pods.store.list())

    assert (phase, stored, seen.record) == ("watching", ["a@6"], ["a", "a"])


async def test_each_cancelled_error_of_user_code_is_reported() -> None:
    failures: list[HandlerError] = []
    pods = pods_of(
        transform=cancelled,
        indexers={"team": cancelled},
        on_error=failures.append,
    )
    async with running(pods.run()):
        await pods.wait_synced(timeout=30)

    assert {it.where for it in failures} == {"transform", "index function"}
    assert {type(it.__cause__) for it in failures} == {asyncio.CancelledError}
    assert pods.status.degraded == 2


class SelfCancelling(Stream):
    async def _fetch(self) -> list[WatchEvent]:
        raise asyncio.CancelledError


async def test_source_that_raises_cancelled_error_ends_the_informer() -> None:
    """A TaskGroup would take it for a task that it cancelled, and hang."""
    pods = pods_of(watches=(SelfCancelling(),))

    with pytest.raises(InternalError, match="cancelled itself"):
        async with asyncio.timeout(60):
            await pods.run()

    assert pods.status.phase == "stopped"
    with pytest.raises(InformerStopped):
        pods.lister.list()


# ---------------------------------------------------------------- by other code


PARTS = ["pods reflector", "pods pipeline", "pods processor", "handler pods/greet"]


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("begun", [False, True], ids=["unbegun", "begun"])
async def test_informer_dies_when_one_of_its_tasks_is_cancelled_alone(
    name: str, begun: bool
) -> None:
    pods = pods_of()
    pods.add_event_handler(on_event=Recorder(), name="greet")
    deaths: list[BaseException] = []
    pods.set_death_handler(deaths.append)
    life = asyncio.create_task(pods.run())
    waiters = [
        asyncio.create_task(pods.wait_until(lambda store: False)),
        asyncio.create_task(pods.wait_for_version("100")),
        asyncio.create_task(read_events(pods)),
    ]
    if begun:
        await pods.wait_synced(timeout=30)

    while not (tasks := [it for it in asyncio.all_tasks() if it.get_name() == name]):
        await asyncio.sleep(0)

    tasks[0].cancel()
    async with asyncio.timeout(60):
        ends = await asyncio.gather(*waiters, return_exceptions=True)
        with pytest.raises(InternalError, match=name) as failed:
            await life

    assert {type(end) for end in ends} == {InformerStopped}
    assert deaths == [failed.value]
    assert pods.status.phase == "stopped"
    assert pods.status.last_error is failed.value


@pytest.mark.parametrize("role", ["transform", "index", "on_error", "watch-errors"])
async def test_informer_dies_when_user_code_cancels_its_task(role: str) -> None:
    """The code returns normally, and the cancellation arrives at a later wait."""

    def cancel(obj: Any) -> Any:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return [] if role == "index" else obj

    roles: dict[str, dict[str, Any]] = {
        "transform": {"transform": cancel},
        "index": {"indexers": {"team": cancel}},
        "on_error": {"transform": fails, "on_error": cancel},
    }
    pods = pods_of(BUSY, Page([thing("a")], version=5), **roles.get(role, {}))
    if role == "watch-errors":
        pods.set_watch_error_handler(cancel)

    with pytest.raises(InternalError, match="pods reflector"):
        async with asyncio.timeout(60):
            await pods.run()

    assert pods.status.phase == "stopped"


async def test_stop_precedes_a_task_cancelled_at_the_same_time() -> None:
    """Closing a loop cancels all its tasks."""
    for order in (1, -1):
        before = asyncio.all_tasks()
        pods = pods_of()
        pods.add_event_handler(on_event=Recorder())
        deaths: list[BaseException] = []
        pods.set_death_handler(deaths.append)
        life = asyncio.create_task(pods.run())
        await pods.wait_synced(timeout=30)
        ours = sorted(asyncio.all_tasks() - before, key=lambda it: it.get_name())
        for task in ours[::order]:
            task.cancel()

        await asyncio.wait({life})
        assert life.cancelled()
        assert deaths == []


async def test_handler_cancelled_during_the_stop_is_no_failure() -> None:
    pods = pods_of()
    pods.add_event_handler(on_event=Slow(), name="greet")
    life = asyncio.create_task(pods.run())
    await pods.wait_synced(timeout=30)
    life.cancel()
    await settle()
    for task in asyncio.all_tasks():
        if task.get_name() == "handler pods/greet":
            task.cancel()

    await asyncio.wait({life})
    assert life.cancelled()


async def test_predicate_that_raises_cancelled_error_ends_only_its_waiter() -> None:
    pods = pods_of()

    def stop(_: KubeObject | None) -> NoReturn:
        raise asyncio.CancelledError

    async with running(pods.run()):
        with pytest.raises(asyncio.CancelledError):
            await pods.wait_until(stop, key="default/a")

        await pods.wait_until(lambda obj: obj is not None, key="default/a")
