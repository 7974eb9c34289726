"""kubernetes_asyncio and kubernetes.aio read and write: models, patches, subresources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from official_clients import (
    APPLY,
    ASYNC_CLIENTS,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    connected,
)
from peer_servers import SHARED_SSL, config_map, deployment, kubeconfig_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from contract_servers import ServerUnderTest

pytestmark = SHARED_SSL


@pytest.fixture(params=ASYNC_CLIENTS)
async def k(
    request: pytest.FixtureRequest, target: ServerUnderTest, tmp_path: Path
) -> AsyncIterator[Any]:
    async with connected(request.param, kubeconfig_of(target, tmp_path)) as it:
        yield it


@pytest.fixture
def namespace(target: ServerUnderTest) -> str:
    return target.namespace


async def names(k: Any, namespace: str, **options: Any) -> list[str]:
    found = await k.core.list_namespaced_config_map(namespace, **options)
    return [it.metadata.name for it in found.items]


# ------------------------------------------------------------------------ reading


@pytest.mark.parametrize("name", ["kubernetes_asyncio", "kubernetes.aio"])
async def test_kubernetes_asyncio_gets_created_object(
    name: str, target: ServerUnderTest, namespace: str, tmp_path: Path
) -> None:
    async with connected(name, kubeconfig_of(target, tmp_path)) as k:
        metadata = k.client.V1ObjectMeta(name="a", labels={"is": "a"})
        body = k.client.V1ConfigMap(metadata=metadata, data={"colour": "red"})
        made = await k.core.create_namespaced_config_map(namespace, body)

        got = await k.core.read_namespaced_config_map("a", namespace)

    assert isinstance(got, k.client.V1ConfigMap)
    assert got == made
    assert got.data == {"colour": "red"}
    assert got.metadata.namespace == namespace
    assert got.metadata.creation_timestamp.tzinfo is not None


async def test_kubernetes_asyncio_lists_in_pages(k: Any, namespace: str) -> None:
    for name in "abc":
        await k.core.create_namespaced_config_map(namespace, config_map(name))

    page = await k.core.list_namespaced_config_map(namespace, limit=2)
    left = page.metadata.remaining_item_count
    # The clients have different names for the reserved word `continue`.
    token = next(
        getattr(page.metadata, name)
        for name in ("_continue", "var_continue")
        if hasattr(page.metadata, name)
    )
    rest = await k.core.list_namespaced_config_map(namespace, limit=2, _continue=token)

    assert [it.metadata.name for it in page.items] == ["a", "b"]
    assert left == 1
    assert [it.metadata.name for it in rest.items] == ["c"]
    assert rest.metadata.resource_version == page.metadata.resource_version


async def test_kubernetes_asyncio_lists_by_labels_or_fields(
    k: Any, namespace: str
) -> None:
    for name in "abc":
        await k.core.create_namespaced_config_map(namespace, config_map(name))

    everywhere = await k.core.list_config_map_for_all_namespaces(
        field_selector=f"metadata.namespace={namespace}"
    )

    assert await names(k, namespace, label_selector="is in (a, c)") == ["a", "c"]
    assert await names(k, namespace, field_selector="metadata.name=b") == ["b"]
    assert [it.metadata.name for it in everywhere.items] == ["a", "b", "c"]


async def test_kubernetes_asyncio_reads_defaults_of_pod(k: Any, namespace: str) -> None:
    container = k.client.V1Container(name="main", image="registry.example/app:1")
    pod = k.client.V1Pod(
        metadata=k.client.V1ObjectMeta(name="a"),
        spec=k.client.V1PodSpec(containers=[container]),
    )

    made = await k.core.create_namespaced_pod(namespace, pod)

    assert (made.status.phase, made.status.qos_class) == ("Pending", "BestEffort")
    assert made.spec.termination_grace_period_seconds == 30
    assert made.spec.containers[0].image_pull_policy == "IfNotPresent"


async def test_kubernetes_asyncio_reads_version_and_discovery(k: Any) -> None:
    version = await k.client.VersionApi(k.api).get_code()
    groups = await k.client.ApisApi(k.api).get_api_versions()
    resources = await k.apps.get_api_resources()

    assert (version.major, version.minor) == ("1", "36")
    assert {"apps", "batch", "example.com"} <= {it.name for it in groups.groups}
    scaled = next(it for it in resources.resources if it.name == "deployments/scale")
    assert (scaled.kind, scaled.group) == ("Scale", "autoscaling")


async def test_kubernetes_asyncio_accepts_configuration_in_memory(
    k: Any, target: ServerUnderTest
) -> None:
    given = k.client.Configuration(host=target.url)
    given.api_key["BearerToken"] = target.token
    given.api_key_prefix["BearerToken"] = "Bearer"
    given.ssl_ca_cert = target.ca or None
    async with k.client.ApiClient(given) as api:
        found = await k.client.CoreV1Api(api).list_namespace()

    assert target.namespace in {it.metadata.name for it in found.items}


async def test_kubernetes_asyncio_with_wrong_token_gets_401(
    k: Any, target: ServerUnderTest
) -> None:
    k.api.configuration.api_key["BearerToken"] = "Bearer somebody-else"

    with pytest.raises(k.client.ApiException) as caught:
        await names(k, target.namespace)

    assert (caught.value.status, caught.value.reason) == (401, "Unauthorized")


# ------------------------------------------------------------------------ writing


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        (JSON_PATCH, [{"op": "replace", "path": "/data/colour", "value": "blue"}]),
        (MERGE_PATCH, {"data": {"colour": "blue", "size": None}}),
        (STRATEGIC_PATCH, {"data": {"colour": "blue"}}),
        (None, {"data": {"colour": "blue"}}),
        (None, [{"op": "replace", "path": "/data/colour", "value": "blue"}]),
    ],
    ids=["json", "merge", "strategic", "unnamed", "unnamed-list"],
)
async def test_kubernetes_asyncio_patch_changes_given_fields(
    k: Any, namespace: str, kind: str | None, patch: Any
) -> None:
    options = {} if kind is None else {"_content_type": kind}
    body = config_map("a", colour="red", shape="round")
    await k.core.create_namespaced_config_map(namespace, body)

    changed = await k.core.patch_namespaced_config_map("a", namespace, patch, **options)

    assert changed.data == {"colour": "blue", "shape": "round"}


async def test_kubernetes_asyncio_strategic_patch_merges_container_by_name(
    k: Any, namespace: str
) -> None:
    await k.apps.create_namespaced_deployment(namespace, deployment("a"))
    containers = [{"name": "log", "image": "registry.example/log:2"}]
    patch = {"spec": {"template": {"spec": {"containers": containers}}}}

    changed = await k.apps.patch_namespaced_deployment("a", namespace, patch)

    assert [it.image for it in changed.spec.template.spec.containers] == [
        "registry.example/web:1",
        "registry.example/log:2",
    ]


async def test_kubernetes_asyncio_apply_removes_dropped_fields(
    k: Any, namespace: str
) -> None:
    options = {"_content_type": APPLY, "field_manager": "me"}
    first, then = config_map("a", colour="red", size="3"), config_map("a", colour="red")

    made = await k.core.patch_namespaced_config_map("a", namespace, first, **options)
    changed = await k.core.patch_namespaced_config_map("a", namespace, then, **options)

    assert made.data == {"colour": "red", "size": "3"}
    assert changed.data == {"colour": "red"}
    assert [it.operation for it in changed.metadata.managed_fields] == ["Apply"]


async def test_kubernetes_asyncio_apply_conflicts_unless_forced(
    k: Any, namespace: str
) -> None:
    mine = {"_content_type": APPLY, "field_manager": "me"}
    yours = {"_content_type": APPLY, "field_manager": "you"}
    red, blue = config_map("a", colour="red"), config_map("a", colour="blue")
    await k.core.patch_namespaced_config_map("a", namespace, red, **mine)

    with pytest.raises(k.client.ApiException, match='conflict with \\\\"me\\\\"'):
        await k.core.patch_namespaced_config_map("a", namespace, blue, **yours)

    changed = await k.core.patch_namespaced_config_map(
        "a", namespace, blue, **yours, force=True
    )
    assert changed.data == {"colour": "blue"}


async def test_kubernetes_asyncio_replace_with_old_version_conflicts(
    k: Any, namespace: str
) -> None:
    old = await k.core.create_namespaced_config_map(namespace, config_map("a"))
    new = await k.core.read_namespaced_config_map("a", namespace)
    new.data = {"colour": "green"}
    await k.core.replace_namespaced_config_map("a", namespace, new)

    with pytest.raises(k.client.ApiException, match="has been modified") as caught:
        await k.core.replace_namespaced_config_map("a", namespace, old)

    assert (caught.value.status, caught.value.reason) == (409, "Conflict")


async def test_kubernetes_asyncio_deletes_object_and_collection(
    k: Any, namespace: str
) -> None:
    for name in "abc":
        await k.core.create_namespaced_config_map(namespace, config_map(name))

    await k.core.delete_namespaced_config_map("a", namespace)
    await k.core.delete_collection_namespaced_config_map(
        namespace, label_selector="is in (b)"
    )

    assert await names(k, namespace) == ["c"]
    with pytest.raises(k.client.ApiException) as caught:
        await k.core.read_namespaced_config_map("a", namespace)

    assert (caught.value.status, caught.value.reason) == (404, "Not Found")


async def test_kubernetes_asyncio_deletes_pod_with_options(
    k: Any, namespace: str
) -> None:
    spec = {"containers": [{"name": "main", "image": "registry.example/app:1"}]}
    body = {"metadata": {"name": "a"}, "spec": spec}
    made = await k.core.create_namespaced_pod(namespace, body)
    options = k.client.V1DeleteOptions(
        grace_period_seconds=0,
        preconditions=k.client.V1Preconditions(uid=made.metadata.uid),
    )

    gone = await k.core.delete_namespaced_pod("a", namespace, body=options)

    assert gone.metadata.uid == made.metadata.uid
    assert (await k.core.list_namespaced_pod(namespace)).items == []


async def test_kubernetes_asyncio_patches_status_subresource(
    k: Any, namespace: str
) -> None:
    await k.apps.create_namespaced_deployment(namespace, deployment("a"))
    patch = {"spec": {"replicas": 9}, "status": {"observedGeneration": 1}}

    changed = await k.apps.patch_namespaced_deployment_status("a", namespace, patch)

    assert changed.status.observed_generation == 1
    assert changed.spec.replicas == 2


async def test_kubernetes_asyncio_scales_deployment(k: Any, namespace: str) -> None:
    await k.apps.create_namespaced_deployment(namespace, deployment("a"))
    scale = await k.apps.read_namespaced_deployment_scale("a", namespace)
    assert (scale.spec.replicas, scale.status.selector) == (2, "app=a")

    scale.spec.replicas = 5
    await k.apps.replace_namespaced_deployment_scale("a", namespace, scale)
    await k.apps.patch_namespaced_deployment_scale(
        "a", namespace, {"spec": {"replicas": 6}}
    )

    got = await k.apps.read_namespaced_deployment("a", namespace)
    assert got.spec.replicas == 6


async def test_kubernetes_asyncio_creates_yaml_file(
    k: Any, namespace: str, tmp_path: Path
) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all([config_map("a"), deployment("b")]))

    await k.utils.create_from_yaml(k.api, str(file), namespace=namespace)

    assert await names(k, namespace) == ["a"]
    found = await k.apps.list_namespaced_deployment(namespace)
    assert [it.metadata.name for it in found.items] == ["b"]


async def test_kubernetes_asyncio_sends_access_review(
    k: Any, target: ServerUnderTest
) -> None:
    attributes = k.client.V1ResourceAttributes(
        namespace=target.namespace, verb="delete", resource="pods"
    )
    review = k.client.V1SelfSubjectAccessReview(
        spec=k.client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)
    )

    answer = await k.client.AuthorizationV1Api(k.api).create_self_subject_access_review(
        review
    )

    assert answer.status.allowed is True
