"""Faults of what an answer says: events of a watch, and items of a list.

Most have a victim: the first event, or item, behind `after_events` others, in which
bookmarks do not count. A watch or list without a victim arrives unharmed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from aioinformer_apiserver.faults.base import Fault
from aioinformer_apiserver.faults.checks import check_number, check_status

__all__ = [
    "BlankBookmarks",
    "Drop",
    "Duplicate",
    "ErrorEvent",
    "EventFault",
    "Foreign",
    "Garble",
    "NoBookmarks",
    "StepBack",
    "UnknownType",
    "Unreadable",
]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EventFault(Fault):
    """What the faults of events and items have in common."""

    acts_on: ClassVar[tuple[str, ...]] = ("list", "watch")

    verb: str = "watch"

    after_events: int = 0
    """How many events, or items, come before the victim (bookmarks do not count)."""

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        check_number(repr(self), "after_events", self.after_events)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ErrorEvent(EventFault):
    """Ends a watch with an ERROR event, also before its first event."""

    acts_on: ClassVar[tuple[str, ...]] = ("watch",)

    status: int
    """The code of the Status, 400 or above."""

    reason: str = ""
    """For machines; empty for the usual one of the code."""

    message: str = ""
    """For people; empty for the usual one of the code."""

    def __post_init__(self) -> None:
        EventFault.__post_init__(self)
        check_status(repr(self), self.status, range(400, 600))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Garble(EventFault):
    """Damages the JSON of the victim, at its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Duplicate(EventFault):
    """Sends the victim more than once."""

    copies: int = 1
    """How often it is repeated."""

    def __post_init__(self) -> None:
        EventFault.__post_init__(self)
        check_number(repr(self), "copies", self.copies, least=1)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Drop(EventFault):
    """Leaves the victim out: a server that lies."""

    events: int = 1
    """How many in a row."""

    def __post_init__(self) -> None:
        EventFault.__post_init__(self)
        check_number(repr(self), "events", self.events, least=1)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StepBack(EventFault):
    """Gives the victim an older version; of a list, gives one to the list itself."""

    versions: int = 1000
    """How much older; never below 1."""

    def __post_init__(self) -> None:
        EventFault.__post_init__(self)
        check_number(repr(self), "versions", self.versions, least=1)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Foreign(EventFault):
    """Sends an object of another kind in front of the victim, as an ADDED event."""

    kind: str = "Foreigner"
    """The kind of that object."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class UnknownType(EventFault):
    """Sends an event of another type in front of the victim, with the same object."""

    acts_on: ClassVar[tuple[str, ...]] = ("watch",)

    type: str = "RENAMED"
    """Its type."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Unreadable(EventFault):
    """Gives the victim labels that are none: correct JSON, but no object."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BlankBookmarks(EventFault):
    """Sends bookmarks without a version, behind so many events."""

    acts_on: ClassVar[tuple[str, ...]] = ("watch",)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NoBookmarks(EventFault):
    """Sends no bookmarks behind so many events, though they were asked for."""

    acts_on: ClassVar[tuple[str, ...]] = ("watch",)

    initial_events_end: bool = False
    """True holds back only the one that says that the initial events are complete."""
