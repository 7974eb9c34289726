"""`ElectorState`: claims, renewals, loss and release."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from metrics_helpers import PlainSink

from aioinformer.controller.elector_state import NOT_RENEWED, ElectorState, LeaseTiming
from aioinformer.controller.lease_record import LeaseRecord, Step
from aioinformer.controller.metrics import LeaderMetrics
from aioinformer.errors import OptionsError

WALL = datetime(2026, 8, 1, tzinfo=UTC)


TIMING = LeaseTiming.of(15, 10, 2)


THEIRS = LeaseRecord("them", 15, "a", "b", 3)


class Made:
    """State of an elector, with the calls of `on_new_leader`."""

    def __init__(self) -> None:
        self.leaders: list[str] = []
        self.sink = PlainSink()
        self.state = ElectorState(
            "us",
            TIMING,
            LeaderMetrics("x", "us", self.sink),
            self.leaders.append,
        )

    def claim(self, sent: float, now: float) -> None:
        self.state.written(self.state.claim(WALL, sent), sent, now)

    @property
    def status(self) -> float:
        return self.sink.gauges["leader_election_master_status", ("x",)]


def test_new_state_does_not_lead() -> None:
    it = Made()

    assert not it.state.leads(0)
    assert (it.state.leader, it.state.lease_ends) == ("", None)
    assert it.status == 0


def test_claim_leads_from_response_until_deadline_after_send() -> None:
    it = Made()
    it.claim(100, 103)

    assert it.state.deadline == 110
    assert it.state.lease_ends == 115
    assert it.state.leads(109.9)
    assert not it.state.leads(110)
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
def test_renewal_extends_deadline_from_its_send_time(
    sent: float, answered: float, deadline: float
) -> None:
    it = Made()
    it.claim(100, 100)
    it.claim(sent, answered)

    assert it.state.deadline == deadline


def test_late_response_to_acquisition_does_not_lead() -> None:
    it = Made()
    it.claim(100, 110)

    assert it.state.deadline is None
    assert it.state.leader == "us"
    assert it.state.next_step(110) is Step.CLAIM


def test_lost_state_does_not_lead_while_work_runs() -> None:
    it = Made()
    it.claim(100, 100)
    it.state.lost("of a reason")

    assert it.state.why_lost == "of a reason"
    assert not it.state.leads(101)
    assert it.state.lease_ends == 115
    assert it.status == 0
    assert it.state.work_ended(120) is False
    assert it.state.lease_ends is None


@pytest.mark.parametrize(
    ("now", "releases"),
    [pytest.param(109.9, True, id="in-time"), pytest.param(110, False, id="too-late")],
)
def test_work_that_ends_before_deadline_allows_release(
    now: float, releases: bool
) -> None:
    it = Made()
    it.claim(100, 100)

    assert it.state.work_ended(now) is releases
    assert not it.state.leads(101)
    assert it.status == 0


def test_leader_yields_to_other_holder() -> None:
    it = Made()
    it.claim(100, 100)
    it.state.observe(THEIRS, 101)

    assert it.state.next_step(101) is Step.YIELD


def test_reason_for_loss_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    it = Made()
    it.claim(100, 100)
    with caplog.at_level(logging.WARNING):
        it.state.lost("the lease is held by them")

    assert "lost leadership (identity=us): the lease is held by them" in caplog.text


def test_new_term_resets_reason_for_loss() -> None:
    it = Made()
    it.claim(100, 100)
    it.state.lost("the lease is held by them")
    it.state.work_ended(101)
    it.claim(200, 200)

    assert it.state.why_lost == NOT_RENEWED


def test_forgotten_lease_restarts_observation() -> None:
    it = Made()
    it.state.observe(THEIRS, 100)
    it.state.forget()
    it.state.observe(THEIRS, 5000)

    assert it.state.next_step(5001) is Step.WAIT
    assert it.leaders == ["them"]


def test_on_new_leader_is_called_once_for_each_leader() -> None:
    it = Made()
    it.state.observe(None, 99)
    it.state.observe(THEIRS, 100)
    it.state.observe(replace(THEIRS, renewed="c"), 101)
    it.claim(120, 120)
    it.claim(122, 122)
    it.state.observe(LeaseRecord("", 1), 123)
    it.state.observe(THEIRS, 124)
    it.state.observe(None, 125)

    assert it.leaders == ["them", "us", "", "them", ""]


def test_claim_is_based_on_observed_record() -> None:
    it = Made()
    assert it.state.claim(WALL, 100).transitions == 0

    it.state.observe(THEIRS, 100)
    assert it.state.claim(WALL, 100).transitions == 4
    assert it.state.claim(WALL, 100).lease_seconds == 15


@pytest.mark.parametrize(
    ("lease", "renew", "retry", "why"),
    [
        pytest.param(15, 15, 2, "lease_duration", id="no-time-between"),
        pytest.param(10, 15, 2, "lease_duration", id="lease-too-short"),
        # A Lease has whole seconds, and others claim it after 15 s.
        pytest.param(
            15.9, 15.5, 2, "lease_duration", id="lease-cut-below-the-deadline"
        ),
        pytest.param(15, 2.4, 2, "renew_deadline", id="deadline-of-one-jittered-retry"),
        pytest.param(15, 1, 2, "renew_deadline", id="deadline-below-retry"),
        pytest.param(15, 10, 0, "retry_period", id="no-pause"),
        pytest.param(15, 10, -2, "retry_period", id="negative-pause"),
        pytest.param(0.9, 0.5, 0.1, "lease_duration", id="lease-below-a-second"),
        pytest.param(math.inf, 10, 2, "inf", id="infinite-lease"),
        pytest.param(15, math.nan, 2, "nan", id="no-number"),
    ],
)
def test_inconsistent_durations_are_refused(
    lease: float, renew: float, retry: float, why: str
) -> None:
    with pytest.raises(OptionsError, match=why):
        LeaseTiming.of(lease, renew, retry)


def test_lease_duration_is_cut_to_whole_seconds() -> None:
    timing = LeaseTiming.of(timedelta(seconds=15.9), timedelta(seconds=10), 2)

    assert timing == LeaseTiming(15, 10.0, 2.0)


def test_candidate_pauses_for_1_to_2_2_periods() -> None:
    timing = LeaseTiming.of(15, 10, 2)

    assert timing.pause(0) == 2
    assert timing.pause(0.5) == pytest.approx(3.2)
    assert timing.pause(0.999_999) < 4.4


def test_request_timeout_leaves_time_for_second_attempt() -> None:
    timing = LeaseTiming.of(15, 10, 2)

    assert timing.retry + timing.request < timing.renew


def test_unanswered_claim_expires_from_its_send_time() -> None:
    it = Made()
    it.state.unanswered = 2
    record = it.state.claim(WALL, 100)
    it.state.observe(record, 160)  # the first read after an outage

    assert it.state.next_step(160) is Step.CLAIM


def test_recent_unanswered_claim_expires_before_another() -> None:
    it = Made()
    it.state.unanswered = 2
    record = it.state.claim(WALL, 100)
    it.state.observe(record, 101)

    assert it.state.next_step(100 + 15 + 8) is Step.WAIT
    assert it.state.next_step(100 + 15 + 9) is Step.CLAIM
