"""Replicas of a sharded controller as processes, killed while their objects change."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

import pytest
from scenes import restarted
from shard_crew import RANGES, shard_crew_of

if TYPE_CHECKING:
    from pathlib import Path

    from contract_servers import ServerUnderTest
    from control_plane import ControlPlane
    from shard_crew import ShardCrew

pytest_plugins = ["scenario_servers"]
pytestmark = [pytest.mark.e2e, pytest.mark.realtime, pytest.mark.looptime(False)]

SOAK_SECONDS = float(os.environ.get("SHARD_SOAK_SECONDS", "60"))
"""Duration of each test. Set it to 600 before a release."""

OBJECTS = int(os.environ.get("SHARD_SOAK_OBJECTS", "2000"))
"""Number of objects. Set it to 20000 before a release."""

REPLICAS = 4
KILL_SECONDS = 30.0
UNOWNED_SECONDS = 24.0
CHANGES_A_SECOND = 20.0


@pytest.mark.timeout(SOAK_SECONDS + 400)
@pytest.mark.parametrize("gate", [True, False], ids=["filtering", "ignoring"])
async def test_replicas_never_share_an_object_while_some_are_killed(
    own: ServerUnderTest, plane: ControlPlane, tmp_path: Path, *, gate: bool
) -> None:
    await restarted(plane, ShardedListAndWatch=gate)
    async with shard_crew_of(own, tmp_path, replicas=REPLICAS, objects=OBJECTS) as crew:
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(crew.keep_writing(CHANGES_A_SECOND))
            while time.monotonic() - began < SOAK_SECONDS:
                requests, before = await crew.lease_requests(), time.monotonic()
                await crew.kill_one()
                await asyncio.sleep(KILL_SECONDS)
                reports = await crew.settled()
                rate = (await crew.lease_requests() - requests) / (
                    time.monotonic() - before
                )
                shares = [len(it.held) for it in reports]
                print(f"{shares} ranges, {rate:.1f} requests/s, {unowned(crew)}")
                assert {it.sharded for it in reports} == {gate}

            writing.cancel()

        longest = max(it.seconds for it in crew.gaps() if it.begin >= began)
        assert longest < UNOWNED_SECONDS
        await crew.end()


@pytest.mark.timeout(SOAK_SECONDS + 400)
async def test_replicas_never_share_an_object_while_the_server_begins_to_filter(
    own: ServerUnderTest, plane: ControlPlane, tmp_path: Path
) -> None:
    gate = False
    await restarted(plane, ShardedListAndWatch=gate)
    async with shard_crew_of(own, tmp_path, replicas=REPLICAS, objects=OBJECTS) as crew:
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(crew.keep_writing(CHANGES_A_SECOND))
            while time.monotonic() - began < SOAK_SECONDS:
                gate = not gate
                async with crew.writing:
                    await restarted(plane, ShardedListAndWatch=gate)

                await crew.kill_one()
                await asyncio.sleep(KILL_SECONDS)
                reports = await crew.settled()
                assert sum(len(it.held) for it in reports) == RANGES
                print(f"filtering: {gate}, {unowned(crew)}")

            writing.cancel()

        await crew.end()


def unowned(crew: ShardCrew) -> str:
    """Return the longest time without owner since the last kill."""
    since = [it.seconds for it in crew.gaps() if it.begin >= crew.kills[-1]]
    return f"unowned for up to {max(since, default=0.0):.1f} s"
