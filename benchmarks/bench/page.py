"""The page with the results: goals, pictures, and the whole table."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from bench.goals import GOALS, unjudged
from bench.plots import draw
from bench.report import columns, markdown, rows, summary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.figures import Figure
    from bench.goals import Goal
    from bench.record import Run
    from bench.report import Row

__all__ = ["goals_table", "write_between_marks", "write_page"]

WIDTH = 96
MARKS = ("<!-- written by make bench -->", "<!-- up to here -->")

INTRODUCTION = """\
# Benchmarks

Written by `make bench`. The figures are in [figures.json](figures.json), all of one run: of one
commit, on one machine, with the same versions. Each contestant is a process of its own, and
gets the same prepared bytes from the same server, which splits a list into chunks as
kube-apiserver does. Contestants take turns, and the tables show the median of the runs. Each
run ends with a comparison of the contestant's state with that of the server. The ratio is our
figure divided by theirs: higher is better for rates, lower for memory and time.

## Settings of aioinformer

The rows name them. In `million`, bodies are compressed in all rows. The row "compressed" has a
memory budget of 1.6 GiB, too. `million` runs once for each row, because a run takes five minutes.

## Settings of the others

Each library has its defaults, and its fastest setting in a row of its own:

* client-go lists fastest in protobuf, its default, which all built-in resources have. The server
  then sends protobuf that the encoders of kube-apiserver have made of the same pods in advance.
  Custom resources have JSON only: there, a plain list is faster than the streaming default. CBOR
  is alpha, and off in servers and clients. Its features in beta, such as batches of events, are on by
  default.
* kube-rs lists fastest by streaming. Its default is pages of 500. One list from the watch cache is
  as fast as pages.
* lightkube lists in one response, which is its default.
* Runtimes have their defaults, too: garbage collectors, allocators and compiler options.

The server does not compress, and neither does kube-apiserver unless a client asks.
client-go asks, so a [real server](#all-figures) has a row of its own.
"""

INTERPRETERS = "interpreters"
LOOPS = """\
Python 3.14 is the fastest version: it handles changes about a quarter faster than Python 3.11.
uvloop makes no difference to lists and changes, because an informer spends its time on JSON
and not in the event loop: install it for your web server, not for informers.
"""

WITHDRAWN = """\
A former goal is withdrawn: 0.45 of the memory of client-go for uncompressed pods. Their JSON
alone takes 0.46, so no cache that keeps it can reach this.
"""


def write_page(run: Run, folder: Path | None) -> str:
    """Write the page and its pictures.

    Args:
        run: Run to show.
        folder: Folder of the page; None to write nothing.

    Returns:
        Table, for the terminal.
    """
    everything = run.all_figures
    figures = [it for it in everything if it.benchmark != INTERPRETERS]
    lines = list(rows(figures, GOALS))
    table = markdown(lines)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        pictures = draw(figures, folder)
        parts = (
            INTRODUCTION,
            "## Goals\n",
            goals_table(lines) + "\n",
            *missed(lines),
            WITHDRAWN,
            *missing(everything),
            *(f"![{it.stem.replace('_', ' ')}]({it.name})\n" for it in pictures),
            "## Versions of Python, and uvloop\n",
            LOOPS,
            columns(everything, INTERPRETERS) + "\n",
            "## All figures\n",
            table + "\n",
            "## Date, machine and versions\n",
            origin(run) + "\n",
            durations(run),
        )
        text = "\n".join(parts)
        (folder / "README.md").write_text(text.rstrip("\n") + "\n")

    return table


def write_between_marks(readme: Path, run: Run) -> None:
    """Replace the summary in a page.

    Args:
        readme: File with the `MARKS`, each on its own line.
        run: Run to show.

    Raises:
        ValueError: A mark is missing.
    """
    before, begin, rest = readme.read_text().partition(MARKS[0])
    _, end, behind = rest.partition(MARKS[1])
    if not (begin and end):
        raise ValueError(f"{readme} does not have the marks {MARKS}")

    text = f"{summary(run.all_figures)}\n\n{origin(run)}"
    readme.write_text(f"{before}{begin}\n{text}\n{end}{behind}")


def goals_table(lines: list[Row]) -> str:
    """Return the table of the figures that have a goal."""
    return markdown([it for it in lines if it.goal is not None])


def missed(lines: list[Row]) -> Iterator[str]:
    """Yield the reason for each missed goal; equal ones once."""
    found: dict[str, list[str]] = {}
    for it in lines:
        if it.goal is not None and it.reached is False and it.goal.why:
            what = f"{it.figure.benchmark}: {it.figure.case}, {_bound(it.goal)}"
            found.setdefault(it.goal.why, []).append(what)

    for why, goals in found.items():
        yield f"* Missed: {'; '.join(goals)}. {why}\n"


def missing(figures: list[Figure]) -> Iterator[str]:
    """Yield a line for each goal without a measurement."""
    for goal in unjudged(GOALS, figures):
        what = f"{goal.benchmark}: {goal.case} ({goal.contestant})"
        yield f"* Not measured: {what}, {_bound(goal)}\n"


def _bound(goal: Goal) -> str:
    return f"{goal}" if goal.peer is None else f"{goal} {goal.peer}"


def origin(run: Run) -> str:
    """Return date, commit, machine and versions, in lines of a page."""
    versions = ", ".join(f"{name} {value}" for name, value in run.versions.items())
    text = f"{run.date}, commit {run.commit}, {run.machine}; {versions}."
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def durations(run: Run) -> str:
    """Return how long the benchmarks took."""
    if not run.seconds:
        return ""

    minutes = f"{sum(run.seconds.values()) / 60:.0f} minutes"
    each = (f"`{name}` {took / 60:.1f}" for name, took in run.seconds.items())
    return textwrap.fill(f"The run took {minutes}: {', '.join(each)}.", WIDTH)
