"""`Watchdog`: the deadline of a silent watch, computed without a clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioinformer.informer.listwatch.recovery import Watchdog

if TYPE_CHECKING:
    from collections.abc import Sequence


def watched(*bookmarks: float, begun: float = 0.0) -> Watchdog:
    """Make a watchdog that has seen a watch with bookmarks at these times."""
    watchdog = Watchdog()
    watchdog.begin(begun)
    for time in bookmarks:
        watchdog.bookmark(time)

    return watchdog


# ---------------------------------------------------------------- measured gaps


@pytest.mark.parametrize(
    ("bookmarks", "deadline"),
    [
        pytest.param([], None, id="none"),
        pytest.param([60], None, id="one"),
        pytest.param([60, 120], 120 + 150, id="two"),
        pytest.param([60, 130, 190], 190 + 175, id="the-longest-gap-counts"),
        pytest.param([60, 80], 80 + 90, id="never-before-90-s"),
        pytest.param([60, 96], 96 + 90, id="just-90-s"),
        pytest.param([60, 98], 98 + 95, id="just-over-90-s"),
        pytest.param([60, 60], None, id="two-at-once"),
        pytest.param([60, 64.9], None, id="two-together"),
        pytest.param([60, 65], 65 + 90, id="two-just-apart"),
        pytest.param([0, 1, 2, 3, 4, 5, 6], 6 + 90, id="a-quick-rhythm"),
        pytest.param([60, 61, 120, 121], 121 + 150, id="pairs"),
        pytest.param([60, 180], 180 + 300, id="the-longest-rhythm"),
        pytest.param([60, 180.5], None, id="a-pause-is-no-rhythm"),
        pytest.param([60, 120, 9999], 9999 + 150, id="asleep"),
        pytest.param([60, 9999, 10059], 10059 + 150, id="awake-again"),
    ],
)
def test_two_bookmarks_arm_the_watchdog(
    bookmarks: Sequence[float], deadline: float | None
) -> None:
    watchdog = watched(*bookmarks)

    assert watchdog.deadline() == deadline
    assert watchdog.armed is (deadline is not None)


def test_time_before_the_first_bookmark_is_no_gap() -> None:
    assert watched(100, 130, begun=0).deadline() == 130 + 90


def test_long_gap_is_forgotten_after_eight_others() -> None:
    watchdog = watched(0, 110)
    times = [110 + 60 * n for n in range(1, 9)]

    patience = []
    for time in times:
        watchdog.bookmark(time)
        patience.append((watchdog.deadline() or 0) - time)

    assert patience == [275.0] * 7 + [150.0]


def test_any_event_postpones_the_deadline() -> None:
    watchdog = watched(60, 120)

    watchdog.event(200)

    assert watchdog.deadline() == 200 + 150


def test_events_without_bookmarks_do_not_arm_the_watchdog() -> None:
    watchdog = watched(60)
    watchdog.event(120)
    watchdog.event(180)

    assert watchdog.deadline() is None


def test_there_is_no_deadline_before_the_first_watch() -> None:
    assert Watchdog().deadline() is None


# ---------------------------------------------------------------- from watch to watch


def test_watch_that_stalls_before_its_first_bookmark_is_detected() -> None:
    watchdog = watched(60, 120)

    watchdog.begin(400)

    assert watchdog.deadline() == 400 + 150


def test_time_between_two_watches_is_no_gap() -> None:
    watchdog = watched(60, 120)

    watchdog.begin(130)
    watchdog.bookmark(190)

    assert watchdog.longest_gap == 60


def test_one_bookmark_in_each_of_two_watches_does_not_arm() -> None:
    watchdog = watched(60)

    watchdog.begin(130)
    watchdog.bookmark(190)

    assert not watchdog.armed


def test_watchdog_stays_armed_after_ending_a_watch_with_bookmarks() -> None:
    watchdog = watched(60, 120)

    watchdog.ended_watch()
    between = watchdog.deadline()
    watchdog.begin(300)

    assert between is None
    assert watchdog.deadline() == 300 + 150


def test_ending_a_watch_without_bookmarks_disarms_the_watchdog() -> None:
    watchdog = watched(60, 120)
    watchdog.begin(300)
    watchdog.event(310)

    watchdog.ended_watch()

    assert not watchdog.armed
    assert watchdog.longest_gap == 0


def test_disarmed_watchdog_measures_again() -> None:
    watchdog = watched(60, 120)
    watchdog.begin(300)
    watchdog.ended_watch()

    watchdog.begin(500)
    watchdog.bookmark(540)
    one = watchdog.armed
    watchdog.bookmark(600)

    assert not one
    assert watchdog.deadline() == 600 + 150


def test_ending_two_watches_in_a_row_with_one_bookmark_each_disarms() -> None:
    watchdog = watched(60, 120)
    armed = []
    for begun in (300, 600, 900):
        watchdog.ended_watch()
        armed.append(watchdog.armed)
        watchdog.begin(begun)
        watchdog.bookmark(begun + 10)

    assert armed == [True, False, False]


def test_watches_ended_by_the_server_do_not_disarm() -> None:
    watchdog = watched(60, 120)
    armed = []
    for begun in (300, 900, 1500):
        watchdog.ended_watch()
        armed.append(watchdog.armed)
        watchdog.begin(begun)
        watchdog.bookmark(begun + 10)
        watchdog.begin(begun + 300)  # the server ended it
        watchdog.bookmark(begun + 310)

    assert armed == [True, True, True]


def test_repr_names_the_state() -> None:
    assert repr(Watchdog()) == "<Watchdog not armed>"
    assert repr(watched(60, 120)) == "<Watchdog armed, 150s>"


# ---------------------------------------------------------------- invariants

SECONDS = st.sampled_from([0.0, 1.0, 5.0, 10.0, 60.0, 75.0, 120.0, 200.0, 20_000.0])
STEPS = st.lists(
    st.tuples(st.sampled_from(["begin", "event", "bookmark", "silence"]), SECONDS),
    max_size=60,
)


@given(STEPS)
def test_deadline_is_bounded_and_at_most_two_watches_are_ended_in_a_row(
    steps: list[tuple[str, float]],
) -> None:
    """In a row means without a measured gap or a watch that ended by itself."""
    watchdog = Watchdog()
    now, heard, alarms, bitten = 0.0, 0.0, 0, True
    for what, seconds in steps:
        if bitten and what != "begin":
            watchdog.begin(now)
            heard, bitten = now, False

        deadline = watchdog.deadline()
        assert (deadline is not None) is (watchdog.armed and not bitten)
        assert deadline is None or 90 <= deadline - heard <= 300

        if what == "silence":
            if deadline is not None:
                now = deadline
                watchdog.ended_watch()
                alarms, bitten = alarms + 1, True
                assert alarms <= 2

            continue

        now += seconds
        if what == "begin" and not bitten:
            alarms = 0

        heard, bitten = now, False
        before = list(watchdog._gaps)
        getattr(watchdog, what)(now)
        if watchdog._gaps and list(watchdog._gaps) != before:
            alarms = 0


# Differences of times are rounded, and must stay within the bounds.
@given(
    gaps=st.lists(st.floats(5.001, 119.999), min_size=1, max_size=20),
    traffic=st.lists(st.floats(0, 1), max_size=5),
)
def test_watch_of_a_steady_server_is_never_ended(
    gaps: list[float], traffic: list[float]
) -> None:
    """No gap is 2.5 times as long as the longest of the eight before it."""
    watchdog = watched(0.0)
    now = 0.0
    for number, gap in enumerate(gaps):
        deadline = watchdog.deadline()
        patience = max(2.5 * max(gaps[max(0, number - 8) : number], default=0), 90)
        assert deadline is None or deadline == pytest.approx(now + patience)
        for part in sorted(traffic):
            watchdog.event(now + part * gap)
            deadline = watchdog.deadline()
            assert deadline is None or deadline >= now + part * gap + patience * 0.999

        now += gap
        watchdog.bookmark(now)

    assert watchdog.armed
