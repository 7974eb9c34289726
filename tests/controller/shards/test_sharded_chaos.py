"""Sharded controllers under random failures and changes: each object has one worker.

More seeds: `SHARDS_SEEDS=100 make test ARGS="-k sharded_chaos"`.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from fleet_helpers import Fleet, Member
from shards_helpers import now

from aioinformer import KubeObject
from aioinformer.controller import Result, set_controller_reference
from aioinformer.errors import LeadershipLost
from aioinformer.model.resources import CONFIG_MAPS, LEASES, SECRETS
from aioinformer.testing import APIServer
from aioinformer.testing.faults import Refuse

if TYPE_CHECKING:
    from aioinformer.controller import Context, ReconcileRequest

SEEDS = int(os.environ.get("SHARDS_SEEDS", "1"))
STEPS = 8 if SEEDS > 1 else 3
NAMES = 30


class Chaos:
    """Replicas and objects, which random failures and changes strike."""

    def __init__(self, server: APIServer, seed: int, **group: Any) -> None:
        self.server = server
        self.rng = random.Random(seed)
        # Otherwise one replica works on all objects of a name, with a cache that may lag.
        self.reads_absent = group["shard_by"] == "uid"
        self.fleet = Fleet(
            server,
            self.act,
            owns=[SECRETS],
            concurrency=20,
            daemons=[self.daemon],
            group=group,
        )
        self.count = 0
        self.dying = list[asyncio.Task[None]]()
        self.born = dict[str, float]()
        # Times of the last changes of children, and of the last reconciles, by uid.
        self.poked = dict[str, float]()
        self.begun = dict[str, float]()
        self.seen = dict[str, str]()  # versions, by uid
        self.failed = set[tuple[str, str]]()
        self.done = Counter[str]()
        self.steps = list[str]()

    # ------------------------------------------------------------ user's code

    async def act(self, name: str, request: ReconcileRequest, ctx: Context) -> Any:
        obj, began = ctx.lister.get(request.key), now()
        if obj is None:
            self.done["absent"] += 1
            for found in self.server.objects(CONFIG_MAPS):
                uid = found["metadata"]["uid"]
                if KubeObject.of(found).key == request.key and (
                    self.reads_absent and now() - self.born[uid] > 1
                ):
                    self.fleet.problems.append(f"{name}: {request.key} is not absent")

            return None

        await asyncio.sleep(self.rng.choice([0.0, 0.0, 0.3, 3.0]))
        state = obj.uid, obj.resource_version
        if self.rng.random() < 0.1 and state not in self.failed:
            self.failed.add(state)
            raise ValueError("not yet")

        if obj.at("metadata.deletionTimestamp") is not None:
            await self.patch(ctx, {"metadata": {"finalizers": None}})
        elif obj.at("data.by") != name:
            await self.patch(ctx, {"data": {"by": name}})

        self.seen[obj.uid] = obj.resource_version
        self.begun[obj.uid] = began
        self.done["reconciles"] += 1
        return Result(requeue_after=20) if request.name.endswith("7") else None

    async def patch(self, ctx: Context, change: dict[str, Any]) -> None:
        name, namespace = ctx.request.name, ctx.request.namespace
        try:
            await ctx.client.patch(CONFIG_MAPS, name, change, namespace=namespace)
        except LeadershipLost:
            self.done["refused"] += 1
            raise

    async def daemon(self, request: ReconcileRequest, ctx: Context) -> None:
        name = asyncio.current_task().get_name()  # type: ignore[union-attr]
        async with self.fleet.at_work(name, "daemon", ctx):
            try:
                await asyncio.sleep(1e6)
            except asyncio.CancelledError:
                await asyncio.sleep(self.rng.uniform(0, 0.8))
                if self.rng.random() < 0.1:
                    await asyncio.sleep(1e6)

                raise

    # ------------------------------------------------------------ objects

    def change(self) -> None:
        """Change one object, or a child."""
        kinds = ["delete", "update", "update", "child", "child", "stale", "finalize"]
        name = f"map-{self.rng.randrange(NAMES)}"
        place = namespace_of(name)
        found = self.find(name)
        if found is None:
            self.create(name)
            return

        match self.rng.choice(kinds):
            case "delete":
                self.server.delete(CONFIG_MAPS, name, namespace=place)
                if self.rng.random() < 0.7 and self.find(name) is None:
                    self.create(name)
            case "update":
                data = {"data": {"a": str(self.rng.random())}}
                self.server.patch(CONFIG_MAPS, name, data, namespace=place)
            case "finalize":
                finalizers = {"metadata": {"finalizers": ["example.com/x"]}}
                if found.at("metadata.deletionTimestamp") is None:
                    self.server.patch(CONFIG_MAPS, name, finalizers, namespace=place)
                    self.server.delete(CONFIG_MAPS, name, namespace=place)
            case "child":
                self.child(found)
            case _:  # stale
                body = found.to_dict()
                uid = f"gone-{self.rng.random()}"
                self.child(
                    KubeObject.of(body | {"metadata": body["metadata"] | {"uid": uid}})
                )

    def find(self, name: str) -> KubeObject | None:
        for found in self.server.objects(CONFIG_MAPS):
            if found["metadata"]["name"] == name:
                return KubeObject.of(found)

        return None

    def create(self, name: str) -> None:
        body = {"metadata": {"name": name}}
        found = self.server.create(CONFIG_MAPS, body, namespace=namespace_of(name))
        self.born[found["metadata"]["uid"]] = now()

    def child(self, owner: KubeObject) -> None:
        owner = KubeObject.of(
            {"apiVersion": "v1", "kind": "ConfigMap"} | owner.to_dict()
        )
        self.count += 1
        metadata = {"name": f"{owner.name}-{self.count}", "namespace": owner.namespace}
        body = {"metadata": metadata}
        self.server.create(SECRETS, set_controller_reference(owner, body))
        if not owner.uid.startswith("gone"):
            self.poked[owner.uid] = now()

    async def changes(self, seconds: float) -> None:
        until = now() + seconds
        while now() < until:
            self.change()
            await asyncio.sleep(self.rng.uniform(0, 0.4))

    # ------------------------------------------------------------ replicas

    async def step(self) -> None:
        names = ["join", "leave", "kill", "cut", "silence", "stall", "compact"]
        names += ["refuse", "restart", "again"]
        self.steps.append(self.rng.choice(names))
        await getattr(self, self.steps[-1])()

    async def join(self) -> None:
        self.count += 1
        await self.fleet.start(f"r-{self.count}")

    def draw(self) -> Member:
        return self.rng.choice(list(self.fleet.members.values()))

    async def leave(self) -> None:
        if len(self.fleet.members) > 2:
            await self.fleet.stop(self.draw().name)

    async def kill(self) -> None:
        if len(self.fleet.members) > 2:
            member = self.fleet.kill(self.draw().name)
            self.dying.append(asyncio.create_task(member.stack.aclose()))

    async def cut(self) -> None:
        link = self.draw().link
        link.break_off()
        await self.changes(self.rng.uniform(1, 40))
        link.mend()

    async def silence(self) -> None:
        link = self.draw().link
        link.silence()
        await self.changes(self.rng.uniform(1, 40))
        link.mend()

    async def stall(self) -> None:
        self.draw().link.swallow_watches()

    async def compact(self) -> None:
        self.server.compact()
        for member in self.fleet.members.values():
            member.link.cut("fin")

    async def refuse(self) -> None:
        for status in (409, 429, 500, 503):
            fault = Refuse(status=status, times=5, skip=self.rng.randrange(10))
            self.server.faults.add(fault)

    async def restart(self) -> None:
        await self.server.stop()
        await asyncio.sleep(self.rng.uniform(0, 30))
        await self.server.start()

    async def again(self) -> None:
        """Remove the controller of a replica, and add it again."""
        member = self.draw()
        await member.manager.remove(member.controller)
        if self.rng.random() < 0.5:
            await self.changes(self.rng.uniform(0, 10))

        member.manager.add(member.controller)

    # ------------------------------------------------------------ checks

    async def check(self) -> None:
        """Wait until all is quiet; then each object was seen in its last state."""
        self.server.faults.clear()
        for member in self.fleet.members.values():
            member.link.cut("fin")  # a silent watch would be noticed minutes later

        await self.fleet.settled(120)

        await self.changes(5)  # no move helps to see these
        await asyncio.sleep(60)
        for body in self.server.objects(CONFIG_MAPS):
            obj = KubeObject.of(body)
            seen = self.seen.get(obj.uid)
            if seen != obj.resource_version:
                self.fleet.problems.append(
                    f"{obj.key} {obj.uid}: seen {seen}, is {obj.resource_version}"
                )

            if self.poked.get(obj.uid, 0.0) > self.begun.get(obj.uid, 0.0):
                self.fleet.problems.append(f"{obj.key}: a child was not seen")

        assert self.fleet.problems == []

    async def end(self) -> None:
        await asyncio.gather(*map(self.fleet.stop, tuple(self.fleet.members)))
        await asyncio.gather(*self.dying)
        assert self.fleet.working == {}


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("field", ["uid", "namespace"])
async def test_no_object_has_two_workers_in_chaos(seed: int, field: Any) -> None:
    gates = {"ShardedListAndWatch": seed % 2 == 0}
    async with APIServer(auto_namespaces=True, feature_gates=gates) as server:
        chaos = Chaos(server, seed, shard_by=field)
        for number in range(NAMES):
            chaos.create(f"map-{number}")

        try:
            for _ in range(3):
                await chaos.join()

            await chaos.fleet.settled()
            for _ in range(STEPS):
                await chaos.step()
                await chaos.changes(chaos.rng.uniform(0, 20))
                if chaos.rng.random() < 0.3:
                    await chaos.check()

            await chaos.check()
        finally:
            await chaos.end()

        assert chaos.done["reconciles"] > 100
        assert [it for it in fences(server) if it["spec"]["holderIdentity"]] == []


def namespace_of(name: str) -> str:
    return f"namespace-{sum(map(ord, name)) % 6}"


def fences(server: APIServer) -> list[dict[str, Any]]:
    return [it for it in server.objects(LEASES) if "-range-" in it["metadata"]["name"]]
