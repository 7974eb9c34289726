"""Framing: the ends of watch lines and of items in list bodies.

Pure and synchronous: chunks of any size go in, whole pieces come out. Each byte is read
a bounded number of times, however the stream is split and however long a line or an
item is.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec

from aioinformer.errors import DecodeError
from aioinformer.model.deep_json import check_json

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ItemFramer", "LineFramer", "prove", "split_deep"]


class LineFramer:
    """Splitter of a byte stream into whole lines; keeps the incomplete last line."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        """Pieces of the incomplete line. No part has a newline."""

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes; return all complete lines, with their newlines."""
        end = chunk.rfind(b"\n") + 1
        if not end:
            if chunk:
                self.parts.append(chunk)

            return b""

        if end == len(chunk) and not self.parts:
            return chunk

        lines = b"".join((*self.parts, memoryview(chunk)[:end]))
        self.parts = [chunk[end:]] if end < len(chunk) else []
        return lines

    def rest(self) -> bytes:
        """Remove and return the bytes after the last newline."""
        rest = b"".join(self.parts)
        self.parts = []
        return rest


# After so many bytes without a proved border, the slower scan takes over. Nearly all
# lists have items of a few KiB that start with the same key.
_GUESSING_LIMIT: Final = 256 * 1024

# Bytes to remember for a border that is split between two chunks. Borders have the
# length of a key. A longer one is found once it is within a chunk.
_BORDER_REACH: Final = 256

# The start of all items: their type if they name it, and the next key. Parts of an item
# often start with a type as well (a managed field, an owner reference).
_BEGINNING: Final = re.compile(
    rb"""\s*(\{\s*
        (?:"(?:apiVersion|kind)"\s*:\s*"[^"\\]*"\s*,\s*)*+
        (?!"(?:apiVersion|kind)")"(?:[^"\\]|\\.)*+"\s*:
    )""",
    re.VERBOSE,
)

# The start of items of built-in kinds, which do not name their type in lists.
_SURE_BEGINNING: Final = b'{"metadata":{'
_METADATA: Final = b'"metadata":{'
_BEFORE_NEXT: Final = b"},{"
_BEFORE_INNER: Final = b":{"

# Bytes of a list that are proved in any case. A server that writes lists otherwise does
# so from the start, and a shorter list is cheap.
_PROVED_BYTES: Final = 64 * 1024

