"""What the demo shows."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from aioinformer.cli.screen import (
    Frame,
    Row,
    draw_line,
    draw_table,
    draw_verdict,
)

FRAME = Frame(
    seconds=12.34,
    rows=(
        Row(
            name="pods",
            phase="watching",
            objects=250,
            events=1200,
            rate=48.4,
            age=0.04,
        ),
        Row(
            name="configmaps", phase="listing", objects=0, events=0, rate=0.0, age=None
        ),
    ),
    changes=600,
    depth=3,
    reconciles=90,
    reconcile_rate=7.6,
    writes=20,
    retries=1,
)


def test_a_line_has_everything_that_matters() -> None:
    assert draw_line(FRAME) == (
        " 12.3 s  pods 250 (48 events/s, watching, age 0.0 s)  "
        "configmaps 0 (0 events/s, listing, age never)  "
        "queue 3  reconciles 90 (8/s)  retries 1"
    )


def test_a_table_has_a_row_for_each_informer() -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(draw_table(FRAME, width=100))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()

    assert lines[0].strip() == "aioinformer demo, 12 s"
    cells = [line.strip("│ ").split("│") for line in lines if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in cells] == [
        ["pods", "watching", "250", "1200", "48", "0.0 s"],
        ["configmaps", "listing", "0", "0", "0", "never"],
    ]
    below = " ".join(" ".join(lines[-2:]).split())
    assert below == (
        "600 changes on the server; queue 3; 90 reconciles (8/s), 20 writes, 1 retries. "
        "Ctrl-C ends it."
    )


@pytest.mark.parametrize(
    ("width", "names"),
    [
        (80, ["informer", "phase", "objects", "events", "events/s", "age"]),
        (72, ["informer", "phase", "objects", "events", "events/s", "age"]),
        (71, ["informer", "phase", "objects", "events/s", "age"]),
        (60, ["informer", "phase", "objects", "age"]),
        (40, ["informer", "phase", "objects"]),
        (30, ["informer", "objects"]),
    ],
)
def test_a_narrow_terminal_gets_fewer_columns_and_whole_ones(
    width: int, names: list[str]
) -> None:
    console = Console(file=io.StringIO(), width=width)
    console.print(draw_table(FRAME, width=width))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()

    (head,) = [line for line in text.splitlines() if line.startswith("┃")]
    assert head.replace("┃", " ").split() == names
    assert "…" not in text
    assert "configmaps" in text
    words = " ".join(text.split())
    assert "600 changes on the server; queue 3; 90 reconciles (8/s), 20 writes" in words
    assert words.endswith("1 retries. Ctrl-C ends it.")


def test_the_verdict_is_good_if_nothing_was_found() -> None:
    assert draw_verdict([], pods=2, apps=1) == (
        "The caches equal the server's state: 2 pods, 1 config maps; every count is right."
    )


def test_the_verdict_names_what_was_found() -> None:
    assert draw_verdict(["a", "b", "c"], pods=2, apps=1) == (
        "Not as it should be: a; b; c."
    )


def test_the_verdict_counts_what_it_does_not_name() -> None:
    assert draw_verdict(list("abcde"), pods=2, apps=1) == (
        "Not as it should be: a; b; c; and 2 more."
    )
