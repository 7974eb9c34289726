"""Comparison of counts with their baseline, and the verdict."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from guard.baseline import Baseline, Maker, changes

if TYPE_CHECKING:
    from guard.baseline import Change, Counts

__all__ = ["Counted", "Report", "compare", "no_baseline"]

HOW = "scripts/guard --write, in a commit of its own with the reason"

VERDICTS = {
    "rose": f"rose by more than 10 %. If that is intended: {HOW}",
    "fell": f"fell by more than 10 %. To keep the gain: {HOW}",
    "new": f"not in the baseline: {HOW}",
    "removed": f"in the baseline, but no longer counted: {HOW}",
}
FAILURES = {"rose", "new", "removed"}


@dataclass(frozen=True)
class Counted:
    """Current counts.

    Attributes:
        made_with: Versions they were made with.
        counts: Counts for one event of each case.
        missing: Uncounted numbers, with the reason.
    """

    made_with: Maker
    counts: Counts
    missing: dict[str, str] = field(default_factory=dict)

    def left_out(self) -> list[str]:
        """Return the uncounted numbers in words."""
        return [f"not counted: {what}: {why}" for what, why in self.missing.items()]


@dataclass(frozen=True)
class Report:
    """Lines to print, and the exit status."""

    lines: list[str]
    status: int


def no_baseline(minor: str) -> Report:
    """Report that another Python, with other instructions, has no baseline."""
    line = f"There is no baseline for Python {minor}: nothing is counted or compared."
    return Report([line], 0)


def compare(baseline: Baseline, counted: Counted) -> Report:
    """Compare the counts with the baseline."""
    before = {
        case: {
            what: count for what, count in row.items() if what not in counted.missing
        }
        for case, row in baseline.counts.items()
    }
    found = changes(before, counted.counts)
    verdicts = Counter(change.verdict for change in found if change.verdict)
    lines = [
        _row("counts of one event", "counted", "baseline", "now", "change", ""),
        *map(_row_of, found),
        *counted.left_out(),
        *(f"{verdicts[it]} {text}" for it, text in VERDICTS.items() if verdicts[it]),
    ]
    differences = "; ".join(baseline.made_with.differences(counted.made_with))
    if differences:
        lines.append(f"compared though the baseline was made with: {differences}")

    if not verdicts:
        lines.append("no count rose by more than 10 %")

    return Report(lines, int(bool(FAILURES & verdicts.keys())))


def _row_of(change: Change) -> str:
    share = ""
    if change.before and change.now is not None:
        share = f"{change.now / change.before - 1:+.1%}"

    before, now = _number(change.before), _number(change.now)
    return _row(change.case, change.what, before, now, share, change.verdict.upper())


def _number(count: float | None) -> str:
    return "-" if count is None else f"{count:,.1f}"


def _row(case: str, what: str, before: str, now: str, share: str, verdict: str) -> str:
    row = f"{case:46} {what:15} {before:>11} {now:>11} {share:>7}  {verdict}"
    return row.rstrip()
