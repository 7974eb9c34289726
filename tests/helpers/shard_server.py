"""API server of a simulated shard group: Leases, compare-and-swap, one ordered log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aioinformer.controller.shards.lease import Role, ShardLease
from aioinformer.controller.shards.member import Outcome

if TYPE_CHECKING:
    from aioinformer.controller.shards.member import Write


@dataclass(frozen=True, slots=True)
class Change:
    """Change of a Lease in the log; `lease` is None if it was deleted."""

    name: str
    lease: ShardLease | None


class LeaseServer:
    """Leases of one group.

    Attributes:
        leases: Leases by name.
        log: All changes, in order.
        requests: Number of requests.
        refused: Names of Leases whose writes fail.
        checks_versions: False for a server that writes fences whatever their version.
    """

    def __init__(self) -> None:
        self.leases: dict[str, ShardLease] = {}
        self.log: list[Change] = []
        self.requests = 0
        self.refused: set[str] = set()
        self.checks_versions = True
        self._version = 0

    def write(self, write: Write) -> tuple[Outcome, str, str]:
        """Apply a write, and return its outcome, version and uid."""
        lease = write.lease
        if lease.name in self.refused:
            return Outcome.NO_ANSWER, "", ""

        there = self.leases.get(lease.name)
        if write.verb == "delete":
            if there is not None and there.uid != lease.uid:
                return Outcome.CONFLICT, "", ""

            self.delete(lease.name)
            return Outcome.OK, "", ""

        if self.checks_versions or lease.role is not Role.FENCE:
            version = "" if there is None else there.version
            uid = "" if there is None else there.uid
            if (lease.version, lease.uid) != (version, uid):
                return Outcome.CONFLICT, "", ""

        self._version += 1
        version = str(self._version)
        uid = f"uid-{version}" if there is None else there.uid
        lease = replace(lease, version=version, uid=uid)
        self.leases[lease.name] = lease
        self.log.append(Change(lease.name, lease))
        return Outcome.OK, version, uid

    def delete(self, name: str) -> None:
        """Delete a Lease, if it is there."""
        if self.leases.pop(name, None) is not None:
            self._version += 1
            self.log.append(Change(name, None))
