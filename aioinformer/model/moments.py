"""Moments: times of the day, as Kubernetes writes them."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["kube_time", "micro_time"]


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
