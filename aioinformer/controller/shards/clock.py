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

# Smaller differences come from reading one clock after the other.
_SUSPENDED_SECONDS: Final = 0.1


class BootClock:
    """Clock of a loop that also counts the time for which the machine was suspended.

    Args:
        loop: Loop whose clock and timers it uses.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        """Loop whose clock and timers it uses."""
        self._ahead = _boot_ahead()

    def now(self) -> float:
        """Return the current time in seconds."""
        return self.loop.time() + self._suspended()

    def call_at(self, when: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function at a time of this clock."""
        return self.loop.call_at(when - self._suspended(), call)

    def _suspended(self) -> float:
        seconds = _boot_ahead() - self._ahead
        return seconds if seconds > _SUSPENDED_SECONDS else 0.0


def _boot_ahead() -> float:
    """Return for how long the machine was suspended since its start."""
    if _BOOT_CLOCK is None:
        return 0.0

    return time.clock_gettime(_BOOT_CLOCK) - time.monotonic()
