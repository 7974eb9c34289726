"""kr8s reads and writes: its own classes, and kinds from discovery."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import kr8s
import pytest
import yaml
from kr8s.asyncio.objects import (
    ConfigMap,
    CustomResourceDefinition,
    Deployment,
    Namespace,
    Table,
    new_class,
    object_from_spec,
)
from kr8s_calls import NEWER_THAN_IT_KNOWS, connected, made
from peer_servers import (
    SHARED_SSL,
    config_map,
    definition,
    deployment,
    discovered,
    gadget,
    kubeconfig_of,
    short_name,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from contract_servers import ServerUnderTest

pytestmark = [pytest.mark.alone, NEWER_THAN_IT_KNOWS, SHARED_SSL]


@pytest.fixture
async def api(target: ServerUnderTest, tmp_path: Path) -> AsyncIterator[Any]:
    async with connected(kubeconfig_of(target, tmp_path)) as it:
        yield it


async def names(api: Any, kind: Any = ConfigMap, **options: Any) -> list[str]:
    return [it.name async for it in api.get(kind, **options)]


# ------------------------------------------------------------------------ reading


async def test_kr8s_gets_created_object(api: Any, target: ServerUnderTest) -> None:
    new = await made(api, config_map("a", colour="red"))

    got = await ConfigMap.get("a", api=api)

    assert got.raw == new.raw
    assert got.data == {"colour": "red"}
    assert got.namespace == target.namespace
    assert await got.exists()


async def test_kr8s_lists_by_labels_fields_or_names(api: Any) -> None:
    for name in "abc":
        await made(api, config_map(name))

    assert await names(api) == ["a", "b", "c"]
    assert await names(api, label_selector={"is": "b"}) == ["b"]
    assert await names(api, label_selector="is in (a, c)") == ["a", "c"]
    assert await names(api, field_selector={"metadata.name": "c"}) == ["c"]
    assert [it.name async for it in api.get(ConfigMap, "c", "a")] == ["c", "a"]


@pytest.mark.parametrize(
    "kind", ["deploy", "deployment", "deployments", "Deployment", "deployment.apps/v1"]
)
async def test_kr8s_finds_kind_by_all_names(api: Any, kind: str) -> None:
    await made(api, deployment("a"))

    found = [it async for it in api.get(kind)]

    assert [type(it) for it in found] == [Deployment]
    assert (found[0].name, found[0].replicas) == ("a", 2)


async def test_kr8s_gets_table_of_kubectl(api: Any) -> None:
    await made(api, config_map("a", colour="red"))

    tables = [it async for it in api.get("configmaps", as_object=Table)]

    (table,) = tables
    assert [it["name"] for it in table.column_definitions] == ["Name", "Data", "Age"]
    assert [row["cells"][:2] for row in table.rows] == [["a", 1]]


async def test_kr8s_reads_version_and_discovery(api: Any) -> None:
    version = await api.version()
    served = {it["name"]: it for it in await api.api_resources()}
    groups = [it async for it in api.api_versions()]

    assert (version["major"], version["minor"]) == ("1", "36")
    assert served["pods"]["shortNames"] == ["po"]
    assert served["deployments"]["version"] == "apps/v1"
    assert {"v1", "apps/v1", "example.com/v1"} <= set(groups)


async def test_kr8s_reads_own_user(api: Any) -> None:
    assert (await api.whoami()).endswith("admin")


async def test_kr8s_handles_cluster_scoped_namespace(
    api: Any, target: ServerUnderTest
) -> None:
    got = await Namespace.get(target.namespace, api=api)

    assert got.status.phase == "Active"
    assert got.namespace is None


async def test_kr8s_accepts_configuration_in_memory(
    target: ServerUnderTest, tmp_path: Path
) -> None:
    text = kubeconfig_of(target, tmp_path).read_text(encoding="utf-8")

    async with connected(yaml.safe_load(text)) as api:
        await made(api, config_map("a"))

        assert await names(api) == ["a"]


# ------------------------------------------------------------------------ writing


async def test_kr8s_merge_patch_removes_null_fields(api: Any) -> None:
    it = await made(api, config_map("a", colour="red", size="3"))

    await it.patch({"data": {"colour": "blue", "size": None}})

    assert it.data == {"colour": "blue"}
    assert (await ConfigMap.get("a", api=api)).raw == it.raw


async def test_kr8s_json_patch_works(api: Any) -> None:
    it = await made(api, config_map("a", colour="red"))

    await it.patch([{"op": "add", "path": "/data/size", "value": "3"}], type="json")

    assert it.data == {"colour": "red", "size": "3"}


async def test_kr8s_adds_and_removes_labels(api: Any) -> None:
    it = await made(api, config_map("a"))

    await it.label(env="prod")
    await it.label("is-")
    await it.annotate(note="hello")

    got = await ConfigMap.get("a", api=api)
    assert got.labels == {"env": "prod"}
    assert got.annotations == {"note": "hello"}


async def test_kr8s_adopts_child(api: Any) -> None:
    owner = await made(api, config_map("owner"))
    child = await made(api, config_map("child"))

    await owner.adopt(child)

    (reference,) = child.metadata.ownerReferences
    assert (reference.kind, reference.uid) == ("ConfigMap", owner.metadata.uid)


async def test_kr8s_patches_status_subresource(api: Any) -> None:
    it = await made(api, deployment("a"))
    patch = {"spec": {"replicas": 9}, "status": {"observedGeneration": 1}}

    await it.patch(patch, subresource="status")

    assert it.status == {"observedGeneration": 1}
    assert it.replicas == 2


async def test_kr8s_scale_waits_for_replicas(api: Any) -> None:
    it = await made(api, deployment("a"))

    await it.scale(5)

    assert it.replicas == 5
    assert (await Deployment.get("a", api=api)).replicas == 5


async def test_kr8s_does_not_find_deleted_object(api: Any) -> None:
    it = await made(api, config_map("a"))

    await it.delete()

    assert not await it.exists()
    with pytest.raises(kr8s.NotFoundError):
        await it.delete()
    with pytest.raises(kr8s.NotFoundError):
        await it.refresh()


async def test_kr8s_error_has_status_of_server(api: Any) -> None:
    await made(api, config_map("a"))

    with pytest.raises(kr8s.ServerError, match='"a" already exists') as caught:
        await made(api, config_map("a"))

    assert caught.value.status["reason"] == "AlreadyExists"
    assert caught.value.response.status_code == 409


async def test_kr8s_raises_forbidden(target: ServerUnderTest, tmp_path: Path) -> None:
    file = kubeconfig_of(target, tmp_path, token=target.user_token)
    async with connected(file) as api:
        with pytest.raises(
            kr8s.ServerError, match=r'^configmaps is forbidden: User "a'
        ):
            await names(api)


# --------------------------------------------------------------- custom resources


def established(it: Any) -> bool:
    """Return whether a definition is established; its conditions are null at first."""
    conditions = {one.type: one.status for one in it.status.conditions or ()}
    return conditions.get("Established") == "True"


@asynccontextmanager
async def defined(api: Any, target: ServerUnderTest) -> AsyncIterator[None]:
    """Create the definition of gadgets, and delete it after the test."""
    it = await made(api, definition(target))
    assert isinstance(it, CustomResourceDefinition)
    try:
        while not established(it):
            await it.refresh()

        await discovered(target)
        yield
    finally:
        await it.delete()


@pytest.mark.usefixtures("settled_groups")
async def test_kr8s_reads_and_writes_custom_objects(
    api: Any, target: ServerUnderTest
) -> None:
    async with defined(api, target):
        body = gadget(target, "a")
        kind = new_class(
            "Gadget", version=body["apiVersion"], scalable=True, plural="gadgets"
        )
        it = await kind(body, api=api)
        await it.create()
        await it.patch({"status": {"replicas": 1}}, subresource="status")
        await it.scale(7)
        found = [
            one async for one in api.get(f"gadgets.{target.namespace}.example.org")
        ]

    assert [type(one) for one in found] == [kind]
    assert [(one.spec, one.status) for one in found] == [
        ({"replicas": 7}, {"replicas": 1})
    ]


@pytest.mark.usefixtures("settled_groups")
async def test_kr8s_makes_class_from_discovery(
    api: Any, target: ServerUnderTest
) -> None:
    async with defined(api, target):
        it = await object_from_spec(gadget(target, "a"), api, allow_unknown_type=True)
        await it.create()

        found = [one async for one in api.get(short_name(target))]

    assert [(one.kind.lower(), one.name) for one in found] == [("gadget", "a")]
    assert found[0].namespaced
