"""`Processor` against a plain model, with handlers of all kinds."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
from fake_source import thing
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from informer_helpers import Stage
from processor_model import HandlerModel, Store

from aioinformer.informer import Added, Deleted, Updated
from aioinformer.informer.handlers.inbox import Snapshot
from aioinformer.informer.handlers.resync import Resync
from examples import examples

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioinformer.informer.handlers.listener import Listener
    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject

CROWDED = 4
# More turns than any handler needs until it waits.
TURNS = 25
NAMES = "abcd"
ALL = 1000
KINDS = ["slow", "plain", "async", "waits", "slow", "fails", "slow-fails", "gives-up"]


def number_of(obj: KubeObject) -> int:
    return int(obj.resource_version)


def raises(obj: KubeObject) -> bool:
    if number_of(obj) % 3:
        raise ValueError(obj.key)

    return False


# Filters, and equivalent functions.
FILTERS: dict[str, tuple[Any, Any]] = {
    "all": (None, None),
    "even": (lambda it: number_of(it) % 2 == 0,) * 2,
    "raises": (raises, lambda it: number_of(it) % 3 != 0),
    "some names": (lambda it: it.name in "ab",) * 2,
}


class MapStore:
    """The part of a store that a resync needs."""

    def __init__(self, objects: Store) -> None:
        self.objects = objects

    def list(self) -> list[KubeObject]:
        return [*self.objects.values()]

    def get_by_key(self, key: str) -> KubeObject | None:
        return self.objects.get(key)


class Follower:
    """A handler with its listener, model and notifications."""

    def __init__(self, kind: str, model: HandlerModel) -> None:
        self.kind = kind
        self.model = model
        self.received: list[Notification] = []
        self.listener: Listener | None = None
        self.resync_at = 0.0
        self.period = 0.0
        self.released = 0
        self.released_by_model = 0
        self.wake = asyncio.Event()

    def __call__(self, event: Notification) -> Awaitable[None] | None:
        self.received.append(event)
        if self.kind == "fails":
            raise ValueError(event)

        if self.kind == "gives-up":
            raise asyncio.CancelledError

        return None if self.kind == "plain" else self.later(event)

    async def later(self, event: Notification) -> None:
        if self.kind == "waits":
            await asyncio.sleep(0)

        if self.is_slow:
            while not self.released:
                await self.wake.wait()
                self.wake = asyncio.Event()

            self.released -= 1

        if self.kind == "slow-fails":
            raise ValueError(event)

    @property
    def is_slow(self) -> bool:
        return self.kind.startswith("slow")

    @property
    def failures(self) -> int:
        """Return the number of its failed calls."""
        if self.kind not in {"fails", "slow-fails", "gives-up"}:
            return 0

        in_work = self.is_slow and self.model.in_work is not None
        return len(self.model.received) - in_work

    def run_model(self) -> None:
        """Advance the model's handler as far as possible."""
        while True:
            if self.model.in_work is not None:
                if self.is_slow and not self.released_by_model:
                    return

                self.released_by_model -= self.is_slow
                self.model.finish()

            if self.model.take() is None:
                return


