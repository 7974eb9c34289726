"""Syntax trees of CEL expressions: what the contract tests of shards do not cover."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aioinformer.errors import ApiError
from aioinformer_apiserver.requests.cel import (
    CELError,
    Expression,
    ExpressionKind,
    parse_cel,
)
from aioinformer_apiserver.requests.shard_selectors import shard_selector_of

UID, ZERO, HALF = (
    "object.metadata.uid",
    "'0x0000000000000000'",
    "'0x8000000000000000'",
)
WORDS = st.sampled_from(
    [
        *("shardRange", "(", ")", ",", "||", "&&", "?", ":", "[", "]", "{", "}", "!"),
        *("-", "+", "==", "in", ".", "a", "as", "null", "1", "0x", "1u", "1e5", "''"),
        *("'''", '"', "'", "r'", "b", "\\", "`a`", "|", "//", "\n", " ", "é", "\0"),
        *(UID, ZERO, HALF, "'0x10000000000000000'"),
    ]
)


@given(st.lists(WORDS, max_size=15).map("".join))
@example("\ud800")
@example("'\\U00110000'")
@example("9" * 5000)
@example("-" * 5000 + "1")
@example("!" * 5000)
@example("[" * 5000)
@example("a." * 5000 + "a")
@example("f(" * 5000)
@example(f"shardRange({'a.' * 5000}a, 1, 2)")
@example("a ? " * 5000)
@example("1+" * 5000 + "1")
@example("'" * 5001)
@example("||".join([f"shardRange({UID},{ZERO},{HALF})"] * 500))
def test_any_text_is_a_selector_or_an_error_of_the_server(text: str) -> None:
    with contextlib.suppress(ApiError):
        found = shard_selector_of(text)
        assert not text or shard_selector_of(str(found)) == found


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("a || b && c", "_||_"),
        ("(a || b) && c", "_&&_"),
        ("a && b == c", "_&&_"),
        ("a == b + c", "_==_"),
        ("a + b * c", "_+_"),
        ("a * b + c", "_+_"),
        ("(a + b) * c", "_*_"),
        ("a - b - c", "_-_"),
        ("-a + b", "_+_"),
        ("!a.b", "!_"),
        ("---a", "-_"),
        ("a ? b : c ? d : e", "_?_:_"),
        ("a || b ? c : d", "_?_:_"),
        ("a.b[c].d(e)[f]", "_[_]"),
        ("a.b[c].d(e)", "d"),
    ],
)
def test_outermost_operator_binds_loosest(text: str, function: str) -> None:
    found = parse_cel(text)

    assert (found.kind, found.name) == (ExpressionKind.CALL, function)


def test_operators_of_one_level_bind_from_the_left() -> None:
    found = parse_cel("a - b - c")

    assert [it.name for it in found.parts] == ["_-_", "c"]


def test_even_number_of_negations_is_none() -> None:
    assert parse_cel("--a") == parse_cel("!!a") == Expression(ExpressionKind.IDENT, "a")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"'a\n\t\'\"\\\?\`'", "a\n\t'\"\\?`"),
        (r"'\x41\u00e9\U0001F600\101'", "Aé😀A"),
        (r"r'\x41'", r"\x41"),
        ("'''a'b\r\nc'''", "a'b\nc"),
        ('R"""a"b"""', 'a"b'),
        ("''", ""),
    ],
)
def test_string_literal_is_unquoted(text: str, value: str) -> None:
    assert parse_cel(text).text == value


@pytest.mark.parametrize(
    "text", ["18446744073709551616u", "-9223372036854775809", "0x10000000000000000"]
)
def test_number_out_of_range_is_an_error(text: str) -> None:
    with pytest.raises(CELError, match=r"invalid u?int literal"):
        parse_cel(text)


def test_smallest_integer_is_a_literal() -> None:
    assert parse_cel("-9223372036854775808").name == "int64"
