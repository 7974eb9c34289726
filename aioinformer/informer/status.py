"""`InformerStatus`: how an informer is doing, at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioinformer.errors import ApiError, Forbidden, NotFound, Unauthorized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["InformerStatus", "combined", "describe_state"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InformerStatus:
    """How an informer is doing, at one moment. Times are seconds of the loop's clock.

    Whatever it says, what the store has stays readable: an outage or a refusal takes
    nothing out of it. How far it may be behind is `age`.

    Of an informer of several namespaces each value is about all of them, and the worst
    one where there can be only one; `namespaces` has those of each.
    """

    phase: str
    """What it is at:

    - `"idle"`: it has not been run yet;
    - `"listing"`: it asks for everything, at first or again;
    - `"watching"`: it asks for, and gets, the changes;
    - `"backing off"`: an attempt has failed, and the next one may not begin yet;
    - `"absent"`: the server has said for long that it has no such resource, so that the
      store was emptied; it goes on asking;
    - `"stopping"`: nothing new comes, handlers go on with what waits for them;
    - `"stopped"`: it has ended, or will never be run.
    """

    synced: bool
    """The first complete list is in the store and in the handlers' queues. Never becomes
    False again: freshness is `age`."""

    last_contact: float | None
    """When the server last told us something: a part of a list, that a watch is accepted,
    an event or bookmark, the regular end of a watch. A refusal and a failure are none.
    None before the first of it."""

    last_event: float | None
    """When a watch last brought a change of an object; neither bookmarks nor lists nor
    repetitions count. None before the first one."""

    age: float | None
    """How far the store may be behind the server: seconds since a list was complete, an
    event or bookmark came, or a watch ended in time. Unlike other contact, these show
    that everything up to then has come in. So it grows through an outage, through lists
    and watches that break off, and while nothing happens: see `Lister` for what that
    means. None before the first list."""

    resource_version: str
    """The version up to which everything is in the store; empty before the list. Of a
    resource that is absent, the last one there was."""

    restarts: int
    """How often a list or watch ended in an error, and had to be begun again. The
    regular end of a watch is none."""

    duplicates: int
    """Events of a state that was known already, or older than it: told to nobody."""

    history_resets: int
    """How often the server's versions went backwards, so that everything was listed and
    compared anew."""

    degraded: int
    """Objects and events that were left out because they cannot be read, objects that
    are stored as they came because the transform failed for them, and bodies that
    `Lister.json` left out because they are not JSON. The state known
    before of an unreadable object stays in the store. Objects that nest too deeply for
    a decoder are stored, and do not count."""

    not_served: bool
    """To the last attempt the server said that it has no such resource (404)."""

    last_error: BaseException | None
    """What the last list or watch failed with; None again when one succeeds. Of an
    informer that died of a bug: that one."""

    failures: int
    """How many attempts have failed in a row; 0 again when one succeeds."""

    namespaces: Mapping[str, InformerStatus] = field(default_factory=dict)
    """Of an informer that was given its namespaces by name: how each is doing. Failed
    transforms are counted for all of them only. Empty for any other."""

    @property
    def last_error_status(self) -> int:
        """The HTTP status of the last error, such as 403; 0 if it is no refusal."""
        error = self.last_error
        return error.status if isinstance(error, ApiError) else 0

    @property
    def last_error_reason(self) -> str:
        """The server's word for it, such as `"Forbidden"`; empty if there is none."""
        error = self.last_error
        return error.reason if isinstance(error, ApiError) else ""


_WORST_FIRST = ("backing off", "absent", "listing")
"""A namespace at one of these decides what the informer is at."""


def combined(
    namespaces: Mapping[str, InformerStatus], resource_version: str
) -> InformerStatus:
    """How an informer of these namespaces is doing.

    Args:
        namespaces: At least one.
        resource_version: Of the store.
    """
    parts = list(namespaces.values())
    worst = max(parts, key=lambda part: (part.failures, part.last_error is not None))
    phases = [part.phase for part in parts]
    return InformerStatus(
        phase=next((it for it in _WORST_FIRST if it in phases), phases[0]),
        synced=all(part.synced for part in parts),
        last_contact=_of_all(min, [part.last_contact for part in parts]),
        last_event=max(
            (it.last_event for it in parts if it.last_event is not None), default=None
        ),
        age=_of_all(max, [part.age for part in parts]),
        resource_version=resource_version,
        restarts=sum(part.restarts for part in parts),
        duplicates=sum(part.duplicates for part in parts),
        history_resets=sum(part.history_resets for part in parts),
        degraded=sum(part.degraded for part in parts),
        not_served=any(part.not_served for part in parts),
        last_error=worst.last_error,
        failures=worst.failures,
        namespaces=namespaces,
    )


def _of_all(
    choose: Callable[[Iterable[float]], float], values: list[float | None]
) -> float | None:
    """The chosen one of some values; None if one is missing."""
    known = [value for value in values if value is not None]
    return choose(known) if len(known) == len(values) else None


def describe_state(
    phase: str,
    error: Exception | None,
    failures: int,
    *,
    streams_given_up: bool = False,
) -> str:
    """Tell the phase, and what went wrong.

    Args:
        phase: As in `InformerStatus`.
        error: The last failure, or None.
        failures: How many there were in a row.
        streams_given_up: Lists were asked for as streams, which the server does not do.
    """
    parts = [phase]
    if error is None:
        parts.append("not started yet" if phase == "idle" else "no error so far")
    else:
        attempts = "1 attempt" if failures == 1 else f"{failures} attempts"
        parts.append(f"{attempts} failed: {error}{_hint_for(error)}")

    if streams_given_up:
        parts.append("lists are asked for in pages, as the server did not stream them")

    return ", ".join(parts)


def _hint_for(error: Exception) -> str:
    """What to look at, where the server's words do not always say it."""
    match error:
        case Unauthorized():
            return " (the server does not accept the credentials)"
        case Forbidden():
            return " (to list and to watch must both be allowed)"
        case NotFound():
            return " (the server has no such resource)"
        case _:
            return ""
