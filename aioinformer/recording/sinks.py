"""Sinks of a recorder's entries: `FileSink` writes them, `RingSink` keeps the last ones.

Everything here runs in the thread of the recorder.
"""

from __future__ import annotations

import errno
import math
import os
import re
import uuid
from collections import deque
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from msgspec.structs import replace

from aioinformer import __version__
from aioinformer.errors import DecodeError
from aioinformer.informer.notifications import Added, Deleted, Updated, object_of
from aioinformer.recording.lines import (
    FORMAT,
    Header,
    InformerLine,
    change_line,
    encoded,
    parsed,
    plain_line,
    shifted,
    split,
)
from aioinformer.recording.log_file import LogFile, TextReader, compressor, read_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from aioinformer.informer.handlers.inbox import Snapshot
    from aioinformer.informer.notifications import Notification
    from aioinformer.model.objects import KubeObject
    from aioinformer.recording.redaction import Redaction

__all__ = [
    "Entry",
    "FileSink",
    "Listed",
    "Note",
    "Relist",
    "RingSink",
    "Sink",
    "Whole",
    "stamped",
]

_UNKNOWN: Final = b'"unknown":true,'
_MOVED: Final = b'"moved":true,'
_REPLACED: Final = b'"replaced":true,'

# A part of the ring is dropped at once.
_SEGMENTS: Final = 20
# Its last part is not compressed. It ends at this size if it is not old enough before.
_SEGMENT_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Whole:
    """All objects of an informer."""

    objects: list[KubeObject]
    version: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """Objects of a list into an empty store."""

    batch: Snapshot
    version: str


@dataclass(frozen=True, slots=True)
class Relist:
    """Changes that a list has made."""

    batch: list[Notification]
    version: str


