"""Correlation of equal events into series, as in client-go. Pure: times are arguments.

As in client-go's recorder for events.k8s.io, events are equal if everything but their
notes is equal. The first event is created on the server, and the second turns it into a
series. Later ones are counted. The count is written from time to time, and at the end
of the series.
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

__all__ = [
    "EventCorrelator",
    "EventKey",
    "EventSeries",
    "ObjectReference",
    "TooManyEvents",
    "short_note",
]

REFRESH_SECONDS: Final = 300.0
"""Interval at which the count of a series is written. (client-go: 30 minutes.)"""

QUIET_SECONDS: Final = 360.0
"""Time without an event after which a series ends, as in client-go."""

MAX_SERIES: Final = 20_000
"""Maximum number of concurrent series. Further events are refused."""

# The server's limits, in bytes.
_NOTE_BYTES: Final = 1024
_WORD_BYTES: Final = 128

_ELLIPSIS: Final = b"..."


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """Reference to an object. References to versions of one object are equal."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = field(default="", compare=False)
    field_path: str = ""

    @classmethod
    def to(cls, obj: KubeObject | Mapping[str, Any]) -> ObjectReference:
        """Return the reference to an object.

        Args:
            obj: Object, body, or reference with `apiVersion`, `kind`, `name`, and
                optionally `namespace`, `uid` and `fieldPath`.

        Raises:
            OptionsError: If the type or the name is missing. A metadata-only object has
                a type if the `Resource` of its informer has a kind.
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
                "an event needs a KubeObject or a mapping to refer to, not "
                f"{type(obj).__name__}"
            )

        if fields["kind"] == METADATA_KIND:
            raise OptionsError(
                "a PartialObjectMetadata has no kind of its own: pass a reference, or an "
                "object of an informer whose Resource has a kind"
            )

        # Without the object itself: errors are logged, and it may be a Secret.
        wrong = [
            name
            for name, text in fields.items()
            if not (isinstance(text, str) if text else name not in _NEEDED)
        ]
        if wrong:
            raise OptionsError(
                "an event needs an object with apiVersion, kind and name (missing or "
                f"invalid: {', '.join(wrong)})"
            )

        return cls(**{_REFERRED[name]: text or "" for name, text in fields.items()})

    def body(self) -> dict[str, str]:
        """Return the ObjectReference as JSON."""
        texts = (
            (name, getattr(self, attribute)) for name, attribute in _REFERRED.items()
        )
        return {name: text for name, text in texts if text}


# Attributes by the names of the fields in JSON.
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
class EventKey:
    """Content of an event without its note. Equal events form one series."""

    regarding: ObjectReference
    type: str
    reason: str
    action: str
    related: ObjectReference | None = None

    def __post_init__(self) -> None:
        """Check the content.

        Raises:
            OptionsError: If the server would refuse it.
        """
        if self.type not in {"Normal", "Warning"}:
            raise OptionsError(
                f"the type of an event must be 'Normal' or 'Warning', not {self.type!r}"
            )

        for what, text in {"reason": self.reason, "action": self.action}.items():
            if not 0 < len(text.encode(errors="replace")) <= _WORD_BYTES:
                raise OptionsError(
                    f"the {what} of an event must have 1 to {_WORD_BYTES} bytes, not "
                    f"{text!r}"
                )


class EventSeries:
    """One Event on the server, and how often it has occurred.

    Attributes:
        key: Content of the event.
        note: Note of the first occurrence.
        name: Name of the Event.
        namespace: Namespace of the Event: that of its object, or `default`.
        count: Number of occurrences.
        written: Count on the server, 0 before the Event is created.
        handled: Last count that was written or given up.
    """

    __slots__ = (
        "count",
        "first",
        "handled",
        "key",
        "last",
        "name",
        "namespace",
        "note",
        "seen",
        "tried",
        "written",
    )

    def __init__(self, key: EventKey, note: str, moment: datetime, now: float) -> None:
        self.key: EventKey = key
        self.note: str = note
        self.name: str = _name_for(key.regarding.name)
        self.namespace: str = key.regarding.namespace or "default"
        self.count: int = 1
        self.written: int = 0
        self.handled: int = 0
        self.first: datetime = moment
        self.last: datetime = moment
        # Loop's times of the last occurrence and of the last attempt to write.
        self.seen: float = now
        self.tried: float = now

    def __repr__(self) -> str:
        what, which = self.key, self.key.regarding
        where = f"{which.namespace}/{which.name}" if which.namespace else which.name
        return f"{what.type} {what.reason} of {which.kind} {where}"

    def add(self, moment: datetime, now: float) -> None:
        """Count one more occurrence."""
        self.count += 1
        self.last, self.seen = moment, now

    def body(self, controller: str, instance: str) -> dict[str, Any]:
        """Return the Event to create."""
        what = self.key
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
        """Return the merge patch for a count of 2 or more."""
        times = {"count": self.count, "lastObservedTime": micro_time(self.last)}
        return {"series": times}


class TooManyEvents(Exception):
    """There are too many concurrent series."""

    def __init__(self) -> None:
        super().__init__("there are too many concurrent series of events")


class EventCorrelator:
    """All active series."""

    def __init__(self) -> None:
        self._series: dict[EventKey, EventSeries] = {}

    def __len__(self) -> int:
        return len(self._series)

    def add(
        self, key: EventKey, note: str, moment: datetime, now: float
    ) -> EventSeries | None:
        """Add an occurrence of an event.

        Args:
            key: Content of the event.
            note: Note for people.
            moment: Date and time, with a timezone.
            now: The same time on a monotonic clock.

        Returns:
            The series if it should be written now, else None.

        Raises:
            TooManyEvents: If it is a new event, and there are too many series.
        """
        series = self._series.get(key)
        if series is not None:
            series.add(moment, now)
            return series if series.count == 2 else None

        if len(self._series) >= MAX_SERIES:
            raise TooManyEvents

        series = EventSeries(key, short_note(note), moment, now)
        self._series[key] = series
        return series

    def due(self, now: float) -> list[EventSeries]:
        """Return the series to write now, and drop those that have ended."""
        ended = [it for it in self._series.values() if now - it.seen >= QUIET_SECONDS]
        for series in ended:
            del self._series[series.key]

        refreshed = (
            it for it in self._series.values() if now - it.tried >= REFRESH_SECONDS
        )
        return [it for it in (*ended, *refreshed) if it.count > it.handled]

    def unwritten(self) -> list[EventSeries]:
        """Return the series whose current count was neither written nor given up."""
        return [it for it in self._series.values() if it.count > it.handled]


def short_note(note: str) -> str:
    """Cut a note to the server's limit of 1024 bytes of UTF-8."""
    text = note.encode(errors="replace")
    if len(text) > _NOTE_BYTES:
        text = text[: _NOTE_BYTES - len(_ELLIPSIS)] + _ELLIPSIS

    return text.decode(errors="ignore")


def _name_for(regarding: str) -> str:
    """Return a unique name for an Event, with the object's name if that is a subdomain."""
    unique = secrets.token_hex(8)
    name = f"{regarding}.{unique}"
    if is_subdomain(name):
        return name

    return f"event.{unique}"
