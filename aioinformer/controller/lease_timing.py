"""`LeaseTiming`: the durations of an election, and what follows from them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioinformer.errors import OptionsError
from aioinformer.model.times import seconds_of

if TYPE_CHECKING:
    from aioinformer.model.times import Duration

__all__ = ["JITTER", "LeaseTiming"]

JITTER = 1.2
"""How many retry periods are added at most to the wait of one who does not lead."""


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """When to try, when to stop, and how long the others wait; all in seconds.

    Attributes:
        lease: How long the others wait for a leader, since they first saw its last
            renewal.
        renew: How long a leader goes on, since it has sent that.
        retry: The time between two attempts.
    """

    lease: int
    renew: float
    retry: float

    @classmethod
    def of(
        cls, lease_duration: Duration, renew_deadline: Duration, retry_period: Duration
    ) -> LeaseTiming:
        """Check what the user gave; the lease counts in whole seconds, as the Lease does.

        Raises:
            OptionsError: Unless each is longer than what has to fit into it, and all
                are positive.
        """
        lease = int(seconds_of(lease_duration))
        renew, retry = seconds_of(renew_deadline), seconds_of(retry_period)
        if retry <= 0:
            raise OptionsError(f"retry_period must be positive, not {retry:g} s")

        if renew <= JITTER * retry:
            raise OptionsError(
                f"renew_deadline ({renew:g} s) must be more than {JITTER} times the "
                f"retry_period ({retry:g} s)"
            )

        if lease <= renew:
            raise OptionsError(
                f"lease_duration ({lease} s, in whole seconds) must be more than the "
                f"renew_deadline ({renew:g} s): a leader stops before others may begin"
            )

        return cls(lease, renew, retry)

    @property
    def request(self) -> float:
        """Timeout of one request.

        A leader whose requests take longer cannot renew in time: each renewal needs the
        answer to the one before.
        """
        return self.renew / 2

    @property
    def courtesy(self) -> float:
        """Seconds for which a replica leaves its own expired lease to the others.

        They may have seen its last renewal a pause later, and look again after a pause.
        """
        return 2 * self.pause(1)

    @property
    def again(self) -> float:
        """How long a release that met a conflict waits before it is tried again."""
        return self.retry / 10

    def pause(self, draw: float) -> float:
        """How long one who does not lead waits between two attempts.

        Args:
            draw: Random, from [0, 1).
        """
        return self.retry * (1 + JITTER * draw)
