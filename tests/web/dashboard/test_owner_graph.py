"""Graphs of owners."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from dashboard_helpers import Followed, fill, followed, unreadable

from aioinformer import index_by, strip_managed_fields
from aioinformer.cache.index import index_by_owner
from aioinformer.model.resources import (
    DEPLOYMENTS,
    EVENTS,
    NODES,
    PODS,
    REPLICA_SETS,
)
from aioinformer.web.dashboard.object_events import MAX_SCANNED
from aioinformer.web.dashboard.owner_graph import MAX_NODES, owner_graph, trouble_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer import KubeObject, Resource, SharedInformer


def owned(
    resource: Resource, name: str, *owners: tuple[Resource, str], **more: Any
) -> dict[str, Any]:
    """Make an object whose uid is its name, with owners."""
    references = [
        {"apiVersion": it.api_version, "kind": it.kind, "name": name, "uid": name}
        for it, name in owners
    ]
    metadata = {"name": name, "uid": name, "ownerReferences": references}
    if resource.namespaced:
        metadata["namespace"] = "shop"

    return {"metadata": metadata, **more}


WAITING = {
    "status": {"containerStatuses": [{"state": {"waiting": {"reason": "ErrX"}}}]}
}
DEPLOYMENT = owned(DEPLOYMENTS, "web")
REPLICA_SET = owned(REPLICA_SETS, "web-1", (DEPLOYMENTS, "web"))
PODS_OF_IT = [
    owned(PODS, "web-1-a", (REPLICA_SETS, "web-1")),
    owned(PODS, "web-1-b", (REPLICA_SETS, "web-1"), **WAITING),
    owned(PODS, "other"),
]


@asynccontextmanager
async def informers(
    *kinds: tuple[Resource, list[dict[str, Any]]], **options: Any
) -> AsyncIterator[dict[str, SharedInformer]]:
    async with AsyncExitStack() as stack:
        found: dict[str, SharedInformer] = {}
        for resource, objects in kinds:
            one: Followed = await stack.enter_async_context(
                followed(*objects, resource=resource, **options)
            )
            found[resource.plural] = one.informer

        yield found


def get(informer: SharedInformer, key: str) -> KubeObject:
    found = informer.indexer.get_by_key(key)
    assert found is not None
    return found


@pytest.mark.parametrize("options", [{}, {"indexers": {"by": index_by_owner()}}])
async def test_graph_has_owners_and_owned_objects(options: dict[str, Any]) -> None:
    async with informers(
        (PODS, PODS_OF_IT),
        (REPLICA_SETS, [REPLICA_SET]),
        (DEPLOYMENTS, [DEPLOYMENT]),
        **options,
    ) as all_of_them:
        replica_set = get(all_of_them["replicasets"], "shop/web-1")
        graph = await owner_graph(replica_set, "replicasets", all_of_them)
        assert [it["id"] for it in graph["nodes"]] == [
            "web-1",
            "web",
            "web-1-a",
            "web-1-b",
        ]
        assert graph["nodes"][1] == {
            "id": "web",
            "kind": "Deployment",
            "namespace": "shop",
            "name": "web",
            "informer": "deployments",
            "missing": False,
            "trouble": "",
        }
        assert graph["nodes"][3]["trouble"].startswith("ErrX")
        assert graph["edges"] == [
            ["web", "web-1"],
            ["web-1", "web-1-a"],
            ["web-1", "web-1-b"],
        ]
        assert (graph["cut"], graph["skipped"]) == (0, [])
        deployment = get(all_of_them["deployments"], "shop/web")
        graph = await owner_graph(deployment, "deployments", all_of_them)
        assert len(graph["nodes"]) == 4  # at any depth


async def test_index_of_controllers_only_is_not_used() -> None:
    by = {"indexers": {"by": index_by_owner(controller=True), "x": index_by("a")}}
    async with informers(
        (PODS, PODS_OF_IT), (REPLICA_SETS, [REPLICA_SET]), **by
    ) as all_:
        replica_set = get(all_["replicasets"], "shop/web-1")
        graph = await owner_graph(replica_set, "replicasets", all_)
        assert len(graph["nodes"]) == 4


async def test_unknown_and_missing_owners_are_told_apart() -> None:
    pod = owned(
        PODS, "a", (REPLICA_SETS, "gone"), (NODES, "n"), (DEPLOYMENTS, "recreated")
    )
    recreated = owned(DEPLOYMENTS, "recreated")
    recreated["metadata"]["uid"] = "another"
    async with informers(
        (PODS, [pod]), (REPLICA_SETS, []), (DEPLOYMENTS, [recreated])
    ) as all_:
        graph = await owner_graph(get(all_["pods"], "shop/a"), "pods", all_)
        missing = {it["id"]: it["missing"] for it in graph["nodes"]}
        assert missing == {"a": False, "gone": True, "n": False, "recreated": True}
        assert all(it["informer"] == "" for it in graph["nodes"][1:])
        assert len(graph["edges"]) == 3


async def test_owner_that_a_transform_may_leave_out_is_not_missing() -> None:
    pod = owned(PODS, "a", (REPLICA_SETS, "gone"))
    async with informers(
        (PODS, [pod]), (REPLICA_SETS, []), transform=strip_managed_fields
    ) as all_:
        graph = await owner_graph(get(all_["pods"], "shop/a"), "pods", all_)
        assert not graph["nodes"][1]["missing"]


async def test_cycles_and_repeated_references_end() -> None:
    first = owned(PODS, "a", (PODS, "b"), (PODS, "b"), (PODS, "a"))
    second = owned(PODS, "b", (PODS, "a"))
    async with informers((PODS, [first, second])) as all_:
        graph = await owner_graph(get(all_["pods"], "shop/a"), "pods", all_)
        assert [it["id"] for it in graph["nodes"]] == ["a", "b"]
        assert sorted(graph["edges"]) == [["a", "a"], ["a", "b"], ["b", "a"]]


async def test_graph_is_limited() -> None:
    pods = [owned(PODS, f"p{n}", (REPLICA_SETS, "web-1")) for n in range(MAX_NODES + 5)]
    async with informers((PODS, pods), (REPLICA_SETS, [REPLICA_SET])) as all_:
        replica_set = get(all_["replicasets"], "shop/web-1")
        graph = await owner_graph(replica_set, "replicasets", all_)
        assert len(graph["nodes"]) == MAX_NODES
        assert graph["cut"] == len(pods) + 2 - MAX_NODES
        ids = {it["id"] for it in graph["nodes"]}
        assert {end for edge in graph["edges"] for end in edge} <= ids


async def test_large_informers_without_index_are_skipped() -> None:
    event = owned(EVENTS, "e", (REPLICA_SETS, "web-1"))
    async with informers(
        (PODS, PODS_OF_IT), (REPLICA_SETS, [REPLICA_SET]), (EVENTS, [event])
    ) as all_:
        fill(all_["pods"], MAX_SCANNED)
        replica_set = get(all_["replicasets"], "shop/web-1")
        graph = await owner_graph(replica_set, "replicasets", all_)
        assert graph["skipped"] == ["pods"]
        assert [it["id"] for it in graph["nodes"]] == ["web-1", "web"]


async def test_unreadable_objects_have_no_owners() -> None:
    async with informers((PODS, PODS_OF_IT), (REPLICA_SETS, [REPLICA_SET])) as all_:
        broken = unreadable("broken")
        all_["pods"].indexer.add(broken)
        replica_set = get(all_["replicasets"], "shop/web-1")
        graph = await owner_graph(replica_set, "replicasets", all_)
        assert len(graph["nodes"]) == 4
        graph = await owner_graph(broken, "pods", all_)
        assert [it["id"] for it in graph["nodes"]] == ["broken"]


async def test_cluster_scoped_object_owns_across_namespaces() -> None:
    node = owned(NODES, "n")
    async with informers(
        (NODES, [node]), (PODS, [owned(PODS, "a", (NODES, "n"))])
    ) as all_:
        graph = await owner_graph(get(all_["nodes"], "n"), "nodes", all_)
        assert graph["edges"] == [["n", "a"]]


@pytest.mark.parametrize("references", ["text", 7, [1, None, {"uid": 5}, {}], {"a": 1}])
async def test_malformed_references_are_ignored(references: Any) -> None:
    body = owned(PODS, "a")
    body["metadata"]["ownerReferences"] = references
    async with informers((PODS, [body])) as all_:
        pod = get(all_["pods"], "shop/a")
        graph = await owner_graph(pod, "pods", all_)
        assert len(graph["nodes"]) == 1
        assert trouble_of(pod) == ""
