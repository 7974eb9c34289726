"""Custom resources: pruning, defaults, validation by schema."""

from __future__ import annotations

from typing import Any

import pytest

from aioinformer.errors import ApiError
from aioinformer_apiserver.schema import Schema
from aioinformer_apiserver.schema.decoding import decode, strict_decoding_error
from aioinformer_apiserver.schema.defaults import with_defaults
from aioinformer_apiserver.schema.schema_validation import validate_custom_resource


def schema(**spec: Any) -> Schema:
    text = {"type": "object", "properties": spec}
    return Schema({"type": "object", "properties": {"spec": text}})


def thing(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "metadata": {"name": "a"},
        "spec": spec,
    }


def reported(found: list[Any]) -> list[tuple[str, str]]:
    return [(it.field, it.message) for it in found]


def test_pruning_does_not_change_input() -> None:
    body = thing(unknown=1, inner={"unknown": 2})
    known = schema(inner={"type": "object", "properties": {"a": {"default": [1]}}})

    found = with_defaults(known, decode(known, body, custom=True).body)

    assert found["spec"] == {"inner": {"a": [1]}}
    assert body == thing(unknown=1, inner={"unknown": 2})


def test_schema_defaults_are_not_shared() -> None:
    known = schema(a={"type": "array", "default": [1]})
    first, second = (with_defaults(known, thing()) for _ in range(2))

    first["spec"]["a"].append(2)

    assert second["spec"]["a"] == [1]


def test_metadata_is_pruned_like_builtin_metadata() -> None:
    body = {**thing(), "metadata": {"name": "a", "colour": "red", "labels": {}}}

    found = decode(schema(), body, custom=True)

    assert found.body["metadata"] == {"name": "a"}
    assert found.errors == ('unknown field "metadata.colour"',)


def test_strict_error_lists_pruned_fields() -> None:
    body = thing(unknown=1)
    found = decode(schema(), body, custom=True)

    refused = strict_decoding_error(schema(), body, found.errors)

    assert isinstance(refused, ApiError)
    assert refused.status == 400
    assert refused.message == (
        'Thing in version "v1" cannot be handled as a Thing: '
        'strict decoding error: unknown field "spec.unknown"'
    )
    assert strict_decoding_error(schema(), body, ()) is None


def test_unchanged_invalid_value_is_accepted_on_update() -> None:
    known = schema(a={"type": "integer", "maximum": 3}, b={"type": "integer"})

    assert validate_custom_resource(known, thing(a=5, b=2), thing(a=5, b=1)) == []
    assert len(validate_custom_resource(known, thing(a=6, b=2), thing(a=5, b=1))) == 1


def test_keyed_list_items_are_compared_by_key_on_update() -> None:
    item = {"properties": {"k": {"type": "string"}, "n": {"maximum": 3}}}
    known = schema(
        a={
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", **item},
        }
    )
    old = thing(a=[{"k": "x", "n": 9}])

    assert (
        validate_custom_resource(known, thing(a=[{"k": "y"}, {"k": "x", "n": 9}]), old)
        == []
    )


def test_items_of_other_lists_are_not_compared_on_update() -> None:
    known = schema(a={"type": "array", "items": {"maximum": 3}})

    found = validate_custom_resource(known, thing(a=[9, 1]), thing(a=[9]))

    assert [it.field for it in found] == ["spec.a[0]"]


def test_existing_duplicates_are_accepted_on_update() -> None:
    known = schema(a={"type": "array", "x-kubernetes-list-type": "set"})

    assert (
        validate_custom_resource(known, thing(a=["x", "x"]), thing(a=["x", "x"])) == []
    )
    assert reported(
        validate_custom_resource(known, thing(a=["x", "x"]), thing(a=["x"]))
    ) == [("spec.a[1]", 'Duplicate value: "x"')]


@pytest.mark.parametrize(
    ("rules", "value", "message"),
    [
        pytest.param(
            {"type": "array", "uniqueItems": True},
            [1, 1],
            'Invalid value: "": spec.a in body shouldn\'t contain duplicates',
            id="unique",
        ),
        pytest.param(
            {"type": "integer", "multipleOf": 0.5},
            3,
            'Invalid value: "": MultipleOf value must be of type integer '
            "(default format) in spec.a",
            id="a step that is no integer",
        ),
        pytest.param(
            {"type": "integer", "format": "int32"},
            2**31,
            'Invalid value: "": Checked value must be of type integer '
            "with format int32 in spec.a",
            id="an integer that is too large",
        ),
    ],
)
def test_rarely_used_keywords_are_validated(
    rules: Any, value: Any, message: str
) -> None:
    found = validate_custom_resource(schema(a=rules), thing(a=value))

    assert [it.message for it in found] == [message]


def test_cel_rules_are_ignored() -> None:
    rule = {"rule": "self > 3"}

    assert (
        validate_custom_resource(
            schema(a={"x-kubernetes-validations": [rule]}), thing(a=1)
        )
        == []
    )
