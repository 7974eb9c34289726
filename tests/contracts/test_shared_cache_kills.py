"""Processes with one cache agree with the server after kills; `make e2e` kills more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cache_crew import crew_of, killings, verify
from processes import in_real_time

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = in_real_time


@pytest.mark.parametrize("seed", [1, 2])
async def test_G1_G5_G6_hold_when_processes_of_a_cache_are_killed(
    seed: int, tmp_path: Path
) -> None:
    async with crew_of(tmp_path / "cache", seed, workers=2, objects=100) as crew:
        await crew.agreed()
        await crew.hold()
        await killings(crew, 6)
        await verify(crew.cache_dir)
        await crew.end()
        assert crew.readers() == 0


async def test_cache_goes_on_in_memory_when_its_disk_is_full(tmp_path: Path) -> None:
    async with crew_of(tmp_path / "cache", 3, workers=1, objects=100) as crew:
        await crew.agreed()
        limited = await crew.add(file_limit=crew.bytes_on_disk() + 400_000)
        await crew.agreed()
        await crew.kill(crew.members[0])
        crew.members.remove(crew.members[0])
        (report,) = await crew.agreed()
        for _ in range(50):
            if report.role == "memory":
                break

            for _ in range(500):
                crew.writes.write()

            (report,) = await crew.agreed()

        assert report.role == "memory"
        assert crew.members == [limited]
