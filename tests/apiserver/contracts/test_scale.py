"""Subresource `scale`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from api_calls import ask, change, make, named, patch, version_of
from each_case import each_case
from kind_samples import SAMPLES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp
    from contract_servers import ServerUnderTest

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
async def one(target: ServerUnderTest, http: aiohttp.ClientSession) -> str:
    """Create a deployment with one replica, and return its path."""
    sample = SAMPLES["deployments"]
    await make(http, sample.path(target), sample.body(target))
    return f"{sample.path(target)}/{sample.name(target)}"


@pytest.mark.parametrize(
    "plural",
    ["deployments", "replicasets", "replicationcontrollers", "statefulsets"],
)
async def test_scale_shows_owner(
    target: ServerUnderTest, http: aiohttp.ClientSession, plural: str
) -> None:
    sample = SAMPLES[plural]
    made = await make(http, sample.path(target), sample.body(target))
    one = f"{sample.path(target)}/{sample.name(target)}"

    code, scale = await ask(http, "GET", f"{one}/scale")

    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    assert code == 200
    assert scale == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: made["metadata"][field] for field in shown},
        "spec": {"replicas": 1},
        "status": {"replicas": 0, "selector": "app=web"},
    }


async def test_scale_shows_selector_as_text(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    sample = SAMPLES["deployments"]
    body = sample.body(target)
    body["spec"]["selector"]["matchExpressions"] = [
        {"key": "x", "operator": "NotIn", "values": ["z", "y"]},
        {"key": "b", "operator": "In", "values": ["d", "c"]},
        {"key": "e", "operator": "Exists"},
        {"key": "n", "operator": "DoesNotExist"},
    ]
    body["spec"]["template"]["metadata"]["labels"].update(b="c", e="")
    await make(http, sample.path(target), body)

    one = f"{sample.path(target)}/{sample.name(target)}"
    _, scale = await ask(http, "GET", f"{one}/scale")

    found = scale["status"]["selector"]
    assert found == "app=web,b in (c,d),e,!n,x notin (y,z)"


async def test_scale_supports_put_and_all_patches(
    http: aiohttp.ClientSession, one: str
) -> None:
    operations = [{"op": "replace", "path": "/spec/replicas", "value": 3}]
    as_json, as_strategic = (
        f"application/{name}+json" for name in ("json-patch", "strategic-merge-patch")
    )

    found = [
        await patch(http, f"{one}/scale", {"spec": {"replicas": 2}}),
        await ask(http, "PATCH", f"{one}/scale", operations, content_type=as_json),
        await ask(
            http,
            "PATCH",
            f"{one}/scale",
            {"spec": {"replicas": 4}},
            content_type=as_strategic,
        ),
    ]
    last = found[-1][1]
    found.append(
        await ask(http, "PUT", f"{one}/scale", {**last, "spec": {"replicas": 5}})
    )

    assert [code for code, _ in found] == [200] * 4
    assert [scale["spec"]["replicas"] for _, scale in found] == [2, 3, 4, 5]
    _, owner = await ask(http, "GET", one)
    assert owner["spec"]["replicas"] == 5
    assert owner["metadata"]["generation"] == 5


async def test_scale_without_replicas_means_zero(
    target: ServerUnderTest, http: aiohttp.ClientSession, one: str
) -> None:
    name = SAMPLES["deployments"].name(target)

    code, scale = await ask(http, "PUT", f"{one}/scale", named(name))

    assert (code, scale["spec"]) == (200, {})
    assert (await ask(http, "GET", one))[1]["spec"]["replicas"] == 0


async def test_scale_write_changes_only_replicas(
    http: aiohttp.ClientSession, one: str
) -> None:
    await change(http, f"{one}/scale", {"spec": {"replicas": 2}})
    _, before = await ask(http, "GET", one)
    content = {"metadata": {"labels": {"a": "b"}}, "status": {"replicas": 9}}

    same = await change(http, f"{one}/scale", content)
    again = await change(http, f"{one}/scale", {"spec": {"replicas": 2}})
    _, after = await ask(http, "GET", one)

    assert "labels" not in same["metadata"]
    assert same == again
    assert after == before


async def test_dry_run_scale_write_changes_nothing(
    http: aiohttp.ClientSession, one: str
) -> None:
    code, scale = await patch(
        http, f"{one}/scale", {"spec": {"replicas": 9}}, dryRun="All"
    )

    assert (code, scale["spec"]["replicas"]) == (200, 9)
    assert (await ask(http, "GET", one))[1]["spec"]["replicas"] == 1


@each_case(
    "metadata, spec, code, text",
    [
        pytest.param({}, {"replicas": 2}, 200, "", id="unconditional"),
        pytest.param(
            {"resourceVersion": "1"},
            {"replicas": 2},
            409,
            "the object has been modified; please apply your changes to the latest "
            "version and try again",
            id="stale",
        ),
        pytest.param(
            {"uid": "x"}, {"replicas": 2}, 409, "UID in object meta", id="uid"
        ),
        pytest.param(
            {"name": "x"},
            {"replicas": 2},
            400,
            "the name of the object (x) does not match the name on the URL",
            id="name",
        ),
        pytest.param(
            {},
            {"replicas": -1},
            422,
            "is invalid: spec.replicas: Invalid value: -1: must be greater than or equal "
            "to 0",
            id="negative",
        ),
        pytest.param(
            {},
            {"replicas": "x"},
            400,
            "json: cannot unmarshal string into Go struct field ScaleSpec.spec.replicas "
            "of type int32",
            id="type",
        ),
    ],
)
async def test_invalid_scale_write_is_rejected(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    one: str,
    metadata: dict[str, Any],
    spec: dict[str, Any],
    code: int,
    text: str,
) -> None:
    name = SAMPLES["deployments"].name(target)
    body = {"metadata": {"name": name, **metadata}, "spec": spec}

    answered, status = await ask(http, "PUT", f"{one}/scale", body)

    assert answered == code, status
    assert text in status.get("message", "")


async def test_scale_of_missing_object_is_404(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    deployments = SAMPLES["deployments"].path(target)

    read, status = await ask(http, "GET", f"{deployments}/no/scale")
    written, _ = await patch(http, f"{deployments}/no/scale", {})
    unscaled, _ = await ask(http, "GET", f"{target.path('configmaps')}/no/scale")
    deleted, _ = await ask(http, "DELETE", f"{deployments}/no/scale")

    assert (read, written, unscaled, deleted) == (404, 404, 404, 405)
    assert status["message"] == 'deployments.apps "no" not found'


async def test_scale_write_owns_replicas(http: aiohttp.ClientSession, one: str) -> None:
    await patch(http, f"{one}/scale", {"spec": {"replicas": 2}}, fieldManager="scaler")

    _, owner = await ask(http, "GET", one)

    found = {
        it["manager"]: it
        for it in owner["metadata"]["managedFields"]
        if it.get("subresource") == "scale"
    }
    assert found["scaler"]["fieldsV1"] == {"f:spec": {"f:replicas": {}}}
    assert found["scaler"]["apiVersion"] == "apps/v1"


# -------------------------------------------------------------------- custom resources


@pytest.fixture
async def gadgets(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> AsyncIterator[str]:
    """Yield the path of custom resources with a scale."""
    group = f"{target.namespace}.example.com"
    size = {"type": "integer", "maximum": 5}
    status = {"size": {"type": "integer"}, "selector": {"type": "string"}}
    properties = {
        "spec": {"type": "object", "properties": {"size": size}},
        "status": {"type": "object", "properties": status},
    }
    scale = {
        "specReplicasPath": ".spec.size",
        "statusReplicasPath": ".status.size",
        "labelSelectorPath": ".status.selector",
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}, "scale": scale},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }
    spec = {
        "group": group,
        "scope": "Namespaced",
        "names": {"plural": "gadgets", "kind": "Gadget"},
        "versions": [version],
    }
    await make(http, DEFINITIONS, named(f"gadgets.{group}", spec=spec))
    path = target.path("gadgets", f"apis/{group}/v1")
    while not await _is_served(http, path):
        pass

    yield path
    await ask(http, "DELETE", f"{DEFINITIONS}/gadgets.{group}")


async def _is_served(http: aiohttp.ClientSession, path: str) -> bool:
    async with http.get(path) as answer:
        return answer.status == 200


def gadget(target: ServerUnderTest, **fields: Any) -> dict[str, Any]:
    version = f"{target.namespace}.example.com/v1"
    return {"apiVersion": version, "kind": "Gadget", **named("a", **fields)}


async def test_custom_resource_scale_uses_paths_of_definition(
    target: ServerUnderTest, http: aiohttp.ClientSession, gadgets: str
) -> None:
    await make(http, gadgets, gadget(target, spec={"size": 1}))
    reported = {"status": {"size": 4, "selector": "a=b"}}
    await change(http, f"{gadgets}/a/status", reported)

    _, before = await ask(http, "GET", f"{gadgets}/a/scale")
    after = await change(http, f"{gadgets}/a/scale", {"spec": {"replicas": 2}})
    _, owner = await ask(http, "GET", f"{gadgets}/a")

    assert before["spec"] == {"replicas": 1}
    assert before["status"] == {"replicas": 4, "selector": "a=b"}
    assert version_of(after) == version_of(owner)
    assert owner["spec"] == {"size": 2}
    assert owner["metadata"]["generation"] == 2


async def test_custom_resource_scale_without_replicas_is_500(
    target: ServerUnderTest, http: aiohttp.ClientSession, gadgets: str
) -> None:
    await make(http, gadgets, gadget(target))

    silent, status = await ask(http, "GET", f"{gadgets}/a/scale")
    code, scale = await patch(http, f"{gadgets}/a/scale", {"spec": {"replicas": 2}})

    assert (silent, code) == (500, 200)
    assert status["message"] == (
        'Internal error occurred: the spec replicas field ".spec.size" does not exist'
    )
    assert scale["spec"] == {"replicas": 2}


@pytest.mark.parametrize(
    ("replicas", "text"),
    [
        (7, "spec.size: Invalid value: 7: spec.size in body should be less than or "),
        (-7, ".spec.size: Invalid value: -7: should be a non-negative integer"),
    ],
)
async def test_custom_resource_scale_write_validates_object(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    gadgets: str,
    replicas: int,
    text: str,
) -> None:
    await make(http, gadgets, gadget(target, spec={"size": 1}))

    code, status = await patch(
        http, f"{gadgets}/a/scale", {"spec": {"replicas": replicas}}
    )

    assert code == 422
    assert text in status["message"]


@pytest.mark.parametrize(
    ("size", "why"),
    [
        (-1, "Invalid value: -1: should be a non-negative integer"),
        (
            "many",
            "Invalid value: 0: .spec.size accessor error: many is of the type string",
        ),
    ],
)
async def test_custom_resource_write_validates_scale_replicas(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    gadgets: str,
    size: object,
    why: str,
) -> None:
    code, status = await ask(http, "POST", gadgets, gadget(target, spec={"size": size}))

    assert code == 422
    found = [it for it in status["details"]["causes"] if it["field"] == ".spec.size"]
    assert [it["reason"] for it in found] == ["FieldValueInvalid"]
    assert found[0]["message"].startswith(why)
