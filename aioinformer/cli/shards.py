"""`aioinformer shards status`: who owns which range of a shard group.

It takes no part in a group. It reads the Leases until it knows which owners are alive, as
replicas do: by renewals that it sees, never by their timestamps.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from aioinformer import json_codec
from aioinformer.cli import FAILED_CHECK
from aioinformer.cli.columns import line_of_cells, widened
from aioinformer.cli.error_messages import CommandError
from aioinformer.cli.output import one_line, print_error, print_text, write
from aioinformer.controller.shards.lease import GROUP_LABEL, Flag, Role, ShardLease
from aioinformer.controller.shards.timing import ShardTiming
from aioinformer.controller.shards.view import GroupView
from aioinformer.errors import DecodeError
from aioinformer.model.resources import LEASES
from aioinformer.tables.cells import since

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioinformer.cli.connection import ConnectionOptions
    from aioinformer.client import Client

__all__ = ["ShardsOptions", "status"]

_POLL_SECONDS: Final = 1.0

# Longer pauses are announced.
_QUICK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsOptions:
    """Options of the command."""

    group: str = ""
    """Name of the group, or empty for all."""

    namespace: str = ""
    """Namespace of the Leases, or empty for the default of the connection."""

    as_json: bool = False
    """True to print a document, instead of tables."""

    seconds: float = 10.0
    """Timeout of each request."""


async def status(options: ShardsOptions, target: ConnectionOptions) -> int:
    """Print the state of shard groups; return 0, or 1 if a range has no owner.

    Raises:
        CommandError: If there is no group, or the server does not respond.
        AioInformerError: If the configuration is invalid, or the server refuses the
            request.

    Cancellation:
        Safe.
    """
    async with target.client() as client:
        namespace = options.namespace or client.namespace
        groups = await _observed(options, namespace, client)

    if not groups:
        named = f"named {options.group!r} " if options.group else ""
        raise CommandError(
            f"no shard group {named}in namespace {namespace}: its Leases are in the "
            "namespace of its program. Pass that with -n."
        )

    wall = datetime.now(UTC)
    if options.as_json:
        found = [it.document(namespace) for it in groups]
        await write(json_codec.dumps(found, option=json_codec.OPT_INDENT_2) + b"\n")
    else:
        for number, group in enumerate(groups):
            if number:
                print_text("")

            for line in group.lines(wall):
                print_text(one_line(line))

    return FAILED_CHECK if any(it.unowned for it in groups) else 0


async def _observed(
    options: ShardsOptions, namespace: str, client: Client
) -> list[_Group]:
    """Read the Leases until it is known whether each owner is alive."""
    groups: dict[str, _Group] = {}
    loop = asyncio.get_running_loop()
    began, announced = loop.time(), False
    while True:
        leases = await _leases(options, namespace, client)
        for name in sorted({it.group for it in leases}):
            group = groups.setdefault(name, _Group(name))
            group.see([it for it in leases if it.group == name], loop.time())

        waiting = [it for it in groups.values() if it.undecided]
        if not waiting:
            return list(groups.values())

        if not announced and loop.time() - began > _QUICK_SECONDS:
            announced = True
            silent = sorted({owner for it in waiting for owner in it.undecided})
            print_error(f"waiting for renewals of {', '.join(silent)}.")

        await asyncio.sleep(_POLL_SECONDS)


async def _leases(
    options: ShardsOptions, namespace: str, client: Client
) -> list[ShardLease]:
    selector = f"{GROUP_LABEL}={options.group}" if options.group else GROUP_LABEL
    try:
        async with asyncio.timeout(options.seconds):
            found = await client.list(
                LEASES, namespace=namespace, label_selector=selector
            )
    except TimeoutError as exc:
        raise CommandError(
            f"timed out after {options.seconds:g} s. Check the server, firewalls and "
            "proxies."
        ) from exc

    leases = []
    for it in found:
        try:
            leases.append(ShardLease.of(it))
        except DecodeError as exc:
            raise CommandError(f"{exc}.") from exc

    return leases


@dataclass(slots=True)
class _Group:
    """Group as it was seen in several lists."""

    name: str
    leases: dict[str, ShardLease] = field(default_factory=dict)
    view: GroupView | None = None
    now: float = 0.0
    # Names of the Leases of members that have changed while they were observed.
    alive: set[str] = field(default_factory=set)

    def see(self, leases: Iterable[ShardLease], now: float) -> None:
        """Take the Leases of one list."""
        read = list(leases)
        view = self.view = self.view or _view_of(self.name, read)
        # Others are left from a group of this name with another number of ranges.
        found = {it.name: it for it in read if it.ranges == len(view.fences)}
        self.now = now
        for name in self.leases.keys() - found.keys():
            view.forget(name, now)

        for name, lease in found.items():
            before = self.leases.get(name)
            if before is None or before.version != lease.version:
                view.see(lease, now)
                if before is not None:
                    self.alive.add(name)

        self.leases = found

    @property
    def undecided(self) -> set[str]:
        """Identities of owners that may be alive or dead."""
        members = {
            it.holder: it for it in self.leases.values() if it.role is Role.MEMBER
        }
        owners = {it for it in self.owners if it}
        return {
            it for it in owners if it in members and members[it].name not in self.alive
        }

    @property
    def owners(self) -> list[str]:
        """Owner of each range, or empty."""
        assert self.view is not None
        return self.view.owners(self.now)

    @property
    def unowned(self) -> list[int]:
        """Ranges without an owner."""
        return [number for number, owner in enumerate(self.owners) if not owner]

    @property
    def members(self) -> list[tuple[ShardLease, str]]:
        """Leases of the members that have not left, with their states."""
        assert self.view is not None
        found = []
        for seen in self.view.members.values():
            lease = seen.lease
            if not lease.holder:
                continue

            if self.now >= self.view.silent_at(seen):
                found.append((lease, "silent"))
            else:
                flags = lease.flags - {Flag.OWNER}
                found.append((lease, ", ".join(sorted(flags)) or "live"))

        return sorted(found, key=lambda it: it[0].holder)

    def lines(self, wall: datetime) -> Iterator[str]:
        """Yield the lines of its tables."""
        owners, unowned, members = self.owners, self.unowned, self.members
        missing = f"{len(unowned)} UNOWNED" if unowned else "all owned"
        if all(state == "silent" for _, state in members):
            missing += ", no replica is running"

        yield f"{self.name}: {len(owners)} ranges by {self.shard_by}, {missing}"
        counts = Counter(owners)
        rows = [["MEMBER", "RANGES", "STATE", "EPOCH"]]
        rows += [
            [lease.holder, str(counts[lease.holder]), state, str(lease.epoch)]
            for lease, state in members
        ]
        yield ""
        yield from _table(rows)
        rows = [["RANGE", "OWNER", "AGE", "MOVES"]]
        for number, (owner, fence) in enumerate(zip(owners, self.fences, strict=True)):
            age = since(fence.acquired, wall) if fence else "<unknown>"
            moves = str(fence.moves) if fence else "0"
            rows.append([str(number), owner or "<none>", age, moves])

        yield ""
        yield from _table(rows)

    def document(self, namespace: str) -> dict[str, Any]:
        """Return the state for JSON output."""
        owners = self.owners
        return {
            "name": self.name,
            "namespace": namespace,
            "shard_by": self.shard_by,
            "unowned": self.unowned,
            "members": [
                {
                    "identity": lease.holder,
                    "state": state,
                    "epoch": lease.epoch,
                    "ranges": owners.count(lease.holder),
                    "renewed": lease.renewed or None,
                }
                for lease, state in self.members
            ],
            "ranges": [
                {
                    "number": number,
                    "owner": owner or None,
                    "since": (fence.acquired or None) if fence else None,
                    "moves": fence.moves if fence else 0,
                }
                for number, (owner, fence) in enumerate(
                    zip(owners, self.fences, strict=True)
                )
            ],
        }

    @property
    def fences(self) -> list[ShardLease | None]:
        """Fence of each range, or None."""
        assert self.view is not None
        return self.view.fences

    @property
    def shard_by(self) -> str:
        """Field that is hashed."""
        return next(iter(self.leases.values())).field


def _view_of(name: str, leases: list[ShardLease]) -> GroupView:
    """Return an empty view of a group, with the durations that its Leases tell."""
    first = next((it for it in leases if it.role is Role.GROUP), leases[0])
    seconds = [it.seconds for it in leases if it.role is Role.MEMBER and it.holder]
    longest = float(max(seconds, default=1))
    # Only the time without a renewal matters to those who own nothing.
    timing = ShardTiming(
        lease_duration=longest,
        renew_deadline=longest / 2,
        retry_period=longest / 6,
        stop=0.0,
        flight=0.0,
    )
    return GroupView(name, timing, first.ranges)


def _table(rows: list[list[str]]) -> Iterator[str]:
    widths: list[int] = []
    for row in rows:
        widths = widened(widths, row)

    for row in rows:
        yield line_of_cells(row, widths)
