"""`InformerWatch`: an informer with the interface of a watch."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from fake_source import (
    FakeSource,
    Page,
    Silence,
    Stream,
    added,
    deleted,
    error_event,
    modified,
    thing,
)
from informer_helpers import Even, settle

from aioinformer.client import ListWatch
from aioinformer.errors import InformerStopped, InternalError, OptionsError, ServerError
from aioinformer.informer import InformerWatch
from aioinformer.informer.store.pipeline import Pipeline
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer, FakeListerWatcher
from aioinformer.watch import EventType
from aioinformer_apiserver.faults import Drop, Gone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.watch import Watch, WatchEvent

ADDED, MODIFIED, DELETED = EventType.ADDED, EventType.MODIFIED, EventType.DELETED


def received(events: list[WatchEvent]) -> list[str]:
    return [f"{it.type} {it.object.name}@{it.object.resource_version}" for it in events]


async def take(watch: Watch, number: int) -> list[str]:
    return received([await anext(watch) for _ in range(number)])


def watch_of(
    *lists: Page | Exception | Silence, watches: tuple[Stream, ...] = ()
) -> tuple[FakeSource, InformerWatch]:
    source = FakeSource(lists, watches)
    return source, InformerWatch(source, name="pods", rng=Even())


# ---------------------------------------------------------------- events


async def test_watch_yields_all_objects_then_every_change() -> None:
    changes = [modified(thing("a", 8)), deleted(thing("b", 9)), added(thing("c", 10))]
    _, watch = watch_of(
        Page([thing("a", 1), thing("b", 2)], version=7), watches=(Stream(changes),)
    )

    async with watch:
        assert await take(watch, 5) == [
            *("ADDED a@1", "ADDED b@2"),
            *("MODIFIED a@8", "DELETED b@9", "ADDED c@10"),
        ]


async def test_store_contains_the_yielded_state() -> None:
    stream = Stream()
    _, watch = watch_of(Page([thing("a", 1)], version=7), watches=(stream,))

    async with watch:
        for event in (modified(thing("a", 8)), deleted(thing("a", 9))):
            stream.send(event)

        async for event in watch:
            stored = watch.indexer.get_by_key("default/a")
            if event.type is DELETED:
                assert stored is None
                break

            assert stored is None or int(stored.resource_version) >= int(
                event.object.resource_version
            )


async def test_watch_accepts_indexers() -> None:
    source = FakeListerWatcher(
        {"metadata": {"name": "a"}, "spec": {"nodeName": "n1"}},
        {"metadata": {"name": "b"}, "spec": {"nodeName": "n2"}},
    )
    by_node = {"node": lambda obj: [obj.at("spec.nodeName")]}

    async with InformerWatch(source, indexers=by_node) as watch:
        await take(watch, 2)
        assert [obj.name for obj in watch.indexer.by_index("node", "n2")] == ["b"]


async def test_missed_deletion_carries_the_last_known_state() -> None:
    _, watch = watch_of(
        Page([thing("a", 1), thing("b", 2)], version=7),
        Page([thing("b", 2), thing("c", 12)], version=20),
        watches=(Stream([error_event(410, "Expired")]),),
    )

    async with watch:
        assert await take(watch, 4) == [
            *("ADDED a@1", "ADDED b@2"),
            *("DELETED a@1", "ADDED c@12"),
        ]


async def test_replaced_object_is_deleted_then_added() -> None:
    _, watch = watch_of(
        Page([thing("a", 1)], version=7),
        Page([thing("a", 12, uid="another")], version=20),
        watches=(Stream([error_event(410, "Expired")]),),
    )

    async with watch:
        assert await take(watch, 3) == ["ADDED a@1", "DELETED a@1", "ADDED a@12"]


async def test_relist_without_changes_yields_nothing() -> None:
    stream = Stream([error_event(410, "Expired")])
    source, watch = watch_of(Page([thing("a", 1)], version=7), watches=(stream,))

    async with watch:
        await take(watch, 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(600):
                await watch.next_batch()

    assert source.requested[:3] == ["list '0'", "watch '7'", "list ''"]


async def test_unread_events_are_queued() -> None:
    source = FakeListerWatcher()
    async with InformerWatch(source) as watch:
        await watch.informer.wait_synced()
        for number in range(900):
            source.add({"metadata": {"name": f"pod-{number:03}"}})

        await watch.informer.wait_for_version(source.resource_version)
        await settle()
        assert "waiting=900" in repr(watch)
        batch = await watch.next_batch()

    assert [event.object.name for event in batch] == [f"pod-{n:03}" for n in range(900)]


async def test_single_events_and_batches_can_be_read_alternately() -> None:
    _, watch = watch_of(Page([thing("a"), thing("b"), thing("c")], version=7))

    async with watch:
        await settle()
        assert (await anext(watch)).object.name == "a"
        assert received(await watch.next_batch()) == ["ADDED b@1", "ADDED c@1"]


async def test_skipped_counts_unreadable_objects() -> None:
    _, watch = watch_of(Page([thing("a")], version=7, skipped=2))

    async with watch:
        await take(watch, 1)
        assert watch.skipped == 2


async def test_watch_exposes_the_status_of_the_informer() -> None:
    _, watch = watch_of(ServerError("busy", status=503))

    async with watch:
        await asyncio.sleep(1)
        assert not watch.informer.has_synced
        assert "503: busy" in watch.informer.why_not_synced()


# ---------------------------------------------------------------- start and stop


async def test_watch_must_be_entered() -> None:
    _, watch = watch_of()

    with pytest.raises(OptionsError, match="pods is not running"):
        await watch.next_batch()


async def test_watch_runs_only_once() -> None:
    _, watch = watch_of()
    async with watch:
        with pytest.raises(OptionsError, match="pods runs only once"):
            await watch.__aenter__()

    with pytest.raises(OptionsError, match="pods runs only once"):
        await watch.__aenter__()


async def test_watch_stopped_before_entry_sends_no_request() -> None:
    source, watch = watch_of()

    watch.stop()
    async with watch:
        assert await watch.next_batch() == []

    assert source.requests == []


async def test_watch_stopped_during_entry_sends_no_request() -> None:
    before = asyncio.all_tasks()
    source, watch = watch_of()

    entering = asyncio.create_task(watch.__aenter__())
    await asyncio.sleep(0)
    watch.stop()
    await entering
    assert await watch.next_batch() == []
    await watch.__aexit__()

    assert source.requests == []
    assert watch.informer.status.phase == "stopped"
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("answer", [Page([]), Silence(), ServerError("", status=503)])
async def test_stop_ends_the_iteration(
    answer: Page | Silence | ServerError, looptime: float
) -> None:
    source, watch = watch_of(answer)

    async with watch:
        reading = asyncio.create_task(watch.next_batch())
        await asyncio.sleep(3)
        watch.stop()
        assert await reading == []
        assert await watch.next_batch() == []
        await settle()
        assert source.open == 0, "the informer has ended"
        assert watch.informer.status.phase == "stopped"

    assert looptime == 3


async def test_stop_drops_unread_events() -> None:
    _, watch = watch_of(Page([thing("a"), thing("b")], version=7))

    async with watch:
        await take(watch, 1)
        watch.stop()
        assert [event async for event in watch] == []
        assert len(watch.indexer) == 2, "the cache stays"


async def test_exit_waits_for_the_end_of_the_informer() -> None:
    before = asyncio.all_tasks()
    source, watch = watch_of(Page([thing("a")], version=7))

    async with watch:
        await take(watch, 1)
        assert asyncio.all_tasks() > before

    assert asyncio.all_tasks() == before
    assert source.open == 0


async def test_watch_can_be_exited_in_another_task() -> None:
    before = asyncio.all_tasks()
    _, watch = watch_of(Page([thing("a")], version=7))

    await asyncio.create_task(watch.__aenter__())
    assert await take(watch, 1) == ["ADDED a@1"]
    await asyncio.create_task(watch.__aexit__())

    assert asyncio.all_tasks() == before


@pytest.fixture
def bug(monkeypatch: pytest.MonkeyPatch) -> Exception:
    """Raise a bug at the first change after the list."""
    error = InternalError("our bug")
    feed = Pipeline.feed

    async def fail(self: Pipeline, *arguments: object) -> None:
        raise error

    assert feed is not fail
    monkeypatch.setattr(Pipeline, "feed", fail)
    return error


async def test_read_raises_after_the_informer_died(bug: Exception) -> None:
    stream = Stream(2.0, [modified(thing("a", 8))])
    _, watch = watch_of(Page([thing("a", 1)], version=7), watches=(stream,))

    async with watch:
        await asyncio.sleep(5)
        assert await take(watch, 1) == ["ADDED a@1"], "earlier events come first"
        for _ in range(3):
            with pytest.raises(InformerStopped, match="pods has ended") as caught:
                await watch.next_batch()

            assert caught.value.__cause__ is bug


async def test_waiting_reader_raises_when_the_informer_dies(
    bug: Exception,
) -> None:
    stream = Stream(2.0, [modified(thing("a", 8))])
    _, watch = watch_of(Page([], version=7), watches=(stream,))

    async with watch:
        with pytest.raises(InformerStopped) as caught:
            await watch.next_batch()

        assert caught.value.__cause__ is bug


@pytest.mark.parametrize("life", ["SharedInformer.run", "Reflector.run"])
async def test_informer_watch_reports_a_task_that_was_cancelled_alone(
    life: str,
) -> None:
    _, watch = watch_of(Page([thing("a", 1)], version=7))

    async with watch:
        await take(watch, 1)
        tasks = asyncio.all_tasks()
        (task,) = [it for it in tasks if life in repr(it.get_coro())]
        task.cancel()
        with pytest.raises(InformerStopped) as caught:
            await watch.next_batch()

    assert isinstance(caught.value.__cause__, InternalError)


async def test_exit_raises_an_unreported_failure(bug: Exception) -> None:
    stream = Stream(2.0, [modified(thing("a", 8))])
    _, watch = watch_of(Page([], version=7), watches=(stream,))

    async def doze() -> None:
        async with watch:
            await asyncio.sleep(5)

    with pytest.raises(InternalError) as caught:
        await doze()

    assert caught.value is bug


# ---------------------------------------------------------------- a server


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer(auto_namespaces=True) as server:
        yield server


def data(value: int) -> dict[str, object]:
    return {"data": {"value": str(value)}}


async def test_watch_follows_the_changes_of_a_server(server: APIServer) -> None:
    async with (
        server.client() as client,
        InformerWatch(ListWatch(client, CONFIG_MAPS)) as watch,
    ):
        for name in "ab":
            server.create(CONFIG_MAPS, {"metadata": {"name": name}})

        server.patch(CONFIG_MAPS, "a", data(1))
        await watch.informer.wait_for_version(server.resource_version)
        server.delete(CONFIG_MAPS, "b")
        server.patch(CONFIG_MAPS, "a", data(2))
        await watch.informer.wait_for_version(server.resource_version)

        state: dict[str, str] = {}
        async for event in watch:
            name = event.object.name
            assert (name in state) is (event.type is not ADDED)
            if event.type is DELETED:
                del state[name]
            else:
                state[name] = event.object.at("data.value", "")

            if state == {"a": "2"}:
                break


async def test_deletion_missed_by_a_real_connection_follows_the_list(
    server: APIServer,
) -> None:
    for name in "ab":
        server.create(CONFIG_MAPS, {"metadata": {"name": name}})

    server.faults.add(Drop(after_events=0), Gone())
    async with (
        server.client() as client,
        InformerWatch(ListWatch(client, CONFIG_MAPS)) as watch,
    ):
        await watch.informer.wait_synced()
        server.delete(CONFIG_MAPS, "a")
        server.create(CONFIG_MAPS, {"metadata": {"name": "c"}})
        async with asyncio.timeout(1000):
            events = [await anext(watch) for _ in range(4)]

    assert [f"{it.type} {it.object.name}" for it in events[:2]] == [
        "ADDED a",
        "ADDED b",
    ]
    assert {f"{it.type} {it.object.name}" for it in events[2:]} == {
        "ADDED c",
        "DELETED a",
    }
