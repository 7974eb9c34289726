"""Table of all figures: ours, each peer's, the ratio and the goal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.figures import OURS
from bench.goals import BEST_CLIENT_GO, BEST_KUBE_RS, BEST_PYTHON, FAMILIES, against

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.figures import Figure
    from bench.goals import Goal

__all__ = ["Row", "SummaryRow", "columns", "markdown", "rows", "shown", "summary"]

HEAD = ("what", "ours", "", "peer", "peer's", "ratio", "goal", "")


@dataclass(frozen=True, kw_only=True)
class SummaryRow:
    """One line of the summary: a case, with the best figure of each family of peers.

    Attributes:
        what: First cell.
        benchmark, case: Key of the figures.
        contestant: Variant of ours.
        best: `max` for rates, `min` for memory and time.
        protobuf: False to leave out protobuf, which custom resources do not have.
    """

    what: str
    benchmark: str
    case: str
    contestant: str = OURS
    best: Callable[..., Figure] = max
    protobuf: bool = True


SUMMARY = (
    SummaryRow(
        what="List of a real kube-apiserver: 10,000 pods",
        benchmark="real_server",
        case="10,000 pods of a kube-apiserver",
    ),
    SummaryRow(
        what="List of prepared bytes: 10,000 pods",
        benchmark="list_sync",
        case="10,000 pods, body not read",
    ),
    SummaryRow(
        what="The same without protobuf, as for custom resources",
        benchmark="list_sync",
        case="10,000 pods, body not read",
        protobuf=False,
    ),
    SummaryRow(
        what="List of prepared bytes with an index and a handler that reads",
        benchmark="list_sync",
        case="10,000 pods, index on nodeName, handler reads phase",
    ),
    SummaryRow(
        what="Watch: changes until the handler has read them",
        benchmark="watch_throughput",
        case="16 per chunk, handler reads phase",
    ),
    SummaryRow(
        what="The same without protobuf, as for custom resources",
        benchmark="watch_throughput",
        case="16 per chunk, handler reads phase",
        protobuf=False,
    ),
    SummaryRow(
        what="Delay of a change at 1,000 per second, 99th percentile",
        benchmark="watch_throughput",
        case="1,000/s, 1 per chunk: p99",
        best=min,
    ),
    SummaryRow(
        what="Memory of 10,000 pods",
        benchmark="memory",
        case="10,000 pods stored",
        best=min,
    ),
    SummaryRow(
        what="Memory of 10,000 pods, compressed",
        benchmark="memory",
        case="10,000 pods stored",
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

    A goal is in the row of its peer. Goals against the best of several peers, and goals
    without a peer, have rows of their own.
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
                peer=label if name in FAMILIES else name,
                theirs=None if theirs is None else theirs.value,
                goal=goal,
                note=missing,
            )

        yield from (Row(figure=figure, goal=it) for it in of_figure if it.peer is None)


def summary(figures: Sequence[Figure], lines: Sequence[SummaryRow] = SUMMARY) -> str:
    """Return a small table: ours beside the fastest setting of each family of peers.

    Lines without a figure of ours are left out, and lines without protobuf if there is
    none.
    """
    cells = [["", OURS, "client-go", "kube-rs", "fastest in Python"]]
    belong = [FAMILIES[name] for name in (BEST_CLIENT_GO, BEST_KUBE_RS, BEST_PYTHON)]
    for line in lines:
        case = [
            it
            for it in figures
            if (it.benchmark, it.case) == (line.benchmark, line.case)
            and it.value is not None
        ]
        if not line.protobuf:
            everyone = case
            case = [it for it in everyone if "protobuf" not in it.contestant]
            if case == everyone:
                continue  # it would repeat the line before

        if not any(it.contestant == line.contestant for it in case):
            continue

        families = (
            [it for it in case if it.contestant == line.contestant],
            *([it for it in case if belongs(it.contestant)] for belongs in belong),
        )
        ours, *peers = (
            _best(line.best, family) if family else "-" for family in families
        )
        cells.append([line.what, f"**{ours}**", *peers])

    rule = "|---|--:|--:|--:|--:|"
    texts = [f"| {' | '.join(line)} |" for line in cells]
    return "\n".join([texts[0], rule, *texts[1:]])


def _best(best: Callable[..., Figure], figures: Sequence[Figure]) -> str:
    """Return the best figure, with the setting or the name of its contestant."""
    found = best(figures, key=lambda it: it.value)
    text = f"{number(found.value)} {found.unit}"
    if found.contestant.startswith(OURS):
        return text

    for known in ("client-go typed JSON", "client-go", "kube-rs"):
        if found.contestant.startswith(known):
            setting = found.contestant.removeprefix(known).strip(", ")
            return f"{text} ({setting})" if setting else text

    return f"{text} ({found.contestant})"


def columns(figures: Sequence[Figure], benchmark: str) -> str:
    """Return a table of a benchmark with a column for each contestant.

    Args:
        figures: Figures of all benchmarks.
        benchmark: Name of the benchmark, all of whose contestants are ours.
    """
    found: dict[tuple[str, str], dict[str, str]] = {}
    names: dict[str, str] = {}
    for it in figures:
        if it.benchmark == benchmark:
            names[it.contestant] = it.contestant.removeprefix(OURS).strip(", ")
            row = found.setdefault((it.case, it.unit), {})
            row[it.contestant] = number(it.value)

    lines = [["", "", *names.values()], ["---", "---", *["--:" for _ in names]]]
    for (case, unit), row in found.items():
        lines.append([case, unit, *(row.get(name, "-") for name in names)])

    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if found else ""


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
