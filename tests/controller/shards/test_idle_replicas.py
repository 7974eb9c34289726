"""Replicas that own ranges and cannot work on them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shards_helpers import Cluster, ShardListener

from aioinformer.controller.shards.idle_ranges import IdleRanges
from aioinformer.controller.shards.timing import ShardTiming

if TYPE_CHECKING:
    from shards_helpers import Work


class Unable(ShardListener):
    """User that cannot list the objects of any range, unless `works`."""

    def __init__(self) -> None:
        super().__init__()
        self.works = False

    def lacking(self) -> dict[int, str]:
        return {} if self.works else dict.fromkeys(range(16), "no list: 403")


def disable(work: Work) -> Unable:
    user = Unable()
    work.shards.join(user)
    return user


async def test_replica_that_can_list_nothing_leaves_its_ranges_to_others(
    cluster: Cluster,
) -> None:
    async with cluster.replicas_named("a", "b") as (a, b):
        await cluster.balanced()
        user = disable(b)
        await asyncio.sleep(60)
        assert (cluster.count(a), cluster.count(b)) == (16, 0)
        assert a.shards.why_not_ready() == ""
        why = b.shards.why_not_ready()
        assert why == "all ranges are left to others: no list: 403"
        moves = cluster.moves
        await asyncio.sleep(600)
        assert cluster.moves - moves <= 3 * 16  # each attempt comes later
        user.works = True
        await cluster.balanced(1000)
        assert b.shards.why_not_ready() == ""


async def test_ranges_stay_if_no_replica_can_list_anything(cluster: Cluster) -> None:
    async with cluster.replicas_named("a", "b", "c") as works:
        await cluster.balanced()
        users = [disable(it) for it in works]
        await asyncio.sleep(60)
        moves = cluster.moves
        await asyncio.sleep(600)
        assert cluster.moves == moves
        assert cluster.is_balanced()
        for user, work in zip(users, works, strict=True):
            assert "owned but idle" in work.shards.why_not_ready()
            user.works = True

        await asyncio.sleep(5)
        assert [it.shards.why_not_ready() for it in works] == ["", "", ""]
        await asyncio.sleep(600)
        assert cluster.is_balanced()


async def test_replica_keeps_its_work_if_it_cannot_list_a_new_range(
    cluster: Cluster,
) -> None:
    class Partly(Unable):
        def lacking(self) -> dict[int, str]:
            return {min(work.shards.held): "429"}

    async with cluster.replicas_named("a", "b") as (_, work):
        await cluster.balanced()
        work.shards.join(Partly())
        moves = cluster.moves
        await asyncio.sleep(120)
        assert cluster.moves == moves
        assert work.shards.why_not_ready().endswith(": 429")


async def test_replica_whose_second_user_ended_leaves_its_ranges_to_others(
    cluster: Cluster,
) -> None:
    async with cluster.replicas_named("a", "b") as (a, b):
        await cluster.balanced()
        user = ShardListener()
        b.shards.join(user)
        await asyncio.sleep(10)
        b.shards.leave(user)
        await asyncio.sleep(600)
        assert (cluster.count(a), cluster.count(b)) == (16, 0)
        assert (
            "a controller or informer that shares them has ended"
            in b.shards.why_not_ready()
        )
        b.shards.join(user)
        await cluster.balanced(1200)
        assert b.shards.why_not_ready() == ""


def test_reason_is_forgotten_when_others_keep_the_ranges() -> None:
    """With fewer ranges than replicas, a replica that declined gets none again."""
    idle, now = IdleRanges(ShardTiming()), 0.0
    while not (seconds := idle.seconds_to_decline(1, now)):
        now += 1
        idle.update({0: "403"}, now)

    idle.update({}, now)
    assert not idle.seconds_to_decline(0, now)
    assert idle.why(now) == "all ranges are left to others: 403"
    now += seconds + ShardTiming().patience
    assert not idle.seconds_to_decline(0, now)
    assert idle.why(now) == ""
