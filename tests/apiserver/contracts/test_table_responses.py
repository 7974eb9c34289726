"""Tables: included objects, responses to writes, watches, custom resources."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from api_calls import change, make, named, next_events, remove, watching
from custom_definitions import defined, definition, gadget, group_of, version
from format_calls import JSON, MERGE_PATCH, PARTIAL, TABLE, get, send

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest


def without_descriptions(table: dict[str, Any]) -> dict[str, Any]:
    columns = [{**it, "description": ""} for it in table["columnDefinitions"]]
    return {**table, "columnDefinitions": columns}


# -------------------------------------------------------------------- tables


async def test_table_of_one_object_has_its_version(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    made = await make(http, path, named("web", data={"a": "b"}))

    found = await get(http, f"{path}/web", TABLE)

    assert list(found) == [
        "kind",
        "apiVersion",
        "metadata",
        "columnDefinitions",
        "rows",
    ]
    version_ = made["metadata"]["resourceVersion"]
    assert found["metadata"] == {"resourceVersion": version_}
    (row,) = found["rows"]
    assert list(row) == ["cells", "object"]
    assert row["cells"][:2] == ["web", 1]
    assert row["object"]["metadata"] == made["metadata"]
    column = without_descriptions(found)["columnDefinitions"][0]
    assert list(column.items()) == [
        ("name", "Name"),
        ("type", "string"),
        ("format", "name"),
        ("description", ""),
        ("priority", 0),
    ]


@pytest.mark.parametrize("api", ["v1", "v1beta1"])
async def test_table_version_decides_version_of_metadata(
    api: str, target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("web"))

    found = await get(http, f"{path}/web", TABLE.replace("v=v1", f"v={api}"))

    assert found["apiVersion"] == f"meta.k8s.io/{api}"
    assert found["rows"][0]["object"]["apiVersion"] == f"meta.k8s.io/{api}"


@pytest.mark.parametrize(
    ("include", "kind"),
    [
        ("None", None),
        ("", "PartialObjectMetadata"),
        ("Metadata", "PartialObjectMetadata"),
        ("Object", "ConfigMap"),
    ],
)
async def test_table_rows_include_requested_object(
    include: str,
    kind: str | None,
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
) -> None:
    path = target.path("configmaps")
    made = await make(http, path, named("web", data={"a": "b"}))

    found = await get(http, f"{path}/web", TABLE, includeObject=include)

    shown = found["rows"][0]["object"]
    assert (shown and shown["kind"]) == kind
    if kind == "ConfigMap":
        assert shown == made


@pytest.mark.parametrize("params", [{}, {"watch": "1"}], ids=["list", "watch"])
async def test_unknown_include_object_is_400(
    params: dict[str, str], target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")

    code, _, text = await send(http, "GET", path, TABLE, includeObject="x", **params)

    assert code == 400
    assert json.loads(text)["message"] == (
        'Unable to convert to Table as requested: includeObject: Invalid value: "x": '
        "must be 'Metadata', 'Object', 'None', or empty"
    )


@pytest.mark.parametrize(("accept", "kind"), [(TABLE, "Table"), (PARTIAL, "Partial")])
async def test_write_returns_table_on_request(
    accept: str, kind: str, target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")

    made = await send(http, "POST", path, accept, named("web"))
    put = await send(http, "PUT", f"{path}/web", accept, named("web", data={"a": "b"}))
    patched = await send(
        http, "PATCH", f"{path}/web", accept, {"data": {"a": "c"}}, MERGE_PATCH
    )

    assert [it[0] for it in (made, put, patched)] == [201, 200, 200]
    for _, media, text in (made, put, patched):
        assert media == JSON
        assert json.loads(text)["kind"].startswith(kind)


async def test_table_of_dry_run_create_has_no_version(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")

    _, _, text = await send(http, "POST", path, TABLE, named("web"), dryRun="All")

    assert json.loads(text)["metadata"] == {}


async def test_deletecollection_returns_table_on_request(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    for name in ("web-1", "web-2"):
        await make(http, path, named(name, labels={"app": "web"}))

    _, _, text = await send(http, "DELETE", path, TABLE, labelSelector="app=web")

    rows = json.loads(text)["rows"]
    assert [row["cells"][0] for row in rows] == ["web-1", "web-2"]


async def test_table_watch_sends_columns_once(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    first = await make(http, path, named("first"))
    since = first["metadata"]["resourceVersion"]

    async with watching(http, path, accept=TABLE, resourceVersion=since) as answer:
        await make(http, path, named("web"))
        await change(http, f"{path}/web", {"data": {"a": "c"}})
        await remove(http, f"{path}/web")
        events = await next_events(answer, 3)

    assert [it["type"] for it in events] == ["ADDED", "MODIFIED", "DELETED"]
    shown = [it["object"] for it in events]
    assert [it["columnDefinitions"] is None for it in shown] == [False, True, True]
    assert [it["rows"][0]["cells"][:2] for it in shown] == [
        ["web", 0],
        ["web", 1],
        ["web", 1],
    ]
    for it in shown:
        inner = it["rows"][0]["object"]["metadata"]
        assert it["metadata"] == {"resourceVersion": inner["resourceVersion"]}


# -------------------------------------------------------------------- custom resources


def column(name: str, kind: str, path: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path, **more}


COLUMNS = [
    column("Size", "integer", ".spec.size", description="How big.", priority=1),
    column("Ready", "string", '.status.conditions[?(@.type=="Ready")].status'),
    column("First", "string", ".spec.list[0].name"),
    column("Label", "string", r".metadata.labels.example\.com/app"),
    column("Since", "date", ".spec.since"),
    column("Ratio", "number", ".spec.ratio"),
    column("On", "boolean", ".spec.on"),
    column("Whole", "string", ".spec.list"),
    column("Wrong", "integer", ".spec.list"),
    column("Index", "string", ".spec.size[0]"),
]


async def test_table_columns_of_custom_resource_come_from_definition(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    group = group_of(target)
    spec = {
        "size": 3,
        "list": [{"name": "a"}],
        "since": "2016-01-01T00:00:00Z",
        "ratio": 1.5,
        "on": True,
    }
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    labels = {"labels": {"example.com/app": "web"}}
    versions = [version(additionalPrinterColumns=COLUMNS)]

    async with defined(http, definition(group, versions=versions)):
        path = target.path("gadgets", f"apis/{group}/v1")
        full = gadget(group, "full", metadata=labels, spec=spec, status=status)
        await make(http, path, full)
        await make(http, path, gadget(group, "bare", spec={"on": "yes", "since": "x"}))
        found = await get(http, path, TABLE)

    names = [
        (it["name"], it["type"], it["priority"]) for it in found["columnDefinitions"]
    ]
    assert names[:2] == [("Name", "string", 0), ("Size", "integer", 1)]
    assert found["columnDefinitions"][1]["description"] == "How big."
    bare, whole = (row["cells"] for row in found["rows"])
    assert whole[:5] == ["full", 3, "True", "a", "web"]
    assert whole[6:] == [1.5, True, '[{"name":"a"}]', None, None]
    nothing = [None] * 4
    assert bare == ["bare", *nothing, "<invalid>", None, None, None, None, None]


async def test_table_of_custom_resource_without_columns_shows_age(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    group = group_of(target)
    async with defined(http, definition(group)):
        path = target.path("gadgets", f"apis/{group}/v1")
        await make(http, path, gadget(group, "web"))
        found = await get(http, path, TABLE)

    reported = [(it["name"], it["type"]) for it in found["columnDefinitions"]]
    assert reported == [("Name", "string"), ("Age", "date")]
    assert found["rows"][0]["cells"][0] == "web"
