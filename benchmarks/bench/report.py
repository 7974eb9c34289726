"""Table of all figures: ours, each peer's, the ratio and the goal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.figures import OURS
from bench.goals import FASTEST_PYTHON, against

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.figures import Figure
    from bench.goals import Goal

__all__ = ["Row", "markdown", "rows", "shown"]

HEAD = ("what", "ours", "", "peer", "peer's", "ratio", "goal", "")


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
