"""Structured merge diff: comparison, field sets of bodies, merging, validation."""

from __future__ import annotations

from typing import Any

import pytest
from each_case import each_case
from hypothesis import given
from hypothesis import strategies as st
from managed_fields_helpers import DEPLOYS, GADGETS, deployment, fields, gadget

from aioinformer_apiserver.patches.field_sets import EMPTY
from aioinformer_apiserver.patches.ownership import (
    empty_object_of,
    is_json_equal,
    list_element_of,
    schema_of_object,
)
from aioinformer_apiserver.patches.structured_merge_diff import (
    apply_errors,
    compare,
    field_set_of,
    merge_order,
    remove_items,
)
from aioinformer_apiserver.schema import Schema

TCP = 'k:{"port":80,"protocol":"TCP"}'


UDP = 'k:{"port":80,"protocol":"UDP"}'


def differing(old: dict[str, Any], new: dict[str, Any]) -> dict[str, set[str]]:
    """Compare two specs of a gadget."""
    found = compare(GADGETS, gadget(**old), gadget(**new))
    parts = {"-": found.removed, "~": found.modified, "+": found.added}
    return {
        sign: {
            "/".join(it.removeprefix("f:") for it in path[1:]) for path in part.paths()
        }
        for sign, part in parts.items()
        if part
    }


@each_case("old, new, expected", [
        pytest.param({"size": 1}, {"size": 1}, {}, id="nothing"),
        pytest.param({"size": 1}, {"size": 2}, {"~": {"size"}}, id="a scalar"),
        pytest.param({"size": 1}, {}, {"-": {"size"}}, id="a scalar removed"),
        pytest.param(
            {}, {"labels": {"a": "1"}}, {"+": {"labels", "labels/a"}}, id="a map added"
        ),
        pytest.param(
            {"labels": {"a": "1"}},
            {"labels": {"b": "1"}},
            {"-": {"labels/a"}, "+": {"labels/b"}},
            id="keys of a map",
        ),
        pytest.param({}, {"labels": {}}, {"+": {"labels"}}, id="an empty map"),
        pytest.param(
            {"labels": {}}, {"labels": {"a": "1"}}, {"+": {"labels/a"}}, id="filled"
        ),
        pytest.param(
            {"labels": {"a": "1"}},
            {"labels": None},
            {"-": {"labels/a"}},
            id="a map nulled",
        ),
        pytest.param(
            {"labels": {}}, {"labels": None}, {"~": {"labels"}}, id="empty and null"
        ),
        pytest.param(
            {"whole": {"a": "1"}}, {"whole": {"b": "1"}}, {"~": {"whole"}}, id="atomic"
        ),
        pytest.param(
            {"list": ["a"]}, {"list": ["a", "b"]}, {"~": {"list"}}, id="atomic list"
        ),
        pytest.param(
            {"tags": ["a", "b"]},
            {"tags": ["b", "c"]},
            {"-": {'tags/v:"a"'}, "+": {'tags/v:"c"'}},
            id="a set",
        ),
        pytest.param({"tags": ["a", "b"]}, {"tags": ["b", "a"]}, {}, id="its order"),
        pytest.param(
            {"ports": [{"port": 80}]},
            {"ports": [{"port": 80, "protocol": "TCP", "name": "x"}]},
            {"+": {f"ports/{TCP}/name", f"ports/{TCP}/protocol"}},
            id="an item by its keys and their defaults",
        ),
        pytest.param(
            {"ports": [{"port": 80}]},
            {"ports": [{"port": 80, "protocol": "UDP"}]},
            {
                "-": {f"ports/{TCP}", f"ports/{TCP}/port"},
                "+": {f"ports/{UDP}", f"ports/{UDP}/port", f"ports/{UDP}/protocol"},
            },
            id="another item",
        ),
        pytest.param(
            {"ports": [{"port": 80, "name": "a"}]},
            {"ports": [{"port": 80, "name": "b"}, {"port": 80, "name": "c"}]},
            {
                "-": {f"ports/{TCP}", f"ports/{TCP}/name", f"ports/{TCP}/port"},
                "+": {f"ports/{TCP}"},
            },
            id="an item that comes twice",
        ),
        pytest.param(
            {"tags": ["a", "a"]},
            {"tags": ["a"]},
            {"-": {'tags/v:"a"'}, "+": {'tags/v:"a"'}},
            id="a value that came twice",
        ),
        pytest.param(
            {"ports": [{"port": 80, "name": "a"}] * 2},
            {"ports": [{"port": 80, "name": "b"}] * 2},
            {"~": {f"ports/{TCP}"}},
            id="items twice on both sides",
        ),
        pytest.param(
            {"tags": ["a", "a"]}, {"tags": ["a", "a", "b"]}, {"+": {'tags/v:"b"'}},
            id="a value twice on both sides",
        ),
        pytest.param(
            {"any": {"a": 1}},
            {"any": [1]},
            {"-": {"any/a"}, "~": {"any"}},
            id="an object that becomes a list",
        ),
        pytest.param(
            {"any": 1}, {"any": {"a": {}}}, {"~": {"any"}, "+": {"any/a"}},
            id="a scalar that becomes an object",
        ),
        pytest.param({"any": {}}, {"any": [1]}, {"~": {"any"}}, id="an empty object"),
        pytest.param(
            {"any": {"a": 1}}, {"any": {"a": True}}, {"~": {"any/a"}}, id="1 inside"
        ),
        pytest.param({"any": [1]}, {"any": [True]}, {"~": {"any"}}, id="1 in a list"),
        pytest.param({"any": 1}, {"any": 1.0}, {}, id="numbers by value"),
        pytest.param(
            {"free": {"a": {}}}, {"free": {"a": None}}, {"~": {"free/a"}}, id="a null"
        ),
    ])  # fmt: skip
