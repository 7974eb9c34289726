"""`LeaderElector`: slow and late responses."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from leader_helpers import MemoryLease, MemoryLock, elector, failing, forever, now

from aioinformer import LeadershipLost
from aioinformer.errors import ServerError, TooManyRequests, TransportError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer import LeaderElector

NEVER = 1e6
PAUSE = 4.4
"""The longest from one attempt of a candidate to the next."""


async def keep_leading(one: LeaderElector) -> None:
    while True:
        with suppress(LeadershipLost):
            await one.run(forever)


@asynccontextmanager
async def candidates(*electors: LeaderElector) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(keep_leading(one)) for one in electors]
        yield
        for task in tasks:
            task.cancel()


async def test_late_claim_counts_from_send_time() -> None:
    lock, start = MemoryLock(MemoryLease(), "a"), now()
    lock.late = 9
    one = elector(lock)

    asyncio.get_running_loop().call_later(8, setattr, lock, "late", 0.5)

    async with one.leading():
        assert now() - start == 9
        assert one.deadline == start + 10
        await asyncio.sleep(0.75)
        assert one.deadline == start + 19  # renewed at once, as no time was left


async def test_unanswered_claim_is_adopted_at_next_read() -> None:
    lease, start = MemoryLease(), now()
    lock = MemoryLock(lease, "a")
    lock.late = NEVER
    one = elector(lock)
    asyncio.get_running_loop().call_later(9, setattr, lock, "late", 0)

    async with one.leading():
        # 10 s for the response to the first claim, and the pause before the next read.
        assert 12 <= now() - start < 14.4
        assert lease.holders == ["a"]


async def test_replica_without_responses_leaves_lease_to_others() -> None:
    lease = MemoryLease()
    unaccepting_server, well = (
        MemoryLock(lease, "unaccepting_server"),
        MemoryLock(lease, "well"),
    )
    unaccepting_server.late = NEVER
    first, second = elector(unaccepting_server), elector(well)

    async with candidates(first):
        await asyncio.sleep(1)
        assert lease.holders == ["unaccepting_server"]
        async with candidates(second):
            # Two claims without a response, the second of which is valid for 15 s.
            await asyncio.sleep(10 + PAUSE + PAUSE + 15 + PAUSE)
            assert second.is_leader
            await asyncio.sleep(300)
            assert second.is_leader
            assert not first.is_leader

    assert lease.holders == ["unaccepting_server", "well", ""]


async def test_replica_without_responses_lets_lease_expire() -> None:
    lease = MemoryLease()
    unaccepting_server = MemoryLock(lease, "unaccepting_server")
    unaccepting_server.late = NEVER

    async with candidates(elector(unaccepting_server)):
        await asyncio.sleep(600)

    # After the first two, each claim waits until the last one has expired, and longer.
    times = [time for time, _ in lease.writes]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert min(gaps[1:]) > 15 + 2 * PAUSE


async def test_replica_with_responses_again_claims_its_expired_lease() -> None:
    lease = MemoryLease()
    lock = MemoryLock(lease, "a")
    lock.late = NEVER
    one = elector(lock)

    async with candidates(one):
        await asyncio.sleep(100)
        lock.late = 0
        await asyncio.sleep(10 + 15 + 3 * PAUSE)
        assert one.is_leader
        await asyncio.sleep(100)
        assert one.is_leader


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(TransportError("refused", unreachable=True), id="unreachable"),
        pytest.param(TooManyRequests("busy", status=429), id="429"),
        pytest.param(ServerError("not ready", status=503), id="503"),
    ],
)
async def test_refused_replica_claims_its_own_lease_at_once(
    error: Exception,
) -> None:
    """While the only server restarts, no claim is written, and no replica is blocked."""
    lease = MemoryLease()
    lock = MemoryLock(lease, "a")
    one = elector(lock)

    async with candidates(one):
        await asyncio.sleep(20)
        lock.fault = failing(error)
        await asyncio.sleep(11.5)
        assert not one.is_leader
        lock.fault = None
        await asyncio.sleep(PAUSE)
        assert one.is_leader


@pytest.mark.parametrize("late", [0.5, 2.6, 4.9])
async def test_leader_with_slow_responses_keeps_leading(late: float) -> None:
    lock = MemoryLock(MemoryLease(), "a")
    lock.late = lock.delay = late / 2
    one = elector(lock)

    async with one.leading():
        await asyncio.sleep(600)
        assert one.is_leader
