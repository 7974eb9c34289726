"""Handlers of all kinds, stopped at every await: no leftovers and no duplicates."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from fake_source import thing
from informer_helpers import Stage, name_of, settle
from processor_model import HandlerModel

from aioinformer.errors import InformerStopped
from aioinformer.informer import Added, Deleted, Updated
from aioinformer.informer.handlers.inbox import Snapshot
from aioinformer.informer.handlers.resync import Resync

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from aioinformer.informer.handlers.listener import Listener
    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject

TURNS = 60


class MapStore:
    """The part of a store that a resync needs."""

    def __init__(self) -> None:
        self.objects: dict[str, KubeObject] = {}

    def list(self) -> list[KubeObject]:
        return [*self.objects.values()]

    def get_by_key(self, key: str) -> KubeObject | None:
        return self.objects.get(key)


class Rig:
    """A processor with handlers of all kinds, and many events at one moment."""

    def __init__(self) -> None:
        self.stage, self.store = Stage(), MapStore()
        self.received: dict[str, list[Notification]] = {}
        self.listeners: dict[str, Listener] = {}
        for coalesce in (False, True):
            for kind in ("plain", "waits", "sleeps", "fails"):
                name = f"{kind} {'coalesced' if coalesce else 'each'}"
                self.listen(name, kind, coalesce=coalesce)

            self.listen(f"picky {coalesce}", "waits", coalesce=coalesce, filter=is_odd)

    def listen(self, name: str, kind: str, **options: Any) -> None:
        received = self.received[name] = []

        def handle(event: Notification) -> Coroutine[Any, Any, None] | None:
            received.append(event)
            if kind == "fails":
                raise ValueError(name_of(event))

            return None if kind == "plain" else self.wait(kind)

        self.listeners[name] = self.stage.listen(
            handle, name=name, resync=Resync(1.0, self.store), **options
        )

    async def wait(self, kind: str) -> None:
        await asyncio.sleep(0.1 if kind == "sleeps" else 0)

    def happen(self) -> None:
        a, a2, b = thing("a", 1), thing("a", 2), thing("b", 3)
        self.stage.publish(Snapshot([a, b]))
        self.stage.mark_synced()
        self.stage.publish([Updated(a, a2), Deleted(b), Added(thing("c", 5))])
        another = thing("a", 7, uid="another")
        self.stage.publish([Deleted(a2, True), Added(another)])
        self.store.objects = {another.key: another, "default/c": thing("c", 5)}

    def timers(self) -> list[object]:
        loop: Any = asyncio.get_running_loop()
        ours = [it for it in loop._scheduled if "aioinformer" in repr(it)]
        return [timer for timer in ours if not timer.cancelled()]


def is_odd(obj: KubeObject) -> bool:
    return int(obj.resource_version) % 2 == 1


def check(received: list[Notification]) -> None:
    """Assert that the events were consistent: no second add, no update after the end."""
    model = HandlerModel({}, None, coalesce=False, crowded=10**9)
    model.received = received
    model.known()


@pytest.fixture(params=["no-slices", "tiny-slices"])
def slices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run with no limit on slices, or with a slice for each object."""
    seconds = 1e9 if request.param == "no-slices" else 0.0
    monkeypatch.setattr("aioinformer.budget.SLICE_SECONDS", seconds)
    monkeypatch.setattr("aioinformer.informer.handlers.inbox.CROWDED", 2)


@pytest.mark.parametrize("moment", [0.0, 0.15, 1.0, 1.05])
@pytest.mark.usefixtures("slices")
async def test_processor_stopped_at_any_await_leaves_nothing(moment: float) -> None:
    before = asyncio.all_tasks()
    for turns in range(0, TURNS, 3):
        rig = Rig()
        task = asyncio.create_task(rig.stage.run())
        rig.happen()
        await asyncio.sleep(moment)
        for _ in range(turns):
            await asyncio.sleep(0)

        task.cancel()
        await asyncio.wait({task})

        assert task.cancelled()
        assert asyncio.all_tasks() == before
        assert rig.timers() == []
        counts = {name: len(received) for name, received in rig.received.items()}
        await settle()
        assert counts == {
            name: len(received) for name, received in rig.received.items()
        }
        for name, listener in rig.listeners.items():
            check(rig.received[name])
            assert listener.ended
            if not listener.synced:
                with pytest.raises(InformerStopped):
                    await listener.wait_synced()


@pytest.mark.usefixtures("slices")
async def test_removed_handler_gets_no_further_event() -> None:
    for turns in range(0, TURNS, 3):
        rig = Rig()
        task = asyncio.create_task(rig.stage.run())
        rig.happen()
        for _ in range(turns):
            await asyncio.sleep(0)

        removed = [name for number, name in enumerate(rig.received) if number % 2]
        for name in removed:
            rig.stage.remove(rig.listeners[name])

        counts = {name: len(rig.received[name]) for name in removed}
        for name in removed:
            await rig.listeners[name].wait_ended()

        await rig.stage.drained()

        assert counts == {name: len(rig.received[name]) for name in removed}
        for name, received in rig.received.items():
            check(received)
            if name not in removed:
                assert final_state_of(received) == {"default/a": "7", "default/c": "5"}

        task.cancel()
        await asyncio.wait({task})
        assert rig.timers() == []


def final_state_of(received: list[Notification]) -> dict[str, str]:
    model = HandlerModel({}, None, coalesce=False, crowded=10**9)
    model.received = received
    return {key: obj.resource_version for key, obj in model.known().items()}


@pytest.mark.usefixtures("slices")
async def test_cancelled_waiter_does_not_affect_handlers_or_other_waiters() -> None:
    for turns in range(0, TURNS, 3):
        rig = Rig()
        life = asyncio.create_task(rig.stage.run())
        waiters = [
            asyncio.create_task(wait())
            for listener in rig.listeners.values()
            for wait in (listener.wait_synced, listener.wait_idle, listener.merge)
        ]
        rig.happen()
        for _ in range(turns):
            await asyncio.sleep(0)

        for waiter in waiters:
            waiter.cancel()

        await asyncio.wait(waiters)
        await rig.stage.drained()

        assert all(listener.synced for listener in rig.listeners.values())
        assert all(not listener._waiters for listener in rig.listeners.values())
        for received in rig.received.values():
            assert final_state_of(received) == {"default/a": "7", "default/c": "5"}

        life.cancel()
        await asyncio.wait({life})
