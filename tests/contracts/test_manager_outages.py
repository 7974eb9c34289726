"""G8, G10, G11 and the return of a leader when the API server or the network is away.

Two replicas of a program, each with a manager, an elector, a controller and a web
endpoint. Reconciles take up to 30 s, need up to 3 s to end, and write then. Time is
virtual; HTTP, the server and everything above are real.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import config_map
from leader_helpers import now

from aioinformer import Controller, LeaderElector, LeadershipLost, Manager
from aioinformer.controller import LeaseLock
from aioinformer.errors import TransportError
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer
from aioinformer.web.health import health_responders
from aioinformer.web.responses import EndpointRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aioinformer.controller import Context
    from aioinformer.controller.reconcile import ReconcileRequest

KEYS = 6
SEEDS = 2

BACK_SECONDS = 20.0
"""Time after the return of the server in which a replica must lead."""


class Line:
    """Network between one replica and the server."""

    def __init__(self, replica: Replica, client: Any) -> None:
        self.mode = "up"
        self._replica = replica
        self._send = client._endpoint.send
        self._up = asyncio.Event()
        client._endpoint.send = self.send
        self._watches: list[Any] = []

    async def send(self, request: Any, **options: Any) -> Any:
        of_lease = "/leases/" in request.path
        if self.mode == "hung" or (self.mode == "lease-hung" and of_lease):
            # When the line is back, some requests arrive late, the others never.
            await self._up.wait()
            if self._replica.rng.random() < 0.5:
                await asyncio.Event().wait()
        elif self.mode == "cut":
            raise TransportError("no route to host")

        led = self._replica.elector.is_leader
        response = await self._send(request, **options)
        if request.method == "PATCH" and not led:
            self._replica.unfenced.append(request.path)

        if "watch" in request.params:
            self._watches.append(response)

        return response

    def fail(self, mode: str) -> None:
        self.mode = mode
        self._up.clear()
        while mode == "cut" and self._watches:
            self._watches.pop().close()

    def heal(self) -> None:
        self.mode = "up"
        self._up.set()


class Replica:
    """One program."""

    def __init__(self, world: World, server: APIServer, name: str) -> None:
        self.world = world
        self.name = name
        self.rng = random.Random(f"{world.seed} {name}")
        self.unfenced: list[str] = []
        self.answers: list[int] = []
        client = server.client()
        lock = LeaseLock(client, "copier", namespace="default", identity=name)
        self.elector = LeaderElector(lock, rng=self.rng)
        self.manager = Manager(client, elector=self.elector)
        self.line = Line(self, client)
        maps = self.manager.informer(CONFIG_MAPS)
        self.manager.add(Controller("maps", self.reconcile, for_=maps, concurrency=3))
        self.manager.add(self.web, leader_only=False)

    async def web(self) -> None:
        responders = health_responders(self.manager)
        while True:
            for path in ("/livez", "/readyz"):
                answer = await responders[path](EndpointRequest())
                self.answers.append(answer.status)

            await asyncio.sleep(1)

    async def reconcile(self, request: ReconcileRequest, ctx: Context) -> None:
        with self.world.working(self, request.name):
            try:
                await asyncio.sleep(self.rng.choice([0.1, 1.0, 30.0]))
                await self.write(request, ctx)
            finally:
                await asyncio.sleep(self.rng.uniform(0, 3))
                await self.write(request, ctx)

    async def write(self, request: ReconcileRequest, ctx: Context) -> None:
        body = {"data": {"by": self.name, "at": str(now())}}
        try:
            await ctx.client.patch(
                CONFIG_MAPS, request.name, body, namespace=request.namespace
            )
        except LeadershipLost:
            self.world.refused += 1


class _Working:
    def __init__(self, world: World, replica: Replica, name: str) -> None:
        self._world = world
        self._replica = replica
        self._name = name

    def __enter__(self) -> None:
        by = self._world.at_work.setdefault(self._name, [])
        by.append(self._replica.name)
        self._world.reconciles += 1
        if len(by) > 1:
            self._world.overlaps.append((self._name, tuple(by), now()))

    def __exit__(self, *_: object) -> None:
        self._world.at_work[self._name].remove(self._replica.name)


class World:
    """Two replicas and what was observed of them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.at_work: dict[str, list[str]] = {}
        self.overlaps: list[tuple[str, tuple[str, ...], float]] = []
        self.reconciles = 0
        self.refused = 0
        self.replicas: list[Replica] = []

    def working(self, replica: Replica, name: str) -> _Working:
        return _Working(self, replica, name)

    @property
    def leaders(self) -> list[Replica]:
        return [it for it in self.replicas if it.elector.is_leader]

    async def until(self, condition: Callable[[], object], seconds: float) -> float:
        """Wait for a condition, and return how long that took."""
        start = now()
        while not condition():
            assert now() - start <= seconds, f"not within {seconds} s ({self.seed=})"
            await asyncio.sleep(0.25)

        return now() - start

    def check(self) -> None:
        assert self.overlaps == [], "one key, two reconciles"
        for replica in self.replicas:
            assert replica.manager.running
            assert replica.unfenced == [], "sent without leadership"
            assert set(replica.answers) == {200}


@asynccontextmanager
async def world(seed: int) -> AsyncIterator[tuple[World, APIServer]]:
    async with APIServer() as server:
        for number in range(KEYS):
            server.create(CONFIG_MAPS, config_map(f"map-{number}"))

        it = World(seed)
        it.replicas = [Replica(it, server, name) for name in "ab"]
        async with it.replicas[0].manager, it.replicas[1].manager:
            await it.until(lambda: it.leaders and it.reconciles > KEYS, 60)
            await asyncio.sleep(it.rng.uniform(0, 10))
            for replica in it.replicas:
                replica.answers.clear()  # not ready before the first sync

            yield it, server


async def away(it: World, server: APIServer, how: str, seconds: float) -> None:
    """Take the server away from both replicas."""
    if how == "stopped":
        await server.stop()
        await asyncio.sleep(seconds)
        await server.start()
        return

    for replica in it.replicas:
        replica.line.fail(how)

    await asyncio.sleep(seconds)
    for replica in it.replicas:
        replica.line.heal()


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize("how", ["stopped", "cut", "hung"])
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_G11_outage_of_the_server_ends_no_program_and_a_leader_returns(
    how: str, seed: int
) -> None:
    async with world(seed) as (it, server):
        for _ in range(2):
            seconds = it.rng.uniform(5, 120)
            await away(it, server, how, seconds)
            assert seconds < 11 or not it.leaders
            await it.until(lambda: it.leaders, BACK_SECONDS)
            before = it.reconciles
            await it.until(lambda: it.reconciles > before, 60)  # noqa: B023
            await asyncio.sleep(40)
            it.check()


@pytest.mark.parametrize("how", ["cut", "hung", "lease-hung"])
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_G11_partition_of_the_leader_moves_leadership(
    how: str, seed: int
) -> None:
    async with world(seed) as (it, _):
        for _ in range(2):
            (leader,) = it.leaders
            (other,) = (one for one in it.replicas if one is not leader)
            leader.line.fail(how)
            await asyncio.sleep(it.rng.uniform(15, 60))
            await it.until(lambda: it.leaders == [other], BACK_SECONDS)  # noqa: B023
            leader.line.heal()
            before = it.reconciles
            await it.until(lambda: it.reconciles > before, 60)  # noqa: B023
            await asyncio.sleep(40)
            assert it.leaders == [other]
            it.check()

        assert it.refused, "reconciles wrote after the loss"
