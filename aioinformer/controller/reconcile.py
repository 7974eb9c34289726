"""Requests, causes and results of reconciles. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, assert_never

import msgspec

from aioinformer.errors import TerminalError
from aioinformer.informer.notifications import Added, Deleted, Updated
from aioinformer.model.keys import split_key
from aioinformer.model.times import seconds_of

if TYPE_CHECKING:
    from aioinformer.informer.notifications import Notification
    from aioinformer.model.times import Duration

__all__ = [
    "MAX_CAUSES",
    "Cause",
    "Change",
    "Outcome",
    "PendingCauses",
    "ReconcileRequest",
    "Result",
    "ResultLabel",
    "cause_of",
    "outcome_of_answer",
    "outcome_of_failure",
]

MAX_CAUSES = 10
"""Maximum number of distinct causes kept for a request; later ones are dropped."""

TIMER_RESOLUTION_SECONDS = 0.001

Change: TypeAlias = Literal[
    "initial",
    "added",
    "updated",
    "deleted",
    "resync",
    "retry",
    "requeue",
    "timer",
    "source",
    "manual",
]

ResultLabel: TypeAlias = Literal["success", "requeue_after", "error"]
"""Values of the metric label `result`, as in controller-runtime."""


class ReconcileRequest(msgspec.Struct, gc=False, frozen=True):
    """Name of the object to reconcile, without its content.

    An object that changes several times while its request is queued is reconciled once,
    in its newest state. `Context.causes` lists the changes.

    Attributes:
        namespace: Namespace of the object, empty for cluster-scoped ones.
        name: Name of the object.
        cluster: Cluster of the object, for programs that work on several.

    Example:
        >>> ReconcileRequest("shop", "web").key
        'shop/web'
    """

    namespace: str
    name: str
    cluster: str = ""

    @classmethod
    def of(cls, key: str) -> ReconcileRequest:
        """Return the request for an object's key: `"namespace/name"`, or a bare name.

        Raises:
            OptionsError: If `key` is not a key.
        """
        return cls(*split_key(key))

    @property
    def key(self) -> str:
        """Key of the object in caches: `"namespace/name"`, or the bare name."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


# ------------------------------------------------------------ causes


class Cause(msgspec.Struct, gc=False, frozen=True):
    """Reason for a reconcile.

    Attributes:
        change: `"added"`, `"updated"` or `"deleted"`; `"initial"` for objects that
            existed when the controller started; `"resync"`; `"retry"` after a failure;
            `"requeue"` after `Result.requeue_after`; `"timer"` of
            `Controller(every=)`; `"source"` of `Controller(sources=)`; `"manual"` of
            `Controller.requeue()`.
        kind: Kind of the changed object, such as `"Pod"`, or the name of its informer
            if the kind is unknown. Name of the source for an event. Empty for a retry,
            a requeue, a timer, or a call of `Controller.requeue()`.
        key: Key of the changed object: that of the request, or of an object it owns.
    """

    change: Change
    kind: str
    key: str


