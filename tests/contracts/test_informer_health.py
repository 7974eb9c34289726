"""The status of an informer while its server misbehaves, over real HTTP."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from informer_helpers import running
from informers import plain

from aioinformer import SharedInformerFactory, strip_managed_fields
from aioinformer.client import ListWatch
from aioinformer.errors import (
    DecodeError,
    Forbidden,
    HistoryReset,
    NotFound,
    NotSynced,
    ServerError,
    Stale,
    TransportError,
)
from aioinformer.informer import Deleted, ReflectorOptions, SharedInformer
from aioinformer.model.resource import Resource
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import (
    Cut,
    Duplicate,
    ErrorEvent,
    Garble,
    Gone,
    NoBookmarks,
    Refuse,
    Unreadable,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aioinformer import InformerStatus

WIDGETS = Resource("example.com", "v1", "widgets", "Widget")


@asynccontextmanager
async def watched(
    *faults: Any,
    resource: Resource = PODS,
    **options: Any,
) -> AsyncIterator[tuple[APIServer, SharedInformer]]:
    """Run a server with two objects and an informer of them.

    Faults of lists strike the first list.
    """
    async with APIServer(resources=[WIDGETS]) as server:
        server.faults.add(*faults)
        for name in ("a", "b"):
            server.create(resource, body_of(resource, name))

        async with server.client() as client:
            source = ListWatch(client, resource)
            informer = SharedInformer(source, name=resource.plural, **options)
            async with running(informer.run()):
                yield server, informer


def body_of(resource: Resource, name: str) -> dict[str, Any]:
    return plain(name) if resource is PODS else {"metadata": {"name": name}}


async def reached(
    informer: SharedInformer, there: Callable[[InformerStatus], bool]
) -> InformerStatus:
    """Wait for a status and return it."""
    async with asyncio.timeout(1000):
        while not there(informer.status):
            await asyncio.sleep(0.25)

    return informer.status


async def test_list_whose_continue_tokens_always_expire_is_read_without_pages() -> None:
    options = ReflectorOptions(page_size=1)
    async with watched(options=options) as (server, pods):
        await pods.wait_synced(timeout=30)
        expired = Gone(verb="list", parameter="continue", times=1000)
        server.faults.add(ErrorEvent(status=410), expired)
        server.create(PODS, plain("c"))

        await pods.wait_for_version(server.resource_version, timeout=60)

        assert len(pods.lister.list()) == 3
        assert [it.fault for it in server.faults.struck].count(expired) == 1


# ---------------------------------------------------------------- refusals


async def test_forbidden_watch_keeps_cache_readable_and_sets_status() -> None:
    refused = Refuse(verb="watch", status=403, times=1000)
    async with watched() as (server, pods):
        await pods.wait_synced(timeout=30)
        received: list[Exception] = []
        pods.set_watch_error_handler(received.append)
        server.faults.add(refused)
        await server.stop()
        await server.start()

        status = await reached(pods, lambda it: it.failures >= 3)

        assert isinstance(status.last_error, Forbidden)
        assert (status.last_error_status, status.last_error_reason) == (
            403,
            "Forbidden",
        )
        assert status.phase == "backing off"
        assert status.synced
        assert status.resource_version == server.resource_version
        assert len(pods.lister.list()) == 2
        assert len(received) >= 3
        with pytest.raises(Stale, match="403 Forbidden"):
            pods.lister.list(max_staleness=(status.age or 0) / 2)


async def test_forbidden_list_keeps_cache_readable_and_sets_status() -> None:
    async with watched() as (server, pods):
        await pods.wait_synced(timeout=30)
        server.faults.add(
            ErrorEvent(status=410), Refuse(verb="list", status=403, times=3)
        )
        server.create(PODS, plain("c"))

        status = await reached(pods, lambda it: it.failures >= 3)
        cached = len(pods.lister.list())
        mended = await reached(pods, lambda it: it.failures == 0)

        assert isinstance(status.last_error, Forbidden)
        assert cached == 2
        assert (mended.last_error, mended.last_error_status) == (None, 0)
        assert len(pods.lister.list()) == 3
        assert mended.restarts == 4, "the 410, and three refusals"


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        pytest.param(
            Refuse(verb="list", status=403, times=9),
            403,
            "both list and watch must be allowed",
            id="403",
        ),
        pytest.param(
            Refuse(verb="list", status=404, times=9),
            404,
            "the server does not serve the resource",
            id="404",
        ),
        pytest.param(
            Refuse(verb="list", status=401, times=9),
            401,
            "the server does not accept the credentials",
            id="401",
        ),
    ],
)
async def test_wait_synced_names_the_refusal_of_the_server(
    fault: Refuse, status: int, words: str
) -> None:
    async with watched(fault) as (_, pods):
        with pytest.raises(NotSynced) as raised:
            await pods.wait_synced(timeout=100)

        now = pods.status

    assert f"{status} " in str(raised.value)
    assert words in str(raised.value)
    assert raised.value.results == {"pods": str(raised.value).partition("synced: ")[2]}
    assert now.last_error_status == status
    assert (now.not_served, now.synced) == (status == 404, False)


async def test_wait_synced_names_fallback_from_streaming_lists() -> None:
    faults = [
        NoBookmarks(initial_events_end=True),
        Refuse(verb="list", status=503, times=9),
    ]
    options = ReflectorOptions(streaming_list=True)
    async with watched(*faults, options=options) as (_, pods):
        with pytest.raises(NotSynced) as raised:
            await pods.wait_synced(timeout=45)

        await pods.wait_synced(timeout=600)

    text = str(raised.value)
    assert "503" in text
    assert "listing in pages because the server did not stream lists" in text


async def test_streaming_list_is_transformed_once() -> None:
    calls: list[str] = []

    def note(obj: Any) -> Any:
        calls.append(f"{obj.name}@{obj.resource_version}")
        return strip_managed_fields(obj)

    options = ReflectorOptions(streaming_list=True)
    async with watched(options=options, transform=note) as (server, pods):
        await pods.wait_synced(timeout=30)
        server.create(PODS, plain("c"))
        await pods.wait_for_version(server.resource_version, timeout=30)
        server.faults.add(ErrorEvent(status=410))
        server.create(PODS, plain("d"))
        await reached(pods, lambda it: it.restarts == 1 and it.failures == 0)
        await pods.wait_for_version(server.resource_version, timeout=30)
        versions = [f"{obj.name}@{obj.resource_version}" for obj in pods.lister.list()]

    assert sorted(calls) == sorted(versions)
    assert len(calls) == 4


# ---------------------------------------------------------------- counters


@pytest.mark.parametrize(
    ("faults", "counted"),
    [
        pytest.param([Unreadable()], {"degraded": 1}, id="unreadable-event"),
        pytest.param([Unreadable(verb="list")], {"degraded": 1}, id="unreadable-item"),
        pytest.param([Duplicate(copies=2)], {"duplicates": 2}, id="duplicates"),
        pytest.param([Cut(after_bytes=10)], {"restarts": 1}, id="cut"),
        pytest.param(
            [Refuse(verb="list", status=500, times=2)], {"restarts": 2}, id="500"
        ),
        pytest.param([Garble()], {"restarts": 1}, id="garbled-event"),
    ],
)
async def test_failures_are_counted(faults: list[Any], counted: dict[str, int]) -> None:
    async with watched(*faults) as (server, pods):
        await pods.wait_synced(timeout=100)
        server.create(PODS, plain("c"))
        await pods.wait_for_version(server.resource_version, timeout=100)
        await asyncio.sleep(5)
        status = pods.status
        found = {
            name: getattr(status, name)
            for name in ("degraded", "duplicates", "history_resets", "restarts")
        }

    nothing = dict.fromkeys(found, 0)
    assert found == nothing | counted
    assert status.phase == "watching"
    assert status.failures == 0


async def test_restored_backup_counts_as_history_reset() -> None:
    async with watched() as (server, pods):
        await pods.wait_synced(timeout=30)
        received: list[Exception] = []
        pods.set_watch_error_handler(received.append)
        backup = server.snapshot()
        for number in range(5):
            server.create(PODS, plain(f"more-{number}"))

        await pods.wait_for_version(server.resource_version, timeout=30)
        await server.restart(snapshot=backup)
        status = await reached(pods, lambda it: it.history_resets == 1)
        await reached(pods, lambda it: it.failures == 0)

        assert status.history_resets == 1
        assert any(isinstance(error, HistoryReset) for error in received)
        assert pods.status.resource_version == server.resource_version


@pytest.mark.parametrize(
    ("fault", "kind", "code"),
    [
        (Refuse(verb="list", status=503, times=9), ServerError, 503),
        (Cut(verb="list", after_bytes=100, times=9), TransportError, 0),
        (Garble(verb="list", times=9), DecodeError, 0),
    ],
    ids=["refused", "cut", "garbled"],
)
async def test_last_error_is_the_error_of_the_server(
    fault: Any, kind: type[Exception], code: int
) -> None:
    async with watched(fault) as (_, pods):
        status = await reached(pods, lambda it: it.failures == 2)

    assert isinstance(status.last_error, kind)
    assert status.last_error_status == code
    assert (status.synced, status.age, status.resource_version) == (False, None, "")


# ---------------------------------------------------------------- fresh and stale


async def test_bookmarks_keep_an_idle_cache_fresh() -> None:
    async with watched() as (_, pods):
        await pods.wait_synced(timeout=30)
        oldest = 0.0
        for _second in range(280):
            await asyncio.sleep(1)
            oldest = max(oldest, pods.status.age or 0.0)
            pods.lister.list(max_staleness=120)

    assert 30 < oldest < 70


async def test_idle_cache_without_bookmarks_ages_until_its_watch_ends() -> None:
    options = ReflectorOptions(watch_seconds=100)
    faults = NoBookmarks(times=9)
    async with watched(faults, options=options) as (_, pods):
        await pods.wait_synced(timeout=30)
        oldest = 0.0
        for _second in range(600):
            await asyncio.sleep(1)
            oldest = max(oldest, pods.status.age or 0.0)
            pods.lister.list(max_staleness=201)

        assert pods.status.restarts == 0

    assert 100 <= oldest <= 201


async def test_cache_ages_while_the_server_is_unreachable() -> None:
    async with watched() as (server, pods):
        await pods.wait_synced(timeout=30)
        await server.stop()
        await asyncio.sleep(200)
        status = pods.status
        with pytest.raises(Stale, match=r"2\d\d\.\d s old"):
            pods.lister.get("default/a", max_staleness=120)

        kept = pods.lister.get("default/a")
        await server.start()
        server.create(PODS, plain("c"))
        await pods.wait_for_version(server.resource_version, timeout=200)

        assert pods.lister.list(max_staleness=10)

    assert kept is not None
    assert isinstance(status.last_error, TransportError)
    assert status.failures > 3


# ---------------------------------------------------------------- not served


async def test_resource_that_is_no_longer_served_becomes_absent() -> None:
    events: list[Any] = []
    async with watched(resource=WIDGETS) as (server, widgets):
        widgets.add_event_handler(on_event=events.append)
        await widgets.wait_synced(timeout=30)
        await server.stop()  # otherwise it would send an event for each deleted object
        server.unregister(WIDGETS)
        await server.start()
        missing = await reached(widgets, lambda it: it.not_served)
        kept = len(widgets.lister.list())

        absent = await reached(widgets, lambda it: it.phase == "absent")
        await reached(widgets, lambda _: not widgets.lister.list())
        removed = [event for event in events if isinstance(event, Deleted)]
        version = widgets.status.resource_version

        server.register(WIDGETS)
        server.create(WIDGETS, body_of(WIDGETS, "new"))
        back = await reached(widgets, lambda it: it.failures == 0)
        await widgets.wait_for_version(server.resource_version, timeout=100)

        assert [obj.name for obj in widgets.lister.list()] == ["new"]

    assert isinstance(missing.last_error, NotFound)
    assert missing.phase != "absent"
    assert kept == 2
    assert absent.synced
    assert version
    assert sorted(event.obj.name for event in removed) == ["a", "b"]
    assert all(event.final_state_unknown for event in removed)
    assert back.phase in {"listing", "watching"}
    assert not back.not_served


# ---------------------------------------------------------------- the factory


async def test_factory_passes_on_transform_and_streaming_list() -> None:
    async with APIServer() as server:
        server.create(PODS, plain("a"))
        factory = SharedInformerFactory(server.client())
        pods = factory.informer(
            "v1", "pods", transform=strip_managed_fields, streaming_list=True
        )
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            (stored,) = pods.lister.list()

    assert "managedFields" not in stored["metadata"]
    assert stored["metadata"]["name"] == "a"
    assert pods.options.streaming_list
