"""`EventStream`: ends, and its share of the event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from factory_helpers import FakeClient
from informers import plain, pods_of, settled
from web_helpers import Page, handlers_of

from aioinformer import SharedInformerFactory
from aioinformer.budget import LoopBudget
from aioinformer.errors import InformerStopped, WrongLoop
from aioinformer.model.resources import CONFIG_MAPS, PODS
from aioinformer.testing import APIServer
from aioinformer.web.streams import EventStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer(auto_namespaces=True) as server:
        server.create(PODS, plain("a", app="web"))
        server.create(PODS, plain("b", app="db"))
        yield server


# ---------------------------------------------------------------- how it ends


async def test_disconnected_reader_leaves_no_state(server: APIServer) -> None:
    async with pods_of(server) as (_, pods):
        page = Page(EventStream(pods, resume_seconds=0))
        async with page.reading():
            assert (handlers_of(pods), page.stream.readers) == (1, 1)

        assert (handlers_of(pods), page.stream.readers) == (0, 0)


async def test_handler_is_removed_after_resume_seconds(server: APIServer) -> None:
    async with pods_of(server) as (_, pods):
        page = Page(EventStream(pods, resume_seconds=60))
        async with page.reading():
            pass

        await asyncio.sleep(50)
        server.create(PODS, plain("c"))
        await settled(server, pods)
        assert handlers_of(pods) == 1
        await asyncio.sleep(20)
        server.create(PODS, plain("d"))
        await settled(server, pods)
        assert handlers_of(pods) == 0

        async with page.reading():
            assert page.names.count("reset") == 2


async def test_stream_ends_when_host_reports_disconnect(server: APIServer) -> None:
    async with pods_of(server) as (_, pods):
        page = Page(EventStream(pods))
        async with page.reading() as task:
            page.away = True
            await asyncio.sleep(1)
            assert task.done()
            assert page.in_order is False


async def test_stream_ends_with_informer(server: APIServer) -> None:
    async with pods_of(server) as (factory, pods):
        page = Page(EventStream(pods))
        async with page.reading() as task:
            await factory.shutdown()
            await asyncio.sleep(0.5)
            assert task.done()
            assert page.in_order is True
            with pytest.raises(InformerStopped):
                page.stream.check()


async def test_stream_ends_when_host_stops(server: APIServer) -> None:
    stops = False
    async with pods_of(server) as (_, pods):
        page = Page(EventStream(pods, host_stops=lambda: stops))
        async with page.reading() as task:
            stops = True
            await asyncio.sleep(0.5)
            assert task.done()
            assert page.in_order is True
            with pytest.raises(InformerStopped):
                page.stream.check()


async def test_stuck_reader_delays_end_by_a_second(server: APIServer) -> None:
    async with pods_of(server) as (_, pods):
        page = Page(EventStream(pods))
        page.open.clear()
        async with page.reading() as task:
            page.stream.close()
            await asyncio.sleep(0.9)
            assert not task.done()
            page.stream.close()
            await asyncio.sleep(0.2)
            assert task.done()
            assert page.in_order is False


async def test_stream_raises_exception_of_write(server: APIServer) -> None:
    class Broken(Exception):
        pass

    async def write(chunk: bytes) -> None:
        raise Broken

    async with pods_of(server) as (_, pods):
        stream = EventStream(pods, resume_seconds=0)
        with pytest.raises(Broken):
            await stream.send(stream.check(), write)

        assert (handlers_of(pods), stream.readers) == (0, 0)


async def test_streams_of_a_temporary_informer_end_with_it(server: APIServer) -> None:
    server.create(CONFIG_MAPS, {"metadata": {"name": "settings"}})
    async with pods_of(server) as (factory, _):
        async with factory.use("v1", "configmaps") as maps:
            page = Page(EventStream(maps))
            reading = page.reading()
            task = await reading.__aenter__()
            await asyncio.sleep(5)
            assert page.take() == ["reset", "added settings", "synced"]

        await asyncio.sleep(0.5)
        assert task.done()
        await reading.__aexit__(None, None, None)


async def test_stream_can_end_between_check_and_send(
    server: APIServer,
) -> None:
    async with pods_of(server) as (factory, pods):
        page, stream = Page(EventStream(pods)), EventStream(pods)
        asks = page.stream.check(), stream.check()
        stream.close()
        assert await stream.send(asks[1], page.write) is True
        await factory.shutdown()
        assert await page.stream.send(asks[0], page.write) is True

    assert page.names == []
    assert page.stream.readers == stream.readers == 0


async def test_stream_that_waits_for_sync_ends_cleanly() -> None:
    factory = SharedInformerFactory(FakeClient())  # never responds
    pods = factory.informer("v1", "pods")
    async with factory:
        page = Page(EventStream(pods))
        async with page.reading() as task:
            page.stream.close()
            await asyncio.sleep(0.1)
            assert task.done()
            assert page.in_order is True

        assert page.stream.readers == 0


async def test_silent_stream_ends_at_once(server: APIServer) -> None:
    async with pods_of(server) as (_, pods):
        page = Page(EventStream(pods))
        async with page.reading() as task:
            page.stream.close()
            await asyncio.sleep(0.1)
            assert task.done()
            assert page.in_order is True


async def test_reader_of_other_loop_is_refused(server: APIServer) -> None:
    async with pods_of(server) as (_, pods):
        page = Page(EventStream(pods))

        def elsewhere() -> None:
            asyncio.run(page.stream.send(page.stream.check(), page.write))

        async with page.reading():
            with pytest.raises(WrongLoop):
                await asyncio.to_thread(elsewhere)

            assert page.stream.readers == 1


async def test_initial_objects_are_sent_within_loop_budget(
    server: APIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = asyncio.Event()

    async def start(_: LoopBudget) -> None:
        await turn.wait()

    async with pods_of(server) as (_, pods):
        stream = EventStream(pods)
        async with Page(stream).reading():
            monkeypatch.setattr(LoopBudget, "start", start)
            page = Page(stream)
            async with page.reading():
                assert stream._feed is not None
                (group,) = stream._feed.log._groups.values()
                reader = list(group.readers)[-1]
                assert reader._order == [], "nothing is copied yet"
                monkeypatch.undo()
                turn.set()
                await asyncio.sleep(1)
                assert sorted(page.take()) == ["added a", "added b", "reset", "synced"]


async def test_change_wakes_only_streams_that_select_it(server: APIServer) -> None:
    async with pods_of(server) as (_, pods):
        stream = EventStream(pods)
        web = Page(stream, labelSelector="app=web")
        db = Page(stream, labelSelector="app=db")
        async with web.reading(), db.reading():
            before = web.chunks, db.chunks
            for number in range(10):
                server.create(PODS, plain(f"more-{number}", app="db"))
                await settled(server, pods)

            assert (web.chunks, db.chunks) == (before[0], before[1] + 10)
