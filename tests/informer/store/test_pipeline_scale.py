"""`Pipeline` with 20,000 objects: replaced within the budget and in one step.

Nothing is timed. The tests count the work between two checks of the loop's budget.
"""

from __future__ import annotations

import asyncio
from collections.abc import ItemsView, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from informer_helpers import Stage, running

from aioinformer.budget import LoopBudget
from aioinformer.cache import Contents, Indexer
from aioinformer.cache.index import NAMESPACE_INDEX, by_namespace
from aioinformer.cache.memory import MemoryContents
from aioinformer.informer.store.pipeline import Pipeline
from aioinformer.model import KubeObject

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.informer.notifications import Notification

MANY = 20_000
PAGE = 500
MOST = 200  # objects between two checks of the budget


class Meter:
    """A counter of objects processed, in all and between two checks of the budget."""

    def __init__(self) -> None:
        self.looks = 0
        self.longest = 0
        self._since = 0

    def did(self) -> None:
        self._since += 1
        self.longest = max(self.longest, self._since)

    def look(self) -> None:
        self.looks += 1
        self._since = 0


class Metered(dict[str, KubeObject]):
    """Objects by key; each read, write and iteration is counted."""

    meter: Meter

    def get(self, key: str, default: Any = None) -> Any:
        self.meter.did()
        return super().get(key, default)

    def __setitem__(self, key: str, value: KubeObject) -> None:
        self.meter.did()
        super().__setitem__(key, value)

    def items(self) -> Any:
        return MeteredItems(self)


class MeteredItems(ItemsView[str, KubeObject]):
    def __iter__(self) -> Iterator[tuple[str, KubeObject]]:
        source: Metered = self._mapping  # type: ignore[attr-defined]
        for item in dict.items(source):
            source.meter.did()
            yield item


class MeteredIndexer(Indexer[KubeObject]):
    """An indexer with counted contents."""

    meter: Meter

    def replacement(self) -> Contents[KubeObject]:
        contents = super().replacement()
        assert isinstance(contents, MemoryContents)
        objects = Metered()
        objects.meter = self.meter
        contents.objects = objects
        return contents


