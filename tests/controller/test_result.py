"""What a reconcile answers, and what it comes to."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from aioinformer import Result, TerminalError
from aioinformer.controller.result import verdict_on_answer, verdict_on_failure
from aioinformer.errors import OptionsError


@pytest.mark.parametrize("answer", [None, Result()], ids=repr)
def test_nothing_to_say_is_success(answer: Result | None) -> None:
    verdict = verdict_on_answer(answer)

    assert (verdict.label, verdict.retry, verdict.after) == ("success", False, None)


@pytest.mark.parametrize("after", [5, 5.0, timedelta(seconds=5)], ids=repr)
def test_is_done_again_after_a_duration(after: float | timedelta) -> None:
    verdict = verdict_on_answer(Result(requeue_after=after))

    assert (verdict.label, verdict.retry, verdict.after) == ("requeue_after", False, 5)


@pytest.mark.parametrize("nonsense", [True, 0, "", {"requeue": 1}, Result], ids=repr)
def test_nonsense_is_retried_as_a_failure(nonsense: object) -> None:
    verdict = verdict_on_answer(nonsense)

    assert (verdict.label, verdict.retry) == ("error", True)
    assert type(nonsense).__name__ in str(verdict.failure)


def test_what_nonsense_says_is_not_repeated() -> None:
    assert "hunter2" not in str(verdict_on_answer("hunter2").failure)


def test_a_terminal_error_is_not_retried() -> None:
    verdict = verdict_on_failure(TerminalError("no such image"))

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
    assert verdict_on_failure(ExceptionGroup("tasks", errors)).retry is retry


@pytest.mark.parametrize(
    "failure", [ValueError("boom"), asyncio.CancelledError(), TimeoutError()], ids=repr
)
def test_other_failures_are_retried(failure: BaseException) -> None:
    verdict = verdict_on_failure(failure)

    assert verdict.failure is failure
    assert verdict.retry


@pytest.mark.parametrize("after", [float("nan"), float("inf")])
def test_a_duration_that_is_none_is_refused(after: float) -> None:
    with pytest.raises(OptionsError, match="duration"):
        Result(requeue_after=after)
