"""Frames of the live table: keys, colors of states, and lines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cli_helpers import status
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from aioinformer.cli.table_frame import (
    ColumnTable,
    InformerHealth,
    RateMeter,
    View,
    help_line,
    pressed,
    state_styles,
    status_line,
)
from aioinformer.cli.table_rows import BY_CHANGE, Arrangement
from aioinformer.errors import HistoryReset, TransportError

HEAD = ["NAMESPACE", "NAME", "AGE"]
FIRST = View(Arrangement("NAMESPACE"))


# ---------------------------------------------------------------- keys


def after(*keys: str, view: View = FIRST, total: int = 100, room: int = 10) -> View:
    for key in keys:
        view = pressed(view, key, total=total, room=room, columns=HEAD)

    return view


@pytest.mark.parametrize(
    ("keys", "offset"),
    [
        (["down", "j"], 2),
        (["down", "j", "up"], 1),
        (["j", "k", "k"], 0),
        (["page down", "page down"], 20),
        (["page down", "page up", "page up"], 0),
        (["end"], 90),
        (["end", "down", "page down"], 90),
        (["end", "home"], 0),
    ],
)
def test_keys_scroll_within_the_rows(keys: list[str], offset: int) -> None:
    assert after(*keys).offset == offset


def test_rows_that_fit_do_not_scroll() -> None:
    assert after("down", "page down", "end", total=10) == FIRST
    assert after("down", "end", total=0, room=0) == FIRST


def test_sort_key_cycles_through_columns_and_last_change() -> None:
    view, seen = FIRST, []
    for _ in range(4):
        view = after("s", view=view)
        seen.append(view.arrangement.sort)

    assert seen == ["NAME", "AGE", BY_CHANGE, "NAMESPACE"]
    assert after("S").arrangement.sort == BY_CHANGE
    assert after("S", "s") == FIRST


def test_reverse_key_turns_the_order_and_shows_its_beginning() -> None:
    view = after("end", "r")

    assert view == View(Arrangement("NAMESPACE", reverse=True))
    assert after("r", view=view) == FIRST


def test_typed_filter_takes_every_character() -> None:
    view = after("j", "/", *"q js/", "backspace", "enter")

    assert view == View(Arrangement("NAMESPACE", filter="q js"))


def test_filter_can_be_continued_and_cleared() -> None:
    view = after("/", "a", "enter", "/", "b")
    assert (view.arrangement.filter, view.typing) == ("ab", True)

    assert after("escape", view=view) == FIRST
    assert after("enter", "escape", view=view) == FIRST
    assert after("end", "escape").offset == 90, "without a filter, nothing changes"
    assert after("/", "backspace") == replace(FIRST, typing=True)


def test_rows_scroll_while_the_filter_is_typed() -> None:
    view = after("/", "a", "page down")

    assert (view.offset, view.typing, view.arrangement.filter) == (10, True, "a")


def test_quit_key_closes_the_view() -> None:
    assert after("q").closed
    assert not after("/", "q").closed
    assert after("x", "enter", "backspace") == FIRST


keys = st.sampled_from(
    ["up", "end", "page down", "s", "r", "/", "a", "escape", "enter"]
)


@given(st.lists(keys, max_size=20), st.integers(0, 30), st.integers(0, 10))
def test_keys_never_scroll_beyond_the_rows(
    keys: list[str], total: int, room: int
) -> None:
    view = after(*keys, total=total, room=room)

    assert 0 <= view.offset <= max(0, total - room)


# ---------------------------------------------------------------- the help line


def helped(
    view: View = FIRST, *, total: int = 100, hidden: int = 0, keys: bool = True
) -> str:
    line = help_line(view, total=total, room=10, hidden=hidden, keys=keys, width=80)
    return line.plain


def test_help_line_shows_visible_rows_and_keys() -> None:
    assert helped(replace(FIRST, offset=20)) == (
        "21-30 of 100   q quit   s/r sort: NAMESPACE ↑   / filter   ↑↓ PgUp PgDn"
    )
    assert helped(total=3) == "q quit   s/r sort: NAMESPACE ↑   / filter"
    assert helped(View(Arrangement("AGE", reverse=True)), total=3) == (
        "q quit   s/r sort: AGE ↓   / filter"
    )


def test_help_line_shows_that_columns_are_hidden() -> None:
    assert helped(hidden=1).startswith("1-10 of 100   1 column hidden   q quit")
    assert helped(total=3, hidden=2).startswith("2 columns hidden   q quit")


def test_help_line_shows_the_filter() -> None:
    kept = after("/", *"web", "enter")
    assert helped(kept, total=3).startswith("filter: web (Esc clears)   q quit")

    typed = helped(after("/", *"web"))
    assert typed.startswith("/web ")
    assert "Enter keeps the filter, Esc clears it" in typed


def test_help_line_names_no_keys_without_a_keyboard() -> None:
    assert helped(keys=False) == "1-10 of 100"
    assert helped(total=3, keys=False) == ""


# ---------------------------------------------------------------- colors of states


@pytest.mark.parametrize(
    ("state", "style"),
    [
        ("Running", "green"),
        ("Ready", "green"),
        ("Active", "green"),
        ("Bound", "green"),
        ("Pending", "yellow"),
        ("ContainerCreating", "yellow"),
        ("PodInitializing", "yellow"),
        ("Init:0/2", "yellow"),
        ("Ready,SchedulingDisabled", "yellow"),
        ("CrashLoopBackOff", "red"),
        ("Init:CrashLoopBackOff", "red"),
        ("Error", "red"),
        ("ErrImagePull", "red"),
        ("ImagePullBackOff", "red"),
        ("OOMKilled", "red"),
        ("Evicted", "red"),
        ("Failed", "red"),
        ("NotReady", "red"),
        ("NotReady,SchedulingDisabled", "red"),
        ("Unknown", "red"),
        ("Lost", "red"),
        ("Terminating", "bright_black"),
        ("Completed", "bright_black"),
        ("Complete", "bright_black"),
        ("Succeeded", "bright_black"),
        ("Inactive", ""),
        ("Deferred", ""),
        ("", ""),
    ],
)
def test_state_has_a_color(state: str, style: str) -> None:
    assert state_styles(["NAME", "STATUS"], ["error", state]) == ["", style]


def test_warning_has_a_color_in_any_column() -> None:
    assert state_styles(["TYPE", "REASON"], ["Warning", "Failed"]) == ["yellow", ""]
    assert state_styles(["TYPE", "NAME"], ["Normal", "failed"]) == ["", ""]


@pytest.mark.parametrize(
    ("ready", "state", "style"),
    [
        ("1/1", "Running", ""),
        ("1/2", "Running", "yellow"),
        ("0/1", "Completed", ""),
        ("0/0", "Running", ""),
    ],
)
def test_replicas_that_are_not_ready_have_a_color(
    ready: str, state: str, style: str
) -> None:
    assert state_styles(["READY", "STATUS"], [ready, state])[0] == style
    assert state_styles(["NAME", "READY"], ["web", "2/3"]) == ["", "yellow"]


# ---------------------------------------------------------------- the table


def test_rows_of_changes_have_a_sign_and_a_style() -> None:
    rows = [
        ("", ["shop", "web-0", "5d"]),
        ("added", ["shop", "web-1", "0s"]),
        ("modified", ["shop", "web-2", "5d"]),
        ("deleted", ["shop", "web-3", "5d"]),
    ]
    lines = ColumnTable(HEAD).draw(rows, 80)  # type: ignore[arg-type]

    assert [(it.plain, str(it.style)) for it in lines] == [
        ("  NAMESPACE   NAME    AGE", "bold cyan"),
        ("  shop        web-0   5d", ""),
        ("+ shop        web-1   0s", "bold green"),
        ("~ shop        web-2   5d", "bold yellow"),
        ("- shop        web-3   5d", "dim red"),
    ]


def test_state_keeps_its_color_in_a_changed_row() -> None:
    table = ColumnTable(["NAME", "STATUS"])
    (_, line) = table.draw([("modified", ["web-0", "Error"])], 80)

    states = [(line.plain[it.start : it.end].strip(), it.style) for it in line.spans]
    assert (line.style, states) == ("bold yellow", [("Error", "red")])

    (_, line) = table.draw([("deleted", ["web-0", "Running"])], 80)
    assert (line.style, line.spans) == ("dim red", [])


def test_columns_never_become_narrower() -> None:
    table = ColumnTable(HEAD)
    table.draw([("", ["shop", "web-7d9c5b8f6-x2x4z", "5d"])], 80)
    (head, _) = table.draw([("", ["shop", "web", "5d"])], 80)

    assert head.plain.index("AGE") == 2 + 9 + 3 + 19 + 3


@pytest.mark.parametrize("width", [0, 1, 2, 3, 10, 20, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal_width(width: int) -> None:
    cells = ["shop", "日本語" * 30, "5d"]
    lines = ColumnTable(HEAD).draw([("modified", cells), ("", cells)], width)
    failing = replace(HEALTH, status=status(TransportError("gone " * 50)))
    lines += [
        status_line("pods " * 30, HEALTH, width),
        status_line("pods", failing, width),
    ]
    for view in (after("/", *"日本語" * 30), after("/", *"ab", "enter"), FIRST):
        lines.append(
            help_line(view, total=99, room=9, hidden=2, keys=True, width=width)
        )

    assert [it.plain for it in lines if cell_len(it.plain) > width] == []


# ---------------------------------------------------------------- the status


def test_rate_meter_starts_at_zero() -> None:
    assert RateMeter().rate(10.0, 500) == 0.0


def test_rate_meter_returns_growth_per_second() -> None:
    meter = RateMeter()
    meter.rate(10.0, 500)

    assert meter.rate(10.5, 600) == 200.0


def test_rate_meter_forgets_growth_after_three_seconds() -> None:
    meter = RateMeter()
    for second in range(10):
        meter.rate(float(second), 1000 * second)

    rates = [meter.rate(10.0 + second, 9000) for second in range(4)]

    assert rates[0] > rates[1] > rates[2] == rates[3] == 0.0


HEALTH = InformerHealth(status=status(None), objects=1963, rate=91.4)


def test_status_line_shows_title_state_and_counts() -> None:
    line = status_line("pods in shop", HEALTH, 80)

    assert line.plain == "pods in shop   synced   fresh   1,963 objects   91 events/s"
    assert line.style == "bold"


def test_status_line_counts_one_in_the_singular() -> None:
    line = status_line("pods", replace(HEALTH, objects=1, rate=0.8), 80)

    assert line.plain.endswith("   1 object   1 event/s")


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
def test_status_line_shows_freshness(changed: dict[str, object], words: str) -> None:
    health = replace(HEALTH, status=replace(HEALTH.status, **changed))  # type: ignore[arg-type]

    assert words in status_line("pods", health, 80).plain


def test_status_line_starts_with_an_outage() -> None:
    failing = replace(status(TransportError("x refused the connection.")), age=12.0)
    line = status_line("pods", replace(HEALTH, status=failing), 60)

    assert line.style == "bold red"
    assert line.plain == "connection lost for 12s, retrying: x refused the connection…"


def test_status_line_reports_a_replaced_server() -> None:
    failing = replace(HEALTH, status=status(HistoryReset("older")))
    during = status_line("pods", failing, 80)
    after_it = status_line("pods", replace(HEALTH, was_reset=True), 80)

    assert during.plain.startswith("the server was restored or replaced, listing again")
    assert "   relisted: the server was restored or replaced   " in after_it.plain
