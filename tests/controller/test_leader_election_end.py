"""`LeaderElector`: lost leadership and ended work. G11."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest
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

from aioinformer import LeadershipLost
from aioinformer.controller import LeaseRecord
from aioinformer.errors import OptionsError, TransportError

BROKEN = TransportError("no route")


# ---------------------------------------------------------------- losing


@pytest.mark.parametrize("fault", [hang, failing(BROKEN)], ids=["hang", "fail"])
async def test_G11_work_is_cancelled_at_deadline_after_last_sent_renewal(
    fault: object,
) -> None:
    lock, start = MemoryLock(MemoryLease(), "a"), now()
    lock.delay = 0.5
    one = elector(lock)
    asyncio.get_running_loop().call_later(20.25, setattr, lock, "fault", fault)

    with pytest.raises(
        LeadershipLost, match="a lost leadership of lease: the lease was not renewed"
    ):
        async with one.leading():
            await asyncio.sleep(3600)

    # The claim is sent at 0.5, after a read, and then a renewal every 2 s. The last one
    # that succeeds is sent at 18.5 and answered at 19.
    assert now() - start == pytest.approx(28.5)


async def test_G11_lease_is_not_written_before_work_has_ended() -> None:
    lease = MemoryLease()
    lock = MemoryLock(lease, "a")
    one = elector(lock)
    asyncio.get_running_loop().call_later(3, setattr, lock, "fault", hang)

    async def slow_to_end() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            lock.fault = None
            sent = len(lock.sent)
            await asyncio.sleep(100)
            assert len(lock.sent) == sent
            assert not one.is_leader

    with pytest.raises(LeadershipLost):
        await one.run(slow_to_end)

    assert lease.holders == ["a"]


async def test_G11_writes_are_refused_after_deadline() -> None:
    lock = MemoryLock(MemoryLease(), "a")
    one = elector(lock)
    with pytest.raises(LeadershipLost):
        one.check()

    async def work() -> None:
        deadline = one.deadline
        lock.fault = hang
        assert deadline is not None
        with suppress(asyncio.CancelledError):
            await forever()

        assert now() == deadline
        with pytest.raises(LeadershipLost, match="does not lead lease"):
            one.check()

    with pytest.raises(LeadershipLost):
        await lead(one, work)


async def test_G11_work_that_outlives_the_lease_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lock, sink = MemoryLock(MemoryLease(), "a"), PlainSink()
    one = elector(lock, metrics=sink)
    overruns = "aioinformer_leader_overruns_total", ("lease",)

    async def work() -> None:
        lock.fault = hang
        with suppress(asyncio.CancelledError):
            await forever()

        await asyncio.sleep(4.9)
        assert sink.counts[overruns] == 0
        assert one.healthy()

        await asyncio.sleep(0.2)
        assert sink.counts[overruns] == 1
        assert not one.healthy()
        assert one.healthy(timedelta(seconds=20))

        await asyncio.sleep(20)
        assert not one.healthy(20)

    with pytest.raises(LeadershipLost):
        await lead(one, work)

    assert one.healthy()
    assert caplog.text.count("has not stopped") == 1
    assert sink.counts[overruns] == 1


@pytest.mark.parametrize("holder", ["them", ""])
async def test_leader_stops_at_once_when_lease_has_other_holder(holder: str) -> None:
    lease, start = MemoryLease(), now()
    one = elector(MemoryLock(lease, "a"))
    loop = asyncio.get_running_loop()
    taken = LeaseRecord(holder, 15, "", "", 9)
    loop.call_later(5, lease.write, taken)

    with pytest.raises(
        LeadershipLost, match=f"the lease is held by {holder or 'no replica'}"
    ):
        async with one.leading():
            await asyncio.sleep(3600)

    assert now() - start == 6
    assert lease.record == taken


async def test_elector_leads_again_after_loss() -> None:
    lease = MemoryLease()
    lock = MemoryLock(lease, "a")
    one = elector(lock)
    for _ in range(3):
        lock.fault = None

        async def work() -> None:
            lock.fault = hang
            await forever()

        with pytest.raises(LeadershipLost):
            await lead(one, work)

    lock.fault = None
    async with one.leading():
        one.check()


# ---------------------------------------------------------------- the end


async def test_loss_is_reported_once_if_the_elector_is_cancelled_afterwards() -> None:
    calls: list[str] = []
    lock = MemoryLock(MemoryLease(), "a")
    one = elector(lock, on_stopped_leading=lambda: calls.append("stopped"))

    async def slow_to_end() -> None:
        async with one.leading():
            try:
                await forever()
            finally:
                await asyncio.sleep(3)

    before = asyncio.all_tasks()
    task = asyncio.create_task(slow_to_end())
    await asyncio.sleep(1)
    lock.fault = hang
    await asyncio.sleep(10)
    assert calls == ["stopped"]
    (own,) = asyncio.all_tasks() - before - {task}
    own.cancel()  # by `asyncio.run()` at its end, for example
    with pytest.raises(LeadershipLost, match="not renewed in time"):
        await task

    assert calls == ["stopped"]


async def test_run_returns_when_work_returns() -> None:
    lease, start = MemoryLease(), now()

    await elector(MemoryLock(lease, "a")).run(lambda: asyncio.sleep(5))

    assert now() - start == 5
    assert lease.holders == ["a", ""]


async def test_run_raises_error_of_work() -> None:
    lease = MemoryLease()

    async def fail() -> None:
        raise ValueError("of the work")

    with pytest.raises(ValueError, match="of the work"):
        await elector(MemoryLock(lease, "a")).run(fail)

    assert lease.holders == ["a", ""]


async def test_run_raises_cancellation_of_work_by_itself() -> None:
    lease = MemoryLease()

    async def wait_for_what_was_cancelled() -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    with pytest.raises(asyncio.CancelledError):
        await elector(MemoryLock(lease, "a")).run(wait_for_what_was_cancelled)

    assert lease.holders == ["a", ""]


async def test_elector_renews_while_cancelled_work_ends_then_releases() -> None:
    lease = MemoryLease()
    lock = MemoryLock(lease, "a")
    one = elector(lock)

    async def slow_to_end() -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(100)
            one.check()

    task = asyncio.create_task(one.run(slow_to_end))
    await asyncio.sleep(10.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert lease.holders == ["a", ""]
    assert lease.writes[-1][0] - lease.writes[0][0] == 110.5


async def test_cancellation_at_any_step_leaves_no_task_and_no_holder() -> None:
    async def slowly(_lock: MemoryLock, _verb: str) -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    before, held = asyncio.all_tasks(), 0
    for steps in range(40):
        lease = MemoryLease()
        lock = MemoryLock(lease, "a")
        lock.fault = slowly
        one = elector(lock)
        task = asyncio.create_task(one.run(forever))
        for _ in range(steps):
            await asyncio.sleep(0)

        task.cancel()
        await asyncio.wait({task})

        assert task.cancelled()
        assert asyncio.all_tasks() == before
        assert lease.holders in ([], ["a", ""])
        assert (one.deadline, one.healthy()) == (None, True)
        held += bool(lease.holders)

    assert 0 < held < 40


# ---------------------------------------------------------------- the caller


async def test_lost_leadership_does_not_leave_caller_cancelled() -> None:
    lock = MemoryLock(MemoryLease(), "a")

    async def work() -> None:
        lock.fault = hang
        await forever()

    with pytest.raises(LeadershipLost):
        await lead(elector(lock), work)

    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(1)


async def test_cancellation_of_caller_precedes_lost_leadership() -> None:
    lock = MemoryLock(MemoryLease(), "a")

    async def lead() -> None:
        async with elector(lock).leading():
            lock.fault = hang
            try:
                await forever()
            finally:
                await asyncio.sleep(1)

    task = asyncio.create_task(lead())
    await asyncio.sleep(10.5)  # it was cancelled, and is ending
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_error_of_block_is_raised() -> None:
    lock = MemoryLock(MemoryLease(), "a")

    async def work() -> None:
        lock.fault = hang
        try:
            await forever()
        finally:
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        await lead(elector(lock), work)


async def test_timeout_of_block_is_raised() -> None:
    async def work() -> None:
        async with asyncio.timeout(3):
            await forever()

    with pytest.raises(TimeoutError):
        await lead(elector(MemoryLock(MemoryLease(), "a")), work)


async def test_block_that_swallows_cancellation_raises_leadership_lost() -> None:
    lock = MemoryLock(MemoryLease(), "a")

    async def work() -> None:
        lock.fault = hang
        with suppress(asyncio.CancelledError):
            await forever()

    with pytest.raises(LeadershipLost):
        await lead(elector(lock), work)


async def test_concurrent_leading_is_refused() -> None:
    one = elector(MemoryLock(MemoryLease(), "a"))
    async with one.leading():
        with pytest.raises(OptionsError, match="already leading or waiting to lead"):
            await one.run(forever)

        assert one.is_leader


@pytest.mark.parametrize("error", [BROKEN, None], ids=["error", "nothing"])
async def test_lock_that_swallows_cancellation_does_not_block_end(
    error: Exception | None,
) -> None:
    lease, start = MemoryLease(), now()
    lock = MemoryLock(lease, "a")

    async def keep(_lock: MemoryLock, _verb: str) -> None:
        try:
            await asyncio.sleep(3)
        except asyncio.CancelledError:
            lock.fault = None
            if error is not None:
                raise error from None

    async with elector(lock).leading():
        lock.fault = keep
        await asyncio.sleep(2.5)  # during a renewal

    assert now() - start == 2.5
    assert lease.holders == ["a", ""]


async def test_error_without_a_readable_text_counts_as_failed_attempt() -> None:
    class Unreadable(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

        __repr__ = __str__

    lock = MemoryLock(MemoryLease(), "a")
    lock.fault = failing(Unreadable())
    one = elector(lock)
    asyncio.get_running_loop().call_later(10, setattr, lock, "fault", None)
    async with one.leading():
        assert now() > 10
        assert not one.why_not_ready()


async def test_bug_in_lock_counts_as_failed_attempt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lock, start = MemoryLock(MemoryLease(), "a"), now()
    one = elector(lock)

    async def work() -> None:
        lock.fault = failing(RuntimeError("a defect"))
        await asyncio.sleep(5)
        lock.fault = None
        await asyncio.sleep(20)
        one.check()
        lock.fault = failing(RuntimeError("a defect"))
        await forever()

    with pytest.raises(LeadershipLost):
        await one.run(work)

    assert now() - start == 24 + 10
    assert "cannot renew the lease: RuntimeError: a defect" in caplog.text
