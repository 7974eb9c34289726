"""`BootClock`: a loop's clock that goes on while the machine is suspended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["BootClock"]

# Of Linux. On other systems the clock of a loop may stand still, too.
_BOOT_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)

_SUSPENDED_SECONDS: Final = 0.1
"""Smaller differences come from reading one clock after the other."""


class BootClock:
    """Clock of a loop that also counts the time for which the machine was suspended.

    Args:
        loop: Loop whose clock and timers it uses.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        """Loop whose clock and timers it uses."""
        # Seconds for which the machine was suspended before, and since then.
        self._before = _suspended_seconds()
        self._since = 0.0

    def now(self) -> float:
        """Return the current time in seconds. It never decreases."""
        return self.loop.time() + self._ahead()

    def call_at(self, when: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function at a time of this clock."""
        return self.loop.call_at(when - self._ahead(), call)

    def _ahead(self) -> float:
        """Return how far this clock is ahead of that of the loop."""
        since = _suspended_seconds() - self._before
        if since > self._since + _SUSPENDED_SECONDS:
            self._since = since

        return self._since


def _suspended_seconds() -> float:
    """Return for how long the machine was suspended since its start."""
    if _BOOT_CLOCK is None:
        return 0.0

    return time.clock_gettime(_BOOT_CLOCK) - time.monotonic()
