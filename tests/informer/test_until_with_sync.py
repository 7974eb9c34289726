"""`until_with_sync`: waits for events or stored objects of an informer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

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

from aioinformer import until_with_sync
from aioinformer.client import ListWatch
from aioinformer.errors import (
    Forbidden,
    InformerStopped,
    InternalError,
    NotSynced,
    ServerError,
    TransportError,
)
from aioinformer.informer.store.pipeline import Pipeline
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer
from aioinformer.watch import EventType

if TYPE_CHECKING:
    from aioinformer.cache import Indexer
    from aioinformer.model import KubeObject
    from aioinformer.watch import WatchEvent


def source_of(
    *lists: Page | Exception | Silence, watches: tuple[Stream, ...] = ()
) -> FakeSource:
    return FakeSource(lists or [Page([thing("a", 1)], version=5)], watches)


def is_deleted(event: WatchEvent) -> bool:
    return event.type is EventType.DELETED


def anything(_: object) -> bool:
    return True


def never(_: object) -> bool:
    return False


# ---------------------------------------------------------------- conditions


async def test_stored_object_meets_a_condition() -> None:
    source = source_of()

    event = await until_with_sync(source, anything, timeout=10)

    assert event == added(thing("a", 1))
    assert source.open == 0


async def test_conditions_are_met_one_after_the_other() -> None:
    stream = Stream(2.0, [modified(thing("a", 6))], [deleted(thing("a", 7))])
    seen: list[str] = []

    def note(event: WatchEvent) -> bool:
        seen.append(f"{event.type} {event.object.resource_version}")
        return event.type is EventType.MODIFIED

    source = source_of(watches=(stream,))
    event = await until_with_sync(source, anything, note, is_deleted)

    assert event is not None
    assert event.object.resource_version == "7"
    assert seen == ["ADDED 1", "MODIFIED 6"]


async def test_deletion_missed_by_the_watch_meets_a_condition() -> None:
    """`until` would end here, as the server has compacted its history."""
    stream = Stream(2.0, [error_event(410, "Expired")])
    source = source_of(
        Page([thing("a", 1)], version=5), Page([], version=90), watches=(stream,)
    )

    event = await until_with_sync(source, is_deleted, timeout=60)

    assert event == deleted(thing("a", 1)), "the last known state"


async def test_call_without_conditions_returns_at_once() -> None:
    source = source_of()

    assert await until_with_sync(source) is None
    assert source.requests == []


@pytest.mark.parametrize("error", [ZeroDivisionError(), TimeoutError("mine")])
async def test_error_of_a_condition_is_raised_unchanged(error: Exception) -> None:
    def fails(_: object) -> bool:
        raise error

    source = source_of()
    waits = [
        until_with_sync(source, fails, timeout=60),
        until_with_sync(source, precondition=fails, timeout=60),
    ]

    for wait in waits:
        with pytest.raises(type(error)) as caught:
            await wait

        assert caught.value is error
        assert source.open == 0


# ---------------------------------------------------------------- preconditions


async def test_true_precondition_ends_the_wait() -> None:
    source = source_of(Page([thing("a"), thing("b")], version=5))
    sizes: list[int] = []

    def two(indexer: Indexer[KubeObject]) -> bool:
        sizes.append(len(indexer))
        return len(indexer) == 2

    assert await until_with_sync(source, never, precondition=two) is None
    assert sizes == [2], "called once, with the complete cache"
    assert source.open == 0


async def test_false_precondition_is_followed_by_the_conditions() -> None:
    stream = Stream(2.0, [deleted(thing("a", 7))])

    event = await until_with_sync(
        source_of(watches=(stream,)), is_deleted, precondition=never
    )

    assert event == deleted(thing("a", 7))
    assert await until_with_sync(source_of(), precondition=never) is None


async def test_precondition_can_be_async() -> None:
    async def slowly(indexer: Indexer[KubeObject]) -> bool:
        await asyncio.sleep(5)
        return len(indexer) == 1

    assert await until_with_sync(source_of(), never, precondition=slowly) is None


# ---------------------------------------------------------------- timeouts


@pytest.mark.parametrize(
    ("list_", "reason"),
    [
        pytest.param(Silence(), "listing, no error so far", id="silence"),
        pytest.param(
            ServerError("busy", status=503, retry_after=99.0),
            "backing off, 1 attempt failed: 503: busy",
            id="busy",
        ),
    ],
)
async def test_timeout_before_the_sync_names_the_unmet_conditions(
    list_: Any, reason: str, looptime: float
) -> None:
    source = source_of(list_)

    with pytest.raises(TimeoutError) as caught:
        await until_with_sync(source, anything, timeout=30)

    assert str(caught.value) == (
        "timed out after 30 s: 0 of 1 conditions were met, no event was received "
        f"(not synced: {reason})"
    )
    assert looptime == 30
    assert source.open == 0


async def test_timeout_before_the_sync_raises_not_synced_with_a_precondition(
    looptime: float,
) -> None:
    source = source_of(TransportError("no route"))

    with pytest.raises(
        NotSynced, match=r"did not sync within 30 s: .*no route"
    ) as caught:
        await until_with_sync(source, anything, precondition=anything, timeout=30)

    assert list(caught.value.results) == ["until_with_sync"]
    assert looptime == 30
    assert source.open == 0


async def test_timeout_error_names_the_last_event() -> None:
    stream = Stream([modified(thing("a", 7))])

    with pytest.raises(TimeoutError) as caught:
        await until_with_sync(source_of(watches=(stream,)), is_deleted, timeout=30)

    assert str(caught.value) == (
        "timed out after 30 s: 0 of 1 conditions were met, the last event was MODIFIED "
        "default/a at version 7"
    )


async def test_timeout_error_says_that_the_connection_was_lost() -> None:
    broken: Any = [TransportError("no route")] * 30
    source = FakeSource([Page([thing("a")], version=5)], broken)

    with pytest.raises(TimeoutError, match="the last attempt failed: no route"):
        await until_with_sync(source, is_deleted, precondition=never, timeout=30)


@pytest.mark.parametrize("precondition", [None, anything])
async def test_two_refusals_end_the_wait(precondition: Any, looptime: float) -> None:
    source = source_of(Forbidden("not you", status=403))

    with pytest.raises(NotSynced, match="not you"):
        await until_with_sync(source, anything, precondition=precondition)

    assert looptime < 10
    assert source.open == 0


async def test_informer_that_dies_ends_the_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*_: object) -> None:
        raise InternalError("our bug")

    monkeypatch.setattr(Pipeline, "feed", fail)
    stream = Stream(2.0, [modified(thing("a", 7))])

    with pytest.raises(InformerStopped) as caught:
        await until_with_sync(source_of(watches=(stream,)), never, timeout=60)

    assert isinstance(caught.value.__cause__, InternalError)


# ---------------------------------------------------------------- a server


@pytest.mark.parametrize("already", [True, False], ids=["already", "later"])
async def test_wait_until_a_pod_runs(already: bool) -> None:
    """Run the example of the docstring."""
    async with APIServer(auto_namespaces=True) as server, server.client() as client:
        spec = {"containers": [{"name": "main", "image": "registry.example/app:1"}]}
        server.create(PODS, {"metadata": {"name": "web"}, "spec": spec})

        async def start() -> None:
            await asyncio.sleep(0 if already else 5)
            server.patch(PODS, "web", {"status": {"phase": "Running"}})

        async with asyncio.TaskGroup() as group:
            task = group.create_task(start())
            if already:
                await task

            source = ListWatch(client, PODS, field_selector="metadata.name=web")
            event = await until_with_sync(
                source,
                lambda event: event.object.at("status.phase") == "Running",
                timeout=60,
            )

        assert event is not None
        assert event.type is (EventType.ADDED if already else EventType.MODIFIED)
        assert event.object.key == "default/web"
