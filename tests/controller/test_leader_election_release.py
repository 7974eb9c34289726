"""`LeaderElector`: release of the Lease."""

from __future__ import annotations

import asyncio

import pytest
from leader_helpers import (
    MemoryLease,
    MemoryLock,
    elector,
    failing,
    forever,
    hang,
    now,
)

from aioinformer.controller import LeaseRecord
from aioinformer.errors import Conflict


async def test_release_can_be_disabled() -> None:
    lease = MemoryLease()
    lock = MemoryLock(lease, "a")
    await elector(lock, release_on_cancel=False).run(lambda: asyncio.sleep(1))

    assert lease.holders == ["a"]


async def test_lease_of_another_replica_is_not_released() -> None:
    lease = MemoryLease()
    async with elector(MemoryLock(lease, "a")).leading():
        lease.write(LeaseRecord("them", 15, "", "", 1))

    assert lease.holders == ["a", "them"]


async def test_release_is_retried_after_conflict() -> None:
    lease = MemoryLease()
    lock = MemoryLock(lease, "a")
    conflicts = 2

    async def interfere(_: MemoryLock, verb: str) -> None:
        nonlocal conflicts
        if verb == "update" and conflicts:
            conflicts -= 1
            lease.version += 1  # another client adds a label

    async with elector(lock).leading():
        lock.fault = interfere

    assert (conflicts, lease.holders) == (0, ["a", ""])


async def test_hanging_release_is_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lease, start = MemoryLease(), now()
    lock = MemoryLock(lease, "a")
    async with elector(lock).leading():
        lock.fault = hang

    assert now() - start == 10
    assert lease.holders == ["a"]
    assert "cannot release the lease: TimeoutError: no response in time" in caplog.text


async def test_release_is_given_up_after_repeated_conflicts() -> None:
    lock, start = MemoryLock(MemoryLease(), "a"), now()
    async with elector(lock).leading():
        lock.sent.clear()
        lock.fault = failing(Conflict("it was changed", status=409), "update")

    assert now() - start == 10
    # Two requests every 0.2 s, without a busy loop.
    assert 90 < len(lock.sent) < 110


async def test_failed_release_does_not_hide_error_of_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lock = MemoryLock(MemoryLease(), "a")

    async def fail() -> None:
        lock.fault = failing(RuntimeError("a defect"))
        raise ValueError("of the work")

    with pytest.raises(ValueError, match="of the work"):
        await elector(lock).run(fail)

    assert "cannot release the lease: RuntimeError: a defect" in caplog.text


async def test_second_cancellation_does_not_interrupt_release() -> None:
    lease = MemoryLease()
    lock = MemoryLock(lease, "a")
    task = asyncio.create_task(elector(lock).run(forever))
    await asyncio.sleep(1)
    lock.delay = 1
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0.1)

    await asyncio.wait({task})
    assert task.cancelled()
    assert lease.holders == ["a", ""]


async def test_loop_shutdown_does_not_release_before_work_has_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lease = MemoryLease()
    lock = MemoryLock(lease, "a")

    async def slow_to_end() -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(5)

    before = asyncio.all_tasks()
    task = asyncio.create_task(elector(lock).run(slow_to_end))
    await asyncio.sleep(1)
    for each in asyncio.all_tasks() - before:
        each.cancel()

    await asyncio.wait({task})
    assert task.cancelled()
    assert lease.holders == ["a"]
    assert "the elector's task was cancelled" in caplog.text