_decode_array: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class ItemFramer:
    """Splitter of the items of a list body, from after its `[`, while they arrive.

    The fast method guesses a border, and proves it. All items usually start alike, so
    the last `},{"metadata":` in the bytes is probably a border of two items. If the
    text before it decodes as a JSON array, the guess is right: the text starts at an
    item, and only a border of items leaves all brackets closed. If a guess fails, or
    none is found for long, the rest of the list is scanned for brackets instead.

    Proving reads every byte, which is half of the work for a list. If only a border can
    look like one (see `has_sure_borders`), it is done only until the list is known to
    be written as expected. If a server then wrote an item without metadata, or with
    other white space, that item would be taken for the end of the one before.

    The returned items refer to a buffer of all of them: copy what is kept.

    Args:
        sure: True for a list of a kind whose borders need no proof. The bytes between
            them may then be malformed; use `prove` if an item cannot be read.
    """

    __slots__ = ("_border", "_parts", "_proved", "_recent", "_scan", "_size", "_sure")

    def __init__(self, *, sure: bool = False) -> None:
        # Invariant: the parts begin at an item, or at white space before one.
        self._parts: list[bytes] = []
        self._size = 0
        self._recent = b""
        self._border = b""
        self._scan: _BracketScan | None = None
        self._sure = sure
        self._proved = 0

    def feed(self, chunk: bytes) -> list[memoryview]:
        """Take the next bytes; return the items that are complete, in order.

        Raises:
            DecodeError: If the text between borders is not JSON.
        """
        if not chunk:
            return []

        self._parts.append(chunk)
        self._size += len(chunk)
        if self._scan is not None:
            return self._scanned(self._scan, chunk)

        comma = self._guess(chunk)
        self._recent = (self._recent + chunk[-_BORDER_REACH:])[-_BORDER_REACH:]
        if comma > 0:
            try:
                return self._take(comma, self._choose(comma))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return self._start_scanning()

        return self._start_scanning() if self._size > _GUESSING_LIMIT else []

    def rest(self) -> bytes:
        """Remove and return the remaining bytes: the last items, and later fields."""
        rest = b"".join(self._parts)
        self._parts = []
        self._size = 0
        return rest

    def _guess(self, chunk: bytes) -> int:
        """Return the position of the comma of the last supposed border, or <= 0."""
        if not self._border and not self._learn_border():
            return -1

        before = self._size - len(chunk)
        found = chunk.rfind(self._border)
        if found >= 0:
            return before + found + 1

        # It may be split between this chunk and those before.
        edge = self._recent + chunk[:_BORDER_REACH]
        found = edge.rfind(self._border)
        return before - len(self._recent) + found + 1 if found >= 0 else -1

    def _learn_border(self) -> bool:
        if self._size > 2 * _BORDER_REACH and len(self._parts) > 1:
            return False  # it is at the very start, or nowhere

        start = b"".join(self._parts)
        first = _BEGINNING.match(start)
        if first is None:
            return False

        self._border = b"}," + first.group(1)
        self._sure &= start.startswith(_SURE_BEGINNING, first.start(1))
        return True

    def _choose(self, size: int) -> Callable[[bytes], list[memoryview]]:
        """Return the function that splits the next bytes."""
        if self._proved > _PROVED_BYTES:
            return _cut_items

        if self._sure:
            self._proved += size

        return _prove_items

    def _start_scanning(self) -> list[memoryview]:
        self._scan = _BracketScan()
        self._parts = [b"".join(self._parts)]
        return self._scanned(self._scan, self._parts[0])

    def _scanned(self, scan: _BracketScan, chunk: bytes) -> list[memoryview]:
        commas = scan.commas(chunk)
        if not commas:
            return []

        try:
            return self._take(self._size - len(chunk) + commas[-1], _split)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise DecodeError(f"cannot read list items: {exc}") from exc

    def _take(
        self, comma: int, split: Callable[[bytes], list[memoryview]]
    ) -> list[memoryview]:
        """Split the bytes before a comma; keep those after it.

        Nothing has changed if it raises.
        """
        last = self._parts[-1]
        cut = comma - (self._size - len(last))
        if cut < 0:
            last = b"".join(self._parts)
            self._parts = [last]
            cut = comma

        before = self._parts[:-1]
        items = split(b"".join((b"[", *before, memoryview(last)[:cut], b"]")))

        tail = last[cut + 1 :]
        self._parts = [tail] if tail else []
        self._size = len(tail)
        return items


def _prove_items(array: bytes) -> list[memoryview]:
    return [memoryview(it) for it in _decode_array(array)]


def _cut_items(array: bytes) -> list[memoryview]:
    """Split an array of objects that start with their metadata, without a proof.

    In a JSON string a quote is written \", so a match is a key. After a brace and a
    comma it starts an item of an array. Other metadata in objects of these kinds is not
    in arrays, but the value of a key.
    """
    items = []
    view = memoryview(array)
    start, found = 1, 2
    while (found := array.find(_METADATA, found + 1)) > 0:
        if array.startswith(_BEFORE_NEXT, found - 3):
            items.append(view[start : found - 2])
            start = found - 1
        elif not array.startswith(_BEFORE_INNER, found - 2):
            return _prove_items(array)  # not written as expected

    items.append(view[start:-1])
    return items


