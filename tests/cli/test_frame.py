"""The lines of the live table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cli_helpers import status
from rich.cells import cell_len

from aioinformer.cli.frame import Health, Table, draw, status_line
from aioinformer.cli.terminal import Line
from aioinformer.errors import TransportError

HEALTH = Health(status=status(None), objects=1963, rate=91.4)
HEAD = ["NAMESPACE", "NAME", "AGE"]


def test_the_status_line_says_what_is_watched_and_how_it_is() -> None:
    assert status_line("pods in shop", HEALTH, 80) == Line(
        "pods in shop   synced   fresh   1,963 objects   91 events/s", "title"
    )


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        pytest.param({"age": 0.9}, "synced   fresh   ", id="fresh"),
        pytest.param({"age": 45.3}, "synced   quiet for 45s   ", id="quiet"),
        pytest.param(
            {"age": None, "synced": False, "phase": "listing"},
            "pods   listing   1,963",
            id="not-synced",
        ),
    ],
)
def test_the_status_line_says_how_fresh_it_is(
    changed: dict[str, object], words: str
) -> None:
    health = replace(HEALTH, status=replace(HEALTH.status, **changed))  # type: ignore[arg-type]

    assert words in status_line("pods", health, 80).text


def test_an_outage_comes_first() -> None:
    failing = replace(status(TransportError("x refused the connection.")), age=12.0)
    line = status_line("pods", replace(HEALTH, status=failing), 60)

    assert line.style == "trouble"
    assert line.text == "out of contact for 12s, trying again: x refused the connect…"


def test_changes_have_a_sign_and_a_style() -> None:
    rows = [
        ("", ["shop", "web-0", "5d"]),
        ("added", ["shop", "web-1", "0s"]),
        ("modified", ["shop", "web-2", "5d"]),
        ("deleted", ["shop", "web-3", "5d"]),
    ]

    assert Table(HEAD).draw(rows, 80) == [  # type: ignore[arg-type]
        Line("  NAMESPACE   NAME    AGE", "head"),
        Line("  shop        web-0   5d"),
        Line("+ shop        web-1   0s", "added"),
        Line("~ shop        web-2   5d", "modified"),
        Line("- shop        web-3   5d", "deleted"),
    ]


def test_columns_do_not_become_narrower() -> None:
    table = Table(HEAD)
    table.draw([("", ["shop", "web-7d9c5b8f6-x2x4z", "5d"])], 80)
    (head, _) = table.draw([("", ["shop", "web", "5d"])], 80)

    assert head.text.index("AGE") == 2 + 9 + 3 + 19 + 3


@pytest.mark.parametrize("width", [1, 2, 3, 10, 20, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    cells = ["shop", "日本語" * 30, "5d"]
    table = Table(HEAD).draw([("modified", cells), ("", cells)], width)
    failing = replace(HEALTH, status=status(TransportError("gone " * 50)))
    lines = draw("pods " * 30, HEALTH, table, more=1975, width=width)
    lines += draw("pods", failing, table, more=0, width=width)

    assert [it for it in lines if cell_len(it.text) > width] == []


def test_says_how_many_more_there_are() -> None:
    *_, last = draw("pods", HEALTH, [], more=1975, width=80)

    assert last.style == "quiet"
    assert last.text.startswith("  … 1,975 more; the last changed ones are at the top.")
