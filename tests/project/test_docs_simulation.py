"""docs/simulation.md: its bug is found as it shows, and its fix mends it."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from textwrap import indent
from typing import TYPE_CHECKING

from doc_blocks import blocks_of, broken_links
from processes import ROOT

from aioinformer.testing.simulation import STRATEGIES, Cluster, Simulation
from aioinformer.testing.simulation.schedule import OPTIONAL_STRATEGIES

if TYPE_CHECKING:
    from pathlib import Path

PAGE = ROOT / "docs" / "simulation.md"
TEXT = PAGE.read_text(encoding="utf-8")
CONTROLLER, TEST, RETURNS, STOPS, WAITS = blocks_of(TEXT, "python")
(SHOWN,) = blocks_of(TEXT, "text")


def pytest_in(folder: Path, *options: str) -> str:
    """Run pytest in a folder, and return its output."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_documented_bug_is_found_and_mended(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\n"
    )
    controller = tmp_path / "controller.py"
    controller.write_text(CONTROLLER.text)
    (tmp_path / "test_controller.py").write_text(TEST.text)
    printed = pytest_in(tmp_path)
    lines = [line.removeprefix("E   ").rstrip() for line in printed.splitlines()]
    text = "\n".join(line.removeprefix(" " * 2) for line in lines)
    for shown in SHOWN.text.splitlines():
        pattern = re.escape(" ".join(shown.split())).replace(r"\.\.\.", ".*")
        assert any(re.search(pattern, " ".join(it.split())) for it in lines), (
            shown,
            text,
        )

    # In a CI the summary at the end repeats the whole message.
    (seed,) = set(re.findall(r"--simulation-seed (\d+)$", text, re.MULTILINE))
    first = CONTROLLER.text.index("        except NotFound:\n            pass\n")
    old = "        except NotFound:\n            pass\n"
    mended = (
        CONTROLLER.text[:first] + RETURNS.text + CONTROLLER.text[first + len(old) :]
    )
    start = mended.index("            if FINALIZER not in site.finalizers:")
    end = mended.index("            try:\n                await client.create")
    controller.write_text(mended[:start] + indent(STOPS.text, " " * 12) + mended[end:])
    assert "1 passed" in pytest_in(tmp_path, "--simulation-seed", seed)
    assert "1 passed" in pytest_in(tmp_path, "--simulation-seeds", "60")

    # The workload that waits takes the place of the one that sleeps.
    before, _, rest = TEST.text.partition("async def users")
    after = rest[rest.index("def names(") :]
    (tmp_path / "test_controller.py").write_text(f"{before}{WAITS.text}\n\n{after}")
    assert "1 passed" in pytest_in(tmp_path, "--simulation-seeds", "20")


def test_tables_are_complete() -> None:
    before, head, rest = TEXT.partition("| `Cluster` |")
    table, gap, after = rest.partition("\n\n")
    cells = re.findall(r"^\| (`.+?`) \|", table, re.MULTILINE)
    methods = set(re.findall(r"`(?:await )?(\w+)", " ".join(cells)))
    assert head
    assert gap
    assert methods | {"load", "register"} == {
        *(it for it in dir(Cluster) if not it.startswith("_")),
        "random",
    }
    rows = re.findall(r"^\| `([^`]+)` \|", before + after, re.MULTILINE)
    parameters = set(inspect.signature(Simulation.run).parameters)
    named = {it.removesuffix("=") for it in rows}
    strategies = {it.name for it in (*STRATEGIES, *OPTIONAL_STRATEGIES)}
    assert named - strategies == parameters - {"self", "seeds", "settle_seconds"}
    assert strategies <= named
    assert broken_links(PAGE) == []