@dataclass(frozen=True, slots=True)
class Note:
    """Line without an object."""

    kind: str
    fields: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that happened to an informer.

    Attributes:
        t: Seconds since the start of the recorder.
        informer: Number of the informer.
        what: Content. A list has changes of a watch.
    """

    t: float
    informer: int
    what: InformerLine | Note | Whole | Listed | Relist | list[Notification]


Portion: TypeAlias = "list[Entry]"


class Sink(Protocol):
    """Receiver of entries, in order."""

    path: Path
    """Path of the file that is written, or, with a time, of those that are saved."""

    full: bool
    """True if it waits for `rotate()`."""

    continues: bool
    """True if the current file had something before."""

    seconds: float
    """Seconds that are kept in memory."""

    def begin(self, started: datetime) -> None:
        """Begin. Raises `OSError`."""

    def write(self, portion: Portion) -> None:
        """Take entries. Raises `OSError`."""

    def rotate(self, t: float) -> None:
        """Begin a new file, which the next entries complete. Raises `OSError`."""

    def save(self, path: Path, t: float, now: dict[int, Whole]) -> None:
        """Write what is kept in memory. Raises `OSError`.

        Args:
            path: Path of the file.
            t: Seconds since the start of the recorder.
            now: All objects of each informer, after everything that was written.
        """

    def close(self, t: float) -> None:
        """End. Raises `OSError`."""


class _Encoder:
    """Encoder of entries as lines."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._run = uuid.uuid4().hex
        self.since = 0.0
        """Seconds since the start of the recorder at which times of lines are 0."""
        self.informers: dict[int, InformerLine] = {}
        self._raw_of: dict[int, Callable[[KubeObject], bytes]] = {}

    def header(self, started: datetime) -> bytes:
        """Return the header of a file, for the start of the recorder."""
        return encoded(
            Header(
                aioinformer_recording=FORMAT,
                started=_utc(started + timedelta(seconds=self.since)),
                run=self._run,
                program=f"aioinformer {__version__}",
                names="hashed" if self._redaction.hash_names else "plain",
                redacted=self._redaction.fields,
            )
        )

    def add(self, line: InformerLine) -> bytes:
        self.informers[line.s] = line
        resource = line.resource if line.plural else None
        self._raw_of[line.s] = self._redaction.function_for(resource)
        return encoded(line)

    def listed(
        self,
        kind: str,
        t: float,
        informer: int,
        objects: Iterable[KubeObject],
        **more: Any,
    ) -> Iterator[bytes]:
        """Yield a line, and one for each object."""
        raw_of = self._raw_of[informer]
        objects = list(objects)
        more = {name: it for name, it in more.items() if it}
        yield plain_line(kind, t, informer, n=len(objects), **more)
        for obj in objects:
            yield change_line("LISTED", t, informer, raw_of(obj))

    def line_of(
        self, t: float, informer: int, event: Notification, more: bytes = b""
    ) -> bytes:
        """Return the line of a change."""
        raw_of = self._raw_of[informer]
        if type(event) is Updated:
            return change_line("MODIFIED", t, informer, raw_of(event.new))

        if isinstance(event, Deleted):
            more += _UNKNOWN if event.final_state_unknown else b""
            more += _MOVED if event.reason else b""
            return change_line("DELETED", t, informer, raw_of(event.obj), more)

        return change_line("ADDED", t, informer, raw_of(object_of(event)), more)

    def lines(self, entry: Entry) -> Iterator[bytes]:
        """Yield the lines of an entry."""
        t, number, what = entry.t - self.since, entry.informer, entry.what
        more: dict[str, Any]
        if isinstance(what, Note):
            yield plain_line(what.kind, t, number, **what.fields)
        elif isinstance(what, InformerLine):
            yield self.add(replace(what, t=round(t, 6)))
        elif isinstance(what, Whole):
            more = {"version": what.version, "text": what.text}
            yield from self.listed("SNAPSHOT", t, number, what.objects, **more)
        elif isinstance(what, Listed):
            objects = list(map(object_of, what.batch))
            more = {"version": what.version, "initial": what.batch.initial}
            yield from self.listed("LIST", t, number, objects, **more)
        elif isinstance(what, Relist):
            more = {"n": len(what.batch), "version": what.version}
            yield plain_line("RELIST", t, number, **more)
            for event in what.batch:
                yield self.line_of(t, number, event)
        else:
            yield from self._change_lines(t, number, what)

    def _change_lines(
        self, t: float, number: int, batch: list[Notification]
    ) -> Iterator[bytes]:
        """Yield the lines of changes of a watch."""
        # Deletion that was missed. If the next change is the addition of another object
        # of its name, that tells enough.
        gone: Deleted | None = None
        for event in batch:
            if gone is not None:
                before, gone = gone, None
                if isinstance(event, Added) and event.obj.key == before.obj.key:
                    yield self.line_of(t, number, event, _REPLACED)
                    continue

                yield self.line_of(t, number, before)

            if isinstance(event, Deleted) and event.final_state_unknown:
                gone = event
            else:
                yield self.line_of(t, number, event)

        if gone is not None:
            yield self.line_of(t, number, gone)


# Enough to be compressed well, and little in memory.
_PIECE_BYTES: Final = 1024 * 1024


