"""Distortion: what the faults of events and items do to what is sent. No I/O.

One per answer. A watch's lines come in as they are written, a list's body as a whole;
both are taken apart only where a fault strikes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

import orjson

from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.faults.answers import Gone
from aioinformer_apiserver.faults.connections import End
from aioinformer_apiserver.faults.events import (
    BlankBookmarks,
    Drop,
    Duplicate,
    ErrorEvent,
    EventFault,
    Foreign,
    Garble,
    NoBookmarks,
    StepBack,
    UnknownType,
    Unreadable,
)
from aioinformer_apiserver.storage.encoding import error_line, event_line, plain

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from aioinformer_apiserver.faults.base import Fault

    Distorting: TypeAlias = EventFault | Gone | End

__all__ = ["Distortion"]

_BOOKMARK = b'{"type":"BOOKMARK"'
_ERROR = b'{"type":"ERROR"'
_OF_LISTS = (Garble, StepBack, Drop, Duplicate, Foreign, Unreadable)
_INITIAL_EVENTS_END = b'"k8s.io/initial-events-end"'


class Distortion:
    """Alters one answer as a fault says.

    Attributes:
        over: True if a watch has to end, cleanly, behind what was returned last.
        altered: True if what was returned so far differs from what was given.
    """

    def __init__(self, fault: Distorting) -> None:
        self.over = False
        self.altered = False
        self._fault = fault
        self._events = 0

    @staticmethod
    def concerns(fault: Fault) -> TypeGuard[Distorting]:
        """Say whether a fault alters what an answer says."""
        return isinstance(fault, EventFault | Gone | End)

    # ---------------------------------------------------------------- watches

    def beginning(self) -> list[bytes]:
        """Return the lines that a watch begins with, before its first event."""
        return self._ending()

    def lines(self, lines: list[bytes]) -> list[bytes]:
        """Return what is sent in the place of these complete lines of a watch."""
        sent: list[bytes] = []
        for line in lines:
            if self.over:
                break

            if line.startswith(_ERROR):
                sent.append(line)  # It is about the watch, and of no object.
                continue

            if line.startswith(_BOOKMARK):
                sent += self._noted(line, self._bookmark(line))
                continue

            sent += self._noted(line, self._event(line))
            self._events += 1
            sent += self._ending()

        return sent

    def _noted(self, line: bytes, instead: list[bytes]) -> list[bytes]:
        self.altered |= instead != [line]
        return instead

    def _ending(self) -> list[bytes]:
        """End the watch, if it is time, and say why."""
        fault = self._fault
        if self._events != fault.after_events:
            return []

        match fault:
            case Gone():
                error = statuses.expired("too old resource version: it has expired")
            case ErrorEvent():
                error = statuses.of_code(
                    fault.status, reason=fault.reason, message=fault.message
                )
            case End():
                self.over = self.altered = True
                return []
            case _:
                return []

        self.over = self.altered = True
        return [error_line(error)]

    def _event(self, line: bytes) -> list[bytes]:
        fault = self._fault
        if isinstance(fault, Drop) and self._is_dropped(fault, self._events):
            return []

        if self._events != fault.after_events:
            return [line]

        match fault:
            case Garble():
                return [_garbled(line)]
            case Duplicate():
                return [line] * (1 + fault.copies)
            case StepBack():
                return [_altered(line, lambda it: _step_back(it, fault.versions))]
            case Unreadable():
                return [_altered(line, _make_unreadable)]
            case Foreign():
                return [_foreign_line(line, fault.kind), line]
            case UnknownType():
                return [event_line(fault.type, plain(_object_of(line))), line]
            case _:
                return [line]

    def _bookmark(self, line: bytes) -> list[bytes]:
        fault = self._fault
        if self._events < (fault.after_events or 0):
            return [line]

        match fault:
            case NoBookmarks(initial_events_end=only_the_end):
                kept = only_the_end and _INITIAL_EVENTS_END not in line
                return [line] if kept else []
            case BlankBookmarks():
                return [_altered(line, _forget_version)]
            case _:
                return [line]

    # ---------------------------------------------------------------- lists

    def whole(self, body: bytes) -> bytes:
        """Return what is sent in the place of a whole body.

        Only a list that has a victim is altered.
        """
        instead = self._instead(body)
        self.altered |= instead != body
        return instead

    def _instead(self, body: bytes) -> bytes:
        fault, listed = self._fault, _list_in(body)
        if listed is None or not isinstance(fault, _OF_LISTS):
            return body

        if isinstance(fault, StepBack):
            _step_back(listed, fault.versions)
        elif fault.after_events >= len(listed["items"]):
            return body
        elif isinstance(fault, Garble):
            return _garbled_list(listed, fault.after_events)
        else:
            _alter_items(listed["items"], fault)

        return plain(listed) + b"\n"

    @staticmethod
    def _is_dropped(fault: Drop, number: int) -> bool:
        return 0 <= number - fault.after_events < fault.events


def _alter_items(items: list[dict[str, Any]], fault: EventFault) -> None:
    place = fault.after_events
    match fault:
        case Drop(events=events):
            del items[place : place + events]
        case Duplicate(copies=copies):
            items[place:place] = [items[place]] * copies
        case Foreign(kind=kind):
            items.insert(place, _foreigner(items[place], kind))
        case Unreadable():
            _make_unreadable(items[place])
        case _:
            pass


def _list_in(body: bytes) -> dict[str, Any] | None:
    try:
        decoded = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None

    is_list = isinstance(decoded, dict) and isinstance(decoded.get("items"), list)
    return decoded if is_list else None


def _object_of(line: bytes) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(line)["object"]
    return found


def _altered(line: bytes, alter: Callable[[dict[str, Any]], None]) -> bytes:
    event = orjson.loads(line)
    alter(event["object"])
    return event_line(event["type"], plain(event["object"]))


def _garbled(text: bytes) -> bytes:
    # At the front: a reader may well not look at more of an object than its head.
    return text.replace(b'"', b"", 1)


def _garbled_list(listed: dict[str, Any], place: int) -> bytes:
    items = [plain(item) for item in listed["items"]]
    items[place] = _garbled(items[place])
    before, mark, after = plain({**listed, "items": []}).partition(b'"items":[')
    return before + mark + b",".join(items) + after + b"\n"


def _step_back(body: dict[str, Any], versions: int) -> None:
    metadata = body["metadata"]
    metadata["resourceVersion"] = str(
        max(1, int(metadata["resourceVersion"]) - versions)
    )


def _forget_version(body: dict[str, Any]) -> None:
    del body["metadata"]["resourceVersion"]


def _make_unreadable(body: dict[str, Any]) -> None:
    body["metadata"]["labels"] = 0


def _foreign_line(line: bytes, kind: str) -> bytes:
    return event_line("ADDED", plain(_foreigner(_object_of(line), kind)))


def _foreigner(neighbour: dict[str, Any], kind: str) -> dict[str, Any]:
    """Make an object of another kind that is as old, and in the same place."""
    metadata = neighbour["metadata"]
    name = kind.lower()
    kept = {"namespace", "resourceVersion", "creationTimestamp"} & set(metadata)
    return {
        "kind": kind,
        "apiVersion": "example.com/v1",
        "metadata": {
            "name": name,
            "uid": f"{name}-{metadata.get('uid', '')}",
            **{key: metadata[key] for key in sorted(kept)},
        },
    }
