"""The state of an elector: what happens to it, and what it then says."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from metrics_helpers import PlainSink

from aioinformer.controller.leader_measures import LeaderMeasures
from aioinformer.controller.leader_standing import LATE, Standing
from aioinformer.controller.lease_record import LeaseRecord, Step
from aioinformer.controller.lease_timing import LeaseTiming

WALL = datetime(2026, 8, 1, tzinfo=UTC)
TIMING = LeaseTiming.of(15, 10, 2)
THEIRS = LeaseRecord("them", 15, "a", "b", 3)


class Made:
    """A standing, and who it has told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.sink = PlainSink()
        self.standing = Standing(
            "us",
            TIMING,
            LeaderMeasures("x", "us", self.sink),
            self.told.append,
        )

    def claim(self, sent: float, now: float) -> None:
        self.standing.written(self.standing.claim(WALL), sent, now)

    @property
    def status(self) -> float:
        return self.sink.gauges["leader_election_master_status", ("x",)]


def test_leads_nothing_at_first() -> None:
    it = Made()

    assert not it.standing.leads(0)
    assert (it.standing.leader, it.standing.lease_ends) == ("", None)
    assert it.status == 0


def test_leads_from_the_answer_until_the_deadline_of_what_was_sent() -> None:
    it = Made()
    it.claim(100, 103)

    assert it.standing.deadline == 110
    assert it.standing.lease_ends == 115
    assert it.standing.leads(109.9)
    assert not it.standing.leads(110)
    assert it.status == 1


@pytest.mark.parametrize(
    ("sent", "answered", "deadline"),
    [
        pytest.param(102, 103, 112, id="in-time"),
        pytest.param(102, 109.9, 112, id="just-in-time"),
        pytest.param(109.9, 110, 110, id="answered-at-the-deadline"),
        pytest.param(109.9, 130, 110, id="answered-long-after"),
    ],
)
def test_a_renewal_counts_from_when_it_was_sent_if_its_answer_is_in_time(
    sent: float, answered: float, deadline: float
) -> None:
    it = Made()
    it.claim(100, 100)
    it.claim(sent, answered)

    assert it.standing.deadline == deadline


def test_an_acquisition_that_is_answered_too_late_is_none() -> None:
    it = Made()
    it.claim(100, 110)

    assert it.standing.deadline is None
    assert it.standing.leader == "us"
    assert it.standing.next_step(110) is Step.CLAIM


def test_leads_no_more_though_its_work_goes_on() -> None:
    it = Made()
    it.claim(100, 100)
    it.standing.lost("of a reason")

    assert it.standing.why_lost == "of a reason"
    assert not it.standing.leads(101)
    assert it.standing.lease_ends == 115
    assert it.status == 0
    assert it.standing.work_ended(120) is False
    assert it.standing.lease_ends is None


@pytest.mark.parametrize(
    ("now", "releases"),
    [pytest.param(109.9, True, id="in-time"), pytest.param(110, False, id="too-late")],
)
def test_work_that_ends_in_time_leaves_something_to_release(
    now: float, releases: bool
) -> None:
    it = Made()
    it.claim(100, 100)

    assert it.standing.work_ended(now) is releases
    assert not it.standing.leads(101)
    assert it.status == 0


def test_a_leader_yields_to_another() -> None:
    it = Made()
    it.claim(100, 100)
    it.standing.see(THEIRS, 101)

    assert it.standing.next_step(101) is Step.YIELD


def test_why_it_is_lost_is_told(caplog: pytest.LogCaptureFixture) -> None:
    it = Made()
    it.claim(100, 100)
    with caplog.at_level(logging.WARNING):
        it.standing.lost("it names them now")

    assert "us, has lost the lease: it names them now" in caplog.text


def test_a_new_term_has_not_been_lost_for_the_reason_of_the_last_one() -> None:
    it = Made()
    it.claim(100, 100)
    it.standing.lost("it names them now")
    it.standing.work_ended(101)
    it.claim(200, 200)

    assert it.standing.why_lost == LATE


def test_what_is_forgotten_is_seen_for_the_first_time_again() -> None:
    it = Made()
    it.standing.see(THEIRS, 100)
    it.standing.forget()
    it.standing.see(THEIRS, 5000)

    assert it.standing.next_step(5001) is Step.WAIT
    assert it.told == ["them"]


def test_each_new_leader_is_told_once() -> None:
    it = Made()
    it.standing.see(None, 99)
    it.standing.see(THEIRS, 100)
    it.standing.see(replace(THEIRS, renewed="c"), 101)
    it.claim(120, 120)
    it.claim(122, 122)
    it.standing.see(LeaseRecord("", 1), 123)
    it.standing.see(THEIRS, 124)
    it.standing.see(None, 125)

    assert it.told == ["them", "us", "", "them", ""]


def test_a_claim_follows_what_was_seen() -> None:
    it = Made()
    assert it.standing.claim(WALL).transitions == 0

    it.standing.see(THEIRS, 100)
    assert it.standing.claim(WALL).transitions == 4
    assert it.standing.claim(WALL).lease_seconds == 15
