"""Errors about bodies with values of wrong types."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from api_calls import WIDGETS_GROUP, ask, make, named, patch, widget

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest

APPLY = "application/apply-patch+yaml"
ODD = [
    pytest.param({"a": 1}, "object", id="object"),
    pytest.param([1], "array", id="array"),
    pytest.param(1.5, "number", id="number"),
    pytest.param(True, "bool", id="bool"),
]


@pytest.mark.parametrize("field", ["apiVersion", "kind"])
@pytest.mark.parametrize(("odd", "called"), ODD)
async def test_api_version_and_kind_must_be_strings(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    field: str,
    odd: object,
    called: str,
) -> None:
    why = (
        "couldn't get version/kind; json parse error: json: cannot unmarshal "
        f"{called} into Go struct field .{field} of type string"
    )
    maps = target.path("configmaps")
    widgets = target.path("widgets", WIDGETS_GROUP)
    await make(http, maps, named("a"))
    body = {**widget("b"), field: odd}

    built_in = await ask(http, "POST", maps, {**named("b"), field: odd})
    custom = await ask(http, "POST", widgets, body)
    patched = await patch(http, f"{maps}/a", {field: odd})

    shown = f"({json.dumps(body)[:30]} ...)"
    head = "the object provided is unrecognized (must be of type"
    assert (built_in[0], custom[0], patched[0]) == (400, 400, 422)
    assert built_in[1]["message"].startswith(f"{head} ConfigMap): {why} (")
    assert custom[1]["message"] == f"{head} Widget): {why} {shown}"
    assert patched[1]["message"].endswith(f'": {why}')


@pytest.mark.parametrize(
    ("body", "where", "why"),
    [
        ({"metadata": [1]}, "/", ".metadata: expected map, got &{[1]}"),
        (
            {"metadata": {"name": True}},
            "/",
            ".metadata.name: expected string, got &value.valueUnstructured{Value:true}",
        ),
        (
            {"metadata": {"name": "a", "managedFields": True}},
            "/a",
            ".metadata.managedFields: expected list, got &{true}",
        ),
        (
            {"metadata": {"name": "a", "resourceVersion": 1.5}},
            "/a",
            (
                ".metadata.resourceVersion: expected string, got "
                "&value.valueUnstructured{Value:1.5}"
            ),
        ),
        (
            {"metadata": {"name": "a", "unknown": 1}},
            "/a",
            ".metadata.unknown: field not declared in schema",
        ),
    ],
)
async def test_apply_is_validated_before_lookup(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    body: dict[str, Any],
    where: str,
    why: str,
) -> None:
    path = target.path("widgets", WIDGETS_GROUP)
    await make(http, path, widget("a"))

    code, status = await ask(
        http,
        "PATCH",
        f"{path}/a",
        {"apiVersion": "example.com/v1", "kind": "Widget", **body},
        content_type=APPLY,
        fieldManager="me",
    )

    what = f"failed to create typed patch object ({where}; example.com/v1, Kind=Widget)"
    assert (code, status["message"]) == (500, f"{what}: {why}")


async def test_apply_of_non_object_is_400(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = f"{target.path('configmaps')}/a"
    params = {"content_type": APPLY, "fieldManager": "me"}

    _, listed = await ask(http, "PATCH", path, [1], **params)
    _, typeless = await ask(http, "PATCH", path, {"kind": 1}, **params)

    assert listed["message"] == (
        "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: "
        "cannot unmarshal array into Go value of type map[string]interface {}"
    )
    assert typeless["message"] == "invalid object type: /, Kind="


async def test_create_with_version_is_rejected_before_name_conflict(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("a"))

    code, _ = await ask(
        http, "POST", path, named("a", metadata={"resourceVersion": "5"})
    )

    assert code == 500


async def test_some_kinds_accept_unqualified_finalizers(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    body = named("a", metadata={"finalizers": ["mine"]})
    leases = target.path("leases", "apis/coordination.k8s.io/v1")

    strict, _ = await ask(http, "POST", target.path("configmaps"), body, dryRun="All")
    lax, _ = await ask(http, "POST", leases, body, dryRun="All")

    assert (strict, lax) == (422, 201)


async def test_metadata_errors_of_update_are_repeated_like_real_server(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("services")
    await make(http, path, named("a", spec={"ports": [{"port": 1}]}))
    change = {"metadata": {"labels": {"a": "?"}, "uid": "x", "finalizers": ["mine"]}}

    _, status = await patch(http, f"{path}/a", change)

    fields = [it["field"] for it in status["details"]["causes"]]
    assert fields == [
        "metadata.labels",
        "metadata.uid",
        "metadata.labels",
        "metadata.uid",
        "metadata.labels",
        "metadata.finalizers[0]",
    ]


async def test_pod_status_update_ignores_deletion_fields(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("pods")
    pod = named("a", spec={"containers": [{"name": "x", "image": "i"}]})
    await make(http, path, pod)
    change = {"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}}

    code, found = await patch(http, f"{path}/a/status", change)

    assert code == 200
    assert "deletionTimestamp" not in found["metadata"]