class FileSink:
    """Sink that appends to a file.

    Args:
        path: Path of the file.
        redaction: Rules for objects.
        rotate_bytes: Size from which the file is full; None for no limit.
        rotate_seconds: Age from which the file is full; None for no limit.
        keep: Number of full files to keep; None for all.
    """

    def __init__(
        self,
        path: Path,
        redaction: Redaction,
        rotate_bytes: int | None = None,
        rotate_seconds: float | None = None,
        keep: int | None = None,
    ) -> None:
        self.path = path
        self.full: bool = False
        self.continues: bool = False
        self.seconds: float = 0.0
        self._encoder = _Encoder(redaction)
        self._rotate_bytes = rotate_bytes
        self._rotate_seconds = rotate_seconds
        self._keep = keep
        self._file: LogFile | None = None
        self._started = datetime.now(UTC)
        # Time at which the current file began, which may be before this recorder.
        self._began = self._started
        # Size of the file before this recorder, and of the objects that it began with.
        self._before = 0
        self._base = 0
        self._begins = True

    def begin(self, started: datetime) -> None:
        """Open the file, and continue an existing recording.

        Raises:
            RecordingError: If the file is something else, another recorder writes it, or
                another user owns it.
            OSError: If it cannot be opened.
        """
        self._started = began = started
        if self.path.is_file():  # no device
            LogFile(self.path).discard()  # no other recorder has it
            began = _begin_of(self.path) or started
            if self._is_full(self.path.stat().st_size, started - began):
                self._retire(began)
                began = started

        self._open(began)

    def write(self, portion: Portion) -> None:
        """Append entries. Raises `OSError`."""
        assert self._file is not None
        waiting: list[bytes] = []
        size = 0
        for entry in portion:
            for line in self._encoder.lines(entry):
                waiting.append(line)
                size += len(line)
                if size >= _PIECE_BYTES:
                    self._file.write(b"".join(waiting))
                    waiting, size = [], 0

        if waiting:
            self._file.write(b"".join(waiting))

        if self._begins:
            self._base, self._begins = self._file.bytes - self._before, False
        elif portion:
            age = self._moment(portion[-1].t) - self._began
            self.full = self._is_full(self._file.bytes, age)

    def rotate(self, t: float) -> None:
        """Rename the full file, and begin another one. Raises `OSError`."""
        if self._file is not None:
            self._file.close()
            self._retire(self._began)

        self._encoder.since = t
        self._open(self._moment(t))
        self.full, self._begins = False, True

    def save(self, path: Path, t: float, now: dict[int, Whole]) -> None:
        """Do nothing: everything was written."""

    def close(self, t: float) -> None:
        """End the file. Raises `OSError`."""
        if self._file is not None:
            try:
                self._file.write(plain_line("END", t - self._encoder.since))
                self._file.close()
            finally:
                self._file.discard()

    def _moment(self, t: float) -> datetime:
        return self._started + timedelta(seconds=t)

    def _open(self, began: datetime) -> None:
        file = LogFile(self.path)
        self._began, self._before = began, file.bytes
        self.continues = bool(file.bytes)
        lines = [self._encoder.header(self._started)]
        lines += map(encoded, self._encoder.informers.values())
        try:
            file.write(b"".join(lines))
        except BaseException:
            file.discard()
            raise

        self._file = file

    def _is_full(self, size: int, age: timedelta) -> bool:
        # A file that had little else than all objects would be full at once.
        large = size >= 2 * self._base and _reaches(size, self._rotate_bytes)
        return large or _reaches(age.total_seconds(), self._rotate_seconds)

    def _retire(self, began: datetime) -> None:
        """Rename the full file, and delete old ones."""
        self.path.rename(stamped(self.path, began))
        if self._keep is None:
            return

        stem, suffix = map(re.escape, (self.path.stem, self.path.suffix))
        is_full = re.compile(rf"{stem}-\d{{8}}T\d{{6}}\.\d{{6}}Z{suffix}").fullmatch
        full = []
        for path in self.path.parent.iterdir():
            if is_full(path.name):
                with suppress(FileNotFoundError):  # somebody has deleted it
                    full.append((path.stat().st_mtime_ns, path.name, path))

        # Not by their names, as the clock may have been ahead.
        for _, _, path in sorted(full)[: max(0, len(full) - self._keep)]:
            path.unlink(missing_ok=True)


