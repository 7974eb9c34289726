"""Comparisons: what was added, changed and removed, and what an applier sets."""

from __future__ import annotations

from typing import Any

import pytest
from patching_helpers import DEPLOYS, GADGETS, deployment, fields, gadget

from aioinformer_apiserver.patches.field_sets import EMPTY
from aioinformer_apiserver.patches.ownership import (
    empty_object_of,
    is_json_equal,
    list_element_of,
    schema_of_object,
)
from aioinformer_apiserver.patches.structured_merge_diff import (
    compare,
    field_set_of,
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


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
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
    ],
)  # fmt: skip
def test_tells_what_differs(
    old: dict[str, Any], new: dict[str, Any], expected: dict[str, set[str]]
) -> None:
    assert differing(old, new) == expected


def test_gained_is_what_was_added_or_changed() -> None:
    found = compare(GADGETS, gadget(size=1, on=True), gadget(size=2, list=[]))

    assert found.gained == fields("spec/size", "spec/list")
    assert found.outside(fields("spec")).gained == EMPTY
    assert found.outside(EMPTY) is found


def test_a_new_built_in_object_is_compared_with_the_empty_struct() -> None:
    new = deployment({"name": "web"}, strategy={"rollingUpdate": {"maxSurge": 1}})

    added = compare(DEPLOYS, empty_object_of(DEPLOYS), new).gained

    assert fields("spec", "spec/strategy", "spec/template") & added == EMPTY
    assert fields("spec/strategy/rollingUpdate") & added
    assert fields('spec/template/spec/containers/k:{"name":"web"}') & added
    assert fields("spec/template/spec/containers") & added == EMPTY
    assert fields("spec/selector") & added


def test_a_new_custom_object_is_compared_with_nothing() -> None:
    assert empty_object_of(GADGETS) == {}
    assert fields("spec") & compare(GADGETS, {}, gadget(size=1)).added


def test_metadata_is_described_even_where_the_schema_says_nothing() -> None:
    old = {"metadata": {"finalizers": ["a"]}, "spec": {"list": [{"name": "x"}]}}
    new = {"metadata": {"finalizers": ["a", "b"]}, "spec": {"list": [{"name": "y"}]}}

    found = compare(schema_of_object(None), old, new)

    assert found.added == fields('metadata/finalizers/v:"b"')
    assert found.modified == fields("spec/list")


def test_metadata_of_embedded_objects_is_described() -> None:
    before = gadget(template={"metadata": {"finalizers": ["a"]}})
    after = gadget(template={"metadata": {"finalizers": ["b"]}})

    found = compare(GADGETS, before, after)

    assert found.added == fields('spec/template/metadata/finalizers/v:"b"')


@pytest.mark.parametrize(
    ("listed", "item", "reason"),
    [
        pytest.param("ports", None, "may not have a null element", id="null"),
        pytest.param("ports", "x", "may not have non-map elements", id="text"),
        pytest.param("tags", {}, "has an element that's a map type", id="map"),
        pytest.param("tags", [], "lists as elements", id="list"),
        pytest.param("tags", None, "an explicit null", id="null in a set"),
    ],
)
def test_items_that_cannot_be_told_apart_are_refused(
    listed: str, item: object, reason: str
) -> None:
    spec = GADGETS.field("spec")
    assert spec is not None
    schema = spec.field(listed)
    assert schema is not None

    with pytest.raises(ValueError, match=reason):
        list_element_of(schema, item)


def test_an_item_without_any_key_is_refused() -> None:
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


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        pytest.param({"a": [1, {"b": "x"}]}, {"a": [1, {"b": "x"}]}, True, id="equal"),
        pytest.param({"a": 1}, {"a": True}, False, id="true is not 1"),
        pytest.param([0], [False], False, id="false is not 0"),
        pytest.param(1, 1.0, True, id="1 is 1.0"),
        pytest.param(None, False, False, id="null is not false"),
    ],
)
def test_sameness_is_that_of_json(one: object, two: object, expected: bool) -> None:
    assert is_json_equal(one, two) is expected
    assert is_json_equal(two, one) is expected


# -------------------------------------------------------------------- contents


def test_an_applier_sets_values_but_not_their_described_containers() -> None:
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


def test_empty_and_null_values_are_set_but_empty_lists_of_items_are_not() -> None:
    body = gadget(ports=[], tags=[], list=[], labels={}, size=None)

    found = field_set_of(GADGETS, body).below("f:spec")

    assert found == fields("list", "labels", "size")


def test_a_container_of_nothing_but_empty_lists_is_not_set() -> None:
    assert field_set_of(GADGETS, {"spec": {"tags": []}}) == EMPTY


def test_items_of_one_key_are_owned_as_a_whole() -> None:
    body = gadget(ports=[{"port": 80, "name": "a"}, {"port": 80, "name": "b"}])

    assert field_set_of(GADGETS, body).below("f:spec") == fields(f"ports/{TCP}")


def test_removing_fields_takes_along_what_lies_below() -> None:
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


def test_a_container_that_loses_everything_becomes_null() -> None:
    body = gadget(labels={"a": "1"}, tags=["a"], list=["x"], size=1)
    gone = fields("spec/labels/a", 'spec/tags/v:"a"', "spec/list/i:0", "spec/size/x")

    found = remove_items(GADGETS, body, gone)

    assert found["spec"] == {"labels": None, "tags": None, "list": None, "size": 1}
    assert remove_items(GADGETS, {"spec": {}}, fields("spec")) == {}


def test_a_map_of_lists_owns_its_empty_ones() -> None:
    values = {"type": "array", "x-kubernetes-list-type": "set", "items": {}}
    spec = {"type": "object", "additionalProperties": values}
    schema = Schema({"type": "object", "properties": {"spec": spec}})

    found = field_set_of(schema, {"spec": {"a": [], "b": ["x"]}})

    assert found.to_json() == {"f:spec": {"f:a": {}, "f:b": {".": {}, 'v:"x"': {}}}}
