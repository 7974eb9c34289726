"""Waiters and readers of several namespaces, cancelled at every await."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from fake_source import FakeSource, Page, Stream, added, error_event, modified
from informer_helpers import running, settle
from namespace_helpers import informer_of, of, slow_machine
from pipeline_helpers import View
from task_helpers import cancelled_after

from aioinformer.errors import InformerStopped, ServerError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioinformer.informer import SharedInformer

BUSY = ServerError("busy", status=503)
TURNS = 70
"""More turns of the loop than any moment takes; a test below checks that."""


class Rig:
    """An informer of two namespaces; one of them is refused, then listed again."""

    def __init__(self) -> None:
        changes = [modified(of("web", "a", 8)), added(of("web", "b", 9))]
        self.shop = FakeSource(
            [
                BUSY,
                Page([of("shop", "a"), of("shop", "b")], version=5),
                Page([of("shop", "b"), of("shop", "c", 8)], version=12),
            ],
            [Stream(2.0, [error_event(410)])],
        )
        self.web = FakeSource(
            [Page([of("web", "a")], version=7)], [Stream(1.0, changes)]
        )
        self.pods = informer_of(shop=self.shop, web=self.web)
        self.view = View()
        self.pods.add_event_handler(on_event=self.view)

    @property
    def stored(self) -> dict[str, str]:
        return {obj.key: obj.resource_version for obj in self.pods.store.list()}


MOMENTS = [0.0, 1.0, 1.2, 3.7]


@pytest.mark.parametrize("moment", MOMENTS)
async def test_informer_of_several_namespaces_cancelled_at_any_await_leaves_nothing(
    moment: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_machine(monkeypatch)
    before = asyncio.all_tasks()
    for turns in range(1, TURNS, 2):
        rig = Rig()

        task = await cancelled_after(rig.pods.run(), turns, moment=moment)

        assert task.cancelled()
        assert rig.shop.open == rig.web.open == 0
        assert asyncio.all_tasks() == before
        assert rig.pods.status.phase == "stopped"
        assert rig.view.broken == []
        with pytest.raises(InformerStopped):
            rig.pods.lister.list()


async def test_cancellation_points_cover_the_whole_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow_machine(monkeypatch)
    rig = Rig()
    seen = []
    async with running(rig.pods.run()):
        at = 0.0
        for moment in MOMENTS:
            await asyncio.sleep(moment - at)
            at = moment
            for _ in range(TURNS):
                await asyncio.sleep(0)

            seen.append(rig.stored)

        await asyncio.sleep(1)
        last, received = rig.stored, rig.view.objects

    assert seen[0] == {"web/a": "1"}
    assert seen[1] == {"web/a": "8", "web/b": "9"}
    assert seen[2] == seen[1] | {"shop/a": "1", "shop/b": "1"}
    assert seen[2] != seen[3] == last, "the end of the relist is covered"
    assert last == {"shop/b": "1", "shop/c": "8", "web/a": "8", "web/b": "9"}
    assert received == last


async def follow(pods: SharedInformer) -> None:
    async with pods.events() as events:
        async for _ in events:
            await asyncio.sleep(0)


WAITERS: dict[str, Callable[[SharedInformer], Coroutine[Any, Any, object]]] = {
    "object": lambda it: it.wait_until(lambda obj: False, "web/a"),
    "store": lambda it: it.wait_until(lambda store: False),
    "version": lambda it: it.wait_for_version("99"),
    "version-of-one": lambda it: it.wait_for_version("99", namespace="web"),
    "synced": lambda it: it.wait_synced(),
    "events": follow,
}


@pytest.mark.parametrize("moment", [0.0, 0.9999, 1.1999])
@pytest.mark.parametrize("waiter", WAITERS.values(), ids=WAITERS)
async def test_cancelled_waiter_leaves_nothing_and_does_not_affect_others(
    waiter: Callable[[SharedInformer], Coroutine[Any, Any, None]], moment: float
) -> None:
    for turns in range(0, TURNS, 5):
        rig = Rig()
        other = asyncio.create_task(
            rig.pods.wait_until(lambda obj: obj is not None, "shop/c")
        )
        async with running(rig.pods.run()):
            await settle()
            tasks = asyncio.all_tasks()
            followers = list(rig.pods._run_state.followers)
            await cancelled_after(waiter(rig.pods), turns, moment=moment)
            await settle()

            assert asyncio.all_tasks() <= tasks
            await other
            await settle()

            assert len(rig.pods._waiters) == 0
            assert rig.pods._run_state.followers == followers
            assert len(rig.pods._processor.listeners) == 1
            assert rig.view.objects == rig.stored
