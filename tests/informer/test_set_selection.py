"""`SharedInformer.set_selection`: selections that change while an informer runs."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from informer_helpers import running, text_of

from aioinformer import Deleted, SharedInformer
from aioinformer.model.objects import KubeObject
from aioinformer.model.shards import ShardSelector, ranges_of
from aioinformer.testing import FakeListerWatcher
from aioinformer.watch import Selectors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.informer.notifications import Notification

HALVES = [ShardSelector((it,)) for it in ranges_of(2)]
ALL = ShardSelector(ranges_of(1))


def named(name: str, **labels: str) -> dict[str, Any]:
    uid = str(uuid.uuid5(uuid.NAMESPACE_DNS, name))
    return {"metadata": {"name": name, "uid": uid, "labels": labels}}


class Pods:
    """An informer of pods in one half of all hashes, and its events."""

    def __init__(self, shards: ShardSelector = HALVES[0]) -> None:
        self.source = FakeListerWatcher(*(named(f"pod-{n}") for n in range(20)))
        self.events: list[str] = []
        self.reasons: set[tuple[str, bool]] = set()
        selected = self.source.with_selectors(Selectors(shards=shards))
        self.informer = SharedInformer(selected, name="pods")
        self.informer.add_event_handler(on_event=self.note)

    def note(self, event: Notification) -> None:
        self.events.append(text_of(event))
        if isinstance(event, Deleted):
            self.reasons.add((event.reason, event.final_state_unknown))

    def names(self, half: int) -> list[str]:
        """Return the names of the server's objects in a half."""
        storage = self.source._collection.snapshot()
        objects = [KubeObject.of(it.body()) for it in storage]
        return sorted(it.name for it in objects if HALVES[half].selects(it))

    @property
    def stored(self) -> list[str]:
        return sorted(it.name for it in self.informer.store.list())


@pytest.fixture
async def pods() -> AsyncIterator[Pods]:
    pods = Pods()
    async with running(pods.informer.run()):
        await pods.informer.wait_synced()
        await asyncio.sleep(1)
        yield pods


async def test_informer_stores_only_objects_of_its_shards(pods: Pods) -> None:
    mine = pods.names(0)

    assert pods.stored == mine
    assert pods.events == [f"initial {name}" for name in mine]


async def test_added_shards_are_listed_and_reported_as_added(pods: Pods) -> None:
    pods.events.clear()

    pods.informer.set_selection(shards=ALL)
    await pods.informer.wait_selection(timeout=10)
    await asyncio.sleep(1)

    assert len(pods.stored) == 20
    assert pods.events == [f"added {it}" for it in pods.names(1)]
    assert pods.informer.selection == Selectors(shards=ALL)


async def test_removed_shards_leave_the_store_as_moved(pods: Pods) -> None:
    mine = pods.names(0)
    pods.events.clear()

    pods.informer.set_selection(shards=HALVES[1])
    await pods.informer.wait_selection(timeout=10)
    await asyncio.sleep(1)

    assert pods.stored == pods.names(1)
    left = [it.removeprefix("deleted ") for it in pods.events[: len(mine)]]
    assert sorted(left) == mine
    assert pods.reasons == {("moved", False)}


async def test_changes_continue_while_shards_are_added(pods: Pods) -> None:
    pods.informer.set_selection(shards=ALL)
    for number in range(20, 60):
        pods.source.add(named(f"pod-{number}"))
        pods.source.modify(named(f"pod-{number % 20}"))
        await asyncio.sleep(0.01)

    await asyncio.sleep(2)
    assert len(pods.stored) == 60
