"""`ServerOrder`: puts changes back into the order in which a server sent them. Pure.

An informer applies the queued changes of one object together. So changes of different
objects may be recorded in another order than that of their versions, which no watch may
have.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from aioinformer.model.object_meta import version_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer.recording.reading import Happening

__all__ = ["ServerOrder"]

WINDOW_SECONDS: Final = 5.0
"""Seconds by which an informer may have applied a change later than another one."""

WINDOW: Final = 10_000
"""Number of entries that are compared at most."""


class ServerOrder:
    """Entries of a recording, with the changes of each informer by their versions.

    Each informer keeps the places and times that its changes have among those of the
    others. Nothing is moved beyond a list of its informer. Versions that are not numbers
    stay where they are.
    """

    def __init__(self) -> None:
        self._waiting: list[Happening] = []
        # Places in `_waiting`, counted from the first entry ever, that can be sorted.
        self._places: dict[tuple[str, str], list[int]] = {}
        self._first = 0

    def feed(self, happening: Happening) -> Iterator[Happening]:
        """Take an entry, and yield those whose place is known."""
        informer = happening.informer
        if informer is not None and happening.kind == "CHANGE":
            obj = happening.changes[0].obj
            group = (informer.name, obj.namespace if informer.namespaces else "")
            place = self._first + len(self._waiting)
            self._places.setdefault(group, []).append(place)
        elif informer is not None and happening.kind not in {"STATUS", "SYNCED"}:
            for group in [it for it in self._places if it[0] == informer.name]:
                self._sort(self._places.pop(group))

        waiting = self._waiting
        waiting.append(happening)
        # Not with each entry, as it looks at all that wait.
        if waiting[0].t < happening.t - 2 * WINDOW_SECONDS or len(waiting) > WINDOW:
            yield from self._ripe(happening.t - WINDOW_SECONDS)

    def finish(self) -> Iterator[Happening]:
        """Yield the rest."""
        yield from self._ripe(math.inf)

    def _ripe(self, oldest: float) -> list[Happening]:
        """Sort everything, and return what nothing will be sorted before."""
        for places in self._places.values():
            self._sort(places)

        waiting = self._waiting
        count = sum(1 for _ in takewhile(lambda it: it.t < oldest, waiting))
        if len(waiting) > WINDOW:
            count = max(count, WINDOW // 2)

        self._first += count
        self._waiting = waiting[count:]
        remaining = {
            group: [it for it in places if it >= self._first]
            for group, places in self._places.items()
        }
        self._places = {group: places for group, places in remaining.items() if places}
        return waiting[:count]

    def _sort(self, places: list[int]) -> None:
        waiting, first = self._waiting, self._first
        entries = [waiting[it - first] for it in places]
        versions = [_version(it) for it in entries]
        if -1 in versions or versions == sorted(versions):
            return

        moments = [it.t for it in entries]
        ordered = sorted(entries, key=_version)
        for place, t, entry in zip(places, moments, ordered, strict=True):
            waiting[place - first] = replace(entry, t=t)


def _version(happening: Happening) -> int:
    return version_number(happening.changes[0].obj.resource_version)
