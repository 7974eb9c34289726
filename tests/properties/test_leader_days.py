"""G11 over a simulated day: three replicas, pauses, wrong clocks, a bad network.

The durations are ten times the usual ones, which only reduces the requests of a day:
20,000 instead of 200,000. `leader_simulation` explains what is real.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from leader_simulation import Process, SimulatedClient, Weather, World

from aioinformer import LeaderElector, LeadershipLost
from aioinformer.controller import LeaseLock
from aioinformer.errors import ServerError

if TYPE_CHECKING:
    from leader_simulation import Report

DAY = 86_400
LEASE, RENEW, RETRY = 150, 100, 20

# Between the check of a write and its arrival: 45 s at most, of 50 s.
SHORT = Weather(pause=(1, 40), calm=300, behind_check=0.1, latency=5)
# Two requests of up to 60 s exceed the deadline of 100 s; some exceed it alone.
SLOW = Weather(
    pause=(1, 40), calm=300, behind_check=0.1, latency=5, slow=(10, 120), spell=3600
)
LONG = Weather(pause=(30, 900), calm=1200, behind_check=0.1, latency=5)


class Replica:
    """A replica that writes while it leads. When cancelled, it continues for a while."""

    def __init__(self, process: Process, *, guarded: bool) -> None:
        self.world = process.world
        self.process = process
        self.guarded = guarded
        self.rng = random.Random(self.world.rng.random())
        self.client = SimulatedClient(process)
        self.elector = LeaderElector(
            LeaseLock(self.client, "day", identity=process.name),
            lease_duration=LEASE,
            renew_deadline=RENEW,
            retry_period=RETRY,
            rng=self.rng,
        )
        process.leads = lambda: self.elector.is_leader

    async def live(self) -> None:
        while True:
            try:
                async with self.elector.leading():
                    # Sometimes it ends without a cancellation, with nothing in progress.
                    ends = self.world.now + self.rng.uniform(600, 7200)
                    while self.world.now < ends:
                        await self.work()
            except LeadershipLost:
                self.world.report.lost += 1

    async def work(self) -> None:
        try:
            await self.write()
            await asyncio.sleep(self.rng.uniform(2, 30))
        except asyncio.CancelledError:
            for _ in range(self.rng.randrange(8)):
                await self.try_to_write()

            raise

    async def try_to_write(self) -> None:
        try:
            async with asyncio.timeout(30):
                await self.write()
        except LeadershipLost:
            self.world.report.refused += 1
        except TimeoutError:
            pass

        await asyncio.sleep(self.rng.uniform(1, 30))

    async def write(self) -> None:
        """Check and send a request at once, as `ReconcileClient` does."""
        world = self.world
        if self.guarded:
            self.elector.check()
            world.report.passed.append(self.client.renewed + RENEW - world.now)

        held = 0.0
        if self.rng.random() < world.weather.behind_check:
            held = world.draw_pause()
            self.process.freeze(held)

        try:
            async with asyncio.timeout(60):
                await world.request(
                    self.process, lambda: world.write(self.process.name), held=held
                )
        except (ServerError, TimeoutError):
            pass


def simulated(
    seed: int, weather: Weather, *, seconds: float = DAY, guarded: bool = True
) -> Report:
    """Simulate a day of three replicas."""
    world = World(seed, weather)
    world.processes = [Process(world, name) for name in "abc"]
    for process in world.processes:
        process.start(Replica(process, guarded=guarded).live())

    try:
        world.run(seconds)
    finally:
        for process in world.processes:
            process.end()

    return world.report


def received(report: Report) -> str:
    pauses = sorted(report.pauses)
    return (
        f"{len(pauses)} pauses, from {pauses[0]:.1f} s over {pauses[len(pauses) // 2]:.1f} s "
        f"to {pauses[-1]:.1f} s; {report.requests} requests, {len(report.arrived)} writes; "
        f"{len(report.acquired)} leaders, {len(report.margins)} of them behind a lease "
        f"that had run out, {report.lost} times lost; {report.refused} writes refused; "
        f"{report.overtaken} overtaken; smallest margins: {min(report.margins):.2f} s from "
        f"the last write of a leader to the next one's acquisition, "
        f"{min(report.passed, default=0):.2f} s from a write to its own deadline"
    )


def test_G11_with_short_pauses_no_write_follows_another_acquisition() -> None:
    report = simulated(11, SHORT)
    print(received(report))

    assert report.overtaken == 0
    assert min(report.passed) > 0
    # The day had failures of every kind.
    assert max(report.pauses) > 39
    assert min(report.lost, len(report.margins), report.refused) > 5
    assert len(report.arrived) > 2000


def test_G11_with_long_pauses_no_write_is_sent_after_its_deadline() -> None:
    report = simulated(12, LONG)
    print(received(report))

    assert min(report.passed) > 0
    assert max(report.pauses) > LEASE
    assert min(report.lost, len(report.margins), report.refused) > 5
    assert len(report.arrived) > 1000


def test_G11_with_slow_requests_no_write_follows_another_acquisition() -> None:
    report = simulated(15, SLOW)
    print(received(report))

    assert report.overtaken == 0
    assert min(report.passed) > 0
    assert min(report.lost, len(report.margins)) > 5
    assert len(report.arrived) > 1000


@pytest.mark.parametrize("seed", [16, 17, 18])
def test_replica_that_does_not_lead_does_not_renew_the_lease(seed: int) -> None:
    # A whole day of slow requests, without waiting for them.
    weather = replace(SLOW, spell=DAY, calm=1e9, cut=(0, 0), outage=(0, 0))
    report = simulated(seed, weather)
    print(received(report), report.unled)

    # A claim without a response, and one to take over.
    assert report.unled <= 2
    assert len(report.acquired) > 5


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize("weather", [SHORT, LONG], ids=["short", "long"])
def test_unfenced_writes_would_follow_another_acquisition(weather: Weather) -> None:
    report = simulated(13, weather, seconds=DAY / 4, guarded=False)

    assert report.overtaken > 0


def test_replica_frozen_after_acquiring_does_not_start_its_work() -> None:
    still = Weather(
        pause=(1, 2), calm=1e9, behind_check=0, latency=0, lost=0, refused=0
    )
    world = World(14, still)
    process = Process(world, "a")
    world.processes = [process]
    replica = Replica(process, guarded=True)
    begun: list[float] = []

    def freeze(leader: str) -> None:
        process.freeze(1000)

    async def live() -> None:
        lock = LeaseLock(replica.client, "day", identity="a")
        elector = LeaderElector(lock, on_new_leader=freeze)
        with pytest.raises(LeadershipLost, match="not renewed in time"):
            async with elector.leading():
                begun.append(world.now)

        await asyncio.Event().wait()

    process.start(live())
    try:
        world.run(2000)
    finally:
        process.end()

    assert world.report.acquired
    assert not begun
