"""Causes: what has happened since an object was worked on last."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from aioinformer.informer.notifications import Added, Deleted, object_of

if TYPE_CHECKING:
    from aioinformer.controller.request import ReconcileRequest
    from aioinformer.informer.notifications import Notification

__all__ = ["MOST_CAUSES", "Cause", "Causes", "Change", "change_of"]

MOST_CAUSES = 10
"""So many different causes of a request are kept, the first ones."""

EARLY_SECONDS = 0.001

Change: TypeAlias = Literal[
    "initial", "added", "updated", "deleted", "resync", "retry", "requeue"
]


class Cause(msgspec.Struct, gc=False, frozen=True):
    """One reason for a reconcile.

    Attributes:
        change: `"added"`, `"updated"` or `"deleted"`; `"initial"` for what was there
            when the controller began, `"resync"` for a reminder; `"retry"` after a
            failure, and `"requeue"` when the time of a `Result.requeue_after` is over.
        kind: What changed, such as `"Pod"`; the name of its informer where that does not
            know the kind; empty for a retry or a requeue.
        key: Which one changed: that of the request, or that of an object it owns.
    """

    change: Change
    kind: str
    key: str


class Causes:
    """The causes of each request that is yet to be worked on."""

    def __init__(self) -> None:
        self._waiting: dict[ReconcileRequest, list[Cause]] = {}
        # When requests are to be done again; a change may come before.
        self._due: dict[ReconcileRequest, float] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def note(self, request: ReconcileRequest, cause: Cause) -> None:
        """One more of them; those that are known, or too many, are dropped."""
        known = self._waiting.setdefault(request, [])
        if len(known) < MOST_CAUSES and cause not in known:
            known.append(cause)

    def note_requeue(self, request: ReconcileRequest, due: float) -> None:
        """It is to be done again then; of several times the first counts."""
        self._due[request] = min(due, self._due.get(request, due))

    def take(self, request: ReconcileRequest, now: float) -> tuple[Cause, ...]:
        """All of them, to be forgotten: it is worked on now."""
        # Timers go off a little early, within the resolution of the clock.
        if self._due and self._due.get(request, math.inf) <= now + EARLY_SECONDS:
            del self._due[request]
            self.note(request, Cause("requeue", "", request.key))

        taken = tuple(self._waiting.pop(request, ()))
        if not self._waiting:
            # A dict that was large once stays so.
            self._waiting = {}

        return taken


def change_of(event: Notification) -> Change:
    """What a notification tells of."""
    match event:
        case Added(initial=initial):
            return "initial" if initial else "added"
        case Deleted():
            return "deleted"
        case _:
            return "resync" if event.resync else "updated"


def cause_of(event: Notification, kind: str) -> Cause:
    """The cause that a notification is."""
    return Cause(change_of(event), kind, object_of(event).key)
