"""`LeaderElector`: event loops blocked past the deadline. G11."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from leader_helpers import MemoryLease, MemoryLock, elector, now
from leader_simulation import Process, Weather, World

from aioinformer import LeadershipLost
from aioinformer.controller import LeaseRecord
from aioinformer.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

STILL = Weather(pause=(1, 2), calm=1e9, behind_check=0, latency=0, lost=0, refused=0)


class Stage:
    """Elector in a separate process, whose event loop can be blocked."""

    def __init__(self) -> None:
        self.world = World(1, STILL)
        self.process = Process(self.world, "a")
        self.world.processes = [self.process]
        self.lease = MemoryLease()
        self.lock = MemoryLock(self.lease, "a")
        self.elector = elector(self.lock)
        self.ended: BaseException | None = None

    def stall(self, seconds: float = 20) -> None:
        """Block the loop as `time.sleep()` does, in virtual time."""
        self.world.now += seconds

    def play(self, *acts: Callable[[], None], error: Exception | None = None) -> None:
        """Lead, call these functions 3 s apart, and leave the block."""
        self.process.start(self._life(acts, error))
        try:
            self.world.run(1000)
        finally:
            self.process.end()

    async def _life(
        self, acts: tuple[Callable[[], None], ...], error: Exception | None
    ) -> None:
        try:
            async with self.elector.leading():
                for act in acts:
                    await asyncio.sleep(3)
                    act()

                if error is not None:
                    raise error
        except (LeadershipLost, ValueError) as exc:
            self.ended = exc

        await asyncio.Event().wait()


def test_G11_due_renewal_is_not_sent_after_deadline() -> None:
    stage = Stage()
    sent: list[int] = []

    def stall() -> None:
        sent.append(len(stage.lock.sent))
        stage.stall()

    def when_the_next_renewal_is_due() -> None:
        # The last renewal was sent 1 s ago. In the turn in which the timer fires.
        asyncio.get_running_loop().call_at(now() + 1, stall)

    stage.play(when_the_next_renewal_is_due, lambda: None)

    assert isinstance(stage.ended, LeadershipLost)
    assert sent == [len(stage.lock.sent)]
    assert stage.lease.holders == ["a"]


def test_G11_read_answered_after_deadline_claims_nothing() -> None:
    stage = Stage()

    async def conflict_then_stall(_lock: MemoryLock, verb: str) -> None:
        if verb == "update":
            raise Conflict("it was changed", status=409)

        stage.stall()

    def interfere() -> None:
        stage.lock.fault = conflict_then_stall
        stage.lock.sent.clear()

    stage.play(interfere, lambda: None)

    assert isinstance(stage.ended, LeadershipLost)
    assert [verb for _, verb in stage.lock.sent] == ["update", "get"]


def test_G11_block_that_blocks_loop_past_deadline_loses() -> None:
    stage = Stage()
    stage.play(stage.stall)

    assert isinstance(stage.ended, LeadershipLost)
    assert "the lease was not renewed in time" in str(stage.ended)
    assert stage.lease.holders == ["a"]


def test_error_of_block_that_blocked_loop_is_raised() -> None:
    stage, error = Stage(), ValueError("of the block")
    stage.play(stage.stall, error=error)

    assert stage.ended is error


def test_stall_shorter_than_deadline_keeps_leadership(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    with caplog.at_level(logging.WARNING):
        stage.play(lambda: stage.stall(6), lambda: None)

    assert stage.ended is None
    assert stage.lease.holders == ["a", ""]
    assert not caplog.records


def test_lease_observed_in_other_loop_restarts_observation() -> None:
    lease = MemoryLease()
    lock = MemoryLock(lease, "b")
    one = elector(lock)
    waited: list[float] = []

    async def wait_for_a_while() -> None:
        lease.write(LeaseRecord("them", 15, "", "", 0))
        with suppress(TimeoutError):
            async with asyncio.timeout(5), one.leading():
                waited.append(-1)

    async def lead() -> None:
        start = now()
        async with one.leading():
            waited.append(now() - start)

        await asyncio.Event().wait()

    # The second clock is far ahead of the first one.
    for life, clock in ((wait_for_a_while, 0), (lead, 1e6)):
        world = World(1, STILL)
        world.now = clock
        process = Process(world, "b")
        world.processes = [process]
        process.start(life())
        try:
            world.run(world.now + 100)
        finally:
            process.end()

    assert len(waited) == 1
    assert waited[0] >= 15
