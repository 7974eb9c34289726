"""`Result`: what a reconcile answers, and what becomes of its request then. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from aioinformer.errors import TerminalError
from aioinformer.model.times import seconds_of

if TYPE_CHECKING:
    from aioinformer.model.times import Duration

__all__ = ["Label", "Result", "Verdict", "verdict_on_answer", "verdict_on_failure"]

Label: TypeAlias = Literal["success", "requeue_after", "error"]
"""The label `result` of metrics, as in controller-runtime."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a reconcile answers when it has something to say; else it answers None.

    Attributes:
        requeue_after: Do it again after so many seconds, or a `timedelta`, even if
            nothing changes; at once if that is not above 0. None to wait for a change.

    Raises:
        OptionsError: If the duration is not finite.
    """

    requeue_after: Duration | None = None

    def __post_init__(self) -> None:
        if self.requeue_after is not None:
            seconds_of(self.requeue_after)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a reconcile came to.

    Attributes:
        label: How metrics call it.
        failure: What went wrong; None if nothing did.
        retry: True if it is to be tried again with backoff.
        after: After how many seconds it is to be done again; None for not by itself.
        timed_out: True if it was ended because it took too long.
    """

    label: Label
    failure: BaseException | None = None
    retry: bool = False
    after: float | None = None
    timed_out: bool = False


_DONE = Verdict("success")


def verdict_on_answer(answer: object) -> Verdict:
    """What the answer of a reconcile comes to: nonsense is a failure like another."""
    if answer is None:
        return _DONE

    if not isinstance(answer, Result):
        # Not the answer itself: it may be a secret, or large.
        text = f"a reconcile answers a Result or None, not a {type(answer).__name__}"
        return verdict_on_failure(TypeError(text))

    if answer.requeue_after is None:
        return _DONE

    return Verdict("requeue_after", after=seconds_of(answer.requeue_after))


def verdict_on_failure(failure: BaseException, *, timed_out: bool = False) -> Verdict:
    """What an exception of a reconcile comes to."""
    retry = not _is_terminal(failure)
    return Verdict("error", failure, retry=retry, timed_out=timed_out)


def _is_terminal(failure: BaseException) -> bool:
    """Whether nothing but a change helps; of a TaskGroup, if that is so of each error."""
    if isinstance(failure, BaseExceptionGroup):
        return all(map(_is_terminal, failure.exceptions))

    return isinstance(failure, TerminalError)
