"""`Follower` under random interleavings: each handler ends with the store."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

import pytest
from fake_source import thing
from pipeline_helpers import View

from aioinformer.informer.notifications import Deleted, object_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from cached_helpers import Followed

    from aioinformer.informer.notifications import Notification
    from aioinformer.informer.store.waiters import KeyWaiter
    from aioinformer.model import KubeObject

NAMES = [f"p{number:04}" for number in range(1100)]


class Handler(View):
    """A handler of some speed, which never contradicts what it was told before.

    Args:
        seconds: Seconds of each call.
        earlier: Uids of the objects that the program knew before its restart.
        coalesce: True if queued notifications are merged.
    """

    def __init__(
        self, seconds: float, earlier: set[str], *, coalesce: bool = False
    ) -> None:
        super().__init__()
        self.coalesce = coalesce
        self.seconds = seconds
        self.earlier = set(earlier)

    async def __call__(self, event: Notification) -> None:  # type: ignore[override]
        if self.seconds:
            await asyncio.sleep(self.seconds)

        match event:
            case Deleted(obj=obj) if obj.key not in self.objects:
                if obj.uid not in self.earlier:
                    self.broken.append(f"{obj.key}: deleted, but never known")

                self.earlier.remove(obj.uid)
            case _:
                if self.coalesce and isinstance(event, Deleted):
                    # A merged deletion has the last of several states.
                    event = Deleted(event.obj)

                super().__call__(event)
                self.earlier.discard(object_of(event).uid)


class Program:
    """A random program of one store, its writer, and the handlers of one process."""

    def __init__(self, seed: int, followed: Callable[..., Followed]) -> None:
        self.rng = random.Random(seed)
        self.version = 1000
        names = self.rng.sample(NAMES, self.rng.choice([0, 3, 150, 1000, 1000]))
        self.private = self.rng.random() < 0.5
        objects = [self.new(name) for name in names]
        self.rig = followed(*objects, private=self.private)
        self.handlers: list[Handler] = []
        self.waits = contextlib.ExitStack()
        self.waiters: list[tuple[str, KeyWaiter]] = []
        self.earlier = {obj.uid for obj in self.rig.objects.values()}

    def new(self, name: str, uid: str = "") -> KubeObject:
        self.version += 1
        return thing(name, self.version, uid=uid or f"{name}-{self.version}")

    def change(self) -> None:
        """Make some changes, in one step of the writer."""
        rig, rng = self.rig, self.rng
        stored = rig.objects
        for _ in range(rng.choice([1, 1, 3, 40])):
            name = rng.choice(NAMES)
            key = f"default/{name}"
            old = stored.get(key)
            draw = rng.random()
            if old is None or draw < 0.1:
                rig.put(self.new(name))
            elif draw < 0.6:
                rig.put(self.new(name, old.uid))
            else:
                rig.delete(key, missed=draw < 0.7)

    def relist(self) -> None:
        """Delete everything, then list into the empty store."""
        rig = self.rig
        rig.delete(*rig.objects)
        names = self.rng.sample(NAMES, self.rng.choice([0, 1, 100, 1000]))
        rig.list_into_empty(*(self.new(name) for name in names))

    def add_handler(self) -> None:
        rig, rng = self.rig, self.rng
        earlier = set() if rig.follower.synced else self.earlier
        coalesce = rng.random() < 0.3
        seconds = rng.choice([0, 0, 0.0005, 0.005])
        handler = Handler(seconds, earlier, coalesce=coalesce)
        self.handlers.append(handler)
        rig.listen(handler, coalesce=coalesce)

    def wait_for_key(self) -> None:
        """Begin to wait for a key, with the state of the store that is told now."""
        rig = self.rig
        key = f"default/{self.rng.choice(NAMES[:5])}"
        with rig.follower.reading() as current:
            if not current:
                return

            state = rig.followed.objects.get(key)

        waiter = self.waits.enter_context(rig.waiters.for_key(key))
        waiter.states.append(state)
        self.waiters.append((key, waiter))

    def remove_handler(self) -> None:
        listeners = self.rig.processor.listeners
        if listeners:
            index = self.rng.randrange(len(listeners))
            self.rig.processor.remove(listeners[index])
            self.handlers.pop(index)

    async def run(self) -> None:
        rig, rng = self.rig, self.rng
        self.add_handler()
        confirmed = rng.random() < 0.7
        if confirmed:
            rig.confirm()

        async with rig.running():
            for _ in range(rng.choice([5, 30, 60])):
                draw = rng.random()
                if draw < 0.6:
                    self.change()
                elif draw < 0.63:
                    self.relist()
                elif draw < 0.7:
                    self.add_handler()
                elif draw < 0.73:
                    self.remove_handler()
                elif draw < 0.8:
                    header = rig.env.header
                    rig.trim(rng.randint(header.first, header.last + 1))
                elif draw < 0.9 and rig.follower.synced:
                    self.wait_for_key()

                await asyncio.sleep(rng.choice([0, 0, 0.001, 0.02, 1.5]))

            if not rig.env.header.listed:
                self.relist()

            rig.confirm()
            async with asyncio.timeout(600):
                for listener in rig.processor.listeners:
                    await listener.wait_synced()

                await asyncio.sleep(1.1)
                await rig.processor.drained()

            self.waits.close()


@pytest.mark.parametrize("seed", range(25))
async def test_handlers_of_any_speed_end_with_the_store(
    followed: Callable[..., Followed], seed: int
) -> None:
    program = Program(seed, followed)

    await program.run()

    rig = program.rig
    for handler in program.handlers:
        assert handler.broken == []
        assert handler.objects == rig.states
        # Every object that is gone was told, unless its addition was merged with that.
        stored = {obj.uid for obj in rig.objects.values()}
        assert handler.coalesce or handler.earlier <= stored

    for key, waiter in program.waiters:
        states = [obj and obj.resource_version for obj in waiter.states]
        versions = [int(it) for it in states if it]
        assert states[-1] == rig.states.get(key)
        assert versions == sorted(set(versions))

    if program.private:
        assert rig.indexed == rig.states
