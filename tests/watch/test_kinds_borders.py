"""Lists of built-in kinds are split without a proof."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from conftest import pod
from each_case import each_case
from hypothesis import given, settings
from hypothesis import strategies as st
from json_helpers import HARD_TEXTS, STYLES, pieces_of, texts, written

from aioinformer.errors import DecodeError
from aioinformer.model.resource import Resource
from aioinformer.model.resources import DEPLOYMENTS, PODS, STATEFUL_SETS
from aioinformer.watch.decoding import ListSplitter, ObjectDecoder
from aioinformer.watch.kinds import has_sure_borders
from aioinformer_apiserver.schema.openapi_schema import definitions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer.model.objects import KubeObject

WIDGETS = Resource("example.com", "v1", "widgets", "Widget")


# ---------------------------------------------------------------- which kinds

FIELDS = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"
"""The only field of any type. Servers rewrite it for users, without arrays."""


def look_alikes(schema: Any, path: str, *, within: frozenset[str]) -> Iterator[str]:
    """Yield the paths of arrays whose items may start with metadata."""
    for part in schema.get("allOf", ()):
        yield from look_alikes(part, path, within=within)

    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        if name != FIELDS and name not in within:
            yield from look_alikes(definitions()[name], path, within=within | {name})

        return

    items = schema.get("items")
    if items and "metadata" in fields_of(items):
        yield f"{path}[].metadata"

    free = not {"allOf", "oneOf", "properties", "additionalProperties"} & set(schema)
    if free and schema.get("type", "object") == "object":
        yield path

    inner = {"[]": items, ".*": schema.get("additionalProperties")}
    inner |= {f".{key}": it for key, it in schema.get("properties", {}).items()}
    for step, part in inner.items():
        if part:
            yield from look_alikes(part, path + step, within=within)


def fields_of(schema: Any) -> set[str]:
    found = set(schema.get("properties", ()))
    if schema.get("type") == "object" and "additionalProperties" in schema:
        found.add("metadata")  # any key at all

    for part in schema.get("allOf", ()):
        found |= fields_of(part)

    if reference := schema.get("$ref"):
        found |= fields_of(definitions()[reference.rpartition("/")[2]])

    return found


def listed_kinds() -> dict[tuple[str, str], Any]:
    """Return all kinds that have lists, by API version and kind."""
    found = {}
    for schema in definitions().values():
        for it in schema.get("x-kubernetes-group-version-kind", ()):
            group = f"{it['group']}/" if it["group"] else ""
            found[group + it["version"], it["kind"]] = schema

    return {
        (version, kind): schema
        for (version, kind), schema in found.items()
        if (version, f"{kind}List") in found
    }


def test_kinds_with_sure_borders_contain_no_objects_with_metadata() -> None:
    """Checked against the schemas of a real server."""
    places = {
        which: sorted(set(look_alikes(schema, which[1], within=frozenset())))
        for which, schema in listed_kinds().items()
    }

    assert {which for which in places if has_sure_borders(*which)} == {
        which for which, found in places.items() if not found
    }

    assert places["apps/v1", "StatefulSet"] == [
        "StatefulSet.spec.volumeClaimTemplates[].metadata"
    ]
    free = places["apiextensions.k8s.io/v1", "CustomResourceDefinition"]
    assert any(path.endswith(".default") for path in free)


@each_case(
    "which",
    [("example.com/v1", "Pod"), ("v2", "Pod"), ("v1", "Widget"), ("", "Pod"), ("", "")],
)
def test_custom_resources_have_no_sure_borders(which: tuple[str, str]) -> None:
    assert not has_sure_borders(*which)


# ---------------------------------------------------------------- cutting


def list_of(items: list[Any], resource: Resource = PODS) -> bytes:
    """Return a list as servers write it, without types of built-in items."""
    head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version}
    return written({**head, "metadata": {"resourceVersion": "7"}, "items": items})


def untyped(body: dict[str, Any]) -> dict[str, Any]:
    return {key: it for key, it in body.items() if key not in {"apiVersion", "kind"}}


def long_start(count: int = 16) -> list[dict[str, Any]]:
    """Return more items than are proved in each list."""
    filling = {"annotations": {"text": "x" * 6_000}}
    return [untyped(pod(f"first-{n}", metadata=filling)) for n in range(count)]


def objects_in(
    body: bytes, size: int = 16 * 1024, resource: Resource = PODS
) -> list[KubeObject]:
    splitter = ListSplitter(ObjectDecoder(resource))
    found = [it for piece in pieces_of(body, size) for it in splitter.feed(piece)]
    found += splitter.finish()
    assert splitter.skipped == 0
    assert splitter.resource_version == "7"
    return found


def whole(body: bytes, resource: Resource = PODS) -> list[Any]:
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    return [{**kind, **item} for item in json.loads(body)["items"]]


CLAIM = {"metadata": {"name": "claim", "labels": {"a": "b"}}, "spec": {}}


def confusing(number: int) -> dict[str, Any]:
    """Return a pod with texts that look like borders, and with nested metadata."""
    text = HARD_TEXTS[number % len(HARD_TEXTS)]
    return untyped(
        pod(
            f"web-{number}",
            labels={"n": str(number)},
            metadata={
                "annotations": {
                    text: text * 2,
                    'a"metadata': '},{"metadata":{"name":"forged"}}',
                    "last": written(list_of_pods()).decode(),
                },
                "managedFields": [
                    {"fieldsV1": {"f:metadata": {'f:},{"metadata': {}, ".": {}}}},
                    {"fieldsV1": {"f:spec": {}}},
                ],
            },
            spec={"volumes": [{"ephemeral": {"volumeClaimTemplate": CLAIM}}] * 2},
        )
    )


def list_of_pods() -> dict[str, Any]:
    return {"kind": "PodList", "items": [{"metadata": {"name": "forged"}}] * 2}


@pytest.mark.parametrize("size", [1_000, 8_192, 70_000, 1_000_000])
def test_text_like_a_border_does_not_split_items(size: int) -> None:
    items = [*long_start(), *map(confusing, range(40)), *long_start(2)]
    body = list_of(items)

    assert [it.to_dict() for it in objects_in(body, size)] == whole(body)


@given(
    found=st.lists(st.dictionaries(texts, texts, max_size=3), max_size=5),
    sizes=st.lists(st.integers(1, 20_000), min_size=1, max_size=10),
)
@settings(max_examples=30)
def test_long_list_is_read_for_any_split(
    found: list[dict[str, str]], sizes: list[int]
) -> None:
    items = [
        untyped(pod(f"p-{n}", metadata={"annotations": it}, spec={"a": it}))
        for n, it in enumerate(found)
    ]
    body = list_of([*long_start(), *items, *long_start(1), *items])
    at, splitter, objects = 0, ListSplitter(ObjectDecoder(PODS)), []
    while at < len(body):
        size = sizes[at % len(sizes)]
        objects += splitter.feed(body[at : at + size])
        at += size

    objects += splitter.finish()
    assert [it.to_dict() for it in objects] == whole(body)


@pytest.mark.parametrize("resource", [DEPLOYMENTS, STATEFUL_SETS, WIDGETS], ids=str)
def test_templates_and_claims_are_not_split_as_items(resource: Resource) -> None:
    """Claims start like items, so users could add objects to a cache otherwise."""
    claims = [] if resource is DEPLOYMENTS else [{"x": {}}, CLAIM, CLAIM]
    spec = {"template": {"metadata": {}, "spec": {}}, "volumeClaimTemplates": claims}
    body = list_of(
        long_start() + [{**it, "spec": spec} for it in long_start()], resource
    )

    found = objects_in(body, resource=resource)

    assert [it.to_dict() for it in found] == whole(body, resource)


@each_case("style", STYLES)
@each_case("colon", [":", ": ", " :"])
def test_list_in_other_style_is_proved(style: str, colon: str) -> None:
    found = json.loads(list_of([*long_start(), *map(confusing, range(10))]))
    options = STYLES[style] | {"separators": (",", colon)}
    body = json.dumps(found, **options).encode()

    assert [it.to_dict() for it in objects_in(body)] == whole(body)


def test_item_that_starts_differently_is_found() -> None:
    """A list that mixes styles is proved as a whole."""
    typed = [pod("a"), pod("b")]
    swapped = [dict(reversed(it.items())) for it in typed]
    body = list_of([*long_start(), *typed, *long_start(2), *swapped, *long_start(2)])

    assert [it.to_dict() for it in objects_in(body)] == whole(body)


# ---------------------------------------------------------------- what is no JSON


def test_malformed_body_raises_when_read() -> None:
    """As in a watch, other objects are not affected."""
    spec = {"nodeName": "nothing", "template": {"metadata": {"name": "inner"}}}
    bad = untyped(pod("bad", metadata={"managedFields": []}, spec=spec))
    body = list_of([*long_start(), bad, *long_start(3)])

    found = objects_in(body.replace(b'"nothing"', b"nothing"))

    assert len(found) == 20
    with pytest.raises(DecodeError):
        found[16].to_dict()

    assert [it.to_dict() for it in found[:16]] == whole(body)[:16]


@pytest.mark.parametrize("place", [0, 1, 9])
def test_malformed_start_of_list_raises(place: int) -> None:
    items = long_start()
    items[place]["spec"] = {"nodeName": "nothing"}
    body = list_of(items).replace(b'"nothing"', b"nothing")

    with pytest.raises(DecodeError, match=r"list items|a list"):
        objects_in(body)


def test_malformed_metadata_fails_list() -> None:
    items = [*long_start(), untyped(pod("bad")), *long_start(3)]
    body = list_of(items).replace(b'"bad"', b"bad")

    with pytest.raises(DecodeError, match="cannot read list items"):
        objects_in(body)


def test_metadata_of_wrong_shape_is_skipped_and_reported() -> None:
    bad = untyped(pod("bad", metadata={"labels": {"a": {"b": "c"}}}))
    splitter = ListSplitter(ObjectDecoder(PODS))

    found = splitter.feed(list_of([*long_start(), bad, *long_start(3)]))

    assert len(found) == 18  # the last one comes at the end
    assert splitter.skipped == 1
    assert splitter.unreadable == ["default/bad"]
