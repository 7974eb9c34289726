"""Faults of what an answer says: events of a watch, and items of a list.

Most have a victim: the first event, or item, behind `after_events` others, in which
bookmarks do not count. A watch or list without a victim arrives unharmed.
"""

from __future__ import annotations

from dataclasses import dataclass

from aioinformer.errors import OptionsError
from aioinformer.testing.faults.base import Fault, check_not_negative

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

    verb: str = "watch"

    after_events: int = 0
    """How many events, or items, come before the victim (bookmarks do not count)."""

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        check_not_negative(self, "after_events")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ErrorEvent(EventFault):
    """Ends a watch with an ERROR event, also before its first event."""

    status: int
    """The code of the Status, 400 or above."""

    reason: str = ""
    """For machines; empty for the usual one of the code."""

    message: str = ""
    """For people; empty for the usual one of the code."""

    def __post_init__(self) -> None:
        EventFault.__post_init__(self)
        if not 400 <= self.status <= 599:
            raise OptionsError(f"an error with status {self.status}")


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
        if self.copies < 1:
            raise OptionsError(f"a Duplicate with {self.copies} copies")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Drop(EventFault):
    """Leaves the victim out: a server that lies."""

    events: int = 1
    """How many in a row."""

    def __post_init__(self) -> None:
        EventFault.__post_init__(self)
        if self.events < 1:
            raise OptionsError(f"a Drop of {self.events} events")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StepBack(EventFault):
    """Gives the victim an older version; of a list, gives one to the list itself."""

    versions: int = 1000
    """How much older; never below 1."""

    def __post_init__(self) -> None:
        EventFault.__post_init__(self)
        if self.versions < 1:
            raise OptionsError(f"a step back by {self.versions} versions")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Foreign(EventFault):
    """Sends an object of another kind in front of the victim, as an ADDED event."""

    kind: str = "Foreigner"
    """The kind of that object."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class UnknownType(EventFault):
    """Sends an event of another type in front of the victim, with the same object."""

    type: str = "RENAMED"
    """Its type."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Unreadable(EventFault):
    """Gives the victim labels that are none: correct JSON, but no object."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BlankBookmarks(EventFault):
    """Sends bookmarks without a version, behind so many events."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NoBookmarks(EventFault):
    """Sends no bookmarks behind so many events, though they were asked for."""

    initial_events_end: bool = False
    """True holds back only the one that says that the initial events are complete."""
