"""The stored figures, and the tables in the documentation, are of one run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import pytest
from bench import record
from bench.figures import OURS, Figure
from bench.page import write_between_marks, write_page
from bench.record import Mixed, Run, resume
from msgspec.structs import replace
from processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FIGURE = Figure(benchmark="b", case="c", contestant=OURS, unit="ms", value=1.0)
NOW = Run(
    commit="0123456789", date="2026-11-24", machine="a CPU", versions={"Python": "3.11"}
)
STORED = replace(NOW, date="2026-11-23").with_figures("b", [FIGURE], 60)

PUBLISHED = ROOT / "docs" / "benchmarks"


def test_run_survives_a_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "figures.json"
    assert record.read(path) is None

    record.write(path, STORED)

    assert record.read(path) == STORED


def test_run_keeps_the_last_figures_of_a_benchmark() -> None:
    later = replace(FIGURE, value=2.0)

    run = STORED.with_figures("b", [later], 30).with_figures("other", [FIGURE], 5)

    assert run.figures == {"b": [later], "other": [FIGURE]}
    assert run.all_figures == [later, FIGURE]
    assert run.seconds == {"b": 30, "other": 5}


def test_run_is_resumed_in_the_same_place() -> None:
    assert resume(STORED, NOW) == STORED


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("commit", "9876543210"),
        ("machine", "another CPU"),
        ("versions", {"Python": "3.12"}),
    ],
)
def test_run_of_another_origin_is_refused(name: str, other: object) -> None:
    expected = (
        f"the stored figures are of another {name}: {getattr(STORED, name)}, not "
    )
    with pytest.raises(Mixed, match=re.escape(f"{expected}{other}")):
        resume(STORED, replace(NOW, **{name: other}))


def test_run_of_a_modified_checkout_is_refused() -> None:
    modified = replace(NOW, commit=f"{NOW.commit}+")
    for stored in (STORED, modified):
        with pytest.raises(Mixed, match="the checkout is modified"):
            resume(stored, modified)


def test_file_with_an_origin_for_each_benchmark_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    path.write_bytes(msgspec.json.encode({"b": STORED}))

    with pytest.raises(msgspec.ValidationError, match="commit"):
        record.read(path)


def test_published_tables_are_those_of_the_stored_run(tmp_path: Path) -> None:
    run = record.read(PUBLISHED / "figures.json")
    assert run is not None
    assert not run.commit.endswith("+")
    readme = tmp_path / "a.md"
    readme.write_bytes((ROOT / "README.md").read_bytes())

    write_page(run, tmp_path)
    write_between_marks(readme, run)

    again = "run `python benchmarks/run.py --report`"
    for written, published in (
        (tmp_path / "README.md", PUBLISHED / "README.md"),
        (readme, ROOT / "README.md"),
    ):
        assert written.read_text() == published.read_text(), again
