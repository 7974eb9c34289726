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
    help_page,
    pressed,
    state_styles,
    status_lines,
)
from aioinformer.errors import HistoryReset, ServerError, TransportError, Unauthorized
from aioinformer.tables.rows import BY_CHANGE, Arrangement

HEAD = ["NAMESPACE", "NAME", "AGE"]
FIRST = View(Arrangement("NAMESPACE"))
BY_NAME = Arrangement("NAME")


# ---------------------------------------------------------------- keys


def after(
    *keys: str,
    view: View = FIRST,
    total: int = 100,
    room: int = 10,
    columns: list[str] = HEAD,
    scrollable: int = 0,
) -> View:
    for key in keys:
        view = pressed(
            view,
            key,
            total=total,
            room=room,
            columns=columns,
            scrollable=scrollable,
        )

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
        ([" ", " "], 20),
        (["G"], 90),
        (["G", "g"], 0),
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


def test_sort_key_skips_columns_that_are_not_visible() -> None:
    view = after("s", columns=["NAME", "NODE"])
    assert view.arrangement.sort == "NAME", "the sorted column was scrolled out"

    seen = [
        after(*["s"] * times, view=view, columns=["NAME", "NODE"]) for times in (1, 2)
    ]
    assert [it.arrangement.sort for it in seen] == ["NODE", BY_CHANGE]


def test_digit_sorts_by_a_visible_column() -> None:
    assert after("3").arrangement.sort == "AGE"
    assert after("end", "2", columns=["NAME", "NODE"]) == View(Arrangement("NODE"))
    assert after("4") == after("0") == FIRST
    assert after("/", "3").arrangement == Arrangement("NAMESPACE", filter="3")


def test_arrow_keys_scroll_the_columns() -> None:
    assert after("right", "right", scrollable=3).scrolled == 2
    assert after("right", "right", scrollable=1).scrolled == 1
    assert after("right", "left", "left", scrollable=3) == FIRST
    assert after("right", "s", scrollable=3).scrolled == 1


def test_question_mark_shows_the_keys_until_the_next_key() -> None:
    assert after("?").helping
    assert after("?", "?") == after("?", "s") == after("?", "escape") == FIRST
    assert after("?", "q").closed
    assert after("/", "?").arrangement.filter == "?"


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


KEYS = ["up", "end", "page down", " ", "G", "left", "right", "s", "S", "r", "2"]
keys = st.sampled_from([*KEYS, "/", "a", "?", "escape", "enter"])


@given(st.lists(keys, max_size=20), st.integers(0, 30), st.integers(0, 10))
def test_keys_never_scroll_beyond_the_rows_and_columns(
    keys: list[str], total: int, room: int
) -> None:
    view = after(*keys, total=total, room=room, scrollable=room)

    assert 0 <= view.offset <= max(0, total - room)
    assert 0 <= view.scrolled <= room
    assert view.arrangement.sort in [*HEAD, BY_CHANGE]


# ---------------------------------------------------------------- the help line


def helped(
    view: View = FIRST,
    *,
    matching: int = 100,
    hidden: int = 0,
    keys: bool = True,
    width: int = 80,
) -> str:
    line = help_line(
        view,
        matching=matching,
        objects=100,
        room=10,
        hidden=hidden,
        keys=keys,
        width=width,
    )
    return line.plain


def test_help_line_shows_visible_rows_and_keys() -> None:
    assert helped(replace(FIRST, offset=20)) == (
        "21-30 of 100   q quit   ? keys   / filter   sort: NAMESPACE ↑"
    )
    assert helped(matching=3) == "q quit   ? keys   / filter   sort: NAMESPACE ↑"
    assert helped(View(Arrangement("AGE", reverse=True)), matching=3) == (
        "q quit   ? keys   / filter   sort: AGE ↓"
    )


def test_help_line_shows_that_columns_are_hidden() -> None:
    assert helped(hidden=3).endswith("   sort: NAMESPACE ↑   ←→ 3 hidden")
    assert helped(hidden=2, keys=False) == "1-10 of 100   2 columns hidden"


def test_help_line_shows_how_many_objects_the_filter_shows() -> None:
    kept = after("/", *"web", "enter")
    assert helped(kept, matching=3).startswith(
        "3 of 100 objects   q quit   ? keys   filter: web (Esc clears)"
    )
    assert helped(kept, matching=0).startswith("0 of 100 objects   q quit")
    assert helped(kept, matching=30).startswith("1-10 of 30 (100 objects)   q quit")

    typed = helped(after("/", *"web"), matching=3)
    assert typed.startswith("/web ")
    assert typed.endswith("3 of 100 objects   Enter keeps the filter, Esc clears it")


