"""JSON that nests deeper than decoders support."""

from __future__ import annotations

import json
from typing import Any

import pytest
from each_case import each_case
from hypothesis import given, settings
from json_helpers import calls_of, nested, styles, values, written

from aioinformer import json_codec
from aioinformer.errors import DecodeError
from aioinformer.model.deep_json import (
    LEVELS,
    check_json,
    decode_encodable,
    json_field,
    truncate_nesting,
)


def within(value: object, levels: int) -> Any:
    """Return a value nested in so many arrays."""
    for _ in range(levels):
        value = [value]

    return value


def without(value: Any, levels: int) -> Any:
    """Return the innermost value of so many nested arrays."""
    for _ in range(levels):
        (value,) = value

    return value


@given(value=values, style=styles)
def test_truncate_nesting_keeps_flat_json(value: Any, style: str) -> None:
    body = written(value, style)

    assert truncate_nesting(body) == body


@given(value=values)
@settings(max_examples=40)
def test_truncate_nesting_replaces_deep_values_with_null(value: Any) -> None:
    deep = {"a": within(value, 3 * LEVELS), "name": "x", "b": [within(7, 500)]}

    found = json.loads(truncate_nesting(written(deep)))

    assert list(found) == ["a", "name", "b"]
    assert found["name"] == "x"
    assert without(found["a"], LEVELS - 2) is None
    assert without(found["b"], LEVELS - 2) is None


@pytest.mark.parametrize("depth", [1, 200, 253, 254, 400, 30_000])
def test_decoded_json_of_any_depth_can_be_encoded(depth: int) -> None:
    body = b'{"a":%b}' % nested(depth)

    value, truncated = decode_encodable(body)

    assert truncated == (depth > 253)
    assert (json_codec.dumps(value) == body) != truncated
    with pytest.raises(DecodeError):
        decode_encodable(body[:-1])


@pytest.mark.parametrize("depth", [LEVELS - 2, LEVELS - 1, LEVELS, 30_000])
def test_check_json_accepts_any_depth(depth: int) -> None:
    check_json(b'{"a":%b,"b":[%b]}' % (nested(depth), nested(depth)))


@each_case("levels", [0, 50, 99, 100, 101, 5000])
@each_case("wrong", [b"", b"x", b"[1 2]", b"{7:7}", b'"', b"]", b"[}", b"["])
def test_check_json_rejects_malformed_json_at_any_depth(
    levels: int, wrong: bytes
) -> None:
    body = b'{"a":' * levels + wrong + b"}" * levels

    with pytest.raises(DecodeError, match="not JSON"):
        check_json(body)

    with pytest.raises(DecodeError, match="not JSON"):
        truncate_nesting(body)


@pytest.mark.parametrize("depth", [1, 1500])
@given(value=values, style=styles)
@settings(max_examples=40)
def test_json_field_returns_bytes_of_field(depth: int, value: Any, style: str) -> None:
    front, behind = written({"x": value}, style), written([value], style)
    body = b'{"a":%b,"wanted":%b,"b":%b}' % (front, nested(depth), behind)

    assert json_field(body, "wanted") == nested(depth)
    assert json.loads(json_field(body, "a")) == {"x": value}
    assert json_field(body, "x") == b""


def test_json_field_returns_scalars() -> None:
    body = b'{"a":{},"text":"[0]","none":null,"number":7}'

    found = {name: json_field(body, name) for name in ("text", "none", "number")}

    assert found == {"text": b'"[0]"', "none": b"null", "number": b"7"}


def test_functions_take_linear_time() -> None:
    def cost(levels: int) -> int:
        body = nested(levels)
        return calls_of(lambda: (truncate_nesting(body), json_field(body, "a")))

    assert cost(20_000) < 2.2 * cost(10_000)
