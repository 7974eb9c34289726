"""Durations as the queues take them: `float` seconds, or a `timedelta`."""

from __future__ import annotations

import math
from datetime import timedelta

from aioinformer.errors import OptionsError

__all__ = ["seconds_of"]


def seconds_of(duration: float | timedelta) -> float:
    """Turn a duration into seconds; negative ones stay negative.

    Raises:
        OptionsError: If it is not finite: no timer can be set by it.
    """
    if isinstance(duration, timedelta):
        return duration.total_seconds()

    if not math.isfinite(duration):
        raise OptionsError(f"a duration cannot be {duration!r} seconds")

    return float(duration)
