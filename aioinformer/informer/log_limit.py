"""Which of many log records of one kind are written: the first ones, then sums."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LogLimit", "Verdict"]

WINDOW_SECONDS = 60.0

EACH = 9
"""So many in a minute are written one by one; from the next on there are sums: at 10,
20, 40, ... So whatever happens a million times writes 27 records in a minute."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to write about one occurrence."""

    each: bool
    """The occurrence itself."""

    sum: int = 0
    """If not 0: so many there were by now in this minute, this one included."""

    before: int = 0
    """If not 0: so many there were in the last minute that had any, not all told."""

    @property
    def sums(self) -> list[int]:
        """The numbers that are to be written, if any: `before`, then `sum`."""
        return [number for number in (self.before, self.sum) if number]


class LogLimit:
    """Counts occurrences of one kind. Pure: the times are handed in."""

    def __init__(self) -> None:
        self._began = 0.0
        self._count = 0
        # The count that was written last, or is the next to be.
        self._told = 0
        self._next = EACH + 1

    def note(self, now: float) -> Verdict:
        """Count one, at the time `now` in seconds of any clock."""
        before = 0
        if not self._count or not 0 <= now - self._began < WINDOW_SECONDS:
            before = self._count if self._count > self._told else 0
            self._began, self._count = now, 0
            self._told, self._next = 0, EACH + 1

        self._count += 1
        if self._count <= EACH:
            self._told = self._count
            return Verdict(each=True, before=before)

        if self._count < self._next:
            return Verdict(each=False)

        self._told, self._next = self._count, self._count * 2
        return Verdict(each=False, sum=self._count)