class PendingCauses:
    """Causes of each request that has not been reconciled yet."""

    def __init__(self) -> None:
        self._causes: dict[ReconcileRequest, list[Cause]] = {}
        # Times at which requests are requeued. A change may come earlier.
        self._due: dict[ReconcileRequest, float] = {}

    def __len__(self) -> int:
        return len(self._causes)

    def add(self, request: ReconcileRequest, cause: Cause) -> None:
        """Add a cause. Duplicates, and causes beyond `MAX_CAUSES`, are dropped."""
        causes = self._causes.setdefault(request, [])
        if len(causes) < MAX_CAUSES and cause not in causes:
            causes.append(cause)

    def add_requeue(self, request: ReconcileRequest, due: float) -> None:
        """Record that the request is requeued at `due`. The earliest time wins."""
        self._due[request] = min(due, self._due.get(request, due))

    def of(self, request: ReconcileRequest, at: float) -> tuple[Cause, ...]:
        """Return the causes that a reconcile would have which starts at a time."""
        causes = tuple(self._causes.get(request, ()))
        if self._due.get(request, math.inf) <= at + TIMER_RESOLUTION_SECONDS:
            causes += (Cause("requeue", "", request.key),)

        return causes

    def drop_delayed(self, request: ReconcileRequest) -> None:
        """Forget the retry and the requeue of a request."""
        self._due.pop(request, None)
        causes = self._causes.get(request, [])
        kept = [it for it in causes if it.change != "retry"]
        if kept:
            self._causes[request] = kept
        else:
            self._causes.pop(request, None)

    def take(self, request: ReconcileRequest, now: float) -> tuple[Cause, ...]:
        """Remove and return the causes of a request whose reconcile starts now."""
        # Timers fire a little early, within the resolution of the clock.
        due = self._due.get(request, math.inf) if self._due else math.inf
        if due <= now + TIMER_RESOLUTION_SECONDS:
            del self._due[request]
            self.add(request, Cause("requeue", "", request.key))

        taken = tuple(self._causes.pop(request, ()))
        if not self._causes:
            # A dict that grew large never shrinks.
            self._causes = {}

        return taken


def cause_of(event: Notification, kind: str) -> Cause:
    """Return the cause for a notification of an object of this kind."""
    match event:
        case Added():
            change: Change = "initial" if event.initial else "added"
            key = event.obj.key
        case Updated():
            change = "resync" if event.resync else "updated"
            key = event.new.key
        case Deleted():
            change, key = "deleted", event.obj.key
        case _:
            assert_never(event)

    return Cause(change, kind, key)


# ------------------------------------------------------------ results


@dataclass(frozen=True, slots=True)
class Result:
    """Optional return value of a reconcile. None means the same as `Result()`.

    Attributes:
        requeue_after: Seconds, or a `timedelta`, after which to reconcile again even if
            nothing changes. 0 or less reconciles again at once, and with backoff if
            it repeats, as `Requeue` of controller-runtime. None waits for a change.

    Raises:
        OptionsError: If the duration is not finite.
    """

    requeue_after: Duration | None = None

    def __post_init__(self) -> None:
        if self.requeue_after is not None:
            seconds_of(self.requeue_after)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a reconcile that has ended.

    Attributes:
        label: Value of the metric label `result`.
        failure: Exception of the reconcile, or None.
        retry: True if the request is retried with backoff.
        after: Seconds until the request is requeued, or None.
        timed_out: True if the reconcile exceeded its timeout.
    """

    label: ResultLabel
    failure: BaseException | None = None
    retry: bool = False
    after: float | None = None
    timed_out: bool = False


_SUCCESS = Outcome("success")


def outcome_of_answer(answer: object) -> Outcome:
    """Return the outcome for a return value. An invalid value is a failure."""
    if answer is None:
        return _SUCCESS

    if not isinstance(answer, Result):
        # Its type only: the value may be a secret, or large.
        text = f"a reconcile must return a Result or None, not {type(answer).__name__}"
        return outcome_of_failure(TypeError(text))

    if answer.requeue_after is None:
        return _SUCCESS

    return Outcome("requeue_after", after=seconds_of(answer.requeue_after))


def outcome_of_failure(failure: BaseException, *, timed_out: bool = False) -> Outcome:
    """Return the outcome for an exception."""
    retry = not _is_terminal(failure)
    return Outcome("error", failure, retry=retry, timed_out=timed_out)


def _is_terminal(failure: BaseException) -> bool:
    """Return True for a `TerminalError`, or a group of only these.

    An `OptionsError` may pass without a change of the object: a failing exec plugin
    raises it, too.
    """
    if isinstance(failure, BaseExceptionGroup):
        return all(map(_is_terminal, failure.exceptions))

    return isinstance(failure, TerminalError)
