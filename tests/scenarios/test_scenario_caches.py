"""Processes that share a cache on disk, killed at random, on a full disk, and for long."""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import TYPE_CHECKING

import pytest
from cache_crew import crew_of, killings, verify

from aioinformer.testing.faults import Chaos

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.realtime, pytest.mark.looptime(False)]

SOAK_SECONDS = float(os.environ.get("CACHE_SOAK_SECONDS", "60"))
"""Duration of the soak. Set it to 1200 before a release."""

KILLS = 50


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(4))
async def test_caches_agree_with_the_server_after_50_kills(
    seed: int, tmp_path: Path
) -> None:
    async with crew_of(tmp_path / "cache", seed, workers=4, objects=400) as crew:
        await crew.agreed()
        await crew.hold()
        await killings(crew, KILLS)
        await verify(crew.cache_dir)
        await crew.end()


@pytest.mark.timeout(200)
@pytest.mark.parametrize("seed", [4, 5])
async def test_caches_agree_when_all_processes_die_again_and_again(
    seed: int, tmp_path: Path
) -> None:
    """Without another process, the store is set aside after five early deaths of all."""
    async with crew_of(tmp_path / "cache", seed, workers=1, objects=100) as crew:
        await killings(crew, 15)
        await verify(crew.cache_dir)
        await crew.end()


@pytest.mark.timeout(SOAK_SECONDS + 200)
async def test_eight_processes_agree_after_a_soak_with_chaos(tmp_path: Path) -> None:
    rng = random.Random(8)
    async with crew_of(tmp_path / "cache", 8, workers=8, objects=2_000) as crew:
        await crew.agreed()
        sizes: list[int] = []
        crew.server.faults.add(Chaos(seed=8, rate=0.3))
        until = time.monotonic() + SOAK_SECONDS
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(crew.writes.keep_writing(500))
            while time.monotonic() < until:
                await asyncio.sleep(20)
                writer = await crew.writer()
                victim = writer if writer and rng.random() < 0.5 else None
                victim = victim or rng.choice(crew.members)
                await crew.kill(victim)
                await crew.restart(victim)
                if rng.random() < 0.5:
                    await crew.server.restart()

                if rng.random() < 0.3:
                    crew.server.compact()

                sizes.append(crew.bytes_on_disk())
                for member in crew.members:
                    report = await crew.report(member)
                    print(report and (report.role, report.behind), sizes[-1])

            writing.cancel()

        crew.server.faults.clear()
        await crew.server.restart()
        reports = await crew.agreed()
        assert len([it for it in reports if it.role == "writer"]) == 1
        assert crew.readers() == len(crew.members)
        # The journal has its bound after a minute; later the file does not grow.
        assert sizes[-1] < 200 * 2**20
        await verify(crew.cache_dir)
        await crew.end()
        assert crew.readers() == 0
