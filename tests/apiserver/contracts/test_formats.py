"""Formats of responses: JSON, YAML, tables, partial metadata."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml
from api_calls import change, make, named, next_events, remove, watching
from each_case import each_case
from format_calls import AS, JSON, PARTIAL, PARTIALS, TABLE, YAML, get, send

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest

TYPES = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
STREAMS = (
    "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
)
ONLY = "only the following media types are accepted: "
OFFER = "406: Not Acceptable\n\nAvailable representations: "


@pytest.fixture
async def web(target: ServerUnderTest, http: aiohttp.ClientSession) -> str:
    """Create an object, and return its path."""
    path = target.path("configmaps")
    await make(http, path, named("web", data={"a": "<é>"}))
    return f"{path}/web"


# -------------------------------------------------------------------- negotiation


@each_case(
    "accept, media",
    [
        ("*/*", JSON),
        ("text/html,application/json;q=0", JSON),
        ("application/*,application/json", JSON),
        ("application/json; charset=utf-8", JSON),
        ("application/json;stream=watch", JSON),
        ("application/yaml,application/json", YAML),
        ("application/json;q=0.1,application/yaml;q=0.9", YAML),
        ("application/json;q=x,application/yaml;q=0.1", YAML),
        (f"{AS}Other,application/json", JSON),
        (f"{TABLE};q=0.5,application/yaml;q=0.6", YAML),
        (TABLE.replace("json", "yaml"), YAML),
        ("application/json;drop=metadata.managedFields,application/yaml", JSON),
        ("application/json;drop=spec,application/yaml", JSON),
    ],
)
async def test_first_supported_accept_type_is_used(
    accept: str, media: str, web: str, http: aiohttp.ClientSession
) -> None:
    for place in (web, web.removesuffix("/web")):
        code, found, text = await send(http, "GET", place, accept)
        assert (code, found) == (200, media), text


@each_case(
    "accept, message",
    [
        ("text/html", f"{OFFER}{TYPES}"),
        ("text/*", f"{OFFER}{TYPES}"),
        ("application/*", f"{OFFER}{TYPES}"),
        ("*/json", f"{OFFER}{TYPES}"),
        ("application/cbor", f"{OFFER}{TYPES}"),
        (AS + "Other", f"{ONLY}{TYPES}"),
        (AS + "table", f"{ONLY}{TYPES}"),
        (TABLE.replace("v1", "v2"), f"{ONLY}{TYPES}"),
        (TABLE.replace("meta.k8s.io", "meta"), f"{ONLY}{TYPES}"),
        ("application/json;as=Table", f"{ONLY}{TYPES}"),
        ("application/json;v=v1", f"{ONLY}{TYPES}"),
        ("application/json;stream=other", f"{ONLY}{TYPES}"),
        ("application/yaml;stream=watch", f"{ONLY}{TYPES}"),
    ],
)
async def test_unsupported_accept_type_is_406(
    accept: str, message: str, web: str, http: aiohttp.ClientSession
) -> None:
    code, media, text = await send(http, "GET", web, accept)

    refusal = json.loads(text)
    assert (code, media, refusal["reason"]) == (406, JSON, "NotAcceptable")
    assert refusal["message"] == message
    assert ("details" in refusal) is message.startswith(OFFER)


async def test_drop_is_ignored_without_its_gate(
    web: str, http: aiohttp.ClientSession
) -> None:
    for accept in (JSON, PARTIAL):
        full = await get(http, web, accept)
        assert full["metadata"]["managedFields"]
        for more in (";drop=metadata.managedFields", ";drop=spec", ";drop="):
            assert await get(http, web, accept + more) == full


async def test_not_acceptable_error_lists_stream_types_of_watchable_paths(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")

    _, _, text = await send(http, "GET", path, "text/html")
    assert json.loads(text)["message"] == f"{OFFER}{TYPES}, {STREAMS}"

    _, _, text = await send(http, "POST", path, "text/html", named("web"))
    assert json.loads(text)["message"] == f"{OFFER}{TYPES}"


async def test_yaml_watch_is_406(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")

    code, media, text = await send(http, "GET", path, YAML, watch="1")

    assert (code, media) == (406, YAML)
    assert yaml.safe_load(text)["message"] == f"{ONLY}{STREAMS}"


async def test_yaml_response_equals_json_response(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    data = {"a": "y", "b": "12", "c": "line\nline\n", "d": "1e3", "e": "true", "f": ""}
    made = await make(http, path, named("web", data=data))

    _, _, text = await send(http, "GET", f"{path}/web", YAML)
    assert yaml.safe_load(text) == made
    assert 'a: "y"' in text
    assert "c: |\n    line\n    line\n" in text

    _, _, text = await send(http, "GET", path, YAML, fieldSelector="metadata.name=web")
    found = yaml.safe_load(text)
    assert found["kind"] == "ConfigMapList"
    assert [it["data"] for it in found["items"]] == [data]


@each_case(
    "headers, params, indented",
    [
        ({}, {}, False),
        ({}, {"pretty": "true"}, True),
        ({}, {"pretty": "0"}, False),
        ({"User-Agent": "curl/8.1"}, {}, True),
        ({"User-Agent": "curl/8.1"}, {"pretty": "false"}, False),
        ({"User-Agent": "kubectl/v1.36"}, {}, False),
        ({"Accept": "application/json;pretty=1"}, {}, True),
        ({"Accept": "application/json;pretty=1"}, {"pretty": "0"}, True),
    ],
)
async def test_json_is_indented_on_request(
    headers: dict[str, str],
    params: dict[str, str],
    *,
    indented: bool,
    web: str,
    http: aiohttp.ClientSession,
) -> None:
    path = web.removesuffix("/web")

    for place in (web, path, f"{path}/missing"):
        _, _, text = await send(
            http, "GET", place, headers.get("Accept", JSON), None, headers, **params
        )
        again = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        again = again.replace("<", r"\u003c").replace(">", r"\u003e")
        assert (text == again) is indented
        assert text.endswith("}\n") is not indented


# -------------------------------------------------------------------- statuses


@each_case(
    "accept, media, indented",
    [
        (JSON, JSON, False),
        (f"{TABLE},application/json", JSON, False),
        (TABLE, JSON, True),
        (PARTIAL, JSON, True),
        ("application/json;stream=watch", JSON, False),
        (YAML, YAML, False),
    ],
)
async def test_error_is_never_a_table(
    accept: str,
    media: str,
    *,
    indented: bool,
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
) -> None:
    path = target.path("configmaps") + "/missing"

    code, found, text = await send(http, "GET", path, accept)

    assert (code, found) == (404, media)
    status = yaml.safe_load(text) if media == YAML else json.loads(text)
    assert (status["kind"], status["code"]) == ("Status", 404)
    assert text.startswith("{\n") is indented


async def test_delete_status_is_never_a_table(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("web"))

    _, _, text = await send(http, "DELETE", f"{path}/web", TABLE)

    assert '"kind":"Status"' in text or '"kind": "Status"' in text
    assert json.loads(text)["status"] == "Success"


# -------------------------------------------------------------------- metadata


async def test_partial_metadata_has_metadata_of_object_in_order(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    metadata = {"annotations": {"b": "2", "a": "<"}}
    made = await make(http, path, named("web", metadata=metadata, data={"a": "b"}))

    _, _, text = await send(http, "GET", f"{path}/web", PARTIAL)

    head = '{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":'
    assert text.startswith(head)
    assert json.loads(text)["metadata"] == made["metadata"]
    assert list(json.loads(text)["metadata"]) == list(made["metadata"])
    assert '"annotations":{"a":"\\u003c","b":"2"}' in text


async def test_partial_metadata_list_has_type_on_items(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    for name in ("web-1", "web-2"):
        await make(http, path, named(name, labels={"app": "web"}))

    found = await get(http, path, PARTIALS, labelSelector="app=web", limit="1")

    assert list(found) == ["kind", "apiVersion", "metadata", "items"]
    assert found["kind"] == "PartialObjectMetadataList"
    assert "continue" in found["metadata"]
    (item,) = found["items"]
    assert list(item) == ["kind", "apiVersion", "metadata"]
    assert item["apiVersion"] == "meta.k8s.io/v1"
    assert item["metadata"]["name"] == "web-1"


async def test_empty_partial_metadata_list_has_null_items(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")

    found = await get(http, path, PARTIALS, labelSelector="no=body")

    assert found["items"] is None


@pytest.mark.parametrize(
    ("accept", "is_list", "problem"),
    [
        (PARTIAL, True, "a list (*core.ConfigMapList)"),
        (PARTIALS, False, "not a list (*core.ConfigMap)"),
    ],
)
async def test_partial_metadata_list_requires_list_kind(
    accept: str,
    problem: str,
    *,
    is_list: bool,
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("web"))

    place = path if is_list else f"{path}/web"
    code, _, text = await send(http, "GET", place, accept)

    requested = accept.removeprefix(AS)
    message = f"you requested {requested}, but the requested object is {problem}"
    assert (code, json.loads(text)["message"]) == (406, message)


async def test_partial_metadata_watch_sends_all_events(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    first = await make(http, path, named("first"))
    since = first["metadata"]["resourceVersion"]

    async with watching(http, path, accept=PARTIAL, resourceVersion=since) as answer:
        await make(http, path, named("web", data={"a": "b"}))
        await change(http, f"{path}/web", {"data": {"a": "c"}})
        await remove(http, f"{path}/web")
        events = await next_events(answer, 3)

    assert [it["type"] for it in events] == ["ADDED", "MODIFIED", "DELETED"]
    shown = [it["object"] for it in events]
    assert {tuple(it) for it in shown} == {("kind", "apiVersion", "metadata")}
    seen = [int(it["metadata"]["resourceVersion"]) for it in shown]
    assert seen == sorted(set(seen))


async def test_partial_metadata_of_custom_resource_has_typed_order(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("widgets", "apis/example.com/v1")
    body = named("web", labels={"b": "2", "a": "1"})
    body |= {"apiVersion": "example.com/v1", "kind": "Widget"}
    await make(http, path, body)

    found = await get(http, f"{path}/web", PARTIAL)

    assert list(found["metadata"])[:7] == [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "labels",
    ]


async def test_wildcard_accept_works_for_custom_resources(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("widgets", "apis/example.com/v1")

    code, media, _ = await send(http, "GET", path, "application/*")
    assert (code, media) == (200, JSON)

    code, _, text = await send(http, "GET", path, "text/html")
    assert (code, json.loads(text)["message"]) == (406, f"{ONLY}{TYPES}")
