"""Faults of the content of a response: events of a watch, items of a list.

Most have a victim: the event or item that follows `after_events` others. Bookmarks do
not count. A watch or list without a victim arrives unchanged. `ResponseMutator` applies
the hooks of a fault to a response, without I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from aioinformer import json_codec
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.faults.base import Fault, check_number, check_status
from aioinformer_apiserver.storage.encoding import error_line, event_line, plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.errors import ApiError
    from aioinformer_apiserver.faults.base import Verb

__all__ = [
    "BlankBookmarks",
    "Drop",
    "Duplicate",
    "ErrorEvent",
    "EventFault",
    "Foreign",
    "Garble",
    "NoBookmarks",
    "ResponseMutator",
    "StepBack",
    "UnknownType",
    "Unreadable",
]


_INITIAL_EVENTS_END = b'"k8s.io/initial-events-end"'


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EventFault(Fault):
    """Base of the faults of events and items: it finds the victim.

    Args:
        after_events: Number of events or items before the victim; bookmarks do not
            count.
    """

    acts_on: ClassVar[tuple[str, ...]] = ("list", "watch")

    verb: Verb | Literal[""] = "watch"
    after_events: int = 0

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        check_number(repr(self), "after_events", self.after_events)

    @property
    def alters_content(self) -> bool:
        """True."""
        return True

    def alter_event(self, line: bytes, index: int) -> list[bytes]:
        """Return the lines to send instead of an event line."""
        return self.alter_victim(line) if index == self.after_events else [line]

    def alter_list(self, body: dict[str, Any]) -> bytes | None:
        """Return the encoded list to send instead, if it has a victim."""
        if self.after_events >= len(body["items"]):
            return None

        self.alter_items(body["items"], self.after_events)
        return plain(body) + b"\n"

    def alter_victim(self, line: bytes) -> list[bytes]:
        """Return the lines to send instead of the victim's event line."""
        return [line]

    def alter_items(self, items: list[dict[str, Any]], place: int) -> None:
        """Modify the items of a list.

        Args:
            items: The items.
            place: Index of the victim.
        """


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ErrorEvent(EventFault):
    """Ends a watch with an ERROR event, possibly before its first event.

    Args:
        status: Code of the Status, 400 or above.
        reason: Machine-readable reason; empty for the usual reason of the code.
        message: Human-readable message; empty for the usual message of the code.
    """

    acts_on: ClassVar[tuple[str, ...]] = ("watch",)

    status: int
    reason: str = ""
    message: str = ""

    def __post_init__(self) -> None:
        EventFault.__post_init__(self)
        check_status(repr(self), self.status, range(400, 600))

    def watch_end(self, events: int) -> ApiError | bool:
        """End the watch after `after_events` events."""
        if events != self.after_events:
            return False

        return statuses.of_code(self.status, reason=self.reason, message=self.message)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Garble(EventFault):
    """Damages the JSON of the victim, at its beginning."""

    def alter_victim(self, line: bytes) -> list[bytes]:
        """Return the line without its first quote."""
        return [_garble(line)]

    def alter_list(self, body: dict[str, Any]) -> bytes | None:
        """Return the list with a damaged item."""
        if self.after_events >= len(body["items"]):
            return None

        items = [plain(item) for item in body["items"]]
        items[self.after_events] = _garble(items[self.after_events])
        head, mark, tail = plain({**body, "items": []}).partition(b'"items":[')
        return head + mark + b",".join(items) + tail + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Duplicate(EventFault):
    """Sends the victim more than once.

    Args:
        copies: Number of repetitions.
    """

    copies: int = 1

    def __post_init__(self) -> None:
        EventFault.__post_init__(self)
        check_number(repr(self), "copies", self.copies, least=1)

    def alter_victim(self, line: bytes) -> list[bytes]:
        """Return the line several times."""
        return [line] * (1 + self.copies)

    def alter_items(self, items: list[dict[str, Any]], place: int) -> None:
        """Insert the copies."""
        items[place:place] = [items[place]] * self.copies


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Drop(EventFault):
    """Omits the victim, as a faulty server or cache does.

    Args:
        events: Number of consecutive events or items to omit.
    """

    events: int = 1

    def __post_init__(self) -> None:
        EventFault.__post_init__(self)
        check_number(repr(self), "events", self.events, least=1)

    def alter_event(self, line: bytes, index: int) -> list[bytes]:
        """Return nothing for the omitted events."""
        is_dropped = 0 <= index - self.after_events < self.events
        return [] if is_dropped else [line]

    def alter_items(self, items: list[dict[str, Any]], place: int) -> None:
        """Remove the items."""
        del items[place : place + self.events]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StepBack(EventFault):
    """Gives the victim an older version. In a list, the list itself gets one.

    Args:
        versions: Number to subtract; the version never falls below 1.
    """

    versions: int = 1000

    def __post_init__(self) -> None:
        EventFault.__post_init__(self)
        check_number(repr(self), "versions", self.versions, least=1)

    def alter_victim(self, line: bytes) -> list[bytes]:
        """Return the event with an older version."""
        return [_alter(line, self._step_back)]

    def alter_list(self, body: dict[str, Any]) -> bytes | None:
        """Return the list with an older version."""
        self._step_back(body)
        return plain(body) + b"\n"

    def _step_back(self, body: dict[str, Any]) -> None:
        metadata = body["metadata"]
        version = int(metadata["resourceVersion"]) - self.versions
        metadata["resourceVersion"] = str(max(1, version))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Foreign(EventFault):
    """Sends an object of another kind before the victim, as an ADDED event.

    Args:
        kind: Kind of that object.
    """

    kind: str = "Foreigner"

    def alter_victim(self, line: bytes) -> list[bytes]:
        """Insert an event."""
        foreign = plain(self._foreign_object(json_codec.loads(line)["object"]))
        return [event_line("ADDED", foreign), line]

    def alter_items(self, items: list[dict[str, Any]], place: int) -> None:
        """Insert an item."""
        items.insert(place, self._foreign_object(items[place]))

    def _foreign_object(self, body: dict[str, Any]) -> dict[str, Any]:
        """Make an object of the other kind with the namespace, version and age of `body`."""
        metadata = body["metadata"]
        name = self.kind.lower()
        kept = {"namespace", "resourceVersion", "creationTimestamp"} & set(metadata)
        return {
            "kind": self.kind,
            "apiVersion": "example.com/v1",
            "metadata": {
                "name": name,
                "uid": f"{name}-{metadata.get('uid', '')}",
                **{key: metadata[key] for key in sorted(kept)},
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class UnknownType(EventFault):
    """Sends an event of an unknown type before the victim, with the same object.

    Args:
        type: Type of that event.
    """

    acts_on: ClassVar[tuple[str, ...]] = ("watch",)

    type: str = "RENAMED"

    def alter_victim(self, line: bytes) -> list[bytes]:
        """Insert an event."""
        return [event_line(self.type, plain(json_codec.loads(line)["object"])), line]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Unreadable(EventFault):
    """Replaces the labels of the victim by a number: valid JSON, but no valid object."""

    def alter_victim(self, line: bytes) -> list[bytes]:
        """Return the event with such an object."""
        return [_alter(line, _make_unreadable)]

    def alter_items(self, items: list[dict[str, Any]], place: int) -> None:
        """Modify the item."""
        _make_unreadable(items[place])


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BlankBookmarks(EventFault):
    """Sends bookmarks without a version after `after_events` events."""

    acts_on: ClassVar[tuple[str, ...]] = ("watch",)

    def alter_bookmark(self, line: bytes, index: int) -> list[bytes]:
        """Return the bookmark without its version."""
        return [line] if index < self.after_events else [_alter(line, _drop_version)]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NoBookmarks(EventFault):
    """Sends no bookmarks after `after_events` events, although the client requests them.

    Args:
        initial_events_end: True omits only the bookmark that marks the end of the
            initial events.
    """

    acts_on: ClassVar[tuple[str, ...]] = ("watch",)

    initial_events_end: bool = False

    def alter_bookmark(self, line: bytes, index: int) -> list[bytes]:
        """Return nothing for the omitted bookmarks."""
        is_kept = self.initial_events_end and _INITIAL_EVENTS_END not in line
        return [line] if index < self.after_events or is_kept else []


# ---------------------------------------------------------------- helpers


def _alter(line: bytes, alter: Callable[[dict[str, Any]], None]) -> bytes:
    event = json_codec.loads(line)
    alter(event["object"])
    return event_line(event["type"], plain(event["object"]))


def _garble(text: bytes) -> bytes:
    # At the beginning: a reader may parse no more of an object than its head.
    return text.replace(b'"', b"", 1)


def _drop_version(body: dict[str, Any]) -> None:
    del body["metadata"]["resourceVersion"]


def _make_unreadable(body: dict[str, Any]) -> None:
    body["metadata"]["labels"] = 0


_BOOKMARK = b'{"type":"BOOKMARK"'


_ERROR = b'{"type":"ERROR"'


class ResponseMutator:
    """Runs the hooks of a fault on one response.

    A watch passes its lines as it writes them, a list its whole body. JSON is decoded
    only where the fault strikes.

    Attributes:
        ended: True if the watch must end, cleanly, after the lines returned last.
        altered: True if the returned content differs from the given content.
    """

    def __init__(self, fault: Fault) -> None:
        self.ended: bool = False
        self.altered: bool = False
        self._fault = fault
        self._events = 0

    def initial_lines(self) -> list[bytes]:
        """Return the lines to send before the first event of a watch."""
        return self._end()

    def mutate_lines(self, lines: list[bytes]) -> list[bytes]:
        """Return the lines to send instead of these complete lines of a watch."""
        sent: list[bytes] = []
        for line in lines:
            if self.ended:
                break

            if line.startswith(_ERROR):
                sent.append(line)  # It reports on the watch and has no object.
                continue

            if line.startswith(_BOOKMARK):
                sent += self._record_change(
                    line, self._fault.alter_bookmark(line, self._events)
                )
                continue

            sent += self._record_change(
                line, self._fault.alter_event(line, self._events)
            )
            self._events += 1
            sent += self._end()

        return sent

    def mutate_body(self, body: bytes) -> bytes:
        """Return the body to send instead of a whole body; only lists change."""
        listed = _list_in(body)
        changed = None if listed is None else self._fault.alter_list(listed)
        if changed is None:
            return body

        self.altered |= changed != body
        return changed

    def _record_change(self, line: bytes, changed: list[bytes]) -> list[bytes]:
        self.altered |= changed != [line]
        return changed

    def _end(self) -> list[bytes]:
        """End the watch if the fault says so, and return its last line."""
        end = self._fault.watch_end(self._events)
        if end is False:
            return []

        self.ended = self.altered = True
        return [] if end is True else [error_line(end)]


def _list_in(body: bytes) -> dict[str, Any] | None:
    try:
        decoded = json_codec.loads(body)
    except json_codec.JSONDecodeError:
        return None

    is_list = isinstance(decoded, dict) and isinstance(decoded.get("items"), list)
    return decoded if is_list else None
