"""The own Lease of a member: its epoch, and which of its writes the watch has shown."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from aioinformer.controller.shards.lease import (
    Flag,
    Role,
    ShardLease,
    fence_name,
    member_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.controller.shards.timing import ShardTiming

__all__ = ["OwnLease"]

_MAX_SENT: Final = 64
"""Own writes whose sight is still recognised."""


class OwnLease:
    """Writes of one member's own Lease, recognised by their `renewTime`.

    Attributes:
        name: Name of the Lease.
        epoch: Number that grows with each join.
        echo: Time at which the newest write was sent that the watch has shown, or None.
        refused: Version that could not be replaced, and so was deleted, or was replaced by
            who expelled this member; empty for none.

    Args:
        identity: Identity of the member.
        blank: Lease with the fields that all Leases of the group share.
        timing: Durations of the group.
    """

    def __init__(self, identity: str, blank: ShardLease, timing: ShardTiming) -> None:
        self.name: str = member_name(blank.group, identity)
        self.epoch: int = 0
        self.echo: float | None = None
        self.refused: str = ""
        self._identity = identity
        self._blank = blank
        self._timing = timing
        # When writes of this epoch were sent. Writes of earlier ones are only known not to
        # be of another process.
        self._sent: dict[str, float] = {}
        self._earlier: deque[str] = deque(maxlen=_MAX_SENT)

    @property
    def was_sent(self) -> bool:
        """True once the Lease was written in this epoch."""
        return bool(self._sent)

    @property
    def deadline(self) -> float | None:
        """Time until which work may go on, or None without a sight of the Lease."""
        return None if self.echo is None else self.echo + self._timing.renew_deadline

    def base(self, known: ShardLease | None) -> ShardLease | None:
        """Return what the next write replaces, or None to create the Lease.

        If it was deleted, it cannot wait until the watch shows that: the others must see
        that this member may work. If it was not deleted, the creation is refused.
        """
        return None if known is not None and known.version == self.refused else known

    def is_own(self, lease: ShardLease) -> bool:
        """Return True if this process has written this state of the Lease."""
        return lease.renewed in self._sent or lease.renewed in self._earlier

    def is_current(self, lease: ShardLease) -> bool:
        """Return True if this process has written it in this epoch."""
        return lease.renewed in self._sent and lease.holder == self._identity

    def is_mine(self, lease: ShardLease) -> bool:
        """Return True if a Lease names this member in this epoch."""
        return lease.holder == self._identity and lease.epoch == self.epoch

    def see(self, lease: ShardLease) -> bool:
        """Record a sight; return False if it is not of this epoch."""
        if not self.is_current(lease):
            return False

        sent = self._sent[lease.renewed]
        self.echo = sent if self.echo is None else max(self.echo, sent)
        return True

    def end_epoch(self) -> None:
        """Forget the writes of this epoch."""
        self._earlier.extend(self._sent)
        self._sent.clear()
        self.echo = None
        self.refused = ""

    def begin_epoch(self, newest: int) -> None:
        """Begin an epoch after all that are known."""
        self.end_epoch()
        self.epoch = max(self.epoch, newest) + 1

    def renewal(
        self, base: ShardLease | None, flags: Iterable[Flag], stamp: str, now: float
    ) -> ShardLease:
        """Return the Lease to write now."""
        ours = base is not None and self.is_current(base)
        self._sent[stamp] = now
        if len(self._sent) > _MAX_SENT:
            self._earlier.append(oldest := next(iter(self._sent)))
            del self._sent[oldest]

        return replace(
            self._blank,
            name=self.name,
            holder=self._identity,
            epoch=self.epoch,
            flags=frozenset(flags),
            seconds=math.ceil(self._timing.lease_duration),
            acquired=base.acquired if base is not None and ours else stamp,
            renewed=stamp,
        )

    def fence(
        self,
        index: int,
        base: ShardLease | None,
        owner: bool,
        stamp: str,
        flags: frozenset[Flag] = frozenset(),
    ) -> ShardLease:
        """Return the fence of a range to write: as one's own, or as free."""
        moves = 0 if base is None else base.moves
        if owner and (base is None or not self.is_mine(base)):
            moves += 1

        return replace(
            self._blank,
            role=Role.FENCE,
            name=fence_name(self._blank.group, index),
            index=index,
            holder=self._identity if owner else "",
            epoch=self.epoch if owner else 0,
            flags=flags,
            acquired=stamp,
            renewed=stamp,
            seconds=math.ceil(self._timing.lease_duration),
            moves=moves,
        )
