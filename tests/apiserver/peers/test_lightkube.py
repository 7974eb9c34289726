"""lightkube reads and writes: typed objects, all patch types, subresources."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from lightkube import ApiError, AsyncClient, KubeConfig, codecs
from lightkube.config.models import Cluster, User
from lightkube.generic_resource import (
    async_load_in_cluster_generic_resources,
    get_generic_resource,
)
from lightkube.models.apps_v1 import DeploymentStatus
from lightkube.models.autoscaling_v1 import ScaleSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Namespace, Pod
from lightkube.types import PatchType
from peer_servers import (
    SHARED_SSL,
    config_map,
    definition,
    deployment,
    gadget,
    kubeconfig_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from contract_servers import ServerUnderTest

pytestmark = SHARED_SSL


@pytest.fixture
async def client(target: ServerUnderTest, tmp_path: Path) -> AsyncIterator[AsyncClient]:
    config = KubeConfig.from_file(str(kubeconfig_of(target, tmp_path)))
    async with AsyncClient(config, field_manager="lightkube", trust_env=False) as it:
        yield it


def a_map(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, labels={"is": name}), data=data)


async def names(client: AsyncClient, **options: object) -> list[str]:
    found = client.list(ConfigMap, **options)
    return [it.metadata.name async for it in found]


# ------------------------------------------------------------------------ reading


async def test_lightkube_gets_created_object(
    client: AsyncClient, target: ServerUnderTest
) -> None:
    made = await client.create(a_map("a", colour="red"))

    got = await client.get(ConfigMap, name="a")

    assert got == made
    assert got.data == {"colour": "red"}
    assert got.metadata.namespace == target.namespace
    assert got.metadata.managedFields[0].manager == "lightkube"


async def test_lightkube_lists_in_pages_by_labels_or_fields(
    client: AsyncClient,
) -> None:
    for name in "abc":
        await client.create(a_map(name))

    assert await names(client, chunk_size=1) == ["a", "b", "c"]
    assert await names(client, labels={"is": ["a", "c"]}) == ["a", "c"]
    assert await names(client, fields={"metadata.name": "b"}) == ["b"]
    assert await names(client, namespace="*", labels={"is": "nothing"}) == []


async def test_lightkube_list_has_version(client: AsyncClient) -> None:
    made = await client.create(a_map("a"))
    found = client.list(ConfigMap)

    items = [it async for it in found]

    assert items == [made]
    assert int(found.resourceVersion) >= int(made.metadata.resourceVersion or 0)


async def test_lightkube_reads_defaults_of_pod(client: AsyncClient) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]},
    }
    made = await client.create(codecs.from_dict(body))

    assert isinstance(made, Pod)
    assert (made.status.phase, made.status.qosClass) == ("Pending", "BestEffort")
    assert made.spec.restartPolicy == "Always"
    assert made.spec.containers[0].imagePullPolicy == "IfNotPresent"


async def test_lightkube_handles_cluster_scoped_namespace(
    client: AsyncClient, target: ServerUnderTest
) -> None:
    got = await client.get(Namespace, target.namespace)

    assert got.status.phase == "Active"


async def test_lightkube_accepts_configuration_in_memory(
    target: ServerUnderTest,
) -> None:
    config = KubeConfig.from_one(
        cluster=Cluster(server=target.url, certificate_auth=target.ca or None),
        user=User(token=target.token),
        namespace=target.namespace,
    )
    async with AsyncClient(config, trust_env=False) as client:
        await client.create(a_map("a"))

        assert await names(client) == ["a"]


async def test_lightkube_raises_forbidden(
    target: ServerUnderTest, tmp_path: Path
) -> None:
    file = kubeconfig_of(target, tmp_path, token=target.user_token)
    config = KubeConfig.from_file(str(file))
    async with AsyncClient(config, trust_env=False) as client:
        with pytest.raises(ApiError, match='User "alice" cannot list') as caught:
            await names(client)

    assert caught.value.status.reason == "Forbidden"


# ------------------------------------------------------------------------ writing


async def test_lightkube_creates_objects_of_yaml_file(client: AsyncClient) -> None:
    text = codecs.dump_all_yaml(
        [
            codecs.from_dict(config_map("a", colour="red")),
            codecs.from_dict(deployment("b")),
        ]
    )

    for it in codecs.load_all_yaml(text):
        await client.create(it)

    assert (await client.get(ConfigMap, "a")).data == {"colour": "red"}
    made = await client.get(Deployment, "b")
    assert made.spec.replicas == 2


async def test_lightkube_replace_with_old_version_conflicts(
    client: AsyncClient,
) -> None:
    old = await client.create(a_map("a", colour="red"))
    new = await client.get(ConfigMap, "a")
    new.data = {"colour": "green"}
    new = await client.replace(new)
    assert new.data == {"colour": "green"}

    with pytest.raises(ApiError) as caught:
        await client.replace(old)

    status = caught.value.status
    assert (status.code, status.reason) == (409, "Conflict")
    assert (status.details.name, status.details.kind) == ("a", "configmaps")


@pytest.mark.parametrize(
    ("patch_type", "patch"),
    [
        (PatchType.JSON, [{"op": "replace", "path": "/data/colour", "value": "blue"}]),
        (PatchType.MERGE, {"data": {"colour": "blue", "size": None}}),
        (PatchType.STRATEGIC, {"data": {"colour": "blue"}}),
    ],
    ids=["json", "merge", "strategic"],
)
async def test_lightkube_patch_changes_given_fields(
    client: AsyncClient, patch_type: PatchType, patch: dict[str, object]
) -> None:
    await client.create(a_map("a", colour="red", shape="round"))

    changed = await client.patch(ConfigMap, "a", patch, patch_type=patch_type)

    assert changed.data == {"colour": "blue", "shape": "round"}


async def test_lightkube_strategic_patch_merges_container_by_name(
    client: AsyncClient,
) -> None:
    await client.create(codecs.from_dict(deployment("a")))
    containers = [{"name": "log", "image": "registry.example/log:2"}]
    patch = {"spec": {"template": {"spec": {"containers": containers}}}}

    changed = await client.patch(Deployment, "a", patch)

    assert [it.image for it in changed.spec.template.spec.containers] == [
        "registry.example/web:1",
        "registry.example/log:2",
    ]


async def test_lightkube_sets_labels(client: AsyncClient) -> None:
    await client.create(a_map("a"))

    changed = await client.set(ConfigMap, "a", labels={"env": "prod", "is": None})

    assert changed.metadata.labels == {"env": "prod"}


async def test_lightkube_apply_removes_dropped_fields(client: AsyncClient) -> None:
    config = a_map("a", colour="red", size="3")
    assert (await client.apply(config)).data == {"colour": "red", "size": "3"}

    config.data = {"colour": "red", "shape": "round"}

    assert (await client.apply(config)).data == {"colour": "red", "shape": "round"}


async def test_lightkube_apply_conflicts_unless_forced(
    client: AsyncClient,
) -> None:
    await client.apply(a_map("a", colour="red"))
    other = a_map("a", colour="blue")

    with pytest.raises(ApiError) as caught:
        await client.apply(other, field_manager="other")

    changed = await client.apply(other, field_manager="other", force=True)

    status = caught.value.status
    assert (status.code, status.reason) == (409, "Conflict")
    assert [it.field for it in status.details.causes] == [".data.colour"]
    assert changed.data == {"colour": "blue"}


async def test_lightkube_dry_run_changes_nothing(client: AsyncClient) -> None:
    made = await client.create(a_map("a"), dry_run=True)

    assert made.metadata.uid
    assert await names(client) == []


async def test_lightkube_deletes_object_and_collection(client: AsyncClient) -> None:
    for name in "abc":
        await client.create(a_map(name))

    await client.delete(ConfigMap, "b")
    left = await names(client)
    await client.deletecollection(ConfigMap)

    assert left == ["a", "c"]
    assert await names(client) == []
    with pytest.raises(ApiError, match='configmaps "a" not found'):
        await client.get(ConfigMap, "a")


# ------------------------------------------------------------------- subresources


async def test_lightkube_writes_status_subresource(client: AsyncClient) -> None:
    await client.create(codecs.from_dict(deployment("a")))
    part = await client.get(Deployment.Status, "a")
    part.status = DeploymentStatus(observedGeneration=99)
    part.spec.replicas = 7

    await client.replace(part)

    got = await client.get(Deployment, "a")
    assert got.status == part.status
    assert got.spec.replicas == 2


async def test_lightkube_scales_deployment(client: AsyncClient) -> None:
    await client.create(codecs.from_dict(deployment("a")))
    scale = Deployment.Scale(metadata=ObjectMeta(name="a"), spec=ScaleSpec(replicas=5))

    await client.replace(scale, "a")

    got = await client.get(Deployment.Scale, "a")
    made = await client.get(Deployment, "a")
    assert got.spec == ScaleSpec(replicas=5)
    assert (got.status.replicas, got.status.selector) == (0, "app=a")
    assert made.spec.replicas == 5


# --------------------------------------------------------------- custom resources


@asynccontextmanager
async def defined(client: AsyncClient, target: ServerUnderTest) -> AsyncIterator[None]:
    """Create the definition of gadgets, and delete it after the test."""
    body = definition(target)
    name = body["metadata"]["name"]
    await client.create(codecs.from_dict(body))
    try:
        await client.wait(
            CustomResourceDefinition, name, for_conditions=["Established"]
        )
        await async_load_in_cluster_generic_resources(client)
        yield
    finally:
        await client.delete(CustomResourceDefinition, name)


@pytest.mark.alone
@pytest.mark.usefixtures("settled_groups")
async def test_lightkube_reads_and_writes_custom_objects(
    client: AsyncClient, target: ServerUnderTest
) -> None:
    body = gadget(target, "a")
    more = {"spec": {"replicas": 7}}
    async with defined(client, target):
        kind = get_generic_resource(body["apiVersion"], "Gadget")

        made = await client.create(kind(body))
        await client.replace(kind.Status({**made, "status": {"replicas": 1}}), "a")
        scale = await client.get(kind.Scale, "a")
        await client.patch(kind.Scale, "a", more, patch_type=PatchType.MERGE)
        found = [it async for it in client.list(kind)]

    assert (scale.spec.replicas, scale.status.replicas) == (2, 1)
    assert [(it.metadata.name, it.spec, it.status) for it in found] == [
        ("a", {"replicas": 7}, {"replicas": 1})
    ]
