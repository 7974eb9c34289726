"""Server-side apply: merging, ownership, conflicts, validation."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

import pytest
from api_calls import WIDGETS_GROUP, ask, named, widget
from apply_calls import (
    applied,
    apply,
    changed,
    config_map,
    deployment,
    made,
    owned,
    same_time,
)
from each_case import each_case

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp
    from contract_servers import ServerUnderTest

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

TEXT = {"type": "string"}
GADGET_SPEC = {
    "type": "object",
    "properties": {
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {
                "type": "object",
                "required": ["port"],
                "properties": {
                    "port": {"type": "integer"},
                    "protocol": {"type": "string", "default": "TCP"},
                    "name": TEXT,
                },
            },
        },
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
        "labels": {"type": "object", "additionalProperties": TEXT},
        "size": {"type": "integer", "default": 3},
    },
}


@pytest.fixture
def maps(target: ServerUnderTest) -> str:
    return target.path("configmaps")


@pytest.fixture
def deployments(target: ServerUnderTest) -> str:
    return target.path("deployments", "apis/apps/v1")


@pytest.fixture
async def gadgets(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> AsyncIterator[str]:
    """Define a kind with lists of all types, and yield the path of its collection."""
    group = f"g{secrets.token_hex(4)}.example.com"
    definition = {
        **named(f"gadgets.{group}"),
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"spec": GADGET_SPEC},
                        }
                    },
                }
            ],
        },
    }
    await made(http, DEFINITIONS, definition)
    path = target.path("gadgets", f"apis/{group}/v1")
    while (await _status(http, path)) != 200:
        pass

    yield path
    await ask(http, "DELETE", f"{DEFINITIONS}/gadgets.{group}")


async def _status(http: aiohttp.ClientSession, path: str) -> int:
    async with http.get(path) as answer:
        return answer.status


def gadget(path: str, **spec: Any) -> dict[str, Any]:
    group_version = "/".join(path.split("/")[2:4])
    return {"apiVersion": group_version, "kind": "Gadget", **named("a"), "spec": spec}


# -------------------------------------------------------------------- apply


async def test_apply_creates_missing_object(
    http: aiohttp.ClientSession, maps: str
) -> None:
    code, found = await apply(http, maps, config_map(x="1"))

    (entry,) = found["metadata"]["managedFields"]
    assert code == 201
    assert found["data"] == {"x": "1"}
    assert same_time(entry["time"], found["metadata"]["creationTimestamp"])
    assert owned(found) == {"one!": {"f:data": {"f:x": {}}}}


async def test_repeated_apply_keeps_resource_version(
    http: aiohttp.ClientSession, deployments: str
) -> None:
    limits = {"limits": {"cpu": "1000m", "memory": "1024Mi"}}
    web = {"name": "web", "image": "registry.example/web:1", "resources": limits}
    old = await applied(http, deployments, deployment(web))

    code, found = await apply(http, deployments, deployment(web))

    assert code == 200
    assert found == old


async def test_apply_removes_field_no_longer_applied(
    http: aiohttp.ClientSession, deployments: str
) -> None:
    image = "registry.example/web:1"
    ports = [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]
    web = {"name": "web", "image": image, "ports": ports, "env": env}
    old = deployment(web, {"name": "side", "image": image}, replicas=2)
    old["metadata"]["labels"] = {"l": "1"}
    await applied(http, deployments, old)

    web = {"name": "web", "image": image, "ports": ports[:1], "env": env[1:]}
    found = await applied(http, deployments, deployment(web))

    (left,) = found["spec"]["template"]["spec"]["containers"]
    assert left["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert left["env"] == env[1:]
    assert found["spec"]["replicas"] == 1
    assert "labels" not in found["metadata"]


async def test_apply_keeps_field_owned_by_other_manager(
    http: aiohttp.ClientSession, maps: str
) -> None:
    await applied(http, maps, config_map(x="1", y="1"))
    await applied(http, maps, config_map(x="1"), "two")
    await changed(http, f"{maps}/a", {"data": {"z": "1"}})

    found = await applied(http, maps, config_map())

    assert found["data"] == {"x": "1", "z": "1"}
    assert owned(found) == {
        "one!": {"f:data": {}},
        "two!": {"f:data": {"f:x": {}}},
        "editor": {"f:data": {"f:z": {}}},
    }


async def test_equal_values_are_shared_by_appliers_without_time(
    http: aiohttp.ClientSession, maps: str
) -> None:
    old = await made(http, maps, config_map(x="1"))

    found = await applied(http, maps, config_map(x="1"))

    entries = found["metadata"]["managedFields"]
    assert owned(found)["one!"] == {"f:data": {"f:x": {}}}
    assert [("time" in it) for it in entries] == [False, True]
    assert found["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]


async def test_apply_owns_empty_map_and_nulls(
    http: aiohttp.ClientSession, maps: str
) -> None:
    body = {**config_map(), "data": {"x": None, "y": "1"}}
    body["metadata"]["labels"] = None

    found = await applied(http, maps, body)

    assert found["data"] == {"x": "", "y": "1"}
    assert owned(found)["one!"] == {
        "f:data": {"f:x": {}, "f:y": {}},
        "f:metadata": {"f:labels": {}},
    }


async def test_apply_merges_lists_of_custom_resource_by_schema(
    http: aiohttp.ClientSession, gadgets: str
) -> None:
    ports: list[Any] = [{"port": 1, "name": "x"}, {"port": 2}]
    await applied(http, gadgets, gadget(gadgets, ports=ports, tags=["d", "b"]))

    ports = [{"port": 3}, {"port": 1}]
    body = gadget(gadgets, ports=ports, tags=["z", "b", "a", "d"])
    found = await applied(http, gadgets, body, "two")

    assert found["spec"] == {
        "ports": [
            {"port": 3, "protocol": "TCP"},
            {"name": "x", "port": 1, "protocol": "TCP"},
            {"port": 2, "protocol": "TCP"},
        ],
        "size": 3,
        "tags": ["z", "b", "a", "d"],
    }
    assert owned(found)["two!"]["f:spec"]["f:ports"] == {
        'k:{"port":1,"protocol":"TCP"}': {".": {}, "f:port": {}},
        'k:{"port":3,"protocol":"TCP"}': {".": {}, "f:port": {}},
    }


async def test_apply_removes_dropped_fields_of_custom_resource(
    http: aiohttp.ClientSession, gadgets: str
) -> None:
    body = gadget(gadgets, ports=[{"port": 1}], tags=["a", "b"], labels={"l": "1"})
    await applied(http, gadgets, body)

    found = await applied(http, gadgets, gadget(gadgets, tags=["b"]))
    bare = await applied(http, gadgets, {**gadget(gadgets), "spec": {}})

    assert found["spec"] == {"size": 3, "tags": ["b"]}
    assert bare["spec"] == {"size": 3}
    assert owned(bare) == {"one!": {"f:spec": {}}}


# -------------------------------------------------------------------- conflicts


async def test_apply_of_other_value_is_conflict(
    http: aiohttp.ClientSession, maps: str
) -> None:
    await made(http, maps, config_map(x="1", y="1"))

    code, refused = await apply(http, maps, config_map(x="2", y="1"))

    owner = 'conflict with "maker" using v1'
    assert code == 409
    assert refused == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"Apply failed with 1 conflict: {owner}: .data.x",
        "reason": "Conflict",
        "details": {
            "causes": [
                {"reason": "FieldManagerConflict", "message": owner, "field": ".data.x"}
            ]
        },
        "code": 409,
    }


async def test_apply_reports_several_conflicts_together(
    http: aiohttp.ClientSession, deployments: str
) -> None:
    web = {"name": "web", "image": "registry.example/web:1"}
    await applied(http, deployments, deployment(web, replicas=1))

    web = {"name": "web", "image": "registry.example/web:2"}
    code, refused = await apply(http, deployments, deployment(web, replicas=2), "two")

    path = '.spec.template.spec.containers[name="web"].image'
    assert code == 409
    assert refused["message"].splitlines() == [
        'Apply failed with 2 conflicts: conflicts with "one":',
        "- .spec.replicas",
        f"- {path}",
    ]
    assert refused["details"]["causes"][1] == {
        "reason": "FieldManagerConflict",
        "message": 'conflict with "one"',
        "field": path,
    }


async def test_forced_apply_takes_ownership(
    http: aiohttp.ClientSession, maps: str
) -> None:
    await made(http, maps, config_map(x="1"))
    await applied(http, maps, config_map(y="1"), "two")

    found = await applied(http, maps, config_map(x="2", y="2"), force="true")

    assert found["data"] == {"x": "2", "y": "2"}
    assert owned(found) == {
        "one!": {"f:data": {"f:x": {}, "f:y": {}}},
        "maker": {"f:data": {}},
    }


async def test_conflicting_apply_changes_nothing(
    http: aiohttp.ClientSession, maps: str
) -> None:
    old = await made(http, maps, config_map(x="1"))

    code, _ = await apply(http, maps, config_map(x="2", y="2"))

    assert code == 409
    assert (await ask(http, "GET", f"{maps}/a"))[1] == old


async def test_status_subresource_applies_status(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("widgets", WIDGETS_GROUP)
    await applied(http, path, widget("w", spec={"size": 1}, status={"phase": "x"}))

    body = widget("w", spec={"size": 2}, status={"phase": "y"})
    found = await applied(http, path, body, "two", part="/status")
    code, refused = await apply(
        http, path, widget("w", status={"phase": "z"}), "three", part="/status"
    )

    assert found["spec"] == {"size": 1}
    assert found["status"] == {"phase": "y"}
    assert owned(found) == {
        "one!": {"f:spec": {".": {}, "f:size": {}}},
        "two!/status": {"f:status": {".": {}, "f:phase": {}}},
    }
    assert code == 409
    assert refused["message"] == (
        "Apply failed with 1 conflict: "
        'conflict with "two" with subresource "status": .status.phase'
    )


async def test_kubectl_apply_takes_over_from_client_side_apply(
    http: aiohttp.ClientSession, maps: str
) -> None:
    annotation = "kubectl.kubernetes.io/last-applied-configuration"
    live = config_map(x="1")
    live["metadata"]["annotations"] = {annotation: json.dumps(config_map(x="1"))}
    await made(http, maps, live)

    code, _ = await apply(http, maps, config_map(x="2"), "helm")
    found = await applied(http, maps, config_map(x="2"), "kubectl")

    assert code == 409
    assert found["data"] == {"x": "2"}
    assert found["metadata"]["annotations"][annotation] == (
        '{"apiVersion":"v1","data":{"x":"2"},"kind":"ConfigMap",'
        '"metadata":{"name":"a"}}\n'
    )


# -------------------------------------------------------------------- errors


@each_case(
    "change, code, message",
    [
        pytest.param(
            {"kind": "Secret"}, 400, "invalid object type: /v1, Kind=Secret", id="kind"
        ),
        pytest.param(
            {"apiVersion": "v2"},
            400,
            "invalid object type: /v2, Kind=ConfigMap",
            id="version",
        ),
        pytest.param(
            {"metadata": {"name": "a", "managedFields": []}},
            400,
            "metadata.managedFields must be nil",
            id="managed fields",
        ),
        pytest.param(
            {"colour": "red"},
            500,
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): "
            ".colour: field not declared in schema",
            id="an unknown field",
        ),
        pytest.param(
            {"data": {"x": 1}},
            500,
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): "
            ".data.x: expected string, got &value.valueUnstructured{Value:1}",
            id="another type",
        ),
    ],
)
async def test_invalid_apply_is_rejected(
    http: aiohttp.ClientSession,
    maps: str,
    change: dict[str, Any],
    code: int,
    message: str,
) -> None:
    found = await apply(http, maps, {**config_map(x="1"), **change})

    assert (found[0], found[1]["message"]) == (code, message)


async def test_apply_of_duplicate_list_items_is_rejected(
    http: aiohttp.ClientSession, deployments: str
) -> None:
    ports = [{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP"}]
    web = {"name": "web", "image": "registry.example/web:1", "ports": ports}

    code, refused = await apply(http, deployments, deployment(web))

    assert code == 500
    assert refused["message"] == (
        "failed to create typed patch object (/web; apps/v1, Kind=Deployment): "
        '.spec.template.spec.containers[name="web"].ports: '
        'duplicate entries for key [containerPort=80,protocol="TCP"]'
    )


async def test_apply_without_field_manager_is_rejected(
    http: aiohttp.ClientSession, maps: str
) -> None:
    code, refused = await apply(http, maps, config_map(x="1"), "")

    assert code == 422
    assert refused["message"] == (
        'PatchOptions.meta.k8s.io "" is invalid: '
        "fieldManager: Required value: is required for apply patch"
    )
