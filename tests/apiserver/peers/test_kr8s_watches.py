"""kr8s watches: events, ends and restarts."""

from __future__ import annotations

from contextlib import aclosing, closing
from itertools import islice
from typing import TYPE_CHECKING, Any

import kr8s
import pytest
from kr8s._async_utils import as_sync_func
from kr8s.asyncio.objects import ConfigMap, new_class
from kr8s.objects import ConfigMap as BlockingConfigMap
from kr8s_calls import NEWER_THAN_IT_KNOWS, connected, made
from peer_servers import (
    ADDED_CHANGED_DELETED,
    SHARED_SSL,
    config_map,
    deployment,
    in_a_thread,
    kubeconfig_of,
)

from aioinformer.testing import APIServer, faults

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from contract_servers import ServerUnderTest

pytestmark = [pytest.mark.alone, NEWER_THAN_IT_KNOWS, SHARED_SSL]


@pytest.fixture
async def api(target: ServerUnderTest, tmp_path: Path) -> AsyncIterator[Any]:
    async with connected(kubeconfig_of(target, tmp_path)) as it:
        yield it


async def first(
    count: int, api: Any, kind: Any, **options: Any
) -> list[tuple[str, str]]:
    """Watch until a number of events has arrived."""
    seen: list[tuple[str, str]] = []
    async with aclosing(api.watch(kind, **options)) as events:
        async for event, it in events:
            seen.append((event, it.name))
            if len(seen) == count:
                break

    return seen


async def test_kr8s_watch_gets_changes_after_version(api: Any) -> None:
    mark = await made(api, config_map("mark"))
    it = await made(api, config_map("a"))
    await it.patch({"data": {"k": "v"}})
    await it.delete()

    version = mark.metadata.resourceVersion
    events = await first(3, api, "configmaps", since=version)

    assert events == ADDED_CHANGED_DELETED


async def test_kr8s_watch_without_version_gets_existing_objects(api: Any) -> None:
    for name in "abc":
        await made(api, config_map(name))

    events = await first(2, api, "configmaps", label_selector="is in (a, c)")

    assert sorted(events) == [("ADDED", "a"), ("ADDED", "c")]


async def test_kr8s_watches_custom_objects(api: Any) -> None:
    kind = new_class("Widget", version="example.com/v1")
    mark = await made(api, config_map("mark"))
    it = await kind({"metadata": {"name": "a"}, "size": 3}, api=api)
    await it.create()
    await it.patch({"size": 4})
    await it.delete()

    version = mark.metadata.resourceVersion
    events = await first(3, api, "widgets.example.com", since=version)

    assert events == ADDED_CHANGED_DELETED


async def test_kr8s_wait_ends_with_condition(api: Any) -> None:
    it = await made(api, deployment("a"))
    ready = {"type": "Available", "status": "True"}
    await it.patch({"status": {"conditions": [ready]}}, subresource="status")

    await it.wait("condition=Available", timeout=60)
    await it.wait("jsonpath='{.spec.replicas}'=2", timeout=60)

    assert it.status.conditions[0].status == "True"


async def test_kr8s_wait_for_deletion_ends_after_finalizer(api: Any) -> None:
    it = await made(api, config_map("a"))
    await it.patch({"metadata": {"finalizers": ["example.com/hold"]}})
    await it.delete()
    await it.refresh()
    assert it.metadata.deletionTimestamp

    other = await ConfigMap.get("a", api=api)
    await other.patch({"metadata": {"finalizers": None}})
    async with aclosing(it.watch()) as events:
        event, gone = await anext(events)

    assert (event, gone.name) == ("DELETED", "a")
    await it.wait("delete", timeout=60)


async def test_kr8s_watch_ends_with_server(tmp_path: Path) -> None:
    """kr8s requests no timeout, and does not report the end."""
    async with (
        APIServer(watch_seconds=5) as server,
        connected(server.kubeconfig(tmp_path / "config")) as api,
    ):
        await made(api, config_map("a"))

        events = await first(9, api, "configmaps", namespace="default")

    assert events == [("ADDED", "a")]


async def test_kr8s_resumes_watch_after_410(tmp_path: Path) -> None:
    async with (
        APIServer() as server,
        connected(server.kubeconfig(tmp_path / "config")) as api,
    ):
        await made(api, config_map("a"))
        await made(api, config_map("b"))
        server.faults.add(faults.Gone(verb="watch", after_events=1))

        events = await first(2, api, "configmaps")

        watches = [it for it in server.requests if it.verb == "watch"]

    assert events == [("ADDED", "a"), ("ADDED", "b")]
    assert len(watches) == 2


@pytest.mark.realtime
@pytest.mark.looptime(False)
@in_a_thread
def test_kr8s_sync_client_lists_before_watch(
    target: ServerUnderTest, tmp_path: Path
) -> None:
    """The loop of kr8s runs in its own thread until the program ends."""
    api = kr8s.api(kubeconfig=str(kubeconfig_of(target, tmp_path)))
    it = BlockingConfigMap(config_map("a"), api=api)
    it.create()

    listed = [one.name for one in api.get(BlockingConfigMap)]
    version = it.metadata.resourceVersion
    it.patch({"data": {"k": "v"}})
    it.delete()
    with closing(api.watch("configmaps", since=version)) as events:
        seen = [(event, one.name) for event, one in islice(events, 2)]

    assert listed == ["a"]
    assert seen == [("MODIFIED", "a"), ("DELETED", "a")]
    as_sync_func(api._session.aclose)()
