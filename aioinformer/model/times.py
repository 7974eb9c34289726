"""Durations and timestamps: user input, and Kubernetes' formats."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from aioinformer.errors import OptionsError

__all__ = [
    "Duration",
    "human_duration",
    "kube_time",
    "micro_time",
    "seconds_of",
    "timeout_of",
]


Duration = float | timedelta


def seconds_of(duration: Duration) -> float:
    """Convert a duration to seconds; negative ones stay negative.

    Raises:
        OptionsError: If it is not finite, or not a number.
    """
    if isinstance(duration, timedelta):
        return duration.total_seconds()

    try:
        finite = math.isfinite(duration)
    except TypeError:  # unlike float(), it takes no text
        raise OptionsError(
            f"a duration must be a number of seconds, or a timedelta, not {duration!r}"
        ) from None

    if not finite:
        raise OptionsError(f"a duration must be finite, not {duration!r} seconds")

    return float(duration)


def timeout_of(timeout: Duration | None) -> float | None:
    """Convert a timeout to seconds, where None stands for no limit.

    Raises:
        OptionsError: If it is not finite, or not a number.
    """
    return None if timeout is None else seconds_of(timeout)


_MINUTE = 60


_HOUR = 60 * _MINUTE


_DAY = 24 * _HOUR


_YEAR = 365 * _DAY


# Exclusive limits in seconds, and the units below them; the second unit is left out
# where it is 0. The same steps as kubectl's.
_STEPS: tuple[tuple[float, tuple[int, str], tuple[int, str] | None], ...] = (
    (2 * _MINUTE, (1, "s"), None),
    (10 * _MINUTE, (_MINUTE, "m"), (1, "s")),
    (3 * _HOUR, (_MINUTE, "m"), None),
    (8 * _HOUR, (_HOUR, "h"), (_MINUTE, "m")),
    (2 * _DAY, (_HOUR, "h"), None),
    (8 * _DAY, (_DAY, "d"), (_HOUR, "h")),
    (2 * _YEAR, (_DAY, "d"), None),
    (8 * _YEAR, (_YEAR, "y"), (_DAY, "d")),
    (math.inf, (_YEAR, "y"), None),
)


def human_duration(seconds: float) -> str:
    """Format a duration like ages in kubectl: `"45s"`, `"3m20s"`, `"5d4h"`, `"2y"`.

    Args:
        seconds: Duration in seconds; fractions are cut off. Down to -2 seconds count as
            0, as clocks differ; less is `"<invalid>"`.
    """
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"

    whole = max(whole, 0)
    large, small = next((one, two) for limit, one, two in _STEPS if whole < limit)
    size, unit = large
    shown = f"{whole // size}{unit}"
    if small is None:
        return shown

    rest = whole % size // small[0]
    return f"{shown}{rest}{small[1]}" if rest else shown


def kube_time(moment: datetime) -> str:
    """Write a time with a zone as Kubernetes writes a Time, to the second.

    Example:
        >>> kube_time(datetime(2026, 8, 1, 12, 30, tzinfo=UTC))
        '2026-08-01T12:30:00Z'
    """
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(moment: datetime) -> str:
    """Write a time with a zone as Kubernetes writes a MicroTime.

    Example:
        >>> micro_time(datetime(2026, 8, 1, 12, 30, tzinfo=UTC))
        '2026-08-01T12:30:00.000000Z'
    """
    text = moment.astimezone(UTC).isoformat(timespec="microseconds")
    return text.replace("+00:00", "Z")
