"""Any sequence of calls: the queue of changes against a list of segments.

Nothing is lost, nothing comes twice, changes of one key come together and in order,
nothing passes a replacement; and a version is never called applied before everything
that came up to it has been taken.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from aioinformer.cache import DeltaFIFO, Store
from aioinformer.cache.deltas import Delta, DeltaType, Replacement
from aioinformer.errors import QueueShutDown

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

KINDS = st.sampled_from([DeltaType.ADDED, DeltaType.UPDATED, DeltaType.DELETED])
CHANGES = st.tuples(KINDS, st.sampled_from("abcd"))
BATCHES = st.lists(CHANGES, max_size=5)


@dataclass(frozen=True)
class Thing:
    key: str
    number: int


Change = tuple[DeltaType, Thing]


@dataclass
class Entry:
    """What should be handed out together, and which inputs are done with then."""

    changes: list[Change] = field(default_factory=list)
    replaced: str | None = None
    inputs: set[int] = field(default_factory=set)


class Model:
    """The queue as plainly as possible, with all inputs numbered."""

    def __init__(self) -> None:
        self.line: list[Entry] = []
        self.inputs = 0
        self.taken: set[int] = set()
        self.versions: list[tuple[int, str]] = []
        self.first_list: set[int] | None = None

    def behind_any_replacement(self, key: str) -> Entry | None:
        for entry in reversed(self.line):
            if entry.replaced is not None:
                return None

            if entry.changes[0][1].key == key:
                return entry

        return None

    def put(self, kind: DeltaType, key: str) -> Thing:
        self.inputs += 1
        thing = Thing(key, self.inputs)
        entry = self.behind_any_replacement(key)
        if entry is None:
            entry = Entry()
            self.line.append(entry)

        entry.inputs.add(thing.number)
        deleted = bool(entry.changes) and entry.changes[-1][0] is DeltaType.DELETED
        if not (deleted and kind is DeltaType.DELETED):
            entry.changes.append((kind, thing))

        return thing

    def replace(self, version: str) -> None:
        self.inputs += 1
        self.line.append(Entry(replaced=version, inputs={self.inputs}))
        self.versions.append((self.inputs, version))
        if self.first_list is None:
            self.first_list = set(range(1, self.inputs + 1))

    def pop(self) -> Entry:
        entry = self.line.pop(0)
        self.taken |= entry.inputs
        return entry

    def applied(self) -> str | None:
        """The newest version all of whose inputs, and the earlier ones, were taken."""
        done = {
            (inputs, version)
            for inputs, version in self.versions
            if self.taken >= set(range(1, inputs + 1))
        }
        passed = [version for version in self.versions if version in done]
        self.versions = [version for version in self.versions if version not in done]
        return passed[-1][1] if passed else None


class FIFOMachine(RuleBasedStateMachine):
    """Drives a queue and its model through the same calls, in one loop."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.loop = asyncio.new_event_loop()
        self.fifo: DeltaFIFO[Thing] = DeltaFIFO()
        self.poppers: list[asyncio.Task[None]] = []
        self.closed = False
        self.lists = 0
        self.longest = 0

    def teardown(self) -> None:
        for popper in self.poppers:
            popper.cancel()

        self.in_loop()
        self.loop.close()

    def in_loop(self, *calls: Coroutine[Any, Any, None] | Callable[[], object]) -> None:
        """Make calls in one turn of the loop, then let all tasks run until they wait."""

        async def run() -> None:
            for call in calls:
                if callable(call):
                    call()
                else:
                    await call

            for _ in range(6):
                await asyncio.sleep(0)

        self.loop.run_until_complete(run())
        for popper in [task for task in self.poppers if task.done()]:
            self.poppers.remove(popper)
            if not popper.cancelled():
                error = popper.exception()
                assert error is None or (
                    isinstance(error, QueueShutDown) and self.closed
                )

    def took(self, entry: list[Delta[Thing]] | Replacement[Thing]) -> None:
        expected = self.model.pop()
        if isinstance(entry, Replacement):
            assert entry.resource_version == expected.replaced
        else:
            assert [(delta.type, delta.object) for delta in entry] == expected.changes

    def batch(self, changes: list[tuple[DeltaType, str]]) -> list[Delta[Thing]]:
        return [Delta(kind, self.model.put(kind, key)) for kind, key in changes]

    def version(self, known: bool) -> str:
        """A version that grows with the inputs; unknown ones are empty."""
        if not known:
            return ""

        version = f"{self.model.inputs}-{len(self.model.versions)}"
        self.model.versions.append((self.model.inputs, version))
        return version

    @rule(changes=BATCHES, known=st.booleans())
    def feed(self, changes: list[tuple[DeltaType, str]], known: bool) -> None:
        deltas = self.batch(changes)
        self.in_loop(self.fifo.feed(deltas, self.version(known)))

    @precondition(lambda self: not self.poppers)
    @rule(change=CHANGES)
    def put(self, change: tuple[DeltaType, str]) -> None:
        thing = self.model.put(*change)
        method = {
            DeltaType.ADDED: self.fifo.add,
            DeltaType.UPDATED: self.fifo.update,
            DeltaType.DELETED: self.fifo.delete,
        }[change[0]]
        method(thing)

    @rule()
    def feed_replacement(self) -> None:
        self.lists += 1
        self.model.replace(f"list-{self.lists}")
        contents = Store[Thing]().replacement()
        self.in_loop(self.fifo.feed_replacement(contents, f"list-{self.lists}"))

    @rule()
    def pop_nowait(self) -> None:
        if self.model.line:
            self.took(self.fifo.pop_nowait())
            return

        with pytest.raises(QueueShutDown if self.closed else asyncio.QueueEmpty):
            self.fifo.pop_nowait()

    @precondition(lambda self: self.model.line)
    @rule()
    def take(self) -> None:
        entry = self.fifo.take()
        self.took(entry if isinstance(entry, Replacement) else entry.oldest_first())

    @rule()
    def applied(self) -> None:
        assert self.fifo.applied() == self.model.applied()

    @precondition(lambda self: len(self.poppers) < 3)
    @rule()
    def pop(self) -> None:
        pop = self.fifo.pop(self.took)
        self.in_loop(lambda: self.poppers.append(self.loop.create_task(pop)))

    @precondition(lambda self: self.poppers)
    @rule(changes=BATCHES, first=st.booleans(), data=st.data())
    def cancel_a_pop_as_a_batch_arrives(
        self, changes: list[tuple[DeltaType, str]], first: bool, data: st.DataObject
    ) -> None:
        popper = data.draw(st.sampled_from(self.poppers))
        feed = self.fifo.feed(self.batch(changes))
        if first:
            self.in_loop(popper.cancel, feed)
        else:
            self.in_loop(feed, popper.cancel)

        assert popper.cancelled()

    @rule()
    def wait_filled(self) -> None:
        news = self.model.line or self.model.versions
        wait = self.loop.create_task(self.fifo.wait_filled())
        self.in_loop()

        assert wait.done() == bool(news or self.closed)
        wait.cancel()
        self.in_loop()
        if wait.done() and not wait.cancelled():
            error = wait.exception()
            assert error is None if news else isinstance(error, QueueShutDown)

    @rule()
    def close(self) -> None:
        self.closed = True
        self.in_loop(self.fifo.close())
        assert not self.poppers

    @invariant()
    def queue_and_model_agree(self) -> None:
        assert len(self.fifo) == len(self.model.line)
        for key in "abcd":
            newest, entry = (
                self.fifo.newest(key),
                self.model.behind_any_replacement(key),
            )
            assert (newest and (newest.type, newest.object)) == (
                entry and entry.changes[-1]
            )

    @invariant()
    def is_synced_when_all_up_to_the_first_list_was_taken(self) -> None:
        first = self.model.first_list
        assert self.fifo.has_synced == (first is not None and first <= self.model.taken)

    @invariant()
    def nobody_waits_for_what_is_there(self) -> None:
        assert not (self.poppers and self.model.line)

    @invariant()
    def there_are_never_more_marks_than_there_were_entries_at_once(self) -> None:
        self.longest = max(self.longest, len(self.fifo))
        assert len(self.fifo._marks) <= self.longest + 1

    @invariant()
    def each_replacement_ends_a_segment(self) -> None:
        queued = [entry for entry in self.fifo._queue if not isinstance(entry, str)]
        keys = [entry for entry in self.fifo._queue if isinstance(entry, str)]
        assert len(self.fifo._segments) == len(queued) + 1
        assert sum(map(len, self.fifo._segments)) == len(keys)


FIFOMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestFIFOMachine = FIFOMachine.TestCase
