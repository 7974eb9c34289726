"""State of an elector: durations, the observed Lease, and whether this replica leads.

Every change of the state is one call, and no method waits. Times are arguments, in
seconds of one monotonic clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioinformer._user_code import user_errors
from aioinformer.controller import lease_record
from aioinformer.errors import OptionsError
from aioinformer.model.times import seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from aioinformer.controller.lease_record import LeaseRecord, ObservedRecord, Step
    from aioinformer.controller.metrics import LeaderMetrics
    from aioinformer.model.times import Duration

__all__ = ["JITTER", "NOT_RENEWED", "ElectorState", "LeaseTiming"]

JITTER = 1.2
"""Maximum number of retry periods added to the pause of a candidate."""

MAX_UNANSWERED = 2
"""Claims in a row without an answer, after which a replica lets its lease expire."""

NOT_RENEWED = "the lease was not renewed in time"
"""Default reason for lost leadership."""


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Durations of an election, in seconds.

    Attributes:
        lease: Time that candidates wait after they first saw the last renewal.
        renew: Time that a leader continues after it sent the last renewal.
        retry: Time between two attempts.
    """

    lease: int
    renew: float
    retry: float

    @classmethod
    def of(
        cls, lease_duration: Duration, renew_deadline: Duration, retry_period: Duration
    ) -> LeaseTiming:
        """Check the user's durations. The lease is cut to whole seconds, as in a Lease.

        Raises:
            OptionsError: Unless the durations are positive and fit into each other.
        """
        lease = int(seconds_of(lease_duration))
        renew, retry = seconds_of(renew_deadline), seconds_of(retry_period)
        if retry <= 0:
            raise OptionsError(f"retry_period must be positive, not {retry:g} s")

        if renew <= JITTER * retry:
            raise OptionsError(
                f"renew_deadline ({renew:g} s) must be greater than retry_period "
                f"({retry:g} s) * {JITTER}"
            )

        if lease <= renew:
            raise OptionsError(
                f"lease_duration ({lease} s, in whole seconds) must be greater than "
                f"renew_deadline ({renew:g} s)"
            )

        return cls(lease, renew, retry)

    @property
    def request(self) -> float:
        """Timeout of one request.

        A leader with slower requests cannot renew in time: a renewal needs the response
        to the one before.
        """
        return self.renew / 2

    @property
    def reclaim_delay(self) -> float:
        """Time after expiry before a replica claims its own lease again.

        Other candidates may have seen its last renewal one pause late, and retry after
        another one.
        """
        return 2 * self.pause(1)

    @property
    def release_retry(self) -> float:
        """Pause before a release is retried after a conflict."""
        return self.retry / 10

    def pause(self, draw: float) -> float:
        """Return the pause of a candidate between two attempts.

        Args:
            draw: Random number in [0, 1).
        """
        return self.retry * (1 + JITTER * draw)


