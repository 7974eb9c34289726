"""An informer cancelled at every await: no event is lost, and no task remains."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from factory_helpers import FakeClient
from fake_source import END, FakeSource, Page, Stream, added, deleted, modified, thing
from informer_helpers import Even, Slow, running, settle
from pipeline_helpers import View
from task_helpers import cancelled_after

from aioinformer.errors import InformerStopped, ServerError, TransportError
from aioinformer.informer import (
    SharedInformer,
    SharedInformerFactory,
    wait_for_cache_sync,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioinformer.informer import Registration
    from aioinformer.informer.notifications import Notification

BUSY = ServerError("busy", status=503)
BROKEN = TransportError("broken")

TURNS = 60
"""More turns of the loop than any moment takes; a test below checks that."""


def scripted() -> FakeSource:
    """Make a source that fails, lists, changes, breaks, loses its history, and relists."""
    changes = [modified(thing("a", 8)), deleted(thing("b", 9)), added(thing("d", 10))]
    return FakeSource(
        [
            BUSY,
            Page([thing("a"), thing("b")], version=7, token="t1"),
            Page([thing("c")], version=7),
            Page([thing("d", 10), thing("a", 12)], version=12),
        ],
        [
            Stream(2.0, changes, [added(thing("e", 11))], BROKEN),
            Stream(2.0, [modified(thing("a", 5))]),  # history lost: a list follows
            Stream(2.0, END),
        ],
    )


MOMENTS = [0.0, 1.2, 3.2, 3.6, 5.6, 8.4]


class Rig:
    """An informer of that source, with two handlers."""

    def __init__(self) -> None:
        self.source = scripted()
        self.pods = SharedInformer(self.source, name="pods", rng=Even())
        self.views = [View(), View()]
        self.pods.add_event_handler(on_event=self.views[0])
        self.pods.add_event_handler(on_event=self.follow)

    async def follow(self, event: Notification) -> None:
        await asyncio.sleep(0)
        self.views[1](event)

    @property
    def stored(self) -> dict[str, str]:
        return {obj.key: obj.resource_version for obj in self.pods.store.list()}


@pytest.fixture(params=["no-slices", "tiny-slices"])
def slices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run with no limit on slices, or with a slice for each object."""
    seconds = 1e9 if request.param == "no-slices" else 0.0
    monkeypatch.setattr("aioinformer.budget.SLICE_SECONDS", seconds)
    return str(request.param)


# ---------------------------------------------------------------- informers


@pytest.mark.parametrize("moment", MOMENTS)
async def test_informer_cancelled_at_any_await_leaves_nothing_and_loses_no_event(
    moment: float, slices: str
) -> None:
    before = asyncio.all_tasks()
    for turns in range(0, TURNS, 1 if slices == "no-slices" else 2):
        rig = Rig()

        task = await cancelled_after(rig.pods.run(), turns, moment=moment)

        assert task.cancelled()
        assert rig.source.open == 0
        assert asyncio.all_tasks() == before
        if rig.pods.status.phase == "idle":
            assert turns == 0, "cancelled before its first step"
            assert moment == 0
            continue

        assert rig.pods.status.phase == "stopped"
        with pytest.raises(InformerStopped):
            rig.pods.lister.list()

        # The events of the handlers add up to the store.
        for view in rig.views:
            assert view.broken == []
            # With tiny slices, a list may be visible while its events are still being
            # queued.
            if slices == "no-slices":
                assert view.objects == rig.stored


@pytest.mark.parametrize("moment", MOMENTS)
async def test_second_cancellation_ends_informer_at_once(moment: float) -> None:
    loop = asyncio.get_running_loop()
    before = asyncio.all_tasks()
    for turns in range(1, TURNS, 2):
        rig = Rig()
        rig.pods.add_event_handler(on_event=Slow(1000))
        began = loop.time()

        task = await cancelled_after(rig.pods.run(), turns, times=10, moment=moment)

        assert task.cancelled()
        assert loop.time() - began == pytest.approx(moment, abs=1e-3)
        assert asyncio.all_tasks() == before
        assert rig.source.open == 0


