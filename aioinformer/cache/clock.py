"""`LoopClock`: the time of an event loop, for stores that are read from any thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LoopClock"]


class LoopClock:
    """`loop.time()` of the loop that runs when it is asked for the first time.

    From then on it may be asked from any thread, and when the loop has ended.
    """

    def __init__(self) -> None:
        self._time: Callable[[], float] | None = None

    def __call__(self) -> float:
        """Seconds since some moment.

        Raises:
            OptionsError: No loop has been running so far: a `clock=` is needed.
        """
        if self._time is None:
            try:
                self._time = asyncio.get_running_loop().time
            except RuntimeError as exc:
                raise OptionsError("no event loop is running: give a clock=") from exc

        return self._time()