class ElectorState:
    """Observed Lease of one replica, and whether it leads.

    Attributes:
        identity: Identity of this replica.
        observed: Lease as it was last read or written. None if it does not exist, or
            was not read yet.
        sent: Time at which the last successful write was sent, or None. It is kept
            until the leader's work has ended, even if leadership is lost before.
        deadline: Time until which this replica leads, or None.
        doubtful: True after a claim that was refused or could not connect. It was
            probably not written, and counts as unanswered only if the Lease shows it.
        unanswered: Number of claims in a row with a late response or none. Some of them
            may have been written.
        claimed: Time at which the last claim was sent; infinity before the first one.
        why_lost: Reason for lost leadership.
        pauses: True after lost leadership, until this replica leads again. It then
            waits before its first attempt, so that others are faster.

    Args:
        identity: Identity of this replica.
        timing: Durations of the election.
        metrics: Metrics of the elector.
        on_new_leader: Callback for each new leader.
        on_started_leading: Callback for the begin of leadership.
        on_stopped_leading: Callback for its end.
        coordinated: True if a coordinator elects.
    """

    def __init__(
        self,
        identity: str,
        timing: LeaseTiming,
        metrics: LeaderMetrics,
        on_new_leader: Callable[[str], object] | None = None,
        on_started_leading: Callable[[], object] | None = None,
        on_stopped_leading: Callable[[], object] | None = None,
        coordinated: bool = False,
    ) -> None:
        self.identity: str = identity
        self.observed: ObservedRecord | None = None
        self.sent: float | None = None
        self.deadline: float | None = None
        self.doubtful: bool = False
        self.unanswered: int = 0
        self.claimed: float = math.inf
        self.why_lost: str = NOT_RENEWED
        self.pauses: bool = False
        self._timing = timing
        self._metrics = metrics
        self._on_new_leader = on_new_leader
        self._on_started_leading = on_started_leading
        self._on_stopped_leading = on_stopped_leading
        self._next_step = (
            lease_record.next_coordinated_step
            if coordinated
            else lease_record.next_step
        )
        self._reported_leader = ""

    # Properties read their attributes once, as other threads may call them.

    @property
    def leader(self) -> str:
        """Identity of the last observed leader, empty for none."""
        observed = self.observed
        return observed.record.holder if observed else ""

    @property
    def lease_ends(self) -> float | None:
        """Time at which other replicas may lead, by the last write; None without one."""
        sent = self.sent
        return None if sent is None else sent + self._timing.lease

    def leads(self, now: float) -> bool:
        """Return True if this replica may act as the leader."""
        deadline = self.deadline
        return deadline is not None and now < deadline

    # ------------------------------------------------------------ decisions

    @property
    def claim_seconds(self) -> float:
        """Timeout of a claim. A leader needs time for a second attempt."""
        timing = self._timing
        return timing.renew if self.deadline is None else timing.request

    def next_step(self, now: float) -> Step:
        """Return what to do about the Lease that was just observed."""
        leading = self.deadline is not None
        if not leading and self._must_let_expire(now):
            return lease_record.Step.WAIT

        return self._next_step(self.observed, self.identity, now, leading=leading)

    def _must_let_expire(self, now: float) -> bool:
        """Return True if unanswered claims of this replica hold the Lease.

        Further claims would block other replicas, and this one might never lead.
        """
        observed = self.observed
        if self.unanswered < MAX_UNANSWERED or observed is None:
            return False

        # The first read after an outage is long after the claim that it shows.
        expires = min(observed.alive_until, self.claimed + self._timing.lease)
        mine = observed.record.holder == self.identity
        return mine and now < expires + self._timing.reclaim_delay

    @property
    def why_yield(self) -> str:
        """Reason for the step `YIELD`."""
        preferred = self.observed.record.preferred if self.observed else ""
        if self.leader == self.identity and preferred:
            return f"the coordinator prefers {preferred}"

        return f"the lease is held by {self.leader or 'no replica'}"

    def claim(self, wall: datetime, now: float) -> LeaseRecord:
        """Return the record that makes this replica the leader, or keeps it leading.

        Send it at once.
        """
        self.claimed = now
        before = self.observed.record if self.observed else None
        return lease_record.claimed(before, self.identity, self._timing.lease, wall)

    # ------------------------------------------------------------ changes

    def forget(self) -> None:
        """Forget the observed Lease, as its time is of another loop's clock."""
        self.observed, self.claimed = None, math.inf

    def observe(self, record: LeaseRecord | None, now: float) -> None:
        """Record the Lease that was read or released; None if there is none."""
        before = None if self.observed is None else self.observed.record
        held = record is not None and record.holder == self.identity
        if self.doubtful and held and record != before:
            self.unanswered += 1
            self.doubtful = False

        self._note(record, now)

    def _note(self, record: LeaseRecord | None, now: float) -> None:
        if record is None:
            self.observed = None
        else:
            self.observed = lease_record.observe(self.observed, record, now)

        if self.leader != self._reported_leader:
            leader = self._reported_leader = self.leader
            call = self._on_new_leader
            if call is not None:
                self._call_back("on_new_leader", leader, lambda: call(leader))

    def written(self, record: LeaseRecord, sent: float, now: float) -> None:
        """Record a successful claim: this replica leads, unless its deadline passed.

        Args:
            record: Record that was written.
            sent: Time at which the claim was sent.
            now: Time of the response.
        """
        in_time = now - sent <= self._timing.request
        self.doubtful = False
        self.unanswered = 0 if in_time else self.unanswered + 1
        deadline = sent + self._timing.renew
        begins = self.deadline is None and now < deadline
        if now < (deadline if self.deadline is None else self.deadline):
            self.sent, self.deadline = sent, deadline

        if begins:
            self.why_lost = NOT_RENEWED
            self.pauses = False
            self._metrics.began()

        self._note(record, now)
        if begins:
            self._call_back("on_started_leading", "", self._on_started_leading)

    def lost(self, why: str) -> None:
        """Record that leadership is lost. The leader's work may still be running.

        Idempotent: the elector's task may be cancelled after the loss.
        """
        if self.deadline is None:
            return

        self.deadline = None
        self.why_lost = why
        self.pauses = True
        self._metrics.lost(why)
        self._call_back("on_stopped_leading", "", self._on_stopped_leading)

    def work_ended(self, now: float) -> bool:
        """Record that the leader's work has ended.

        Returns:
            True if it ended before the deadline, so that the Lease may be released.
        """
        in_time = self.leads(now)
        if not in_time and self.deadline is not None:
            self.lost(NOT_RENEWED)

        self.sent = self.deadline = None
        if in_time:
            self._metrics.ended()
            self._call_back("on_stopped_leading", "", self._on_stopped_leading)

        return in_time

    def _call_back(
        self, name: str, subject: str, call: Callable[[], object] | None
    ) -> None:
        if call is None:
            return

        try:
            call()
        except user_errors() as exc:
            self._metrics.callback_failed(name, subject, exc)
