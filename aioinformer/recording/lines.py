"""Lines of a recording, to bytes and back. Pure.

A recording is a text of JSON lines, compressed with zstd: `zstdcat FILE` shows it. Each
line has the kind of entry in `e`, the seconds since the header in `t`, and, if it is
about an informer, the number of that informer in `s`. An object is in `o`, the last
field of its line, with the bytes that the server sent.

    header     {"aioinformer_recording":1,"started":"2026-01-31T09:00:00Z",...}
    INFORMER   name, resource and selection of the informer `s`
    SNAPSHOT   `n` lines LISTED follow: all objects of the informer
    LIST       `n` lines LISTED follow: objects of a list into an empty store
    LISTED     one of these objects
    SYNCED     the first complete list is in the store
    ADDED, MODIFIED, DELETED
               a change; `unknown` is true if a deletion was missed, `replaced` if the
               deletion of an earlier object of that name was missed, `moved` if the
               object left because the selection has changed
    RELIST     `n` of these changes follow, which a list has made
    STATUS     phase, failures in a row and last error of the informer
    END        the informer, or without `s` the recording, has ended

Readers ignore kinds and fields that they do not know. A change of what exists has
another number in the header.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from aioinformer.errors import DecodeError
from aioinformer.model.deep_json import truncate_nesting
from aioinformer.model.resource import Resource

__all__ = [
    "CHANGES",
    "FORMAT",
    "Header",
    "InformerLine",
    "Line",
    "change_line",
    "encoded",
    "parsed",
    "plain_line",
    "shifted",
    "split",
]

FORMAT: Final = 1
"""Number of the format."""

CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
"""Kinds of lines that have the state of an object after a change."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """First line of a recording, and of each part that was appended later."""

    aioinformer_recording: int
    """Number of the format."""

    started: str
    """Time at which `t` is 0, in UTC."""

    run: str = ""
    """Identifier of the recorder's run, the same in all files of one that was rotated."""

    program: str = ""
    """Program that made the recording, with its version."""

    names: str = "plain"
    """`"hashed"` if names of objects were replaced by hashes."""

    redacted: list[str] = msgspec.field(default_factory=list)
    """Fields whose values were replaced."""

    @property
    def moment(self) -> datetime:
        """Time at which `t` is 0.

        Raises:
            DecodeError: If it is no time.
        """
        try:
            return datetime.fromisoformat(self.started).astimezone(UTC)
        except (ValueError, OverflowError) as exc:
            raise DecodeError(f"recording begins at no time: {self.started!r}") from exc


class InformerLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Line that describes an informer."""

    t: float
    e: str
    s: int
    name: str = ""
    api_version: str = ""
    plural: str = ""
    kind: str = ""
    namespaced: bool = True
    namespaces: list[str] = msgspec.field(default_factory=list)
    label_selector: str = ""
    field_selector: str = ""
    follows: str = ""
    """Name of the informer of the program before, whose place it takes with other
    namespaces. Set by readers."""

    @property
    def resource(self) -> Resource:
        """Resource of the objects; one of no kind if the informer did not know it."""
        plural = self.plural or "objects"
        return Resource.of(
            self.api_version or "v1", plural, self.kind, namespaced=self.namespaced
        )


class Line(msgspec.Struct, gc=False):
    """Any line but the header and those of informers.

    Attributes:
        t: Seconds since the header.
        e: Kind of entry.
        s: Number of the informer; -1 for the recording itself.
        n: Number of lines that belong to this one.
        version: Resource version of the store.
        initial: True if the informer was not synced before this list.
        unknown: True if a deletion was missed.
        moved: True if the object left because of another selection.
        replaced: True if the deletion of an earlier object of its name was missed.
        phase: Phase of the informer.
        failures: Failures in a row.
        text: Explanation, such as the last error.
        o: JSON of the object; empty without one.
    """

    t: float
    e: str
    s: int = -1
    n: int = 0
    version: str = ""
    initial: bool = False
    unknown: bool = False
    moved: bool = False
    replaced: bool = False
    phase: str = ""
    failures: int = 0
    text: str = ""
    o: msgspec.Raw = msgspec.Raw(b"")


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Line).decode
_decode_header: Final = msgspec.json.Decoder(Header).decode
_decode_informer: Final = msgspec.json.Decoder(InformerLine).decode

_HEADER: Final = b'{"aioinformer_recording":'
_PREFIX: Final = {kind: kind.encode() for kind in (*sorted(CHANGES), "LISTED")}


def encoded(line: Header | InformerLine) -> bytes:
    """Return a line as bytes."""
    return _encode(line) + b"\n"


def plain_line(
    kind: str, seconds: float, informer: int = -1, **fields: object
) -> bytes:
    """Return a line without an object."""
    line: dict[str, object] = {"t": round(seconds, 6), "s": informer, "e": kind}
    if informer < 0:
        del line["s"]

    return _encode(line | fields) + b"\n"


def change_line(
    kind: str, seconds: float, informer: int, raw: bytes, more: bytes = b""
) -> bytes:
    """Return a line with an object.

    Args:
        kind: Kind of entry.
        seconds: Seconds since the header.
        informer: Number of the informer.
        raw: JSON of the object.
        more: Further fields, each with a comma behind it.
    """
    if b"\n" in raw:
        # White space between values, as a string cannot have it.
        raw = raw.replace(b"\n", b" ")

    return b'{"t":%.6f,"s":%d,"e":"%b",%b"o":%b}\n' % (
        seconds,
        informer,
        _PREFIX[kind],
        more,
        raw,
    )


def shifted(line: bytes, seconds: float) -> bytes:
    """Return a line with another time, which is so much earlier."""
    before, comma, rest = line.partition(b",")
    t = float(before.removeprefix(b'{"t":')) - seconds
    return b'{"t":%.6f%b%b' % (t, comma, rest)


def split(text: bytes) -> list[bytes]:
    """Return the lines of a text, each with its end.

    Unlike `splitlines()`, which takes white space of JSON for ends, too.
    """
    return [line + b"\n" for line in text.split(b"\n")[:-1]]


def parsed(text: bytes) -> Header | InformerLine | Line:
    """Return what a line says.

    Raises:
        DecodeError: If it is not a line of a recording, or of a later format.
    """
    try:
        try:
            return _decoded(text)
        except RecursionError:  # of an object that no decoder reads as a whole
            return _decoded(truncate_nesting(text))
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise DecodeError(f"not a line of a recording: {exc}") from exc


def _decoded(text: bytes) -> Header | InformerLine | Line:
    if text.startswith(_HEADER):
        header = _decode_header(text)
        if header.aioinformer_recording > FORMAT:
            raise DecodeError(
                f"recording has the format {header.aioinformer_recording}, and this "
                f"version reads up to {FORMAT}: use a newer aioinformer"
            )

        return header

    line = _decode(text)
    return _decode_informer(text) if line.e == "INFORMER" else line
