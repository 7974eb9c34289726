"""What an elector tells its sink and the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from metrics_helpers import PlainSink

from aioinformer.controller.leader_measures import LeaderMeasures
from aioinformer.errors import TransportError

if TYPE_CHECKING:
    import pytest

    from aioinformer.errors import HandlerError


class BrokenSink(PlainSink):
    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        raise ValueError("a broken sink")


def test_the_status_follows_and_the_rest_is_counted() -> None:
    sink = PlainSink()
    measures = LeaderMeasures("x", "us", sink)
    status = "leader_election_master_status", ("x",)
    assert sink.gauges[status] == 0

    measures.began()
    assert sink.gauges[status] == 1

    measures.lost("why")
    assert sink.gauges[status] == 0

    measures.began()
    measures.ended()
    assert sink.gauges[status] == 0

    measures.slow_path()
    measures.overran()
    assert sink.counts == {
        ("leader_election_slowpath_total", ("x",)): 1,
        ("aioinformer_leader_overruns_total", ("x",)): 1,
    }


def test_a_sink_that_fails_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    measures = LeaderMeasures("x", "us", BrokenSink())
    measures.began()
    measures.ended()

    assert caplog.text.count("the metrics sink failed") == 1


def test_failures_in_great_number_are_summed(caplog: pytest.LogCaptureFixture) -> None:
    measures = LeaderMeasures("x", "us", PlainSink())
    with caplog.at_level(logging.WARNING):
        for second in range(40):
            measures.failed("renew the lease", TransportError("no route"), second)

    assert caplog.text.count("cannot renew the lease: TransportError: no route") == 9
    assert "40 failures of TransportError within a minute" in caplog.text


def test_a_callback_that_fails_is_reported() -> None:
    failures: list[HandlerError] = []
    measures = LeaderMeasures("x", "us", PlainSink(), failures.append)
    cause = ValueError("mine")
    measures.callback_failed("them", cause)

    (failure,) = failures
    assert (failure.where, failure.subject) == ("on_new_leader", "them")
    assert failure.__cause__ is cause
