"""Official client: reads, writes, custom resources, dynamic client."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from kubernetes import client, config, dynamic, utils
from official_clients import APPLY, JSON_PATCH, MERGE_PATCH, established
from peer_servers import (
    SHARED_SSL,
    config_map,
    definition,
    deployment,
    discovered,
    gadget,
    in_a_thread,
    kubeconfig_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from contract_servers import ServerUnderTest

pytestmark = [pytest.mark.realtime, pytest.mark.looptime(False), SHARED_SSL]


@pytest.fixture
def api(target: ServerUnderTest, tmp_path: Path) -> Iterator[Any]:
    file = kubeconfig_of(target, tmp_path)
    with config.new_client_from_config(config_file=str(file)) as it:
        yield it


@pytest.fixture
def core(api: Any) -> Any:
    return client.CoreV1Api(api)


@pytest.fixture
def namespace(target: ServerUnderTest) -> str:
    return target.namespace


@in_a_thread
def test_kubernetes_client_creates_and_deletes_object(
    core: Any, namespace: str
) -> None:
    metadata = client.V1ObjectMeta(name="a", labels={"is": "a"})
    body = client.V1ConfigMap(metadata=metadata, data={"colour": "red"})
    made = core.create_namespaced_config_map(namespace, body)
    got = core.read_namespaced_config_map("a", namespace)
    got.data = {"colour": "green"}
    replaced = core.replace_namespaced_config_map("a", namespace, got)
    found = core.list_namespaced_config_map(namespace, label_selector="is=a")
    core.delete_namespaced_config_map("a", namespace)

    assert isinstance(made, client.V1ConfigMap)
    assert made.metadata.uid == got.metadata.uid
    assert [it.data for it in found.items] == [{"colour": "green"}]
    assert [it.metadata for it in found.items] == [replaced.metadata]
    assert core.list_namespaced_config_map(namespace).items == []


@in_a_thread
def test_kubernetes_client_accepts_configuration_in_memory(
    target: ServerUnderTest,
) -> None:
    given = client.Configuration(
        host=target.url,
        api_key={"authorization": target.token},
        api_key_prefix={"authorization": "Bearer"},
        ssl_ca_cert=target.ca or None,
    )
    with client.ApiClient(given) as api:
        core = client.CoreV1Api(api)
        core.create_namespaced_config_map(target.namespace, config_map("a"))

        found = core.list_namespaced_config_map(target.namespace)

    assert [it.metadata.name for it in found.items] == ["a"]


@in_a_thread
def test_kubernetes_client_error_has_status_of_server(
    core: Any, namespace: str
) -> None:
    old = core.create_namespaced_config_map(namespace, config_map("a"))
    core.patch_namespaced_config_map("a", namespace, {"data": {"k": "v"}})

    with pytest.raises(client.ApiException) as conflict:
        core.replace_namespaced_config_map("a", namespace, old)

    with pytest.raises(client.ApiException) as missing:
        core.read_namespaced_config_map("b", namespace)

    assert (conflict.value.status, conflict.value.reason) == (409, "Conflict")
    assert '"reason":"Conflict"' in conflict.value.body
    assert (missing.value.status, missing.value.reason) == (404, "Not Found")


@in_a_thread
def test_kubernetes_client_sends_every_patch_type(core: Any, namespace: str) -> None:
    core.create_namespaced_config_map(
        namespace, config_map("a", colour="red", size="3")
    )

    def patched(body: Any, **options: Any) -> Any:
        changed = core.patch_namespaced_config_map("a", namespace, body, **options)
        return dict(changed.data)

    assert patched({"data": {"size": "4"}}) == {"colour": "red", "size": "4"}
    merge = {"data": {"size": None}}
    assert patched(merge, _content_type=MERGE_PATCH) == {"colour": "red"}
    operations = [{"op": "add", "path": "/data/n", "value": "1"}]
    assert patched(operations) == {"colour": "red", "n": "1"}
    operations[0]["value"] = "2"
    assert patched(operations, _content_type=JSON_PATCH)["n"] == "2"
    applied = patched(
        config_map("a", colour="blue"),
        _content_type=APPLY,
        field_manager="me",
        force=True,
    )
    assert applied == {"colour": "blue", "n": "2"}


@in_a_thread
def test_kubernetes_client_reads_status_and_scale(api: Any, namespace: str) -> None:
    apps = client.AppsV1Api(api)
    apps.create_namespaced_deployment(namespace, deployment("a"))

    scale = apps.read_namespaced_deployment_scale("a", namespace)
    scale.spec.replicas = 5
    apps.replace_namespaced_deployment_scale("a", namespace, scale)
    status = {"status": {"observedGeneration": 2, "replicas": 5}}
    apps.patch_namespaced_deployment_status("a", namespace, status)

    got = apps.read_namespaced_deployment("a", namespace)
    assert (got.spec.replicas, got.status.replicas) == (5, 5)
    assert (got.metadata.generation, got.status.observed_generation) == (2, 2)


@in_a_thread
def test_kubernetes_client_creates_yaml_file(
    api: Any, core: Any, namespace: str, tmp_path: Path
) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all([config_map("a"), deployment("b")]))

    utils.create_from_yaml(api, str(file), namespace=namespace)
    with pytest.raises(utils.FailToCreateError, match="already exists"):
        utils.create_from_yaml(api, str(file), namespace=namespace)

    found = client.AppsV1Api(api).list_namespaced_deployment(namespace)
    assert core.read_namespaced_config_map("a", namespace).metadata.labels == {
        "is": "a"
    }
    assert [it.metadata.name for it in found.items] == ["b"]


@in_a_thread
def test_kubernetes_client_retries_conflict(core: Any, namespace: str) -> None:
    stale = core.create_namespaced_config_map(namespace, config_map("a"))
    core.patch_namespaced_config_map("a", namespace, {"data": {"other": "1"}})
    tries = []

    def write() -> Any:
        tries.append(1)
        it = stale
        if len(tries) > 1:
            it = core.read_namespaced_config_map("a", namespace)

        it.data = {**(it.data or {}), "mine": "1"}
        return core.replace_namespaced_config_map("a", namespace, it)

    changed = utils.retry_on_conflict(write)

    assert len(tries) == 2
    assert changed.data == {"mine": "1", "other": "1"}


# --------------------------------------------------------------- custom resources


@contextmanager
def defined(api: Any, target: ServerUnderTest) -> Iterator[dict[str, str]]:
    """Create the definition of gadgets, and yield their path parameters."""
    extensions = client.ApiextensionsV1Api(api)
    body = definition(target)
    name = body["metadata"]["name"]
    made = extensions.create_custom_resource_definition(body)
    try:
        while not established(made):
            made = extensions.read_custom_resource_definition(name)

        asyncio.run(discovered(target))
        yield {
            "group": body["spec"]["group"],
            "version": "v1",
            "namespace": target.namespace,
            "plural": "gadgets",
        }
    finally:
        extensions.delete_custom_resource_definition(name)


@pytest.mark.alone
@pytest.mark.usefixtures("settled_groups")
@in_a_thread
def test_kubernetes_client_reads_and_writes_custom_objects(
    api: Any, target: ServerUnderTest
) -> None:
    custom = client.CustomObjectsApi(api)
    with defined(api, target) as where:
        custom.create_namespaced_custom_object(**where, body=gadget(target, "a"))
        status = {"status": {"replicas": 1}}
        custom.patch_namespaced_custom_object_status(
            **where, name="a", body=status, _content_type=MERGE_PATCH
        )
        more = {"spec": {"replicas": 7}}
        custom.patch_namespaced_custom_object_scale(
            **where, name="a", body=more, _content_type=MERGE_PATCH
        )
        found = custom.list_namespaced_custom_object(**where)

    assert [(it["spec"], it["status"]) for it in found["items"]] == [
        ({"replicas": 7}, {"replicas": 1})
    ]


@pytest.mark.alone
@pytest.mark.usefixtures("settled_groups")
@in_a_thread
def test_kubernetes_dynamic_client_reads_and_writes_any_kind(
    api: Any, target: ServerUnderTest, tmp_path: Path
) -> None:
    namespace = target.namespace
    it = dynamic.DynamicClient(api, cache_file=str(tmp_path / "cache"))
    with defined(api, target) as where:
        group_version = f"{where['group']}/v1"
        gadgets = it.resources.get(api_version=group_version, kind="Gadget")
        gadgets.create(body=gadget(target, "a"), namespace=namespace)
        applied = gadgets.server_side_apply(
            body={**gadget(target, "a"), "spec": {"replicas": 3}},
            namespace=namespace,
            field_manager="me",
            force_conflicts=True,
        )
        gadgets.status.patch(
            body={"metadata": {"name": "a"}, "status": {"replicas": 1}},
            namespace=namespace,
            content_type=MERGE_PATCH,
        )
        found = gadgets.get(namespace=namespace)
        maps = it.resources.get(api_version="v1", kind="ConfigMap")
        maps.create(body=config_map("a"), namespace=namespace)
        maps.delete(name="a", namespace=namespace)

    assert applied.spec.replicas == 3
    assert [one.status.replicas for one in found.items] == [1]
    assert maps.get(namespace=namespace).items == []
