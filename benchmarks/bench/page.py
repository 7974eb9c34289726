"""The page with the results: goals, pictures, and the whole table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.goals import GOALS, unjudged
from bench.plots import draw
from bench.report import markdown, rows, summary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.figures import Figure
    from bench.record import Measurement
    from bench.report import Row

__all__ = ["goals_table", "write_between_marks", "write_page"]

MARKS = ("<!-- written by make bench -->", "<!-- up to here -->")

INTRODUCTION = """\
# Benchmarks

Written by `make bench`. The figures are in [figures.json](figures.json). Each contestant is
a process of its own and gets the same prepared bytes from the same server. Contestants take
turns, and the tables show the median of the runs. Each run ends with a comparison of the
contestant's state with that of the server. The ratio is our figure divided by theirs: higher
is better for rates, lower for memory and time.
"""


def write_page(measurements: dict[str, Measurement], folder: Path | None) -> str:
    """Write the page and its pictures.

    Args:
        measurements: Measurements by benchmark.
        folder: Folder of the page; None to write nothing.

    Returns:
        Table, for the terminal.
    """
    figures = [it for one in measurements.values() for it in one.figures]
    lines = list(rows(figures, GOALS))
    table = markdown(lines)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        pictures = draw(figures, folder)
        parts = (
            INTRODUCTION,
            "## Goals\n",
            goals_table(lines) + "\n",
            *missing(figures),
            *(f"![{it.stem.replace('_', ' ')}]({it.name})\n" for it in pictures),
            "## All figures\n",
            table + "\n",
            "## Date, machine and versions\n",
            *origins(measurements),
        )
        (folder / "README.md").write_text("\n".join(parts))

    return table


def write_between_marks(readme: Path, measurements: dict[str, Measurement]) -> None:
    """Replace the summary in a page.

    Args:
        readme: File with the `MARKS`, each on its own line.
        measurements: Measurements by benchmark.

    Raises:
        ValueError: A mark is missing.
    """
    before, begin, rest = readme.read_text().partition(MARKS[0])
    _, end, behind = rest.partition(MARKS[1])
    if not (begin and end):
        raise ValueError(f"{readme} does not have the marks {MARKS}")

    text = summary([it for one in measurements.values() for it in one.figures])
    readme.write_text(f"{before}{begin}\n{text}\n{end}{behind}")


def goals_table(lines: list[Row]) -> str:
    """Return the table of the figures that have a goal."""
    return markdown([it for it in lines if it.goal is not None])


def missing(figures: list[Figure]) -> Iterator[str]:
    """Yield a line for each goal without a measurement."""
    for goal in unjudged(GOALS, figures):
        what = f"{goal.benchmark}: {goal.case} ({goal.contestant})"
        peer = "" if goal.peer is None else f" of {goal.peer}"
        yield f"* Not measured: {what}, {goal}{peer}\n"


def origins(measurements: dict[str, Measurement]) -> Iterator[str]:
    """Yield a line for each benchmark."""
    for benchmark, it in measurements.items():
        yield f"* `{benchmark}`, {it.rounds} rounds: {circumstances_of(it)}\n"


def circumstances_of(it: Measurement) -> str:
    """Return date, commit, machine and versions of a measurement."""
    versions = ", ".join(f"{name} {value}" for name, value in it.versions.items())
    return f"{it.date}, commit {it.commit}, {it.machine}; {versions}."
