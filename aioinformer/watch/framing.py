"""Framing: the ends of watch lines and of items in list bodies.

Pure and synchronous: chunks of any size go in, whole pieces come out. Each byte is read
a bounded number of times, however the stream is split and however long a line or an
item is.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

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

# Bytes within which the first item must show how items begin: it is a type and a key.
_BEGINNING_BYTES: Final = 512

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

_OPENING, _COMMA, _CLOSING = b"[,]"

# Function that splits the items between the brackets of an array.
_Split: TypeAlias = "Callable[[bytearray, int, int], list[memoryview]]"

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

    The returned items are valid until the next call: copy what is kept.

    Args:
        sure: True for a list of a kind whose borders need no proof. The bytes between
            them may then be malformed; use `prove` if an item cannot be read.
    """

    __slots__ = ("_border", "_buffer", "_end", "_proved", "_scan", "_start", "_sure")

    def __init__(self, *, sure: bool = False) -> None:
        # Bytes from `_start` to `_end` begin at an item, or at white space before one.
        # The byte before them is free for a bracket.
        self._buffer = bytearray()
        self._start = 1
        self._end = 1
        self._border = b""
        self._scan: _BracketScan | None = None
        self._sure = sure
        self._proved = 0

    def feed(self, chunk: bytes | memoryview) -> list[memoryview]:
        """Take the next bytes; return the items that are complete, in order.

        Raises:
            DecodeError: If the text between borders is not JSON.
        """
        if not chunk:
            return []

        new = self._append(chunk)
        if self._scan is not None:
            return self._scanned(self._scan, new)

        comma = self._guess(new)
        if comma > 0:
            try:
                return self._take(comma, self._choose(comma - self._start))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return self._start_scanning()

        held = self._end - self._start
        return self._start_scanning() if held > _GUESSING_LIMIT else []

    def rest(self) -> bytes:
        """Remove and return the remaining bytes: the last items, and later fields."""
        rest = bytes(memoryview(self._buffer)[self._start : self._end])
        self._start = self._end = 1
        return rest

    def _append(self, chunk: bytes | memoryview) -> int:
        """Copy bytes behind those that are kept; return their position."""
        held = self._end - self._start
        new, end = 1 + held, 1 + held + len(chunk)
        if self._start > 1 or end > len(self._buffer):
            kept = memoryview(self._buffer)[self._start : self._end]
            if end > len(self._buffer):
                # With room for a next chunk of this size, and the start of an item.
                size = max(end + len(chunk) // 4, 2 * len(self._buffer))
                self._buffer = bytearray(size)

            memoryview(self._buffer)[1:new] = kept

        # Not to the buffer itself, which would copy the chunk to new memory first.
        memoryview(self._buffer)[new:end] = chunk
        self._start, self._end = 1, end
        return new

    def _guess(self, new: int) -> int:
        """Return the position of the comma of the last supposed border, or <= 0.

        Args:
            new: Position of the bytes that were not searched.
        """
        if not self._border and not self._learn_border(new):
            return -1

        # It may begin in the bytes before.
        first = max(new - len(self._border), self._start)
        return self._buffer.rfind(self._border, first, self._end) + 1

    def _learn_border(self, new: int) -> bool:
        if new - self._start > _BEGINNING_BYTES:
            return False  # it was searched before

        first = _BEGINNING.match(self._buffer, self._start, self._end)
        if first is None:
            return False

        self._border = b"}," + first.group(1)
        self._sure &= self._buffer.startswith(_SURE_BEGINNING, first.start(1))
        return True

    def _choose(self, size: int) -> _Split:
        """Return the function that splits the next bytes."""
        if self._proved > _PROVED_BYTES:
            return _cut_items

        if self._sure:
            self._proved += size

        return _prove_items

    def _start_scanning(self) -> list[memoryview]:
        self._scan = _BracketScan()
        return self._scanned(self._scan, self._start)

    def _scanned(self, scan: _BracketScan, new: int) -> list[memoryview]:
        commas = scan.commas(bytes(memoryview(self._buffer)[new : self._end]))
        if not commas:
            return []

        try:
            return self._take(new + commas[-1], _split)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise DecodeError(f"cannot read list items: {exc}") from exc

    def _take(self, comma: int, split: _Split) -> list[memoryview]:
        """Split the bytes before a comma; keep those after it.

        Nothing has changed if it raises.
        """
        buffer = self._buffer
        buffer[self._start - 1] = _OPENING
        buffer[comma] = _CLOSING
        try:
            items = split(buffer, self._start, comma)
        except BaseException:
            buffer[comma] = _COMMA
            raise

        self._start = comma + 1
        return items


def _prove_items(text: bytearray, start: int, end: int) -> list[memoryview]:
    array = memoryview(text)[start - 1 : end + 1]
    return [memoryview(it) for it in _decode_array(array)]


def _cut_items(text: bytearray, start: int, end: int) -> list[memoryview]:
    """Split an array of objects that start with their metadata, without a proof.

    In a JSON string a quote is written \", so a match is a key. After a brace and a
    comma it starts an item of an array. Other metadata in objects of these kinds is not
    in arrays, but the value of a key.
    """
    items = []
    view = memoryview(text)
    first, found = start, start + 1
    while (found := text.find(_METADATA, found + 1, end)) > 0:
        if text.startswith(_BEFORE_NEXT, found - 3):
            items.append(view[first : found - 2])
            first = found - 1
        elif not text.startswith(_BEFORE_INNER, found - 2):
            return _prove_items(text, start, end)  # not written as expected

    items.append(view[first:end])
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


def _split(text: bytearray, start: int, end: int) -> list[memoryview]:
    try:
        return _prove_items(text, start, end)
    except RecursionError:
        items, _ = split_deep(bytes(memoryview(text)[start : end + 1]))
        return [memoryview(it) for it in items]


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
