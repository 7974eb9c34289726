"""`History`: the changes of a recording, each with the state before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioinformer.errors import RecordingError
from aioinformer.recording.log_file import TextReader, read_lines
from aioinformer.recording.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from aioinformer.model.objects import KubeObject
    from aioinformer.recording.lines import InformerLine
    from aioinformer.recording.reading import Happening

__all__ = ["History", "Step"]


@dataclass(frozen=True, slots=True)
class Step:
    """Change of one object, or another entry.

    Attributes:
        t: Seconds since the beginning of the recording.
        informer: Informer that it is about; None for the whole recording.
        kind: `LISTED` by the first list of its informer, `ADDED`, `MODIFIED` or
            `DELETED`; or `LIST`, `RELIST`, `SNAPSHOT`, `SYNCED`, `STATUS` or `END`
            without an object.
        obj: State after the change, of a deletion the last one; None without an object.
        before: State before the change; None if there was none.
        text: Explanation.
        failures: Failures in a row of the informer, of a `STATUS`.
    """

    t: float
    informer: InformerLine | None
    kind: str
    obj: KubeObject | None = None
    before: KubeObject | None = None
    text: str = ""
    failures: int = 0


class History:
    """Changes of a recording, in order, and the objects after the last one.

    Blocking: it reads files.

    Args:
        paths: Files of the recording, in their order.

    Attributes:
        reading: Reader of the entries.
        text: Reader of the files.
        objects: Objects of each informer by its name, each by its key.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self.reading: Reading = Reading()
        self.text: TextReader = TextReader()
        self.objects: dict[str, dict[str, KubeObject]] = {}
        # Informers that have had a list.
        self._listed: set[str] = set()

    def steps(self) -> Iterator[Step]:
        """Yield the changes; may be called once.

        Raises:
            RecordingError: If a file cannot be read, or is not a recording.
        """
        for path in self._paths:
            try:
                for lines in read_lines(path, self.text):
                    for happening in self.reading.feed(lines):
                        yield from self._steps_of(happening)
            except OSError as exc:
                raise RecordingError(f"cannot read {path}: {exc.strerror}") from exc

        if self.reading.header is None:
            names = ", ".join(map(str, self._paths))
            raise RecordingError(f"{names}: no recording, or an empty one")

    def _steps_of(self, happening: Happening) -> Iterator[Step]:
        t, informer = happening.t, happening.informer
        if happening.kind != "CHANGE":
            text, failures = _text_of(happening), happening.failures
            yield Step(t, informer, happening.kind, text=text, failures=failures)

        if informer is None:
            return

        objects = self.objects.setdefault(informer.name, {})
        if happening.kind == "SNAPSHOT":
            present = {it.obj.key for it in happening.changes}
            for key in [key for key in objects if key not in present]:
                gone = objects.pop(key)
                yield Step(t, informer, "DELETED", gone, gone)

        first = happening.kind == "LIST" and happening.initial
        begins = first or informer.name not in self._listed
        if happening.kind in {"SNAPSHOT", "LIST"}:
            self._listed.add(informer.name)

        for change in happening.changes:
            obj, kind = change.obj, change.kind
            before = objects.get(obj.key)
            if kind == "DELETED":
                objects.pop(obj.key, None)
            else:
                objects[obj.key] = obj

            if kind == "LISTED" and before is not None:
                same = before.uid == obj.uid and before == obj
                if same or _same_version(before, obj):
                    continue

                kind = "MODIFIED"
            elif kind == "LISTED" and not begins:
                kind = "ADDED"  # while nothing was recorded

            marks = {
                "missed": change.unknown,
                "moved": change.moved,
                "replaced": change.replaced,
            }
            text = ", ".join(mark for mark, applies in marks.items() if applies)
            yield Step(t, informer, kind, obj, before, text)


def _same_version(before: KubeObject, after: KubeObject) -> bool:
    """Return True for one state, of which another process may have hidden more."""
    version = after.resource_version
    return version not in {"", "0"} and (before.uid, before.resource_version) == (
        after.uid,
        version,
    )


def _text_of(happening: Happening) -> str:
    if happening.kind in {"LIST", "RELIST", "SNAPSHOT"}:
        count = len(happening.changes)
        what = "changes" if happening.kind == "RELIST" else "objects"
        text = f"{count} {what}, version {happening.version}"
        return f"{text}: {happening.text}" if happening.text else text

    if happening.kind == "STATUS":
        text = happening.phase
        if happening.failures:
            text += f", {happening.failures} failures in a row"

        return f"{text}: {happening.text}" if happening.text else text

    return happening.text
