"""Table of all figures: ours, each peer's, the ratio and the goal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.figures import OURS
from bench.goals import FASTEST_PYTHON, PYTHON_PEERS, against

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.figures import Figure
    from bench.goals import Goal

__all__ = ["Row", "SummaryRow", "markdown", "rows", "shown", "summary"]

HEAD = ("what", "ours", "", "peer", "peer's", "ratio", "goal", "")


@dataclass(frozen=True, kw_only=True)
class SummaryRow:
    """One line of the summary: a case, with the best figure of each family of peers.

    Attributes:
        what: First cell.
        benchmark, case: Key of the figures.
        contestant: Variant of ours.
        best: `max` for rates, `min` for memory and time.
    """

    what: str
    benchmark: str
    case: str
    contestant: str = OURS
    best: Callable[..., Figure] = max


SUMMARY = (
    SummaryRow(
        what="List of a real kube-apiserver: 10,000 pods",
        benchmark="real_server",
        case="10,000 pods of a kube-apiserver",
    ),
    SummaryRow(
        what="List of prepared bytes: 100,000 pods, index, handler",
        benchmark="list_sync",
        case="100,000 pods, index on nodeName, handler reads phase",
    ),
    SummaryRow(
        what="Watch: changes until the handler has read them",
        benchmark="watch_throughput",
        case="16 per chunk, handler reads phase",
    ),
    SummaryRow(
        what="Delay of a change at 1,000 per second, 99th percentile",
        benchmark="watch_throughput",
        case="1,000/s, 1 per chunk: p99",
        best=min,
    ),
    SummaryRow(
        what="Memory of 100,000 pods, compressed",
        benchmark="memory",
        case="100,000 pods stored",
        contestant=f"{OURS}, compressed",
        best=min,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        figure: Our figure.
        peer: Contestant of the compared figure, or "" for a figure alone.
        theirs: Value of the peer's figure; None if missing, with a `note`.
        goal: Goal of the figure; None for none.
        note: Reason for a missing value.
    """

    figure: Figure
    peer: str = ""
    theirs: float | None = None
    goal: Goal | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Return our figure divided by theirs."""
        if self.figure.value is None or not self.theirs:
            return None

        return self.figure.value / self.theirs

    @property
    def reached(self) -> bool | None:
        """Return True if the goal is reached; None without a goal or a figure."""
        if self.goal is None:
            return None

        judged = self.figure.value if self.goal.peer is None else self.ratio
        return None if judged is None else self.goal.reached(judged)


def rows(figures: Sequence[Figure], goals: Sequence[Goal]) -> Iterator[Row]:
    """Yield each figure of ours beside that of each peer for the same case.

    A goal is in the row of its peer. Goals against the fastest Python peer, and goals without
    a peer, have rows of their own.
    """
    for figure in figures:
        if not figure.contestant.startswith(OURS):
            continue

        case = [
            it
            for it in figures
            if (it.benchmark, it.case) == (figure.benchmark, figure.case)
            and not it.contestant.startswith(OURS)
        ]
        of_figure = [
            it
            for it in goals
            if (it.benchmark, it.case, it.contestant)
            == (figure.benchmark, figure.case, figure.contestant)
        ]
        of_peers = {it.peer: it for it in of_figure if it.peer is not None}
        if not case and not of_peers:
            alone = next((it for it in of_figure if it.peer is None), None)
            yield Row(figure=figure, goal=alone, note=figure.note)
            continue

        for peer in case:
            yield Row(
                figure=figure,
                peer=peer.contestant,
                theirs=peer.value,
                goal=of_peers.pop(peer.contestant, None),
                note=peer.note or figure.note,
            )

        for name, goal in of_peers.items():
            theirs = against(goal, figures)
            missing = "" if theirs else "not measured"
            label = name if theirs is None else f"{name}: {theirs.contestant}"
            yield Row(
                figure=figure,
                peer=label if name == FASTEST_PYTHON else name,
                theirs=None if theirs is None else theirs.value,
                goal=goal,
                note=missing,
            )

        yield from (Row(figure=figure, goal=it) for it in of_figure if it.peer is None)


def summary(figures: Sequence[Figure], lines: Sequence[SummaryRow] = SUMMARY) -> str:
    """Return a small table: ours beside the fastest setting of each family of peers."""
    cells = [("", OURS, "client-go", "kube-rs", "fastest in Python")]
    for line in lines:
        case = [
            it
            for it in figures
            if (it.benchmark, it.case) == (line.benchmark, line.case)
            and it.value is not None
        ]
        families = (
            [it for it in case if it.contestant == line.contestant],
            [it for it in case if it.contestant.startswith("client-go")],
            [it for it in case if it.contestant == "kube-rs"],
            [it for it in case if it.contestant in PYTHON_PEERS],
        )
        found = [
            line.best(family, key=lambda it: it.value) if family else None
            for family in families
        ]
        ours, go, rust, python = (
            "-" if it is None else f"{number(it.value)} {it.unit}" for it in found
        )
        setting = "" if found[1] is None else found[1].contestant
        if extra := setting.removeprefix("client-go").removeprefix(" typed JSON"):
            go += f" ({extra.strip(', ')})"

        if found[3] is not None:
            python += f" ({found[3].contestant})"

        cells.append((line.what, f"**{ours}**", go, rust, python))

    rule = "|---|--:|--:|--:|--:|"
    texts = [f"| {' | '.join(line)} |" for line in cells]
    return "\n".join([texts[0], rule, *texts[1:]])


def number(value: float | None) -> str:
    """Return a number with three significant digits and commas: 48,100 and 0.0412."""
    if value is None:
        return "-"

    if abs(value) >= 1000:
        digits = len(str(int(abs(value)))) - 3
        return f"{round(value, -digits):,.0f}"

    return f"{value:.3g}"


def shown(row: Row) -> tuple[str, ...]:
    """Return the cells of a row, in the order of `HEAD`."""
    figure = row.figure
    variant = figure.contestant.removeprefix(OURS).removeprefix(", ")
    what = f"{figure.benchmark}: {figure.case}" + (f" ({variant})" if variant else "")
    verdict = {True: "reached", False: "missed", None: ""}[row.reached]
    return (
        what,
        number(figure.value),
        figure.unit,
        row.peer,
        number(row.theirs) if row.peer else "",
        "" if row.ratio is None else f"{number(row.ratio)}x",
        "" if row.goal is None else str(row.goal),
        "; ".join(filter(None, (verdict, row.note))),
    )


def markdown(lines: Sequence[Row]) -> str:
    """Return a table."""
    cells = [HEAD, *map(shown, lines)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEAD))]
    right = {1, 4, 5, 6}

    def text(line: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        return f"| {' | '.join(padded)} |"

    rule = [
        "-" * (width - 1) + ":" if column in right else "-" * width
        for column, width in enumerate(widths)
    ]
    return "\n".join([text(HEAD), f"| {' | '.join(rule)} |", *map(text, cells[1:])])
