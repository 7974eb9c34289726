"""Faults of the connection: how far, when and how fast a response arrives.

They are plain data: `aioinformer_apiserver.http.response` carries them out while it
writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from aioinformer.errors import OptionsError
from aioinformer_apiserver.faults.base import Fault, check_number

if TYPE_CHECKING:
    from aioinformer.errors import ApiError
    from aioinformer_apiserver.faults.base import Occasion, Verb

__all__ = ["Cut", "End", "Slow", "Stall"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Cut(Fault):
    """Breaks the connection in the middle of a response.

    The client receives exactly the first bytes of the body, then neither the end of the
    body nor anything else. A watch that sends fewer bytes continues. A shorter response
    arrives completely.

    Args:
        after_bytes: Number of body bytes to deliver; 0 delivers the head alone.
            Required unless `head=False`.
        head: False breaks the connection before the head, regardless of
            `after_bytes`.
        reset: True to break with a TCP reset (a crashed host, a load balancer)
            instead of a FIN.
    """

    verb: Verb | Literal[""] = "watch"
    after_bytes: int | None = None
    head: bool = True
    reset: bool = False

    def __post_init__(self) -> None:
        # Not super(): the class that a slotted dataclass replaces is not its base.
        Fault.__post_init__(self)
        if self.after_bytes is not None:
            check_number(repr(self), "after_bytes", self.after_bytes)
        elif self.head:
            raise OptionsError(f"{self}: pass after_bytes, or head=False")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class End(Fault):
    """Ends a response early and cleanly: for HTTP it is complete.

    By events, a watch ends as if the server had closed it. By bytes, the end may be in
    the middle of a line or a list. Exactly one of the two is required.

    Args:
        after_events: Number of events that a watch delivers; bookmarks do not
            count. For watches only.
        after_bytes: Number of body bytes to deliver.
    """

    verb: Verb | Literal[""] = "watch"
    after_events: int | None = None
    after_bytes: int | None = None

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if (self.after_events is None) == (self.after_bytes is None):
            raise OptionsError(f"{self}: pass either after_events or after_bytes")

        if self.after_bytes is not None:
            check_number(repr(self), "after_bytes", self.after_bytes)
            return

        check_number(repr(self), "after_events", self.after_events)
        if self.verb not in {"", "watch"}:
            raise OptionsError(
                f"{self} would have no effect: after_events applies to watch only. "
                "Pass after_bytes"
            )

    def matches(self, occasion: Occasion) -> bool:
        """Return whether this fault selects a request."""
        has_events = occasion.verb == "watch"
        return Fault.matches(self, occasion) and (
            self.after_events is None or has_events
        )

    @property
    def alters_content(self) -> bool:
        """True if it counts events."""
        return self.after_events is not None

    def watch_end(self, events: int) -> ApiError | bool:
        """End the watch after `after_events` events."""
        return events == self.after_events


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Stall(Fault):
    """Stops in the middle of a response and keeps the connection open.

    Args:
        after_bytes: Number of body bytes to deliver first; 0 delivers the head
            alone.
        head: False stalls before the head, after the request has been handled.
        seconds: Duration on the loop's clock, after which the rest follows; None
            for no end.
    """

    verb: Verb | Literal[""] = "watch"
    after_bytes: int = 0
    head: bool = True
    seconds: float | None = None

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        check_number(repr(self), "after_bytes", self.after_bytes)
        if self.seconds is not None:
            check_number(repr(self), "seconds", self.seconds, whole=False)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Slow(Fault):
    """Sends the body of a response slowly.

    Args:
        bytes_per_second: Rate on the loop's clock.
    """

    verb: Verb | Literal[""] = "watch"
    bytes_per_second: float

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        rate = self.bytes_per_second
        check_number(repr(self), "bytes_per_second", rate, whole=False)
