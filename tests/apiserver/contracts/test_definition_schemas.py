"""Validation of schemas of definitions, which must be structural."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from custom_definitions import OPEN, array_of, of_field, of_schema, refusal_of
from each_case import each_case

if TYPE_CHECKING:
    import aiohttp

NUMBER_OR_TEXT = [{"type": "integer"}, {"type": "string"}]
FIELDS = {"type": "object", "properties": {"a": {"type": "string"}}}


def of_metadata(**fields: Any) -> dict[str, Any]:
    metadata = {"type": "object", **fields}
    return of_schema({"type": "object", "properties": {"metadata": metadata}})


# Schemas, with the path below the schema and the message.
SCHEMAS = [
    pytest.param(of_schema(OPEN), [], id="open"),
    pytest.param(
        of_schema({"properties": {}, "title": "x"}),
        [".type: Required value: must not be empty at the root"],
        id="no-type",
    ),
    pytest.param(
        of_schema({"type": "object", "nullable": True}),
        [".nullable: Forbidden: nullable cannot be true at the root"],
        id="nullable",
    ),
    pytest.param(
        of_field({"properties": {"b": {}}}),
        [
            (
                ".properties[spec].properties[b].type: Required value: must not be empty "
                "for specified object fields"
            ),
            (
                ".properties[spec].type: Required value: must not be empty for specified "
                "object fields"
            ),
        ],
        id="no-types",
    ),
    pytest.param(
        of_field(array_of({})),
        [
            (
                ".properties[spec].items.type: Required value: must not be empty for "
                "specified array items"
            )
        ],
        id="no-type-of-items",
    ),
    pytest.param(
        of_field({"type": "array"}),
        [".properties[spec].items: Required value: must be specified"],
        id="no-items",
    ),
    pytest.param(
        of_field({"type": "str"}),
        [
            (
                '.properties[spec].type: Unsupported value: "str": supported values: '
                '"array", "boolean", "integer", "number", "object", "string"'
            )
        ],
        id="type",
    ),
    pytest.param(
        of_field(
            {
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "additionalProperties": {"type": "string"},
            }
        ),
        [
            (
                ".properties[spec].additionalProperties: Forbidden: additionalProperties "
                "and properties are mutual exclusive"
            )
        ],
        id="additional",
    ),
    pytest.param(
        of_field({"type": "object", "anyOf": [{"type": "string", "default": 1}]}),
        [
            (
                ".properties[spec].anyOf[0].default: Forbidden: must be undefined to be "
                "structural"
            ),
            ".properties[spec].anyOf[0].type: Forbidden: must be empty to be structural",
        ],
        id="restriction",
    ),
    pytest.param(
        of_field(
            {
                "x-kubernetes-int-or-string": True,
                "anyOf": [{"type": "integer"}, {"type": "string"}],
            }
        ),
        [],
        id="int-or-string",
    ),
    pytest.param(
        of_field({"type": "string", "default": 3}),
        [
            (
                '.properties[spec].default: Invalid value: "integer":  in body must be of '
                'type string: "integer"'
            )
        ],
        id="default-type",
    ),
    pytest.param(
        of_field({"type": "object", "default": {"a": 1}}),
        [
            (
                '.properties[spec].default: Invalid value: {"a":1}: must not have unknown '
                "fields"
            )
        ],
        id="default-unknown",
    ),
    pytest.param(
        of_field({"type": "string", "x-kubernetes-preserve-unknown-fields": False}),
        [
            (
                ".properties[spec].x-kubernetes-preserve-unknown-fields: Invalid value: "
                "false: must be true or undefined"
            )
        ],
        id="preserve",
    ),
    pytest.param(
        of_field({"type": "string", "id": "x"}),
        [".properties[spec].id: Forbidden: id is not supported"],
        id="unsupported",
    ),
    pytest.param(
        of_schema({"type": "object", "additionalProperties": {"type": "string"}}),
        [".additionalProperties: Forbidden: must not be used at the root"],
        id="additional-at-the-root",
    ),
    pytest.param(
        of_schema(
            {
                "type": "object",
                "properties": {
                    "apiVersion": {"type": "integer"},
                    "kind": {"type": "object"},
                    "metadata": {"type": "string"},
                },
            }
        ),
        [
            '.properties[apiVersion].type: Invalid value: "integer": must be string',
            '.properties[kind].type: Invalid value: "object": must be string',
            '.properties[metadata].type: Invalid value: "string": must be object',
        ],
        id="type-of-objects",
    ),
    pytest.param(
        of_metadata(default={}),
        [
            (
                ".properties[metadata].default: Forbidden: must not be set in top-level "
                "metadata"
            )
        ],
        id="metadata-default",
    ),
    pytest.param(
        of_metadata(properties={"labels": {"type": "object"}}),
        [
            (
                ".properties[metadata]: Forbidden: must not specify anything other than name "
                "and generateName, but metadata is implicitly specified"
            )
        ],
        id="metadata",
    ),
    pytest.param(
        of_metadata(properties={"name": {"type": "string", "pattern": "^a"}}),
        [],
        id="metadata-name",
    ),
    pytest.param(
        of_field({"type": "string", "x-kubernetes-embedded-resource": True}),
        [
            (
                ".properties[spec].properties: Required value: must not be empty if "
                "x-kubernetes-embedded-resource is true without "
                "x-kubernetes-preserve-unknown-fields"
            ),
            (
                '.properties[spec].type: Invalid value: "string": must be object if '
                "x-kubernetes-embedded-resource is true"
            ),
        ],
        id="embedded",
    ),
    pytest.param(
        of_field({**OPEN, "x-kubernetes-embedded-resource": True}),
        [],
        id="embedded-open",
    ),
    pytest.param(
        of_field({"type": "object", "x-kubernetes-map-type": "foo"}),
        [
            (
                '.properties[spec].x-kubernetes-map-type: Unsupported value: "foo": '
                'supported values: "atomic", "granular"'
            )
        ],
        id="map-type",
    ),
    pytest.param(
        of_field(array_of({"type": "string"}, **{"x-kubernetes-map-type": "atomic"})),
        [
            (
                '.properties[spec].type: Invalid value: "array": must be object if '
                "x-kubernetes-map-type is specified"
            )
        ],
        id="map-type-of-list",
    ),
    pytest.param(
        of_field({"type": "object", "not": {"nullable": True, "description": "x"}}),
        [
            (
                ".properties[spec].not.description: Forbidden: must be empty to be "
                "structural"
            ),
            ".properties[spec].not.nullable: Forbidden: must be false to be structural",
        ],
        id="not",
    ),
    pytest.param(
        of_field(
            {
                "x-kubernetes-int-or-string": True,
                "allOf": [{"anyOf": NUMBER_OR_TEXT}, {"minimum": 1}],
            }
        ),
        [],
        id="int-or-string-in-all",
    ),
    pytest.param(
        of_field(
            {
                "x-kubernetes-int-or-string": True,
                "anyOf": [*NUMBER_OR_TEXT, {"type": "boolean"}],
            }
        ),
        [
            f".properties[spec].anyOf[{index}].type: Forbidden: must be empty to be "
            "structural"
            for index in range(3)
        ],
        id="int-or-string-or-else",
    ),
    pytest.param(
        of_schema({**FIELDS, "allOf": [{"properties": {"zzz": {"minimum": 1}}}]}),
        [
            (
                ".properties[zzz]: Required value: because it is defined in "
                "spec.validation.openAPIV3Schema.allOf[0].properties[zzz]"
            )
        ],
        id="undescribed",
    ),
    pytest.param(
        of_field({"type": "array", "items": [{"type": "string"}]}),
        [
            (
                ".properties[spec].items: Forbidden: items must be a schema object and not "
                "an array"
            )
        ],
        id="items",
    ),
    pytest.param(
        of_field(array_of({"type": "string", "enum": ["b"], "default": "x"})),
        [
            (
                '.properties[spec].items.default: Unsupported value: "x": supported values: '
                '"b"'
            )
        ],
        id="default-enum",
    ),
    pytest.param(
        of_field({**FIELDS, "required": ["a"], "default": {}}),
        [".properties[spec].default.a: Required value"],
        id="default-required",
    ),
]


@each_case("body, problems", SCHEMAS)
async def test_definition_without_structural_schema_is_rejected(
    http: aiohttp.ClientSession, body: dict[str, Any], problems: list[str]
) -> None:
    expected = [f"spec.validation.openAPIV3Schema{it}" for it in problems]

    assert await refusal_of(http, body) == expected
