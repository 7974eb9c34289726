"""`FakeListerWatcher`: lists, watches and failures, and an informer of it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aioinformer import (
    Added,
    Deleted,
    KubeObject,
    SharedInformer,
    TransportError,
    wait_for_cache_sync,
)
from aioinformer.errors import Forbidden, OptionsError, ResourceExpired
from aioinformer.model.resource import Resource
from aioinformer.model.resources import DEPLOYMENTS, NODES
from aioinformer.testing import FakeListerWatcher
from aioinformer.watch import ListOptions, WatchEvent, WatchOptions
from aioinformer_apiserver.errors.statuses import of_code

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.informer.notifications import Notification

WIDGETS = Resource("example.com", "v1", "widgets", "Widget")
INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


def named(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **fields.pop("metadata", {})}, **fields}


def changes_in(events: list[WatchEvent]) -> list[str]:
    return [f"{it.type} {it.object.name}@{it.object.resource_version}" for it in events]


async def as_list(
    source: FakeListerWatcher, **options: Any
) -> tuple[list[KubeObject], str, str]:
    """Return the objects, the version and the token of one page."""
    objects: list[KubeObject] = []
    async with source.list(ListOptions(**options)) as page:
        async for batch in page:
            objects += batch

        assert (page.skipped, page.unreadable) == (0, [])
        return objects, page.resource_version, page.continue_token


@asynccontextmanager
async def informed(
    source: FakeListerWatcher,
) -> AsyncIterator[tuple[SharedInformer, list[str]]]:
    """Run an informer until it has synced; yield it with its notifications."""
    informer = SharedInformer(source, name="fakes")
    record: list[str] = []

    def note(event: Notification) -> None:
        match event:
            case Added(obj=obj):
                record.append(f"+{obj.name}")
            case Deleted(obj=obj):
                record.append(f"-{obj.name}")
            case _:
                record.append(f"~{event.new.name}")

    informer.add_event_handler(on_event=note)
    async with asyncio.TaskGroup() as group:
        life = group.create_task(informer.run())
        await wait_for_cache_sync(informer, timeout=60)
        yield informer, record
        life.cancel()


# -------------------------------------------------------------------- objects


def test_fake_lister_watcher_assigns_versions_and_uids_in_order() -> None:
    source = FakeListerWatcher(named("a"), named("b"))

    changed = source.modify(named("a", spec={"nodeName": "n"}))
    source.delete(named("b"))
    again = source.add(named("b"))

    assert changed == {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": "a",
            "namespace": "default",
            "uid": "uid-1",
            "resourceVersion": "4",
        },
        "spec": {"nodeName": "n"},
    }
    assert again["metadata"]["uid"] == "uid-3"
    assert source.resource_version == "6"
    assert repr(source) == "<FakeListerWatcher pods objects=2 version=6>"


def test_fake_lister_watcher_does_not_modify_arguments() -> None:
    given = named("a", metadata={"uid": "mine", "namespace": "x"})

    stored = FakeListerWatcher().add(given)

    assert stored["metadata"]["uid"] == "mine"
    assert given == named("a", metadata={"uid": "mine", "namespace": "x"})


def test_fake_lister_watcher_accepts_kube_objects() -> None:
    source = FakeListerWatcher(KubeObject.of(named("a", kind="Pod", apiVersion="v1")))

    source.delete(KubeObject.of(named("a", metadata={"namespace": "default"})))

    assert source.resource_version == "3"


async def test_fake_lister_watcher_serves_any_resource() -> None:
    widgets = FakeListerWatcher(named("w", spec={"size": 3}), resource=WIDGETS)
    nodes = FakeListerWatcher(named("n"), resource=NODES)

    (widget,), _, _ = await as_list(widgets)
    (node,), _, _ = await as_list(nodes)

    assert (widget.key, widget.kind, widget.api_version) == (
        "default/w",
        "Widget",
        "example.com/v1",
    )
    assert (node.key, node.kind) == ("n", "Node")


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda it: it.add(named("a")), id="add-twice"),
        pytest.param(lambda it: it.add({"metadata": {}}), id="no-name"),
        pytest.param(lambda it: it.add(named("b", kind="Node")), id="other-kind"),
        pytest.param(lambda it: it.modify(named("b")), id="modify-unknown"),
        pytest.param(lambda it: it.delete(named("b")), id="delete-unknown"),
    ],
)
def test_fake_lister_watcher_rejects_invalid_objects(wrong: Any) -> None:
    source = FakeListerWatcher(named("a"))

    with pytest.raises(OptionsError):
        wrong(source)

    assert source.resource_version == "2"


# -------------------------------------------------------------------- lists


async def test_fake_lister_watcher_lists_in_pages() -> None:
    source = FakeListerWatcher(*map(named, "cab"))

    first, version, token = await as_list(source, limit=2)
    source.add(named("d"))
    rest, same, end = await as_list(source, limit=2, continue_token=token)

    assert [it.name for it in first] == ["a", "b"]
    assert [it.name for it in rest] == ["c"]
    assert (version, same, end) == ("4", "4", "")


async def test_fake_lister_watcher_empty_list_has_version() -> None:
    assert await as_list(FakeListerWatcher()) == ([], "1", "")


async def test_fake_lister_watcher_rejects_future_version() -> None:
    source = FakeListerWatcher()

    with pytest.raises(Exception, match="Too large resource version: 9"):
        await as_list(
            source, resource_version="9", resource_version_match="NotOlderThan"
        )


# -------------------------------------------------------------------- watches


async def test_fake_watch_without_version_sends_existing_objects() -> None:
    source = FakeListerWatcher(named("a"))

    async with source.watch(WatchOptions()) as watch:
        first = await watch.next_batch()
        source.modify(named("a"))
        source.add(named("b"))
        second = await watch.next_batch()

    assert changes_in(first) == ["ADDED a@2"]
    assert changes_in(second) == ["MODIFIED a@3", "ADDED b@4"]


async def test_fake_watch_from_version_sends_later_changes() -> None:
    source = FakeListerWatcher(named("a"))
    source.delete(named("a"))

    async with source.watch(WatchOptions(resource_version="2")) as watch:
        event = await anext(aiter(watch))

    assert changes_in([event]) == ["DELETED a@3"]


async def test_fake_watch_marks_end_of_initial_events() -> None:
    source = FakeListerWatcher(named("a"))

    async with source.watch(WatchOptions(send_initial_events=True)) as watch:
        events = await watch.next_batch()

    assert changes_in(events) == ["ADDED a@2", "BOOKMARK @2"]
    assert events[1].object.annotations == INITIAL_EVENTS_END


async def test_fake_watch_keeps_order_of_bookmark() -> None:
    source = FakeListerWatcher()

    async with (
        source.watch(WatchOptions(resource_version="1")) as watch,
        source.watch(WatchOptions(resource_version="1", bookmarks=False)) as plain,
    ):
        source.add(named("a"))
        source.bookmark()
        source.add(named("b"))

        assert changes_in(await watch.next_batch()) == [
            "ADDED a@2",
            "BOOKMARK @2",
            "ADDED b@3",
        ]
        assert changes_in(await plain.next_batch()) == ["ADDED a@2", "ADDED b@3"]


async def test_fake_watch_ends_after_timeout() -> None:
    source = FakeListerWatcher()
    start = asyncio.get_running_loop().time()

    options = WatchOptions(resource_version="1", timeout_seconds=7)
    async with source.watch(options) as watch:
        assert await watch.next_batch() == []

    assert asyncio.get_running_loop().time() - start == pytest.approx(7, abs=0.01)


async def test_fake_watch_stop_wakes_reader() -> None:
    source = FakeListerWatcher()

    async with source.watch(WatchOptions(resource_version="1")) as watch:
        asyncio.get_running_loop().call_later(1, watch.stop)
        assert [event async for event in watch] == []
        source.add(named("a"))
        assert await watch.next_batch() == []


async def test_fake_watch_cancellation_loses_no_events() -> None:
    source = FakeListerWatcher()

    async with source.watch(WatchOptions(resource_version="1")) as watch:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await watch.next_batch()

        source.add(named("a"))
        assert changes_in(await watch.next_batch()) == ["ADDED a@2"]


# -------------------------------------------------------------------- failures


async def test_fake_watch_error_is_last_event() -> None:
    source = FakeListerWatcher()

    async with source.watch(WatchOptions()) as watch:
        source.add(named("a"))
        source.error(of_code(500))
        source.add(named("b"))
        events = await watch.next_batch()

        assert [it.type for it in events] == ["ADDED", "ERROR"]
        assert events[1].error().status == 500
        assert await watch.next_batch() == []


async def test_fake_watch_cut_follows_earlier_events() -> None:
    source = FakeListerWatcher()

    async with source.watch(WatchOptions()) as watch:
        source.add(named("a"))
        source.cut()

        assert changes_in(await watch.next_batch()) == ["ADDED a@2"]
        with pytest.raises(TransportError):
            await watch.next_batch()


async def test_fake_lister_watcher_gone_expires_versions() -> None:
    source = FakeListerWatcher(named("a"))
    source.modify(named("a"))
    source.gone()

    async with source.watch(WatchOptions(resource_version="2")) as watch:
        (event,) = await watch.next_batch()
        assert event.error().status == 410
        assert await watch.next_batch() == []

    with pytest.raises(ResourceExpired):
        await as_list(source, resource_version="2", resource_version_match="Exact")


async def test_fake_lister_watcher_refuses_given_number_of_times() -> None:
    source = FakeListerWatcher()
    source.refuse(of_code(403), times=2)

    with pytest.raises(Forbidden):
        await as_list(source)

    with pytest.raises(Forbidden):
        async with source.watch(WatchOptions()):
            pass

    assert (await as_list(source))[1] == "1"
    assert len(source.requests) == 3


# -------------------------------------------------------------------- informers


async def test_informer_follows_fake_lister_watcher() -> None:
    source = FakeListerWatcher(named("a"), resource=DEPLOYMENTS)

    async with informed(source) as (informer, record):
        source.add(named("b"))
        source.modify(named("a"))
        source.delete(named("b"))
        await informer.wait_for_version(source.resource_version, timeout=5)
        await asyncio.sleep(0.1)

        assert source.watches == 1

    # Only the changes of each object have a guaranteed order.
    assert [it for it in record if it[1] == "a"] == ["+a", "~a"]
    assert [it for it in record if it[1] == "b"] == ["+b", "-b"]
    assert source.watches == 0


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(lambda it: it.cut(), id="cut"),
        pytest.param(lambda it: it.end(), id="end"),
        pytest.param(lambda it: it.gone(), id="gone"),
        pytest.param(lambda it: it.error(of_code(500)), id="error"),
        pytest.param(lambda it: it.bookmark(), id="bookmark"),
    ],
)
async def test_informer_recovers_from_faults_of_fake(trouble: Any) -> None:
    source = FakeListerWatcher(named("a"))

    async with informed(source) as (informer, record):
        source.add(named("b"))
        trouble(source)
        source.refuse(of_code(503))
        source.delete(named("a"))
        await informer.wait_for_version(source.resource_version, timeout=120)
        await asyncio.sleep(0.1)

    assert sorted(record) == ["+a", "+b", "-a"]
