"""Prints the duration of each recovery at the end of a run."""

from __future__ import annotations

from typing import Any

__all__ = ["ROWS"]

ROWS = "recovery"
"""Name of the test property with rows of the table: description, bound and seconds."""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table of the measured recoveries."""
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
