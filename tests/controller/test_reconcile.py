"""Requests, causes and results of reconciles."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from fake_source import thing

from aioinformer import Added, Deleted, ReconcileRequest, Result, TerminalError, Updated
from aioinformer.controller.reconcile import (
    MAX_CAUSES,
    Cause,
    PendingCauses,
    cause_of,
    outcome_of_answer,
    outcome_of_failure,
)
from aioinformer.errors import OptionsError

WEB = ReconcileRequest("default", "web")


@pytest.mark.parametrize(
    ("event", "change"),
    [
        (Added(thing("web"), True), "initial"),
        (Added(thing("web")), "added"),
        (Updated(thing("web"), thing("web", 2)), "updated"),
        (Updated(thing("web"), thing("web"), True), "resync"),
        (Deleted(thing("web")), "deleted"),
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
def test_cause_of_notification(event: Added | Updated | Deleted, change: str) -> None:
    assert cause_of(event, "Pod") == Cause(change, "Pod", "default/web")  # type: ignore[arg-type]


def test_causes_are_kept_in_order_without_duplicates() -> None:
    causes = PendingCauses()
    for change in ("added", "updated", "updated", "deleted"):
        causes.add(WEB, Cause(change, "Pod", WEB.key))

    assert [it.change for it in causes.take(WEB, 0.0)] == [
        "added",
        "updated",
        "deleted",
    ]


def test_number_of_causes_is_bounded() -> None:
    causes = PendingCauses()
    for number in range(1000):
        causes.add(WEB, Cause("updated", "Pod", f"default/{number}"))

    taken = causes.take(WEB, 0.0)

    assert len(taken) == MAX_CAUSES
    assert taken[0].key == "default/0"


def test_taken_causes_are_forgotten() -> None:
    causes = PendingCauses()
    causes.add(WEB, Cause("added", "Pod", WEB.key))
    causes.take(WEB, 0.0)

    assert causes.take(WEB, 0.0) == ()
    assert len(causes) == 0


def test_due_requeue_is_a_cause() -> None:
    causes = PendingCauses()
    causes.add_requeue(WEB, 100.0)
    causes.add_requeue(WEB, 200.0)  # the queue has one entry, with the earliest time
    causes.add(WEB, Cause("updated", "Pod", WEB.key))

    taken = [causes.take(WEB, now) for now in (10.0, 99.9999, 200.0)]

    assert [[it.change for it in each] for each in taken] == [
        ["updated"],
        ["requeue"],
        [],
    ]


@pytest.mark.parametrize("key", ["shop/web", "node-1"])
def test_request_round_trips_key(key: str) -> None:
    assert ReconcileRequest.of(key).key == key


def test_request_of_invalid_key_is_refused() -> None:
    with pytest.raises(OptionsError, match="more than two parts"):
        ReconcileRequest.of("a/b/c")


def test_requests_of_different_clusters_differ() -> None:
    here, there = ReconcileRequest("a", "b"), ReconcileRequest("a", "b", "west")

    assert len({here, there, ReconcileRequest("a", "b")}) == 2
    assert here.key == there.key


@pytest.mark.parametrize("answer", [None, Result()], ids=repr)
def test_none_and_empty_result_are_success(answer: Result | None) -> None:
    verdict = outcome_of_answer(answer)

    assert (verdict.label, verdict.retry, verdict.after) == ("success", False, None)


@pytest.mark.parametrize("after", [5, 5.0, timedelta(seconds=5)], ids=repr)
def test_requeue_after_is_outcome_with_delay(after: float | timedelta) -> None:
    verdict = outcome_of_answer(Result(requeue_after=after))

    assert (verdict.label, verdict.retry, verdict.after) == ("requeue_after", False, 5)


@pytest.mark.parametrize("nonsense", [True, 0, "", {"requeue": 1}, Result], ids=repr)
def test_invalid_return_value_is_retried_failure(nonsense: object) -> None:
    verdict = outcome_of_answer(nonsense)

    assert (verdict.label, verdict.retry) == ("error", True)
    assert type(nonsense).__name__ in str(verdict.failure)


def test_invalid_return_value_is_not_logged() -> None:
    assert "hunter2" not in str(outcome_of_answer("hunter2").failure)


def test_terminal_error_is_not_retried() -> None:
    verdict = outcome_of_failure(TerminalError("no such image"))

    assert (verdict.label, verdict.retry, verdict.after) == ("error", False, None)


@pytest.mark.parametrize(
    ("errors", "retry"),
    [
        ([TerminalError("a")], False),
        ([TerminalError("a"), ExceptionGroup("inner", [TerminalError("b")])], False),
        ([TerminalError("a"), ValueError("b")], True),
    ],
    ids=["one", "nested", "mixed"],
)
def test_terminal_errors_of_a_group_are_terminal(
    errors: list[Exception], retry: bool
) -> None:
    assert outcome_of_failure(ExceptionGroup("tasks", errors)).retry is retry


@pytest.mark.parametrize(
    "failure", [ValueError("boom"), asyncio.CancelledError(), TimeoutError()], ids=repr
)
def test_other_failures_are_retried(failure: BaseException) -> None:
    verdict = outcome_of_failure(failure)

    assert verdict.failure is failure
    assert verdict.retry


@pytest.mark.parametrize("after", [float("nan"), float("inf")])
def test_invalid_requeue_after_is_refused(after: float) -> None:
    with pytest.raises(OptionsError, match="duration"):
        Result(requeue_after=after)
