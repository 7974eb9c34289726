"""`ReconcileHistory`: the latest reconciles, and controllers as JSON."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from aioinformer.budget import LoopBudget
from aioinformer.client.redaction import redacted
from aioinformer.errors import OptionsError
from aioinformer.web.dashboard.step_counts import STEP_SECONDS, STEPS, StepCounts
from aioinformer.web.responses import HTTPResponse, encode_json_event, refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from aioinformer.controller.controller import Controller
    from aioinformer.controller.reconcile import Cause
    from aioinformer.controller.status import ControllerStatus, EndedReconcile
    from aioinformer.informer.shared_informer import SharedInformer

__all__ = ["ACTIONS", "ReconcileHistory", "act"]

REFRESH_SECONDS = 1.0
"""Interval of the events of a controller's page."""

RECENT = 200
"""Number of reconciles that are kept of each controller."""

RECENT_OF_KEY = 20
"""Number of reconciles that are kept of each object."""

KEYS = 1000
"""Number of objects whose reconciles are kept: those reconciled last."""

WAITING = 200
"""Number of queued requests on a page, and of delayed ones."""

MESSAGE_CHARACTERS = 300
"""Maximum length of the text of an error."""

# Descriptions of changes. All others are described by their name.
_CHANGES = {"initial": "Listed", "manual": "Requeued by hand"}

JSON: TypeAlias = dict[str, Any]


class _Kept(NamedTuple):
    """Reconcile that has ended, with a redacted message."""

    controller: str
    ended: EndedReconcile


class _LatestByKey:
    """Latest reconciles of each key, for a bounded number of keys."""

    def __init__(self) -> None:
        # In the order of their last reconciles.
        self._kept: OrderedDict[tuple[str, str], deque[_Kept]] = OrderedDict()

    def add(self, place: tuple[str, str], kept: _Kept) -> None:
        """Add a reconcile of a key, which is a pair of its scope and the key itself."""
        latest = self._kept.get(place)
        if latest is None:
            latest = self._kept[place] = deque(maxlen=RECENT_OF_KEY)
            if len(self._kept) > KEYS:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(place)

        latest.append(kept)

    def of(self, place: tuple[str, str]) -> Iterable[_Kept]:
        """Return the reconciles of a key."""
        return self._kept.get(place, ())


@dataclass(slots=True)
class _Recent:
    """Latest reconciles of one controller."""

    end: Callable[[], None]
    """Function that ends the observation."""
    kept: deque[_Kept] = field(default_factory=lambda: deque(maxlen=RECENT))
    counts: StepCounts = field(default_factory=StepCounts)

    def durations(self, now: float) -> list[float]:
        """Return the durations of the kept reconciles of the last minutes, sorted."""
        since = now - STEPS * STEP_SECONDS
        return sorted(ended.seconds for _, ended in self.kept if ended.at >= since)


