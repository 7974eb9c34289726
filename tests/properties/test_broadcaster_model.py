"""`Broadcaster` against a model, for any sequence of calls and cancellations."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from aioinformer.errors import QueueShutDown
from aioinformer.watch import Broadcaster, FullChannelBehavior, Watch, WatchEvent
from examples import examples

if TYPE_CHECKING:
    from collections.abc import Callable


def event(name: str) -> WatchEvent:
    return WatchEvent.of("ADDED", {"metadata": {"name": name}})


def names(events: list[WatchEvent]) -> list[str]:
    return [it.object.name for it in events]


@dataclass(eq=False)
class ModelWatch:
    """A watch of the model, with its unread events."""

    length: int
    queue: list[str]
    state: str = "waiting"
    missed: int = 0


Item: TypeAlias = "str | ModelWatch"


@dataclass
class Model:
    """Plain model of a broadcaster."""

    room: int
    drops: bool
    line: list[Item] = field(default_factory=list)
    watches: list[ModelWatch] = field(default_factory=list)
    closing: bool = False
    ended: bool = False

    @property
    def held_up(self) -> bool:
        return any(len(it.queue) > it.length for it in self.watches)

    def put(self, item: Item) -> None:
        self.line.append(item)
        self.pump()

    def take(self, watch: ModelWatch, most: int | None) -> list[str]:
        taken = watch.queue[:most]
        del watch.queue[:most]
        self.pump()
        return taken

    def stop(self, watch: ModelWatch) -> None:
        watch.state = "stopped"
        watch.queue.clear()
        if watch in self.watches:
            self.watches.remove(watch)

        self.pump()

    def cancel(self, item: Item) -> None:
        """Cancel the waiting caller."""
        if item in self.line[self.room :]:
            self.line.remove(item)

        if isinstance(item, ModelWatch):
            self.stop(item)

    def close(self) -> None:
        self.closing = True
        self.pump()

    def pump(self) -> None:
        while self.line and not self.held_up:
            item = self.line.pop(0)
            if isinstance(item, str):
                self.tell(item)
            elif item.state == "waiting":
                item.state = "open"
                self.watches.append(item)

        if self.closing and not self.held_up:
            self.ended = True
            for watch in self.watches:
                watch.state = "ended"

            self.watches.clear()

    def tell(self, name: str) -> None:
        for watch in self.watches:
            if self.drops and len(watch.queue) >= watch.length:
                watch.missed += 1
            else:
                watch.queue.append(name)

    def is_done(self, item: Item) -> bool:
        """Return whether the caller of this send or watch no longer has to wait."""
        if isinstance(item, ModelWatch):
            return item.state != "waiting"

        return item not in self.line[self.room :]


class BroadcasterMachine(RuleBasedStateMachine):
    """A state machine that drives a broadcaster and its model by the same calls.

    The loop runs only inside the rules, so its turns are part of the sequence.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.count = 0
        self.senders: dict[Item, asyncio.Task[Any]] = {}
        self.watches: dict[ModelWatch, Watch] = {}
        self.reader: tuple[ModelWatch, asyncio.Task[list[WatchEvent]]] | None = None
        self.shutdowns: list[asyncio.Task[None]] = []

    @initialize(
        length=st.integers(0, 3), room=st.integers(1, 3), behavior=st.sampled_from("wd")
    )
    def begin(self, length: int, room: int, behavior: str) -> None:
        drops = behavior == "d"
        self.length = max(length, 1) if drops else length
        self.model = Model(room, drops)
        full = FullChannelBehavior
        self.broadcaster = Broadcaster(
            self.length,
            full.DROP_IF_CHANNEL_FULL if drops else full.WAIT_IF_CHANNEL_FULL,
            incoming_length=room,
        )

    def teardown(self) -> None:
        tasks = [*self.senders.values(), *self.shutdowns]
        tasks += [self.reader[1]] if self.reader else []
        self.run(lambda: [task.cancel() for task in tasks])
        assert asyncio.all_tasks(self.loop) == set()
        self.loop.close()

    def run(self, call: Callable[[], object]) -> None:
        """Make a call inside the loop, then let every task run until it waits."""

        async def inside() -> None:
            call()
            for _ in range(8):
                await asyncio.sleep(0)

        self.loop.run_until_complete(inside())

    def start(self, coroutine: Any) -> asyncio.Task[Any]:
        return self.loop.create_task(coroutine)

    def collect(self) -> None:
        """Compare the calls that ended in the last turns with the model."""
        self.collect_reader()
        for item, task in list(self.senders.items()):
            assert task.done() == self.model.is_done(item), item
            if task.done():
                del self.senders[item]
                if isinstance(item, ModelWatch):
                    self.watches[item] = task.result()

        for task in [task for task in self.shutdowns if task.done()]:
            self.shutdowns.remove(task)
            task.result()

        assert not self.shutdowns or not self.model.ended

    def collect_reader(self) -> None:
        if self.reader is None:
            return

        received, task = self.reader
        if received.queue or received.state != "open":
            assert names(task.result()) == self.model.take(received, None)
            self.reader = None
        else:
            assert not task.done()

    def new_name(self) -> str:
        self.count += 1
        return f"e-{self.count}"

    def drawn_watch(self, data: st.DataObject) -> ModelWatch:
        return data.draw(st.sampled_from(list(self.watches)))

    # ---------------------------------------------------------------- sending

    @precondition(lambda self: len(self.senders) < 6)
    @rule(times=st.integers(1, 3))
    def action(self, times: int) -> None:
        for _ in range(times):
            name = self.new_name()
            task = self.start(self.broadcaster.action(event(name)))
            if self.model.closing:
                self.run(lambda: None)
                assert isinstance(task.exception(), QueueShutDown)
                continue

            self.senders[name] = task
            self.model.put(name)
            self.run(lambda: None)
            self.collect()

    @rule()
    def action_or_drop(self) -> None:
        name = self.new_name()
        self.run(lambda: self.offer(name))
        self.collect()

    def offer(self, name: str) -> None:
        if self.model.closing:
            with pytest.raises(QueueShutDown):
                self.broadcaster.action_or_drop(event(name))

            return

        fits = len(self.model.line) < self.model.room
        assert self.broadcaster.action_or_drop(event(name)) == fits
        if fits:
            self.model.put(name)

    # ---------------------------------------------------------------- watching

    @precondition(lambda self: len(self.watches) + len(self.senders) < 6)
    @rule(prefix=st.none() | st.integers(0, 4))
    def watch(self, prefix: int | None) -> None:
        first = [self.new_name() for _ in range(prefix or 0)]
        length = self.length if prefix is None else max(self.length, prefix + 1)
        task = self.start(
            self.broadcaster.watch()
            if prefix is None
            else self.broadcaster.watch_with_prefix([event(name) for name in first])
        )
        if self.model.closing:
            self.run(lambda: None)
            assert isinstance(task.exception(), QueueShutDown)
            return

        received = ModelWatch(length, first)
        self.senders[received] = task
        self.model.put(received)
        self.run(lambda: None)
        self.collect()

    @precondition(lambda self: self.watches)
    @rule(data=st.data(), whole=st.booleans())
    def read(self, data: st.DataObject, whole: bool) -> None:
        received = self.drawn_watch(data)
        if self.reader is not None and self.reader[0] is received:
            return

        watch = self.watches[received]
        if received.state == "open" and not received.queue:
            if self.reader is None:
                self.reader = (received, self.start(watch.next_batch()))

            self.run(lambda: None)
        else:
            task = self.start(watch.next_batch() if whole else one(watch))
            self.run(lambda: None)
            expected = self.model.take(received, None if whole else 1)
            assert names(task.result()) == expected

        self.collect()

    @precondition(lambda self: self.watches)
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        received = self.drawn_watch(data)
        self.model.stop(received)
        self.run(self.watches[received].stop)
        self.collect()

    # ---------------------------------------------------------------- cancelling

    @precondition(lambda self: self.reader)
    @rule(first=st.booleans())
    def cancel_the_reader_as_an_event_arrives(self, first: bool) -> None:
        assert self.reader is not None
        task = self.reader[1]
        self.reader = None
        name = self.new_name()

        def call() -> None:
            if first:
                task.cancel()

            self.offer(name)
            task.cancel()

        self.run(call)
        assert task.cancelled()
        self.collect()

    @precondition(lambda self: self.senders)
    @rule(data=st.data(), when=st.sampled_from(["alone", "before", "after"]))
    def cancel_a_sender_as_room_is_made(self, data: st.DataObject, when: str) -> None:
        item = data.draw(st.sampled_from(list(self.senders)))
        task = self.senders.pop(item)
        blocking = [it for it in self.watches if len(it.queue) > it.length]
        if when == "alone" or not blocking:
            self.model.cancel(item)
            self.run(task.cancel)
            assert task.cancelled()
            self.collect()
            return

        received = data.draw(st.sampled_from(blocking))
        reads = []

        def call() -> None:
            if when == "before":
                self.loop.call_soon(task.cancel)

            reads.append(self.start(self.watches[received].next_batch()))
            if when == "after":
                self.loop.call_soon(task.cancel)

        if when == "before":
            self.model.cancel(item)

        expected = self.model.take(received, None)
        if when == "after":
            self.model.cancel(item)

        self.run(call)
        assert task.cancelled()
        assert names(reads[0].result()) == expected
        self.collect()

    # ---------------------------------------------------------------- ending

    @precondition(lambda self: self.count > 8 and len(self.shutdowns) < 2)
    @rule()
    def shutdown(self) -> None:
        self.model.close()
        self.shutdowns.append(self.start(self.broadcaster.shutdown()))
        self.run(lambda: None)
        self.collect()

    @precondition(lambda self: self.shutdowns)
    @rule()
    def cancel_a_shutdown(self) -> None:
        self.run(self.shutdowns.pop().cancel)

    # ---------------------------------------------------------------- invariants

    @invariant()
    def broadcaster_and_model_agree(self) -> None:
        model = self.model
        state = "ended" if model.ended else "ending" if model.closing else "open"
        incoming = len(model.line[: model.room])
        assert repr(self.broadcaster) == (
            f"<Broadcaster {state} watches={len(model.watches)} incoming={incoming}>"
        )

    @invariant()
    def watches_and_model_agree(self) -> None:
        for received, watch in self.watches.items():
            assert f" {received.state} buffered={len(received.queue)}>" in repr(watch)
            assert watch.skipped == received.missed

    @invariant()
    def no_caller_waits_without_reason(self) -> None:
        assert not self.senders or self.model.held_up


async def one(watch: Watch) -> list[WatchEvent]:
    found = await anext(watch, None)
    return [] if found is None else [found]


TestBroadcasterMachine = BroadcasterMachine.TestCase
TestBroadcasterMachine.settings = examples(40, stateful_step_count=30)
