"""Durations as users give them: `float` seconds, or a `timedelta`."""

from __future__ import annotations

import math
from datetime import timedelta

from aioinformer.errors import OptionsError

__all__ = ["Duration", "seconds_of", "timeout_of"]

Duration = float | timedelta


def seconds_of(duration: Duration) -> float:
    """Turn a duration into seconds; negative ones stay negative.

    Raises:
        OptionsError: If it is not finite: no timer can be set by it.
    """
    if isinstance(duration, timedelta):
        return duration.total_seconds()

    if not math.isfinite(duration):
        raise OptionsError(f"a duration cannot be {duration!r} seconds")

    return float(duration)


def timeout_of(timeout: Duration | None) -> float | None:
    """The same for a timeout, where None stands for no limit.

    Raises:
        OptionsError: If it is not finite: None is how to wait for ever.
    """
    return None if timeout is None else seconds_of(timeout)
