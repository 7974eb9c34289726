"""Contents on disk against a model: any writes, lists, aborts and restarts."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis.strategies as st
import pytest
from disk_helpers import (
    FUNCTIONS,
    Disk,
    buckets,
    by_version,
    expected_buckets,
    selected,
    state,
    states,
    thing,
)
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from aioinformer.model import LabelSelector
from examples import examples

if TYPE_CHECKING:
    from aioinformer.cache.disk.contents import DiskContents
    from aioinformer.model import KubeObject


LONG = "n" * 500
KEYS = st.sampled_from(
    [
        "a/x",
        "a/y",
        "a-b/x",
        "b/é",
        f"b/{LONG}",
        f"b/{LONG}2",
        "cluster",
        f"{LONG}/x",
        "",
    ]
)
VALUES = st.sampled_from(["", "web", "db", '"quoted"', "line\nbreak", "v" * 450])
LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), VALUES)
OBJECTS = st.builds(
    thing,
    KEYS,
    st.integers(1, 5),
    LABELS,
    st.lists(VALUES | st.just("bad"), max_size=3),
    more=st.sampled_from(["", "x" * 300]),
)
SELECTORS = ["app=web", "app in (web,db),tier", "app!=web", "!tier", "app=,tier=db"]
ALL = {**FUNCTIONS, "version": by_version}


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        # Full chunks with few objects.
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("aioinformer.cache.disk.columns.CHUNK", 2)
        self.patch.setattr("aioinformer.cache.disk.columns.SPARSE", 1)
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "store"
        self.disk = Disk(self.path)
        self.writer = self.disk.writer()
        self.reader = self.disk.reader(ALL)
        self.model: dict[str, KubeObject] = {}
        self.version = ""
        self.staged: DiskContents | None = None
        self.staged_model: dict[str, KubeObject] = {}

    def teardown(self) -> None:
        self.patch.undo()
        self.disk.close()
        self.folder.cleanup()

    # ------------------------------------------------------------ current contents

    @rule(objects=st.lists(OBJECTS, max_size=4), gone=KEYS, version=st.integers(1, 9))
    def write(self, objects: list[KubeObject], gone: str, version: int) -> None:
        with self.writer.step():
            for obj in objects:
                self.writer.put(obj.key, obj)
                self.model[obj.key] = obj
                assert self.writer.objects[obj.key] == obj

            old = self.writer.remove(gone)
            assert old == self.model.pop(gone, None)
            self.writer.resource_version = self.version = str(version)

    @rule(obj=OBJECTS, gone=KEYS)
    def abort(self, obj: KubeObject, gone: str) -> None:
        with suppress(ZeroDivisionError), self.writer.step():
            self.writer.put(obj.key, obj)
            self.writer.remove(gone)
            self.writer.resource_version = "wrong"
            raise ZeroDivisionError

    @rule()
    def restart(self) -> None:
        self.disk.close()
        self.disk = Disk(self.path)
        self.writer = self.disk.writer()
        self.reader = self.disk.reader(ALL)
        self.staged = None

    # ------------------------------------------------------------ lists

    @precondition(lambda self: self.staged is None)
    @rule()
    def stage(self) -> None:
        self.staged = self.writer.replacement()
        self.staged_model = {}

    @precondition(lambda self: self.staged is not None)
    @rule(objects=st.lists(OBJECTS, max_size=80), gone=KEYS, flush=st.booleans())
    def list_some(self, objects: list[KubeObject], gone: str, flush: bool) -> None:
        assert self.staged is not None
        for obj in objects:
            self.staged.put(obj.key, obj)
            self.staged_model[obj.key] = obj
            assert obj.key in self.staged.objects
            assert self.staged.objects.get(obj.key) == obj

        if flush:
            self.staged.flush()

        assert self.staged.remove(gone) == self.staged_model.pop(gone, None)
        assert gone not in self.staged.objects

    @precondition(lambda self: self.staged is not None)
    @rule(key=KEYS)
    def keep(self, key: str) -> None:
        assert self.staged is not None
        obj = self.writer.objects.get(key)
        if obj is not None:
            self.staged.keep(key, obj, self.writer)
            self.staged_model[key] = self.model[key]

    @precondition(lambda self: self.staged is not None)
    @rule(version=st.integers(1, 9))
    def replace(self, version: int) -> None:
        assert self.staged is not None
        old, new = self.writer, self.staged
        assert state(new) == states(self.staged_model.values())
        self.compare(old, new)
        with old.step():
            self.writer = old.replace_with(new, str(version))

        assert state(old) == states(self.model.values())
        self.version = str(version)
        self.model, self.staged = self.staged_model, None
        asyncio.run(old.release())

    @precondition(lambda self: self.staged is not None)
    @rule()
    def give_up(self) -> None:
        assert self.staged is not None
        asyncio.run(self.staged.release())
        self.staged = None

    def compare(self, old: DiskContents, new: DiskContents) -> None:
        before, after = states(self.model.values()), states(self.staged_model.values())
        differing = {
            key
            for key in before.keys() | after.keys()
            if before.get(key) != after.get(key)
        }
        found = set()
        for it in old.objects.differences(new.objects):
            if it is not None:
                key, here, there = it
                found.add(key)
                assert here == self.model.get(key)
                assert there == self.staged_model.get(key)

        assert differing == found

    # ------------------------------------------------------------ readers

    @invariant()
    def everything_is_read(self) -> None:
        objects = self.model.values()
        for contents in (self.writer, self.reader):
            assert state(contents) == states(objects)
            keys = list(contents.objects)
            assert sorted(keys) == sorted(self.model)
            short = [key for key in keys if len(key) < len(LONG)]
            assert short == sorted(short)
            assert len(contents.objects) == len(self.model)
            assert contents.resource_version == self.version
            for name, function in contents.indexes.items():
                assert buckets(contents, name) == expected_buckets(
                    objects, function.function
                )

            for text in SELECTORS:
                selector = LabelSelector.parse(text)
                for namespace in (None, "a", "b", ""):
                    assert selected(contents, text, namespace) == {
                        obj.key
                        for obj in objects
                        if selector.matches(obj) and namespace in {None, obj.namespace}
                    }

    @invariant()
    def header_agrees(self) -> None:
        header = self.disk.env.header
        assert header.count == len(self.model)
        assert header.version == self.version


TestContents = Machine.TestCase
TestContents.settings = examples(8, stateful_step_count=20)
