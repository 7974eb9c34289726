"""`LeaseRecord`: decisions for observed Leases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from aioinformer.controller.lease_record import (
    LeaseRecord,
    ObservedRecord,
    Step,
    claimed,
    next_step,
    observe,
    released,
)
from aioinformer.errors import DecodeError
from aioinformer.model.times import micro_time

NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)
NOON_TEXT = "2026-08-01T12:00:00.000000Z"

THEIRS = LeaseRecord("them", 15, "2026-01-01T00:00:00.000000Z", "2026-01-01", 3)
OURS = LeaseRecord("us", 15, "2026-01-01T00:00:00.000000Z", "2026-01-01", 3)
FREE = LeaseRecord("", 1, "2026-01-01", "2026-01-01", 3)

# Observed at 100, with 15 s: valid until 115.
STEPS = [
    pytest.param(None, 100, False, Step.CREATE, id="there-is-none"),
    pytest.param(None, 100, True, Step.CREATE, id="its-leader-finds-it-deleted"),
    pytest.param(THEIRS, 100, False, Step.WAIT, id="of-another-just-observe"),
    pytest.param(THEIRS, 114.9, False, Step.WAIT, id="of-another-alive"),
    pytest.param(THEIRS, 115, False, Step.CLAIM, id="of-another-run-out"),
    pytest.param(THEIRS, 100, True, Step.YIELD, id="taken-from-its-leader"),
    pytest.param(THEIRS, 999, True, Step.YIELD, id="taken-and-run-out"),
    pytest.param(FREE, 100, False, Step.CLAIM, id="free"),
    pytest.param(FREE, 100, True, Step.YIELD, id="made-free-under-its-leader"),
    pytest.param(OURS, 100, False, Step.CLAIM, id="ours-from-before"),
    pytest.param(OURS, 999, True, Step.CLAIM, id="ours-and-leading"),
]


@pytest.mark.parametrize(("record", "now", "leading", "step"), STEPS)
def test_next_step_for_observed_lease(
    record: LeaseRecord | None, now: float, leading: bool, step: Step
) -> None:
    sighting = None if record is None else ObservedRecord(record, 100.0)

    assert next_step(sighting, "us", now, leading=leading) is step


def test_lease_age_starts_at_first_observation() -> None:
    first = observe(None, THEIRS, 100)
    again = observe(first, LeaseRecord.of(THEIRS.spec()), 110)
    renewed = observe(
        again, LeaseRecord("them", 15, THEIRS.acquired, "2026-01-02", 3), 112
    )

    assert (first.alive_until, again.alive_until) == (115, 115)
    assert renewed.alive_until == 127


@pytest.mark.parametrize("year", ["1970", "2026", "2999"])
def test_timestamps_of_other_machines_are_ignored(year: str) -> None:
    text = f"{year}-01-01T00:00:00.000000Z"
    record = LeaseRecord("them", 15, text, text, 0)

    assert next_step(ObservedRecord(record, 100), "us", 114, leading=False) is Step.WAIT
    assert (
        next_step(ObservedRecord(record, 100), "us", 115, leading=False) is Step.CLAIM
    )


def test_first_holder_has_no_transitions() -> None:
    record = claimed(None, "us", 15, NOON)

    assert record == LeaseRecord("us", 15, NOON_TEXT, NOON_TEXT, 0)


def test_renewal_keeps_acquire_time() -> None:
    record = claimed(OURS, "us", 20, NOON)

    assert record == LeaseRecord("us", 20, OURS.acquired, NOON_TEXT, 3)


@pytest.mark.parametrize("before", [THEIRS, FREE], ids=["run-out", "free"])
def test_new_holder_increments_transitions(before: LeaseRecord) -> None:
    record = claimed(before, "us", 15, NOON)

    assert record == LeaseRecord("us", 15, NOON_TEXT, NOON_TEXT, 4)


def test_released_lease_equals_that_of_client_go() -> None:
    assert released(OURS, NOON).spec() == {
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "acquireTime": NOON_TEXT,
        "renewTime": NOON_TEXT,
        "leaseTransitions": 3,
    }


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="missing"),
        pytest.param(dict.fromkeys(THEIRS.spec()), id="null"),
    ],
)
def test_missing_fields_of_spec_are_empty(spec: dict[str, None]) -> None:
    assert LeaseRecord.of(spec) == LeaseRecord("", 0, "", "", 0)


@pytest.mark.parametrize(
    "junk",
    [
        pytest.param({"holderIdentity": 7}, id="holder"),
        pytest.param({"leaseDurationSeconds": "15"}, id="duration"),
        pytest.param({"leaseDurationSeconds": 1.5}, id="fraction"),
        pytest.param({"renewTime": {}}, id="time"),
        pytest.param({"leaseTransitions": []}, id="transitions"),
    ],
)
def test_spec_with_invalid_types_is_refused(junk: dict[str, object]) -> None:
    (field,) = junk
    with pytest.raises(DecodeError, match=f"invalid {field} of a Lease"):
        LeaseRecord.of(junk)


def test_spec_round_trips() -> None:
    assert LeaseRecord.of(THEIRS.spec()) == THEIRS


def test_lease_without_duration_has_expired() -> None:
    sighting = ObservedRecord(LeaseRecord("them"), 100)

    assert next_step(sighting, "us", 100, leading=False) is Step.CLAIM


def test_timestamps_are_in_utc_with_microseconds() -> None:
    east = timezone(timedelta(hours=2))

    assert micro_time(datetime(2026, 8, 1, 14, tzinfo=east)) == NOON_TEXT
    assert micro_time(NOON.replace(microsecond=7)).endswith(":00.000007Z")