def test_help_line_of_a_narrow_terminal_has_the_key_that_quits() -> None:
    words = after("/", *"a long filter " * 5, "enter", view=replace(FIRST, offset=20))

    assert "q quit   ? keys" in helped(words, hidden=4, width=50)


def test_help_line_does_not_count_deleted_rows() -> None:
    # Of 63 rows, the last two are deleted objects.
    assert helped(replace(FIRST, offset=53), matching=61).startswith("54-61 of 61   ")
    assert helped(replace(FIRST, offset=53), matching=40).startswith("40-40 of 40   ")


def test_help_line_names_no_keys_without_a_keyboard() -> None:
    assert helped(keys=False) == "1-10 of 100"
    assert helped(matching=3, keys=False) == ""


def test_help_page_names_every_key() -> None:
    words = " ".join(it.plain for it in help_page(80)).split()

    keys = "↑ ↓ k j PgUp PgDn Space Home End g G ← → s S 1 9 r / Esc q"
    for key in keys.split():
        assert key in words or f"{key}," in words, key
    assert helped(after("?")).startswith("q quit   any other key closes")


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
    lines = ColumnTable(HEAD).draw(rows, 80, BY_NAME)  # type: ignore[arg-type]

    assert [(it.plain, str(it.style)) for it in lines] == [
        ("  NAMESPACE  ▲NAME    AGE", "bold cyan"),
        ("  shop        web-0   5d", ""),
        ("+ shop        web-1   0s", "bold green"),
        ("~ shop        web-2   5d", "bold yellow"),
        ("- shop        web-3   5d", "dim red"),
    ]


def test_state_keeps_its_color_in_a_changed_row() -> None:
    table = ColumnTable(["NAME", "STATUS"])
    (_, line) = table.draw([("modified", ["web-0", "Error"])], 80, BY_NAME)

    states = [(line.plain[it.start : it.end].strip(), it.style) for it in line.spans]
    assert (line.style, states) == ("bold yellow", [("Error", "red")])

    (_, line) = table.draw([("deleted", ["web-0", "Running"])], 80, BY_NAME)
    assert (line.style, line.spans) == ("dim red", [])


def test_columns_never_become_narrower() -> None:
    table = ColumnTable(HEAD)
    table.draw([("", ["shop", "web-7d9c5b8f6-x2x4z", "5d"])], 80, BY_NAME)
    (head, _) = table.draw([("", ["shop", "web", "5d"])], 80, BY_NAME)

    assert head.plain.index("AGE") == 2 + 9 + 3 + 19 + 3


@pytest.mark.parametrize(
    ("reverse", "head"),
    [(False, "  NAMESPACE   NAME  ▲AGE"), (True, "  NAMESPACE   NAME  ▼AGE")],
)
def test_header_marks_the_sorted_column(reverse: bool, head: str) -> None:
    (line,) = ColumnTable(HEAD).draw([], 80, Arrangement("AGE", reverse=reverse))

    assert line.plain == head


PODS_WIDE = ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE"]
POD = ["a-namespace", "web-0", "1/1", "Running", "3", "5d", "10.0.0.17", "node-1"]


def columns_at(width: int, scrolled: int = 0) -> tuple[list[str], int]:
    table = ColumnTable(PODS_WIDE)
    table.draw([("", POD)], width, BY_NAME, scrolled)
    return table.shown, table.scrollable


def test_columns_scroll_behind_those_that_name_the_object() -> None:
    assert columns_at(100) == (PODS_WIDE, 0)
    assert columns_at(60) == (PODS_WIDE[:6], 2)
    assert columns_at(60, 1) == ([*PODS_WIDE[:2], *PODS_WIDE[3:7]], 2)
    assert columns_at(60, 2) == ([*PODS_WIDE[:2], *PODS_WIDE[4:]], 2)
    assert columns_at(60, 9) == columns_at(60, 2)


def test_every_column_can_be_reached_on_a_narrow_terminal() -> None:
    for width in range(20, 100, 4):
        _, most = columns_at(width)
        seen = {it for number in range(most + 1) for it in columns_at(width, number)[0]}
        assert seen >= set(PODS_WIDE[1:]), width