def test_compare_finds_differences(
    old: dict[str, Any], new: dict[str, Any], expected: dict[str, set[str]]
) -> None:
    assert differing(old, new) == expected


def test_gained_fields_are_added_or_modified() -> None:
    found = compare(GADGETS, gadget(size=1, on=True), gadget(size=2, list=[]))

    assert found.gained == fields("spec/size", "spec/list")
    assert found.outside(fields("spec")).gained == EMPTY
    assert found.outside(EMPTY) is found


def test_new_builtin_object_is_compared_with_empty_struct() -> None:
    new = deployment({"name": "web"}, strategy={"rollingUpdate": {"maxSurge": 1}})

    added = compare(DEPLOYS, empty_object_of(DEPLOYS), new).gained

    assert fields("spec", "spec/strategy", "spec/template") & added == EMPTY
    assert fields("spec/strategy/rollingUpdate") & added
    assert fields('spec/template/spec/containers/k:{"name":"web"}') & added
    assert fields("spec/template/spec/containers") & added == EMPTY
    assert fields("spec/selector") & added


def test_new_custom_object_is_compared_with_nothing() -> None:
    assert empty_object_of(GADGETS) == {}
    assert fields("spec") & compare(GADGETS, {}, gadget(size=1)).added


def test_metadata_has_schema_without_schema_of_kind() -> None:
    old = {"metadata": {"finalizers": ["a"]}, "spec": {"list": [{"name": "x"}]}}
    new = {"metadata": {"finalizers": ["a", "b"]}, "spec": {"list": [{"name": "y"}]}}

    found = compare(schema_of_object(None), old, new)

    assert found.added == fields('metadata/finalizers/v:"b"')
    assert found.modified == fields("spec/list")


def test_metadata_of_embedded_object_has_schema() -> None:
    before = gadget(template={"metadata": {"finalizers": ["a"]}})
    after = gadget(template={"metadata": {"finalizers": ["b"]}})

    found = compare(GADGETS, before, after)

    assert found.added == fields('spec/template/metadata/finalizers/v:"b"')


@each_case(
    "listed, item, reason",
    [
        pytest.param("ports", None, "may not have a null element", id="null"),
        pytest.param("ports", "x", "may not have non-map elements", id="text"),
        pytest.param("tags", {}, "has an element that's a map type", id="map"),
        pytest.param("tags", [], "lists as elements", id="list"),
        pytest.param("tags", None, "an explicit null", id="null in a set"),
    ],
)
def test_list_items_without_identity_are_rejected(
    listed: str, item: object, reason: str
) -> None:
    spec = GADGETS.field("spec")
    assert spec is not None
    schema = spec.field(listed)
    assert schema is not None

    with pytest.raises(ValueError, match=reason):
        list_element_of(schema, item)


def test_list_item_without_any_key_is_rejected() -> None:
    schema = Schema(
        {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["a", "b"],
            "items": {"type": "object", "properties": {"a": {"type": "string"}}},
        }
    )

    assert list_element_of(schema, {"b": 1}) == 'k:{"b":1}'
    with pytest.raises(ValueError, match=r'omits all key fields \["a" "b"\]'):
        list_element_of(schema, {"c": 1})


