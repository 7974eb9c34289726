"""Framing: where one watch line, or one item of a list body, ends and the next begins.

Pure and synchronous; bytes go in as the network cut them, whole pieces come out. Each
byte is looked at a bounded number of times, however the stream is cut and however long
a line or an item is.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from aioinformer.errors import DecodeError

__all__ = ["ItemFramer", "LineFramer"]


class LineFramer:
    """Cuts a stream of bytes behind its last newline and keeps the rest for later."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        # Invariant: no part holds a newline.
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes; return all complete lines, newlines included."""
        end = chunk.rfind(b"\n") + 1
        if not end:
            if chunk:
                self._parts.append(chunk)

            return b""

        if end == len(chunk) and not self._parts:
            return chunk

        lines = b"".join((*self._parts, memoryview(chunk)[:end]))
        self._parts = [chunk[end:]] if end < len(chunk) else []
        return lines

    def rest(self) -> bytes:
        """Hand over the bytes behind the last newline."""
        rest = b"".join(self._parts)
        self._parts = []
        return rest


# Without a border that could be proved for this long, the slower scan takes over.
# Nearly all lists have items of a few KiB that all begin with the same key.
_GUESSING_LIMIT: Final = 256 * 1024

# How many bytes to remember for a border that lies across two chunks; borders are the
# length of a key, and one that is longer is found as soon as it lies within a chunk.
_BORDER_REACH: Final = 256

_FIRST_KEY: Final = re.compile(rb'\s*(\{\s*"(?:[^"\\]|\\.)*"\s*:)')

_split = msgspec.json.Decoder(list[msgspec.Raw]).decode


class ItemFramer:
    """Splits the items of a list body, from behind its `[` on, while they arrive.

    The fast way guesses and proves: all items usually begin with the same key, so the
    last `},{"metadata":` in the bytes is probably a border between two items. If what
    stands before it decodes as a JSON array, it is one: the text begins at an item, and
    only a border between items leaves all brackets closed. Where a guess fails, or none
    is found for long, the rest of the list is scanned for brackets instead.

    The raw items that are returned refer to a buffer of all of them: copy what is kept.
    """

    __slots__ = ("_border", "_parts", "_recent", "_scan", "_size")

    def __init__(self) -> None:
        # Invariant: the parts begin at an item, or at white space before one.
        self._parts: list[bytes] = []
        self._size = 0
        self._recent = b""
        self._border = b""
        self._scan: _BracketScan | None = None

    def feed(self, chunk: bytes) -> list[msgspec.Raw]:
        """Take the next bytes; return the items that are complete, in order.

        Raises:
            DecodeError: What stands between the items' borders is not JSON.
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
                return self._take(comma)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return self._start_scanning()

        return self._start_scanning() if self._size > _GUESSING_LIMIT else []

    def rest(self) -> bytes:
        """Hand over what is left: the last item or two, and what stands behind."""
        rest = b"".join(self._parts)
        self._parts = []
        self._size = 0
        return rest

    def _guess(self, chunk: bytes) -> int:
        """Where the comma of the last supposed border stands; 0 or less if nowhere."""
        if not self._border and not self._learn_border():
            return -1

        before = self._size - len(chunk)
        found = chunk.rfind(self._border)
        if found >= 0:
            return before + found + 1

        # It may lie across the edge of this chunk and those before.
        edge = self._recent + chunk[:_BORDER_REACH]
        found = edge.rfind(self._border)
        return before - len(self._recent) + found + 1 if found >= 0 else -1

    def _learn_border(self) -> bool:
        if self._size > 2 * _BORDER_REACH and len(self._parts) > 1:
            return False  # no key at the very beginning: there will be none later

        first = _FIRST_KEY.match(b"".join(self._parts))
        if first is None:
            return False

        self._border = b"}," + first.group(1)
        return True

    def _start_scanning(self) -> list[msgspec.Raw]:
        self._scan = _BracketScan()
        self._parts = [b"".join(self._parts)]
        return self._scanned(self._scan, self._parts[0])

    def _scanned(self, scan: _BracketScan, chunk: bytes) -> list[msgspec.Raw]:
        comma = scan.last_border(chunk)
        if comma < 0:
            return []

        try:
            return self._take(self._size - len(chunk) + comma)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise DecodeError(f"list items that cannot be read: {exc}") from exc

    def _take(self, comma: int) -> list[msgspec.Raw]:
        """Split what stands before the comma; keep what stands behind it.

        Nothing has changed when it raises.
        """
        last = self._parts[-1]
        cut = comma - (self._size - len(last))
        if cut < 0:
            last = b"".join(self._parts)
            self._parts = [last]
            cut = comma

        before = self._parts[:-1]
        items = _split(b"".join((b"[", *before, memoryview(last)[:cut], b"]")))

        tail = last[cut + 1 :]
        self._parts = [tail] if tail else []
        self._size = len(tail)
        return items


class _BracketScan:
    """Follows brackets and strings through the bytes, chunk by chunk."""

    __slots__ = ("_depth", "_ended", "_escaped", "_in_string")

    _TOKEN = re.compile(rb'["{}\[\],]')
    _STRING_REST = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._ended = False

    def last_border(self, chunk: bytes) -> int:
        """Where the last comma between two items stands in `chunk`; -1 if nowhere."""
        found = -1
        at = 0
        while at < len(chunk) and not self._ended:
            if self._in_string:
                at = self._leave_string(chunk, at)
                continue

            token = self._TOKEN.search(chunk, at)
            if token is None:
                break

            at = token.end()
            match token.group():
                case b'"':
                    self._in_string = True
                case b"{" | b"[":
                    self._depth += 1
                case b"}" | b"]":
                    self._depth -= 1
                    self._ended = self._depth < 0  # the list's own bracket
                case _:
                    if self._depth == 0:
                        found = at - 1

        return found

    def _leave_string(self, chunk: bytes, at: int) -> int:
        if self._escaped:
            self._escaped = False
            at += 1

        end = self._STRING_REST.match(chunk, at)
        assert end is not None
        at = end.end()
        if at < len(chunk):
            if chunk[at] == 0x5C:  # a backslash, and the chunk ends behind it
                self._escaped = True
            else:
                self._in_string = False

            at += 1

        return at