@dataclass(slots=True)
class _Segment:
    """Part of the ring.

    Attributes:
        began: Seconds since the start of the recorder.
        ended: Seconds at its last entry so far.
        versions: Resource version of each informer when it began.
        before: Line of each object that it changes, before the first change, by
            informer and key; None if the object did not exist.
        lines: Lines, until it is complete.
        packed: Compressed lines, when it is complete.
        packed_before: Compressed lines of `before`, in that order.
        size: Bytes of the lines that are not compressed.
    """

    began: float
    versions: dict[int, str] = field(default_factory=dict)
    before: dict[tuple[int, str], bytes | None] = field(default_factory=dict)
    lines: list[bytes] = field(default_factory=list)
    packed: bytes = b""
    packed_before: bytes = b""
    ended: float = 0.0
    size: int = 0


class RingSink:
    """Sink that keeps the last entries in memory, compressed.

    What it saves begins with all objects, which are those of now without the changes
    that are kept. So it keeps the state of each object before its first change in a
    segment, too. First lists are not kept: it begins after them.

    Args:
        path: Path of the files to save; the time of saving is added to its name.
        redaction: Rules for objects.
        seconds: Seconds to keep.
    """

    full = False
    continues = False

    def __init__(self, path: Path, redaction: Redaction, seconds: float) -> None:
        self.path = path
        self.seconds = seconds
        self._encoder = _Encoder(redaction)
        self._started = datetime.now(UTC)
        self._compressor = compressor()
        self._segments: deque[_Segment] = deque([_Segment(0.0)])
        # Resource versions of the informers, after the last entry.
        self._versions: dict[int, str] = {}
        # Times at which informers were synced.
        self._synced: dict[int, float] = {}

    def begin(self, started: datetime) -> None:
        """Begin."""
        self._started = started

    def write(self, portion: Portion) -> None:
        """Keep entries."""
        for entry in portion:
            self._advance(entry.t)
            segment = self._segments[-1]
            self._note_version(segment, entry)
            if isinstance(entry.what, InformerLine):
                self._encoder.add(entry.what)
            elif isinstance(entry.what, Whole):
                # The store has these objects, so they need not be kept, too.
                if entry.what.text:  # changes before it are missing
                    versions = dict(self._versions)
                    self._segments = deque([_Segment(entry.t, versions)])

            elif not (isinstance(entry.what, Listed) and entry.what.batch.initial):
                if not isinstance(entry.what, Note):
                    self._note_before(segment, entry.informer, entry.what)
                elif entry.what.kind == "SYNCED":
                    self._synced.setdefault(entry.informer, entry.t)

                lines = list(self._encoder.lines(entry))
                segment.lines += lines
                segment.size += sum(map(len, lines))
                segment.ended = entry.t

    def rotate(self, t: float) -> None:
        """Do nothing: it is never full."""

    def save(self, path: Path, t: float, now: dict[int, Whole]) -> None:
        """Write what is kept. Raises `OSError`."""
        self._advance(t)
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))

        file = LogFile(path)
        try:
            encoder, began = self._encoder, self._segments[0].began
            encoder.since = began
            file.write(encoder.header(self._started))
            encoder.since = 0.0
            for number, informer in encoder.informers.items():
                file.write(encoded(replace(informer, t=0.0)))
                if number in now:
                    file.write(b"".join(self._whole(number, now[number])))

                if self._synced.get(number, math.inf) < began:
                    file.write(plain_line("SYNCED", 0.0, number))

            for segment in self._segments:
                lines = segment.lines
                if segment.packed:
                    lines = split(_unpacked(segment.packed))

                file.write(b"".join(shifted(it, began) for it in lines))

            file.write(plain_line("END", t - began))
            file.close()
        finally:
            file.discard()

    def close(self, t: float) -> None:
        """Forget everything."""
        self._segments.clear()

    def _whole(self, number: int, whole: Whole) -> Iterator[bytes]:
        """Yield the lines of all objects as they were when the ring began."""
        before: dict[str, bytes | None] = {}
        for segment in self._segments:
            for (informer, key), line in _before(segment).items():
                if informer == number:
                    before.setdefault(key, line)

        listed = [obj for obj in whole.objects if obj.key not in before]
        changed = [line for line in before.values() if line is not None]
        version = self._segments[0].versions.get(number) or whole.version
        more = {"n": len(listed) + len(changed), "version": version}
        yield plain_line("SNAPSHOT", 0.0, number, **more)
        # Without its first line, which does not count the changed ones.
        yield from islice(self._encoder.listed("", 0.0, number, listed), 1, None)
        yield from changed

    def _note_version(self, segment: _Segment, entry: Entry) -> None:
        number, what = entry.informer, entry.what
        if isinstance(what, Whole | Listed | Relist):
            self._versions[number] = what.version
            if not isinstance(what, Relist):  # the ring begins after it
                segment.versions[number] = what.version

        elif isinstance(what, list) and what:
            version = object_of(what[-1]).resource_version
            self._versions[number] = version or self._versions.get(number, "")

    def _note_before(
        self,
        segment: _Segment,
        number: int,
        what: Listed | Relist | list[Notification],
    ) -> None:
        """Keep the states of objects before their first change in a segment."""
        batch = what if isinstance(what, list) else what.batch
        raw_of = self._encoder._raw_of[number]  # noqa: SLF001 - of this module
        before = segment.before
        for event in batch:
            key = (number, object_of(event).key)
            if key not in before:
                old = None
                if isinstance(event, Updated):
                    old = event.old
                elif isinstance(event, Deleted):
                    old = event.obj

                line = None
                if old is not None:
                    line = change_line("LISTED", 0.0, number, raw_of(old))
                    segment.size += len(line)

                before[key] = line

    def _advance(self, t: float) -> None:
        """Complete the current segment if it is old or large, and drop those too old."""
        current = self._segments[-1]
        old = t - current.began >= self.seconds / _SEGMENTS
        if not old and current.size < _SEGMENT_BYTES:
            return

        if current.lines:
            current.packed = self._packed(current.lines)
            lines = [it for it in current.before.values() if it is not None]
            current.packed_before = self._packed(lines)
            for key, line in current.before.items():
                current.before[key] = None if line is None else b""

            current.lines, current.size = [], 0
            self._segments.append(_Segment(t, dict(self._versions)))
        else:  # it has no changes
            current.began, current.versions = t, dict(self._versions)

        while len(self._segments) > 1 and self._segments[0].ended <= t - self.seconds:
            self._segments.popleft()

    def _packed(self, lines: list[bytes]) -> bytes:
        # A copy, as the original keeps the memory of the text.
        return bytes(memoryview(self._compressor.compress(b"".join(lines))))


