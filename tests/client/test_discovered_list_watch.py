"""Lists and watches of resources whose names are discovered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from discovery_helpers import OldServer, aggregated, define_widgets, definition

from aioinformer import SharedInformerFactory
from aioinformer.client.list_watch import DiscoveredListWatch
from aioinformer.errors import (
    Invalid,
    NotFound,
    NotSynced,
    SelectorSyntaxError,
    ServerError,
)
from aioinformer.model import Resource
from aioinformer.model.objects import KubeObject
from aioinformer.model.resources import CUSTOM_RESOURCE_DEFINITIONS, PODS
from aioinformer.testing import APIServer
from aioinformer.watch import ListOptions, Selectors, ServedCheck, WatchOptions
from aioinformer.watch.interface import Selection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.client import Client

WIDGET = Resource("example.com", "v1", "widget", "Widget")
FOUND = Resource("example.com", "v1", "widgets", "Widget")


def widget(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "labels": {"name": name}}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata}


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer(auto_namespaces=True) as server:
        yield server


@pytest.fixture
async def client(server: APIServer) -> AsyncIterator[Client]:
    async with server.client() as client:
        yield client


async def listed(source: DiscoveredListWatch) -> list[str]:
    async with source.list(ListOptions()) as page:
        return [obj.key async for some in page for obj in some]


# ---------------------------------------------------------------- the source


@pytest.mark.parametrize(
    "given",
    [
        WIDGET,
        Resource.of("example.com/v1", "widgets"),
        Resource.of("example.com/v1", "widget"),
        Resource.of("example.com/v1", "wd"),
    ],
    ids=["kind", "plural", "singular", "short"],
)
async def test_discovered_list_watch_lists_resource_of_name(
    client: Client, given: Resource
) -> None:
    await define_widgets(client)
    await client.create(FOUND, widget("a"))
    source = DiscoveredListWatch(client, given)
    assert source.resource == given

    assert await listed(source) == ["shop/a"]
    assert source.resource == FOUND


async def test_discovered_list_watch_watches_selected_objects(client: Client) -> None:
    await define_widgets(client)
    for name in ("a", "b"):
        await client.create(FOUND, widget(name))

    source = DiscoveredListWatch(
        client, WIDGET, namespace="shop", label_selector="name=b"
    )
    async with source.watch(WatchOptions()) as watch:
        async for event in watch:
            assert event.object.key == "shop/b"
            break


async def test_discovered_list_watch_raises_not_found_for_unknown_name(
    client: Client,
) -> None:
    source = DiscoveredListWatch(client, WIDGET)

    with pytest.raises(NotFound, match=r"no resource 'Widget' in example\.com/v1"):
        await listed(source)

    with pytest.raises(NotFound):
        async with source.watch(WatchOptions()):
            pass

    assert isinstance(source, ServedCheck)
    assert await source.is_served() is False


async def test_discovered_list_watch_returns_whether_resource_is_served(
    client: Client,
) -> None:
    await define_widgets(client)
    source = DiscoveredListWatch(client, WIDGET)
    assert await source.is_served() is True

    await client.delete(CUSTOM_RESOURCE_DEFINITIONS, "widgets.example.com")
    while await source.is_served():
        pass

    with pytest.raises(NotFound):
        await listed(source)


async def test_resource_of_broken_group_counts_as_served() -> None:
    stale = aggregated(("example.com", {"v1": None}))
    core = aggregated(("", {"v1": {"pods": "Pod"}}))
    documents = {"/api": core, "/apis": stale}
    async with OldServer(documents) as server, server.client() as client:
        source = DiscoveredListWatch(client, WIDGET)
        with pytest.raises(ServerError):
            await listed(source)

        with pytest.raises(ServerError):
            await source.is_served()


async def test_discovered_list_watch_finds_kind_recreated_with_other_plural(
    client: Client,
) -> None:
    await define_widgets(client)
    source = DiscoveredListWatch(client, WIDGET)
    assert await listed(source) == []

    await client.delete(CUSTOM_RESOURCE_DEFINITIONS, "widgets.example.com")
    while await source.is_served():
        pass

    await define_widgets(client, plural="widgetz")
    with pytest.raises(NotFound):
        await listed(source)

    assert await listed(source) == []
    assert source.resource.plural == "widgetz"


async def test_namespace_of_cluster_scoped_resource_raises_invalid(
    client: Client,
) -> None:
    await define_widgets(client, scope="Cluster")
    source = DiscoveredListWatch(client, WIDGET, namespace="shop")

    with pytest.raises(Invalid, match=r"cluster-scoped .* 'shop': pass namespace=''"):
        await listed(source)

    assert await listed(DiscoveredListWatch(client, WIDGET, namespace="")) == []


async def test_discovered_list_watch_selects_objects_before_discovery(
    client: Client,
) -> None:
    source = DiscoveredListWatch(
        client, WIDGET, namespace="shop", label_selector="name=a"
    )

    assert isinstance(source, Selection)
    assert source.selects(KubeObject.of(widget("a")))
    assert not source.selects(KubeObject.of(widget("b")))
    assert "widget" in repr(source)
    with pytest.raises(SelectorSyntaxError):
        DiscoveredListWatch(client, WIDGET, label_selector="a in")


# ---------------------------------------------------------------- the factory


@pytest.mark.parametrize("name", ["Widget", "widgets", "wd"])
async def test_factory_finds_custom_kinds_by_any_name(
    client: Client, name: str
) -> None:
    await define_widgets(client)
    await client.create(FOUND, widget("a"))
    factory = SharedInformerFactory(client)
    widgets = factory.informer("example.com/v1", name)

    async with factory:
        await factory.wait_for_cache_sync(timeout=30)
        assert [it.key for it in widgets.lister.list()] == ["shop/a"]
        assert widgets.resource == FOUND

        await client.create(FOUND, widget("b"))
        await widgets.wait_until(lambda obj: obj is not None, key="shop/b", timeout=30)


async def test_factory_finds_built_in_kinds_without_discovery(client: Client) -> None:
    factory = SharedInformerFactory(client)

    assert factory.informer("v1", "Pod") is factory.informer("v1", "pods")
    assert factory.informer("v1", "Pod").resource == PODS


async def test_sync_timeout_for_unknown_kind_suggests_similar_names(
    client: Client,
) -> None:
    await define_widgets(client)
    factory = SharedInformerFactory(client)
    factory.informer("example.com/v1", "Widgt")

    async with factory:
        with pytest.raises(NotSynced, match="Did you mean 'widgets'"):
            await factory.wait_for_cache_sync(timeout=30)


async def test_informer_lists_kind_once_its_crd_is_created(
    client: Client,
) -> None:
    factory = SharedInformerFactory(client)
    widgets = factory.informer("example.com/v1", "Widget")

    async with factory:
        with pytest.raises(NotSynced):
            await factory.wait_for_cache_sync(timeout=30)

        assert widgets.status.not_served
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition())
        await factory.wait_for_cache_sync(timeout=120, fail_fast=False)
        assert not widgets.status.not_served


async def test_discovered_list_watch_requests_metadata_only(client: Client) -> None:
    await define_widgets(client)
    await client.create(FOUND, widget("a"))
    factory = SharedInformerFactory(client)
    widgets = factory.informer("example.com/v1", "Widget", metadata_only=True)

    async with factory:
        await factory.wait_for_cache_sync(timeout=30)
        assert widgets.lister.list()[0].kind == "PartialObjectMetadata"


async def test_informer_survives_deletion_and_recreation_of_crd(client: Client) -> None:
    await define_widgets(client)
    await client.create(FOUND, widget("a"))
    factory = SharedInformerFactory(client)
    widgets = factory.informer("example.com/v1", "Widget")
    deleted: list[str] = []
    widgets.add_event_handler(on_delete=lambda obj: deleted.append(obj.name))

    async with factory:
        await factory.wait_for_cache_sync(timeout=30)
        await client.delete(CUSTOM_RESOURCE_DEFINITIONS, "widgets.example.com")
        while widgets.status.phase != "absent":
            await asyncio.sleep(1)

        assert (deleted, len(widgets.store)) == (["a"], 0)

        await define_widgets(client, plural="widgetz")
        there = Resource("example.com", "v1", "widgetz", "Widget")
        await client.create(there, widget("b"))
        await widgets.wait_until(lambda obj: obj is not None, key="shop/b", timeout=300)


async def test_informer_of_discovered_kind_covers_several_namespaces(
    client: Client,
) -> None:
    await define_widgets(client)
    for namespace in ("shop", "test", "other"):
        body = widget("a")
        body["metadata"]["namespace"] = namespace
        await client.create(FOUND, body)

    factory = SharedInformerFactory(client)
    widgets = factory.informer("example.com/v1", "Widget", namespace=["shop", "test"])

    async with factory:
        await factory.wait_for_cache_sync(timeout=30)
        keys = sorted(it.key for it in widgets.lister.list())

    assert keys == ["shop/a", "test/a"]


async def test_sync_timeout_reports_namespace_of_cluster_scoped_kind(
    client: Client,
) -> None:
    await define_widgets(client, scope="Cluster")
    factory = SharedInformerFactory(client, namespace="shop")
    factory.informer("example.com/v1", "Widget")
    everywhere = factory.informer("example.com/v1", "widgets", namespace="")

    async with factory:
        with pytest.raises(NotSynced, match="pass namespace=''"):
            await factory.wait_for_cache_sync(timeout=30)

        await everywhere.wait_synced(timeout=30)


async def test_source_with_other_selectors_lists_the_found_resource(
    server: APIServer, client: Client
) -> None:
    await define_widgets(client)
    for name in ("a", "b"):
        server.create(FOUND, widget(name), namespace="shop")

    source = DiscoveredListWatch(client, WIDGET, namespace="shop")
    before = source.with_selectors(Selectors(label_selector="name=a"))
    assert await listed(source) == ["shop/a", "shop/b"]
    after = source.with_selectors(Selectors(label_selector="name=b"))

    assert await listed(before) == ["shop/a"]
    assert await listed(after) == ["shop/b"]
    assert after.selectors == Selectors(label_selector="name=b")
