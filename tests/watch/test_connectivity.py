"""`Connectivity`: probes of an unreachable server."""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from itertools import pairwise

import pytest

from aioinformer.watch.connectivity import Connectivity


class Watcher:
    """Task that makes attempts of some length, which fail until the server is back."""

    def __init__(self, shared: Connectivity, log: list[tuple[str, float]]) -> None:
        self.shared = shared
        self.log = log
        self.lasts = 0.0

    async def run(self, name: str, back: asyncio.Event) -> None:
        while True:
            async with self.shared.turn():
                self.log.append((name, asyncio.get_running_loop().time()))
                await asyncio.sleep(self.lasts)
                if back.is_set():
                    self.shared.reached()
                    return

                self.shared.lost()

            await asyncio.sleep(1.2)


def down() -> Connectivity:
    shared = Connectivity(random.Random(1))
    shared.lost()
    return shared


async def test_attempts_do_not_wait_while_server_is_reachable() -> None:
    shared = Connectivity()

    async with shared.turn(), shared.turn():
        assert asyncio.get_running_loop().time() == 0


@pytest.mark.parametrize("lasts", [0.0, 10.0], ids=["refused", "no-answer"])
async def test_connectivity_allows_one_probe_at_a_time_and_per_second(
    lasts: float,
) -> None:
    shared, log, back = down(), list[tuple[str, float]](), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for number in range(5):
            watcher = Watcher(shared, log)
            watcher.lasts = lasts
            group.create_task(watcher.run(f"w{number}", back))

        await asyncio.sleep(100)
        back.set()
        while_down = list(log)

    gaps = [after - before for (_, before), (_, after) in pairwise(while_down)]
    assert all(max(lasts, 0.99) <= gap <= lasts + 1.51 for gap in gaps)
    assert {name for name, _ in while_down} == {f"w{n}" for n in range(5)}, "in turns"


async def test_response_ends_probe_while_attempt_continues() -> None:
    """A watch may last for minutes, and would be the last to notice the next outage."""
    shared = down()
    async with shared.turn():
        shared.reached()
        shared.lost()

        async with asyncio.timeout(2), shared.turn():
            assert shared.down


async def test_cancelled_probe_is_replaced() -> None:
    shared = down()
    waiting = asyncio.Event()

    async def probe() -> None:
        async with shared.turn():
            waiting.set()
            await asyncio.Event().wait()

    async def wait() -> float:
        async with shared.turn():
            return asyncio.get_running_loop().time()

    for give_up in (waiting.wait, lambda: asyncio.sleep(0)):
        prober = asyncio.create_task(probe())
        await give_up()
        other = asyncio.create_task(wait())
        await asyncio.sleep(30)
        prober.cancel()
        cancelled = asyncio.get_running_loop().time()

        assert await other - cancelled < 2
        shared.lost()


def test_each_client_has_one_connectivity() -> None:
    class Plain:
        pass

    one, another = Plain(), Plain()

    assert Connectivity.of(one) is Connectivity.of(one)
    assert Connectivity.of(one) is not Connectivity.of(another)
    unhashable: OrderedDict[str, str] = OrderedDict()
    assert Connectivity.of(unhashable) is not Connectivity.of(unhashable)


def test_connectivity_repr_shows_whether_server_is_reachable() -> None:
    shared = down()
    assert repr(shared) == "<Connectivity down>"

    shared.reached()

    assert repr(shared) == "<Connectivity up>"
