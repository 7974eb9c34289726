"""`SharedInformer.has_seen`: waits for one's own writes outside of reconciles."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import Lagging, informed, informer_of, named
from informer_helpers import settle
from prometheus_client import CollectorRegistry

from aioinformer import KubeObject, SharedInformer, SharedInformerFactory
from aioinformer.errors import HistoryReset, InformerStopped, NotSynced, OptionsError
from aioinformer.metrics_prometheus import PrometheusSink
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import Refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer import Client

LAG = 3.0


@asynccontextmanager
async def lagging(
    *, namespaces: tuple[str, ...] = (), **selection: Any
) -> AsyncIterator[tuple[Client, SharedInformer, CollectorRegistry]]:
    """Yield a client, and a synced informer of config maps that is `LAG` s late."""
    registry = CollectorRegistry()
    async with APIServer() as server:
        server.create(CONFIG_MAPS, named("old", labels={"app": "a"}))

        def source(**options: Any) -> Any:
            return Lagging(server.list_watch(CONFIG_MAPS, **options, **selection), LAG)

        sources: Any = (
            {it: source(namespace=it) for it in namespaces} if namespaces else source()
        )
        maps = informer_of(sources, "maps", metrics=PrometheusSink(registry))
        async with server.client() as client, informed(maps):
            yield client, maps, registry


async def create(client: Client, name: str, **labels: str) -> KubeObject:
    return await client.create(CONFIG_MAPS, named(name, labels=labels))


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_write_is_seen_once_the_store_shows_it() -> None:
    async with lagging() as (client, maps, _):
        written = await create(client, "new")
        assert maps.lister.get("default/new") is None
        began = now()
        await maps.has_seen(written, timeout=10)
        waited = now() - began
        assert maps.lister.get("default/new") == written
        await maps.has_seen(written, timeout=0.1)  # at once

    assert waited == pytest.approx(LAG, abs=0.1)


async def test_waits_are_measured() -> None:
    name = "controller_runtime_client_consistency_wait_duration_seconds"
    async with lagging() as (client, maps, registry):
        await maps.has_seen(await create(client, "new"))
        labels = {"name": "maps"}
        count = registry.get_sample_value(f"{name}_count", labels)
        total = registry.get_sample_value(f"{name}_sum", labels)

    assert count == 1
    assert total == pytest.approx(LAG, abs=0.1)


async def test_later_state_of_the_object_is_enough() -> None:
    async with lagging() as (client, maps, _):
        written = await create(client, "new")
        await client.patch(
            CONFIG_MAPS, "new", {"data": {"x": "y"}}, namespace="default"
        )
        await maps.has_seen(written, timeout=10)
        await asyncio.sleep(2 * LAG)
        await maps.has_seen(written, timeout=0.1)
        assert maps.lister.get("default/new") != written


@pytest.mark.parametrize("finalizers", [[], ["example.com/keep"]])
async def test_deletion_is_seen_when_object_is_missing_or_marked(
    finalizers: list[str],
) -> None:
    async with lagging() as (client, maps, _):
        written = await client.create(CONFIG_MAPS, named("new", finalizers=finalizers))
        await maps.has_seen(written)
        await client.delete(CONFIG_MAPS, "new", namespace="default")
        began = now()
        await maps.has_seen(written, timeout=10, deleted=True)
        waited = now() - began
        left = maps.lister.get("default/new")

    assert waited == pytest.approx(LAG, abs=0.1)
    assert (left is not None) is bool(finalizers)


async def test_deletion_is_seen_by_informer_of_metadata() -> None:
    async with APIServer() as server, server.client() as client:
        server.create(CONFIG_MAPS, named("old"))
        factory = SharedInformerFactory(client)
        maps = factory.informer(CONFIG_MAPS, metadata_only=True)
        async with factory:
            await maps.wait_synced(timeout=10)
            old = maps.lister.get("default/old")
            assert old is not None
            assert old.kind == "PartialObjectMetadata"
            await client.delete(CONFIG_MAPS, "old", namespace="default")
            await maps.has_seen(old, timeout=10, deleted=True)
            await maps.has_seen(await create(client, "new"), timeout=10)
            assert [it.name for it in maps.lister.list()] == ["new"]


async def test_removal_of_last_finalizer_is_seen_as_deletion() -> None:
    async with lagging() as (client, maps, _):
        await client.create(CONFIG_MAPS, named("new", finalizers=["example.com/x"]))
        await client.delete(CONFIG_MAPS, "new", namespace="default")
        change = {"metadata": {"finalizers": None}}
        written = await client.patch(CONFIG_MAPS, "new", change, namespace="default")
        await maps.has_seen(written, timeout=10)
        assert maps.lister.get("default/new") is None


async def test_object_outside_of_the_selection_is_not_waited_for() -> None:
    async with lagging(label_selector="app=a") as (client, maps, _):
        written = await create(client, "other", app="b")
        await maps.has_seen(written, timeout=0.1)
        await maps.has_seen(written, timeout=0.1, deleted=True)


async def test_object_that_leaves_the_selection_is_waited_for() -> None:
    async with lagging(label_selector="app=a") as (client, maps, _):
        change = {"metadata": {"labels": {"app": "b"}}}
        written = await client.patch(CONFIG_MAPS, "old", change, namespace="default")
        await maps.has_seen(written, timeout=10)
        assert maps.lister.get("default/old") is None


async def test_write_in_one_of_several_namespaces_is_seen() -> None:
    async with lagging(namespaces=("default", "kube-system")) as (client, maps, _):
        began = now()
        await maps.has_seen(await create(client, "new"), timeout=10)
        waited = now() - began
        elsewhere = KubeObject.of(
            named("x", namespace="shop", resourceVersion="9999", uid="u")
        )
        await maps.has_seen(elsewhere, timeout=0.1)  # not selected

    assert waited == pytest.approx(LAG, abs=0.1), "other namespaces are not waited for"


async def test_timeout_names_object_version_and_state() -> None:
    async with lagging() as (client, maps, _):
        written = await create(client, "new")
        version = written.resource_version
        with pytest.raises(
            TimeoutError,
            match=f"maps did not show version {version} of default/new within 1 s: "
            "maps has no object default/new",
        ):
            await maps.has_seen(written, timeout=1)

        old = maps.lister.get("default/old")
        assert old is not None
        with pytest.raises(TimeoutError, match="not show the deletion of default/old"):
            await maps.has_seen(old, timeout=1, deleted=True)


@pytest.mark.parametrize(
    ("written", "deleted", "match"),
    [
        (None, False, "takes the object that a write returned, not NoneType"),
        ({"data": "secret"}, False, "not dict"),
        (KubeObject.of(named("a")), False, "cannot compare resource version"),
        (KubeObject.of(named("a")), True, "it has no uid"),
        (
            KubeObject.of(named("a") | {"kind": "Deployment"}),
            False,
            "objects of kind ConfigMap, not Deployment",
        ),
    ],
)
async def test_invalid_writes_are_refused(
    written: Any, deleted: bool, match: str
) -> None:
    async with lagging() as (_, maps, _):
        with pytest.raises(OptionsError, match=match):
            await maps.has_seen(written, deleted=deleted)


@pytest.mark.parametrize("deleted", [False, True])
async def test_wait_fails_if_the_first_list_is_refused(deleted: bool) -> None:
    async with APIServer() as server, server.client() as client:
        server.faults.add(Refuse(verb="list", status=403, times=None))
        written = await create(client, "new")
        factory = SharedInformerFactory(client)
        maps = factory.informer(CONFIG_MAPS)
        async with factory:
            with pytest.raises(NotSynced, match="403"):
                await maps.has_seen(written, deleted=deleted)


async def test_wait_ends_with_the_informer() -> None:
    async with lagging() as (client, maps, _):
        written = await create(client, "new")
        await client.delete(CONFIG_MAPS, "old", namespace="default")
        waiting = asyncio.ensure_future(maps.has_seen(written))
        await asyncio.sleep(1)

    with pytest.raises(InformerStopped):
        await waiting
    with pytest.raises(InformerStopped):
        await maps.has_seen(written)


async def test_wait_ends_with_a_history_reset() -> None:
    async with APIServer() as server:
        maps = informer_of(server.list_watch(CONFIG_MAPS), "maps")
        async with informed(maps):
            before = server.snapshot()
            server.create(CONFIG_MAPS, named("a"))
            await maps.wait_for_version(server.resource_version)
            written = KubeObject.of(named("a", resourceVersion="1000000"))
            waiting = asyncio.ensure_future(maps.has_seen(written))
            await settle()
            await server.restart(snapshot=before)
            with pytest.raises(HistoryReset):
                async with asyncio.timeout(1000):
                    await waiting
