"""`Pipeline` into a store in memory and one on disk: the same objects and notifications.

For any sequence of lists, changes, lists that fail and resets of the history, both
stores have the newest states, and handlers get the same notifications of each object.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

import hypothesis.strategies as st
from contents_helpers import Kind, index_of, opened
from fake_source import thing
from hypothesis import given
from informer_helpers import running
from pipeline_helpers import Rig, View, delete, update

from aioinformer.informer import Added, Deleted, Updated
from examples import examples

if TYPE_CHECKING:
    from aioinformer.cache.disk.environment import Environment
    from aioinformer.informer.notifications import Notification

NAMES = "abcd"

# The version of an object counts up; its uid and node follow from these numbers.
STATES = st.dictionaries(
    st.sampled_from(NAMES), st.tuples(st.integers(0, 1), st.integers(1, 2)), max_size=4
)
Program = list[tuple[str, dict[str, tuple[int, int]]]]

STEPS: st.SearchStrategy[tuple[str, dict[str, tuple[int, int]]]] = st.one_of(
    st.tuples(st.sampled_from(["list", "list after a reset", "failed list"]), STATES),
    st.tuples(st.sampled_from(["update", "delete"]), STATES),
    st.tuples(st.just("unreadable list"), STATES),
)
PROGRAMS: st.SearchStrategy[Program] = st.lists(STEPS, min_size=2, max_size=14)


class Run:
    """A program that runs over one store."""

    def __init__(self, env: Environment | None) -> None:
        self.rig = Rig(env=env)
        self.view = View()
        self.rig.processor.listen(self.view)
        self.version = 10
        self.told: dict[str, list[str]] = {}

    async def run(self, program: Program) -> None:
        pipeline = self.rig.pipeline
        async with running(self.rig.run()):
            await self.rig.relist(version=self.version)
            await self._applied()
            for step, states in program:
                self.version += 1
                objects = [
                    thing(
                        name,
                        self.version if changed else 1,
                        f"{name}-{uid}",
                        spec={"nodeName": f"node-{uid}"},
                    )
                    for name, (changed, uid) in states.items()
                ]
                match step:
                    case "list":
                        await self.rig.relist(*objects, version=self.version)
                    case "list after a reset":
                        await pipeline.stage(objects, after_reset=True)
                        await pipeline.commit(str(self.version), after_reset=True)
                    case "failed list":
                        await pipeline.stage(objects)
                        await pipeline.discard()
                    case "unreadable list":
                        await pipeline.stage(objects)
                        await pipeline.stage_unreadable([f"default/{NAMES[0]}"])
                        await pipeline.commit(str(self.version))
                    case "update":
                        await self.rig.change(
                            *map(update, objects), version=self.version
                        )
                    case _:
                        await self.rig.change(
                            *map(delete, objects), version=self.version
                        )

                if step != "failed list":
                    await self._applied()

        for event in self.rig.take():
            self._note(event)

    async def _applied(self) -> None:
        """Wait for the current version: a step depends on what is applied before it."""
        while self.rig.indexer.resource_version != str(self.version):
            await asyncio.sleep(0)

        await self.rig.processor.drained()

    def _note(self, event: Notification) -> None:
        match event:
            case Added(obj=obj):
                text = f"added {obj.resource_version} {obj.uid}"
            case Updated(old=old, new=obj):
                text = f"updated {old.resource_version} {obj.resource_version}"
            case Deleted(obj=obj, final_state_unknown=unknown):
                text = f"deleted {obj.resource_version} {unknown}"
            case _:
                assert_never(event)

        self.told.setdefault(obj.key, []).append(text)

    @property
    def outcome(self) -> tuple[object, ...]:
        indexer = self.rig.indexer
        stored = {obj.key: (obj.resource_version, obj.uid) for obj in indexer.list()}
        assert self.view.broken == []
        assert self.view.objects == {key: it for key, (it, _) in stored.items()}
        return (
            stored,
            index_of(indexer, "node"),
            indexer.resource_version,
            self.told,
            self.rig.pipeline.duplicates,
        )


def outcome(kind: Kind, program: Program) -> tuple[object, ...]:
    with tempfile.TemporaryDirectory() as folder:
        env = opened(kind, Path(folder))

        async def run() -> tuple[object, ...]:
            made = Run(env)
            await made.run(program)
            return made.outcome

        try:
            return asyncio.run(run())
        finally:
            if env is not None:
                env.close()


@given(program=PROGRAMS)
@examples(40)
def test_stores_and_notifications_are_the_same(program: Program) -> None:
    assert outcome("disk", program) == outcome("memory", program)