@each_case(
    "one, two, expected",
    [
        pytest.param({"a": [1, {"b": "x"}]}, {"a": [1, {"b": "x"}]}, True, id="equal"),
        pytest.param({"a": 1}, {"a": True}, False, id="true is not 1"),
        pytest.param([0], [False], False, id="false is not 0"),
        pytest.param(1, 1.0, True, id="1 is 1.0"),
        pytest.param(None, False, False, id="null is not false"),
    ],
)
def test_json_equality_distinguishes_booleans_from_numbers(
    one: object, two: object, expected: bool
) -> None:
    assert is_json_equal(one, two) is expected
    assert is_json_equal(two, one) is expected


# -------------------------------------------------------------------- field sets of bodies


def test_applier_owns_values_but_not_declared_containers() -> None:
    body = gadget(
        ports=[{"port": 80, "name": "x"}],
        tags=["a"],
        list=["x"],
        labels={"l": "1"},
        parts={"p": {"x": 1}, "q": {}},
        whole={"a": "1"},
        free={"a": {"b": 1}},
    )

    found = field_set_of(GADGETS, body).below("f:spec").to_json()

    assert found == {
        "f:free": {"f:a": {".": {}, "f:b": {}}},
        "f:labels": {"f:l": {}},
        "f:list": {},
        "f:parts": {"f:p": {".": {}, "f:x": {}}, "f:q": {}},
        "f:ports": {TCP: {".": {}, "f:name": {}, "f:port": {}}},
        "f:tags": {'v:"a"': {}},
        "f:whole": {},
    }


def test_applier_owns_empty_values_and_nulls_but_not_empty_lists() -> None:
    body = gadget(ports=[], tags=[], list=[], labels={}, size=None)

    found = field_set_of(GADGETS, body).below("f:spec")

    assert found == fields("list", "labels", "size")


def test_applier_does_not_own_container_of_empty_lists() -> None:
    assert field_set_of(GADGETS, {"spec": {"tags": []}}) == EMPTY


def test_items_with_same_key_are_owned_as_a_whole() -> None:
    body = gadget(ports=[{"port": 80, "name": "a"}, {"port": 80, "name": "b"}])

    assert field_set_of(GADGETS, body).below("f:spec") == fields(f"ports/{TCP}")


def test_remove_items_removes_nested_fields() -> None:
    body = gadget(
        labels={"a": "1", "b": "2"},
        ports=[{"port": 80, "name": "x"}, {"port": 81, "name": "y"}],
        tags=["a", "b"],
        parts={"p": {"x": 1}},
        size=1,
    )

    found = remove_items(
        GADGETS,
        body,
        fields(
            "spec/labels/a",
            f"spec/ports/{TCP}",
            'spec/ports/k:{"port":81,"protocol":"TCP"}/name',
            'spec/tags/v:"b"',
            "spec/parts",
            "spec/missing/x",
        ),
    )

    assert found["spec"] == {
        "labels": {"b": "2"},
        "ports": [{"port": 81}],
        "tags": ["a"],
        "size": 1,
    }
    assert len(body["spec"]["ports"]) == 2


def test_container_without_remaining_fields_becomes_null() -> None:
    body = gadget(labels={"a": "1"}, tags=["a"], list=["x"], size=1)
    gone = fields("spec/labels/a", 'spec/tags/v:"a"', "spec/list/i:0", "spec/size/x")

    found = remove_items(GADGETS, body, gone)

    assert found["spec"] == {"labels": None, "tags": None, "list": None, "size": 1}
    assert remove_items(GADGETS, {"spec": {}}, fields("spec")) == {}


def test_map_of_lists_owns_empty_lists() -> None:
    values = {"type": "array", "x-kubernetes-list-type": "set", "items": {}}
    spec = {"type": "object", "additionalProperties": values}
    schema = Schema({"type": "object", "properties": {"spec": spec}})

    found = field_set_of(schema, {"spec": {"a": [], "b": ["x"]}})

    assert found.to_json() == {"f:spec": {"f:a": {}, "f:b": {".": {}, 'v:"x"': {}}}}


@given(st.lists(st.sampled_from("abcdef"), unique=True), st.permutations("abcdxyz"))
def test_merged_list_has_each_item_once(live: list[str], order: list[str]) -> None:
    body = order[:4]

    places = list(merge_order(live, body))

    items = [live[at] if origin == "live" else body[at] for origin, at in places]
    assert sorted(items) == sorted({*live, *body})
    assert [it for it in items if it in body] == body
    alone = [it for it in live if it not in body]
    assert [it for it in items if it not in body] == alone


def test_valid_body_has_no_apply_errors() -> None:
    body = gadget(
        ports=[{"port": 1}, {"port": 1, "protocol": "UDP"}],
        tags=["a"],
        list=["x"],
        labels={"l": "1"},
        parts={"p": {"x": 1}},
        whole=None,
        size=None,
        on=True,
        free={"a": [1, {"b": None}]},
        any=[1, "x"],
        template={"kind": "Pod", "metadata": {"name": "x"}, "more": 1},
    )

    assert apply_errors(GADGETS, body) == []


