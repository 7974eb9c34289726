"""Durations of a shard group, and the rule that keeps two owners apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from aioinformer.errors import OptionsError

__all__ = ["ShardTiming"]

SETTLE: Final = 3.0
"""Seconds for which a new owner must be visible before a range is drained for it."""


@dataclass(frozen=True, slots=True)
class ShardTiming:
    """Durations of a shard group in seconds.

    Members may differ in them, as during a rolling upgrade: each waits for another one by
    the longer `lease_duration` of both.

    An owner ends its work within `(renew_deadline + stop) / (1 - clock_error)` real
    seconds after it sent a renewal, and its last request arrives within `flight`. The
    others wait at least `lease_duration / (1 + clock_error)` after the server applied
    that renewal. So two members never work on one range if the first time is not longer
    than the second.

    Attributes:
        lease_duration: Time without a renewal after which others take a member's ranges.
        renew_deadline: Time after its last renewal at which a member ends all work.
        retry_period: Time between two renewals, and limit of one request.
        drain: Time for the work of a range that moves; what is left is cancelled.
        stop: Time within which cancelled work ends.
        flight: Time within which a request that was sent arrives or fails.
        clock_error: Largest difference of a clock's rate from 1.

    Raises:
        OptionsError: If a duration is not positive, or the rule above does not hold.
    """

    lease_duration: float = 20.0
    renew_deadline: float = 11.0
    retry_period: float = 3.0
    drain: float = 7.0
    stop: float = 1.0
    flight: float = 1.0
    clock_error: float = 0.2

    def __post_init__(self) -> None:
        for name in ("lease_duration", "renew_deadline", "retry_period"):
            if getattr(self, name) <= 0:
                raise OptionsError(
                    f"{name} must be positive, not {getattr(self, name):g} s"
                )

        for name in ("drain", "stop", "flight"):
            if getattr(self, name) < 0:
                option = {"drain": "drain_timeout"}.get(name, name)
                raise OptionsError(
                    f"{option} cannot be negative: {getattr(self, name):g} s"
                )

        if not 0 <= self.clock_error < 1:
            raise OptionsError(
                f"clock_error must be at least 0 and below 1, not {self.clock_error:g}"
            )

        if self.renew_deadline < 2 * self.retry_period:
            raise OptionsError(
                f"renew_deadline ({self.renew_deadline:g} s) must be at least twice "
                f"retry_period ({self.retry_period:g} s), so that one renewal may fail"
            )

        if self.longest_work > self.shortest_wait:
            raise OptionsError(
                f"two members could own one range: (renew_deadline + stop) / "
                f"(1 - clock_error) + flight = ({self.renew_deadline:g} + {self.stop:g}) "
                f"/ {1 - self.clock_error:g} + {self.flight:g} = "
                f"{self.longest_work:.2f} s is longer than lease_duration / "
                f"(1 + clock_error) = {self.lease_duration:g} / "
                f"{1 + self.clock_error:g} = {self.shortest_wait:.2f} s. Use a "
                f"lease_duration of at least "
                f"{math.ceil(self.longest_work * (1 + self.clock_error)):d} s, or a "
                f"shorter renew_deadline"
            )

    @property
    def longest_work(self) -> float:
        """Longest real time from the last renewal to the end of all work."""
        return (self.renew_deadline + self.stop) / (1 - self.clock_error) + self.flight

    @property
    def shortest_wait(self) -> float:
        """Shortest real time from the last renewal to the next owner."""
        return self.lease_duration / (1 + self.clock_error)

    @property
    def patience(self) -> float:
        """Longest time for which a dead owner keeps a range."""
        return self.lease_duration / (1 - self.clock_error) + self.joining

    @property
    def longest_flight(self) -> float:
        """Time after which nothing that was sent can arrive, by a clock that is fast."""
        return self.flight * (1 + self.clock_error)

    @property
    def retry_failed(self) -> float:
        """Pause after a write that failed, without jitter."""
        return self.retry_period / 3

    @property
    def unseen(self) -> float:
        """Time after which members whose Leases were deleted have created them again.

        Even if one renewal is lost: the next one is an update, which is refused, and the
        creation follows. Members may have slow clocks.
        """
        attempts = 2 * self.retry_period / (1 - self.clock_error)
        return (attempts + 3 * self.flight) * (1 + self.clock_error)

    @property
    def joining(self) -> float:
        """Time for which others keep ranges free for a member that joins."""
        return 2 * self.retry_period

    @property
    def unable(self) -> float:
        """Time after which a member that cannot take its ranges gives up its claim."""
        return 3 * self.retry_period + 1

    @property
    def ineligible(self) -> float:
        """Time for which a member that could not take any range asks for none."""
        return 20 * self.retry_period
