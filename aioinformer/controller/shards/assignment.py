"""Assignment of ranges to members.

Members have equal quotas, and keep the ranges that they hold. Rendezvous hashing decides
only about the rest: which ranges move, and where to. Members with equal views decide
equally. Members with different views may differ: the fences make that harmless.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from aioinformer.model.shards import hash_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["assign", "score"]


def assign(holders: Sequence[str], members: Sequence[str]) -> tuple[str, ...]:
    """Return the member that should have each range; empty without any member.

    Args:
        holders: Member that holds each range; empty for none.
        members: Members that may have ranges, in ascending order.
    """
    if not members:
        return ("",) * len(holders)

    held: dict[str, list[int]] = {member: [] for member in members}
    moving = []
    for index, holder in enumerate(holders):
        if holder in held:
            held[holder].append(index)
        else:
            moving.append(index)

    wanted = list(holders)
    room = _quotas(held, len(holders))
    for member, indexes in held.items():
        over = len(indexes) - room[member]
        if over > 0:
            indexes.sort(key=lambda index: score(member, index))
            moving += indexes[:over]

        room[member] = max(-over, 0)

    for index in sorted(moving):
        taker = max(
            (member for member in members if room[member]),
            key=lambda member: score(member, index),
        )
        room[taker] -= 1
        wanted[index] = taker

    return tuple(wanted)


def _quotas(held: dict[str, list[int]], number: int) -> dict[str, int]:
    """Return how many ranges each member should have; the sum is `number`."""
    least, larger = divmod(number, len(held))
    quotas = dict.fromkeys(held, least)
    # Those that hold the most have the larger quotas, so that the fewest ranges move.
    by_size = sorted(held, key=lambda member: (-len(held[member]), -score(member, -1)))
    for member in by_size[:larger]:
        quotas[member] += 1

    return quotas


@lru_cache(maxsize=1 << 16)
def score(member: str, index: int) -> int:
    """Return the score of a member for a range: the highest one has it."""
    # The last step of FNV hardly changes the upper bits, so texts that differ only at the
    # end would have nearly equal scores.
    value = hash_of(f"{index}/{member}")
    value = ((value ^ (value >> 32)) * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    return value ^ (value >> 29)