def _before(segment: _Segment) -> dict[tuple[int, str], bytes | None]:
    """Return the lines of a segment's objects before it."""
    if not segment.packed_before:
        return dict(segment.before)

    lines = iter(split(_unpacked(segment.packed_before)))
    return {
        key: None if it is None else next(lines) for key, it in segment.before.items()
    }


def _unpacked(data: bytes) -> bytes:
    reader = TextReader()
    return b"".join([*reader.feed(data), *reader.finish()])


def _begin_of(path: Path) -> datetime | None:
    """Return the time at which an existing recording begins; None if nothing says it.

    Raises:
        RecordingError: If the file is something else.
        OSError: If it cannot be read.
    """
    with closing(read_lines(path)) as portions:
        for line in chain.from_iterable(portions):
            try:
                header = parsed(line)
                if isinstance(header, Header):
                    return header.moment
            except DecodeError:
                continue

    return None


def _reaches(value: float, limit: float | None) -> bool:
    return limit is not None and value >= limit


def _utc(moment: datetime) -> str:
    return (
        moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    )


def stamped(path: Path, moment: datetime) -> Path:
    """Return a path with a time in its name: `incident-20260131T090000.123456Z.alog`."""
    stamp = moment.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    return path.with_name(f"{path.stem}-{stamp}{path.suffix}")
