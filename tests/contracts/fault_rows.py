"""Each fault, the places where it can strike, and the informer's next attempt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pytest

from aioinformer_apiserver.faults import (
    BlankBookmarks,
    Compact,
    Cut,
    Delay,
    Drop,
    Duplicate,
    End,
    ErrorEvent,
    Fault,
    Foreign,
    Garble,
    Gone,
    NoBookmarks,
    Page,
    Refuse,
    Slow,
    Stall,
    StepBack,
    UnknownType,
    Unreadable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "A_RELIST",
    "ROWS",
    "Place",
    "Row",
    "on_list",
    "on_page",
    "on_stream",
    "parameters",
]

Place: TypeAlias = Literal["list", "relist", "page", "watch", "midstream", "stream"]

RESUME = "watch"
AGAIN = "list any"
NOT_OLDER = "list not older"
NEWEST = "list newest"
AS_STREAM = "stream"
NOTHING = ""

ON_DISK: tuple[Place, ...] = ("page", "midstream")
"""Places at which faults also strike an informer with a store on disk: in the middle of
a list that is staged, and of a watch whose events are written."""


@dataclass(frozen=True)
class Row:
    """One fault at one place.

    Attributes:
        place: First list; first or second page of a list after a 410; start or middle
            of a watch; streaming list.
        fault: Fault that strikes there.
        then: Next attempt; empty if the struck response is still followed.
        reset: True if the server's history is taken for another one.
        skipped: Number of objects and events that could not be read.
        lied_to: True if the client got wrong data and cannot know before it relists.
            The test then lets it relist.
        before: Further faults, on the way to the place.
        writes: Writes at the beginning; the second one is the first event of a watch
            after the first list.
    """

    place: Place
    fault: Fault
    then: str
    reset: bool = False
    skipped: int = 0
    lied_to: bool = False
    before: tuple[Fault, ...] = ()
    writes: tuple[str, ...] = ("update",) * 5

    def script(self) -> list[Fault]:
        """Return the faults that lead the informer to the place, and the fault itself."""
        fault = self.fault
        match self.place:
            case "list":
                return [*self.before, replace(fault, verb="list")]
            case "relist":
                return [*A_RELIST, replace(fault, verb="list", skip=1)]
            case "page":
                page = replace(fault, verb="list", parameter="continue")
                return [*A_RELIST, *self.before, page]
            case "watch":
                return [End(after_events=2), replace(fault, verb="watch")]
            case "midstream":
                return [replace(fault, verb="watch")]
            case "stream":
                initial = "sendInitialEvents"
                return [replace(fault, verb="watch", parameter=initial)]


A_RELIST = (End(after_events=2), Gone())


def on_list(**options: Any) -> Stall:
    """Make a fault that stalls a list."""
    return Stall(verb="list", **options)


def on_page(**options: Any) -> Stall:
    """Make a fault that stalls the next page of a list."""
    return Stall(verb="list", parameter="continue", **options)


def on_stream(**options: Any) -> Stall:
    """Make a fault that stalls a streaming list."""
    return Stall(parameter="sendInitialEvents", **options)


def _lists() -> Iterator[Row]:
    """Yield failing lists, which are repeated from their first page."""
    # A refused page is handled as a refused list; a few show that.
    for fault in (
        *(Refuse(status=status) for status in (404, 405)),
        Refuse(status=503, retry_after=3, retry_date=True),
        Page(status=502),
    ):
        yield Row("list", fault, AGAIN)

    failing = [
        *(Refuse(status=status) for status in (401, 503)),
        Refuse(status=429, retry_after=3),
        Page(status=200),
        Stall(head=False),
        Stall(after_bytes=500),
        # Twice, because a request on a dead kept-alive connection is sent once more.
        Cut(head=False, times=2),
        Cut(after_bytes=0),
        Cut(after_bytes=500),
        Cut(after_bytes=500, reset=True),
        End(verb="", after_bytes=500),
        Garble(after_events=1),
    ]
    for fault in failing:
        yield Row("list", fault, AGAIN)
        yield Row("page", fault, NEWEST)

    for fault in (Gone(), Refuse(status=400)):
        yield Row("list", fault, NEWEST)
        yield Row("page", fault, NEWEST)

    # The third page of a slow list has expired, because writes went on.
    slow = Slow(verb="list", bytes_per_second=1000, skip=1)
    yield Row("page", Compact(skip=1), NEWEST, before=(slow,))
    yield Row("relist", StepBack(), NEWEST, reset=True)


def _lists_that_pass() -> Iterator[Row]:
    harmless = [
        Delay(seconds=5),
        Stall(after_bytes=500, seconds=5),
        Slow(bytes_per_second=2000),
        Duplicate(after_events=1, copies=2),
    ]
    for fault in harmless:
        yield Row("list", fault, RESUME)
        yield Row("page", fault, RESUME)

    for place in _LIST_PLACES:
        yield Row(place, Foreign(after_events=1), RESUME, skipped=1)
        yield Row(place, Unreadable(after_events=1), RESUME, skipped=1, lied_to=True)
        yield Row(place, Drop(after_events=1), RESUME, lied_to=True)

    # The version of a list is that of its first page.
    yield Row("page", StepBack(), RESUME)
    # The watch repeats the history of the listed objects; handlers get nothing of it.
    yield Row("list", StepBack(versions=6), RESUME)


_LIST_PLACES: tuple[Place, ...] = ("list", "page")


def _watches() -> Iterator[Row]:
    """Yield watches that are refused or do not start."""
    resumed = [
        *(Refuse(status=status) for status in (401, 403, 503)),
        Refuse(status=429, retry_after=3),
        Refuse(status=503, retry_after=3, retry_date=True),
        Page(status=502),
        Stall(head=False),
        Cut(head=False),
        Cut(after_bytes=0),
        Cut(head=False, reset=True),
    ]
    for fault in resumed:
        yield Row("watch", fault, RESUME)

    yield Row("watch", Refuse(status=404), NOT_OLDER)
    yield Row("watch", Refuse(status=405), NOT_OLDER)
    yield Row("watch", Page(status=200), NOT_OLDER)
    yield Row("watch", Refuse(status=400), NEWEST)
    yield Row("watch", Gone(), NEWEST)
    yield Row("watch", Compact(), NEWEST)
    yield Row("watch", ErrorEvent(status=410), NEWEST)
    yield Row("watch", ErrorEvent(status=500), RESUME)
    yield Row("watch", Delay(seconds=5), NOTHING)


def _in_mid_stream() -> Iterator[Row]:
    """Yield watches that end badly."""
    resumed = [
        Cut(after_bytes=3000),
        Cut(after_bytes=3000, reset=True),
        End(after_events=3),
        End(after_bytes=3000),
        Stall(after_bytes=3000),
        *(ErrorEvent(status=status, after_events=3) for status in (401, 429, 500)),
    ]
    for fault in resumed:
        yield Row("midstream", fault, RESUME)

    yield Row("midstream", Gone(after_events=3), NEWEST)
    yield Row("midstream", ErrorEvent(status=410, after_events=3), NEWEST)
    yield Row("midstream", ErrorEvent(status=404, after_events=3), NOT_OLDER)
    yield Row("midstream", Garble(after_events=3), NOT_OLDER)
    yield Row("midstream", StepBack(after_events=3), NEWEST, reset=True)
    # A deletion of an unknown object looks like an older history.
    ends = ("update", "update", "update", "update", "delete")
    twice = Duplicate(after_events=3)
    yield Row("midstream", twice, NEWEST, reset=True, writes=ends)


def _watches_that_pass() -> Iterator[Row]:
    harmless = [
        Stall(after_bytes=3000, seconds=5),
        Slow(bytes_per_second=4000),
        Duplicate(after_events=3, copies=2),
        NoBookmarks(),
        BlankBookmarks(),
    ]
    for fault in harmless:
        yield Row("midstream", fault, NOTHING)

    for lie in (Foreign(after_events=3), UnknownType(after_events=3)):
        yield Row("midstream", lie, NOTHING, skipped=1)

    yield Row("midstream", Unreadable(after_events=3), NOTHING, skipped=1, lied_to=True)
    yield Row("midstream", Drop(after_events=3), NOTHING, lied_to=True)


def _streams() -> Iterator[Row]:
    """Yield streaming lists: pages follow a refusal, a stream follows other faults."""
    in_pages = [
        *(Refuse(status=status) for status in (400, 405, 422)),
        NoBookmarks(initial_events_end=True),
        NoBookmarks(),
        Stall(after_bytes=500),
    ]
    for fault in in_pages:
        yield Row("stream", fault, AGAIN)

    again = [
        *(Refuse(status=status) for status in (401, 404, 503)),
        Refuse(status=429, retry_after=3),
        *(Page(status=status) for status in (200, 502)),
        Gone(),
        Gone(after_events=3),
        ErrorEvent(status=504, after_events=3),
        ErrorEvent(status=500),
        Stall(head=False),
        Cut(head=False),
        Cut(after_bytes=0),
        Cut(after_bytes=500),
        Cut(after_bytes=500, reset=True),
        End(after_events=3),
        End(after_bytes=500),
        Garble(after_events=1),
        BlankBookmarks(),
    ]
    for fault in again:
        yield Row("stream", fault, AS_STREAM)


def _streams_that_pass() -> Iterator[Row]:
    harmless = [
        Delay(seconds=5),
        Stall(after_bytes=500, seconds=5),
        Slow(bytes_per_second=4000),
        Duplicate(after_events=1, copies=2),
    ]
    for fault in harmless:
        yield Row("stream", fault, NOTHING)

    for lie in (Foreign(after_events=1), UnknownType(after_events=1)):
        yield Row("stream", lie, NOTHING, skipped=1)

    yield Row("stream", Unreadable(after_events=1), NOTHING, skipped=1, lied_to=True)
    yield Row("stream", Drop(after_events=1), NOTHING, lied_to=True)
    yield Row("stream", StepBack(after_events=1), NOTHING, lied_to=True)


ROWS = [
    *_lists(),
    *_lists_that_pass(),
    *_watches(),
    *_in_mid_stream(),
    *_watches_that_pass(),
    *_streams(),
    *_streams_that_pass(),
]


def parameters() -> list[object]:
    """Return the rows as test parameters, each with whether the store is on disk."""
    cases = [(row, False) for row in ROWS]
    cases += [(row, True) for row in ROWS if row.place in ON_DISK]
    return [
        pytest.param(
            row, on_disk, id=f"{row.place}-{row.fault!r}{'-disk' if on_disk else ''}"
        )
        for row, on_disk in cases
    ]
