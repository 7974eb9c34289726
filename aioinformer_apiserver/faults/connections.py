"""Faults of the connection: when, and how far, an answer arrives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioinformer.errors import OptionsError
from aioinformer_apiserver.faults.base import Fault
from aioinformer_apiserver.faults.checks import check_number

if TYPE_CHECKING:
    from aioinformer_apiserver.faults.base import Occasion

__all__ = ["Cut", "Delay", "End", "Slow", "Stall"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Cut(Fault):
    """Breaks the connection in the middle of an answer.

    The client receives exactly the first bytes of the body, and then neither the end of
    the body nor anything else. A watch that sends less lives on; a shorter answer
    arrives whole.
    """

    verb: str = "watch"

    after_bytes: int | None = None
    """How many bytes of the body are delivered; 0 delivers the head alone. It has to be
    given unless the head is not delivered either."""

    head: bool = True
    """False breaks before anything is answered at all, whatever `after_bytes` is."""

    reset: bool = False
    """Break with a TCP reset (a crashed host, a load balancer) instead of a FIN."""

    def __post_init__(self) -> None:
        # Not super(): the class that a slotted dataclass replaces is not its base.
        Fault.__post_init__(self)
        if self.after_bytes is not None:
            check_number(repr(self), "after_bytes", self.after_bytes)
        elif self.head:
            raise OptionsError(f"{self}: give after_bytes, or head=False")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class End(Fault):
    """Ends an answer early, and cleanly: for HTTP it is complete.

    By events a watch ends well, as when a server closes it; by bytes the end may come
    in the middle of a line, or of a list. One of the two has to be given.
    """

    verb: str = "watch"

    after_events: int | None = None
    """How many events (bookmarks do not count) a watch delivers; for watches only."""

    after_bytes: int | None = None
    """How many bytes of the body are delivered."""

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if (self.after_events is None) == (self.after_bytes is None):
            raise OptionsError(f"{self}: give either after_events or after_bytes")

        if self.after_bytes is not None:
            check_number(repr(self), "after_bytes", self.after_bytes)
            return

        check_number(repr(self), "after_events", self.after_events)
        if self.verb not in {"", "watch"}:
            raise OptionsError(
                f"{self} would change nothing: after_events is for watch; give "
                "after_bytes"
            )

    def matches(self, occasion: Occasion) -> bool:
        """Say whether it is meant for such a request."""
        has_events = occasion.verb == "watch"
        return Fault.matches(self, occasion) and (
            self.after_events is None or has_events
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Stall(Fault):
    """Stops in the middle of an answer, with the connection open: the silent death."""

    verb: str = "watch"

    after_bytes: int = 0
    """How many bytes of the body are delivered before; 0 delivers the head alone."""

    head: bool = True
    """False stalls before the head, when what was asked for has been done."""

    seconds: float | None = None
    """For how long, on the loop's clock; then all follows. None: until the end."""

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        check_number(repr(self), "after_bytes", self.after_bytes)
        if self.seconds is not None:
            check_number(repr(self), "seconds", self.seconds, whole=False)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Slow(Fault):
    """Lets the body of an answer trickle."""

    verb: str = "watch"

    bytes_per_second: float
    """On the loop's clock."""

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        rate = self.bytes_per_second
        check_number(repr(self), "bytes_per_second", rate, whole=False)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Delay(Fault):
    """Lets a request wait before the server looks at it: a long way, or a long queue.

    What is answered is the state after the wait. (A `Stall` with `head=False` holds
    back an answer that was made before.)
    """

    seconds: float
    """On the loop's clock."""

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        check_number(repr(self), "seconds", self.seconds, whole=False)
