"""`Standing`: what one replica knows of its Lease, and whether it leads.

The state of an elector; every change of it is one call. Nothing here waits, and times
are handed in, in seconds of one clock that does not go back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioinformer._user_code import user_errors
from aioinformer.controller import lease_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from aioinformer.controller.leader_measures import LeaderMeasures
    from aioinformer.controller.lease_record import LeaseRecord, Sighting, Step
    from aioinformer.controller.lease_timing import LeaseTiming

__all__ = ["LATE", "Standing"]

MOST_UNANSWERED = 2
"""After so many claims in a row without an answer, a replica lets its Lease run out."""

LATE = "it was not renewed in time"
"""Why leadership is lost, unless somebody knows better."""


class Standing:
    """What one replica knows of its Lease, and whether it leads.

    Attributes:
        sighting: The Lease as it was read or written last; None if there is none, or
            nothing was read yet.
        sent: When the last successful write was sent, from the first of a term until
            the leader's work has ended, even if the lease is lost before; else None.
        deadline: Until when this replica leads; None if it does not, or has lost.
        doubtful: A claim was refused, or the server was away. Most likely it was not
            written: it counts as unanswered only if the Lease shows it.
        unanswered: Number of claims in a row that had no answer, or a late one. Some of them
            may have been written.
        why_lost: In words, why it has lost, or would have if it did now.

    Args:
        identity: Under which it leads.
        timing: The durations.
        measures: Told of changes.
        on_new_leader: Told of each new leader.
    """

    def __init__(
        self,
        identity: str,
        timing: LeaseTiming,
        measures: LeaderMeasures,
        on_new_leader: Callable[[str], object] | None = None,
    ) -> None:
        self.sighting: Sighting | None = None
        self.sent: float | None = None
        self.deadline: float | None = None
        self.doubtful = False
        self.unanswered = 0
        self.why_lost = LATE
        self._identity = identity
        self._timing = timing
        self._measures = measures
        self._on_new_leader = on_new_leader
        self._told = ""

    @property
    def leader(self) -> str:
        """Who leads, by what was seen last; empty if nobody does, or nothing was seen."""
        sighting = self.sighting  # once, as threads ask
        return sighting.record.holder if sighting else ""

    @property
    def lease_ends(self) -> float | None:
        """When others may lead, by the last successful write; None without one."""
        sent = self.sent  # once, as threads ask
        return None if sent is None else sent + self._timing.lease

    def leads(self, now: float) -> bool:
        """Whether this replica may act as the leader."""
        deadline = self.deadline  # once, as threads ask
        return deadline is not None and now < deadline

    # ------------------------------------------------------------ what to do

    @property
    def claim_seconds(self) -> float:
        """Timeout of a claim: a leader needs the time for another one."""
        timing = self._timing
        return timing.renew if self.deadline is None else timing.request

    def next_step(self, now: float) -> Step:
        """What to do about the Lease, which was seen just now."""
        leading = self.deadline is not None
        if not leading and self._must_run_out(now):
            return lease_record.Step.WAIT

        return lease_record.next_step(
            self.sighting, self._identity, now, leading=leading
        )

    def _must_run_out(self, now: float) -> bool:
        """Whether the Lease is held by claims of ours whose answers do not arrive.

        Claiming it again would keep it from the others, and this replica might never
        lead.
        """
        sighting = self.sighting
        return (
            self.unanswered >= MOST_UNANSWERED
            and sighting is not None
            and sighting.record.holder == self._identity
            and now < sighting.alive_until + self._timing.courtesy
        )

    def claim(self, wall: datetime) -> LeaseRecord:
        """What to write so that this replica leads, or goes on leading."""
        before = self.sighting.record if self.sighting else None
        return lease_record.claimed(before, self._identity, self._timing.lease, wall)

    # ------------------------------------------------------------ what happens

    def forget(self) -> None:
        """What was seen, and since when, tells nothing by the clock that counts now."""
        self.sighting = None

    def see(self, record: LeaseRecord | None, now: float) -> None:
        """The Lease says this now; None if there is none."""
        before = None if self.sighting is None else self.sighting.record
        ours = record is not None and record.holder == self._identity
        if self.doubtful and ours and record != before:
            self.unanswered += 1
            self.doubtful = False

        self._note(record, now)

    def _note(self, record: LeaseRecord | None, now: float) -> None:
        if record is None:
            self.sighting = None
        else:
            self.sighting = lease_record.seen(self.sighting, record, now)

        if self.leader != self._told:
            self._told = self.leader
            self._tell(self._told)

    def written(self, record: LeaseRecord, sent: float, now: float) -> None:
        """A claim that was sent then has succeeded: this replica leads, or still does.

        Not if the answer comes behind the deadline: nobody was there to keep it.
        """
        in_time = now - sent <= self._timing.request
        self.doubtful = False
        self.unanswered = 0 if in_time else self.unanswered + 1
        deadline = sent + self._timing.renew
        if now < (deadline if self.deadline is None else self.deadline):
            if self.deadline is None:
                self.why_lost = LATE
                self._measures.began()

            self.sent, self.deadline = sent, deadline

        self._note(record, now)

    def lost(self, why: str) -> None:
        """Leadership is over, and the work may not be."""
        self.deadline = None
        self.why_lost = why
        self._measures.lost(why)

    def work_ended(self, now: float) -> bool:
        """The leader's work is over; true if it was in time, so that it may release."""
        in_time = self.leads(now)
        if in_time:
            self._measures.ended()
        elif self.deadline is not None:
            self.lost(LATE)

        self.sent = self.deadline = None
        return in_time

    def _tell(self, leader: str) -> None:
        if self._on_new_leader is None:
            return

        try:
            self._on_new_leader(leader)
        except user_errors() as exc:
            self._measures.callback_failed(leader, exc)
