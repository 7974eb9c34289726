"""lightkube watches: events, and resumption after an end or an error."""

from __future__ import annotations

from contextlib import aclosing
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from lightkube import ApiError, AsyncClient, Client, KubeConfig
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap
from lightkube.types import PatchType, on_error_retry
from peer_servers import ADDED_CHANGED_DELETED, SHARED_SSL, in_a_thread, kubeconfig_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path
    from typing import Any

    from contract_servers import ServerUnderTest

pytestmark = SHARED_SSL

Widget = create_namespaced_resource("example.com", "v1", "Widget", "widgets")


@pytest.fixture
def config(target: ServerUnderTest, tmp_path: Path) -> KubeConfig:
    return KubeConfig.from_file(str(kubeconfig_of(target, tmp_path)))


@pytest.fixture
async def client(config: KubeConfig) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(config, trust_env=False) as it:
        yield it


def a_map(name: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, labels={"is": name}))


async def version(client: AsyncClient) -> str:
    found = client.list(ConfigMap)
    async for _ in found:
        pass

    return str(found.resourceVersion)


async def first(
    count: int, client: AsyncClient, kind: Any = ConfigMap, **options: Any
) -> list[tuple[str, Any]]:
    """Watch until a number of events has arrived."""
    seen: list[tuple[str, Any]] = []
    async with aclosing(client.watch(kind, **options)) as events:
        async for event in events:
            seen.append(event)
            if len(seen) == count:
                break

    return seen


def types_and_names(events: Iterable[tuple[str, Any]]) -> list[tuple[str, str]]:
    return [(operation, it.metadata.name) for operation, it in events]


async def test_lightkube_watch_gets_changes_after_version(
    client: AsyncClient,
) -> None:
    before = await version(client)
    made = await client.create(a_map("a"))
    changed = await client.patch(ConfigMap, "a", {"data": {"k": "v"}})
    await client.delete(ConfigMap, "a")

    events = await first(3, client, resource_version=before)

    assert types_and_names(events) == ADDED_CHANGED_DELETED
    assert [it for _, it in events[:2]] == [made, changed]
    assert events[2][1].data == {"k": "v"}


async def test_lightkube_watch_without_version_gets_existing_objects(
    client: AsyncClient,
) -> None:
    for name in "abc":
        await client.create(a_map(name))

    events = await first(2, client, labels={"is": ["c", "a"]})

    assert sorted(types_and_names(events)) == [("ADDED", "a"), ("ADDED", "c")]


async def test_lightkube_watches_custom_objects_as_dictionaries(
    client: AsyncClient,
) -> None:
    made = await client.create(Widget(metadata=ObjectMeta(name="a"), size=3))
    patch = {"size": 4}
    await client.patch(Widget, "a", patch, patch_type=PatchType.MERGE)
    await client.delete(Widget, "a")
    before = str(int(made.metadata.resourceVersion) - 1)

    events = await first(3, client, Widget, resource_version=before)

    assert types_and_names(events) == ADDED_CHANGED_DELETED
    assert [it["size"] for _, it in events] == [3, 4, 4]


async def test_lightkube_watch_resumes_after_end(
    client: AsyncClient,
) -> None:
    """The second event comes from a second watch, because the server ends each early."""
    await client.create(a_map("a"))
    seen = []
    async with aclosing(client.watch(ConfigMap, server_timeout=1)) as events:
        async for event in events:
            seen.append(event)
            if len(seen) == 2:
                break

            await client.create(a_map("b"))

    assert types_and_names(seen) == [("ADDED", "a"), ("ADDED", "b")]


async def test_lightkube_watch_of_old_version_raises_api_error(
    client: AsyncClient,
) -> None:
    with pytest.raises(ApiError, match=r"^too old resource version: 1 ") as caught:
        await first(1, client, Widget, resource_version="1")

    assert (caught.value.status.code, caught.value.status.reason) == (410, "Expired")


async def test_lightkube_watch_restarts_after_410(client: AsyncClient) -> None:
    await client.create(Widget(metadata=ObjectMeta(name="a")))

    events = await first(
        1, client, Widget, resource_version="1", on_error=on_error_retry
    )

    assert types_and_names(events) == [("ADDED", "a")]


@pytest.mark.realtime
@pytest.mark.looptime(False)
@in_a_thread
def test_lightkube_sync_client_lists_before_watch(config: KubeConfig) -> None:
    with Client(config, trust_env=False) as client:
        client.create(a_map("a"))
        found = client.list(ConfigMap)
        listed = [it.metadata.name for it in found]
        client.patch(ConfigMap, "a", {"data": {"k": "v"}})
        client.delete(ConfigMap, "a")
        client.create(a_map("b"))

        watch = client.watch(ConfigMap, resource_version=found.resourceVersion)
        events = list(islice(watch, 3))

    assert listed == ["a"]
    assert types_and_names(events) == [
        ("MODIFIED", "a"),
        ("DELETED", "a"),
        ("ADDED", "b"),
    ]
