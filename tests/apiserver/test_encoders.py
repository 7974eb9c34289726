"""Encoders: compact JSON, indented JSON and YAML with the same content."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
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
@settings(max_examples=30)
@given(items=st.lists(st.dictionaries(st.text(), VALUES, max_size=3), max_size=3))
def test_encoders_keep_content_of_list(choice: Choice, items: list[Any]) -> None:
    assert read(choice, as_list(choice, items)) == {**LIST, "items": items}


@pytest.mark.parametrize("place", ["{}", "a{}b", "a\nb{}c", "{}\nb"])
def test_yaml_encoder_escapes_unicode_line_breaks(place: str) -> None:
    for code in (0x7F, 0x80, 0x85, 0x9F, 0x2028, 0x2029, 0xFEFF):
        text = place.format(chr(code))
        body = {text: text}

        written = encoder_of(YAML).document(plain(body))

        assert yaml.safe_load(written) == body, hex(code)
        # Readers of YAML 1.1 and 1.2 interpret them differently.
        assert chr(code) not in written.decode(), hex(code)


@pytest.mark.parametrize("choice", [COMPACT, PRETTY, YAML], ids=str)
def test_encoders_return_same_bytes_for_list_and_document(choice: Choice) -> None:
    for count in (0, 1, 3):
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


def test_yaml_encoder_quotes_ambiguous_values() -> None:
    texts: list[tuple[object, str]] = [
        ("plain", "plain"),
        ("12", '"12"'),
        ("1e3", '"1e3"'),
        ("0o17", '"0o17"'),
        ("infinity", "infinity"),
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
    ]
    for value, text in texts:
        written = encoder_of(YAML).document(plain({"a": value})).decode()

        assert written == f"a:{text if text.startswith(chr(10)) else ' ' + text}\n"
