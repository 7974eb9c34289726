"""A writer that ends between any two steps, and the next one: nothing is told twice.

Changes are stored in steps, and the version follows the last of them. So the watch of
the next writer repeats changes that are in the store already.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import pytest
from contents_helpers import opened, stored_in
from fake_source import thing
from hypothesis import given

from aioinformer.cache import Delta, DeltaType
from aioinformer.cache.disk.records import Records
from aioinformer.informer.cached.journal import EntryKind, Journal
from aioinformer.informer.cached.writer import JournalPublisher
from aioinformer.informer.store import pipeline as pipeline_module
from aioinformer.informer.store.pipeline import Pipeline
from examples import examples

if TYPE_CHECKING:
    from aioinformer.cache.disk.environment import Environment
    from aioinformer.model import KubeObject

# Lengths of the batches of a watch, and the turns of the loop that each writer lives for.
BATCHES = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=6), max_size=6)
LIVES = st.lists(st.integers(0, 60), max_size=4)


class Server:
    """Changes of a few objects: each key is added, updated and deleted in turn."""

    def __init__(self, batches: list[list[str]]) -> None:
        self.version = 10
        self.lives = dict.fromkeys("abc", 0)
        self.objects: dict[str, KubeObject] = {}
        self.batches = [[self._change(name) for name in names] for names in batches]

    def _change(self, name: str) -> Delta[KubeObject]:
        self.version += 1
        step = self.lives[name]
        self.lives[name] += 1
        obj = thing(name, self.version, f"{name}-{step // 3}")
        if step % 3 == 2:
            del self.objects[obj.key]
            return Delta(DeltaType.DELETED, obj)

        self.objects[obj.key] = obj
        return Delta(DeltaType.UPDATED if step % 3 else DeltaType.ADDED, obj)

    def after(self, version: int) -> list[list[Delta[KubeObject]]]:
        """Return the batches of a watch that begins at a version."""
        rest = [
            [it for it in batch if int(it.object.resource_version) > version]
            for batch in self.batches
        ]
        return [batch for batch in rest if batch]


async def write(env: Environment, server: Server, turns: int | None) -> None:
    """Write for some turns of the loop, or until everything is written for None."""
    indexer = stored_in(env, {})
    journal = Journal(env, Records(env))
    with env.write():
        journal.recover()

    pipeline = Pipeline(indexer, JournalPublisher(env, journal, lambda: None))
    version = indexer.resource_version
    pipeline.resume(version, journal.deletions(version))
    running = asyncio.create_task(pipeline.run())
    for batch in server.after(int(version)):
        newest = batch[-1].object.resource_version
        await pipeline.feed([Delta(it.type, it.object) for it in batch], newest)
        if not turns:
            await asyncio.sleep(0)

    while turns or (turns is None and int(indexer.resource_version) < server.version):
        await asyncio.sleep(0)
        turns = turns and turns - 1

    running.cancel()
    await asyncio.wait({running})


def told(env: Environment) -> list[tuple[EntryKind, str, str]]:
    """Return kind, uid and version of each entry of the journal."""
    records, found = Records(env), []
    with env.read():
        for entry in Journal(env, records).read(0, 1000) or ():
            obj = records.decode(entry.key, entry.new or entry.old)
            found.append((entry.kind, obj.uid, obj.resource_version))

    return found


@given(batches=BATCHES, lives=LIVES)
@examples(40)
def test_writers_that_end_between_two_steps_tell_each_change_once(
    batches: list[list[str]], lives: list[int]
) -> None:
    server = Server(batches)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("aioinformer.budget.SLICE_SECONDS", 0.0)
        patch.setattr(pipeline_module, "_CHANGES_BETWEEN_CHECKS", 1)
        env: Any = opened("disk", Path(folder))
        stored_in(env, {}).replace([], "10")
        for turns in lives:
            asyncio.run(write(env, server, turns))

        asyncio.run(write(env, server, None))
        entries = told(env)
        stored = {obj.key: obj for obj in stored_in(env, {}).list()}
        env.close()

    assert stored == server.objects
    assert len(entries) == len(set(entries)), "told twice"
    for uid in {uid for _, uid, _ in entries}:
        kinds = [kind for kind, it, _ in entries if it == uid]
        versions = [int(version) for _, it, version in entries if it == uid]
        assert versions == sorted(versions)
        assert (
            kinds
            == [EntryKind.ADDED, EntryKind.UPDATED, EntryKind.DELETED][: len(kinds)]
        )
