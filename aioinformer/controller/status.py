"""Status of a controller for people: at one moment, and each reconcile that ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from aioinformer._user_code import text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.controller.reconcile import Cause, ReconcileRequest

__all__ = [
    "ControllerStatus",
    "DelayedRequest",
    "EndedReconcile",
    "FailingRequest",
    "Failures",
    "QueuedRequest",
    "RunningReconcile",
    "WaitingRequests",
    "error_texts",
]

MOST_FAILURES = 100
"""Number of failing requests that a controller remembers: the latest ones."""

MOST_CHARACTERS = 1000
"""Maximum length of the text of an error that is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningReconcile:
    """Reconcile that is running.

    Attributes:
        request: Request of the reconcile.
        seconds: Time since its start.
        attempt: Number of the attempt since the last success, from 1.
        causes: Reasons for the reconcile.
        stale: True if it began before the informers showed earlier writes.
    """

    request: ReconcileRequest
    seconds: float
    attempt: int
    causes: tuple[Cause, ...]
    stale: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingRequest:
    """Request whose last reconcile failed.

    Attributes:
        request: Request of the reconcile.
        attempts: Number of failures in a row.
        error: Class of the last error, such as `"Conflict"`.
        message: Text of that error, cut to 1000 characters. It may contain anything.
        seconds_ago: Time since the failure.
        failing_for: Time since the first failure in a row. None if that is unknown, as
            further requests were failing than a controller remembers.
        retry_in: Seconds until the next attempt. None if there is no timer: the request
            is queued or running, or waits for a change of its object.
    """

    request: ReconcileRequest
    attempts: int
    error: str
    message: str
    seconds_ago: float
    failing_for: float | None
    retry_in: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedReconcile:
    """Reconcile that has ended, with what follows.

    Attributes:
        request: Request of the reconcile.
        at: End of the reconcile, as time of the event loop.
        seconds: Duration of the reconcile.
        attempt: Number of the attempt since the last success, from 1.
        causes: Reasons for the reconcile.
        error: Class of its exception, such as `"Conflict"`; empty after a success.
        message: Text of that exception, cut to 1000 characters. It may contain
            anything.
        retry_in: Seconds until the request is retried; None without a retry.
        requeue_after: Seconds of `Result.requeue_after`, or None.
    """

    request: ReconcileRequest
    at: float
    seconds: float
    attempt: int
    causes: tuple[Cause, ...]
    error: str
    message: str
    retry_in: float | None
    requeue_after: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedRequest:
    """Request that waits for a worker.

    Attributes:
        request: Request.
        seconds: Time since it was queued, or moved for a higher priority. None if the
            queue has no ageing.
        causes: Reasons for its next reconcile.
    """

    request: ReconcileRequest
    seconds: float | None
    causes: tuple[Cause, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedRequest:
    """Request that is retried or requeued later.

    Attributes:
        request: Request.
        seconds: Time until it is queued.
        causes: Reasons for its next reconcile, so far.
    """

    request: ReconcileRequest
    seconds: float
    causes: tuple[Cause, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRequests:
    """First requests of a controller that wait. `ControllerStatus` has their numbers.

    Attributes:
        longest: Time that a queued request waits at most. None if none is queued, or if
            the queue has no ageing.
        queued: Queued requests, in the order in which they are reconciled.
        delayed: Delayed requests, the soonest first.
    """

    longest: float | None
    queued: tuple[QueuedRequest, ...]
    delayed: tuple[DelayedRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerStatus:
    """State of a controller at one moment.

    Attributes:
        name: Name of the controller.
        synced: True once the handlers have processed the initial objects.
        queued: Number of requests that wait for a worker.
        delayed: Number of requests that are retried or requeued later.
        unshown: Number of requests whose writes the informers do not show yet.
        storms: Number of keys that are slowed down, as their reconciles trigger each
            other.
        running: Running reconciles, the oldest first.
        failing_total: Number of requests whose last reconcile failed.
        failing: The latest of them, at most 100, the newest first.
    """

    name: str
    synced: bool
    queued: int
    delayed: int
    unshown: int
    storms: int
    running: tuple[RunningReconcile, ...]
    failing_total: int
    failing: tuple[FailingRequest, ...]


def error_texts(failure: BaseException) -> tuple[str, str]:
    """Return the class of an exception, and its text in bounded length."""
    return type(failure).__name__, text_of(failure)[:MOST_CHARACTERS]


class _Failure(NamedTuple):
    """Last failure of a request. It keeps no exception, whose frames have objects."""

    attempts: int
    error: str
    message: str
    at: float
    since: float | None
    """Time of the first failure in a row, or None if it was forgotten."""


class Failures:
    """Last failures of the requests of one controller: of most only the request."""

    def __init__(self) -> None:
        # In the order of the failures.
        self._failures: dict[ReconcileRequest, _Failure] = {}
        # Further requests, whose failures were forgotten.
        self._others: set[ReconcileRequest] = set()

    def __len__(self) -> int:
        return len(self._failures) + len(self._others)

    def failed(
        self, request: ReconcileRequest, failure: BaseException, attempt: int, at: float
    ) -> None:
        """Record a failed attempt at a time of the loop."""
        before = self._failures.get(request)
        if before is not None:
            since = before.since
        else:
            since = None if request in self._others else at

        self.succeeded(request)
        if len(self._failures) >= MOST_FAILURES:
            oldest = next(iter(self._failures))
            del self._failures[oldest]
            self._others.add(oldest)

        error, message = error_texts(failure)
        self._failures[request] = _Failure(attempt, error, message, at, since)

    def repeats(self, request: ReconcileRequest, failure: BaseException) -> bool:
        """Return True if the last attempt has failed with an error of this class."""
        before = self._failures.get(request)
        return before is not None and before.error == type(failure).__name__

    def succeeded(self, request: ReconcileRequest) -> None:
        """Forget the failure of a request."""
        if self._failures or self._others:
            self._failures.pop(request, None)
            self._others.discard(request)

    def newest_first(
        self, now: float, retry_in: Callable[[ReconcileRequest], float | None]
    ) -> tuple[FailingRequest, ...]:
        """Return all failing requests.

        Args:
            now: Time of the loop.
            retry_in: Function that returns the seconds until the next attempt.
        """
        return tuple(
            FailingRequest(
                request=request,
                attempts=it.attempts,
                error=it.error,
                message=it.message,
                seconds_ago=now - it.at,
                failing_for=None if it.since is None else now - it.since,
                retry_in=retry_in(request),
            )
            for request, it in reversed(self._failures.items())
        )
