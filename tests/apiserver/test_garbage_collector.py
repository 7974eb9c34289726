"""Garbage collection: what happens to dependents when their owners are gone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioinformer import Resource
from aioinformer.model.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    SECRETS,
)

if TYPE_CHECKING:
    from aioinformer.testing import APIServer

WIDGETS = Resource("example.com", "v1", "widgets", "Widget")
POOLS = Resource("example.com", "v1", "pools", "Pool", namespaced=False)
LATER = 5.0

pytestmark = [
    pytest.mark.looptime,
    pytest.mark.apiserver(garbage_collector=True, resources=[WIDGETS, POOLS]),
]


def owned_by(*owners: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": it["apiVersion"],
            "kind": it["kind"],
            "name": it["metadata"]["name"],
            "uid": it["metadata"]["uid"],
            **fields,
        }
        for it in owners
    ]


def make(
    server: APIServer,
    resource: Resource,
    name: str,
    *owners: dict[str, Any],
    namespace: str = "",
    block: bool = False,
    **metadata: Any,
) -> dict[str, Any]:
    """Create an object with owners."""
    references = owned_by(*owners, **({"blockOwnerDeletion": True} if block else {}))
    body = {"metadata": {"name": name, "ownerReferences": references, **metadata}}
    return server.create(resource, body, namespace=namespace)


async def delete(
    server: APIServer, resource: Resource, name: str, propagation: Any = None
) -> None:
    """Delete an object as a client does, and let the collector work."""
    namespace = "default" if resource.namespaced else None
    async with server.client() as client:
        await client.delete(
            resource, name, namespace=namespace, propagation=propagation
        )

    await asyncio.sleep(LATER)


def names(server: APIServer, resource: Resource = CONFIG_MAPS) -> list[str]:
    return [it["metadata"]["name"] for it in server.objects(resource)]


def owners_of(server: APIServer, name: str) -> list[str]:
    references = server.get(CONFIG_MAPS, name)["metadata"].get("ownerReferences")
    return [it["name"] for it in references or ()]


@pytest.mark.apiserver(garbage_collector=False)
async def test_nothing_is_collected_by_default(apiserver: APIServer) -> None:
    owner = make(apiserver, CONFIG_MAPS, "owner")
    make(apiserver, CONFIG_MAPS, "child", owner)
    await delete(apiserver, CONFIG_MAPS, "owner")

    assert names(apiserver) == ["child"]


async def test_background_deletion_deletes_all_generations(
    apiserver: APIServer,
) -> None:
    deployment = make(apiserver, DEPLOYMENTS, "web")
    replicas = make(apiserver, REPLICA_SETS, "web-1", deployment)
    make(apiserver, PODS, "web-1-a", replicas)
    make(apiserver, PODS, "other")
    await delete(apiserver, DEPLOYMENTS, "web")

    assert names(apiserver, REPLICA_SETS) == []
    assert names(apiserver, PODS) == ["other"]


async def test_object_with_another_owner_stays_and_loses_the_reference(
    apiserver: APIServer,
) -> None:
    first, second = (make(apiserver, CONFIG_MAPS, it) for it in ("one", "two"))
    make(apiserver, CONFIG_MAPS, "child", first, second)
    await delete(apiserver, CONFIG_MAPS, "one")
    assert owners_of(apiserver, "child") == ["two"]

    await delete(apiserver, CONFIG_MAPS, "two")
    assert names(apiserver) == []


async def test_object_with_an_absent_owner_is_deleted(apiserver: APIServer) -> None:
    owner = make(apiserver, CONFIG_MAPS, "owner")
    other = {**owner, "metadata": {"name": "owner", "uid": "another"}}
    make(apiserver, CONFIG_MAPS, "wrong-uid", other)
    make(apiserver, CONFIG_MAPS, "wrong-kind", {**owner, "kind": "Secret"})
    make(apiserver, CONFIG_MAPS, "right", owner)
    await asyncio.sleep(LATER)

    assert names(apiserver) == ["owner", "right"]


async def test_owner_in_another_namespace_is_absent_and_an_event_says_so(
    apiserver: APIServer,
) -> None:
    apiserver.create(NAMESPACES, {"metadata": {"name": "shop"}})
    owner = make(apiserver, CONFIG_MAPS, "owner")
    child = make(apiserver, SECRETS, "child", owner, namespace="shop")
    await asyncio.sleep(LATER)

    assert names(apiserver, SECRETS) == []
    (event,) = apiserver.objects(EVENTS)
    uid = owner["metadata"]["uid"]
    assert event["metadata"]["namespace"] == "shop"
    assert event["involvedObject"]["uid"] == child["metadata"]["uid"]
    assert (event["type"], event["reason"]) == ("Warning", "OwnerRefInvalidNamespace")
    assert event["message"] == (
        f"ownerRef [v1/ConfigMap, namespace: shop, name: owner, uid: {uid}] does not "
        'exist in namespace "shop"'
    )


async def test_event_that_is_refused_stops_nothing(apiserver: APIServer) -> None:
    apiserver.create(NAMESPACES, {"metadata": {"name": "shop"}})
    owner = make(apiserver, CONFIG_MAPS, "owner")
    child = make(apiserver, SECRETS, "child", finalizers=["a/b"], namespace="shop")
    async with apiserver.client() as client:
        await client.delete(NAMESPACES, "shop")  # events are refused from now on

    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
    reference["uid"] = owner["metadata"]["uid"]
    change = {"metadata": {"ownerReferences": [reference]}}
    apiserver.patch(SECRETS, child["metadata"]["name"], change, namespace="shop")
    gone = {**owner, "metadata": {**owner["metadata"], "uid": "gone"}}
    make(apiserver, CONFIG_MAPS, "orphan", gone)
    await asyncio.sleep(LATER)

    assert names(apiserver) == ["owner"]


async def test_cluster_scoped_owner_may_own_objects_of_any_namespace(
    apiserver: APIServer,
) -> None:
    node = make(apiserver, NODES, "node")
    make(apiserver, CONFIG_MAPS, "child", node)
    await asyncio.sleep(LATER)
    assert names(apiserver) == ["child"]

    await delete(apiserver, NODES, "node")
    assert names(apiserver) == []


async def test_cluster_scoped_object_with_a_namespaced_owner_stays(
    apiserver: APIServer,
) -> None:
    owner = make(apiserver, CONFIG_MAPS, "owner")
    make(apiserver, POOLS, "pool", owner)
    await delete(apiserver, CONFIG_MAPS, "owner")

    assert names(apiserver, POOLS) == ["pool"]


async def test_custom_resources_are_owners_and_dependents(
    apiserver: APIServer,
) -> None:
    pool = make(apiserver, POOLS, "pool")
    widget = make(apiserver, WIDGETS, "widget", pool)
    make(apiserver, CONFIG_MAPS, "child", widget)
    await delete(apiserver, POOLS, "pool")

    assert names(apiserver, WIDGETS) == names(apiserver) == []


async def test_owner_of_an_unknown_kind_keeps_its_dependents(
    apiserver: APIServer,
) -> None:
    stranger = {
        "apiVersion": "example.org/v1",
        "kind": "Stranger",
        "metadata": {"name": "x", "uid": "u"},
    }
    make(apiserver, CONFIG_MAPS, "child", stranger)
    await asyncio.sleep(LATER)
    assert names(apiserver) == ["child"]

    apiserver.register(Resource("example.org", "v1", "strangers", "Stranger"))
    await asyncio.sleep(LATER)
    assert names(apiserver) == []


# -------------------------------------------------------------------- foreground


async def test_foreground_deletion_waits_for_blocking_dependents(
    apiserver: APIServer,
) -> None:
    owner = make(apiserver, CONFIG_MAPS, "owner")
    hold = ["example.com/hold"]
    make(apiserver, CONFIG_MAPS, "child", owner, block=True, finalizers=hold)
    await delete(apiserver, CONFIG_MAPS, "owner", "Foreground")

    for name in ("owner", "child"):
        metadata = apiserver.get(CONFIG_MAPS, name)["metadata"]
        assert metadata["deletionTimestamp"], name

    assert apiserver.get(CONFIG_MAPS, "owner")["metadata"]["finalizers"] == [
        "foregroundDeletion"
    ]
    apiserver.patch(CONFIG_MAPS, "child", {"metadata": {"finalizers": None}})
    await asyncio.sleep(LATER)
    assert names(apiserver) == []


async def test_foreground_deletion_does_not_wait_for_other_dependents(
    apiserver: APIServer,
) -> None:
    owner = make(apiserver, CONFIG_MAPS, "owner")
    hold = ["example.com/hold"]
    make(apiserver, CONFIG_MAPS, "child", owner, finalizers=hold)
    await delete(apiserver, CONFIG_MAPS, "owner", "Foreground")

    assert names(apiserver) == ["child"]
    assert apiserver.get(CONFIG_MAPS, "child")["metadata"]["deletionTimestamp"]


async def test_foreground_deletion_of_generations_deletes_from_the_leaves(
    apiserver: APIServer,
) -> None:
    top = make(apiserver, CONFIG_MAPS, "top")
    middle = make(apiserver, CONFIG_MAPS, "middle", top, block=True)
    hold = ["example.com/hold"]
    make(apiserver, CONFIG_MAPS, "leaf", middle, block=True, finalizers=hold)
    await delete(apiserver, CONFIG_MAPS, "top", "Foreground")

    assert names(apiserver) == ["leaf", "middle", "top"]
    finalizers = apiserver.get(CONFIG_MAPS, "middle")["metadata"]["finalizers"]
    assert finalizers == ["foregroundDeletion"]
    apiserver.patch(CONFIG_MAPS, "leaf", {"metadata": {"finalizers": None}})
    await asyncio.sleep(LATER)
    assert names(apiserver) == []


async def test_foreground_deletion_ends_when_a_reference_blocks_no_more(
    apiserver: APIServer,
) -> None:
    owner = make(apiserver, CONFIG_MAPS, "owner")
    hold = ["example.com/hold"]
    child = make(apiserver, CONFIG_MAPS, "child", owner, block=True, finalizers=hold)
    await delete(apiserver, CONFIG_MAPS, "owner", "Foreground")
    assert names(apiserver) == ["child", "owner"]

    references = [{**it, "blockOwnerDeletion": False} for it in owned_by(owner)]
    patch = {"metadata": {"ownerReferences": references}}
    apiserver.patch(CONFIG_MAPS, child["metadata"]["name"], patch)
    await asyncio.sleep(LATER)
    assert names(apiserver) == ["child"]


async def test_object_with_another_owner_survives_a_foreground_deletion(
    apiserver: APIServer,
) -> None:
    first, second = (make(apiserver, CONFIG_MAPS, it) for it in ("one", "two"))
    make(apiserver, CONFIG_MAPS, "child", first, second, block=True)
    await delete(apiserver, CONFIG_MAPS, "one", "Foreground")

    assert names(apiserver) == ["child", "two"]
    assert owners_of(apiserver, "child") == ["two"]


@pytest.mark.parametrize("propagation", ["Foreground", "Background"])
async def test_cycle_of_owners_is_deleted(
    apiserver: APIServer, propagation: str
) -> None:
    first = make(apiserver, CONFIG_MAPS, "one")
    second = make(apiserver, CONFIG_MAPS, "two", first, block=True)
    references = owned_by(second, blockOwnerDeletion=True)
    apiserver.patch(CONFIG_MAPS, "one", {"metadata": {"ownerReferences": references}})
    await asyncio.sleep(LATER)
    assert names(apiserver) == ["one", "two"]

    await delete(apiserver, CONFIG_MAPS, "one", propagation)
    assert names(apiserver) == []


# -------------------------------------------------------------------- orphans


async def test_orphaning_deletion_removes_the_references_of_dependents(
    apiserver: APIServer,
) -> None:
    owner = make(apiserver, CONFIG_MAPS, "owner")
    make(apiserver, CONFIG_MAPS, "child", owner)
    await delete(apiserver, CONFIG_MAPS, "owner", "Orphan")

    assert names(apiserver) == ["child"]
    assert owners_of(apiserver, "child") == []


async def test_jobs_orphan_their_pods_by_default(apiserver: APIServer) -> None:
    job = make(apiserver, JOBS, "job")
    make(apiserver, PODS, "pod", job)
    await delete(apiserver, JOBS, "job")

    assert names(apiserver, JOBS) == []
    assert names(apiserver, PODS) == ["pod"]


# -------------------------------------------------------------------- lifetime


async def test_garbage_of_a_stopped_server_is_collected_after_its_start(
    apiserver: APIServer,
) -> None:
    owner = make(apiserver, CONFIG_MAPS, "owner")
    make(apiserver, CONFIG_MAPS, "child", owner)
    await apiserver.stop()
    apiserver.delete(CONFIG_MAPS, "owner")
    assert names(apiserver) == ["child"]

    await apiserver.start()
    await asyncio.sleep(LATER)
    assert names(apiserver) == []


async def test_restored_objects_are_not_garbage(apiserver: APIServer) -> None:
    owner = make(apiserver, CONFIG_MAPS, "owner")
    make(apiserver, CONFIG_MAPS, "child", owner)
    backup = apiserver.snapshot()
    await delete(apiserver, CONFIG_MAPS, "owner")
    assert names(apiserver) == []

    await apiserver.restart(snapshot=backup)
    await asyncio.sleep(LATER)
    assert names(apiserver) == ["child", "owner"]


async def test_many_dependents_are_collected(apiserver: APIServer) -> None:
    owner = make(apiserver, CONFIG_MAPS, "owner")
    for number in range(350):
        make(apiserver, CONFIG_MAPS, f"child-{number}", owner)

    await delete(apiserver, CONFIG_MAPS, "owner")
    assert names(apiserver) == []
