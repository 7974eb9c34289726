"""`Meter`: how fast a total grows. Pure: the time is given."""

from __future__ import annotations

from collections import deque

__all__ = ["Meter"]

# A rate over three seconds is calm enough to be read, and follows within a breath.
METER_SECONDS = 3.0


class Meter:
    """Turns a growing total into a rate, over the last three seconds."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()

    def rate(self, now: float, total: int) -> float:
        """Take note of the total at a time in seconds; returns its growth in a second."""
        self._marks.append((now, total))
        while len(self._marks) > 2 and now - self._marks[1][0] >= METER_SECONDS:
            self._marks.popleft()

        since, before = self._marks[0]
        return (total - before) / (now - since) if now > since else 0.0