@each_case(
    "spec, mistake",
    [
        pytest.param({"x": 1}, ".x: field not declared in schema", id="unknown"),
        pytest.param({"whole": 5}, ".whole: expected map, got &{5}", id="map"),
        pytest.param(
            {"labels": ["x"]}, ".labels: expected map, got &{[x]}", id="labels"
        ),
        pytest.param(
            {"tags": {"x": 1}}, ".tags: expected list, got &{map[x:1]}", id="list"
        ),
        pytest.param(
            {"size": "x"},
            ".size: expected numeric (int or float), got string",
            id="number",
        ),
        pytest.param(
            {"size": True},
            ".size: expected numeric (int or float), got bool",
            id="bool",
        ),
        pytest.param({"on": "x"}, ".on: expected boolean, got &{x}", id="truth"),
        pytest.param(
            {"labels": {"a": 1}},
            ".labels.a: expected string, got &value.valueUnstructured{Value:1}",
            id="text",
        ),
        pytest.param(
            {"labels": {"a": [1, None, {"b": "c"}]}},
            ".labels.a: expected string, got &value.valueUnstructured{Value:"
            "[]interface {}{1, interface {}(nil), "
            'map[string]interface {}{"b":"c"}}}',
            id="no text at all",
        ),
        pytest.param(
            {"list": ["a", 1]},
            ".list[1]: expected string, got &value.valueUnstructured{Value:1}",
            id="text in a list",
        ),
        pytest.param(
            {"tags": ["a", "a"]},
            '.tags: duplicate entries for key [="a"]',
            id="value twice",
        ),
        pytest.param(
            {"ports": [{"port": 1}, {"port": 1, "protocol": "TCP"}]},
            '.ports: duplicate entries for key [port=1,protocol="TCP"]',
            id="item twice",
        ),
        pytest.param(
            {"ports": [{"port": 1, "name": 5}]},
            '.ports[port=1,protocol="TCP"].name: '
            "expected string, got &value.valueUnstructured{Value:5}",
            id="within an item",
        ),
        pytest.param(
            {"tags": [None]},
            ".tags: element 0: associative list without keys has an element that's an "
            "explicit null",
            id="null in a set",
        ),
        pytest.param(
            {"template": {"metadata": {"finalizers": "x"}}},
            ".template.metadata.finalizers: expected list, got &{x}",
            id="metadata of an embedded object",
        ),
    ],
)
def test_invalid_body_has_apply_errors(spec: dict[str, Any], mistake: str) -> None:
    assert apply_errors(GADGETS, gadget(**spec)) == [".spec" + mistake]


def test_apply_errors_list_wrong_types_up_to_unknown_field() -> None:
    body = gadget(on="x", list="y", rust=1, size="z")

    assert apply_errors(GADGETS, {**body, "status": 5}) == [
        ".spec.list: expected list, got &{y}",
        ".spec.on: expected boolean, got &{x}",
        ".spec.rust: field not declared in schema",
        ".status: expected map, got &{5}",
    ]


def test_nested_duplicates_are_reported_before_outer_ones() -> None:
    ports = [{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP"}]
    web = {"name": "web", "ports": ports}

    path, key = ".spec.template.spec.containers", '[containerPort=80,protocol="TCP"]'
    assert apply_errors(DEPLOYS, deployment(web, web))[:2] == [
        f'{path}[name="web"].ports: duplicate entries for key {key}',
        f'{path}: duplicate entries for key [name="web"]',
    ]


def test_quantities_and_ports_accept_numbers_and_strings() -> None:
    web = {
        "name": "web",
        "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
        "readinessProbe": {"httpGet": {"port": "http"}},
        "livenessProbe": {"httpGet": {"port": 80}},
    }

    assert apply_errors(DEPLOYS, deployment(web)) == []


def test_unknown_fields_are_allowed_below_preserving_field() -> None:
    schema = schema_of_object(
        Schema(
            {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "properties": {
                    "spec": {"type": "object", "properties": {"a": {"type": "string"}}},
                    "more": {
                        "type": "object",
                        "properties": {"a": {"type": "string"}},
                        "additionalProperties": True,
                    },
                    "at": {"type": "string", "format": "date-time"},
                },
            }
        )
    )

    body = {"spec": {"a": "x", "b": 1}, "more": {"b": 1}, "x": 1, "at": 5}
    assert apply_errors(schema, body) == []
    assert apply_errors(schema, {"at": {"b": 1}}) == [
        ".at: expected any scalar, got &{map[b:1]}"
    ]