def test_narrow_terminal_drops_blanks_and_namespace_before_the_status() -> None:
    table = ColumnTable(PODS_WIDE[:6])
    wide, _ = table.draw([("", POD[:6])], 60, BY_NAME)
    assert wide.plain == "  NAMESPACE    ▲NAME    READY   STATUS    RESTARTS   AGE"

    narrow, _ = table.draw([("", POD[:6])], 55, BY_NAME)
    assert narrow.plain == "  NAMESPACE   ▲NAME   READY  STATUS   RESTARTS  AGE"

    least, row = table.draw([("", POD[:6])], 34, BY_NAME)
    assert least.plain == "  NAME   READY  STATUS   RESTARTS".replace("  N", " ▲N")
    assert row.plain == "  web-0  1/1    Running  3"


@pytest.mark.parametrize("width", [0, 1, 2, 3, 10, 20, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal_width(width: int) -> None:
    cells = ["shop", "日本語" * 30, "5d"]
    lines = ColumnTable(HEAD).draw([("modified", cells), ("", cells)], width, BY_NAME)
    failing = replace(HEALTH, status=status(TransportError("gone " * 50)))
    lines += status_lines("pods " * 30, HEALTH, width)
    lines += status_lines("pods", failing, width)
    lines += help_page(width)
    typed, kept = after("/", *"日本語" * 30), after("/", *"ab", "enter")
    for view in (typed, kept, FIRST, after("?")):
        lines.append(
            help_line(
                view,
                matching=99,
                objects=100,
                room=9,
                hidden=2,
                keys=True,
                width=width,
            )
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


def status_line(health: InformerHealth, title: str = "pods", width: int = 80) -> str:
    (line,) = status_lines(title, health, width)
    return line.plain


def test_status_line_shows_title_state_and_counts() -> None:
    (line,) = status_lines("pods in shop", HEALTH, 80)

    assert line.plain == "pods in shop   synced   1,963 objects   91 events/s   fresh"
    assert line.style == "bold"


def test_status_line_counts_one_in_the_singular() -> None:
    line = status_line(replace(HEALTH, objects=1, rate=0.8))

    assert line.endswith("   1 object   1 event/s   fresh")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        pytest.param({"age": 0.9}, "   91 events/s   fresh", id="fresh"),
        pytest.param({"age": 45.3}, "   91 events/s   quiet for 45s", id="quiet"),
        pytest.param(
            {"age": None, "synced": False, "phase": "listing"},
            "pods   listing   1,963",
            id="not-synced",
        ),
    ],
)
def test_status_line_shows_freshness(changed: dict[str, object], words: str) -> None:
    health = replace(HEALTH, status=replace(HEALTH.status, **changed))  # type: ignore[arg-type]

    assert words in status_line(health)


def test_status_line_cuts_a_long_title_only() -> None:
    line = status_line(HEALTH, "pods in shop and media with app in (web, api)", 70)

    assert len(line) == 70
    assert line.startswith("pods in shop and media")
    assert line.endswith("…   synced   1,963 objects   91 events/s   fresh")


def test_status_line_of_a_narrow_terminal_keeps_state_and_objects() -> None:
    line = status_line(HEALTH, "pods in all namespaces", 40)

    assert line.startswith("pods in all…   synced   1,963 objects")


def failing(error: Exception, title: str = "pods in shop") -> list[str]:
    health = replace(HEALTH, status=replace(status(error), age=12.0))
    lines = status_lines(title, health, 80)
    assert "red" in str(lines[0].style)
    return [it.plain for it in lines]


def test_status_lines_keep_the_resource_in_an_outage_and_give_the_reason() -> None:
    assert failing(TransportError("x refused the connection.")) == [
        "pods in shop   connection lost for 12s   1,963 objects",
        "retrying: x refused the connection.",
    ]


def test_status_lines_show_a_refusal_as_such() -> None:
    refusal = Unauthorized("Unauthorized", status=401, reason="Unauthorized")
    first, second = failing(refusal)
    assert first == "pods in shop   refused for 12s: 401 Unauthorized   1,963 objects"
    assert second.startswith("retrying: 401 Unauthorized. The server rejected the cre")

    first, _ = failing(ServerError("away", status=503, reason="ServiceUnavailable"))
    assert first.startswith("pods in shop   failing for 12s: 503 ServiceUnavailable   ")


def test_status_line_reports_a_replaced_server_and_keeps_the_counts() -> None:
    assert failing(HistoryReset("older")) == [
        "pods in shop   server reset, relisting for 12s   1,963 objects"
    ]
    after_it = replace(HEALTH, was_reset=True)
    line = status_line(after_it, "pods in all namespaces", 80)
    assert line.startswith("pods in all")
    assert line.endswith(
        "   relisted (server reset)   1,963 objects   91 events/s   fresh"
    )
