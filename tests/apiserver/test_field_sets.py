"""Field sets: set operations, and the form of FieldsV1."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from managed_fields_helpers import DEPLOYS, GADGETS, fields

from aioinformer_apiserver.patches.field_sets import (
    EMPTY,
    FieldSet,
    item_element,
    parse_element,
    path_text,
    sort_elements,
    value_element,
)
from aioinformer_apiserver.patches.ownership import schema_of_object, with_named_fields

PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(
    lambda steps: tuple(f"f:{step}" for step in steps)
)
PATH_SETS = st.frozensets(PATHS, max_size=8)


def members(found: FieldSet) -> frozenset[tuple[str, ...]]:
    return frozenset(found.paths())


# -------------------------------------------------------------------- set operations


@settings(max_examples=40)
@given(PATH_SETS, PATH_SETS)
def test_field_set_operations_equal_operations_on_path_sets(
    one: frozenset[tuple[str, ...]], two: frozenset[tuple[str, ...]]
) -> None:
    left, right = FieldSet.of(*one), FieldSet.of(*two)

    assert members(left | right) == one | two
    assert (left | right) | left == left | right
    assert members(left & right) == one & two
    assert members(left - right) == one - two
    assert bool(left) is bool(one)
    assert (left == right) is (one == two)
    assert all(path in left for path in one)
    assert not any(path in left for path in two - one)


@settings(max_examples=40)
@given(PATH_SETS, PATH_SETS)
def test_outside_drops_nested_fields(
    one: frozenset[tuple[str, ...]], two: frozenset[tuple[str, ...]]
) -> None:
    found = FieldSet.of(*one).outside(FieldSet.of(*two))

    starts = {path[:length] for path in one for length in (1, 2, 3)} & two
    kept = {it for it in one if not any(it[: len(at)] == at for at in starts)}
    assert members(found) == kept


@settings(max_examples=40)
@given(PATH_SETS)
def test_leaves_have_no_members_below_them(
    paths: frozenset[tuple[str, ...]],
) -> None:
    found = FieldSet.of(*paths).leaves()

    inner = {it for it in paths if any(o[: len(it)] == it != o for o in paths)}
    assert members(found) == paths - inner


@settings(max_examples=40)
@given(PATH_SETS)
def test_json_round_trip_keeps_field_set(paths: frozenset[tuple[str, ...]]) -> None:
    found = FieldSet.of(*paths)

    again = FieldSet.parse(found.to_json())

    assert again == found
    assert hash(again) == hash(found)
    assert again.to_json() == found.to_json()


def test_operations_do_not_change_operands() -> None:
    one, two = fields("a/b", "a/c", "d"), fields("a", "a/b", "e")
    before = one.to_json(), two.to_json()

    _ = (one | two, one & two, one - two, one.outside(two), one.leaves())

    assert (one.to_json(), two.to_json()) == before


def test_paths_are_sorted_by_level() -> None:
    found = fields("b", "a/z", "a/y/x", "c")

    assert [path_text(path) for path in found.paths()] == [".b", ".c", ".a.z", ".a.y.x"]
    assert repr(found) == "<FieldSet .b .c .a.z .a.y.x>"


def test_undeclared_fields_do_not_become_members() -> None:
    found = fields("metadata/labels/x", "a/b/c")

    assert with_named_fields(None, found) == found
    assert with_named_fields(schema_of_object(None), found) == found | fields(
        "metadata", "metadata/labels"
    )


def test_below_returns_relative_paths() -> None:
    assert fields("a", "a/b").below("f:a") == fields("b")
    assert fields("a", "a/b").below("f:b") == EMPTY


def test_declared_parents_become_members() -> None:
    item = 'k:{"port":80,"protocol":"TCP"}'
    found = fields(f"spec/ports/{item}/port", "spec/labels/x", "spec/free/a/b")

    assert with_named_fields(GADGETS, found) == found | fields(
        "spec", "spec/ports", "spec/labels", "spec/free"
    )


def test_declared_parents_are_found_through_list_items() -> None:
    way = 'spec/template/spec/containers/k:{"name":"x"}'
    found = with_named_fields(DEPLOYS, fields(f"{way}/resources/limits/cpu"))

    assert fields(f"{way}/resources", f"{way}/resources/limits") & found
    assert fields(way) & found == EMPTY


# -------------------------------------------------------------------- FieldsV1


def test_member_with_children_has_dot() -> None:
    found = fields("data", "data/x", "metadata/labels/l")

    assert found.to_json() == {
        "f:data": {".": {}, "f:x": {}},
        "f:metadata": {"f:labels": {"f:l": {}}},
    }


def test_json_keys_are_sorted_like_go() -> None:
    items = [item_element({"port": port, "protocol": "TCP"}) for port in (443, 80)]
    found = FieldSet.of(
        ("v:10",),
        ("v:9",),
        *[(it,) for it in items],
        ("f:b",),
        ("f:a", "f:c"),
        ("f:a",),
    )

    assert list(found.to_json()) == [
        "f:a",
        "f:b",
        'k:{"port":80,"protocol":"TCP"}',
        'k:{"port":443,"protocol":"TCP"}',
        "v:9",
        "v:10",
    ]
    assert list(found.to_json()["f:a"]) == [".", "f:c"]


def test_values_of_all_types_are_sorted() -> None:
    ordered = ["v:1", "v:1.5", "v:2", 'v:"a"', "v:false", "v:true", "v:null", "i:3"]

    assert sort_elements(reversed(ordered)) == ordered


@pytest.mark.parametrize(
    ("element", "text"),
    [
        pytest.param("f:a.b/c", ".a.b/c", id="field"),
        pytest.param('k:{"a":1,"b":"x"}', '[a=1,b="x"]', id="item"),
        pytest.param('v:"x"', '[="x"]', id="value"),
        pytest.param("i:3", "[3]", id="place"),
    ],
)
def test_paths_are_formatted_for_messages(element: str, text: str) -> None:
    assert path_text([element]) == text


def test_path_element_has_one_canonical_spelling() -> None:
    assert item_element({"b": "x", "a": 1}) == 'k:{"a":1,"b":"x"}'
    assert item_element({"a": 1.0}) == 'k:{"a":1}'
    assert parse_element('k:{"b": "x", "a": 1}') == 'k:{"a":1,"b":"x"}'
    assert value_element("a<b>&\u2028") == r'v:"a\u003cb\u003e\u0026\u2028"'
    assert parse_element(r'v:"a<b"') == r'v:"a\u003cb"'
    assert parse_element("i:007") == "i:7"


@pytest.mark.parametrize(
    ("given_fields", "expected"),
    [
        pytest.param({"f:a": {".": {}}}, {"f:a": {}}, id="superfluous dot"),
        pytest.param({".": {}, "f:a": {}}, {"f:a": {}}, id="dot at the root"),
        pytest.param({"f:a": {}, "z:b": {}}, {"f:a": {}}, id="step from the future"),
        pytest.param({"f:a": {"z:b": {}}}, {"f:a": {}}, id="only such below"),
        pytest.param(
            {"f:a": {".": {"f:x": {}}, "f:b": {}}},
            {"f:a": {".": {}, "f:b": {}}},
            id="something in a dot",
        ),
        pytest.param({"v:1.0": {}}, {"v:1": {}}, id="another spelling"),
    ],
)
def test_parse_canonicalizes_handwritten_fields(
    given_fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert FieldSet.parse(given_fields).to_json() == expected


@pytest.mark.parametrize(
    "given_fields",
    [
        pytest.param([], id="a list"),
        pytest.param({"f:a": None}, id="no object below"),
        pytest.param({"data": {}}, id="no colon"),
        pytest.param({"k:[1]": {}}, id="keys that are no object"),
        pytest.param({"v:{": {}}, id="no JSON"),
        pytest.param({"i:x": {}}, id="no number"),
    ],
)
def test_malformed_fields_are_rejected(given_fields: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        FieldSet.parse(given_fields)


def test_field_set_differs_from_other_types() -> None:
    assert EMPTY != {}
    assert () not in fields("a")
    assert ("f:a", "f:b", "f:c") not in fields("a")
