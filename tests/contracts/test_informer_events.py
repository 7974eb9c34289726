"""G1 to G6: the events of handlers, each guarantee over real HTTP."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from aioinformer import (
    Deleted,
    SharedInformerFactory,
    Updated,
)
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import Cut, Gone, Refuse, StepBack

if TYPE_CHECKING:
    from aioinformer import KubeObject
    from aioinformer.errors import HandlerError

from informer_helpers import text_of
from informers import Event, cut_running_watch, plain, pods_of, settled


async def test_G1_states_of_one_object_arrive_in_order_and_once() -> None:
    async with APIServer() as server, pods_of(server) as (_, informer):
        states: list[str] = []
        informer.add_event_handler(
            lambda obj: states.append(obj.resource_version),
            lambda old, new: states.append(new.resource_version),
            lambda obj: states.append(obj.resource_version),
        )
        reported = [server.create(PODS, plain("web"))["metadata"]["resourceVersion"]]
        for number in range(50):
            patch = {"metadata": {"annotations": {"n": str(number)}}}
            changed = server.patch(PODS, "web", patch)
            reported.append(changed["metadata"]["resourceVersion"])

        server.delete(PODS, "web")
        reported.append(server.resource_version)
        await settled(server, informer)

        assert states == reported


async def test_G1_last_state_arrives_after_a_cut_watch() -> None:
    async with APIServer() as server:
        server.create(PODS, plain("web"))
        async with pods_of(server) as (_, informer):
            states: list[str] = []
            informer.on_update(lambda old, new: states.append(new.resource_version))
            server.faults.add(Cut(after_bytes=0))
            server.faults.add(Cut(after_bytes=700))
            for number in range(40):
                patch = {"metadata": {"annotations": {"n": str(number)}}}
                server.patch(PODS, "web", patch)
                await asyncio.sleep(0.25)

            await settled(server, informer)

            assert states == sorted(set(states), key=int)
            assert states[-1] == server.resource_version


async def test_G1_list_newer_than_its_version_causes_no_older_state() -> None:
    """The watch from that version repeats the history of the listed objects."""
    async with APIServer() as server:
        for name in ("web", "web-again"):
            server.create(PODS, plain(name))
        for number in range(5):
            server.patch(PODS, "web", {"metadata": {"annotations": {"n": f"{number}"}}})
        server.delete(PODS, "web-again")
        server.create(PODS, plain("web-again"))

        server.faults.add(StepBack(verb="list", versions=7))
        async with pods_of(server) as (_, informer):
            received: list[str] = []
            informer.on_event(lambda event: received.append(text_of(event)))
            await settled(server, informer)
            server.patch(PODS, "web", {"metadata": {"annotations": {"n": "new"}}})
            await settled(server, informer)
            repeated = informer.status.duplicates

    assert received == ["initial web", "initial web-again", "updated web"]
    assert repeated >= 7


async def test_G2_handler_sees_all_objects_in_any_order() -> None:
    async with APIServer() as server:
        names = {f"pod-{number}" for number in range(100)}
        for name in names:
            server.create(PODS, plain(name))

        async with pods_of(server) as (_, informer):
            seen: list[str] = []
            handler = informer.add_event_handler(lambda obj: seen.append(obj.name))
            await handler.wait_synced()

            assert sorted(seen) == sorted(names)


async def test_G3_store_is_never_older_than_the_event() -> None:
    async with APIServer() as server, pods_of(server) as (_, informer):
        stale: list[str] = []

        @informer.on_event
        async def look(event: Event) -> None:
            await asyncio.sleep(0.001)
            obj = event.new if isinstance(event, Updated) else event.obj
            stored = informer.store.get_by_key(obj.key)
            if isinstance(event, Deleted):
                if stored is not None and stored.uid == obj.uid:
                    stale.append(text_of(event))

            elif stored is None:
                if "gone-soon" not in obj.name:
                    stale.append(text_of(event))

            elif int(stored.resource_version) < int(obj.resource_version):
                stale.append(text_of(event))

        for number in range(20):
            server.create(PODS, plain(f"pod-{number}"))
            server.create(PODS, plain(f"gone-soon-{number}"))
            server.patch(PODS, f"pod-{number}", {"metadata": {"labels": {"a": "b"}}})
            server.delete(PODS, f"gone-soon-{number}")
            await asyncio.sleep(0.002)

        await settled(server, informer)
        assert stale == []


async def test_G3_readers_see_a_relist_whole_or_not_at_all() -> None:
    async with APIServer() as server:
        for number in range(3000):
            server.create(PODS, plain(f"old-{number}"))

        async with pods_of(server) as (_, informer):
            sizes: set[int] = set()

            async def watch_sizes() -> None:
                busy = 0
                while True:
                    objects = informer.store.list()
                    ends = {objects[0].name[:3], objects[-1].name[:3]}
                    assert len(ends) == 1, "old and new objects at once"
                    sizes.add(len(objects))
                    # At each turn of the loop while the relist is applied.
                    busy = 500 if informer.status.phase == "listing" else busy - 1
                    await asyncio.sleep(0 if busy > 0 else 0.05)

            # Everything is replaced while the watch is down.
            server.faults.add(Refuse(verb="watch", status=503))
            server.faults.add(Gone())
            server.faults.add(Cut(verb="watch", after_bytes=0))
            await cut_running_watch(server, informer)
            for number in range(3000):
                server.delete(PODS, f"old-{number}")

            for number in range(2000):
                server.create(PODS, plain(f"new-{number}"))

            looking = asyncio.create_task(watch_sizes())
            await settled(server, informer)
            looking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await looking

            assert sizes == {3000, 2000}


async def test_G4_handler_is_never_called_concurrently_with_itself() -> None:
    async with APIServer() as server:
        for number in range(20):
            server.create(PODS, plain(f"pod-{number}"))

        async with pods_of(server) as (_, informer):
            running = 0
            most = 0

            async def slow(obj: KubeObject) -> None:
                nonlocal running, most
                running += 1
                most = max(most, running)
                await asyncio.sleep(0.1)
                running -= 1

            handler = informer.add_event_handler(slow)
            await handler.wait_synced()
            assert most == 1


async def test_G4_slow_handler_delays_neither_others_nor_the_store() -> None:
    async with APIServer() as server, pods_of(server) as (_, informer):
        prompt: list[str] = []

        async def never_returns(obj: KubeObject) -> None:
            await asyncio.Event().wait()

        stuck = informer.add_event_handler(never_returns)
        informer.add_event_handler(lambda obj: prompt.append(obj.name))
        for number in range(10):
            server.create(PODS, plain(f"pod-{number}"))

        await settled(server, informer)
        assert len(prompt) == len(informer.store) == 10
        assert stuck.depth == 10
        assert stuck.age > 0


async def test_G4_call_that_blocks_the_loop_is_logged_with_its_handler(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with APIServer() as server, pods_of(server) as (_, informer):

        def spin(obj: KubeObject) -> None:
            until = time.perf_counter() + 0.06
            while time.perf_counter() < until:
                pass

        informer.add_event_handler(spin, name="spinner")
        server.create(PODS, plain("web"))
        await settled(server, informer)

    messages = [r.getMessage() for r in caplog.records if "spinner" in r.getMessage()]
    assert len(messages) == 1
    assert "blocked the event loop" in messages[0]


async def test_G5_late_handler_gets_a_snapshot_then_every_change() -> None:
    async with APIServer() as server:
        for number in range(100):
            server.create(PODS, plain(f"pod-{number}"))

        async with pods_of(server) as (_, informer):
            received: list[str] = []
            server.create(PODS, plain("before"))
            handler = informer.add_event_handler(
                on_event=lambda event: received.append(text_of(event))
            )
            server.create(PODS, plain("after"))
            await handler.wait_synced()
            await settled(server, informer)

            initial = [one for one in received if one.startswith("initial")]
            assert len(received) == len(set(received)) == 102
            assert received[: len(initial)] == initial
            assert set(received[len(initial) :]) == {"added before", "added after"}


@pytest.mark.parametrize("role", ["index", "transform"])
@pytest.mark.parametrize("moment", ["watch", "first-list", "relist"])
async def test_G5_handler_added_by_on_error_gets_each_object_once(
    role: str, moment: str
) -> None:
    """The handler is added while the object of the failing function is applied."""
    received: list[str] = []

    def fails(obj: KubeObject) -> NoReturn:
        raise ValueError

    def add(_: HandlerError) -> None:
        if not received:
            received.append("handler added")
            informer.add_event_handler(
                on_event=lambda event: received.append(text_of(event))
            )

    async with APIServer() as server:
        factory = SharedInformerFactory(server.client(), on_error=add)
        roles: dict[str, dict[str, Any]] = {
            "index": {"indexers": {"team": fails}},
            "transform": {"transform": fails},
        }
        informer = factory.informer("v1", "pods", **roles[role])
        if moment == "first-list":
            server.create(PODS, plain("web"))
            server.create(PODS, plain("db"))

        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            if moment == "relist":
                await server.stop()
                server.compact()

            if moment != "first-list":
                server.create(PODS, plain("web"))
                server.create(PODS, plain("db"))

            if moment == "relist":
                await server.start()

            await settled(server, informer)

    assert sorted(it.split()[-1] for it in received[1:]) == ["db", "web"]


async def test_G6_deletion_while_disconnected_carries_the_last_known_state() -> None:
    async with APIServer() as server:
        server.create(PODS, plain("stays"))
        server.create(PODS, plain("goes", app="web"))
        server.create(PODS, plain("comes-again"))
        async with pods_of(server) as (_, informer):
            events: list[Event] = []
            handler = informer.add_event_handler(on_event=events.append)
            await handler.wait_synced()
            events.clear()

            await server.stop()
            server.delete(PODS, "goes")
            server.delete(PODS, "comes-again")
            server.create(PODS, plain("comes-again"))
            server.compact()
            await server.start()
            await settled(server, informer)

            received = [text_of(event) for event in events]
            assert sorted(received) == [
                "added comes-again",
                "missed comes-again",
                "missed goes",
            ]
            assert received[-1] == "added comes-again"
            goes = next(e for e in events if text_of(e) == "missed goes")
            assert isinstance(goes, Deleted)
            assert goes.obj.labels["app"] == "web"


async def test_G6_object_that_leaves_the_selection_is_deleted() -> None:
    async with APIServer() as server:
        server.create(PODS, plain("web", app="web"))
        factory = SharedInformerFactory(server.client())
        informer = factory.informer("v1", "pods", label_selector="app=web")
        received: list[str] = []
        informer.on_event(lambda event: received.append(text_of(event)))
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            server.patch(PODS, "web", {"metadata": {"labels": {"app": "db"}}})
            await asyncio.sleep(1)

        assert received == ["initial web", "deleted web"]
        assert len(informer.store) == 0
