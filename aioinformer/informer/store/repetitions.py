"""`Repetitions`: changes that a watch repeats, because the store has them from a list."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from aioinformer.cache.deltas import DeltaType
from aioinformer.informer.listwatch.watch_events import same_state
from aioinformer.model.object_meta import version_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioinformer.cache.deltas import Delta
    from aioinformer.model.objects import KubeObject

__all__ = ["Repetitions"]

# Version of a list of an earlier process: unknown, so any version.
_UNKNOWN: Final = sys.maxsize


class Repetitions:
    """Detector of changes that a watch repeats, until it has caught up with the lists.

    A list may have objects newer than its version. The watch from that version then
    repeats the changes that led to the listed states. If the list's version is not
    decimal, only repeated states are dropped.

    Later, all of that would be wrong for an unreadable object that was kept from a
    history with higher versions.

    Args:
        known: Function that returns the newest known state for a key.

    Attributes:
        expected: True until the watch has caught up.
        dropped: Number of changes that were dropped.
    """

    def __init__(self, known: Callable[[str], KubeObject | None]) -> None:
        self.expected: bool = False
        self.dropped: int = 0
        self._known = known
        self._until = -1
        # Deletions that a resumed watch may repeat: their versions by key.
        self._deletions: Mapping[str, int] = {}

    def __repr__(self) -> str:
        return f"<Repetitions until={self._until} dropped={self.dropped}>"

    def resumed(self, deletions: Mapping[str, int]) -> None:
        """Expect repetitions after a list of an earlier process.

        Args:
            deletions: Versions of later deletions that are in the store, by key.
        """
        self.expected, self._until, self._deletions = True, _UNKNOWN, deletions

    def listed(self, version: str, newest: str) -> None:
        """Expect repetitions after a complete list.

        Args:
            version: Version of the list.
            newest: Newest version of an object in it.
        """
        number = version_number(newest)
        self.expected = 0 <= version_number(version) < number
        self._until = number if self.expected else -1
        self._deletions = {}

    def widened(self, until: int) -> None:
        """Expect repetitions up to a version, after a list of some objects."""
        self.expected, self._until = True, max(self._until, until)

    def reached(self, version: str, *, bookmark: bool) -> None:
        """Record the version of the watch.

        Args:
            version: Version of the watch; empty if unknown.
            bookmark: True if there were no changes. After a resumed list, that shows
                that all repetitions have come.
        """
        if version_number(version) >= self._until or (
            bookmark and self._until == _UNKNOWN
        ):
            self.expected, self._until = False, -1

    def without(self, deltas: list[Delta[KubeObject]]) -> list[Delta[KubeObject]]:
        """Return the changes without repetitions."""
        new = [delta for delta in deltas if not self._was_listed(delta)]
        self.dropped += len(deltas) - len(new)
        return new

    def _was_listed(self, delta: Delta[KubeObject]) -> bool:
        """Return True if a list has the state of a change, or a newer one."""
        known = self._known(delta.object.key)
        number = version_number(delta.object.resource_version)
        if known is None:
            return 0 <= number <= self._deletions.get(delta.object.key, -1)

        return 0 <= number < version_number(known.resource_version) or (
            delta.type is not DeltaType.DELETED and same_state(known, delta.object)
        )
