"""JSON by msgspec equals JSON by orjson, which may be missing."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import importlib.util
import json
import sys
import uuid
from typing import TYPE_CHECKING, Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioinformer import _msgspec_json as fallback
from aioinformer import json_codec

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Real(float):
    pass


class Pair(tuple[int, ...]):
    __slots__ = ()


class Names(dict[str, int]):
    pass


class Phase(enum.Enum):
    RUNNING = "Running"


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Point:
    x: int = 1
    inner: dict[str, int] = dataclasses.field(default_factory=lambda: {"a": 1})
    _hidden: int = 2


class Record(msgspec.Struct):
    a: int = 1


def outcome(function: Callable[..., Any], *args: Any, **options: Any) -> str:
    """Return the result, or the kind of the error."""
    try:
        return repr(function(*args, **options))
    except json.JSONDecodeError:
        return "JSONDecodeError"
    except TypeError as exc:
        return f"TypeError: {exc}"


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def loaded(*, without_orjson: bool) -> ModuleType:
    """Load `json_codec` again, as another module."""
    spec = importlib.util.find_spec("aioinformer.json_codec")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        if without_orjson:
            patch.setitem(sys.modules, "orjson", None)
        spec.loader.exec_module(module)

    return module


def test_codec_is_orjson_if_installed() -> None:
    assert loaded(without_orjson=False).loads is orjson.loads
    assert loaded(without_orjson=False).dumps is orjson.dumps


def test_codec_is_msgspec_without_orjson() -> None:
    module = loaded(without_orjson=True)

    assert module.loads is fallback.loads
    assert module.dumps is fallback.dumps
    for name in module.__all__:
        assert hasattr(module, name), name


def test_errors_of_both_are_caught_by_the_same_names() -> None:
    for loads in (orjson.loads, fallback.loads):
        with pytest.raises(json_codec.JSONDecodeError):
            loads(b"{")
    for dumps in (orjson.dumps, fallback.dumps):
        with pytest.raises(TypeError, match="not JSON serializable"):
            dumps(object())


@pytest.mark.parametrize(
    "text",
    [
        b"18446744073709551615",
        b"18446744073709551616",
        b"-9223372036854775808",
        b"[-9223372036854775809]",
        b'{"a": {"b": [1, 123456789012345678901234567890]}}',
        b'"123456789012345678901234567890"',
        b"1" + b"0" * 400,
        b"1e400",
        b"-0",
        b"-0.0",
        b"1E5",
        b"9007199254740993.0",
        b"NaN",
        b"-Infinity",
        rb'"\ud800"',
        rb'"\udc00\ud800"',
        rb'"\ud83d\ude00"',
        b'"\xff"',
        b'{"\xff": 1}',
        b'"\xed\xa0\x80"',
        b'"a\nb"',
        b'"\x7f\xc3\xa9"',
        b'{"a": 1, "b": 2, "a": 3}',
        b"",
        b" ",
        b"\xef\xbb\xbf1",
        b"[1,]",
        b"[1] x",
        b"01",
        b"1.",
        b"{1: 2}",
        b"tru",
        b"1\x00",
        b" \t\r\n1 ",
        "é",
        '"é"',
        '"\ud800"',
        bytearray(b"[1]"),
        memoryview(b"[1]"),
        None,
        1,
        b"[" * 90 + b"1" + b"]" * 90,
        b"[" * 1025 + b"]" * 1025,
        b"[" * 200_000,
        b"[" + b"[]," * 2000 + b"[]]",
    ],
)
def test_decoding_agrees(text: Any) -> None:
    assert outcome(fallback.loads, text) == outcome(orjson.loads, text)


@pytest.mark.parametrize(
    ("text", "position"),
    [(b'{"a": x}', 6), (b'{"\xc3\xa9": x}', 6), ('{"é": x}', 6), (b'["a', 3)],
)
def test_decode_error_has_the_position_in_characters(text: Any, position: int) -> None:
    for loads in (orjson.loads, fallback.loads):
        with pytest.raises(json_codec.JSONDecodeError) as caught:
            loads(text)

        assert caught.value.pos == position


@pytest.mark.parametrize("option", [None, 0, orjson.OPT_INDENT_2, orjson.OPT_SORT_KEYS])
@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        2**64 - 1,
        2**64,
        [-(2**63) - 1],
        [0.1, 1.0, -0.0, 1e15, 1e16, -1.5e300, 1e-7, 5e-324, 1.7976931348623157e308],
        [float("nan"), float("inf"), -float("inf")],
        ["\ud800"],
        {"\ud800": 1},
        'a\x00\x1f\x7f\u2028é\U0001f600"\\/\n\t\b\f\r',
        {1: 2},
        {None: 1},
        {Text("a"): 1},
        {Level.HIGH: 1},
        [Text("a"), Number(3), Names(b=1, a=2), (1, (2,))],
        [Real(1.5)],
        [Pair((1,))],
        [Phase.RUNNING, Level.HIGH],
        dt.datetime(2020, 1, 2, 3, 4, 5, 600, tzinfo=dt.UTC),
        [dt.date(2020, 1, 2), dt.time(3, 4, 5)],
        [dt.time(3, 4, 5, tzinfo=dt.UTC)],
        [uuid.UUID(int=1)],
        [Record()],
        {1, 2},
        [b"x"],
        object(),
        {"b": 1, "a": {"é": 1, "z": 2, "": 3}, "ä": [], "c": {}, "d": [{}, [[]]]},
    ],
)
def test_encoding_agrees(value: Any, option: int | None) -> None:
    theirs = outcome(orjson.dumps, value, option=option)
    ours = outcome(fallback.dumps, value, option=option)

    assert ours == theirs


def test_data_class_is_encoded_by_its_public_fields() -> None:
    assert fallback.dumps([Point()]) == orjson.dumps([Point()])


def test_options_are_those_of_orjson() -> None:
    assert fallback.OPT_INDENT_2 == orjson.OPT_INDENT_2
    assert fallback.OPT_SORT_KEYS == orjson.OPT_SORT_KEYS


@pytest.mark.parametrize("levels", [254, 255, 5000])
def test_nesting_is_encoded_to_the_same_depth(levels: int) -> None:
    assert outcome(fallback.dumps, nested(levels)) == outcome(
        orjson.dumps, nested(levels)
    )


def test_default_converts_other_types_at_any_place() -> None:
    value = {"a": [decimal.Decimal("1.5"), {"b": {3}}], "c": Record()}

    def convert(it: object) -> Any:
        return msgspec.to_builtins(it) if isinstance(it, Record) else [str(it)]

    assert fallback.dumps(value, convert) == orjson.dumps(value, convert)
    assert fallback.dumps(value, default=convert) == orjson.dumps(value, convert)


def test_error_of_default_is_the_cause_of_the_type_error() -> None:
    def refuse(it: object) -> Any:
        raise ValueError("no")

    for dumps in (orjson.dumps, fallback.dumps):
        with pytest.raises(TypeError) as caught:
            dumps([{1}], refuse)

        assert str(caught.value) == "Type is not JSON serializable: set"
        assert isinstance(caught.value.__cause__, ValueError)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(exclude_categories=())),
    lambda it: st.lists(it) | st.dictionaries(st.text(), it),
)


@given(JSON_VALUES, st.sampled_from([0, 1, 32, 33]))
def test_every_value_is_encoded_alike(value: Any, option: int) -> None:
    ours = outcome(fallback.dumps, value, option=option)

    assert ours == outcome(orjson.dumps, value, option=option)


@given(JSON_VALUES, st.sampled_from([None, 1]))
def test_every_text_is_decoded_alike(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)

    assert outcome(fallback.loads, text) == outcome(orjson.loads, text)


@given(st.binary(max_size=20) | st.text('{}[]":,0123.eE-\\utrfnals', max_size=12))
def test_every_input_is_decoded_or_refused_alike(text: bytes | str) -> None:
    assert outcome(fallback.loads, text) == outcome(orjson.loads, text)
