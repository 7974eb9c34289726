"""Writers: JSON in the forms that clients ask for, whatever it says.

All take JSON without blanks, which is how objects are stored, and the compact writer
passes it on. Lists are written item by item, so that a long one is never held twice.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

import orjson
import yaml

from aioinformer_apiserver.serialization.negotiation import JSON, YAML
from aioinformer_apiserver.storage.encoding import PIECE_BYTES, escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioinformer_apiserver.serialization.negotiation import Choice

__all__ = ["Writer", "indented", "writer_of"]


class Writer(Protocol):
    """Writes JSON in one form."""

    @property
    def media(self) -> str:
        """The media type of what is written."""

    def document(self, raw: bytes) -> bytes:
        """Write one object."""

    def listing(
        self, frame: bytes, key: str, items: Iterable[bytes]
    ) -> Iterator[bytes]:
        """Write an object that lists others, in pieces.

        Args:
            frame: The object, of which the list is empty: `"items":[]`.
            key: Of the list, at the top of the object.
            items: What belongs into it.
        """


class _Compact:
    media = JSON

    def document(self, raw: bytes) -> bytes:
        return raw + b"\n"

    def listing(
        self, frame: bytes, key: str, items: Iterable[bytes]
    ) -> Iterator[bytes]:
        # Inside of strings quotes are escaped, so this can be nothing but the list.
        before, mark, after = frame.partition(b'"%s":[' % key.encode())
        parts = _between(before + mark, items, b",", after + b"\n")
        return _packed(parts)


class _Pretty:
    media = JSON

    def document(self, raw: bytes) -> bytes:
        return indented(raw)

    def listing(
        self, frame: bytes, key: str, items: Iterable[bytes]
    ) -> Iterator[bytes]:
        mark = b'\n  "%s": [' % key.encode()
        before, mark, after = indented(frame).partition(mark)
        inner = (b"\n    " + _moved(indented(item), 4) for item in items)
        first = next(inner, None)
        if first is None:
            return iter([before + mark + after])

        rest = (b"," + item for item in inner)
        return _packed(_between(before + mark + first, rest, b"", b"\n  " + after))


class _YAML:
    media = YAML

    def document(self, raw: bytes) -> bytes:
        return _as_yaml(raw)

    def listing(
        self, frame: bytes, key: str, items: Iterable[bytes]
    ) -> Iterator[bytes]:
        text = b"\n" + _as_yaml(frame)
        before, mark, after = text.partition(b"\n%s: []\n" % key.encode())
        before = before.removeprefix(b"\n") + (b"\n" if before else b"")
        inner = (b"- " + _moved(_as_yaml(item), 2) + b"\n" for item in items)
        first = next(inner, None)
        if first is None:
            return iter([before + mark.removeprefix(b"\n") + after])

        head = before + b"%s:\n" % key.encode() + first
        return _packed(_between(head, inner, b"", after))


def writer_of(choice: Choice) -> Writer:
    """Return the writer of the format that was chosen."""
    if choice.media == YAML:
        return _YAML()

    return _Pretty() if choice.pretty else _Compact()


def _between(
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


def _packed(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Join parts to pieces of `PIECE_BYTES` or a little over."""
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


def _moved(text: bytes, columns: int) -> bytes:
    """Indent all lines but the first one."""
    return text.rstrip(b"\n").replace(b"\n", b"\n" + b" " * columns)


def indented(raw: bytes) -> bytes:
    """Write JSON for people to read."""
    text = json.dumps(orjson.loads(raw), indent=2, ensure_ascii=False)
    # What was escaped has been read, and is escaped again.
    return escaped(text.encode())


# ------------------------------------------------------------------------ YAML


# Truth values of YAML 1.1, which not all of its readers know.
_LETTERS = frozenset({"y", "Y", "n", "N"})


class _Dumper(yaml.SafeDumper):
    """Writes YAML in the style that users of Kubernetes know."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    """Quote what could be read as something else; keep the lines of long texts."""
    tag = "tag:yaml.org,2002:str"
    resolved = dumper.resolve(yaml.ScalarNode, value, (True, False))  # type: ignore[no-untyped-call]
    style: str | None = None
    if "\n" in value:
        # Blank lines around a text are part of it, which only quotes keep for sure.
        style = "|" if value.removesuffix("\n") == value.strip() else '"'
    elif resolved != tag or value in _LETTERS or _is_number(value):
        style = '"'

    return dumper.represent_scalar(tag, value, style=style)


def _is_number(value: str) -> bool:
    """Say whether some reader of YAML may take this for a number, such as `1e3`."""
    try:
        float(value)
    except ValueError:
        return False

    return True


_Dumper.add_representer(str, _text)


def _as_yaml(raw: bytes) -> bytes:
    value: Any = orjson.loads(raw)
    text: str = yaml.dump(
        value, Dumper=_Dumper, allow_unicode=True, default_flow_style=False
    )
    return text.encode()
