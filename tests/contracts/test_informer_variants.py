"""Metadata-only informers, and informers of resources known at run time only."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
from custom_definitions import definition
from informer_helpers import text_of
from informers import Event, plain

from aioinformer import NotSynced, SharedInformerFactory, Updated
from aioinformer.errors import OptionsError
from aioinformer.informer import DynamicInformerFactory, MetadataInformerFactory
from aioinformer.model.resource import Resource
from aioinformer.model.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    NODES,
    PODS,
)
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import Gone

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer import SharedInformer

PARTIAL = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
WIDGETS = Resource("example.com", "v1", "widgets", "Widget")


async def caught_up(server: APIServer, informer: SharedInformer) -> None:
    await informer.wait_for_version(server.resource_version, timeout=60)
    await asyncio.sleep(1)


# ---------------------------------------------------------------- metadata


@pytest.mark.parametrize("streaming_list", [False, True], ids=["pages", "stream"])
async def test_metadata_only_informer_requests_only_metadata(
    *, streaming_list: bool
) -> None:
    async with APIServer() as server:
        for number in range(5):
            server.create(PODS, plain(f"pod-{number}", app="web"))

        factory = SharedInformerFactory(server.client())
        pods = factory.informer(
            "v1",
            "pods",
            metadata_only=True,
            page_size=2,
            streaming_list=streaming_list,
        )
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            server.patch(PODS, "pod-0", {"metadata": {"labels": {"app": "db"}}})
            server.create(PODS, plain("late"))
            server.delete(PODS, "pod-4")
            await caught_up(server, pods)

            found = {obj.name: obj for obj in pods.lister.list()}
            assert sorted(found) == ["late", "pod-0", "pod-1", "pod-2", "pod-3"]
            assert found["pod-0"].labels["app"] == "db"
            for obj in found.values():
                assert dict(obj) == PARTIAL | {"metadata": obj["metadata"]}
                assert obj["metadata"]["uid"]

            assert pods.status.degraded == 0
            assert [obj.name for obj in pods.lister.list("app=db")] == ["pod-0"]


async def test_metadata_only_informer_survives_a_relist() -> None:
    async with APIServer() as server:
        server.create(PODS, plain("a"))
        factory = SharedInformerFactory(server.client())
        pods = factory.informer("v1", "pods", metadata_only=True)
        received: list[str] = []
        pods.add_event_handler(on_event=lambda event: received.append(text_of(event)))
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            server.faults.add(Gone(after_events=1))
            server.create(PODS, plain("b"))
            server.create(PODS, plain("c"))
            await caught_up(server, pods)

        assert received == ["initial a", "added b", "added c"]


async def test_metadata_only_and_full_objects_are_two_informers() -> None:
    async with APIServer() as server:
        server.create(PODS, plain("web"))
        factory = SharedInformerFactory(server.client())
        metadata = factory.informer("v1", "pods", metadata_only=True)
        whole = factory.informer("v1", "pods")
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            (one,), (other,) = metadata.lister.list(), whole.lister.list()

    assert (metadata.name, whole.name) == ("metadata of pods", "pods")
    assert one.at("spec") is None
    assert other.at("spec") is not None
    assert one["metadata"] == other["metadata"]


async def test_metadata_factory_requests_only_metadata() -> None:
    async with APIServer(resources=[WIDGETS]) as server:
        server.create(WIDGETS, {"metadata": {"name": "one"}, "spec": {"size": 1}})
        factory = MetadataInformerFactory(server.client())
        widgets = factory.informer("example.com/v1", "widgets")
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            async with factory.use("v1", "pods") as pods:
                await pods.wait_synced(timeout=30)
                assert pods.name == "metadata of pods"

            (found,) = widgets.lister.list()
            assert dict(found) == PARTIAL | {"metadata": found["metadata"]}
            assert found.key == "default/one"

    assert repr(factory) == "<MetadataInformerFactory metadata of widgets.example.com>"


# ---------------------------------------------------------------- any resource


async def test_dynamic_factory_follows_a_resource_given_by_name() -> None:
    async with APIServer(resources=[WIDGETS]) as server:
        server.create(WIDGETS, {"metadata": {"name": "one"}, "spec": {"size": 1}})
        server.create(NODES, {"metadata": {"name": "node-1"}})
        factory = DynamicInformerFactory(server.client())
        widgets = factory.informer("example.com/v1", "widgets")
        nodes = factory.informer(Resource.of("v1", "nodes"))
        received: list[str] = []
        widgets.add_event_handler(
            on_event=lambda event: received.append(text_of(event))
        )
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            server.create(WIDGETS, {"metadata": {"name": "two"}, "spec": {"size": 2}})
            server.patch(WIDGETS, "one", {"spec": {"size": 3}})
            server.delete(WIDGETS, "two")
            await caught_up(server, widgets)

            assert {it.key: it.at("spec.size") for it in widgets.lister.list()} == {
                "default/one": 3
            }
            assert {it.kind for it in widgets.lister.list()} == {"Widget"}
            assert nodes.lister.get("node-1") is not None

        # There is no order between different objects.
        assert [it for it in received if "one" in it] == ["initial one", "updated one"]
        assert [it for it in received if "two" in it] == ["added two", "deleted two"]


async def test_dynamic_factory_learns_scope_from_objects() -> None:
    zones = Resource("example.com", "v1", "zones", "Zone", namespaced=False)
    async with APIServer(resources=[zones]) as server:
        server.create(zones, {"metadata": {"name": "north"}})
        factory = DynamicInformerFactory(server.client())
        informer = factory.informer("example.com/v1", "zones")
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            server.patch(zones, "north", {"metadata": {"labels": {"a": "b"}}})
            await caught_up(server, informer)

            found = informer.lister.get("north")
            assert found is not None
            assert found.labels == {"a": "b"}


FILTERS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "namespace": ({"namespace": "shop"}, ["shop/a", "shop/b"]),
    "labels": ({"label_selector": "app=web"}, ["default/a", "shop/a"]),
    "fields": ({"field_selector": "metadata.name=b"}, ["default/b", "shop/b"]),
    "all": (
        {
            "namespace": "shop",
            "label_selector": "app=web",
            "field_selector": "metadata.name=a",
        },
        ["shop/a"],
    ),
}


@pytest.mark.parametrize(("options", "keys"), FILTERS.values(), ids=FILTERS)
@pytest.mark.parametrize(
    "kind", [SharedInformerFactory, DynamicInformerFactory, MetadataInformerFactory]
)
@pytest.mark.parametrize("of", ["the-factory", "the-informer"])
async def test_factory_options_restrict_all_its_informers(
    kind: type[SharedInformerFactory], options: dict[str, Any], keys: list[str], of: str
) -> None:
    async with APIServer() as server:
        server.create(NAMESPACES, {"metadata": {"name": "shop"}})
        for namespace in ("default", "shop"):
            for name, app in (("a", "web"), ("b", "db")):
                body = plain(name, app=app)
                body["metadata"]["namespace"] = namespace
                server.create(PODS, body)

        client = server.client()
        if of == "the-factory":
            factory = kind(client, **options)
            pods = factory.informer("v1", "pods")
        else:
            factory = kind(client)
            pods = factory.informer("v1", "pods", **options)

        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            assert sorted(obj.key for obj in pods.lister.list()) == keys


# ---------------------------------------------------------------- removed and new CRDs


def lines_of(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    """Return the warnings about an informer."""
    return [
        it.getMessage()
        for it in caplog.records
        if it.levelno >= logging.WARNING and name in it.getMessage()
    ]


async def reaches(informer: SharedInformer, condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(3600):
        while not condition():
            await asyncio.sleep(1)


@pytest.mark.parametrize("metadata_only", [False, True], ids=["whole", "metadata"])
async def test_informer_follows_a_crd_that_is_removed_and_returns(
    caplog: pytest.LogCaptureFixture, *, metadata_only: bool
) -> None:
    gadgets = Resource.of("example.org/v1", "gadgets", "Gadget")
    body = definition("example.org", "Gadget")
    received: list[str] = []
    async with APIServer() as server, server.client() as client:

        async def define(*names: str) -> None:
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, body)
            await server.until(lambda: server.objects(gadgets) == [])
            for name in names:
                content = {"metadata": {"name": name}}
                await client.create(gadgets, content, namespace="default")

        await define("one", "two")
        factory = DynamicInformerFactory(client)
        informer = factory.informer(
            "example.org/v1", "gadgets", metadata_only=metadata_only
        )
        beside = factory.informer("v1", "pods")
        informer.add_event_handler(
            on_event=lambda event: received.append(text_of(event))
        )
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            caplog.clear()

            await client.delete(CUSTOM_RESOURCE_DEFINITIONS, "gadgets.example.org")
            await reaches(informer, lambda: informer.status.not_served)
            assert informer.status.phase != "absent", "it may come back at once"
            await reaches(informer, lambda: informer.status.phase == "absent")
            await asyncio.sleep(3600)  # for a long time

            assert informer.status.phase == "absent"
            assert informer.lister.list() == []
            assert factory.not_ready() == {}, "there is nothing to wait for"
            quiet = lines_of(caplog, "gadgets")

            await define("three")
            await reaches(informer, lambda: informer.status.phase == "watching")
            await asyncio.sleep(1)
            assert not informer.status.not_served
            assert [obj.name for obj in informer.lister.list()] == ["three"]
            assert beside.status.restarts == 0

    assert sorted(received[2:]) == ["added three", *deletions_of(received)]
    # In the first minute, the lines grow with the logarithm of the attempts; then none
    # follow.
    assert 1 <= len(quiet) <= 5, quiet
    assert quiet[-1].endswith("resource is no longer served, removing all objects")


def deletions_of(received: list[str]) -> list[str]:
    """Return how both objects ended: deleted, or missing after a disconnection."""
    removed = [it for it in received if it.startswith(("deleted", "missed"))]
    assert sorted(it.split()[1] for it in removed) == ["one", "two"]
    return sorted(removed)


async def test_informer_follows_a_resource_once_its_crd_exists() -> None:
    async with APIServer() as server:
        factory = DynamicInformerFactory(server.client())
        widgets = factory.informer("example.com/v1", "widgets")
        async with factory:
            with pytest.raises(NotSynced, match="404"):
                await factory.wait_for_cache_sync(timeout=600)

            assert factory.not_ready().keys() == {"widgets.example.com"}
            server.register(WIDGETS)
            server.create(WIDGETS, {"metadata": {"name": "one"}})
            await factory.wait_for_cache_sync(timeout=600, fail_fast=False)

            assert factory.not_ready() == {}
            assert [obj.name for obj in widgets.lister.list()] == ["one"]


# ---------------------------------------------------------------- resync


async def test_resync_period_comes_from_handler_informer_resource_or_factory() -> None:
    resyncs: dict[str, list[float]] = {}
    async with APIServer() as server:
        server.create(PODS, plain("web"))
        server.create(NODES, {"metadata": {"name": "node-1"}})
        factory = SharedInformerFactory(
            server.client(), resync_period=60, custom_resync={NODES: 100}
        )
        pods = factory.informer("v1", "pods")
        never = factory.informer("v1", "pods", resync_period=0, name="never")
        own = factory.informer("v1", "pods", resync_period=30, name="own")
        nodes = factory.informer("v1", "nodes")
        with pytest.raises(OptionsError, match=r"resync_period=60\.0.*resync_period=5"):
            factory.informer("v1", "pods", resync_period=5)

        def count(name: str) -> Callable[[Event], None]:
            times = resyncs.setdefault(name, [])

            def on_event(event: Event) -> None:
                if isinstance(event, Updated) and event.resync:
                    times.append(round(asyncio.get_running_loop().time() - began))

            return on_event

        for name, informer in (
            ("pods", pods),
            ("never", never),
            ("own", own),
            ("nodes", nodes),
        ):
            informer.add_event_handler(on_event=count(name))

        pods.add_event_handler(on_event=count("handler"), resync_period=90)
        began = asyncio.get_running_loop().time()
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            await asyncio.sleep(201)

    assert resyncs == {
        "pods": [60, 120, 180],
        "never": [],
        "own": [30, 60, 90, 120, 150, 180],
        "nodes": [100, 200],
        "handler": [90, 180],
    }


# ---------------------------------------------------------------- several namespaces


async def test_several_namespaces_share_one_informer_and_store() -> None:
    async with APIServer(auto_namespaces=True) as server:
        for namespace in ("shop", "test", "other"):
            server.create(PODS, plain_in(namespace, "web"))

        factory = SharedInformerFactory(server.client())
        pods = factory.informer("v1", "pods", namespace=["test", "shop"])
        again = factory.informer("v1", "pods", namespace=("shop", "test", "shop"))
        assert again is pods
        assert pods.name == "pods in shop,test"
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            server.create(PODS, plain_in("test", "late"))
            server.create(PODS, plain_in("other", "late"))
            await asyncio.sleep(1)

            keys = sorted(obj.key for obj in pods.lister.list())
            assert keys == ["shop/web", "test/late", "test/web"]
            assert sorted(pods.status.namespaces) == ["shop", "test"]


async def test_list_of_one_namespace_equals_that_namespace() -> None:
    async with APIServer() as server:
        factory = SharedInformerFactory(server.client(), namespace=["default"])
        pods = factory.informer("v1", "pods", namespace="default")

        assert factory.informer("v1", "pods") is pods
        assert factory.informer("v1", "pods", namespace="") is not pods


def plain_in(namespace: str, name: str) -> dict[str, Any]:
    body = plain(name)
    body["metadata"]["namespace"] = namespace
    return body
