"""`APIServer.list_watch()`: the server without a network."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from aioinformer import KubeObject, SharedInformer, wait_for_cache_sync
from aioinformer.client import ListWatch
from aioinformer.errors import (
    ApiError,
    DecodeError,
    NotFound,
    OptionsError,
    ResourceExpired,
    SelectorSyntaxError,
    TooManyRequests,
    TransportError,
    Unauthorized,
)
from aioinformer.model.resource import Resource
from aioinformer.model.resources import CONFIG_MAPS, NODES
from aioinformer.testing import APIServer
from aioinformer.watch import ListOptions, WatchOptions
from aioinformer_apiserver.faults import (
    Cut,
    Delay,
    End,
    Fault,
    Gone,
    Page,
    Refuse,
    Slow,
    Stall,
)
from aioinformer_apiserver.http.handler import RequestHandler

if TYPE_CHECKING:
    from aioinformer.watch import WatchEvent
    from aioinformer_apiserver.http.response import ResponseWriter
    from aioinformer_apiserver.requests.request import APIRequest
    from aioinformer_apiserver.storage.dispatcher import Waker

BIG = "x" * 10_000


def a_server(*names: str, **options: Any) -> APIServer:
    """Return a server that was not started, with config maps of these names."""
    server = APIServer(**options)
    for name in names:
        make(server, name)

    return server


def make(server: APIServer, name: str, **data: str) -> None:
    server.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": data})


async def listed(
    source: ListWatch, **options: Any
) -> tuple[list[KubeObject], str, str]:
    objects: list[KubeObject] = []
    async with source.list(ListOptions(**options)) as page, aclosing(aiter(page)) as it:
        async for batch in it:
            objects += batch

    return objects, page.resource_version, page.continue_token


def changes_in(events: list[WatchEvent]) -> list[str]:
    return [f"{it.type} {it.object.name}" for it in events]


# -------------------------------------------------------------------- answers


async def test_direct_list_equals_list_over_http() -> None:
    async with (
        a_server("a", "b", "c") as server,
        server.client() as client,
    ):
        over_http = ListWatch(client, CONFIG_MAPS)
        direct = server.list_watch(CONFIG_MAPS)

        for options in ({}, {"limit": 2}, {"resource_version": "0"}):
            objects, version, token = await listed(over_http, **options)
            same_objects, same_version, same_token = await listed(direct, **options)
            assert [it.raw for it in objects] == [it.raw for it in same_objects]
            assert (version, token) == (same_version, same_token)

        asked = [(it.method, it.path, it.query, it.verb) for it in server.requests]
        assert asked[::2] == asked[1::2]


async def test_direct_watch_works_before_start() -> None:
    server = a_server("a")
    source = server.list_watch(CONFIG_MAPS)

    async with source.watch(WatchOptions(bookmarks=False)) as watch:
        first = await watch.next_batch()
        make(server, "b")
        server.delete(CONFIG_MAPS, "a")
        second = await watch.next_batch()

    assert changes_in(first) == ["ADDED a"]
    assert changes_in(second) == ["ADDED b", "DELETED a"]


async def test_direct_list_selects_by_namespace_labels_and_fields() -> None:
    server = a_server("a", "b")
    server.patch(CONFIG_MAPS, "b", {"metadata": {"labels": {"app": "web"}}})

    async def names(**selection: Any) -> list[str]:
        objects, _, _ = await listed(server.list_watch(CONFIG_MAPS, **selection))
        return [it.name for it in objects]

    assert await names(label_selector="app=web") == ["b"]
    assert await names(field_selector="metadata.name=a") == ["a"]
    assert await names(namespace="kube-system") == []
    with pytest.raises(SelectorSyntaxError):
        server.list_watch(CONFIG_MAPS, label_selector="a in b")

    with pytest.raises(OptionsError):
        server.list_watch(NODES, namespace="x")


async def test_direct_watch_ends_after_timeout() -> None:
    source = a_server().list_watch(CONFIG_MAPS)
    start = asyncio.get_running_loop().time()

    options = WatchOptions(timeout_seconds=20, bookmarks=False)
    async with source.watch(options) as watch:
        assert await watch.next_batch() == []

    assert asyncio.get_running_loop().time() - start == pytest.approx(20, abs=0.1)


async def test_direct_watch_stop_wakes_reader() -> None:
    source = a_server().list_watch(CONFIG_MAPS)

    async with source.watch(WatchOptions(bookmarks=False)) as watch:
        asyncio.get_running_loop().call_later(1, watch.stop)
        assert await watch.next_batch() == []


async def test_direct_watch_stop_ends_server_task() -> None:
    server = a_server()
    before = asyncio.all_tasks()

    async with server.list_watch(CONFIG_MAPS).watch(WatchOptions()) as watch:
        assert len(asyncio.all_tasks() - before) == 1
        watch.stop()
        make(server, "a")
        await asyncio.sleep(1)
        assert asyncio.all_tasks() == before


async def test_direct_reader_exit_ends_server_task() -> None:
    server = a_server()
    source = server.list_watch(CONFIG_MAPS)

    async def watch_for_ever() -> None:
        async with source.watch(WatchOptions(bookmarks=False)) as watch:
            await watch.next_batch()

    before = asyncio.all_tasks()
    task = asyncio.create_task(watch_for_ever())
    await asyncio.sleep(1)
    assert len(asyncio.all_tasks() - before) == 2
    task.cancel()
    await asyncio.wait({task})

    assert asyncio.all_tasks() == before


# -------------------------------------------------------------------- refusals


async def test_direct_request_uses_current_token() -> None:
    server = a_server("a", token="one")
    old = server.list_watch(CONFIG_MAPS)
    server.token = "two"

    with pytest.raises(Unauthorized) as caught:
        await listed(old)

    assert caught.value.__notes__ == ["in response to GET /api/v1/configmaps"]
    assert len((await listed(server.list_watch(CONFIG_MAPS)))[0]) == 1


async def test_direct_list_of_unserved_resource_raises_not_found() -> None:
    source = a_server().list_watch(Resource("example.com", "v1", "things", "Thing"))

    with pytest.raises(NotFound):
        async with source.watch(WatchOptions()):
            pass


async def test_direct_error_with_truncated_body_is_raised() -> None:
    server = a_server()
    server.faults.add(Cut(after_bytes=5))
    source = server.list_watch(Resource("example.com", "v1", "things", "Thing"))

    with pytest.raises(NotFound):
        async with source.watch(WatchOptions()):
            pass


async def test_direct_watch_of_old_version_expires() -> None:
    server = a_server("a", "b")
    _, version, _ = await listed(server.list_watch(CONFIG_MAPS))
    make(server, "c")
    server.compact()

    with pytest.raises(ResourceExpired):
        await listed(
            server.list_watch(CONFIG_MAPS),
            resource_version=version,
            resource_version_match="Exact",
        )


# -------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Cut(verb="list", after_bytes=100), TransportError),
        (Cut(verb="list", after_bytes=100, reset=True), TransportError),
        (Cut(verb="list", after_bytes=0, head=False), TransportError),
        (Cut(verb="list", after_bytes=0, head=False, reset=True), TransportError),
        (Stall(verb="list", after_bytes=100), TransportError),
        (Stall(verb="list", head=False), TransportError),
        (Delay(seconds=1000), TransportError),
        (End(verb="list", after_bytes=100), DecodeError),
        (Page(status=200), DecodeError),
        (Page(status=502), ApiError),
        (Refuse(status=429, retry_after=7), TooManyRequests),
        (Gone(verb="list"), ResourceExpired),
    ],
    ids=repr,
)
async def test_direct_list_fails_as_over_http(
    fault: Fault, error: type[Exception]
) -> None:
    async with a_server("a", "b") as server, server.client() as client:
        # Several for HTTP, as a dead connection is retried.
        for source in (server.list_watch(CONFIG_MAPS), ListWatch(client, CONFIG_MAPS)):
            server.faults.add(*[fault] * 2)
            loop = asyncio.get_running_loop()
            start = loop.time()
            with pytest.raises(error) as caught:
                await listed(source)

            server.faults.clear()
            assert type(caught.value) is error or error is ApiError
            assert loop.time() - start < 31
            assert getattr(caught.value, "retry_after", None) in {None, 7}


async def test_direct_cut_watch_delivers_earlier_events() -> None:
    server = a_server("a")
    source = server.list_watch(CONFIG_MAPS)
    async with source.watch(WatchOptions(bookmarks=False)) as watch:
        (first,) = await watch.next_batch()

    size = len(first.object.raw) + 40
    server.faults.add(Cut(after_bytes=size))
    async with source.watch(WatchOptions(bookmarks=False)) as watch:
        assert changes_in(await watch.next_batch()) == ["ADDED a"]
        make(server, "b")
        with pytest.raises(TransportError):
            await watch.next_batch()


async def test_direct_slow_response_takes_time() -> None:
    server = a_server("a")
    source = server.list_watch(CONFIG_MAPS)
    loop = asyncio.get_running_loop()
    server.faults.add(Slow(verb="list", bytes_per_second=10))
    start = loop.time()

    objects, _, _ = await listed(source)

    assert loop.time() - start > len(objects[0].raw) / 10 - 5


# -------------------------------------------------------------------- start and stop


async def test_stop_ends_direct_watches_and_requests() -> None:
    server = a_server()
    source = server.list_watch(CONFIG_MAPS)
    await server.start()

    async with source.watch(WatchOptions(bookmarks=False)) as watch:
        await server.stop()
        assert await watch.next_batch() == []

    with pytest.raises(TransportError, match="stopped"):
        await listed(source)

    await server.start()
    try:
        assert await listed(source) == ([], server.resource_version, "")
    finally:
        await server.stop()


@pytest.mark.parametrize(
    "fault", [Stall(), Slow(bytes_per_second=0.01), Stall(head=False)], ids=repr
)
async def test_stop_ends_stalled_direct_request(fault: Fault) -> None:
    server = a_server("a")
    await server.start()
    server.faults.add(fault)
    loop = asyncio.get_running_loop()
    start = loop.time()

    async def read() -> None:
        source = server.list_watch(CONFIG_MAPS)
        async with source.watch(WatchOptions(bookmarks=False)) as watch:
            while await watch.next_batch():
                pass

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(_error_of(read()))
        await asyncio.sleep(5)
        await server.stop()
        assert isinstance(await reading, TransportError)

    assert loop.time() - start < 6


async def _error_of(work: Any) -> Exception | None:
    try:
        await work
    except TransportError as exc:
        return exc

    return None


# -------------------------------------------------------------------- slow readers


async def test_slow_direct_reader_loses_nothing() -> None:
    server = a_server()
    source = server.list_watch(CONFIG_MAPS)

    async with source.watch(WatchOptions(bookmarks=False)) as watch:
        for number in range(200):
            make(server, f"big-{number:03}", data=BIG)
            await asyncio.sleep(0)

        await asyncio.sleep(1)
        stream: Any = watch._source
        # 2 MB were written, and about as much as a socket buffers is in transit.
        assert 250_000 < len(stream._response._writer.buffer) < 400_000
        names: list[str] = []
        while len(names) < 200:
            names += [it.object.name for it in await watch.next_batch()]

    assert names == [f"big-{number:03}" for number in range(200)]


async def test_direct_large_list_is_buffered_up_to_limit() -> None:
    server = a_server()
    for number in range(100):
        make(server, f"big-{number:03}", data=BIG)

    async with server.list_watch(CONFIG_MAPS).list(ListOptions()) as page:
        await asyncio.sleep(1)
        stream: Any = page._response
        assert len(stream._response._writer.buffer) < 400_000
        count = 0
        async with aclosing(aiter(page)) as batches:
            async for batch in batches:
                count += len(batch)

    assert count == 100


async def test_leaving_large_direct_list_ends_task() -> None:
    server = a_server()
    for number in range(100):
        make(server, f"big-{number:03}", data=BIG)

    before = asyncio.all_tasks()
    async with server.list_watch(CONFIG_MAPS).list(ListOptions()):
        pass

    assert asyncio.all_tasks() == before


# -------------------------------------------------------------------- informers, bugs


async def test_informer_works_with_direct_list_watch() -> None:
    server = a_server("a", "b")
    informer = SharedInformer(server.list_watch(CONFIG_MAPS), name="direct")
    seen: list[str] = []
    informer.add_event_handler(on_add=lambda it: seen.append(it.name))

    async with asyncio.TaskGroup() as group:
        life = group.create_task(informer.run())
        await wait_for_cache_sync(informer, timeout=60)
        make(server, "c")
        server.faults.add(Refuse(verb="watch", status=500))
        await informer.wait_for_version(server.resource_version, timeout=60)
        await asyncio.sleep(0.1)
        life.cancel()

    assert sorted(seen) == ["a", "b", "c"]


async def test_direct_endpoint_raises_a_bug_of_the_server() -> None:
    class Broken(RequestHandler):
        async def respond(
            self, request: APIRequest, writer: ResponseWriter, waker: Waker
        ) -> None:
            await asyncio.sleep(1)
            raise ZeroDivisionError

    server = APIServer()
    server._handler.__class__ = Broken

    with pytest.raises(ZeroDivisionError):
        await listed(server.list_watch(CONFIG_MAPS))
