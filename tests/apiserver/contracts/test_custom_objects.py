"""Custom resources: versions, subresources, and schemas of their definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from api_calls import ask, next_events, patch, types_and_names
from custom_definitions import (
    SCALE,
    defined,
    definition,
    gadget,
    group_of,
    status_of,
    version,
)

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest


async def test_all_served_versions_show_same_objects(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    group = group_of(target)
    body = definition(group, versions=[version(), version("v1beta1")])
    old = target.path("gadgets", f"apis/{group}/v1beta1")
    new = target.path("gadgets", f"apis/{group}/v1")

    async with defined(http, body):
        sent = gadget(group, "a", "v1beta1", spec={"size": 1})
        _, made = await ask(http, "POST", old, sent)
        _, found = await ask(http, "GET", f"{new}/a")
        _, listed = await ask(http, "GET", new)
        code, refused = await ask(http, "POST", new, sent)

    assert made["apiVersion"] == f"{group}/v1beta1"
    assert found == {**made, "apiVersion": f"{group}/v1"}
    assert listed["apiVersion"] == f"{group}/v1"
    assert listed["items"] == [found]
    assert code == 400
    assert refused["message"] == (
        f"the API version in the data ({group}/v1beta1) does not match "
        f"the expected API version ({group}/v1)"
    )


async def test_watch_shows_writes_in_other_version(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    group = group_of(target)
    body = definition(group, versions=[version(), version("v1beta1")])
    old = target.path("gadgets", f"apis/{group}/v1beta1")
    new = target.path("gadgets", f"apis/{group}/v1")

    async with defined(http, body), http.get(old, params={"watch": "1"}) as answer:
        await ask(http, "POST", new, gadget(group, "a"))
        await patch(http, f"{new}/a", {"spec": {"size": 2}})
        await ask(http, "DELETE", f"{new}/a")
        events = await next_events(answer, 3)

    assert types_and_names(events) == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
    ]
    assert {it["object"]["apiVersion"] for it in events} == {f"{group}/v1beta1"}


async def test_write_drops_fields_unknown_to_storage_version(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    group = group_of(target)
    colored = {"color": {"type": "string", "default": "red"}}
    spec = {"type": "object", "properties": colored}
    schema = {"type": "object", "properties": {"spec": spec}}
    body = definition(group, versions=[version(schema=schema), version("v1beta1")])
    old = target.path("gadgets", f"apis/{group}/v1beta1")

    async with defined(http, body):
        sent = gadget(group, "a", "v1beta1", spec={"size": 1})
        _, made = await ask(http, "POST", old, sent)

    assert made["spec"] == {"color": "red"}


async def test_deprecated_version_warns_client(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    group = group_of(target)
    versions = [
        version(),
        version("v1beta1", deprecated=True, deprecationWarning="use v1"),
        version("v1alpha1", deprecated=True),
    ]
    warnings = []
    path = ""

    async with defined(http, definition(group, versions=versions)):
        for name in ("v1", "v1beta1", "v1alpha1"):
            path = target.path("gadgets", f"apis/{group}/{name}")
            async with http.get(path) as answer:
                warnings.append(answer.headers.getall("Warning", []))

        params = {"watch": "1", "timeoutSeconds": "1"}
        async with http.get(path, params=params) as answer:
            warnings.append(answer.headers.getall("Warning", []))

    usual = f"{group}/v1alpha1 Gadget is deprecated; use {group}/v1 Gadget"
    assert warnings == [
        [],
        ['299 - "use v1"'],
        [f'299 - "{usual}"'],
        [f'299 - "{usual}"'],
    ]


async def test_unserved_version_is_404(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    group = group_of(target)
    kept = {**version("v2"), "storage": True, "served": False}
    shown = {**version("v1"), "storage": False}

    async with defined(http, definition(group, versions=[kept, shown])):
        new = target.path("gadgets", f"apis/{group}/v1")
        code, _ = await ask(http, "POST", new, gadget(group, "a"))
        found = await status_of(http, f"/apis/{group}/v2/gadgets")

    assert (code, found) == (201, 404)


async def test_field_selector_uses_selectable_fields_of_version(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    group = group_of(target)
    fields = {"size": {"type": "integer"}, "open": {"type": "boolean"}}
    spec = {"type": "object", "properties": fields}
    schema = {"type": "object", "properties": {"spec": spec}}
    paths = [{"jsonPath": ".spec.size"}, {"jsonPath": ".spec.open"}]
    selectable = version(schema=schema, selectableFields=paths)
    body = definition(group, versions=[selectable, version("v1beta1")])
    path = target.path("gadgets", f"apis/{group}/v1")
    found = {}

    async with defined(http, body):
        await ask(http, "POST", path, gadget(group, "a", spec={}))
        await ask(
            http, "POST", path, gadget(group, "b", spec={"size": 3, "open": True})
        )
        for selector in ("spec.size=", "spec.size=3", "spec.open=true", "spec.size=0"):
            _, listed = await ask(http, "GET", path, fieldSelector=selector)
            found[selector] = [it["metadata"]["name"] for it in listed["items"]]

        code, refused = await ask(
            http,
            "GET",
            target.path("gadgets", f"apis/{group}/v1beta1"),
            fieldSelector="spec.size=3",
        )

    assert found == {
        "spec.size=": ["a"],
        "spec.size=3": ["b"],
        "spec.open=true": ["b"],
        "spec.size=0": [],
    }
    assert (code, refused["message"]) == (400, "field label not supported: spec.size")


async def test_subresources_differ_by_version(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    group = group_of(target)
    whole = version(subresources={"status": {}, "scale": SCALE})
    body = definition(group, versions=[whole, version("v1beta1")])
    new = target.path("gadgets", f"apis/{group}/v1")
    old = target.path("gadgets", f"apis/{group}/v1beta1")

    async with defined(http, body):
        sent = gadget(group, "a", spec={"replicas": 2}, status={"replicas": 1})
        _, made = await ask(http, "POST", new, sent)
        codes = [
            await status_of(http, f"{path}/a/{name}")
            for path in (new, old)
            for name in ("status", "scale")
        ]

    assert "status" not in made
    assert codes == [200, 200, 404, 404]


async def test_status_without_subresource_is_ordinary_field(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    group = group_of(target)
    path = target.path("gadgets", f"apis/{group}/v1")
    async with defined(http, definition(group)):
        _, made = await ask(http, "POST", path, gadget(group, "a", status={"x": 1}))
        _, answer = await patch(http, f"{path}/a", {"status": {"x": 2}})

    assert made["status"] == {"x": 1}
    assert answer["status"] == {"x": 2}
    assert answer["metadata"]["generation"] == 2


async def test_list_kind_comes_from_definition(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    group = group_of(target)
    body = definition(group, names={"listKind": "Heap"}, scope="Cluster")
    async with defined(http, body):
        _, listed = await ask(http, "GET", f"/apis/{group}/v1/gadgets")

    assert (listed["kind"], listed["items"]) == ("Heap", [])


async def test_schema_prunes_defaults_and_validates(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    group = group_of(target)
    fields = {"color": {"type": "string", "default": "red"}, "n": {"type": "integer"}}
    spec = {"type": "object", "required": ["n"], "properties": fields}
    schema = {"type": "object", "properties": {"spec": spec}}
    path = target.path("gadgets", f"apis/{group}/v1")

    async with defined(http, definition(group, versions=[version(schema=schema)])):
        sent = gadget(group, "a", spec={"n": 1, "z": 2})
        _, made = await ask(http, "POST", path, sent)
        code, refused = await ask(http, "POST", path, gadget(group, "b", spec={}))

    assert made["spec"] == {"n": 1, "color": "red"}
    assert (code, refused["message"]) == (
        422,
        f'Gadget.{group} "b" is invalid: spec.n: Required value',
    )
