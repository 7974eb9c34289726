"""Merge patches and JSON patches."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from each_case import each_case

from aioinformer.errors import ApiError
from aioinformer_apiserver.errors.go_format import go_text, go_type, json_type
from aioinformer_apiserver.patches.json_patch import json_patch
from aioinformer_apiserver.patches.patch_types import apply_patch, merge_patch

BODY: dict[str, Any] = {"a": {"b": [1, 2], "c": "x"}, "d~/e": 1}


@each_case(
    "target, patch, found",
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": "b"}, ["c"], ["c"]),
    ],
)
def test_merge_patch_follows_rfc(target: object, patch: object, found: object) -> None:
    assert merge_patch(target, patch) == found


def test_json_patch_does_not_change_its_input() -> None:
    body = {"a": {"b": [1]}}
    value = {"x": [1]}

    new = json_patch(
        body,
        [
            {"op": "add", "path": "/a/b/-", "value": value},
            {"op": "add", "path": "/a/b/1/x/-", "value": 2},
        ],
    )

    assert new == {"a": {"b": [1, {"x": [1, 2]}]}}
    assert body == {"a": {"b": [1]}}
    assert value == {"x": [1]}


@each_case(
    "operation, found",
    [
        ({"op": "remove", "path": "/a/b/-1"}, {"b": [1], "c": "x"}),
        ({"op": "add", "path": "/a/b/-1", "value": 3}, {"b": [1, 2, 3], "c": "x"}),
        ({"op": "add", "path": "/a/b/-3", "value": 3}, {"b": [3, 1, 2], "c": "x"}),
        ({"op": "replace", "path": "/a/b/-2", "value": 3}, {"b": [3, 2], "c": "x"}),
        ({"op": "add", "path": "/a/b/01", "value": 3}, {"b": [1, 3, 2], "c": "x"}),
        ({"op": "replace", "path": "/a/z", "value": 3}, {**BODY["a"], "z": 3}),
        (
            {"op": "move", "from": "/a/b/0", "path": "/a/z"},
            {"b": [2], "c": "x", "z": 1},
        ),
    ],
)
def test_json_patch_path_may_count_from_end(
    operation: dict[str, Any], found: object
) -> None:
    assert json_patch(BODY, [operation])["a"] == found


@each_case(
    "operation",
    [
        {"op": "remove", "path": "/a/b/-3"},
        {"op": "remove", "path": "/a/b/2"},
        {"op": "add", "path": "/a/b/3", "value": 1},
        {"op": "add", "path": "/a/b/-4", "value": 1},
        {"op": "add", "path": "/a/b/x", "value": 1},
        {"op": "test", "path": "/a/b/9", "value": 1},
        {"op": "move", "from": "/a", "path": "/a/z"},
        {"op": "remove", "path": "/a/c/d/e"},
    ],
)
def test_json_patch_index_out_of_range_is_rejected(operation: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as caught:
        json_patch(BODY, [operation])

    assert caught.value.status == 422


def test_json_patch_unescapes_keys() -> None:
    operation = {"op": "replace", "path": "/d~0~1e", "value": 2}

    assert json_patch(BODY, [operation])["d~/e"] == 2


@pytest.mark.parametrize(
    ("value", "equal"), [(1, True), (1.0, False), (True, False), ("1", False)]
)
def test_json_patch_test_compares_encoded_values(value: object, equal: bool) -> None:
    operation = {"op": "test", "path": "/a/b/0", "value": value}

    if equal:
        assert json_patch(BODY, [operation]) == BODY
    else:
        with pytest.raises(ApiError):
            json_patch(BODY, [operation])


def test_null_json_patch_changes_nothing() -> None:
    assert json_patch(BODY, None) == BODY
    assert apply_patch(None, BODY, None, "strategic") == BODY
    with pytest.raises(ApiError, match="Invalid JSON Patch"):
        apply_patch(None, BODY, None, "merge")


def test_json_patch_without_jsonpatch_package_is_501(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "aioinformer_apiserver.patches.json_patch")
    monkeypatch.setitem(sys.modules, "jsonpatch", None)

    with pytest.raises(ApiError, match="pip install") as caught:
        apply_patch(None, BODY, [], "json")

    assert caught.value.status == 501


def test_custom_resource_rejects_strategic_patch() -> None:
    with pytest.raises(ApiError) as caught:
        apply_patch(None, BODY, {}, "strategic", typed=False)

    assert caught.value.status == 415


@each_case(
    "value, text, go, json",
    [
        (True, "true", "bool", "bool"),
        (1, "1", "int64", "number"),
        (1.5, "1.5", "float64", "number"),
        ("x", "x", "string", "string"),
        (["x", 1], "[x 1]", "[]interface {}", "array"),
        ({"b": 1, "a": {}}, "map[a:map[] b:1]", "map[string]interface {}", "object"),
        (None, "<nil>", "%!s(<nil>)", "null"),
    ],
)
def test_values_are_formatted_like_go(
    value: object, text: str, go: str, json: str
) -> None:
    assert (go_text(value), go_type(value), json_type(value)) == (text, go, json)
