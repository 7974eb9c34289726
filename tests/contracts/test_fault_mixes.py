"""Random faults of every kind, on lists and watches, one after another.

test_fault_matrix.py has the single faults. Here a fault may strike during the recovery
from another one. A failure names its seed and the drawn faults.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from fault_runs import Run, running_pods
from ledger import Ledger

from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import Chaos, Fault, Occasion, StepBack

if TYPE_CHECKING:
    from pathlib import Path

WRITES = 160
STRIKES = 15

WAYS: dict[str, dict[str, Any]] = {
    "whole": {},
    "pages": {"page_size": 3},
    "streams": {"page_size": 3, "streaming_list": True},
    "disk": {"page_size": 3},
}


def options_of(way: str, directory: Path) -> dict[str, Any]:
    """Return the options of a way; `directory` is for a store on disk."""
    cache = directory if way == "disk" else None
    return {"watch_seconds": 5, "cache": cache, **WAYS[way]}


class Honest(Chaos):
    """Chaos without lies, such as wrong versions that a client cannot detect.

    An old version of the first list is no lie: nothing was known before it.
    """

    def take(self, occasion: Occasion) -> Fault | None:
        fault = super().take(occasion)
        if not isinstance(fault, StepBack):
            return fault

        query = occasion.query
        not_older = query.get("resourceVersionMatch") == "NotOlderThan"
        honest = {
            "list": not_older or query.get("resourceVersion") == "0",
            "watch": "sendInitialEvents" not in query,
        }
        return fault if honest[occasion.verb] else None


async def survive(run: Run, chaos: Chaos) -> None:
    """Write for 40 s, then slowly until the chaos has ended."""
    await run.ledger.keep_writing(WRITES // 2)
    run.witness()
    await run.ledger.keep_writing(WRITES // 2)
    while len(run.server.faults) and len(chaos.drawn) < STRIKES:
        await run.ledger.keep_writing(1, seconds=2.0)

    run.server.faults.clear()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(3))
async def test_informer_converges_under_random_faults(
    seed: int, way: str, tmp_path: Path
) -> None:
    chaos = Honest(seed=seed, rate=0.6, limit=STRIKES)
    async with APIServer(bookmark_seconds=2, fresh_seconds=0.5) as server:
        ledger = Ledger(server, random.Random(seed))
        server.faults.add(chaos)
        options = options_of(way, tmp_path)
        async with running_pods(server, ledger, seed=seed, **options) as run:
            await survive(run, chaos)
            await run.settled()

    assert run.verdict() == [], chaos
    assert len(chaos.drawn) == STRIKES


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(2))
async def test_informer_converges_once_the_server_stops_lying(
    seed: int, way: str, tmp_path: Path
) -> None:
    chaos = Chaos(seed=seed, rate=0.6, limit=STRIKES, lies=True)
    async with APIServer(bookmark_seconds=2, fresh_seconds=0.5) as server:
        ledger = Ledger(server, random.Random(seed))
        server.faults.add(chaos)
        options = options_of(way, tmp_path)
        async with running_pods(
            server, ledger, seed=seed, lied_to=True, **options
        ) as run:
            await survive(run, chaos)
            await run.list_again()
            await run.settled()

    assert run.verdict() == [], chaos
    assert len(chaos.drawn) == STRIKES
