"""What a recorder knows of events: which are the same, what is due. Pure.

As in client-go's recorder for events.k8s.io, events are the same if all but their note
is. The first one is created; the second makes a series of it; those that follow are
counted here, and their number is written from time to time, and when no more come. Times
are handed in.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from aioinformer.errors import OptionsError
from aioinformer.model.objects import METADATA_KIND, KubeObject
from aioinformer.model.times import micro_time
from aioinformer.model.validation import is_subdomain

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["BookFull", "EventBook", "Happening", "Reference", "Series", "short_note"]

REFRESH_SECONDS: Final = 300.0
"""How often the number of a series that goes on is written. (client-go: 30 minutes.)"""

QUIET_SECONDS: Final = 360.0
"""A series of which nothing came for so long is over, as in client-go."""

MOST_KNOWN: Final = 20_000
"""So many different events of the last minutes are known; no more are taken."""

# The server's limits, in bytes.
_NOTE_BYTES: Final = 1024
_WORD_BYTES: Final = 128

_ELLIPSIS: Final = b"..."


@dataclass(frozen=True, slots=True)
class Reference:
    """Which object an event is about; versions of one object are the same."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = field(default="", compare=False)
    field_path: str = ""

    @classmethod
    def to(cls, obj: KubeObject | Mapping[str, Any]) -> Reference:
        """Refer to an object.

        Args:
            obj: The object, its body, or a reference: with `apiVersion`, `kind`, `name`,
                and where there are such, `namespace`, `uid` and `fieldPath`.

        Raises:
            OptionsError: If it does not say its type and name. A metadata-only object
                does if the `Resource` of its informer has a kind.
        """
        fields: dict[str, Any]
        if isinstance(obj, KubeObject):
            fields = {
                **obj.type_meta,
                "name": obj.name,
                "namespace": obj.namespace,
                "uid": obj.uid,
                "resourceVersion": obj.resource_version,
            }
        elif isinstance(obj, Mapping):
            identity = obj.get("metadata", obj) or {}
            types = {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind")}
            fields = {name: identity.get(name) for name in _REFERRED} | types
        else:
            raise OptionsError(
                f"an event is about a KubeObject or a mapping, not a {type(obj).__name__}"
            )

        if fields["kind"] == METADATA_KIND:
            raise OptionsError(
                "a PartialObjectMetadata does not say what it is the metadata of: pass an "
                "object of an informer whose Resource has a kind, or a reference"
            )

        # Not the object itself: errors are logged, and it may be a Secret.
        wrong = [
            name
            for name, text in fields.items()
            if not (isinstance(text, str) if text else name not in _NEEDED)
        ]
        if wrong:
            raise OptionsError(
                f"an event is about an object that says what it is, by texts; this one "
                f"does not: {', '.join(wrong)}"
            )

        return cls(**{_REFERRED[name]: text or "" for name, text in fields.items()})

    def body(self) -> dict[str, str]:
        """As Kubernetes writes an ObjectReference."""
        texts = ((name, getattr(self, ours)) for name, ours in _REFERRED.items())
        return {name: text for name, text in texts if text}


# How Kubernetes calls the fields of a reference, and how they are called here.
_REFERRED: Final = {
    "apiVersion": "api_version",
    "kind": "kind",
    "namespace": "namespace",
    "name": "name",
    "uid": "uid",
    "resourceVersion": "resource_version",
    "fieldPath": "field_path",
}
_NEEDED: Final = {"apiVersion", "kind", "name"}


@dataclass(frozen=True, slots=True)
class Happening:
    """What is told by an event, but for its note; two that are equal are one series."""

    regarding: Reference
    type: str
    reason: str
    action: str
    related: Reference | None = None

    def __post_init__(self) -> None:
        """Check what the server would refuse.

        Raises:
            OptionsError: If it would.
        """
        if self.type not in {"Normal", "Warning"}:
            raise OptionsError(
                f"an event is of type 'Normal' or 'Warning', not {self.type!r}"
            )

        for what, text in {"reason": self.reason, "action": self.action}.items():
            if not 0 < len(text.encode(errors="replace")) <= _WORD_BYTES:
                raise OptionsError(
                    f"the {what} of an event has 1 to {_WORD_BYTES} bytes, and is not "
                    f"{text!r}"
                )


class Series:
    """One event on the server: what happened, and how often.

    Attributes:
        happening: What.
        note: For people to read; that of the first time.
        name: Of the event.
        namespace: Where it is: beside its object, or `default`.
        count: How often it has happened.
        written: How often by what the server has; 0 before it has the event.
        dealt: The number that was dealt with last: written, or given up.
    """

    __slots__ = (
        "count",
        "dealt",
        "first",
        "happening",
        "last",
        "name",
        "namespace",
        "note",
        "seen",
        "tried",
        "written",
    )

    def __init__(
        self, happening: Happening, note: str, moment: datetime, now: float
    ) -> None:
        self.happening = happening
        self.note = note
        self.name = _name_for(happening.regarding.name)
        self.namespace = happening.regarding.namespace or "default"
        self.count = 1
        self.written = self.dealt = 0
        self.first = self.last = moment
        # When it happened last, and when it was last tried; on the loop's clock.
        self.seen = self.tried = now

    def __repr__(self) -> str:
        what, which = self.happening, self.happening.regarding
        where = f"{which.namespace}/{which.name}" if which.namespace else which.name
        return f"{what.type} {what.reason} of {which.kind} {where}"

    def again(self, moment: datetime, now: float) -> None:
        """It has happened once more."""
        self.count += 1
        self.last, self.seen = moment, now

    def body(self, controller: str, instance: str) -> dict[str, Any]:
        """The event to be created."""
        what = self.happening
        related = {"related": what.related.body()} if what.related else {}
        return {
            "metadata": {"name": self.name, "namespace": self.namespace},
            "eventTime": micro_time(self.first),
            "type": what.type,
            "reason": what.reason,
            "action": what.action,
            "note": self.note,
            "regarding": what.regarding.body(),
            **related,
            "reportingController": controller,
            "reportingInstance": instance,
            **(self.change() if self.count > 1 else {}),
        }

    def change(self) -> dict[str, Any]:
        """What a series changes of the event that was created; count is 2 or more."""
        times = {"count": self.count, "lastObservedTime": micro_time(self.last)}
        return {"series": times}


class BookFull(Exception):
    """There is no place for another event."""


class EventBook:
    """All series that are not over."""

    def __init__(self) -> None:
        self._series: dict[Happening, Series] = {}

    def __len__(self) -> int:
        return len(self._series)

    def note(
        self, happening: Happening, note: str, moment: datetime, now: float
    ) -> Series | None:
        """It has happened.

        Args:
            happening: What.
            note: For people.
            moment: When, with a zone.
            now: The same in seconds of a clock that does not go back.

        Returns:
            The series if it is to be written now.

        Raises:
            BookFull: It is another one, and there are too many.
        """
        series = self._series.get(happening)
        if series is not None:
            series.again(moment, now)
            return series if series.count == 2 else None

        if len(self._series) >= MOST_KNOWN:
            raise BookFull

        series = Series(happening, short_note(note), moment, now)
        self._series[happening] = series
        return series

    def due(self, now: float) -> list[Series]:
        """What is to be written now. What is over is known no more."""
        over = [it for it in self._series.values() if now - it.seen >= QUIET_SECONDS]
        for series in over:
            del self._series[series.happening]

        refreshed = (
            it for it in self._series.values() if now - it.tried >= REFRESH_SECONDS
        )
        return [it for it in (*over, *refreshed) if it.count > it.dealt]

    def left(self) -> list[Series]:
        """All of which the last number was not dealt with."""
        return [it for it in self._series.values() if it.count > it.dealt]


def short_note(note: str) -> str:
    """Cut a note to what a server takes: 1024 bytes of UTF-8."""
    text = note.encode(errors="replace")
    if len(text) > _NOTE_BYTES:
        text = text[: _NOTE_BYTES - len(_ELLIPSIS)] + _ELLIPSIS

    return text.decode(errors="ignore")


def _name_for(regarding: str) -> str:
    """A name that no other event has; after the object, where its own is as plain."""
    unique = secrets.token_hex(8)
    name = f"{regarding}.{unique}"
    if is_subdomain(name):
        return name

    return f"event.{unique}"
