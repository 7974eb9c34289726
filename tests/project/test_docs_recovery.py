"""The recovery bounds in docs/production.md are those that scenarios assert."""

from __future__ import annotations

import re

from processes import ROOT
from recovery_bounds import BOUNDS

SCENARIOS = ROOT / "tests" / "scenarios"


def test_table_lists_the_bounds() -> None:
    text = (ROOT / "docs" / "production.md").read_text(encoding="utf-8")
    table = text.partition("## How long recovery takes\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+) \| (\d+) s \| (.+) \|$", table, re.MULTILINE)

    assert rows == [(it.what, str(it.seconds), it.why) for it in BOUNDS.values()]


def test_each_bound_is_asserted_by_a_scenario() -> None:
    asserted = {
        name
        for path in SCENARIOS.glob("test_*.py")
        for name in re.findall(r'recovery\("([^"]+)"[,)]', path.read_text("utf-8"))
    }

    assert asserted == set(BOUNDS)