async def test_cancellation_points_cover_the_whole_run() -> None:
    rig = Rig()
    seen = []
    async with running(rig.pods.run()):
        at = 0.0
        for moment in MOMENTS:
            await asyncio.sleep(moment - at)
            at = moment
            for _ in range(TURNS):
                await asyncio.sleep(0)

            seen.append(
                (len(rig.source.requests), rig.stored, dict(rig.views[1].objects))
            )

    assert seen[0] == (1, {}, {})
    first = {"default/a": "1", "default/b": "1", "default/c": "1"}
    assert seen[1] == (4, first, first)
    assert (
        seen[2][1]
        == seen[2][2]
        == {"default/a": "8", "default/c": "1"}
        | {
            "default/d": "10",
            "default/e": "11",
        }
    )
    assert seen[-1][1] == seen[-1][2] == {"default/d": "10", "default/a": "12"}
    assert rig.source.requested == [
        *("list '0'", "list '0'", "list t1", "watch '7'"),
        *("watch '11'", "list ''", "watch '12'"),
    ]
    assert rig.pods.status.history_resets == 1


# ---------------------------------------------------------------- waiters

WAITERS: dict[str, Callable[[Rig, Registration], Coroutine[Any, Any, None]]] = {
    "wait_synced": lambda rig, _: rig.pods.wait_synced(timeout=60),
    "wait_for_cache_sync": lambda rig, _: wait_for_cache_sync(rig.pods, timeout=60),
    "wait_for_version": lambda rig, _: rig.pods.wait_for_version("7", timeout=60),
    "registration": lambda _, registration: registration.wait_synced(),
}


@pytest.mark.parametrize("waiter", WAITERS.values(), ids=WAITERS)
async def test_cancelled_waiter_does_not_affect_informer_or_other_waiters(
    waiter: Callable[[Rig, Registration], Coroutine[Any, Any, None]],
) -> None:
    for turns in range(0, TURNS, 3):
        rig = Rig()
        registration = rig.pods.add_event_handler(on_event=Slow(0))
        async with running(rig.pods.run()):
            other = asyncio.create_task(waiter(rig, registration))
            await settle()
            tasks = asyncio.all_tasks()

            await cancelled_after(waiter(rig, registration), turns, moment=1.1999)

            assert asyncio.all_tasks() <= tasks
            await other
            assert rig.pods.has_synced


async def test_cancelled_aclose_still_removes_the_handler() -> None:
    for turns in range(12):
        rig = Rig()
        slow = Slow(2)
        registration = rig.pods.add_event_handler(on_event=slow)
        async with running(rig.pods.run()):
            await asyncio.sleep(1.5)
            closing = await cancelled_after(registration.aclose(), turns)
            await asyncio.sleep(5)

        assert slow.record[0] == "a", "the running call finished"
        assert (len(slow.record) == 1) == (turns > 0)
        assert closing.cancelled()


# ---------------------------------------------------------------- factories


async def test_cancelled_start_is_undone() -> None:
    before = asyncio.all_tasks()
    finished = undone = 0
    for turns in range(12):
        client = FakeClient()
        factory = SharedInformerFactory(client)
        pods = factory.informer("v1", "pods")

        task = await cancelled_after(factory.start(), turns)
        if task.cancelled() and "entered" in client.record:
            assert pods.status.phase == "stopped", "it runs once"
            undone += 1

        if not task.cancelled():
            finished += 1
            await factory.shutdown()

        assert asyncio.all_tasks() == before
        assert client.record.count("entered") == client.record.count("left")
        assert not client.entered

    assert 0 < finished < 12
    assert undone > 0


async def test_cancelled_shutdown_finishes_first() -> None:
    before = asyncio.all_tasks()
    for turns in range(1, 20):
        client = FakeClient()
        factory = SharedInformerFactory(client)
        pods = factory.informer("v1", "pods")
        await factory.start()
        await settle()

        await cancelled_after(factory.shutdown(), turns)

        assert asyncio.all_tasks() == before
        assert client.record == ["entered", "asked", "left"]
        assert pods.status.phase == "stopped"
        await factory.shutdown()


async def test_factory_left_at_any_await_of_its_start_wakes_its_waiters() -> None:
    for turns in range(20):
        factory = SharedInformerFactory(FakeClient())
        pods = factory.informer("v1", "pods")
        waiters = [
            asyncio.create_task(factory.wait_for_cache_sync()),
            asyncio.create_task(pods.wait_for_version("9")),
        ]
        await factory.start()
        for _ in range(turns):
            await asyncio.sleep(0)

        await factory.shutdown()

        for waiter in waiters:
            with pytest.raises(InformerStopped):
                await waiter
