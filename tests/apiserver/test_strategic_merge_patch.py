"""Strategic merge patches, and the order of patched lists."""

from __future__ import annotations

from typing import Any

import pytest
from each_case import each_case

from aioinformer.errors import ApiError
from aioinformer_apiserver.patches.strategic_merge_patch import (
    order_items,
    strategic_merge_patch,
)
from aioinformer_apiserver.schema import Schema

ITEM = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
}
SCHEMA = Schema(
    {
        "type": "object",
        "properties": {
            "items": {
                "type": "array",
                "items": ITEM,
                "x-kubernetes-patch-strategy": "merge",
                "x-kubernetes-patch-merge-key": "name",
            },
            "values": {
                "type": "array",
                "items": {"type": "string"},
                "x-kubernetes-patch-strategy": "merge",
            },
            "plain": {"type": "array", "items": {"type": "string"}},
            "whole": {"type": "object", "x-kubernetes-patch-strategy": "replace"},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }
)


def items(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def merged(body: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    return strategic_merge_patch(SCHEMA, body, patch)


def test_strategic_merge_patch_does_not_change_input() -> None:
    body = {"items": [{"name": "a", "value": "1"}], "map": {"x": "y"}}
    patch = {
        "items": [{"name": "a", "value": "2"}],
        "$setElementOrder/items": items("a"),
        "map": {"$retainKeys": ["z"], "z": "1"},
    }

    new = merged(body, patch)

    assert new == {"items": [{"name": "a", "value": "2"}], "map": {"z": "1"}}
    assert body == {"items": [{"name": "a", "value": "1"}], "map": {"x": "y"}}
    assert patch["map"] == {"$retainKeys": ["z"], "z": "1"}
    assert "$setElementOrder/items" in patch


def test_lists_are_replaced_without_schema() -> None:
    new = strategic_merge_patch(
        None, {"items": items("a"), "map": {"x": "y"}}, {"items": items("b"), "map": {}}
    )

    assert new == {"items": items("b"), "map": {"x": "y"}}


@each_case(
    "body, patch, found",
    [
        pytest.param({"plain": ["a"]}, {"plain": ["b"]}, {"plain": ["b"]}, id="list"),
        pytest.param(
            {"whole": {"a": 1}}, {"whole": {"b": 2}}, {"whole": {"b": 2}}, id="object"
        ),
        pytest.param({"plain": ["a"]}, {"plain": "x"}, {"plain": "x"}, id="type"),
        pytest.param({"plain": ["a"]}, {"plain": None}, {}, id="null"),
        pytest.param({}, {"plain": None}, {}, id="null-of-nothing"),
        pytest.param({"items": []}, {"items": []}, {"items": []}, id="empty"),
        pytest.param(
            {}, {"$setElementOrder/items": items("a")}, {}, id="order-of-nothing"
        ),
        pytest.param(
            {},
            {"$setElementOrder/items": items("a"), "items": items("a")},
            {"items": items("a")},
            id="order-of-a-new-list",
        ),
        pytest.param(
            {"values": ["a"]},
            {"$deleteFromPrimitiveList/values": "a"},
            {"values": ["a"]},
            id="delete-no-list",
        ),
        pytest.param(
            {"items": items("a", "b", "c")},
            {"items": [{"$patch": "delete", "name": "b"}, {"$patch": "replace"}]},
            {"items": []},
            id="replace-by-nothing",
        ),
    ],
)
def test_patch_merges_by_schema(
    body: dict[str, Any], patch: dict[str, Any], found: dict[str, Any]
) -> None:
    assert merged(body, patch) == found


def test_element_order_of_unknown_field_is_rejected() -> None:
    with pytest.raises(ApiError, match="unable to find api field") as caught:
        merged({}, {"$setElementOrder/unknown": []})

    assert caught.value.status == 500


@each_case(
    "old, merged_list, wanted, found",
    [
        ("abc", "abc", "", "abc"),
        ("abc", "abc", "cba", "cba"),
        ("abc", "abcd", "dc", "dabc"),
        ("abc", "abcd", "da", "dabc"),
        ("abc", "abcd", "ad", "adbc"),
        ("abcd", "abcd", "db", "acdb"),
        ("", "ab", "ba", "ba"),
        ("ab", "abx", "x", "xab"),
    ],
)
def test_server_only_items_keep_their_place(
    old: str, merged_list: str, wanted: str, found: str
) -> None:
    plain = order_items(list(merged_list), list(wanted), list(old), "")
    by_name = order_items(items(*merged_list), items(*wanted), items(*old), "name")

    assert "".join(plain) == found
    assert by_name == items(*found)
