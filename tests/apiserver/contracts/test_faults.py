"""Informers recover from all faults, and end with the server's state.

These tests run against our server only, because a real one has no scripted faults.
`tests/apiserver/test_faults*.py` tests the responses of each fault.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aioinformer import SharedInformerFactory
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import (
    BlankBookmarks,
    Chaos,
    Compact,
    Cut,
    Delay,
    Drop,
    Duplicate,
    End,
    ErrorEvent,
    Fault,
    Foreign,
    Garble,
    Gone,
    NoBookmarks,
    Page,
    Refuse,
    Slow,
    Stall,
    StepBack,
    UnknownType,
    Unreadable,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aioinformer import SharedInformer

# A watch of the informer lasts five minutes; some faults strike only the next one.
PATIENCE_SECONDS = 1200


def put(server: APIServer, name: str, **data: str) -> None:
    body = {"metadata": {"name": name}, "data": data}
    if any(it["metadata"]["name"] == name for it in server.objects(CONFIG_MAPS)):
        server.update(CONFIG_MAPS, body)
    else:
        server.create(CONFIG_MAPS, body)


@asynccontextmanager
async def a_server() -> AsyncIterator[APIServer]:
    async with APIServer() as server:
        for number in range(8):
            put(server, f"map-{number}", text="x" * 200)

        yield server


@asynccontextmanager
async def an_informer(server: APIServer) -> AsyncIterator[SharedInformer]:
    factory = SharedInformerFactory(server.client())
    # Lists have pages, so that continue tokens can expire.
    informer = factory.informer("v1", "configmaps", page_size=3)
    async with factory:
        await factory.wait_for_cache_sync(timeout=PATIENCE_SECONDS)
        yield informer


def change(server: APIServer, text: str) -> None:
    """Create, update and delete objects, including all that existed before."""
    for number in range(1, 8):
        put(server, f"map-{number}", text=text)

    put(server, f"new-{text}")
    server.delete(CONFIG_MAPS, "map-1")


def is_same(server: APIServer, informer: SharedInformer) -> bool:
    cached = {obj.key: obj.to_dict() for obj in informer.store.list()}
    objects = server.objects(CONFIG_MAPS)
    return cached == {f"default/{it['metadata']['name']}": it for it in objects}


async def converged(server: APIServer, informer: SharedInformer) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_same(server, informer):
            await asyncio.sleep(0.5)


async def converges(server: APIServer) -> None:
    async with an_informer(server) as informer:
        for text in "abc":
            change(server, text)
            await asyncio.sleep(1)

        # Some faults strike only a bookmark or the next watch.
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not server.faults.struck:
                await asyncio.sleep(0.5)

        change(server, "d")
        await converged(server, informer)


# The informer recovers from these without further help.
OF_WATCHES: list[Fault] = [
    Refuse(verb="watch", status=401),
    Refuse(verb="watch", status=404),
    Refuse(verb="watch", status=410),
    Refuse(verb="watch", status=429, retry_after=5, retry_date=True),
    Refuse(verb="watch", status=500),
    Gone(),
    Gone(after_events=3),
    Page(verb="watch", status=200),
    Page(verb="watch", status=502),
    Delay(verb="watch", seconds=20),
    Stall(head=False),
    Stall(after_bytes=0),
    Stall(after_bytes=700),
    Stall(after_bytes=700, seconds=50),
    Slow(bytes_per_second=100),
    Cut(head=False),
    Cut(after_bytes=0, head=False, reset=True),
    Cut(after_bytes=0),
    Cut(after_bytes=700),
    Cut(after_bytes=700, reset=True),
    End(after_events=0),
    End(after_events=3),
    End(after_bytes=700),
    ErrorEvent(status=410),
    ErrorEvent(status=410, after_events=3),
    ErrorEvent(status=500, after_events=3),
    ErrorEvent(status=429),
    ErrorEvent(status=403),
    Garble(),
    Garble(after_events=3),
    UnknownType(after_events=3),
    Duplicate(after_events=3, copies=3),
    StepBack(after_events=3),
    StepBack(after_events=3, versions=1),
    BlankBookmarks(),
    NoBookmarks(),
]
OF_LISTS: list[Fault] = [
    Refuse(verb="list", status=401),
    Refuse(verb="list", status=404),
    Refuse(verb="list", status=410),
    Refuse(verb="list", status=429, retry_after=5),
    Refuse(verb="list", status=500),
    Gone(verb="list"),
    Page(verb="list", status=200),
    Page(verb="list", status=502),
    Delay(verb="list", seconds=60),
    Stall(verb="list", head=False),
    Stall(verb="list", after_bytes=500),
    Slow(verb="list", bytes_per_second=100),
    Cut(verb="list", after_bytes=0, head=False),
    Cut(verb="list", after_bytes=500),
    Cut(verb="list", after_bytes=500, reset=True),
    End(verb="list", after_bytes=500),
    Garble(verb="list", after_events=1),
    Duplicate(verb="list", after_events=1),
    StepBack(verb="list"),
    Unreadable(verb="list", after_events=2),
]
# An informer may notice these only at its next list.
LIES: list[Fault] = [
    Drop(after_events=3, events=4),
    Drop(after_events=3, events=1000),
    Drop(verb="list", after_events=1),
    Foreign(after_events=3),
    Foreign(verb="list", after_events=1),
    Unreadable(after_events=3),
]


@pytest.mark.parametrize("fault", [*OF_WATCHES, *OF_LISTS], ids=repr)
async def test_informer_recovers_from_fault(fault: Fault) -> None:
    async with a_server() as server:
        server.faults.add(fault)

        await converges(server)

        assert [it.fault for it in server.faults.struck] == [fault]


async def test_informer_recovers_from_history_compacted_while_disconnected() -> None:
    away, lost = Refuse(verb="watch", status=503), Compact(verb="watch")
    async with a_server() as server:
        server.faults.add(away, lost)

        await converges(server)

        assert [it.fault for it in server.faults.struck] == [away, lost]


async def test_informer_recovers_from_expired_continue_token() -> None:
    # The first list is served whole from the watch cache, the one after a 410 in
    # pages. Its first page is delayed until there is a newer version.
    gone, expired = Gone(after_events=2), Compact(parameter="continue")
    late = Stall(verb="list", head=False, seconds=1.5, skip=1)
    async with a_server() as server:
        server.faults.add(gone, late, expired)

        await converges(server)

        assert [it.fault for it in server.faults.struck] == [gone, late, expired]


@pytest.mark.parametrize("fault", LIES, ids=repr)
async def test_informer_recovers_from_false_events_by_relisting(fault: Fault) -> None:
    async with a_server() as server:
        server.faults.add(fault, ErrorEvent(status=410, skip=1))

        await converges(server)

        # Some false events are noticed before, by the next change of the
        # object.
        assert server.faults.struck[0].fault == fault


@pytest.mark.parametrize("seed", range(5))
async def test_informer_recovers_from_chaos(seed: int) -> None:
    chaos = Chaos(seed=seed, rate=0.8, limit=12, lies=True)
    async with a_server() as server:
        server.faults.add(chaos)
        async with an_informer(server) as informer:
            for number in range(40):
                change(server, f"text-{number}")
                await asyncio.sleep(20)

            # The informer notices false events by relisting.
            server.faults.clear()
            server.faults.add(ErrorEvent(status=410))
            await converged(server, informer)

    assert chaos.drawn, "nothing was drawn, so nothing was shown"


# -------------------------------------------------------------------- other histories


def backwards(server: APIServer) -> dict[str, Any]:
    """Make a snapshot, then changes that a restore undoes; return restart options."""
    snapshot = server.snapshot()
    change(server, "lost")
    return {"snapshot": snapshot}


@pytest.mark.parametrize(
    "prepare",
    [
        pytest.param(lambda _: {}, id="the-same-history"),
        pytest.param(backwards, id="a-backup"),
        pytest.param(lambda _: {"new_history": True}, id="a-new-cluster"),
    ],
)
async def test_informer_recovers_from_server_restart(
    prepare: Callable[[APIServer], dict[str, Any]],
) -> None:
    async with a_server() as server, an_informer(server) as informer:
        options = prepare(server)
        await converged(server, informer)

        await server.restart(**options)
        await converged(server, informer)
        change(server, "after")
        await converged(server, informer)


async def test_restored_snapshot_repeats_resource_versions() -> None:
    async with a_server() as server:
        snapshot = server.snapshot()
        version, before = server.resource_version, server.objects(CONFIG_MAPS)
        change(server, "lost")

        await server.restart(snapshot=snapshot)

        assert server.resource_version == version
        assert server.objects(CONFIG_MAPS) == before
        put(server, "map-0", text="other")
        changed = server.get(CONFIG_MAPS, "map-0")["metadata"]["resourceVersion"]
        assert changed == str(int(version) + 1)


async def test_new_history_keeps_objects_with_new_uids_and_versions() -> None:
    async with a_server() as server:
        change(server, "x")
        before = server.objects(CONFIG_MAPS)
        version, address = int(server.resource_version), server.url

        await server.restart(new_history=True)

        after = server.objects(CONFIG_MAPS)
        assert [it["data"] for it in after if "data" in it] == [
            it["data"] for it in before if "data" in it
        ]
        old_uids, new_uids = (
            {it["metadata"]["uid"] for it in objects} for objects in (before, after)
        )
        assert old_uids.isdisjoint(new_uids)
        assert len(new_uids) == len(after) == len(before)
        assert int(server.resource_version) < version
        assert server.url == address
