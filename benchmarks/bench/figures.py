"""What a benchmark answers: figures, each of one contestant in one case."""

from __future__ import annotations

import math
import statistics

import msgspec

__all__ = ["OURS", "Figure", "median", "percentile"]

OURS = "aioinformer"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement, and what it was taken from.

    Attributes:
        question: The script: "list_sync".
        case: Under which circumstances: "10,000 pods, nothing looks at the body".
        contestant: Who: "aioinformer", "client-go typed JSON". Variants of ours have the
            name of ours first: "aioinformer, compressed".
        unit: "pods/s", "KiB a pod", "ms".
        value: The median of the runs; None if it could not be measured.
        runs: Each run's.
        note: Why there is no value, or what else is to be known.
    """

    question: str
    case: str
    contestant: str
    unit: str
    value: float | None
    runs: list[float] = []
    note: str = ""


def median(
    question: str, case: str, contestant: str, unit: str, runs: list[float]
) -> Figure:
    """The figure of several runs."""
    return Figure(
        question=question,
        case=case,
        contestant=contestant,
        unit=unit,
        value=statistics.median(runs),
        runs=runs,
    )


def percentile(values: list[float], share: float) -> float:
    """The value that this share of the values does not exceed: 1.0 for the largest.

    Raises:
        ValueError: There are no values.
    """
    if not values:
        raise ValueError("no percentile of no values")

    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
