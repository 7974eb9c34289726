"""`Indexer` against plain dicts, for any sequence of writes.

A key is in the bucket of a value just if that value is among those of its object; no
bucket is empty; an index function is called once for each object that is entered, and
an object for which it fails is stored and absent from its index alone. The same holds
for indexes that are built in slices, and for replacements that lack an index.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)
from store_helpers import memory_of

from aioinformer.cache import Indexer
from aioinformer.cache import memory as contents_module
from aioinformer.errors import HandlerError, NoKey, OptionsError
from examples import examples

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioinformer.cache.interface import Contents
    from aioinformer.cache.memory import Growing

KEYS = st.sampled_from(["a", "b", "c", "d"])
TAGS = st.lists(st.sampled_from(["x", "y", "z", "bad"]), max_size=3).map(tuple)


@dataclass(frozen=True, eq=False)
class Thing:
    """An object that equals only itself, so that identity is compared."""

    key: str
    tags: tuple[str, ...]


THINGS = st.builds(Thing, KEYS, TAGS)


class Function:
    """An index function that counts its calls for each object."""

    def __init__(self, name: str, *, recomputable: bool, built: bool = False) -> None:
        self.name = name
        # Built in slices: a replacement of the contents restarts it.
        self.built = built
        self.recomputable = recomputable
        self.called: dict[int, int] = {}

    def __call__(self, thing: Thing) -> Iterable[str]:
        self.called[id(thing)] = self.called.get(id(thing), 0) + 1
        if self.name in thing.tags:
            raise ValueError(thing.tags)

        return [f"{self.name}-{tag}" for tag in thing.tags]

    def expected(self, things: Iterable[Thing]) -> dict[str, dict[str, Thing]]:
        buckets: dict[str, dict[str, Thing]] = {}
        for thing in things:
            if self.name not in thing.tags:
                for tag in thing.tags:
                    buckets.setdefault(f"{self.name}-{tag}", {})[thing.key] = thing

        return buckets


@dataclass
class Staged:
    """An unfinished replacement, and its expected content."""

    contents: Contents[Thing]
    objects: dict[str, Thing] = field(default_factory=dict)


@dataclass
class Building:
    """An index that is built in slices."""

    name: str
    function: Function
    growing: Growing[Thing]
    steps: Iterator[None]


class StoreMachine(RuleBasedStateMachine):
    """A state machine that drives an indexer and a dict by the same writes."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(contents_module, "_OBJECTS_IN_A_STEP", 1)
        self.failures: list[HandlerError] = []
        self.functions = {"all": Function("all", recomputable=False)}
        self.indexer = Indexer[Thing](self.functions, on_error=self.failures.append)
        self.objects: dict[str, Thing] = {}
        self.version = ""
        self.entered: list[Thing] = []  # kept alive, so that no id is used again
        self.staged: Staged | None = None
        self.building: Building | None = None

    def teardown(self) -> None:
        self.patch.undo()

    @rule(thing=THINGS, verb=st.sampled_from(["add", "update"]))
    def add(self, thing: Thing, verb: str) -> None:
        self.entered.append(thing)
        self.objects[thing.key] = thing
        getattr(self.indexer, verb)(thing)

    @rule(things=st.lists(THINGS, max_size=2))
    def be_refused(self, things: list[Thing]) -> None:
        nameless: Any = object()
        self.entered += things
        with pytest.raises(NoKey):
            self.indexer.replace([*things, nameless], "refused")

        for write in (self.indexer.add, self.indexer.update, self.indexer.delete):
            with pytest.raises(NoKey):
                write(nameless)

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        self.objects.pop(key, None)
        self.indexer.delete(Thing(key, ()))

    @rule(things=st.lists(THINGS, max_size=4), version=st.sampled_from("123"))
    def replace(self, things: list[Thing], version: str) -> None:
        self.entered += things
        self.objects = {thing.key: thing for thing in things}
        self.version = version
        self.indexer.replace(things, version)

    @rule(version=st.sampled_from("456"))
    def applied(self, version: str) -> None:
        self.version = version
        self.indexer.applied(version)

    @precondition(lambda self: len(self.functions) < 4)
    @rule(name=st.sampled_from(["bad", "x", "y"]), recomputable=st.booleans())
    def add_index(self, name: str, recomputable: bool) -> None:
        function = Function(name, recomputable=recomputable)
        if name in self.functions:
            with pytest.raises(OptionsError):
                self.indexer.add_indexers({"new": function, name: function})
        elif self.building and name == "y":
            with pytest.raises(OptionsError):
                self.indexer.add_indexers({"y": function})
        else:
            self.functions[name] = function
            self.indexer.add_indexers({name: function})

    # An index is built in many steps, with writes and whole replacements between them.

    @precondition(lambda self: self.building is None and "y" not in self.functions)
    @rule(recomputable=st.booleans())
    def begin_building(self, recomputable: bool) -> None:
        function = Function("y", recomputable=recomputable, built=True)
        self.indexer._coming.append({"y": function})
        growing = memory_of(self.indexer).build({"y": function})
        self.building = Building("y", function, growing, growing.steps())

    @precondition(lambda self: self.building)
    @rule()
    def go_on_building(self) -> None:
        assert self.building
        next(self.building.steps, None)

    @precondition(lambda self: self.building)
    @rule(cancelled=st.booleans())
    def end_building(self, cancelled: bool) -> None:
        assert self.building
        building, self.building = self.building, None
        if not cancelled:
            # Again: there may be more objects by now.
            for _ in building.growing.steps():
                pass

            building.growing.publish()
            self.functions.setdefault(building.name, building.function)

        building.growing.close()
        self.indexer._coming.clear()

    # A replacement is filled in many steps, with writes and new indexes between them.

    @precondition(lambda self: self.staged is None)
    @rule()
    def stage(self) -> None:
        self.staged = Staged(self.indexer.replacement())

    @precondition(lambda self: self.staged)
    @rule(thing=THINGS)
    def stage_new(self, thing: Thing) -> None:
        assert self.staged
        self.entered.append(thing)
        self.staged.objects[thing.key] = thing
        self.staged.contents.put(thing.key, thing)

    @precondition(lambda self: self.staged and self.objects)
    @rule(data=st.data())
    def stage_known(self, data: st.DataObject) -> None:
        assert self.staged
        thing = self.objects[data.draw(st.sampled_from(sorted(self.objects)))]
        self.staged.objects[thing.key] = thing
        self.staged.contents.keep(thing.key, thing, self.indexer.contents)

    @precondition(lambda self: self.staged)
    @rule(version=st.sampled_from("789"))
    def swap(self, version: str) -> None:
        assert self.staged
        old = self.indexer.swap(self.staged.contents, version)
        assert old.objects == self.objects
        self.objects, self.version = self.staged.objects, version
        self.staged = None

    @invariant()
    def holds_what_was_written(self) -> None:
        assert set(self.indexer.list()) == set(self.objects.values())
        assert set(self.indexer.list_keys()) == set(self.objects)
        assert len(self.indexer) == len(self.objects)
        assert self.indexer.resource_version == self.version
        for key in "abcd":
            assert self.indexer.get_by_key(key) is self.objects.get(key)

    @invariant()
    def buckets_hold_just_what_has_their_value(self) -> None:
        assert self.indexer.indexers == self.functions
        for name, function in self.functions.items():
            expected = function.expected(self.objects.values())
            values = self.indexer.list_index_func_values(name)
            assert sorted(values) == sorted(expected)
            for value, bucket in expected.items():
                assert set(self.indexer.by_index(name, value)) == set(bucket.values())
                assert self.indexer.index_keys(name, value) == sorted(bucket)

    @invariant()
    def objects_find_those_they_share_a_value_with(self) -> None:
        for name, function in self.functions.items():
            expected = function.expected(self.objects.values())
            values = [value for value in expected if value[-1] in "xy"]
            found: dict[str, Thing] = {}
            for value in values:
                found |= expected[value]

            called = Thing("asked", tuple(value[-1] for value in values))
            if name not in called.tags:
                assert set(self.indexer.index(name, called)) == set(found.values())
                function.called.pop(id(called))

    @invariant()
    def no_function_is_called_twice_for_an_object(self) -> None:
        for function in self.functions.values():
            if not function.recomputable and not function.built:
                # Into the store, and again into a replacement started without it
                # with an object that the store no longer has.
                assert max(function.called.values(), default=0) <= (
                    1 if function.name == "all" else 2
                )

    @invariant()
    def nothing_remains_of_removed_objects(self) -> None:
        for index in memory_of(self.indexer).indexes.values():
            assert set(index._values) <= set(self.objects)

        expected = [self.building.growing] if self.building else []
        assert memory_of(self.indexer).growing == expected

    @invariant()
    def failures_are_reported(self) -> None:
        for failure in self.failures:
            assert isinstance(failure.subject, Thing)
            assert failure.name in failure.subject.tags


StoreMachine.TestCase.settings = examples(40, stateful_step_count=30)
TestStoreMachine = StoreMachine.TestCase
