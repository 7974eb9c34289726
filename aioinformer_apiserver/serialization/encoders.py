"""Encoders: stored JSON as compact JSON, indented JSON or YAML.

All take compact JSON, the form in which objects are stored. They encode lists item by
item, so that a long list is never in memory twice.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

import yaml

from aioinformer import json_codec
from aioinformer.model.yaml_values import YAMLDumper
from aioinformer_apiserver.serialization.negotiation import JSON, YAML
from aioinformer_apiserver.storage.encoding import PIECE_BYTES, escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioinformer_apiserver.serialization.negotiation import Choice

__all__ = ["Encoder", "encoder_of", "indent_json"]


class Encoder(Protocol):
    """Encoder for one format."""

    @property
    def media(self) -> str:
        """Media type of the output."""

    def document(self, raw: bytes) -> bytes:
        """Encode one object."""

    def listing(
        self, frame: bytes, key: str, items: Iterable[bytes]
    ) -> Iterator[bytes]:
        """Encode an object with a list, in pieces.

        Args:
            frame: The object with an empty list: `"items":[]`.
            key: Key of the list, at the top level of the object.
            items: Items of the list.
        """


class _Compact:
    media = JSON

    def document(self, raw: bytes) -> bytes:
        return raw + b"\n"

    def listing(
        self, frame: bytes, key: str, items: Iterable[bytes]
    ) -> Iterator[bytes]:
        # Quotes are escaped within strings, so this can only be the list.
        before, mark, after = frame.partition(b'"%s":[' % key.encode())
        parts = _join_items(before + mark, items, b",", after + b"\n")
        return _pack(parts)


class _Pretty:
    media = JSON

    def document(self, raw: bytes) -> bytes:
        return indent_json(raw)

    def listing(
        self, frame: bytes, key: str, items: Iterable[bytes]
    ) -> Iterator[bytes]:
        mark = b'\n  "%s": [' % key.encode()
        before, mark, after = indent_json(frame).partition(mark)
        inner = (b"\n    " + _indent_lines(indent_json(item), 4) for item in items)
        first = next(inner, None)
        if first is None:
            return iter([before + mark + after])

        rest = (b"," + item for item in inner)
        return _pack(_join_items(before + mark + first, rest, b"", b"\n  " + after))


class _YAML:
    media = YAML

    def document(self, raw: bytes) -> bytes:
        return _to_yaml(raw)

    def listing(
        self, frame: bytes, key: str, items: Iterable[bytes]
    ) -> Iterator[bytes]:
        text = b"\n" + _to_yaml(frame)
        before, mark, after = text.partition(b"\n%s: []\n" % key.encode())
        before = before.removeprefix(b"\n") + (b"\n" if before else b"")
        inner = (b"- " + _indent_lines(_to_yaml(item), 2) + b"\n" for item in items)
        first = next(inner, None)
        if first is None:
            return iter([before + mark.removeprefix(b"\n") + after])

        head = before + b"%s:\n" % key.encode() + first
        return _pack(_join_items(head, inner, b"", after))


def encoder_of(choice: Choice) -> Encoder:
    """Return the encoder for the negotiated format."""
    if choice.media == YAML:
        return _YAML()

    return _Pretty() if choice.pretty else _Compact()


def _join_items(
    before: bytes, items: Iterable[bytes], separator: bytes, after: bytes
) -> Iterator[bytes]:
    yield before
    first = True
    for item in items:
        if separator and not first:
            yield separator

        yield item
        first = False

    yield after


def _pack(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Join parts to pieces of `PIECE_BYTES` or slightly more."""
    waiting: list[bytes] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= PIECE_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0

    if waiting:
        yield b"".join(waiting)


def _indent_lines(text: bytes, columns: int) -> bytes:
    """Indent all lines except the first."""
    return text.rstrip(b"\n").replace(b"\n", b"\n" + b" " * columns)


def indent_json(raw: bytes) -> bytes:
    """Return indented JSON."""
    text = json.dumps(json_codec.loads(raw), indent=2, ensure_ascii=False)
    # Decoding has removed the escapes of Go.
    return escape(text.encode())


# ------------------------------------------------------------------------ YAML


# PyYAML writes these as line breaks, unless they are in double quotes. A reader turns
# U+0085 into a newline, and a reader of YAML 1.2 adds indentation after the others.
_UNICODE_BREAKS = frozenset("\x85\u2028\u2029")


class _Dumper(YAMLDumper):
    """Dumper in the style of `kubectl get -o yaml`."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    """Quote ambiguous texts, and keep the lines of multi-line texts."""
    tag = "tag:yaml.org,2002:str"
    resolved = dumper.resolve(yaml.ScalarNode, value, (True, False))  # type: ignore[no-untyped-call]
    style: str | None = None
    if _UNICODE_BREAKS & set(value):
        style = '"'
    elif "\n" in value:
        # Only quotes keep leading and trailing blank lines in every case.
        style = "|" if value.removesuffix("\n") == value.strip() else '"'
    elif resolved != tag:
        style = '"'

    return dumper.represent_scalar(tag, value, style=style)


_Dumper.add_representer(str, _text)


def _to_yaml(raw: bytes) -> bytes:
    value: Any = json_codec.loads(raw)
    text: str = yaml.dump(
        value, Dumper=_Dumper, allow_unicode=True, default_flow_style=False
    )
    return text.encode()
