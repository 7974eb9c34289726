"""`add_event_handler` and its decorators: options, and their combinations."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from fake_source import Page, Stream, added, deleted, modified, thing
from informer_helpers import Recorder, Slow, pods_of, running, settle

from aioinformer.errors import NotSynced, OptionsError
from aioinformer.informer import Added, Deleted, Updated

if TYPE_CHECKING:
    from aioinformer.informer import SharedInformer
    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
def pods(stream: Stream) -> SharedInformer:
    return pods_of(watches=(stream,))


# ---------------------------------------------------------------- decorators


async def test_decorators_accept_handler_options(
    pods: SharedInformer, stream: Stream
) -> None:
    record: list[object] = []

    @pods.on_add(filter=lambda obj: obj.name == "a", name="adds")
    def came(obj: KubeObject) -> None:
        record.append(("add", obj.name))

    @pods.on_update(resync_period=5)
    async def moved(old: KubeObject, new: KubeObject) -> None:
        record.append(("update", new.name))

    @pods.on_delete(coalesce=True)
    def went(obj: KubeObject) -> None:
        record.append(("delete", obj.name))

    @pods.on_event(filter=lambda obj: obj.name == "b")
    def happened(event: Notification) -> None:
        record.append(type(event))

    async with running(pods.run()):
        await settle()
        stream.send(deleted(thing("b", 6)))
        await asyncio.sleep(6)
        names = [listener.name for listener in pods._processor.listeners]

    assert record == [("add", "a"), Added, ("delete", "b"), Deleted, ("update", "a")]
    assert names[0] == "pods/adds"
    assert "moved" in names[1]


def test_decorators_return_the_function_unchanged(pods: SharedInformer) -> None:
    def plain(obj: KubeObject) -> str:
        return obj.name

    assert pods.on_add(plain) is plain
    assert pods.on_add(name="named")(plain) is plain
    assert pods.on_add()(plain) is plain
    assert [it.name.rpartition(".")[2] for it in pods._processor.listeners] == [
        "plain",
        "pods/named",
        "plain",
    ]


@pytest.mark.parametrize("decorator", ["on_add", "on_update", "on_delete", "on_event"])
def test_unknown_options_are_refused(pods: SharedInformer, decorator: str) -> None:
    with pytest.raises(TypeError, match="quickly"):
        getattr(pods, decorator)(quickly=True)(print)

    assert pods._processor.listeners == ()


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"resync_period": 0.1}, id="period"),
        pytest.param({"filter": "app=web"}, id="filter"),
        pytest.param({"filter": asyncio.sleep}, id="async-filter"),
    ],
)
def test_invalid_options_are_refused(
    pods: SharedInformer, options: dict[str, Any]
) -> None:
    with pytest.raises(OptionsError):
        pods.add_event_handler(on_event=print, **options)

    assert pods._processor.listeners == ()


# ---------------------------------------------------------------- combinations


async def test_merged_change_passes_the_filter_as_one(
    pods: SharedInformer, stream: Stream
) -> None:
    """The last delivered and the current state decide, not those in between."""
    received: list[Notification] = []

    async def slow(event: Notification) -> None:
        received.append(event)
        await asyncio.sleep(1)

    def is_even(obj: KubeObject) -> bool:
        return int(obj.resource_version) % 2 == 0

    pods.add_event_handler(on_event=slow, filter=is_even, coalesce=True)

    async with running(pods.run()):
        await settle()
        stream.send(added(thing("busy", 6)), added(thing("c", 8)))
        await settle()
        # The handler is busy; all of these are queued.
        stream.send(
            *(modified(thing("c", version)) for version in (9, 10, 11)),
            modified(thing("busy", 12)),
            modified(thing("busy", 13)),
            modified(thing("a", 15)),
            deleted(thing("a", 17)),
        )
        await asyncio.sleep(10)

    assert received == [Added(thing("busy", 6)), Deleted(thing("busy", 6))]


async def test_deletion_is_delivered_although_no_merged_state_passes_the_filter(
    pods: SharedInformer, stream: Stream
) -> None:
    received: list[Notification] = []

    async def slow(event: Notification) -> None:
        received.append(event)
        await asyncio.sleep(1)

    pods.add_event_handler(
        on_event=slow,
        filter=lambda obj: obj.resource_version in {"1", "6"},
        coalesce=True,
    )

    async with running(pods.run()):
        await asyncio.sleep(3)
        stream.send(added(thing("busy", 6)))
        await settle()
        stream.send(modified(thing("a", 8)), deleted(thing("a", 9)))
        await asyncio.sleep(5)

    assert received[-1] == Deleted(thing("a", 9))
    assert len(received) == 4


async def test_late_filtered_handler_gets_its_part_of_the_snapshot(
    pods: SharedInformer, stream: Stream
) -> None:
    received: list[Notification] = []

    async with running(pods.run()):
        await pods.wait_synced()
        registration = pods.add_event_handler(
            on_event=received.append, filter=lambda obj: obj.name == "b", coalesce=True
        )
        await registration.wait_synced()
        stream.send(modified(thing("b", 6)), modified(thing("a", 7)))
        await settle()

    assert received == [Added(thing("b"), True), Updated(thing("b"), thing("b", 6))]


async def test_same_handler_can_be_added_with_other_options(
    pods: SharedInformer,
) -> None:
    record = Recorder()
    pods.add_event_handler(on_event=record)
    pods.add_event_handler(on_event=record, filter=lambda obj: obj.name == "a")

    async with running(pods.run()):
        await settle()

    assert sorted(record.record) == ["a", "a", "b"]


# ---------------------------------------------------------------- wait_synced


async def test_wait_synced_times_out(pods: SharedInformer) -> None:
    registration = pods.add_event_handler(on_event=Slow(10), name="slow")

    async with running(pods.run()):
        with pytest.raises(NotSynced) as caught:
            await registration.wait_synced(timeout=12)

        await registration.wait_synced(timeout=12)

    assert str(caught.value) == ("handler pods/slow is not synced: depth 1, age 12.0 s")
    assert list(caught.value.results) == ["pods/slow"]


async def test_wait_synced_of_a_synced_handler_ignores_the_timeout() -> None:
    pods = pods_of(Page([], version=5))
    registration = pods.add_event_handler(on_event=Recorder())

    async with running(pods.run()):
        await pods.wait_synced()

        await registration.wait_synced(timeout=0)