class Rig:
    """A pipeline into a counted store, with a handler that counts."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.indexer = MeteredIndexer(
            {NAMESPACE_INDEX: by_namespace, "version": self._by_version},
            key_func=lambda obj: obj.key,
        )
        self.indexer.meter = meter
        self.processor = Stage()
        self.received = 0
        self.pipeline = Pipeline(self.indexer, self.processor)
        self.processor.listen(self._count)

    def _by_version(self, obj: KubeObject) -> Iterable[str]:
        self.meter.did()
        return (obj.resource_version,)

    def _count(self, event: Notification) -> None:
        self.received += 1

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.processor.run())
            group.create_task(self.pipeline.run())

    async def relist(self, objects: list[KubeObject], version: int) -> None:
        """Pass a list in pages; return when it is stored and delivered."""
        for start in range(0, len(objects), PAGE):
            await self.pipeline.stage(objects[start : start + PAGE])

        await self.pipeline.commit(str(version))
        while self.indexer.resource_version != str(version):
            await asyncio.sleep(0)

        await self.processor.drained()


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Meter:
    made = Meter()
    over, start = LoopBudget.over, LoopBudget.start

    def metered_over(budget: LoopBudget) -> bool:
        made.look()
        return over(budget)

    async def metered_start(budget: LoopBudget) -> None:
        made.look()
        await start(budget)

    monkeypatch.setattr(LoopBudget, "over", metered_over)
    monkeypatch.setattr(LoopBudget, "start", metered_start)
    return made


MODEL = KubeObject.of({"metadata": {"name": "model", "namespace": "default"}})


def states(version: int) -> list[KubeObject]:
    """Make all objects, each of this version."""
    body, labels, context = MODEL.body, MODEL.label_set, MODEL.context
    return [
        KubeObject(body, f"n/p{number}", f"u{number}", str(version), labels, context)
        for number in range(MANY)
    ]


SAMPLE = [f"n/p{number}" for number in (0, 1, MANY // 2, MANY - 1)]


def seen_in(indexer: Indexer[KubeObject]) -> tuple[object, ...]:
    """Return the current number of objects, and the versions of a sample and an index."""
    found = [indexer.get_by_key(key) for key in SAMPLE]
    index = indexer.contents.indexes["version"]
    return (
        len(indexer),
        {it.resource_version for it in found if it is not None},
        {value: len(index.keys_of(value)) for value in index.values()},
        indexer.resource_version,
    )


async def test_replacement_respects_the_budget_and_is_visible_in_one_step(
    meter: Meter,
) -> None:
    rig = Rig(meter)
    async with running(rig.run()):
        await rig.relist(states(1), 1)
        old = seen_in(rig.indexer)
        meter.looks = meter.longest = 0

        arriving = asyncio.create_task(rig.relist(states(2), 2))
        seen: list[tuple[object, ...]] = []
        turns = 0
        while not arriving.done():
            now = seen_in(rig.indexer)
            turns += 1
            if not seen or seen[-1] != now:
                seen.append(now)

            await asyncio.sleep(0)

    assert old == (MANY, {"1"}, {"1": MANY}, "1")
    assert seen == [old, (MANY, {"2"}, {"2": MANY}, "2")]
    assert rig.received == 2 * MANY
    assert meter.longest <= MOST
    assert meter.looks >= MANY // MOST
    assert turns > 20


async def test_relist_keeps_unchanged_objects_and_delivers_nothing(
    meter: Meter,
) -> None:
    rig = Rig(meter)
    stored = states(1)
    async with running(rig.run()):
        await rig.relist(stored, 1)
        received = rig.received
        meter.looks = meter.longest = 0
        await rig.relist(states(1), 2)

    assert all(map(lambda now, was: now is was, rig.indexer.list(), stored))
    assert len(rig.indexer) == MANY
    assert rig.received == received == MANY
    assert meter.longest <= MOST
    assert meter.looks >= MANY // MOST


async def test_unreadable_list_keeps_all_objects_within_the_budget(
    meter: Meter,
) -> None:
    """A server may start to send invalid objects."""
    rig = Rig(meter)
    stored = states(1)
    async with running(rig.run()):
        await rig.relist(stored, 1)
        meter.looks = meter.longest = 0
        await rig.pipeline.stage_unreadable([obj.key for obj in stored])
        await rig.relist([], 2)

    assert all(map(lambda now, was: now is was, rig.indexer.list(), stored))
    assert len(rig.indexer) == rig.received == MANY
    assert meter.longest <= MOST
    assert meter.looks >= MANY // MOST


async def test_index_added_to_a_queued_list_is_built_within_the_budget(
    meter: Meter,
) -> None:
    """The list was started without the index, and gets it before it becomes visible."""
    called = 0

    def late(obj: KubeObject) -> Iterable[str]:
        nonlocal called
        called += 1
        meter.did()
        return ("all",)

    rig = Rig(meter)
    objects = states(1)
    for start in range(0, MANY, PAGE):
        await rig.pipeline.stage(objects[start : start + PAGE])

    rig.indexer.add_indexers({"late": late})
    await rig.pipeline.commit("1")
    meter.looks = meter.longest = 0
    async with running(rig.run()):
        while rig.indexer.resource_version != "1":
            await asyncio.sleep(0)

        found = len(rig.indexer.contents.indexes["late"].keys_of("all"))

    assert (found, called) == (MANY, MANY)
    assert meter.longest <= MOST
    assert meter.looks >= MANY // MOST


async def test_index_on_a_large_store_is_built_within_the_budget(
    meter: Meter,
) -> None:
    indexer = MeteredIndexer()
    indexer.meter = meter
    indexer.replace(states(1))
    meter.looks = meter.longest = 0

    def function(obj: KubeObject) -> Iterable[str]:
        meter.did()
        return ("all",)

    await indexer.build_indexers({"late": function})

    assert indexer.by_index("late", "all") == indexer.list()
    assert meter.longest <= MOST
    assert meter.looks >= MANY // MOST
