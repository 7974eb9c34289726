"""`Shards` on a server: replicas join, leave and fail, and each range has one owner.

Each start of work checks that no other replica works on the range: see `Cluster`.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from shards_helpers import Cluster, now

from aioinformer.errors import OptionsError
from aioinformer.model.resources import LEASES
from aioinformer.testing.faults import Delay, Refuse

if TYPE_CHECKING:
    from aioinformer.testing import APIServer

# ---------------------------------------------------------------- in order


async def test_first_replica_owns_all_ranges_soon(cluster: Cluster) -> None:
    async with cluster.replica("a") as a:
        assert await cluster.settled() < 15
        assert a.shards.held == frozenset(range(16))
        assert a.told == a.shards.held


async def test_replicas_share_ranges_evenly(cluster: Cluster) -> None:
    async with cluster.replicas_named("a", "b", "c") as works:
        await cluster.balanced()
        assert sorted(map(cluster.count, works)) == [5, 5, 6]


async def test_joining_replica_takes_drained_ranges_only(cluster: Cluster) -> None:
    async with cluster.replica("a", takes=2.0) as a:
        await cluster.settled()
        before, cluster.longest = cluster.moves, 0.0
        async with cluster.replica("b"):
            await cluster.balanced()
            assert cluster.moves - before == 8
            assert cluster.longest < 5
            assert [it for _, it, _ in a.calls if it == "cancel"] == []


async def test_leaving_replica_gives_its_ranges_away_at_once(cluster: Cluster) -> None:
    async with cluster.replica("a"):
        async with cluster.replica("b", takes=1.0):
            await cluster.balanced()

        assert await cluster.settled() < 2


async def test_work_that_outlives_the_drain_is_cancelled(cluster: Cluster) -> None:
    async with cluster.replica("a", takes=100.0, stops=0.5) as a:
        await cluster.settled()
        cluster.longest = 0.0
        async with cluster.replica("b"):
            await cluster.balanced()
            calls = {what: at for at, what, _ in a.calls}
            assert calls["cancel"] - calls["drain"] == pytest.approx(7, abs=0.2)
            assert cluster.longest < 4


async def test_rolling_upgrade_leaves_no_range_unowned_for_15_s(
    cluster: Cluster,
) -> None:
    async with AsyncExitStack() as last:
        old = [AsyncExitStack() for _ in range(4)]
        for number, stack in enumerate(old):
            await stack.enter_async_context(cluster.replica(f"old-{number}", takes=1.0))

        await cluster.balanced()
        cluster.longest = 0.0
        for number, stack in enumerate(old):
            await last.enter_async_context(cluster.replica(f"new-{number}", takes=1.0))
            await asyncio.sleep(8)
            await stack.aclose()

        await cluster.balanced()
        assert cluster.longest < 15


async def test_replica_without_users_takes_no_part(cluster: Cluster) -> None:
    async with cluster.shards("a") as shards:
        await asyncio.sleep(30)
        assert shards.status().state == "idle"
        assert cluster.leases() == []
        assert shards.why_not_ready() == ""


# ---------------------------------------------------------------- failures


async def test_ranges_of_a_killed_replica_are_owned_again_in_24_s(
    cluster: Cluster,
) -> None:
    async with cluster.replicas_named("a", "b", "c") as (_, _, c):
        await cluster.balanced()
        cluster.kill(c)
        assert await cluster.settled() < 24


@pytest.mark.parametrize("silent", [False, True])
async def test_partitioned_replica_stops_before_others_start(
    cluster: Cluster, *, silent: bool
) -> None:
    async with cluster.replicas_named("a", "b", "c", stops=0.9) as (_, _, c):
        await cluster.balanced()
        cluster.longest = 0.0
        if silent:
            c.link.silence()
        else:
            c.link.break_off()

        await asyncio.sleep(60)
        assert cluster.count(c) == 0
        assert c.shards.held == frozenset()
        assert cluster.unowned_since == {}
        assert cluster.longest < 15
        c.link.mend()
        await cluster.balanced(30)


async def test_stalled_watch_is_replaced_and_the_member_returns(
    cluster: Cluster,
) -> None:
    async with cluster.replicas_named("a", "b", "c") as (_, _, c):
        await cluster.balanced()
        cluster.longest = 0.0
        c.link.swallow_watches()
        await asyncio.sleep(30)
        await cluster.balanced(30)
        assert cluster.longest < 15


async def test_ranges_are_owned_15_s_after_an_outage(
    server: APIServer, cluster: Cluster
) -> None:
    async with cluster.replicas_named("a", "b", "c") as works:
        await cluster.balanced()
        await server.stop()
        await asyncio.sleep(120)
        assert cluster.working == {}
        assert [it.shards.why_not_ready() for it in works] == ["", "", ""]
        await server.start()
        assert await cluster.settled() < 15


async def test_ranges_are_owned_15_s_after_internal_errors(
    server: APIServer, cluster: Cluster
) -> None:
    async with cluster.replicas_named("a", "b", "c"):
        await cluster.balanced()
        server.faults.add(Refuse(status=503, times=None))
        for it in cluster.replicas.values():
            it.link.cut("fin")

        await asyncio.sleep(20)
        before = len(server.requests)
        await asyncio.sleep(100)
        assert cluster.working == {}
        # As many as 20 replicas that send 8 a second.
        assert (len(server.requests) - before) / 100 < 3 * 8 / 20
        server.faults.clear()
        assert await cluster.settled() < 15


async def test_restart_of_the_server_moves_nothing(
    server: APIServer, cluster: Cluster
) -> None:
    async with cluster.replicas_named("a", "b"):
        await cluster.balanced()
        before = cluster.moves
        for _ in range(3):
            await server.restart()
            await asyncio.sleep(10)

        assert cluster.moves == before


async def test_slow_server_moves_nothing(server: APIServer, cluster: Cluster) -> None:
    async with cluster.replicas_named("a", "b"):
        await cluster.balanced()
        before = cluster.moves
        server.faults.add(Delay(seconds=2.5, verb="update", times=None))
        await asyncio.sleep(120)
        assert cluster.moves == before


async def test_deleted_leases_let_no_range_have_two_owners(
    server: APIServer, cluster: Cluster
) -> None:
    async with cluster.replicas_named("a", "b", "c"):
        await cluster.balanced()
        for lease in cluster.leases():
            server.delete(LEASES, lease["metadata"]["name"], namespace="ops")

        await asyncio.sleep(60)
        await cluster.balanced()


async def test_changed_record_of_the_group_is_replaced(
    server: APIServer, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster.replicas_named("a", "b"):
        await cluster.balanced()
        moves = cluster.moves
        annotations = {"aioinformer.dev/shard-ranges": "64"}
        body = {"metadata": {"annotations": annotations}}
        server.patch(LEASES, "sites", body, namespace="ops")
        await asyncio.sleep(15)
        record = server.get(LEASES, "sites", namespace="ops")
        assert record["metadata"]["annotations"] == {
            "aioinformer.dev/shard-ranges": "16",
            "aioinformer.dev/shard-field": "uid",
        }
        assert cluster.moves == moves
        assert cluster.is_balanced()

    assert any("as no member has its 64 ranges" in it for it in caplog.messages)


async def test_twenty_replicas_send_8_requests_a_second(server: APIServer) -> None:
    cluster = Cluster(server, ranges=64)
    names = [f"replica-{it}" for it in range(20)]
    async with cluster.replicas_named(*names) as works:
        await cluster.balanced()
        before, began = len(server.requests), now()
        await asyncio.sleep(30)
        assert (len(server.requests) - before) / (now() - began) < 8
        # At once: otherwise they would pass on all ranges 19 times.
        await asyncio.gather(*(it.shards.shutdown() for it in works))


# ---------------------------------------------------------------- refusals


async def test_replica_without_rights_is_not_ready(server: APIServer) -> None:
    server.faults.add(Refuse(status=403, verb="list", resource="leases", times=None))
    cluster = Cluster(server)
    async with cluster.replica("a") as a:
        await asyncio.sleep(10)
        assert "403 Forbidden" in a.shards.why_not_ready()


async def test_other_number_of_ranges_is_refused(cluster: Cluster) -> None:
    async with cluster.replica("a"):
        await cluster.settled()
        other = cluster.shards("b", ranges=32)
        other.join(next(iter(cluster.replicas.values())))
        with pytest.raises(OptionsError, match="16"):
            async with asyncio.timeout(60):
                await other.run()
