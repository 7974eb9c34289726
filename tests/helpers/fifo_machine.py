"""State machine that drives a queue of changes and its model by the same calls."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from aioinformer.cache import (
    DeletedFinalStateUnknown,
    Delta,
    DeltaFIFO,
    DeltaType,
    OrderedFIFO,
    Replacement,
    Requeue,
    ResyncAll,
    Store,
)
from aioinformer.errors import QueueShutDown

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence


ADDED, UPDATED, DELETED = DeltaType.ADDED, DeltaType.UPDATED, DeltaType.DELETED


@dataclass(frozen=True)
class Thing:
    key: str
    number: int
    passes: int = 0
    """Number of times that it passed the transformer."""


Change = tuple[DeltaType, Any]
"""The object is a thing or a tombstone."""


@dataclass
class Entry:
    """Changes that are popped together, and the inputs done with them."""

    key: str | None = None
    changes: list[Change] = field(default_factory=list)
    listed: dict[str, Thing] | None = None
    """Objects of a whole list; None for a whole resync."""
    inputs: set[int] = field(default_factory=set)


class Model:
    """Plain model of a queue of changes.

    Args:
        ordered: Whether each change is an entry, instead of each key.
        known: Known objects; None if there are none.
        emit_replaced: Whether listed objects are REPLACED instead of SYNC.
    """

    def __init__(
        self, *, ordered: bool, known: dict[str, Thing] | None, emit_replaced: bool
    ) -> None:
        self.ordered = ordered
        self.known = known
        self.in_list = DeltaType.REPLACED if emit_replaced else DeltaType.SYNC
        self.line: list[Entry] = []
        self.inputs = 0
        self.taken: set[int] = set()
        self.versions: list[tuple[int, str]] = []
        self.first: set[int] | None = None
        """The inputs that it has synced after; None while it was not filled."""

    # ------------------------------------------------------------ what it knows

    @property
    def synced(self) -> bool:
        return self.first is not None and self.first <= self.taken

    def segment(self) -> list[Entry]:
        """Return the entries after the last whole list."""
        ends = [n for n, it in enumerate(self.line) if it.listed is not None]
        return self.line[ends[-1] + 1 if ends else 0 :]

    def queued(self) -> dict[str, Change]:
        """Return the newest change of each key since the last whole list."""
        found: dict[str, Change] = {}
        for entry in self.segment():
            if entry.key is not None:
                found[entry.key] = entry.changes[-1]

        return found

    def known_now(self) -> dict[str, Thing]:
        """Return the objects that the consumer knows when it pops the last segment."""
        lists = [it.listed for it in self.line if it.listed is not None]
        return lists[-1] if lists else self.known or {}

    # ------------------------------------------------------------ inputs

    def change(self, kind: DeltaType, key: str, obj: Any) -> None:
        self.first = set() if self.first is None else self.first
        if kind is not DELETED or not self.leaves_out(key):
            self.put(kind, key, obj)

    def leaves_out(self, key: str) -> bool:
        """Return whether a deletion is of an unknown object, and so is not queued."""
        there = {*self.queued(), *self.known_now()}
        return not self.ordered and key not in there

    def put(self, kind: DeltaType, key: str, obj: Any) -> None:
        self.inputs += 1
        waiting = [it for it in self.segment() if it.key == key and not self.ordered]
        entry = waiting[0] if waiting else Entry(key)
        if not waiting:
            self.line.append(entry)

        entry.inputs.add(self.inputs)
        if entry.changes and entry.changes[-1][0] is kind is DELETED:
            entry.changes[-1] = (kind, better_end(entry.changes[-1][1], obj))
        else:
            entry.changes.append((kind, obj))

    def replace_all(self, listed: dict[str, Thing], version: str) -> None:
        self.whole(listed)
        self.mark(version)
        self.list_is_in()

    def replace(self, objects: list[Thing], version: str) -> None:
        if self.ordered and self.known is None:
            self.replace_all({obj.key: obj for obj in objects}, version)
            return

        queued, keys = self.queued(), {obj.key for obj in objects}
        ends = [
            (key, obj)
            for key, (kind, obj) in queued.items()
            if key not in keys and kind is not DELETED
        ]
        ends += [
            (key, obj)
            for key, obj in self.known_now().items()
            if key not in keys and key not in queued
        ]
        listed = [(self.in_list, obj.key, obj) for obj in objects]
        gone = [(DELETED, key, DeletedFinalStateUnknown(key, obj)) for key, obj in ends]
        for change in (*gone, *listed) if self.ordered else (*listed, *gone):
            self.put(*change)

        self.mark(version)
        self.list_is_in()

    def resync(self) -> None:
        if self.ordered and self.known is None:
            self.whole(None)
            return

        queued = self.queued()
        if self.known is None and not any(it.listed is not None for it in self.line):
            return

        for key, obj in self.known_now().items():
            if key not in queued:
                self.put(DeltaType.SYNC, key, obj)

    def whole(self, listed: dict[str, Thing] | None) -> None:
        self.inputs += 1
        self.line.append(Entry(listed=listed, inputs={self.inputs}))

    def mark(self, version: str) -> None:
        if version:
            self.versions.append((self.inputs, version))

    def list_is_in(self) -> None:
        if self.first is None:
            self.first = self.up_to_now()

    def up_to_now(self) -> set[int]:
        return set(range(1, self.inputs + 1))

    # ------------------------------------------------------------ outputs

    def pop(self) -> Entry:
        entry = self.line.pop(0)
        self.taken |= entry.inputs
        return entry

    def batch(self, limit: int) -> list[Entry]:
        """Return the entries of the next batch, without taking them."""
        first = self.first if self.first is not None and not self.synced else None
        batch: list[Entry] = []
        for entry in self.line[:limit]:
            keys = {it.key for it in batch}
            if batch and (entry.key is None or entry.key in keys or None in keys):
                break

            if batch and first is not None and not entry.inputs & first:
                break

            batch.append(entry)

        return batch

    def put_back(self, entries: list[Entry]) -> None:
        """Requeue entries that are neither queued nor taken."""
        if self.ordered or entries[0].key is None:
            self.line[:0] = entries
            return

        done, synced = self.passed(), self.synced
        for entry in entries:
            whole = any(it.listed is not None for it in self.line)
            if whole or any(it.key == entry.key for it in self.line):
                self.taken |= entry.inputs
            else:
                self.line.append(entry)

        # Whatever waited for them now waits for the whole line; so also for what has
        # overtaken them.
        waiting = self.versions[len(done) :]
        self.versions = done + [(self.inputs, v) for _, v in waiting[-1:]]
        if not synced and self.first is not None:
            self.first = self.up_to_now()

    def passed(self) -> list[tuple[int, str]]:
        """Return the versions whose inputs, and all earlier ones, were taken."""
        return [
            (inputs, version)
            for inputs, version in self.versions
            if self.taken >= set(range(1, inputs + 1))
        ]

    def applied(self) -> str | None:
        done = self.passed()
        self.versions = self.versions[len(done) :]
        return done[-1][1] if done else None


def better_end(one: Any, other: Any) -> Any:
    """Return the better of two consecutive deletions: a known state, else the newer."""
    if not isinstance(one, DeletedFinalStateUnknown):
        return one

    unknown = isinstance(other, DeletedFinalStateUnknown) and other.obj is None
    return one if unknown else other


KEYS = st.sampled_from("abcd")
CHANGES = st.tuples(st.sampled_from([ADDED, UPDATED, DELETED]), KEYS)
BATCHES = st.lists(CHANGES, max_size=5)
OUTCOMES = st.sampled_from(["done", "failed", "again", "outdated"])


class TransformError(Exception):
    """Error of the transformer for a refused object."""


class Failure(Exception):
    """Error of a consumer."""


class QueueMachine(RuleBasedStateMachine):
    """Rules for both queues."""

    ordered: bool

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.poppers: list[asyncio.Task[None]] = []
        self.closed = False
        self.count = 0
        self.longest = 0

    @initialize(
        known=st.booleans(),
        transforms=st.booleans(),
        emit_replaced=st.booleans(),
        listed=st.none() | st.lists(KEYS, max_size=4),
    )
    def make(
        self,
        known: bool,
        transforms: bool,
        emit_replaced: bool,
        listed: list[str] | None,
    ) -> None:
        self.store = Store[Thing]()
        self.transforms = transforms
        emit_replaced = emit_replaced or self.ordered
        self.model = Model(
            ordered=self.ordered,
            known={} if known else None,
            emit_replaced=emit_replaced,
        )
        options: dict[str, Any] = {
            "known_objects": self.store if known else None,
            "transformer": self.transform if transforms else None,
        }
        self.fifo: Any
        if self.ordered:
            self.fifo = OrderedFIFO[Thing](**options)
        else:
            self.fifo = DeltaFIFO[Thing](**options, emit_replaced=emit_replaced)

        # As a reflector does; else it mostly has synced before there is a list.
        if listed is not None:
            self.replace(listed, known=True)

    def teardown(self) -> None:
        for popper in self.poppers:
            popper.cancel()

        self.in_loop()
        self.loop.close()

    # ------------------------------------------------------------ helpers

    def transform(self, thing: Thing) -> Thing:
        if thing.number < 0:
            raise TransformError

        return Thing(thing.key, thing.number, thing.passes + 1)

    def thing(self, key: str) -> Thing:
        self.count += 1
        return Thing(key, self.count)

    def kept(self, thing: Thing) -> Thing:
        """Return a thing as it should be popped."""
        return Thing(thing.key, thing.number, 1) if self.transforms else thing

    def version(self, known: bool) -> str:
        self.count += 1
        return f"v{self.count}" if known else ""

    def in_loop(self, *calls: Coroutine[Any, Any, None] | Callable[[], object]) -> None:
        """Make calls in one turn of the loop, then let all tasks run."""

        async def run() -> None:
            for call in calls:
                if callable(call):
                    call()
                else:
                    await call

            for _ in range(4):
                await asyncio.sleep(0)

        self.loop.run_until_complete(run())
        for popper in [task for task in self.poppers if task.done()]:
            self.poppers.remove(popper)
            if not popper.cancelled():
                error = popper.exception()
                assert error is None or (
                    isinstance(error, QueueShutDown) and self.closed
                )

    def same(self, entry: Any, expected: Entry) -> None:
        if isinstance(entry, Replacement):
            assert entry.contents.objects == expected.listed
        elif isinstance(entry, ResyncAll):
            assert (expected.key, expected.listed) == (None, None)
        else:
            assert [(it.type, it.object) for it in entry] == expected.changes

    def took(self, entry: Any, initial: bool) -> None:
        assert initial is not self.model.synced
        self.same(entry, self.model.pop())

    # ------------------------------------------------------------ what comes in

    @rule(changes=BATCHES, known=st.booleans())
    def feed(self, changes: list[tuple[Any, str]], known: bool) -> None:
        things = [(kind, self.thing(key)) for kind, key in changes]
        version = self.version(known)
        self.fed(things, version)
        self.in_loop(lambda: self.fifo.feed([Delta(*it) for it in things], version))

    def fed(self, things: Sequence[tuple[Any, Thing]], version: str) -> None:
        if things and self.model.first is None:
            self.model.first = set()

        for kind, thing in things:
            self.model.put(kind, thing.key, self.kept(thing))

        self.model.mark(version)

    @rule(change=CHANGES)
    def change(self, change: tuple[Any, str]) -> None:
        kind, key = change
        thing = self.thing(key)
        self.model.change(kind, key, self.kept(thing))
        method = {
            ADDED: self.fifo.add,
            UPDATED: self.fifo.update,
            DELETED: self.fifo.delete,
        }
        self.in_loop(lambda: method[kind](thing))

    @rule(key=KEYS, stale=st.booleans())
    def delete_unseen(self, key: str, stale: bool) -> None:
        gone = DeletedFinalStateUnknown(key, self.thing(key) if stale else None)
        self.model.change(DELETED, key, gone)
        self.in_loop(lambda: self.fifo.delete(gone))

    @rule(keys=st.lists(KEYS, max_size=4), known=st.booleans())
    def list_by_objects(self, keys: list[str], known: bool) -> None:
        self.replace(keys, known)

    def replace(self, keys: list[str], known: bool) -> None:
        things, version = [self.thing(key) for key in keys], self.version(known)
        if self.ordered and self.model.known is None:
            version = version or "unknown"

        self.model.replace([self.kept(thing) for thing in things], version)
        self.in_loop(lambda: self.fifo.replace(things, version))

    @rule(keys=st.sets(KEYS, max_size=4))
    def replace_all(self, keys: set[str]) -> None:
        contents = Store[Thing]().replacement()
        for key in sorted(keys):
            contents.put(key, self.thing(key))

        version = self.version(known=True)
        self.model.replace_all(dict(contents.objects), version)
        self.in_loop(lambda: self.fifo.replace_all(contents, version))

    @precondition(lambda self: self.transforms)
    @rule(
        how=st.sampled_from(["add", "delete", "feed", "replace"]),
        keys=st.lists(KEYS, min_size=1, max_size=4),
        data=st.data(),
    )
    def fail_to_transform(self, how: str, keys: list[str], data: st.DataObject) -> None:
        """Queue objects of which one is refused; nothing must be queued."""
        things = [self.thing(key) for key in keys]
        bad = data.draw(st.integers(0, len(things) - 1))
        things[bad] = Thing(things[bad].key, -1)
        key = things[bad].key
        if how == "delete" and self.model.leaves_out(key):
            return  # before the transformer is called

        batch = [Delta(UPDATED, it) for it in things]
        calls: dict[str, Callable[[], Any]] = {
            "add": lambda: self.fifo.add(things[bad]),
            "delete": lambda: self.fifo.delete(things[bad]),
            "feed": lambda: self.fifo.feed(batch, "bad"),
            "replace": lambda: self.fifo.replace(things, "bad"),
        }
        with pytest.raises(TransformError):
            self.in_loop(calls[how])

    @rule()
    def resync(self) -> None:
        self.model.resync()
        self.in_loop(self.fifo.resync)

    @rule()
    def bookmark(self) -> None:
        version = self.version(known=True)
        self.model.mark(version)
        self.in_loop(lambda: self.fifo.bookmark(version))

    @precondition(lambda self: self.model.known is not None)
    @rule(key=KEYS, there=st.booleans())
    def consumer_stores(self, key: str, there: bool) -> None:
        assert self.model.known is not None
        if there:
            self.model.known[key] = thing = self.thing(key)
            self.store.add(thing)
        else:
            self.model.known.pop(key, None)
            self.store.delete(Thing(key, 0))

    # ------------------------------------------------------------ what goes out

    @rule()
    def pop_nowait(self) -> None:
        if self.model.line:
            self.took(self.fifo.pop_nowait(), not self.model.synced)
            return

        with pytest.raises(QueueShutDown if self.closed else asyncio.QueueEmpty):
            self.fifo.pop_nowait()

    @precondition(lambda self: self.model.line)
    @rule(outcome=OUTCOMES, key=KEYS)
    def pop(self, outcome: str, key: str) -> None:
        self.process([self.model.line[0]], outcome, key, self.fifo.pop)

    @precondition(lambda self: self.model.line)
    @rule(outcome=OUTCOMES, key=KEYS, limit=st.integers(1, 5))
    def pop_batch(self, outcome: str, key: str, limit: int) -> None:
        async def pop(process: Callable[[Any, bool], None]) -> None:
            def several(batch: list[Any], initial: bool) -> None:
                assert len(batch) > 1
                process(batch, initial)

            def single(entry: Any, initial: bool) -> None:
                process([entry], initial)

            await self.fifo.pop_batch(several, single, limit=limit)

        self.process(self.model.batch(limit), outcome, key, pop, batch=True)

    def process(
        self,
        expected: list[Entry],
        outcome: str,
        key: str,
        pop: Callable[[Any], Coroutine[Any, Any, None]],
        *,
        batch: bool = False,
    ) -> None:
        """Pop the expected entries, with a consumer of the given outcome."""
        del self.model.line[: len(expected)]
        synced, model = self.model.synced, self.model

        def consume(taken: Any, initial: bool) -> None:
            entries = taken if batch else [taken]
            assert initial is not synced
            assert len(entries) == len(expected)
            for entry, one in zip(entries, expected, strict=True):
                self.same(entry, one)

            if outcome == "outdated":
                newer = self.thing(key)
                model.change(UPDATED, key, self.kept(newer))
                self.fifo.update(newer)

            if outcome == "failed":
                raise Failure

            if outcome != "done":
                raise Requeue

        if outcome == "failed":
            with pytest.raises(Failure):
                self.in_loop(pop(consume))
        else:
            self.in_loop(pop(consume))

        if outcome in {"done", "failed"}:
            for entry in expected:
                model.taken |= entry.inputs
        else:
            model.put_back(expected)

    @rule()
    def read_applied_version(self) -> None:
        assert self.fifo.applied() == self.model.applied()

    # ------------------------------------------------------------ waiting

    @precondition(lambda self: not self.model.line and not self.closed)
    @rule(poppers=st.integers(1, 3))
    def wait_for_an_entry(self, poppers: int) -> None:
        async def pop() -> None:
            await self.fifo.pop(self.took)

        self.in_loop(
            *[
                lambda: self.poppers.append(self.loop.create_task(pop()))
                for _ in range(poppers)
            ]
        )

    @precondition(lambda self: self.poppers)
    @rule(changes=BATCHES, first=st.booleans(), data=st.data())
    def cancel_a_pop_as_a_batch_arrives(
        self, changes: list[tuple[Any, str]], first: bool, data: st.DataObject
    ) -> None:
        popper = data.draw(st.sampled_from(self.poppers))
        things = [(kind, self.thing(key)) for kind, key in changes]
        self.fed(things, "")
        batch = [Delta(*it) for it in things]

        def feed() -> None:
            self.fifo.feed(batch)

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

    @rule(late=st.booleans())
    def close(self, late: bool) -> None:
        """Close the queue, seldom early; all other rules work as before."""
        if late and self.count < 20:
            return

        self.closed = True
        self.in_loop(self.fifo.close)
        assert not self.poppers

    # ------------------------------------------------------------ always

    @invariant()
    def queue_and_model_agree(self) -> None:
        assert len(self.fifo) == len(self.model.line)
        assert self.fifo.closed == self.closed
        queued = self.model.queued()
        for key in "abcd":
            newest = self.fifo.newest(key)
            assert (newest and (newest.type, newest.object)) == queued.get(key)

    @invariant()
    def is_synced_when_the_first_list_was_popped(self) -> None:
        assert self.fifo.has_synced == self.model.synced

    @invariant()
    def no_caller_waits_while_entries_are_available(self) -> None:
        assert not (self.poppers and self.model.line)

    @invariant()
    def marks_never_exceed_the_entries_at_once(self) -> None:
        self.longest = max(self.longest, len(self.fifo))
        assert len(self.fifo._progress.versions) <= self.longest + 1
