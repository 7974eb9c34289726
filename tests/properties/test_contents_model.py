"""A store in memory and one on disk against plain dicts, for any sequence of writes.

Objects, index buckets, selections and the version are compared after each write, also
while a list is staged beside them, and while an index is built in slices.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import hypothesis.strategies as st
import pytest
from contents_helpers import INDEXES, Kind, index_of, made, opened, stored_in
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from aioinformer.cache import index_by
from aioinformer.model.selectors import LabelSelector
from examples import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer.cache import Contents, IndexFunction
    from aioinformer.cache.interface import Building
    from aioinformer.errors import HandlerError
    from aioinformer.model import KubeObject

KEYS = ["n/a", "n/b", "m/a", "a", "n/" + "long" * 150]
LABELS = st.fixed_dictionaries(
    {},
    optional={"app": st.sampled_from("vw"), "owner": st.sampled_from(["x.y", "bad"])},
)
OBJECTS = st.builds(
    lambda key, version, node, labels: made(key, version, node=node, **labels),
    st.sampled_from(KEYS),
    st.integers(1, 9),
    st.sampled_from(["n1", "n2"]),
    LABELS,
)
SELECTORS = [
    LabelSelector.parse(it) for it in ("", "app=v", "app in (v,w),owner!=bad", "!app")
]


def expected_of(
    function: IndexFunction[KubeObject], objects: dict[str, KubeObject]
) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for key, obj in objects.items():
        try:
            values = set(function(obj))
        except ZeroDivisionError:
            continue

        for value in values:
            found.setdefault(value, set()).add(key)

    return found


class Machine(RuleBasedStateMachine):
    """The same writes to an indexer and to dicts."""

    kind: ClassVar[Kind]

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.env = opened(self.kind, Path(self.folder.name))
        self.failures: list[HandlerError] = []
        self.indexer = stored_in(self.env, on_error=self.failures.append)
        self.functions = dict(INDEXES)
        self.objects: dict[str, KubeObject] = {}
        self.version = ""
        self.staged: Contents[KubeObject] | None = None
        self.listed: dict[str, KubeObject] = {}
        self.building: Building | None = None
        self.steps: Iterator[None] = iter(())

    def teardown(self) -> None:
        if self.env is not None:
            self.env.close()

        self.folder.cleanup()

    @rule(objects=st.lists(OBJECTS, max_size=3), version=st.sampled_from("123"))
    def put_in_one_step(self, objects: list[KubeObject], version: str) -> None:
        with self.indexer.step():
            for obj in objects:
                self.indexer.contents.put(obj.key, obj, obj)

            self.indexer.applied(version)

        self.objects |= {obj.key: obj for obj in objects}
        self.version = version

    @rule(key=st.sampled_from(KEYS))
    def remove(self, key: str) -> None:
        with self.indexer.step():
            removed = self.indexer.contents.remove(key)

        assert removed == self.objects.pop(key, None)

    @precondition(lambda self: self.staged is None)
    @rule()
    def begin_a_list(self) -> None:
        self.staged, self.listed = self.indexer.replacement(), {}

    @precondition(lambda self: self.staged is not None)
    @rule(objects=st.lists(OBJECTS, max_size=3))
    def stage(self, objects: list[KubeObject]) -> None:
        assert self.staged is not None
        for obj in objects:
            self.staged.put(obj.key, obj)
            self.listed[obj.key] = obj

    @precondition(lambda self: self.staged is not None)
    @rule(key=st.sampled_from(KEYS))
    def keep(self, key: str) -> None:
        assert self.staged is not None
        obj = self.objects.get(key)
        if obj is not None:
            self.staged.keep(key, obj, self.indexer.contents)
            self.listed[key] = obj

    @precondition(lambda self: self.staged is not None)
    @rule(key=st.sampled_from(KEYS))
    def unstage(self, key: str) -> None:
        assert self.staged is not None
        self.staged.remove(key)
        self.listed.pop(key, None)

    @precondition(lambda self: self.staged is not None)
    @rule(version=st.sampled_from("456"))
    def swap(self, version: str) -> None:
        assert self.staged is not None
        with self.indexer.step():
            old = self.indexer.swap(self.staged, version)

        assert set(old.objects) == set(self.objects)
        finish(old)
        self.staged, self.objects, self.version = None, self.listed, version

    @precondition(lambda self: self.staged is not None)
    @rule()
    def give_up(self) -> None:
        assert self.staged is not None
        finish(self.staged)
        self.staged = None

    @precondition(lambda self: len(self.functions) == len(INDEXES))
    @rule()
    def add_an_index(self) -> None:
        self.functions["version"] = index_by("metadata.resourceVersion")
        self.indexer.add_indexers({"version": self.functions["version"]})

    @precondition(lambda self: "uid" not in self.functions and self.building is None)
    @rule()
    def begin_building(self) -> None:
        functions = {"uid": index_by("metadata.uid")}
        self.building = self.indexer.contents.build(functions)
        self.steps = self.building.steps()

    @precondition(lambda self: self.building is not None)
    @rule(finished=st.booleans())
    def go_on_building(self, finished: bool) -> None:
        next(self.steps, None)
        if finished:
            assert self.building is not None
            for _ in self.building.steps():
                pass

            self.building.publish()
            self.building.close()
            self.building = None
            self.functions["uid"] = index_by("metadata.uid")

    @invariant()
    def objects_and_version_are_stored(self) -> None:
        stored = self.indexer.contents.objects
        assert dict(stored.items()) == self.objects
        assert len(stored) == len(self.objects)
        assert self.indexer.resource_version == self.version
        for key in KEYS:
            assert self.indexer.get_by_key(key) == self.objects.get(key)
            assert (key in stored) == (key in self.objects)

    @invariant()
    def staged_objects_are_readable(self) -> None:
        if self.staged is not None:
            assert dict(self.staged.objects.items()) == self.listed

    @invariant()
    def indexes_have_all_objects(self) -> None:
        assert set(self.indexer.indexers) == set(self.functions)
        for name, function in self.functions.items():
            assert index_of(self.indexer, name) == expected_of(function, self.objects)

    @invariant()
    def selections_match(self) -> None:
        for selector in SELECTORS:
            for namespace in (None, "n", ""):
                found = self.indexer.contents.select(selector, namespace, None)
                assert sorted(obj.key for obj in found) == sorted(
                    key
                    for key, obj in self.objects.items()
                    if selector.matches(obj) and namespace in {None, obj.namespace}
                )

    @invariant()
    def failures_are_those_of_the_function(self) -> None:
        for failure in self.failures:
            assert failure.name == "owner"


def finish(contents: Contents[KubeObject]) -> None:
    """Release contents without a loop: what they free at once."""
    freeing = contents.release()
    try:
        freeing.send(None)
    except StopIteration:
        return
    except RuntimeError:  # slices of a loop's budget, in memory
        return

    freeing.close()


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_store_agrees_with_dicts(kind: Kind) -> None:
    machine = type("MachineOf", (Machine,), {"kind": kind})
    run_state_machine_as_test(machine, settings=examples(25, stateful_step_count=30))
