"""Figures: the result of a benchmark for each contestant and case."""

from __future__ import annotations

import math
import statistics

import msgspec

__all__ = ["OURS", "Figure", "median", "percentile"]

OURS = "aioinformer"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement, and its origin.

    Attributes:
        benchmark: Name of the script: "list_sync".
        case: Circumstances: "10,000 pods, body not read".
        contestant: "aioinformer", "client-go typed JSON". Names of our variants begin with
            ours: "aioinformer, compressed".
        unit: "pods/s", "KiB/pod", "ms".
        value: Median of the runs; None if it could not be measured.
        runs: Value of each run.
        note: Reason for a missing value, or a remark.
    """

    benchmark: str
    case: str
    contestant: str
    unit: str
    value: float | None
    runs: list[float] = []
    note: str = ""


def median(
    benchmark: str, case: str, contestant: str, unit: str, runs: list[float]
) -> Figure:
    """Return the figure of several runs."""
    return Figure(
        benchmark=benchmark,
        case=case,
        contestant=contestant,
        unit=unit,
        value=statistics.median(runs),
        runs=runs,
    )


def percentile(values: list[float], share: float) -> float:
    """Return the value that a fraction of the values does not exceed; 1.0 for the maximum.

    Raises:
        ValueError: There are no values.
    """
    if not values:
        raise ValueError("percentile of no values")

    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
