"""Feeds: each reader gets every change once and in order, for any sequence of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import orjson
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.model.selectors import FieldSelector, LabelSelector
from aioinformer_apiserver.reads.lists import page_of
from aioinformer_apiserver.reads.watches import open_watcher
from aioinformer_apiserver.requests.queries import ListQuery, Scope, WatchQuery
from aioinformer_apiserver.serialization.formats import Whole
from aioinformer_apiserver.storage.kinds import built_in_kinds
from aioinformer_apiserver.storage.storage import Storage
from examples import examples

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer_apiserver.reads.watches import Watcher

KIND = next(it for it in built_in_kinds() if it.resource == CONFIG_MAPS)
COLORS = ("", "red", "blue")

Received = tuple[str, str, int]
"""Type of an event, key of its object, and version."""


class Thing(NamedTuple):
    """An object of the test."""

    namespace: str
    name: str
    color: str
    version: int

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


# Selectors, and equivalent Python functions.
SCOPES: list[tuple[Scope, Callable[[Thing], bool]]] = [
    (Scope(), lambda it: True),
    (Scope(namespace="one"), lambda it: it.namespace == "one"),
    (Scope(labels=LabelSelector.parse("color=red")), lambda it: it.color == "red"),
    (
        Scope(namespace="two", labels=LabelSelector.parse("color!=red")),
        lambda it: it.namespace == "two" and it.color != "red",
    ),
    (Scope(fields=FieldSelector.parse("metadata.name=a")), lambda it: it.name == "a"),
]


class Reader:
    """A feed, its received events, and its expected events."""

    def __init__(
        self, watcher: Watcher, scope: int, *, initial: list[Received], after: int
    ) -> None:
        self.watcher = watcher
        self.expected = initial
        self.after = after
        self.matches = SCOPES[scope][1]
        self.received: list[Received] = []

    def expect(self, old: Thing | None, new: Thing | None, version: int) -> None:
        before = old is not None and self.matches(old)
        after = new is not None and self.matches(new)
        event = {
            (False, True): "ADDED",
            (True, True): "MODIFIED",
            (True, False): "DELETED",
        }.get((before, after))
        thing = new or old
        if event and thing is not None and version > self.after:
            self.expected.append((event, thing.key, version))

    def read(self, limit_bytes: int) -> None:
        for line in self.watcher.take(limit_bytes):
            event = orjson.loads(line)
            metadata = event["object"]["metadata"]
            key = f"{metadata['namespace']}/{metadata['name']}"
            version = int(metadata["resourceVersion"])
            self.received.append((event["type"], key, version))


class Feeds(RuleBasedStateMachine):
    """A state machine that writes, compacts and reads a collection."""

    def __init__(self) -> None:
        super().__init__()
        self.storage = Storage(history=4)
        self.collection = self.storage.serve(KIND)
        self.things: dict[str, Thing] = {}
        self.log: list[tuple[Thing | None, Thing | None, int]] = []
        self.readers: list[Reader] = []
        self.save()

    def tell(self, old: Thing | None, new: Thing | None) -> None:
        version = self.storage.version
        self.log.append((old, new, version))
        for reader in self.readers:
            reader.expect(old, new, version)

    @rule(
        namespace=st.sampled_from(["one", "two"]),
        name=st.sampled_from("ab"),
        color=st.sampled_from(COLORS),
    )
    def put(self, namespace: str, name: str, color: str) -> None:
        labels = {"color": color} if color else {}
        metadata = {"namespace": namespace, "name": name, "labels": labels}
        stored = self.storage.put(self.collection, {"metadata": metadata})
        new = Thing(namespace, name, color, stored.version)
        old = self.things.get(new.key)
        self.things[new.key] = new
        self.tell(old, new)

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        if self.things:
            key = data.draw(st.sampled_from(sorted(self.things)))
            stored = self.collection.get(key)
            assert stored is not None
            self.storage.drop(self.collection, stored)
            self.tell(self.things.pop(key), None)

    @rule()
    def compact(self) -> None:
        self.storage.compact()

    @rule(scope=st.integers(0, len(SCOPES) - 1))
    def watch_from_the_beginning(self, scope: int) -> None:
        watcher = open_watcher(
            self.collection, WatchQuery.parse({}), SCOPES[scope][0], Whole(KIND)
        )
        assert watcher is not None
        found = filter(SCOPES[scope][1], self.things.values())
        initial = [("ADDED", it.key, it.version) for it in found]
        initial.sort(key=lambda it: it[1])
        self.readers.append(Reader(watcher, scope, initial=initial, after=0))

    @rule(scope=st.integers(0, len(SCOPES) - 1), back=st.integers(-2, 8))
    def watch_from_a_version(self, scope: int, back: int) -> None:
        """Watch from a version in the past or in the future."""
        version = max(1, self.storage.version - back)
        query = WatchQuery.parse({"resourceVersion": str(version)})
        watcher = open_watcher(self.collection, query, SCOPES[scope][0], Whole(KIND))
        if watcher is None:
            assert not self.collection.has_changes_since(version)
            return

        reader = Reader(watcher, scope, initial=[], after=version)
        for old, new, at in self.log:
            reader.expect(old, new, at)

        self.readers.append(reader)

    @rule(data=st.data(), limit_bytes=st.sampled_from([1, 500, 1 << 20]))
    def read(self, data: st.DataObject, limit_bytes: int) -> None:
        if self.readers:
            data.draw(st.sampled_from(self.readers)).read(limit_bytes)

    @rule()
    def save(self) -> None:
        self.saved = self.storage.save(), dict(self.things)

    @rule()
    def restore(self) -> None:
        """Go back in history: watchers get past events, not the current state."""
        state, self.things = self.saved[0], dict(self.saved[1])
        self.storage.restore(state)
        for reader in self.readers:
            reader.read(1 << 20)
            assert reader.received == reader.expected
            assert reader.watcher.ended

        self.readers.clear()
        self.log.clear()

    @rule(scope=st.integers(0, len(SCOPES) - 1), limit=st.integers(0, 2))
    def list_all_pages(self, scope: int, limit: int) -> None:
        found: list[str] = []
        params = {"limit": str(limit)}
        while True:
            query = ListQuery.parse(params)
            version = self.storage.version
            page = page_of(self.collection, version, query, SCOPES[scope][0])
            found += [it.key for it in page.objects]
            if "continue" not in page.metadata:
                break

            params["continue"] = page.metadata["continue"]

        matching = filter(SCOPES[scope][1], self.things.values())
        assert found == sorted(it.key for it in matching)

    @invariant()
    def readers_received_the_expected_events(self) -> None:
        for reader in self.readers:
            assert reader.received == reader.expected[: len(reader.received)]

    def teardown(self) -> None:
        """Assert that all readers, also slow ones, have everything in the end."""
        for reader in self.readers:
            reader.read(1 << 20)
            assert reader.received == reader.expected
            assert not reader.watcher.ended


Feeds.TestCase.settings = examples(40, stateful_step_count=40)
TestFeeds = Feeds.TestCase
