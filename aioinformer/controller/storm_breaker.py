"""`StormBreaker`: decides which keys are reconciled in a storm. Pure.

A storm is one of two loops:

* Own writes: a reconcile writes a field, the change triggers the next reconcile, and
  that one writes the same field again. So nobody else is involved, and each round
  changes what an earlier one has changed. A reconcile that creates another child, or
  changes an object or a field for the first time, makes progress instead. So does one
  that changes it for the first time in 10 s, or since others changed something else:
  they may want a new state of all children, which each takes a reconcile.
* Conflict: a reconcile writes a field that others have changed since its last write,
  again and again. Others who change other fields of the object, however often, are no
  reason: then each write answers a new state.

If others react to each own write, as a controller that reports it in a status does,
their changes could be the reason for the next write. So the next reconcile is delayed
once, until they have arrived. The one after it sees only an own write: in a loop it
writes again, in a rollout it does not.

Both are recognised by states of objects, so a requeue, a retry or an object that
others change often is none. Objects are compared only while a key is inspected: once
its reconciles have written more than once a second for 3 s, or 1000 times in a row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from aioinformer import json_codec
from aioinformer.controller.changed_fields import (
    EXISTENCE,
    MAX_FIELDS,
    changed_fields,
    field_manager,
    shown_field,
    writes_field,
)
from aioinformer.errors import DecodeError
from aioinformer.informer.notifications import Deleted, Updated, object_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioinformer.client.verbs import Request
    from aioinformer.controller.changed_fields import FieldPath
    from aioinformer.controller.pending_writes import OwnWrite
    from aioinformer.controller.reconcile import Cause, ReconcileRequest
    from aioinformer.informer.notifications import Notification
    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.model.objects import KubeObject

__all__ = ["Storm", "StormBreaker", "StormCause"]

SUSPICIOUS_RATE: Final = 1.0
"""Reconciles per second, with writes, that a key may have for any time."""

SUSPICIOUS_SECONDS: Final = 3.0
"""Duration of a higher rate after which a key is inspected."""

SUSPICIOUS_NUMBER: Final = 1000.0
"""Number of reconciles, in excess of that rate, after which a key is inspected at once.
In tests with virtual time, a loop takes no time."""

ROUNDS: Final = 5.0
"""Number of rounds of a loop that make a storm, in excess of one in 2 s."""

ROUNDS_OF_TRIAL: Final = 3.0
"""Number of rounds with which a trial fails."""

ROUND_SECONDS: Final = 2.0

INTERVAL_SECONDS: Final = 1.0
"""Time between two reconciles of a key in a storm."""

SLOW_SECONDS: Final = 30.0
"""Time until the first trial. It doubles with each trial that fails."""

MAX_SLOW_SECONDS: Final = 300.0

TRIAL_SECONDS: Final = 10.0
"""Duration of a trial, in which a key is not slowed down."""

SETTLE_SECONDS: Final = 0.3
"""Delay of a reconcile, until others have reacted to its write."""

SETTLE_INTERVAL_SECONDS: Final = 60.0
"""Time between two of these delays, unless the first one proved a round."""

KNOWN_SECONDS: Final = 10.0
"""Time for which a written field is remembered."""

REASON_SECONDS: Final = 2.0
"""Time between two changes of others that count as a new reason to write. In a loop,
others may react to each write."""

INSPECTED_SECONDS: Final = 2.0
"""Time without evidence after which another key may be inspected instead."""

# Bounds of the memory. Further keys are not inspected, further events not compared.
MAX_KEYS: Final = 1024
MAX_INSPECTED: Final = 64
MAX_EVENTS: Final = 256
MAX_OBJECTS: Final = 512
MAX_VERSIONS: Final = 8
MAX_COMPARED: Final = 16

# Changes of objects, and retries, which have no time of their own if a change arrives.
_CHANGES = frozenset({"added", "updated", "deleted", "retry"})

StormCause: TypeAlias = Literal["own_writes", "conflict"]
"""Values of the metric label `cause`."""

_Target: TypeAlias = "tuple[SharedInformer, str]"


class Storm(NamedTuple):
    """Storm of one key, in words.

    Attributes:
        cause: Kind of the loop.
        target: Kind, subresource and key of the object that is written.
        field: Field that is written again and again, or "" for the object as a whole.
        write: Method of the request.
        manager: Field manager of that write, or "" if unknown.
        other: Field manager of the change between two writes, or "".
    """

    cause: StormCause
    target: str
    field: str
    write: str
    manager: str
    other: str = ""

    def __str__(self) -> str:
        """Return the cause as a sentence."""
        by = f" (field manager {self.manager})" if self.manager else ""
        does, undoes = f"changes {self.field}", "changes it back"
        if not self.field:
            does, undoes = "creates it", "deletes it"
            if self.write == "DELETE":
                does, undoes = undoes, does

        mine = f"{self.write} {self.target}{by} {does}"
        if self.cause == "own_writes":
            return f"{mine}, which triggers the next reconcile, which does so again"

        other = f"field manager {self.other}" if self.other else "another client"
        return f"{mine}, and {other} {undoes} each time"

    @property
    def advice(self) -> str:
        """Return what to do about it."""
        if self.cause == "own_writes":
            return "Write only what differs, or filter own changes by a predicate."

        return "Let one of the two own the field."


class _Seen(NamedTuple):
    """Change that triggered a reconcile."""

    informer: SharedInformer
    kind: str
    event: Notification

    @property
    def target(self) -> _Target:
        return self.informer, object_of(self.event).key

    @property
    def is_deletion(self) -> bool:
        return isinstance(self.event, Deleted)

    @property
    def marks_deletion(self) -> bool:
        event = self.event
        return (
            isinstance(event, Updated)
            and event.old.deletion_timestamp is None
            and event.new.deletion_timestamp is not None
        )


class _Foreign(NamedTuple):
    """Changes of others to an object since the last own write."""

    fields: frozenset[FieldPath]
    obj: KubeObject


class _Written(NamedTuple):
    """Fields that own writes changed, and the time of the last one."""

    fields: frozenset[FieldPath]
    at: float


@dataclass(slots=True)
class _Meter:
    """Rate of the reconciles of a key that write. The level falls by 1 a second."""

    since: float
    at: float
    level: float = 0.0

    def note(self, now: float) -> bool:
        """Count a reconcile. Return True if the rate was too high for too long."""
        if self.is_calm(now):
            self.since, self.level = now, 1.0
        else:
            self.level += 1.0 - (now - self.at) * SUSPICIOUS_RATE

        self.at = now
        if self.level >= SUSPICIOUS_NUMBER:
            return True

        return now - self.since >= SUSPICIOUS_SECONDS and self.level >= 2.0

    def is_calm(self, now: float) -> bool:
        return self.level <= (now - self.at) * SUSPICIOUS_RATE


@dataclass(slots=True)
class _Inspection:
    """Evidence about one key, with bounded memory."""

    since: float
    phase: Literal["inspected", "slow", "trial"] = "inspected"
    began: float = 0.0
    """Time at which the last reconcile began."""
    until: float = 0.0
    """End of the slow phase or of the trial."""
    slow_seconds: float = SLOW_SECONDS
    rounds: float = 0.0
    rounds_at: float = 0.0
    events: list[_Seen] = field(default_factory=list)
    overflow: bool = False
    self_caused: bool = False
    """True if only own writes triggered the last reconcile."""
    settles: bool = False
    """True to delay the reconcile after the running one."""
    settle_after: float = 0.0
    """Time of the next such delay."""
    writes: dict[_Target, dict[str, list[Request]]] = field(default_factory=dict)
    """Own requests by object and version, "" for deletions."""
    known: dict[_Target, _Written] = field(default_factory=dict)
    """Fields of own writes, in the order of their times."""
    reason_after: float = 0.0
    """Time of the next change of others that may be a reason."""
    foreign: dict[_Target, _Foreign] = field(default_factory=dict)

    def add_round(self, now: float) -> float:
        """Count a round of a loop. Return the number of recent ones."""
        left = self.rounds - (now - self.rounds_at) / ROUND_SECONDS
        self.rounds, self.rounds_at = max(0.0, left) + 1.0, now
        return self.rounds

    def add_writes(self, writes: Iterable[OwnWrite]) -> None:
        for informer, key, version, request in writes:
            versions = self.writes.pop((informer, key), {})
            self.writes[informer, key] = versions
            # A write that changes nothing is answered with the version of another one.
            requests = versions.setdefault(version, [])
            if len(requests) < MAX_VERSIONS:
                requests.append(request)

            _shrink(versions, MAX_VERSIONS)
            _shrink(self.writes, MAX_OBJECTS)

    def know(
        self, target: _Target, fields: frozenset[FieldPath], now: float
    ) -> frozenset[FieldPath]:
        """Remember fields of an own write. Return those known before."""
        before = self.known.pop(target, _Written(frozenset(), now)).fields
        self.known[target] = _Written(_bounded(fields | before), now)
        _shrink(self.known, MAX_OBJECTS)
        return before

    def forget_old(self, now: float) -> None:
        """Forget fields that were not written for some time."""
        known = self.known
        while known and next(iter(known.values())).at <= now - KNOWN_SECONDS:
            del known[next(iter(known))]

    def add_reason(
        self, target: _Target, fields: frozenset[FieldPath] | None, now: float
    ) -> None:
        """Note a change of others. If it may be a new reason, forget what is known.

        A reason is outside of the status and of the part that own writes change. What
        is known of the object itself is kept.

        Args:
            target: Object.
            fields: Fields that changed; None if they are unknown.
            now: Time of the loop.
        """
        own = self.known.get(target)
        if fields is not None:
            parts = {path[:1] for path in own.fields} if own is not None else set()
            if all(path[:1] in parts or path[:1] == ("status",) for path in fields):
                return

        if now >= self.reason_after:
            self.reason_after = now + REASON_SECONDS
            self.known = {} if own is None else {target: own}

    def requests_of(self, seen: _Seen) -> list[Request]:
        """Return own requests that may have led to a change."""
        versions = self.writes.get(seen.target, {})
        found = versions.get(object_of(seen.event).resource_version, [])
        if seen.is_deletion:
            return found + versions.get("", [])

        # A deletion may be two changes, of which only the second one is answered.
        all_requests = (it for requests in versions.values() for it in requests)
        deletions = [it for it in all_requests if it.method == "DELETE"]
        return found + deletions if deletions and seen.marks_deletion else found


def _leads_to(request: Request, fields: frozenset[FieldPath]) -> bool:
    """Return False for a patch of other fields: it changed nothing."""
    if request.method != "PATCH" or request.body is None or EXISTENCE in fields:
        return True

    body = json_codec.loads(request.body)
    return any(writes_field(body, path) for path in fields)


class StormBreaker:
    """Storms of the keys of one controller, in bounded memory.

    Feed it with `observe()`, `began()` and `ended()`. A key in a storm is slowed down
    to one reconcile a second for 30 s. Then it is tried for 10 s without that: either
    the storm is over, or the key is slowed down again, for twice the time.
    """

    def __init__(self) -> None:
        self._meters: dict[ReconcileRequest, _Meter] = {}
        self._inspected: dict[ReconcileRequest, _Inspection] = {}
        self._storms = 0

    @property
    def inspects(self) -> bool:
        """True while `observe()` and `began()` are needed."""
        return bool(self._inspected)

    @property
    def storms(self) -> int:
        """Number of keys in a storm."""
        return self._storms

    def observe(
        self,
        requests: Iterable[ReconcileRequest],
        informer: SharedInformer,
        kind: str,
        event: Notification,
    ) -> None:
        """Note a change that triggers a reconcile of each request."""
        for request in requests:
            entry = self._inspected.get(request)
            if entry is None:
                continue

            if len(entry.events) < MAX_EVENTS:
                entry.events.append(_Seen(informer, kind, event))
            else:
                entry.overflow = True

    def began(
        self, request: ReconcileRequest, causes: Iterable[Cause], now: float
    ) -> Storm | None:
        """Begin a reconcile. Return the storm if one is found now."""
        entry = self._inspected.get(request)
        if entry is None:
            return None

        entry.began = now
        storm = _next_round(entry, causes, now)
        if storm is None:
            return None

        entry.settle_after = now
        rounds = entry.add_round(now)
        if entry.phase == "inspected" and rounds >= ROUNDS:
            self._storms += 1
            entry.phase, entry.until = "slow", now + entry.slow_seconds
            return storm

        if entry.phase == "trial" and rounds >= ROUNDS_OF_TRIAL:
            entry.slow_seconds = min(2 * entry.slow_seconds, MAX_SLOW_SECONDS)
            entry.phase, entry.until = "slow", now + entry.slow_seconds

        return None

    def ended(
        self, request: ReconcileRequest, writes: Sequence[OwnWrite], now: float
    ) -> float:
        """End a reconcile. Return the seconds to wait before the next one."""
        entry = self._inspected.get(request)
        if writes:
            meter = self._meter(request, now)
            if meter is not None and meter.note(now) and entry is None:
                self._inspect(request, writes, now)

        if entry is None:
            return 0.0

        entry.add_writes(writes)
        if entry.phase == "slow":
            return max(0.0, entry.began + INTERVAL_SECONDS - now)

        if entry.settles:
            entry.settles = False
            return SETTLE_SECONDS

        meter = self._meters.get(request)
        if entry.phase == "inspected" and (meter is None or meter.is_calm(now)):
            del self._inspected[request]

        return 0.0

    def proceed(self, request: ReconcileRequest, now: float) -> float | None:
        """Begin or end a trial that is due.

        Returns:
            Seconds until the next call, or None if the storm is over.
        """
        entry = self._inspected[request]
        if now < entry.until:
            return entry.until - now

        if entry.phase == "slow":
            entry.phase, entry.until = "trial", now + TRIAL_SECONDS
            entry.rounds = 0.0
            return TRIAL_SECONDS

        self._storms -= 1
        del self._inspected[request]
        self._meters.pop(request, None)
        return None

    def _meter(self, request: ReconcileRequest, now: float) -> _Meter | None:
        meters = self._meters
        meter = meters.get(request)
        if meter is None:
            if len(meters) >= MAX_KEYS:
                meters = {it: old for it, old in meters.items() if not old.is_calm(now)}
                self._meters = meters

            if len(meters) >= MAX_KEYS:
                return None

            meter = meters[request] = _Meter(now, now)

        return meter

    def _inspect(
        self, request: ReconcileRequest, writes: Iterable[OwnWrite], now: float
    ) -> None:
        """Begin to inspect a key, perhaps in place of one without evidence."""
        inspected = self._inspected
        if len(inspected) - self._storms >= MAX_INSPECTED:
            idle = (
                it
                for it, old in inspected.items()
                if old.phase == "inspected"
                and old.rounds < 1.0
                and now - old.since >= INSPECTED_SECONDS
            )
            oldest = next(idle, None)
            if oldest is None:
                return

            # Not suspicious for some time, so that each key has its turn.
            del inspected[oldest]
            self._meters.pop(oldest, None)

        if len(inspected) < MAX_KEYS:
            entry = inspected[request] = _Inspection(now, began=now, rounds_at=now)
            entry.add_writes(writes)


def _next_round(
    entry: _Inspection, causes: Iterable[Cause], now: float
) -> Storm | None:
    """Judge the changes since the last reconcile. Return a storm if they repeat."""
    events, overflow = entry.events, entry.overflow
    was_self_caused = entry.self_caused
    entry.events, entry.overflow = [], False
    changes = _judge(entry, events, now)
    entry.self_caused = (
        changes.own > 0
        and changes.own == len(events)
        and not overflow
        and all(it.change in _CHANGES for it in causes)
    )
    if changes.conflict is not None:
        return changes.conflict

    if changes.progress or overflow or changes.repeated is None:
        return None

    if was_self_caused and not changes.answers:
        return changes.repeated

    if now >= entry.settle_after:
        entry.settles, entry.settle_after = True, now + SETTLE_INTERVAL_SECONDS

    return None


@dataclass(slots=True)
class _Changes:
    """Changes between the beginnings of two reconciles."""

    own: int = 0
    answers: bool = False
    """True if others changed something before the first own write: a reason for it."""
    progress: bool = False
    repeated: Storm | None = None
    conflict: Storm | None = None


def _judge(entry: _Inspection, events: Iterable[_Seen], now: float) -> _Changes:
    entry.forget_old(now)
    found = _Changes()
    compared = 0
    for seen in events:
        requests = entry.requests_of(seen)
        # Objects that this key does not write are not compared, however often others
        # change them.
        compared += seen.target in entry.writes
        if seen.target in entry.writes and compared <= MAX_COMPARED:
            _compare(entry, seen, requests, found, now)
        elif requests:
            found.own += 1
            found.progress |= seen.target not in entry.known
            entry.know(seen.target, frozenset(), now)
        elif seen.target not in entry.writes:
            entry.add_reason(seen.target, None, now)

        found.answers |= not found.own

    _shrink(entry.foreign, MAX_OBJECTS)
    return found


def _compare(
    entry: _Inspection,
    seen: _Seen,
    requests: Iterable[Request],
    found: _Changes,
    now: float,
) -> None:
    """Judge a change by the fields that it changed."""
    target, obj = seen.target, object_of(seen.event)
    fields = _fields_of(seen.event)
    request = next((it for it in requests if _leads_to(it, fields)), None)
    foreign = entry.foreign.pop(target, None)
    if request is None:
        before = frozenset() if foreign is None else foreign.fields
        entry.foreign[target] = _Foreign(_bounded(fields | before), obj)
        entry.add_reason(target, fields, now)
        return

    found.own += 1
    again = fields & entry.know(target, fields, now)
    if again:
        found.repeated = _storm("own_writes", seen, request, again)
    else:
        found.progress = True

    contested = frozenset() if foreign is None else again & foreign.fields
    if foreign is not None and contested:
        found.conflict = _storm("conflict", seen, request, contested, foreign.obj)


def _storm(
    cause: StormCause,
    seen: _Seen,
    request: Request,
    fields: frozenset[FieldPath],
    foreign: KubeObject | None = None,
) -> Storm:
    path = min(fields, key=str)
    obj = object_of(seen.event)
    last = request.path.rpartition("/")[2]
    part = f"/{last}" if request.method != "POST" and last != obj.name else ""
    return Storm(
        cause,
        f"{seen.kind}{part} {obj.key}",
        shown_field(path),
        request.method,
        field_manager(obj, path),
        "" if foreign is None else field_manager(foreign, path),
    )


def _bounded(fields: frozenset[FieldPath]) -> frozenset[FieldPath]:
    if len(fields) <= 2 * MAX_FIELDS:
        return fields

    return frozenset(sorted(fields, key=str)[: 2 * MAX_FIELDS])


def _shrink(items: dict[Any, Any], limit: int) -> None:
    """Remove the oldest items."""
    while len(items) > limit:
        del items[next(iter(items))]


def _fields_of(event: Notification) -> frozenset[FieldPath]:
    if not isinstance(event, Updated):
        return frozenset({EXISTENCE})

    try:
        return changed_fields(event.old, event.new)
    except DecodeError:  # nothing can be told about it
        return frozenset()
