"""`StepCounts`: how often something happened, in steps of five seconds."""

from __future__ import annotations

from collections import deque

__all__ = ["STEPS", "STEP_SECONDS", "StepCounts"]

STEPS = 60
"""Number of steps that are kept: five minutes."""

STEP_SECONDS = 5.0
"""Length of a step."""


class StepCounts:
    """Counts of the last steps, and of the current one."""

    def __init__(self) -> None:
        # The last one is that of the current step.
        self._counts = deque([0] * (STEPS + 1), maxlen=STEPS + 1)
        self._step = 0

    def add(self, now: float, count: int = 1) -> None:
        """Count events at a time of the loop, which is never earlier than before."""
        self._advance(now)
        self._counts[-1] += count

    def rates(self, now: float) -> list[float]:
        """Return the events per second of each complete step, the oldest first."""
        self._advance(now)
        return [count / STEP_SECONDS for count in self._counts][:-1]

    def rate(self, now: float) -> float:
        """Return the events per second since the last complete step began."""
        self._advance(now)
        elapsed = now - self._step * STEP_SECONDS
        return (self._counts[-2] + self._counts[-1]) / (STEP_SECONDS + elapsed)

    def _advance(self, now: float) -> None:
        step = int(now // STEP_SECONDS)
        if step > self._step:
            self._counts.extend([0] * min(step - self._step, STEPS + 1))
            self._step = step
