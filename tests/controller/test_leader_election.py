"""`LeaderElector`: candidates, renewals and options."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from informer_helpers import settle
from leader_helpers import (
    MemoryLease,
    MemoryLock,
    elector,
    failing,
    forever,
    hang,
    lead,
    now,
)
from metrics_helpers import PlainSink

from aioinformer.controller import LeaseRecord, LeaseStatus
from aioinformer.errors import (
    Forbidden,
    HandlerError,
    LeadershipLost,
    OptionsError,
    TransportError,
)

if TYPE_CHECKING:
    from aioinformer import LeaderElector

BROKEN = TransportError("no route")


# ---------------------------------------------------------------- acquiring


async def test_elector_leads_at_once_without_lease() -> None:
    lease, start = MemoryLease(), now()
    one = elector(MemoryLock(lease, "a"))
    assert repr(one) == "<LeaderElector lease as a leader=''>"

    async with one.leading():
        assert (one.leader, one.deadline) == ("a", start + 10)
        assert one.is_leader
        one.check()

    assert now() == start
    assert repr(one) == "<LeaderElector lease as a leader=''>"
    assert (one.leader, one.deadline) == ("", None)
    assert lease.holders == ["a", ""]


async def test_candidate_waits_lease_duration_since_first_observation() -> None:
    lease = MemoryLease()
    # Renewed long ago by its timestamp, and first observed now.
    lease.write(LeaseRecord("gone", 15, "2001-01-01", "2001-01-01", 4))
    lock, start = MemoryLock(lease, "a"), now()

    async with elector(lock).leading():
        waited = now() - start

    assert 15 <= waited < 15 + 4.4
    assert lease.writes[-2][1].transitions == 5


async def test_retries_of_candidate_are_jittered() -> None:
    lease = MemoryLease()
    lease.write(LeaseRecord("them", 3600, "", "", 0))
    lock = MemoryLock(lease, "a")
    task = asyncio.create_task(elector(lock).run(forever))
    await asyncio.sleep(1000)
    task.cancel()
    await asyncio.wait({task})

    times = lock.times("get")
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert 2 <= min(gaps) < 2.2
    assert 4.2 < max(gaps) < 4.4
    assert len(set(gaps)) > 100


async def test_concurrent_candidates_yield_one_leader(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lease = MemoryLease()
    locks = [MemoryLock(lease, name) for name in "abcde"]
    for lock in locks:
        lock.delay = 0.5

    electors = [elector(lock) for lock in locks]
    tasks = [asyncio.create_task(it.run(forever)) for it in electors]
    await asyncio.sleep(60)
    assert sum(it.is_leader for it in electors) == 1
    assert len({it.leader for it in electors}) == 1
    assert not caplog.records  # another replica was faster, which is not a failure

    for task in tasks:
        task.cancel()

    await asyncio.wait(tasks)


async def test_candidate_retries_after_refusal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lease, start = MemoryLease(), now()
    lock = MemoryLock(lease, "a")
    lock.fault = failing(Forbidden("leases is forbidden", status=403))
    one = elector(lock)
    asyncio.get_running_loop().call_later(30, setattr, lock, "fault", None)

    async with one.leading():
        assert 30 <= now() - start < 30 + 4.4

    assert "cannot acquire the lease: Forbidden: 403: leases is forb" in caplog.text


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(OSError(28, "No space left on device"), id="disk-full"),
        pytest.param(RuntimeError("can't start new thread"), id="no-thread"),
        pytest.param(KeyError("token"), id="plugin"),
    ],
)
async def test_candidate_retries_after_local_error(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    lock, start = MemoryLock(MemoryLease(), "a"), now()
    lock.fault = failing(error)
    asyncio.get_running_loop().call_later(30, setattr, lock, "fault", None)

    async with elector(lock).leading():
        assert 30 <= now() - start < 30 + 4.4

    assert f"cannot acquire the lease: {type(error).__name__}" in caplog.text


async def test_hanging_request_of_candidate_times_out() -> None:
    lock, start = MemoryLock(MemoryLease(), "a"), now()
    lock.fault = hang
    asyncio.get_running_loop().call_later(1, setattr, lock, "fault", None)

    async with elector(lock).leading():
        assert now() - start < 5 + 4.4


async def test_cancelled_candidate_leaves_nothing() -> None:
    lease = MemoryLease()
    lease.write(LeaseRecord("them", 3600, "", "", 0))
    task = asyncio.create_task(elector(MemoryLock(lease, "a")).run(forever))
    await asyncio.sleep(10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert lease.holders == ["them"]


async def test_programming_error_is_raised_to_candidate() -> None:
    lock = MemoryLock(MemoryLease(), "a")
    lock.fault = failing(OptionsError("the client was never entered"))
    with pytest.raises(OptionsError, match="never entered"):
        await elector(lock).run(forever)


# ---------------------------------------------------------------- leading


async def test_leader_renews_each_period() -> None:
    lease, start = MemoryLease(), now()
    lock = MemoryLock(lease, "a")
    one = elector(lock)

    async with one.leading():
        await asyncio.sleep(3601)
        assert one.is_leader

    assert now() - start == 3601
    renewals = lock.times("update")[:-1]
    assert renewals == [start + 2 * n for n in range(1, 1801)]
    # Only updates of the known Lease, and a read before the release.
    assert len(lock.times("get")) == 2


async def test_leader_survives_failures_shorter_than_deadline() -> None:
    lock = MemoryLock(MemoryLease(), "a")
    one = elector(lock)
    loop = asyncio.get_running_loop()

    async with one.leading():
        for _ in range(20):
            lock.fault = failing(BROKEN)
            loop.call_later(5.9, setattr, lock, "fault", None)
            await asyncio.sleep(30)
            assert one.is_leader


async def test_renewal_with_lost_response_is_detected() -> None:
    lease, sink = MemoryLease(), PlainSink()
    lock = MemoryLock(lease, "a")
    one = elector(lock, metrics=sink)

    async with one.leading():
        assert lease.record is not None
        lease.write(lease.record)  # by the request that timed out
        await asyncio.sleep(3)

        assert one.is_leader
        assert one.deadline == now() - 1 + 10

    slow = sink.counts["leader_election_slowpath_total", ("lease",)]
    assert slow == 1


async def test_leader_recreates_deleted_lease() -> None:
    lease = MemoryLease()
    one = elector(MemoryLock(lease, "a"))

    async with one.leading():
        lease.write(None)
        await asyncio.sleep(3)

        assert one.is_leader
        assert lease.record is not None
        assert lease.record.holder == "a"


# ---------------------------------------------------------------- the rest


async def test_on_new_leader_is_called_and_its_failure_ignored() -> None:
    lease = MemoryLease()
    leaders: list[str] = []
    errors: list[object] = []

    def note(leader: str) -> None:
        leaders.append(leader)
        raise ValueError(leader)

    lease.write(LeaseRecord("them", 15, "", "", 0))
    one = elector(MemoryLock(lease, "a"), on_new_leader=note, on_error=errors.append)
    await one.run(lambda: asyncio.sleep(5))

    assert leaders == ["them", "a", ""]
    assert len(errors) == 3


async def lose(one: LeaderElector, lock: MemoryLock) -> None:
    async def work() -> None:
        lock.fault = hang
        await forever()

    with pytest.raises(LeadershipLost):
        await lead(one, work)


async def test_callbacks_frame_each_term() -> None:
    record: list[str] = []
    lock = MemoryLock(MemoryLease(), "a")
    one: LeaderElector = elector(
        lock,
        on_started_leading=lambda: record.append(f"started {one.is_leader}"),
        on_stopped_leading=lambda: record.append(f"stopped {one.is_leader}"),
    )

    async def work() -> None:
        record.append("work")

    await one.run(work)
    assert record == ["started True", "work", "stopped False"]

    record.clear()
    await lose(one, lock)

    assert record == ["started True", "stopped False"], "once"
    record.clear()
    lock.fault = None
    await one.run(work)
    assert record == ["started True", "work", "stopped False"]


async def test_failing_callbacks_of_terms_are_reported() -> None:
    errors: list[HandlerError] = []

    def fail() -> None:
        raise ValueError("boom")

    one = elector(
        MemoryLock(MemoryLease(), "a"),
        on_started_leading=fail,
        on_stopped_leading=fail,
        on_error=errors.append,
    )
    async with one.leading():
        assert one.is_leader

    names = [it.where for it in errors]
    assert names == ["on_started_leading", "on_stopped_leading"]


async def test_stopped_leading_is_called_before_the_lease_is_released() -> None:
    lease, holders = MemoryLease(), list[str]()

    def stopped() -> None:
        assert lease.record is not None
        holders.append(lease.record.holder)

    async with elector(MemoryLock(lease, "a"), on_stopped_leading=stopped).leading():
        pass

    assert holders == ["a"]
    assert lease.holders == ["a", ""]


async def test_elector_that_lost_pauses_before_it_tries_again() -> None:
    lock = MemoryLock(MemoryLease(), "a")
    one = elector(lock)
    await lose(one, lock)

    lock.fault = None
    lost, sent = now(), len(lock.sent)
    async with one.leading():
        assert 2 <= lock.sent[sent][0] - lost < 4.4

    ended, sent = now(), len(lock.sent)
    async with one.leading():
        assert lock.sent[sent][0] == ended, "it had not lost"


async def test_coroutine_function_as_on_new_leader_is_refused() -> None:
    async def note(leader: str) -> None: ...

    with pytest.raises(OptionsError, match="on_new_leader must be a plain function"):
        elector(MemoryLock(MemoryLease(), "a"), on_new_leader=note)


def test_inconsistent_elector_durations_are_refused() -> None:
    with pytest.raises(OptionsError, match="lease_duration"):
        elector(MemoryLock(MemoryLease(), "a"), lease_duration=10)


def test_empty_identity_is_refused() -> None:
    with pytest.raises(OptionsError, match="identity"):
        elector(MemoryLock(MemoryLease(), ""))


async def test_elector_status_is_readable_in_thread() -> None:
    one = elector(MemoryLock(MemoryLease(), "a"))
    async with one.leading():
        await asyncio.to_thread(one.check)
        assert await asyncio.to_thread(lambda: one.is_leader)


async def test_lease_is_none_until_it_is_observed() -> None:
    lock = MemoryLock(MemoryLease(), "a")
    lock.delay = 2
    one = elector(lock)
    found = [one.lease]
    task = asyncio.create_task(one.run(forever))
    await asyncio.sleep(3)
    found.append(one.lease)  # it was read, and does not exist
    assert found == [None, None]

    await asyncio.sleep(1.5)
    assert one.lease == LeaseStatus(name="lease", holder="a", age=0.5, duration=15)
    task.cancel()
    await asyncio.wait({task})


async def test_lease_ages_while_another_replica_leads_and_does_not_renew() -> None:
    lease = MemoryLease()
    lease.write(LeaseRecord("them", 60, "", "1", 0))
    one = elector(MemoryLock(lease, "a"))
    task = asyncio.create_task(one.run(forever))
    await asyncio.sleep(30)
    assert one.lease == LeaseStatus(name="lease", holder="them", age=30, duration=60)

    lease.write(LeaseRecord("them", 60, "", "2", 0))
    await asyncio.sleep(10)
    renewed = await asyncio.to_thread(lambda: one.lease)
    assert renewed is not None
    assert 10 - 4.4 < renewed.age <= 10

    task.cancel()
    await asyncio.wait({task})


async def test_lease_of_a_leader_is_as_old_as_its_last_renewal() -> None:
    def seen() -> tuple[str, float]:
        found = one.lease
        assert found is not None
        return found.holder, found.age

    lock = MemoryLock(MemoryLease(), "a")
    one, ages = elector(lock), []
    async with one.leading():
        for _ in range(3):
            await asyncio.sleep(1.5)
            ages.append(seen())

        assert ages == [("a", 1.5), ("a", 1.0), ("a", 0.5)]
        lock.fault = failing(BROKEN)
        await asyncio.sleep(7)
        assert seen() == ("a", 7.5)
        lock.fault = None
        await asyncio.sleep(1)
        assert seen() == ("a", 0.5)

    assert seen() == ("", 0)


async def test_lease_is_forgotten_before_another_loop_observes_it() -> None:
    lease = MemoryLease()
    one = elector(MemoryLock(lease, "a"))
    async with one.leading():
        pass

    def elsewhere() -> LeaseStatus | None:
        async def lead_late() -> LeaseStatus | None:
            task = asyncio.create_task(one.run(forever))
            await asyncio.sleep(0)
            found = one.lease
            task.cancel()
            await asyncio.wait({task})
            return found

        return asyncio.run(lead_late())

    assert one.lease is not None
    assert await asyncio.to_thread(elsewhere) is None


async def test_metric_and_repr_show_leadership(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sink = PlainSink()
    one = elector(MemoryLock(MemoryLease(), "a"), name="copier", metrics=sink)
    status = "leader_election_master_status", ("copier",)
    assert sink.gauges[status] == 0
    assert repr(one) == "<LeaderElector copier as a leader=''>"

    with caplog.at_level(logging.INFO):
        async with one.leading():
            assert sink.gauges[status] == 1
            assert repr(one) == "<LeaderElector copier as a leads>"

    assert sink.gauges[status] == 0
    assert "copier: became leader (identity=a)" in caplog.text
    assert "copier: stopped leading (identity=a)" in caplog.text


async def test_elector_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    one = elector(MemoryLock(MemoryLease(), "a"))
    async with one.leading():
        await settle()
        assert len(asyncio.all_tasks() - before) == 1

    assert asyncio.all_tasks() == before
