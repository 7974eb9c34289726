"""`SharedInformerFactory` against a model: blocks are entered, left and cancelled.

The model: an informer exists while a block uses it, or permanently once `informer()`
was called. After the factory's end there are none.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from factory_helpers import FakeClient

from aioinformer.errors import InformerStopped
from aioinformer.informer import SharedInformerFactory

if TYPE_CHECKING:
    from aioinformer.informer import SharedInformer

RESOURCES = ("pods", "nodes")
STEPS = 12
TURNS = 30
"""More time than it takes to stop an informer without handlers."""


@dataclass(eq=False)
class Block:
    """A temporary user of an informer."""

    resource: str
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    informer: SharedInformer | None = None
    task: asyncio.Task[None] = field(init=False)

    def enter(self, factory: SharedInformerFactory) -> None:
        self.task = asyncio.create_task(self._use(factory))

    async def _use(self, factory: SharedInformerFactory) -> None:
        async with factory.use("v1", self.resource) as self.informer:
            await self.enough.wait()


@dataclass(eq=False)
class Trial:
    """A factory and its model."""

    rng: random.Random
    client: FakeClient = field(default_factory=FakeClient)
    lasting: set[str] = field(default_factory=set)
    blocks: list[Block] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    seen: set[SharedInformer] = field(default_factory=set)
    ended: bool = False

    def __post_init__(self) -> None:
        self.factory = SharedInformerFactory(self.client)

    async def step(self) -> None:
        """Do one or several actions in the same turn of the loop."""
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            action = self.rng.choice(
                (self.enter, self.enter, self.leave, self.leave, self.cancel, self.ask)
            )
            action()
            await self._turns(self.rng.choice((0, 0, 1, 2, 5)))

        if self.rng.random() < 0.05:
            self.ended = True
            await self.factory.shutdown()

        await self._turns(TURNS)
        self.check()

    def enter(self) -> None:
        block = Block(self.rng.choice(RESOURCES))
        block.enter(self.factory)
        self.tasks.append(block.task)
        self.blocks.append(block)

    def leave(self) -> None:
        if self.blocks:
            self.blocks.pop(self.rng.randrange(len(self.blocks))).enough.set()

    def cancel(self) -> None:
        if self.blocks:
            self.blocks.pop(self.rng.randrange(len(self.blocks))).task.cancel()

    def ask(self) -> None:
        resource = self.rng.choice(RESOURCES)
        if self.ended:
            with pytest.raises(InformerStopped):
                self.factory.informer("v1", resource)
        elif self.rng.random() < 0.3:  # otherwise all informers would soon be permanent
            self.factory.informer("v1", resource)
            self.lasting.add(resource)

    def check(self) -> None:
        self.seen.update(self.factory.informers)
        if self.ended:
            assert {it.status.phase for it in self.seen} <= {"stopped"}
            refused = [it for it in self.blocks if it.informer is None]
            assert all(
                isinstance(it.task.exception(), InformerStopped) for it in refused
            )
            return

        there = {it.name: it for it in self.factory.informers}
        assert there.keys() == self.lasting | {it.resource for it in self.blocks}
        assert {it.status.phase for it in there.values()} <= {"listing"}
        for block in self.blocks:
            assert block.informer is there[block.resource], "one for all users"

        for removed in self.seen - set(there.values()):
            assert removed.status.phase == "stopped"

    async def end(self) -> None:
        for block in self.blocks:
            block.enough.set()

        await self.factory.shutdown()
        # Also of the blocks that were left, whose errors asyncio would log.
        await asyncio.gather(*self.tasks, return_exceptions=True)
        assert {it.status.phase for it in self.seen} <= {"stopped"}
        assert self.client.record.count("entered") == 1
        assert not self.client.entered

    async def _turns(self, number: int) -> None:
        for _ in range(number):
            await asyncio.sleep(0)


@pytest.mark.parametrize("part", range(2))
async def test_informer_exists_while_it_has_users(part: int) -> None:
    before = asyncio.all_tasks()
    for seed in range(40 * part, 40 * (part + 1)):
        trial = Trial(random.Random(seed))
        await trial.factory.start()
        for _ in range(STEPS):
            await trial.step()

        await trial.end()
        assert asyncio.all_tasks() == before, seed
