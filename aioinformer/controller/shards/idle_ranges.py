"""`IdleRanges`: ranges that a replica owns and cannot work on, and what follows from that."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aioinformer.controller.shards.timing import ShardTiming

__all__ = ["IdleRanges", "listed"]

_MOST_DOUBLES: Final = 3


class IdleRanges:
    """Owned ranges on which a replica does not work, such as after failed lists.

    A replica that works on none of its ranges declines all for a while, so that others
    can have them. One that works on some keeps all: moves would interrupt that work.

    Args:
        timing: Durations of the group.
    """

    def __init__(self, timing: ShardTiming) -> None:
        self._timing = timing
        self._inactive: Mapping[int, str] = {}
        self._since: dict[int, float] = {}
        self._declined_until = -math.inf
        self._declines = 0  # in succession
        self._why = ""

    def update(self, inactive: Mapping[int, str], now: float) -> None:
        """Record the ranges that are idle now, with the reasons."""
        self._inactive = inactive
        self._since = {it: self._since.get(it, now) for it in inactive}

    def late(self, now: float) -> list[int]:
        """Return ranges that have been idle for longer than a dead owner explains."""
        patience = self._timing.patience
        return [it for it, since in self._since.items() if now - since > patience]

    def why(self, now: float) -> str:
        """Return which ranges are idle for long, or why it leaves all to others."""
        if late := self.late(now):
            return f"ranges are owned but idle: {listed(late)}: {self._reasons(late)}"

        return f"all ranges are left to others: {self._why}" if self._declines else ""

    def _reasons(self, numbers: Iterable[int]) -> str:
        return "; ".join(dict.fromkeys(self._inactive[it] for it in numbers))

    def seconds_to_decline(self, owned: int, now: float, incomplete: str = "") -> float:
        """Return for how long to decline all ranges from now on; 0 for no change.

        Args:
            owned: Number of owned ranges.
            now: Current time.
            incomplete: Reason why the replica could work on no range, whichever it
                owned; empty if there is none.
        """
        late = self.late(now)
        over = now >= self._declined_until + self._timing.patience
        if len(self._inactive) < owned or (over and not owned and not incomplete):
            self._declines = 0
        elif len(late) == owned and (late or incomplete):
            left, seconds = self._declined_until - now, self._timing.ineligible
            if left <= 0:
                self._declines += 1

            if left < seconds / 2:  # it must not end while it is needed
                self._why = self._reasons(late) or incomplete
                seconds *= 1 << min(self._declines - 1, _MOST_DOUBLES)
                self._declined_until = now + seconds
                return seconds

        return 0.0


def listed(numbers: Iterable[int]) -> str:
    """Return numbers in ascending order, for people."""
    return ", ".join(map(str, sorted(numbers)))
