"""JSON in the forms that clients ask for: what is written, and that it is the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from aioinformer_apiserver.serialization.encoders import encoder_of
from aioinformer_apiserver.serialization.negotiation import Choice
from aioinformer_apiserver.storage.encoding import PIECE_BYTES, plain

COMPACT = Choice()
PRETTY = Choice(pretty=True)
YAML = Choice(media="application/yaml")

LIST = {"kind": "List", "items": [], "metadata": {"resourceVersion": "7"}}


VALUES = st.text() | st.integers(-(2**53), 2**53) | st.booleans() | st.none()


def read(choice: Choice, text: bytes) -> Any:
    return yaml.safe_load(text) if choice == YAML else json.loads(text)


def as_list(choice: Choice, items: list[Any]) -> bytes:
    pieces = encoder_of(choice).listing(plain(LIST), "items", map(plain, items))
    return b"".join(pieces)


@pytest.mark.parametrize("choice", [COMPACT, PRETTY, YAML], ids=str)
@given(items=st.lists(st.dictionaries(st.text(), VALUES, max_size=3), max_size=3))
def test_encoders_keep_content_of_list(choice: Choice, items: list[Any]) -> None:
    assert read(choice, as_list(choice, items)) == {**LIST, "items": items}


@pytest.mark.parametrize("place", ["{}", "a{}b", "a\nb{}c", "{}\nb"])
@pytest.mark.parametrize(
    "code", [0x7F, 0x80, 0x85, 0x9F, 0x2028, 0x2029, 0xFEFF], ids="{:04x}".format
)
def test_yaml_encoder_escapes_unicode_line_breaks(code: int, place: str) -> None:
    text = place.format(chr(code))
    body = {text: text}

    written = encoder_of(YAML).document(plain(body))

    assert yaml.safe_load(written) == body
    # Unescaped, they mean different things to readers of YAML 1.1 and 1.2.
    assert chr(code) not in written.decode()


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("choice", [COMPACT, PRETTY, YAML], ids=str)
def test_encoders_return_same_bytes_for_list_and_document(
    choice: Choice, count: int
) -> None:
    items = [{"name": f"n{number}", "lines": "a\nb"} for number in range(count)]

    whole = encoder_of(choice).document(plain({**LIST, "items": items}))

    assert as_list(choice, items) == whole


@pytest.mark.parametrize("choice", [COMPACT, PRETTY, YAML], ids=str)
def test_encoders_consume_items_lazily(choice: Choice) -> None:
    made = 0

    def items() -> Any:
        nonlocal made
        for _ in range(100):
            made += 1
            yield plain({"text": "x" * PIECE_BYTES})

    pieces = encoder_of(choice).listing(plain(LIST), "items", items())
    next(pieces)

    assert made <= 2


@pytest.mark.parametrize("choice", [COMPACT, PRETTY, YAML], ids=str)
def test_encoders_return_empty_list_in_one_piece(choice: Choice) -> None:
    assert len(list(encoder_of(choice).listing(plain(LIST), "items", []))) == 1


def test_compact_encoder_appends_newline() -> None:
    assert encoder_of(COMPACT).document(b'{"a":1}') == b'{"a":1}\n'


def test_pretty_encoder_escapes_as_go() -> None:
    text = encoder_of(PRETTY).document(plain({"a": "<&>", "b": [], "c": {}, "d": "é"}))

    assert text.decode() == (
        '{\n  "a": "\\u003c\\u0026\\u003e",\n  "b": [],\n  "c": {},\n  "d": "é"\n}'
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("12", '"12"'),
        ("1e3", '"1e3"'),
        ("true", '"true"'),
        ("y", '"y"'),
        ("2025-01-01T00:00:00Z", '"2025-01-01T00:00:00Z"'),
        ("", '""'),
        ("a\nb\n", "|\n  a\n  b"),
        ("a: b", "'a: b'"),
        (12, "12"),
        (None, "null"),
        ({}, "{}"),
        ([1], "\n- 1"),
    ],
)
def test_yaml_encoder_quotes_ambiguous_values(value: object, text: str) -> None:
    written = encoder_of(YAML).document(plain({"a": value})).decode()

    assert written == f"a:{text if text.startswith(chr(10)) else ' ' + text}\n"