class ProcessorMachine(RuleBasedStateMachine):
    """A state machine that drives a processor and its models by the same calls."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("aioinformer.informer.handlers.inbox.CROWDED", CROWDED)
        # Slices depend on real time, which is no part of the sequence.
        self.patch.setattr("aioinformer.budget.SLICE_SECONDS", 1e9)
        logging.disable()
        self.loop = asyncio.new_event_loop()
        self.clock = 0.0
        self.loop.time = lambda: self.clock  # type: ignore[method-assign]
        self.stage = Stage()
        self.objects: Store = {}
        self.version = 0
        self.followers: list[Follower] = []

    @initialize(names=st.sets(st.sampled_from(NAMES)))
    def begin(self, names: set[str]) -> None:
        for name in sorted(names):
            self.one_change(name, "write")

        async def begin() -> asyncio.Task[None]:
            return asyncio.create_task(self.stage.run())

        self.life = self.loop.run_until_complete(begin())
        self.run(lambda: None)
        # Failures of slow handlers need a few more steps to be found.
        self.add_handler("slow", "all", coalesce=True, period=0)
        self.add_handler("slow", "all", coalesce=False, period=2)

    def teardown(self) -> None:
        if hasattr(self, "life"):
            self.run(self.life.cancel)
            assert asyncio.all_tasks(self.loop) == set()
            timers: Any = self.loop
            assert all(it.cancelled() for it in timers._scheduled)

        self.loop.close()
        self.patch.undo()
        logging.disable(logging.NOTSET)

    def run(self, call: Callable[[], object]) -> None:
        """Make a call inside the loop, then let every task run until it waits."""

        async def inside() -> None:
            call()
            for _ in range(TURNS):
                await asyncio.sleep(0)

        self.loop.run_until_complete(inside())
        for follower in self.followers:
            follower.run_model()

    # ------------------------------------------------------------ rules

    @rule(
        changes=st.lists(
            st.tuples(
                st.sampled_from(NAMES),
                st.sampled_from(
                    ["write", "write", "write", "delete", "lose", "replace"]
                ),
            ),
            min_size=1,
            max_size=6,
        )
    )
    def change(self, changes: list[tuple[str, str]]) -> None:
        """Change some objects in one step, as one batch does."""
        events = [event for it in changes for event in self.one_change(*it)]
        if not events:
            return

        for follower in self.followers:
            follower.model.put(self.clock, *events)

        self.run(lambda: self.stage.publish(events))

    def one_change(self, name: str, how: str) -> list[Notification]:
        self.version += 1
        key = f"default/{name}"
        old = self.objects.get(key)
        if how in {"delete", "lose"}:
            if old is None:
                return []

            del self.objects[key]
            if how == "lose":
                return [Deleted(old, True)]

            return [Deleted(thing(name, self.version, old.uid))]

        uid = old.uid if old is not None and how == "write" else f"uid-{self.version}"
        new = self.objects[key] = thing(name, self.version, uid)
        if old is None:
            return [Added(new)]

        return (
            [Updated(old, new)] if how == "write" else [Deleted(old, True), Added(new)]
        )

    @precondition(lambda self: len(self.followers) < 5)
    @rule(
        kind=st.sampled_from(KINDS),
        accepts=st.sampled_from(sorted(FILTERS)),
        coalesce=st.booleans(),
        period=st.sampled_from([0, 0, 2, 3]),
    )
    def add_handler(
        self, kind: str, accepts: str, *, coalesce: bool, period: int
    ) -> None:
        given, modelled = FILTERS[accepts]
        model = HandlerModel(self.objects, modelled, coalesce=coalesce, crowded=CROWDED)
        follower = Follower(kind, model)
        follower.period, follower.resync_at = period, self.clock + period
        objects = [*self.objects.values()]
        model.put(self.clock, *[Added(obj, True) for obj in objects])
        model.in_sync_at = len(objects)
        resync = Resync(period, MapStore(self.objects)) if period else None

        def add() -> None:
            follower.listener = listener = self.stage.listen(
                follower, resync=resync, filter=given, coalesce=coalesce
            )
            listener.put(Snapshot(objects), self.clock)
            listener.mark_synced()

        self.followers.append(follower)
        self.run(add)

    @precondition(lambda self: self.followers)
    @rule(data=st.data())
    def remove_handler(self, data: st.DataObject) -> None:
        follower = data.draw(st.sampled_from(self.followers))
        listener = follower.listener
        assert listener is not None
        follower.model.remove()
        self.run(lambda: self.stage.remove(listener))
        assert listener.ended == (follower.model.in_work is None)

    @precondition(lambda self: any(it.is_slow for it in self.followers))
    @rule(data=st.data(), calls=st.sampled_from([1, 2, 3, ALL, ALL]))
    def let_slow_ones_go_on(self, data: st.DataObject, calls: int) -> None:
        slow = [it for it in self.followers if it.is_slow]
        follower = data.draw(st.sampled_from(slow))
        calls = min(calls, max(follower.model.depth, 1))
        follower.released += calls
        follower.released_by_model += calls
        self.run(follower.wake.set)

    @rule(seconds=st.integers(1, 4))
    def time_passes(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock += 1.0
            for follower in self.followers:
                if follower.period and self.clock >= follower.resync_at:
                    follower.resync_at += follower.period
                    follower.model.resync(self.clock)

            self.run(lambda: None)

    # ------------------------------------------------------------ invariants

    @invariant()
    def handlers_received_the_events_of_the_model(self) -> None:
        for follower in self.followers:
            assert follower.received == follower.model.received
            follower.model.known()

    @invariant()
    def idle_handlers_know_the_stored_objects(self) -> None:
        for follower in self.followers:
            model = follower.model
            if not model.removed and not model.depth:
                accepts = model.accepts or (lambda _: True)
                stored = {k: v for k, v in self.objects.items() if accepts(v)}
                assert model.known() == stored

    @invariant()
    def registrations_report_the_state_of_the_model(self) -> None:
        for follower in self.followers:
            listener = follower.listener
            assert listener is not None
            assert listener.depth == follower.model.depth
            assert listener.age(self.clock) == follower.model.age(self.clock)
            if not follower.model.removed:
                assert listener.synced == follower.model.synced

    @invariant()
    def failures_are_reported_each_once(self) -> None:
        reported = [it for it in self.stage.failures if it.where == "handler"]
        assert len(reported) == sum(it.failures for it in self.followers)


TestProcessorMachine = ProcessorMachine.TestCase
TestProcessorMachine.settings = examples(70, stateful_step_count=25)
