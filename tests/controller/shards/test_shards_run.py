"""`Shards`: users, pauses, refusals, metrics, and the end of a run."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from typing import TYPE_CHECKING, Any, Literal

import pytest
from controller_helpers import Notes
from metrics_helpers import PlainSink
from shards_helpers import Cluster, ShardListener, now
from task_helpers import cancelled_after

from aioinformer import Client, Controller, KubeObject, Manager, Shards
from aioinformer.controller.event_recorder import EVENTS, EventRecorder
from aioinformer.controller.metrics import ShardsMetrics
from aioinformer.controller.shards.lease import member_name
from aioinformer.controller.shards.member import Member
from aioinformer.controller.shards.replica import Replica
from aioinformer.errors import LeadershipLost, OptionsError
from aioinformer.model.resources import CONFIG_MAPS, LEASES, PODS
from aioinformer.testing import APIServer
from aioinformer.testing.faults import Refuse, Stall

if TYPE_CHECKING:
    from datetime import datetime

    from aioinformer.controller.shards.commands import Command


def texts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [it for it in caplog.messages if it.startswith("shards sites: ")]


# ---------------------------------------------------------------- users


async def test_late_user_is_told_what_is_owned(cluster: Cluster) -> None:
    async with cluster.replica("a") as first:
        await cluster.settled()
        late = ShardListener()
        first.shards.join(late)
        assert late.calls == [("keep", 16), *(("start", it) for it in range(16))]
        with pytest.raises(OptionsError, match="uses shards sites already"):
            first.shards.join(late)

        first.shards.leave(late)
        first.shards.leave(late)
        assert first.shards.held == frozenset(range(16))


async def test_replica_leaves_with_its_last_user_and_joins_with_the_next(
    cluster: Cluster,
) -> None:
    async with cluster.shards("a") as shards:
        for _ in range(2):
            user = ShardListener()
            shards.join(user)
            await asyncio.sleep(15)
            assert len(shards.held) == 16
            shards.leave(user)
            assert shards.held == frozenset()
            await asyncio.sleep(1)
            status = shards.status()
            assert (status.state, status.lease) == ("idle", None)

        assert [it["spec"]["holderIdentity"] for it in cluster.fences()] == [""] * 16


async def test_work_that_ignores_its_cancellation_keeps_the_replica_out(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster.replica("a", stops=30.0) as a:
        await cluster.settled()
        a.link.silence()
        await asyncio.sleep(15)
        a.link.mend()
        a.stops = 0.5  # of work that it begins later
        await asyncio.sleep(20)
        status = a.shards.status()
        assert (status.state, status.lease) == ("lost", None)
        assert a.shards.held == frozenset()
        assert sum("still runs" in it for it in texts(caplog)) == 16
        assert await cluster.settled() < 20


# ---------------------------------------------------------------- pauses


async def test_suspended_machine_owns_nothing_once_it_continues(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = time.clock_gettime
    async with cluster.replica("a") as a:
        await cluster.settled()
        await asyncio.sleep(5)
        number = min(a.shards.held)
        a.shards.check(number)
        monkeypatch.setattr(time, "clock_gettime", lambda it: read(it) + 30)
        with pytest.raises(LeadershipLost, match="its deadline has passed"):
            a.shards.check(number)

        await asyncio.sleep(0)
        assert cluster.working == {}
        assert await cluster.settled() < 10


async def test_paused_process_ends_its_work_before_other_tasks_continue(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    read = loop.time
    seen: list[int] = []

    async def continue_after(seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append(len(cluster.working))

    async with cluster.replica("a") as a:
        await cluster.settled()
        others = [asyncio.create_task(continue_after(it)) for it in (0.0, 0.1, 1, 20)]
        await asyncio.sleep(0)
        monkeypatch.setattr(loop, "time", lambda: read() + 30)
        with pytest.raises(LeadershipLost):
            a.shards.check(0)

        await asyncio.gather(*others)
        # The first one was to run before the pause.
        assert seen == [16, 0, 0, 0]
        assert await cluster.settled() < 10


async def test_rate_limit_of_the_client_delays_no_lease(
    server: APIServer, cluster: Cluster
) -> None:
    async with Client.from_url(server.url, qps=0.1, burst=1) as client:
        waiting = [asyncio.create_task(client.list(PODS)) for _ in range(9)]
        shards = Shards("sites", client, ranges=16, namespace="ops")
        shards.join(ShardListener())
        async with shards:
            await asyncio.sleep(15)
            assert len(shards.held) == 16

        for task in waiting:
            task.cancel()

    assert {it["spec"]["holderIdentity"] for it in cluster.fences()} == {""}


class HastyMember(Member):
    """Member whose next step is always due at once, after one in which it did nothing."""

    steps = 0

    def step(self, now: float, wall: datetime) -> list[Command]:
        self.steps += 1
        self.next_due = -math.inf
        return []


async def test_step_that_is_due_at_once_is_taken(server: APIServer) -> None:
    member = HastyMember("a", "sites")
    async with server.client() as client:
        metrics = ShardsMetrics("sites", "a", PlainSink())
        recorder = EventRecorder(client, "sites")
        users = [ShardListener()]
        replica = Replica(
            "sites", lambda: member, client, "ops", users, recorder, metrics
        )
        running = asyncio.create_task(replica.run(lambda: None))
        await asyncio.sleep(0.1)
        assert member.steps > 50
        running.cancel()
        await asyncio.wait({running})


# ---------------------------------------------------------------- views


async def test_views_of_a_replica(cluster: Cluster) -> None:
    async with cluster.replicas_named("a", "b") as (a, b):
        await cluster.balanced()
        shards = a.shards
        pod = KubeObject.of({"metadata": {"name": "x", "uid": "u-1"}})
        number = shards.range_of(pod)
        assert number == shards.range_of("u-1")
        owner = shards.owner_of("u-1")
        assert owner == ("a" if number in shards.held else "b")
        status = shards.status()
        assert (status.name, status.identity, status.state) == ("sites", "a", "live")
        assert status.members == ("a", "b")
        assert status.unowned == ()
        assert status.owned == tuple(sorted(shards.held))
        assert [it.owner for it in status.ranges] == [
            "a" if it in shards.held else "b" for it in range(16)
        ]
        assert shards.status().ranges == b.shards.status().ranges
        lease = status.lease
        assert lease is not None
        assert (lease.name, lease.holder, lease.duration) == (
            f"ops/{member_name('sites', 'a')}",
            "a",
            20,
        )
        assert 0 <= lease.age < 4
        (lost,) = {min(b.shards.held)}
        with pytest.raises(LeadershipLost, match=f"does not own range {lost}"):
            shards.check(lost)


async def test_stopped_shards_own_nothing(cluster: Cluster) -> None:
    shards = cluster.shards("a")
    assert (shards.held, shards.owner_of("u-1"), shards.running) == (
        frozenset(),
        "",
        False,
    )
    with pytest.raises(LeadershipLost):
        shards.check(0)

    with pytest.raises(OptionsError, match="do not run"):
        shards.status()


def test_shards_by_namespace_hash_the_namespace() -> None:
    shards = Shards("sites", Client.from_url("http://x"), shard_by="namespace")
    metadata = {"name": "x", "namespace": "shop", "uid": "u-1"}
    pod = KubeObject.of({"metadata": metadata})
    assert shards.range_of(pod) == shards.range_of("shop")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranges": 48}, "power of two"),
        ({"ranges": "64"}, "must be an int, not .64."),
        ({"ranges": True}, "must be an int"),
        ({"shard_by": "name"}, "'uid' or by 'namespace'"),
        ({"identity": ""}, "identity"),
        ({"namespace": ""}, "namespace of shards cannot be empty"),
        ({"renew_deadline": 15}, "two members could own one range"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionsError, match=message):
        Shards("sites", Client.from_url("http://x"), **options)


def test_two_groups_of_a_name_in_one_manager_are_refused(server: APIServer) -> None:
    client = server.client()
    manager = Manager(client)
    for name, resource in (("a", PODS), ("b", CONFIG_MAPS)):
        made = Controller(
            name,
            Notes(),
            for_=manager.informer(resource),
            shards=Shards("sites", client),
        )
        if name == "a":
            manager.add(made)
            continue

        with pytest.raises(OptionsError, match="has other Shards named sites"):
            manager.add(made)


async def test_loss_of_all_ranges_is_logged_with_their_number(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster.replica("a", takes=1.0) as a:
        await cluster.settled()
        a.link.break_off()
        await asyncio.sleep(15)
        lost = [it for it in texts(caplog) if "lost all ranges" in it]
        assert len(lost) == 1
        assert "(member=a ranges=16): " in lost[0]
        a.link.mend()


async def test_missing_namespace_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with APIServer() as server, Client.from_url(server.url) as client:
        shards = Shards("sites", client, namespace="absent", ranges=8)
        shards.join(ShardListener())
        async with shards:
            await asyncio.sleep(10)
            assert '404 NotFound: namespaces "absent" not found' in (
                shards.why_not_ready()
            )

    messages = texts(caplog)
    assert any('namespaces "absent" not found' in it for it in messages)
    assert not any("left the group" in it for it in messages)


# ---------------------------------------------------------------- readiness


async def test_replica_is_ready_once_it_has_joined(cluster: Cluster) -> None:
    async with cluster.replica("a") as a:
        assert a.shards.why_not_ready() == "has not joined the group yet"
        await cluster.settled()
        assert a.shards.why_not_ready() == ""


@pytest.mark.parametrize("verb", ["list", "create", "update"])
async def test_replica_without_a_right_is_not_ready_until_it_has_it(
    verb: Literal["list", "create", "update"],
    server: APIServer,
    cluster: Cluster,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.faults.add(Refuse(status=403, verb=verb, resource="leases", times=None))
    async with cluster.replica("a") as a:
        await asyncio.sleep(50)
        assert "403 Forbidden" in a.shards.why_not_ready()
        assert "403 Forbidden" in a.shards.status().problem
        assert cluster.working == {}
        assert 0 < sum("403" in it for it in caplog.messages) < 20
        server.faults.clear()
        await cluster.settled(90)
        assert a.shards.why_not_ready() == ""


async def test_range_that_is_not_taken_makes_a_replica_not_ready(
    server: APIServer, cluster: Cluster
) -> None:
    async with cluster.replica("a"):
        await cluster.settled()

    # The fence cannot be read, so it cannot be taken.
    fence = next(it for it in cluster.fences() if it["metadata"]["name"][-2:] == "03")
    server.patch(
        LEASES,
        fence["metadata"]["name"],
        {"metadata": {"labels": {"aioinformer.dev/role": "other"}}},
        namespace="ops",
    )
    async with cluster.replica("b") as b:
        await asyncio.sleep(60)
        assert b.shards.status().unowned == (3,)
        assert b.shards.why_not_ready().startswith("ranges are not taken: 3: 409")


async def test_range_that_nobody_can_take_is_reported_and_moves_no_other(
    server: APIServer, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster.replicas_named("a", "b", "c") as works:
        await cluster.balanced()
        labels = {"metadata": {"labels": None}}  # so nobody sees that it exists
        server.patch(LEASES, "sites-range-07", labels, namespace="ops")
        await asyncio.sleep(30)
        before = cluster.moves
        await asyncio.sleep(150)
        assert cluster.moves == before
        assert sum(map(cluster.count, works)) == 15
        assert max(map(cluster.count, works)) <= 6
        for work in works:
            assert work.shards.status().unowned == (7,)

        (taker,) = [it for it in works if it.shards.why_not_ready()]
        assert taker.shards.why_not_ready().startswith("ranges are not taken: 7: 409")
        assert "already exists" in taker.shards.why_not_ready()
        texts = [it for it in caplog.messages if "without an owner for 3" in it]
        assert len(texts) == 3
        name = taker.shards.identity
        assert all(f"s: 7 (assigned to {name})" in it for it in texts)
        assert sum("already exists" in it for it in texts) == 1
        for work in works:
            problem = work.shards.status().problem
            assert re.match(r"ranges without an owner for \d+ s: 7 \(assigned", problem)

        events = [it for it in server.objects(EVENTS) if it["type"] == "Warning"]
        assert [it["reason"] for it in events] == ["RangesNotWorkedOn"]
        assert events[0]["regarding"]["name"] == "sites"


def foreign(name: str) -> dict[str, Any]:
    """Return a Lease of an election, without the labels of the group."""
    metadata = {"name": name, "namespace": "ops"}
    return {"metadata": metadata, "spec": {"holderIdentity": "leader"}}


async def test_lease_of_an_election_with_the_name_of_the_group_delays_the_first_start(
    server: APIServer, cluster: Cluster
) -> None:
    server.create(LEASES, foreign("sites"))
    async with cluster.replica("a") as a:
        assert await cluster.settled() < 35  # as in a group that exists
        assert '"sites" already exists' in a.shards.status().problem


async def test_group_whose_lease_lost_its_labels_takes_absent_fences(
    server: APIServer, cluster: Cluster
) -> None:
    async with cluster.replica("a"):
        await cluster.settled()
        server.delete(LEASES, "sites", namespace="ops")
        server.create(LEASES, foreign("sites"))
        async with cluster.replica("b") as b:
            await cluster.balanced()
            numbers = [it for it in range(16) if cluster.working[it] is b]
            cluster.kill(b)
            for it in numbers:
                server.delete(LEASES, f"sites-range-{it:02}", namespace="ops")

            assert await cluster.settled() < 35


async def test_refusal_that_comes_after_the_sight_of_the_lease_is_forgotten(
    server: APIServer, cluster: Cluster
) -> None:
    answers = Stall(
        verb="create", resource="leases", head=False, seconds=0.5, times=None
    )
    server.faults.add(answers)
    async with cluster.replicas_named("a", "b") as replicas:
        await cluster.balanced()
        assert [it.shards.status().problem for it in replicas] == ["", ""]


async def test_invalid_lease_is_ignored(
    server: APIServer, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    labels = {"aioinformer.dev/shards": "sites", "aioinformer.dev/role": "fence"}
    for name, given in {
        "other": {},
        "sites-range-99": {
            "aioinformer.dev/shard-ranges": "16",
            "aioinformer.dev/shard-field": "uid",
        },
    }.items():
        metadata = {"name": name, "labels": labels, "annotations": given}
        server.create(LEASES, {"metadata": metadata}, namespace="ops")

    async with cluster.replica("a"):
        await cluster.settled()

    assert sum("ignoring Lease" in it for it in caplog.messages) == 2


# ---------------------------------------------------------------- other ranges


async def test_other_number_of_ranges_ends_the_run(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster.replica("a"):
        await cluster.settled()
        other = cluster.shards("b", ranges=32)
        other.join(ShardListener())
        with pytest.raises(OptionsError, match="16"):
            async with asyncio.timeout(60):
                await other.run()

        assert "16" in other.why_not_ready()
        await other.start()
        async with asyncio.timeout(60):
            assert "16" in str(await other.failed())

        with pytest.raises(OptionsError, match="16"):
            await other.shutdown()

    assert sum("failed, giving all ranges away" in it for it in texts(caplog)) == 2


async def test_second_process_with_an_identity_stays_out(cluster: Cluster) -> None:
    async with cluster.replica("a") as first:
        await cluster.settled()
        second = cluster.shards("a")
        second.join(ShardListener())
        async with second:
            await asyncio.sleep(60)
            assert second.held == frozenset()
            assert "another process has the identity 'a'" in second.why_not_ready()
            assert len(first.shards.held) == 16


# ---------------------------------------------------------------- reports


async def test_moves_are_logged_measured_and_recorded(
    server: APIServer, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aioinformer.controller.shards")
    sink = PlainSink()

    def gauge(name: str) -> float:
        return sink.gauges[f"aioinformer_shard_{name}", ("sites",)]

    cluster.options["ranges"] = cluster.ranges = 2
    cluster.unowned_since = dict.fromkeys(range(2), 0.0)
    async with cluster.replica("a") as a:
        a.shards.set_metrics(sink)
        await cluster.settled()
        assert (gauge("owned_ranges"), gauge("unowned_ranges")) == (2, 0)
        assert sink.counts["aioinformer_shard_moves_total", ("sites",)] == 2
        async with cluster.replica("b") as b:
            await cluster.balanced()
            (moved,) = b.shards.held
            assert gauge("owned_ranges") == 1
            cluster.kill(b)
            await asyncio.sleep(18)
            assert (gauge("unowned_ranges"), gauge("unowned_seconds")) == (0, 0)
            await asyncio.sleep(3)

        await cluster.settled()
        assert gauge("owned_ranges") == 2

    assert [it for it in texts(caplog) if "acquired" in it] == [
        "shards sites: acquired range 0 (member=a, previously without an owner)",
        "shards sites: acquired range 1 (member=a, previously without an owner)",
        f"shards sites: acquired range {moved} (member=b, previously a)",
        f"shards sites: acquired range {moved} (member=a, previously b)",
    ]
    notes = [it["note"] for it in server.objects(EVENTS)]
    assert len(notes) >= 3
    assert f"b acquired range {moved} of shards sites, previously a" in notes
    regarding = [it["regarding"] for it in server.objects(EVENTS)]
    assert {it["kind"] for it in regarding} == {"Lease"}
    assert {it["name"] for it in regarding} == {"sites-range-00", "sites-range-01"}


# ---------------------------------------------------------------- ends


async def test_end_without_a_server_is_bounded(
    server: APIServer, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster.replica("a", takes=2.0):
        await cluster.settled()
        await server.stop()
        began = now()

    assert now() - began < 20
    assert any("ending before the group was left" in it for it in texts(caplog))


async def test_shards_run_again_but_not_twice(cluster: Cluster) -> None:
    shards = cluster.shards("a")
    for _ in range(2):
        user = ShardListener()
        shards.join(user)
        async with shards:
            await asyncio.sleep(15)
            assert len(shards.held) == 16
            with pytest.raises(OptionsError, match="already running"):
                await shards.run()

            with pytest.raises(OptionsError, match="already running"):
                await shards.start()

        assert user.calls[-1] == ("keep", 0)
        shards.leave(user)


@pytest.mark.parametrize("moment", [0.0, 0.5, 3.95])
async def test_cancelled_run_leaves_no_task_and_no_owner(
    moment: float, cluster: Cluster
) -> None:
    for turns in range(0, 40, 3):
        shards = cluster.shards(f"a-{turns}")
        shards.join(ShardListener())
        task = await cancelled_after(shards.run(), turns, moment=moment)
        assert task.cancelled()
        assert {it["spec"]["holderIdentity"] for it in cluster.fences()} <= {""}
        members = [
            it for it in cluster.leases() if "-member-" in it["metadata"]["name"]
        ]
        assert {it["spec"]["holderIdentity"] for it in members} <= {""}
