"""`ControllerStatus`: what a controller does at one moment, for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from aioinformer._user_code import text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.controller.reconcile import Cause, ReconcileRequest

__all__ = [
    "ControllerStatus",
    "FailingRequest",
    "Failures",
    "RunningReconcile",
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
        retry_in: Seconds until the next attempt. None if there is no timer: the request
            is queued or running, or waits for a change of its object.
    """

    request: ReconcileRequest
    attempts: int
    error: str
    message: str
    seconds_ago: float
    retry_in: float | None


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


class _Failure(NamedTuple):
    """Last failure of a request. It keeps no exception, whose frames have objects."""

    attempts: int
    error: str
    message: str
    at: float


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
        message = text_of(failure)[:MOST_CHARACTERS]
        self.succeeded(request)
        if len(self._failures) >= MOST_FAILURES:
            oldest = next(iter(self._failures))
            del self._failures[oldest]
            self._others.add(oldest)

        name = type(failure).__name__
        self._failures[request] = _Failure(attempt, name, message, at)

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
                retry_in=retry_in(request),
            )
            for request, it in reversed(self._failures.items())
        )
