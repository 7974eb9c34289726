"""`Reading`: the entries of a recording, from its lines. Pure.

Parts that were appended to a file have times and numbers of their own. Here, all times
are seconds since the first header, and informers are told apart by their names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from aioinformer.errors import DecodeError, RecordingError
from aioinformer.recording.lines import CHANGES, Header, InformerLine, Line, parsed
from aioinformer.watch.decoding import ObjectDecoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from aioinformer.model.objects import KubeObject

__all__ = ["Change", "Happening", "Reading"]

_GROUPS: Final = frozenset({"SNAPSHOT", "LIST", "RELIST"})


@dataclass(frozen=True, slots=True)
class Change:
    """State of an object in a recording.

    Attributes:
        kind: `LISTED`, `ADDED`, `MODIFIED` or `DELETED`.
        obj: State of the object.
        unknown: True for a deletion that was missed, and found by a list.
        moved: True if the object left because of another selection.
        replaced: True if the deletion of an earlier object of its name was missed.
    """

    kind: str
    obj: KubeObject
    unknown: bool = False
    moved: bool = False
    replaced: bool = False


@dataclass(frozen=True, slots=True)
class Happening:
    """Entry of a recording.

    Attributes:
        t: Seconds since the beginning of the recording's first part.
        informer: Informer that it is about; None for the whole recording.
        kind: `SNAPSHOT`, `LIST`, `RELIST`, `CHANGE`, `SYNCED`, `STATUS` or `END`.
        changes: States of objects.
        version: Resource version of the store after a list.
        initial: True for a first list.
        phase: Phase of the informer, of a `STATUS`.
        failures: Its failures in a row.
        text: Explanation, such as the last error.
    """

    t: float
    informer: InformerLine | None
    kind: str
    changes: list[Change] = field(default_factory=list)
    version: str = ""
    initial: bool = False
    phase: str = ""
    failures: int = 0
    text: str = ""


class Reading:
    """Entries of a recording, from lines that are fed in order.

    Attributes:
        header: Header of the first part; None before it was read.
        redacted: Fields whose values are replaced in all parts so far.
        hides_names: True if names are replaced in all parts so far.
        informers: Informers that were read, in the order of their first line.
        unreadable: Number of lines that could not be read.
        end: Seconds of the last line.
    """

    def __init__(self) -> None:
        self.header: Header | None = None
        self.redacted: list[str] = []
        self.hides_names: bool = False
        self.informers: list[InformerLine] = []
        self.unreadable: int = 0
        self.end: float = 0.0
        self._started: datetime | None = None
        # Run of the current part.
        self._run = ""
        # Seconds to add to the times of the current part.
        self._shift = 0.0
        self._numbers: dict[int, InformerLine] = {}
        self._decoders: dict[str, ObjectDecoder] = {}
        # Informers whose next list begins anew, as their process has.
        self._begins: set[str] = set()
        # The group that is not complete yet.
        self._group: Line | None = None
        # Its changes by kind and key. A recorder writes each once: a file of a few KB can
        # expand to more repetitions than fit into memory.
        self._changes: dict[tuple[str, str], Change] = {}
        # Number of its lines, with those that could not be read.
        self._members = 0

    @property
    def started(self) -> datetime:
        """Time at which `t` is 0.

        Raises:
            RecordingError: If there is no header.
        """
        if self._started is None:
            raise RecordingError("recording has no header")

        return self._started

    def moment(self, t: float) -> datetime:
        """Return the time of an entry.

        Raises:
            DecodeError: If it is beyond the year 9999, or before the year 1.
            RecordingError: If there is no header.
        """
        started = self.started
        try:
            return started + timedelta(seconds=t)
        except OverflowError as exc:
            raise DecodeError(f"{t:g} s after {started} is no time") from exc

    def feed(self, lines: Iterable[bytes]) -> Iterator[Happening]:
        """Yield the entries of lines. A group that is cut off is left out."""
        for text in lines:
            if not text:  # something was skipped, perhaps the rest of a group
                yield from self._cut_off()
                continue

            try:
                line = parsed(text)
                if self._ends_group(line):
                    yield from self._cut_off()

                happened = self._take(line)
            except DecodeError:
                if self.header is None:
                    raise

                self.unreadable += 1
                if self._group is None:
                    continue

                self._members += 1
                happened = self._completed(self._group.t + self._shift)

            if happened is not None:
                yield happened

    def _ends_group(self, line: Header | InformerLine | Line) -> bool:
        """Return True if a line is no member of the group that is not complete."""
        group = self._group
        if group is None:
            return False

        members = CHANGES if group.e == "RELIST" else {"LISTED"}
        return not (isinstance(line, Line) and line.e in members and line.s == group.s)

    def _cut_off(self) -> Iterator[Happening]:
        """Yield a group that something is missing of, as far as it is known."""
        group = self._group
        if group is not None:
            self._members = group.n
            happened = self._completed(group.t + self._shift)
            if happened is not None:
                yield happened

    def _take(self, line: Header | InformerLine | Line) -> Happening | None:
        if isinstance(line, Header):
            self._begin_part(line)
            return None

        t = line.t + self._shift
        if self.header is not None:
            self.moment(t)  # raises if no date is that late

        self.end = max(self.end, t)
        if isinstance(line, InformerLine):
            self._add(line)
            return None

        informer = self._numbers.get(line.s)
        if informer is None and line.s >= 0:
            raise DecodeError(f"informer {line.s} is not described")

        if line.e in _GROUPS:
            self._group, self._changes, self._members = line, {}, 0
            return self._completed(t)

        if line.e in CHANGES or line.e == "LISTED":
            if informer is None:
                raise DecodeError("a change without an informer")

            change = self._change(line, informer)
            if self._group is None:
                if line.e == "LISTED":  # of a group that was cut off
                    return None

                return Happening(t, informer, "CHANGE", [change])

            self._changes[change.kind, change.obj.key] = change
            self._members += 1
            return self._completed(t)

        return Happening(
            t,
            informer,
            line.e,
            phase=line.phase,
            failures=line.failures,
            text=line.text,
        )

    def _completed(self, t: float) -> Happening | None:
        """Return the group if it is complete."""
        group = self._group
        assert group is not None
        if self._members < group.n:
            return None

        self._group = None
        informer = self._numbers[group.s]
        kind, begins = group.e, informer.name in self._begins
        self._begins.discard(informer.name)
        if kind == "LIST" and begins:
            kind = "SNAPSHOT"  # of another process than before

        return Happening(
            t,
            informer,
            kind,
            [*self._changes.values()],
            version=group.version,
            initial=group.initial,
            text=group.text,
        )

    def _change(self, line: Line, informer: InformerLine) -> Change:
        decoder = self._decoders[informer.name]
        obj = decoder.decode(bytes(line.o))
        return Change(line.e, obj, line.unknown, line.moved, line.replaced)

    def _begin_part(self, header: Header) -> None:
        started = header.moment
        if self.header is None:
            self.header, self._started = header, started
            self.redacted, self.hides_names = header.redacted, header.names == "hashed"
        else:
            self.redacted = [it for it in self.redacted if it in header.redacted]
            self.hides_names = self.hides_names and header.names == "hashed"
            # The next file of the same run, or another process, whose clock may be
            # behind.
            same = header.run != "" and header.run == self._run
            self._shift = max(0.0 if same else self.end, self._seconds(started))
            if not same:
                self._begins = {it.name for it in self.informers}

        self._run = header.run

    def _seconds(self, moment: datetime) -> float:
        return (moment - self.started).total_seconds()

    def _add(self, line: InformerLine) -> None:
        # An informer of a restarted program may have got other namespaces. Nothing that
        # plays the former one knows them.
        name, count, follows = line.name, 1, ""
        while any(it.name == name and not _covers(it, line) for it in self.informers):
            count, follows = count + 1, name
            name = f"{line.name} #{count}"

        line = msgspec.structs.replace(line, name=name, follows=follows)
        places = {it.name: place for place, it in enumerate(self.informers)}
        place = places.get(line.name)
        if place is None:
            self.informers.append(line)
        elif line.resource != self.informers[place].resource:  # it was found later
            self.informers[place] = line
        else:
            line = msgspec.structs.replace(self.informers[place], s=line.s)

        self._numbers[line.s] = line
        self._decoders[line.name] = ObjectDecoder(line.resource)


def _covers(known: InformerLine, line: InformerLine) -> bool:
    """Return True if an informer has all namespaces of another one of its name."""
    if not known.namespaces:
        return True

    return bool(line.namespaces) and {*line.namespaces} <= {*known.namespaces}
