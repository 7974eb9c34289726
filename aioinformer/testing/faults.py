"""Faults: scripted misbehaviour, as data.

    server.faults.add(Gone(after_events=3), Cut(after_bytes=100, verb="list"))

Each request takes the first fault that matches it, and uses it up once. Verbs are those
of Kubernetes permissions: get, list, watch, create, update, patch, delete and
deletecollection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Cut", "Fault", "Faults", "Gone", "Refuse", "Stall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What all faults have in common: which requests they strike."""

    verb: str = ""
    """Which verb; empty for every one."""

    resource: str = ""
    """Which resource, by its plural; empty for every one."""

    times: int | None = 1
    """How many requests it strikes; None for all from now on."""

    skip: int = 0
    """How many matching requests it first lets pass."""

    def __post_init__(self) -> None:
        if self.skip < 0 or (self.times is not None and self.times < 1):
            raise OptionsError(f"a fault that never strikes: {self}")

    def matches(self, verb: str, resource: str) -> bool:
        """Say whether it is meant for such a request."""
        return self.verb in {"", verb} and self.resource in {"", resource}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut(Fault):
    """Breaks the connection in the middle of an answer.

    The client receives exactly the first bytes of the body, and then neither the end of
    the body nor anything else. A watch that sends less lives on; a shorter answer
    arrives whole.
    """

    verb: str = "watch"

    after_bytes: int
    """How many bytes of the body are delivered; 0 delivers the head alone."""

    head: bool = True
    """False breaks before anything is answered at all (`after_bytes` has no effect)."""

    reset: bool = False
    """Break with a TCP reset (a crashed host, a load balancer) instead of a FIN."""

    def __post_init__(self) -> None:
        # Not super(): the class that a slotted dataclass replaces is not its base.
        Fault.__post_init__(self)
        _check_not_negative("after_bytes", self.after_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall(Fault):
    """Stops in the middle of an answer, with the connection open: the silent death."""

    verb: str = "watch"

    after_bytes: int = 0
    """How many bytes of the body are delivered before; 0 delivers the head alone."""

    head: bool = True
    """False stalls before the head."""

    seconds: float | None = None
    """For how long, on the loop's clock; then all follows. None: until the end."""

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        _check_not_negative("after_bytes", self.after_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone(Fault):
    """Says that the version has expired: 410.

    A watch ends with an ERROR event. With `after_events=0`, and for every other verb,
    the whole request is refused with the HTTP status instead.
    """

    verb: str = "watch"

    after_events: int = 0
    """How many events (bookmarks do not count) a watch delivers before."""

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        _check_not_negative("after_events", self.after_events)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse(Fault):
    """Answers with an error, and does nothing that was asked for."""

    status: int
    """The HTTP status code, 400 or above."""

    reason: str = ""
    """For machines; empty for the usual one of the code."""

    message: str = ""
    """For people; empty for the usual one of the code."""

    retry_after: int | None = None
    """Seconds for the `Retry-After` header and the Status's details."""

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if not 400 <= self.status <= 599:
            raise OptionsError(f"a refusal with status {self.status}")


class Faults:
    """The faults that are still to strike, in the order in which they are tried."""

    def __init__(self) -> None:
        self._pending: list[_Pending] = []

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[Fault]:
        return iter([it.fault for it in self._pending])

    def __repr__(self) -> str:
        return f"<Faults {list(self)}>"

    def add(self, *faults: Fault) -> None:
        """Append faults; a request takes the first one that matches."""
        self._pending += [_Pending(fault, fault.skip, fault.times) for fault in faults]

    def clear(self) -> None:
        """Drop all that have not struck yet. Requests already struck stay so."""
        self._pending.clear()

    def take(self, verb: str, resource: str) -> Fault | None:
        """Take the fault for one request, if there is one. The server calls this."""
        for pending in self._pending:
            if not pending.fault.matches(verb, resource):
                continue

            if pending.skip:
                pending.skip -= 1
                continue

            if pending.times is not None:
                pending.times -= 1
                if not pending.times:
                    self._pending.remove(pending)

            return pending.fault

        return None


@dataclass(slots=True, eq=False)
class _Pending:
    fault: Fault
    skip: int
    times: int | None


def _check_not_negative(name: str, value: int) -> None:
    if value < 0:
        raise OptionsError(f"{name} cannot be {value}")
