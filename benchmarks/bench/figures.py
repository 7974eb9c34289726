"""Figures: the result of a benchmark for each contestant and case."""

from __future__ import annotations

import math
import statistics

import msgspec

__all__ = ["OURS", "Figure", "median", "percentile"]

OURS = "aioinformer"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement, and what it was taken from.

    Attributes:
        question: Name of the script: "list_sync".
        case: Circumstances: "10,000 pods, nothing looks at the body".
        contestant: "aioinformer", "client-go typed JSON". Our variants have the
            name of ours first: "aioinformer, compressed".
        unit: "pods/s", "KiB a pod", "ms".
        value: Median of the runs; None if it could not be measured.
        runs: Value of each run.
        note: Reason for a missing value, or a remark.
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