def split_deep(text: bytes) -> tuple[list[bytes], bytes]:
    """Split the items of a list of which some nest too deeply to be decoded.

    Args:
        text: Text after the opening bracket of the list.

    Returns:
        Items, and the text after the closing bracket of the list.

    Raises:
        DecodeError: If the list is incomplete, or an item is not JSON.
    """
    scan = _BracketScan()
    commas = scan.commas(text)
    if text[scan.end : scan.end + 1] != b"]":
        raise DecodeError("list is incomplete")

    edges = pairwise((-1, *commas, scan.end))
    pieces = [text[start + 1 : end].strip() for start, end in edges]
    items = [] if pieces == [b""] else pieces
    for item in items:
        prove(item)

    return items, text[scan.end + 1 :]


def _split(array: bytes) -> list[memoryview]:
    try:
        return _prove_items(array)
    except RecursionError:
        return [memoryview(it) for it in split_deep(array[1:])[0]]


def prove(item: bytes | memoryview) -> None:
    """Check that an item is JSON, however deep it nests.

    Raises:
        DecodeError: If it is not.
    """
    try:
        check_json(item)
    except DecodeError as exc:
        raise DecodeError(f"cannot read list items: {exc}") from exc


class _BracketScan:
    """Scanner that follows brackets and strings, chunk by chunk."""

    __slots__ = ("_depth", "_escaped", "_in_string", "end")

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self.end = -1
        """Position of the list's own closing bracket in the last chunk; -1 before that."""

    def commas(self, chunk: bytes) -> list[int]:
        """Return the positions of the commas between items in `chunk`."""
        found: list[int] = []
        at = self._leave_string(chunk, 0) if self._in_string else 0
        while self.end < 0:
            at = (_INSIDE if self._depth else _BETWEEN)(chunk, at)
            if at == len(chunk):
                break

            at += 1
            match chunk[at - 1 : at]:
                case b'"':
                    self._in_string = True
                    at = self._leave_string(chunk, at)
                case b"{" | b"[":
                    self._depth += 1
                case b"}" | b"]" if self._depth:
                    self._depth -= 1
                case b",":
                    found.append(at - 1)
                case _:
                    self.end = at - 1

        return found

    def _leave_string(self, chunk: bytes, at: int) -> int:
        """Return the position after the closing quote, or the end of the chunk."""
        if self._escaped:
            self._escaped = False
            at += 1

        at = _TEXT(chunk, at)
        if at == len(chunk):
            return at

        # A closing quote, or a backslash that is the last byte of the chunk.
        self._escaped = chunk[at : at + 1] == b"\\"
        self._in_string = self._escaped
        return at + 1


def _skipping(pattern: bytes) -> Callable[[bytes, int], int]:
    """Return a function that finds the end of a match of `pattern`.

    The match may be empty.
    """
    match = re.compile(pattern, re.DOTALL).match

    def skip(data: bytes, at: int) -> int:
        found = match(data, at)
        assert found is not None
        return found.end()

    return skip


# Each text matches these in one way only (a run of characters, then a string, then the
# next run, ...), so a failed attempt steps back once over what it read, no more. (The
# possessive repeats of Python 3.11 would not step back at all, but match wrongly before
# 3.11.5.) Within an item, whole strings and the innermost brackets are skipped at once:
# five times as fast as stopping at each of them.
_TEXT_PATTERN: Final = rb'[^"\\]*(?:\\.[^"\\]*)*'
_PLAIN_PATTERN: Final = rb'[^{}\[\]"]*(?:"%s"[^{}\[\]"]*)*' % _TEXT_PATTERN
_INNERMOST_PATTERN: Final = rb"\{%s\}|\[%s\]" % (_PLAIN_PATTERN, _PLAIN_PATTERN)
_TEXT: Final = _skipping(_TEXT_PATTERN)
_INSIDE: Final = _skipping(
    rb"%s(?:(?:%s)%s)*" % (_PLAIN_PATTERN, _INNERMOST_PATTERN, _PLAIN_PATTERN)
)
_BETWEEN: Final = _skipping(rb'[^{}\[\]",]*')
