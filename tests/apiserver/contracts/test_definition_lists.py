"""Validation of list types in the schemas of definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from custom_definitions import array_of, of_field, refusal_of
from each_case import each_case

if TYPE_CHECKING:
    import aiohttp

LIST = "x-kubernetes-list-type"
KEYS = "x-kubernetes-list-map-keys"
KEYED = {"type": "object", "properties": {"a": {"type": "string"}}}

LISTS = [
    pytest.param(
        array_of({"type": "object"}, **{LIST: "map"}),
        [f".{KEYS}: Required value: must not be empty if {LIST} is map"],
        id="no-keys",
    ),
    pytest.param(
        array_of(KEYED, **{LIST: "map", KEYS: ["b", "a"]}),
        [
            (
                f'.{KEYS}: Invalid value: ["b","a"]: entries must all be names of item '
                "properties"
            ),
            (
                f".items.properties[a].default: Required value: this property is in {KEYS}, "
                "so it must have a default or be a required property"
            ),
        ],
        id="keys",
    ),
    pytest.param(
        array_of({**KEYED, "required": ["a"]}, **{LIST: "map", KEYS: ["a", "a"]}),
        [f'.{KEYS}: Invalid value: ["a","a"]: must not contain duplicate entries'],
        id="duplicate-keys",
    ),
    pytest.param(
        array_of({"type": "string"}, **{LIST: "map", KEYS: ["a"]}),
        [
            (
                '.items.type: Invalid value: "string": must be object if parent array\'s '
                f"{LIST} is map"
            )
        ],
        id="map-of-texts",
    ),
    pytest.param(
        array_of({"type": "object"}, **{LIST: "set"}),
        [
            (
                ".items.x-kubernetes-map-type: Invalid value: null: must be atomic as item "
                f"of a list with {LIST}=set"
            )
        ],
        id="set-of-objects",
    ),
    pytest.param(
        array_of({"type": "string"}, **{LIST: "foo"}),
        [
            (
                f'.{LIST}: Unsupported value: "foo": supported values: "atomic", "set", '
                '"map"'
            )
        ],
        id="type",
    ),
    pytest.param(
        array_of({**KEYED, "required": ["a"]}, **{KEYS: ["a"]}),
        [f".{LIST}: Required value: must be map if {KEYS} is non-empty"],
        id="keys-of-no-map",
    ),
    pytest.param(
        array_of(
            {
                "type": "object",
                "required": ["a"],
                "properties": {"a": {"type": "object"}},
            },
            **{LIST: "map", KEYS: ["a"]},
        ),
        [
            (
                '.items.properties[a].type: Invalid value: "object": must be a scalar type '
                f"if parent array's {LIST} is map"
            )
        ],
        id="key-of-no-scalar",
    ),
    pytest.param(
        array_of(
            {"type": "object", "x-kubernetes-map-type": "atomic"}, **{LIST: "set"}
        ),
        [],
        id="set-of-atomic-objects",
    ),
    pytest.param(
        array_of(array_of({"type": "string"}), **{LIST: "set"}), [], id="set-of-lists"
    ),
    pytest.param(
        array_of(array_of({"type": "string"}, **{LIST: "set"}), **{LIST: "set"}),
        [
            (
                '.items.x-kubernetes-list-type: Invalid value: "set": must be atomic as item '
                f"of a list with {LIST}=set"
            )
        ],
        id="set-of-sets",
    ),
    pytest.param(
        {"type": "object", LIST: "atomic"},
        [f'.type: Invalid value: "object": must be array if {LIST} is specified'],
        id="no-list",
    ),
    pytest.param(
        array_of({"type": "string"}, uniqueItems=True),
        [
            (
                ".uniqueItems: Forbidden: uniqueItems cannot be set to true since the "
                "runtime complexity becomes quadratic"
            )
        ],
        id="unique",
    ),
]


@each_case("text, problems", LISTS)
async def test_definition_with_invalid_list_schema_is_rejected(
    http: aiohttp.ClientSession, text: dict[str, Any], problems: list[str]
) -> None:
    path = "spec.validation.openAPIV3Schema.properties[spec]"

    assert await refusal_of(http, of_field(text)) == [f"{path}{it}" for it in problems]
