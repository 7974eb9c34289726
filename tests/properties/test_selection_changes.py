"""Random changes of objects, selections and connections: the store follows all of them."""

from __future__ import annotations

import asyncio
import random
import uuid
from typing import Any

import pytest
from informer_helpers import running
from selection_checker import SelectionChecker, same_state
from sharding_source import ShardingServer

from aioinformer import SharedInformer
from aioinformer.errors import ServerError, TransportError
from aioinformer.model.objects import KubeObject
from aioinformer.model.shards import ShardSelector, ranges_of
from aioinformer.testing import FakeListerWatcher
from aioinformer.watch import Selectors

RANGES = ranges_of(8)
STEPS = 120


class World:
    """A server, an informer, and random changes of both."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.fake = FakeListerWatcher()
        self.honoured = self.rng.choice([0.0, 0.5, 1.0])
        self.server = ShardingServer(
            self.fake,
            honours=lambda: self.rng.random() < self.honoured,
            lags=lambda least, newest: (
                newest if self.rng.random() < 0.5 else self.rng.randint(least, newest)
            ),
            list_seconds=lambda: self.rng.choice([0, 0, 0.5, 5]),
        )
        self.living: dict[str, dict[str, Any]] = {}
        self.checker, self.slow = SelectionChecker(), SelectionChecker()
        self.wanted = Selectors(shards=ShardSelector(RANGES[:3]))

    def create(self, name: str) -> None:
        namespace, name = name.split("/")
        uid = str(uuid.UUID(int=self.rng.getrandbits(128)))
        metadata = {"name": name, "namespace": namespace, "uid": uid}
        body = {"metadata": metadata | {"labels": {"app": self.rng.choice("ab")}}}
        self.living[f"{namespace}/{name}"] = body
        self.fake.add(body)

    def delete(self, name: str) -> None:
        self.fake.delete(self.living.pop(name))

    def change_object(self) -> None:
        name = f"{self.rng.choice('xyz')}/pod-{self.rng.randrange(12)}"
        if name not in self.living:
            self.create(name)
            return

        match self.rng.choice(["modify", "modify", "relabel", "delete", "again"]):
            case "delete":
                self.delete(name)
            case "again":
                self.delete(name)
                self.create(name)
            case "relabel":
                labels = {"app": self.rng.choice("ab")}
                self.living[name]["metadata"]["labels"] = labels
                self.fake.modify(self.living[name])
            case _:
                self.fake.modify(self.living[name])

    def change_selection(self, informer: SharedInformer) -> None:
        change: dict[str, Any] = {}
        if self.rng.random() < 0.85:
            number = self.rng.choice([0, 1, 2, 4, 7, 8])
            field = "uid" if self.rng.random() < 0.9 else "namespace"
            ranges = tuple(self.rng.sample(RANGES, number))
            change["shards"] = ShardSelector(ranges, field)  # type: ignore[arg-type]
        else:
            change["label_selector"] = self.rng.choice(["", "app=a", "app!=a"])

        informer.set_selection(**change)

    def disturb(self) -> None:
        match self.rng.randrange(6):
            case 0:
                self.fake.gone()
            case 1:
                self.fake.cut()
            case 2:
                self.fake.end()
            case 3:
                self.fake.bookmark()
            case 4:
                error = ServerError("the test", status=503, reason="ServiceUnavailable")
                self.fake.refuse(error, times=self.rng.randrange(1, 4))
            case _:
                self.fake.refuse(TransportError("the test"))

    async def run(self, informer: SharedInformer) -> None:
        for _ in range(STEPS):
            await asyncio.sleep(self.rng.choice([0, 0, 0.02, 0.2, 2]))
            draw = self.rng.random()
            if draw < 0.7:
                self.change_object()
            elif draw < 0.9:
                self.change_selection(informer)
            else:
                self.disturb()


async def converge(seed: int) -> World:
    world = World(seed)
    for _ in range(10):
        world.change_object()

    source = world.server.source(world.wanted)
    informer = SharedInformer(source, name="pods", rng=world.rng)
    informer.add_event_handler(on_event=world.checker)
    async with running(informer.run()):
        await world.run(informer)
        world.fake._refusals.clear()
        informer.add_event_handler(on_event=world.slow)
        await informer.wait_selection(timeout=600)
        world.fake.bookmark()
        await asyncio.sleep(120)
        world.fake.bookmark()
        await informer.wait_for_version(world.fake.resource_version, timeout=600)
        await asyncio.sleep(5)
        selected = Selectors.selects
        expected = {
            name: obj.uid
            for name, body in world.living.items()
            if selected(informer.selection, obj := KubeObject.of(body))
        }
        stored = {it.key: it.uid for it in informer.store.list()}
        assert stored == expected
        for checker in (world.checker, world.slow):
            assert checker.mistakes == []
            assert {k: it.uid for k, it in checker.present.items()} == expected
            for key, obj in checker.present.items():
                stored_one = informer.store.get_by_key(key)
                assert stored_one is not None
                assert same_state(stored_one, obj)

    return world


@pytest.mark.parametrize("seed", range(40))
async def test_store_follows_random_changes_of_the_selection(seed: int) -> None:
    await converge(seed)
