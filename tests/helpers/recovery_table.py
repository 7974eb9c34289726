"""Prints how long each recovery took, at the end of a run that has seen some."""

from __future__ import annotations

from typing import Any

__all__ = ["ROWS"]

ROWS = "recovery"
"""The property of a test that has rows of the table: what, bound and seconds."""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table of those recoveries that were seen."""
    rows = [
        row
        for kind in ("passed", "failed")
        for report in terminalreporter.stats.get(kind, [])
        if report.when == "call"
        for name, found in report.user_properties
        if name == ROWS
        for row in found
    ]
    if not rows:
        return

    width = max(len(what) for what, _, _ in rows)
    terminalreporter.section("how long recovery took")
    terminalreporter.line(f"{'scenario':{width}}  bound     seen")
    for what, bound, seen in sorted(rows):
        terminalreporter.line(f"{what:{width}}  {bound:3} s  {seen:5.1f} s")