class ReconcileHistory:
    """Latest reconciles of the controllers of a program, in bounded number.

    It keeps 200 reconciles of each controller. For the pages of objects, it keeps 20 of
    each object, of the 1000 objects that were reconciled last, and of the 1000 that
    were last the cause of a reconcile of another one. Percentiles of durations are
    those of the 200 reconciles, as far as they have ended in the last five minutes.

    JSON has times in seconds since 1970, by the clock that the caller reads. Texts of
    errors are redacted, and cut to 300 characters.

    Args:
        reasons: True to show the texts of errors. They may contain anything.
    """

    def __init__(self, *, reasons: bool) -> None:
        self._reasons = reasons
        self._recent: dict[Controller, _Recent] = {}
        # By name of the controller and key of the request.
        self._of_requests = _LatestByKey()
        # By kind and key of the objects that caused reconciles of others.
        self._of_causes = _LatestByKey()

    def __repr__(self) -> str:
        return f"<ReconcileHistory controllers={len(self._recent)}>"

    # ------------------------------------------------------------ recording

    def follow(self, controllers: Iterable[Controller]) -> None:
        """Record the reconciles of exactly these controllers from now on. Idempotent.

        Pass none to end.
        """
        wanted = dict.fromkeys(controllers)
        for controller in [it for it in self._recent if it not in wanted]:
            self._recent.pop(controller).end()

        for controller in wanted:
            if controller not in self._recent:
                observer = partial(self._ended, controller)
                self._recent[controller] = _Recent(controller.observe(observer))

    def _ended(self, controller: Controller, ended: EndedReconcile) -> None:
        kept = _Kept(
            controller.name, replace(ended, message=self._shown(ended.message))
        )
        recent = self._recent[controller]
        recent.kept.append(kept)
        recent.counts.add(ended.at)
        key = ended.request.key
        self._of_requests.add((controller.name, key), kept)

        others = {(it.kind, it.key) for it in ended.causes if _names_object(it)}
        others.discard((_kind_of(controller.informers[0]), key))
        for place in others:
            self._of_causes.add(place, kept)

    def _shown(self, message: str) -> str:
        return _redacted(message) if message and self._reasons else ""

    # ------------------------------------------------------------ JSON

    def overview_row(self, controller: Controller) -> JSON:
        """Return the row in the overview of a controller that is followed."""
        longest = controller.waiting(limit=0).longest
        return self._row(controller, controller.status(), longest)

    def controller_json(self, controller: Controller, now: float) -> JSON:
        """Return the page of a controller.

        Args:
            controller: Controller that is followed.
            now: Time since 1970.
        """
        status, waiting = controller.status(), controller.waiting(limit=WAITING)
        return {
            **self._row(controller, status, waiting.longest),
            "running_list": [
                {
                    "key": it.request.key,
                    "seconds": it.seconds,
                    "attempt": it.attempt,
                    "causes": _texts_of(it.causes),
                    "stale": it.stale,
                }
                for it in status.running
            ],
            "queued_list": [
                {
                    "key": it.request.key,
                    "seconds": it.seconds,
                    "causes": _texts_of(it.causes),
                }
                for it in waiting.queued
            ],
            "queued_more": status.queued - len(waiting.queued),
            "delayed_list": [
                {
                    "key": it.request.key,
                    "in": it.seconds,
                    "causes": _texts_of(it.causes),
                }
                for it in waiting.delayed
            ],
            "delayed_more": status.delayed - len(waiting.delayed),
            "failing_list": [
                {
                    "key": it.request.key,
                    "attempts": it.attempts,
                    "error": it.error,
                    "message": self._shown(it.message),
                    "since": None if it.failing_for is None else now - it.failing_for,
                    "ago": it.seconds_ago,
                    "retry_in": it.retry_in,
                }
                for it in status.failing
            ],
            "failing_more": status.failing_total - len(status.failing),
            "recent": _newest_first(self._recent[controller].kept, now),
        }

    def reconciles_of(
        self, informer: SharedInformer, key: str, now: float
    ) -> list[JSON]:
        """Return the kept reconciles of an object, and those that it caused.

        Args:
            informer: Informer of the object.
            key: Key of the object.
            now: Time since 1970.

        Returns:
            Reconciles, the newest first. Those of other objects have another key.
        """
        kept = list(self._of_causes.of((_kind_of(informer), key)))
        for controller in self._recent:
            if _have_same_objects(controller.informers[0], informer):
                kept += self._of_requests.of((controller.name, key))

        return _newest_first(sorted(kept, key=lambda it: it.ended.at), now)

    def _row(
        self, controller: Controller, status: ControllerStatus, longest: float | None
    ) -> JSON:
        recent, clock = self._recent[controller], asyncio.get_running_loop().time()
        durations = recent.durations(clock)
        return {
            "name": controller.name,
            "synced": status.synced,
            "queued": status.queued,
            "delayed": status.delayed,
            "running": len(status.running),
            "failing": status.failing_total,
            "last_failure": next(
                (f"{it.error} of {it.request.key}" for it in status.failing), ""
            ),
            "unshown": status.unshown,
            "storms": status.storms,
            "oldest": longest,
            "per_second": recent.counts.rate(clock),
            "rates": recent.counts.rates(clock),
            "p50": _percentile(durations, 0.5),
            "p99": _percentile(durations, 0.99),
        }

    # ------------------------------------------------------------ feed

    async def feed(
        self,
        controller: Controller,
        informer: str,
        send: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """Send the page of a controller at once and each second.

        It returns when the controller is no longer followed.

        Args:
            controller: Controller.
            informer: Id of the informer of its objects, for links to their pages.
            send: Function that sends an event, and waits while its reader is slow.

        Cancellation:
            Ends it.
        """
        budget = LoopBudget.current()
        while True:
            # A page takes about as long as a slice, and there may be many readers.
            await budget.start()
            event = self._event(controller, informer)
            budget.end()
            if event is None:
                return

            await send(event)
            await asyncio.sleep(REFRESH_SECONDS)

    def _event(self, controller: Controller, informer: str) -> bytes | None:
        if controller not in self._recent:
            return None

        now = datetime.now(tz=UTC).timestamp()
        page = {**self.controller_json(controller, now), "informer": informer}
        return encode_json_event("controller", page)


# ------------------------------------------------------------ actions

ACTIONS = ("requeue", "forget")
"""Actions on a request of a controller."""


def act(action: str, controller: Controller, key: str) -> HTTPResponse:
    """Requeue or forget a request.

    Args:
        action: One of `ACTIONS`.
        controller: Controller of the request.
        key: Key of the object.

    Returns:
        204; 400 if the key is missing or invalid, 409 if the controller refuses.
    """
    if not key:
        return refusal(400, "the key of the object is missing")

    try:
        if action == "forget":
            controller.forget(key)
        elif not controller.requeue(key):
            return refusal(
                409,
                f"controller {controller.name} does not take {key!r}: it is stopped, "
                "or another replica has the object",
            )
    except OptionsError as exc:
        return refusal(400, str(exc))

    return HTTPResponse(204, b"")


# ------------------------------------------------------------ helpers


def _kind_of(informer: SharedInformer) -> str:
    """Return the kind that causes have for objects of an informer."""
    resource = informer.resource
    return (resource.kind if resource is not None else "") or informer.name


def _have_same_objects(one: SharedInformer, other: SharedInformer) -> bool:
    if one is other:
        return True

    first, second = one.resource, other.resource
    if first is None or second is None:
        return False

    return (first.group, first.plural) == (second.group, second.plural)


def _names_object(cause: Cause) -> bool:
    return bool(cause.kind) and cause.change != "source"


def _texts_of(causes: Iterable[Cause]) -> list[str]:
    return [_text_of(it) for it in causes]


def _text_of(cause: Cause) -> str:
    """Describe a cause, as in `"Updated Secret shop/tls"`."""
    change = _CHANGES.get(cause.change, cause.change.capitalize())
    return f"{change} {cause.kind} {cause.key}" if cause.kind else change


def _newest_first(kept: Sequence[_Kept], now: float) -> list[JSON]:
    """Return reconciles, the oldest first, as JSON in the opposite order."""
    began = now - asyncio.get_running_loop().time()  # time 0 of the loop
    return [
        {
            "controller": name,
            "key": it.request.key,
            "time": began + it.at,
            "seconds": it.seconds,
            "attempt": it.attempt,
            "causes": _texts_of(it.causes),
            "error": it.error,
            "message": it.message,
            "requeue": it.requeue_after,
            "retry_in": it.retry_in,
        }
        for name, it in reversed(kept)
    ]


def _percentile(values: Sequence[float], share: float) -> float | None:
    """Return the value that a share of the sorted values does not exceed."""
    return values[math.ceil(share * len(values)) - 1] if values else None


# A page shows the same texts each second, and redacting one takes up to 0.2 ms.
@lru_cache(maxsize=512)
def _redacted(message: str) -> str:
    """Return the redacted beginning of a text.

    The last word is dropped if it is cut, as a part of a secret does not look like one.
    """
    shown = message[:MESSAGE_CHARACTERS]
    if len(message) > MESSAGE_CHARACTERS:
        shown = shown.rpartition(" ")[0] or shown

    return redacted(shown)
