"""`PartialPipeline`: the pipeline of one namespace, into a store it shares with others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aioinformer.budget import LoopBudget
from aioinformer.cache.index import NAMESPACE_INDEX
from aioinformer.informer.pipeline import Pipeline
from aioinformer.model.keys import version_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.cache.store import Contents
    from aioinformer.model.objects import KubeObject

__all__ = ["PartialPipeline", "Whole"]


class Whole:
    """What the pipelines of one store have in common."""

    def __init__(self) -> None:
        self.parts: list[PartialPipeline] = []
        self.turn = asyncio.Lock()
        """Held by the one that changes the store. A list takes the place of a part of
        it in several steps, and the other parts must not change meanwhile."""

    @property
    def version(self) -> str:
        """The version that all parts have reached, which is the lowest of theirs.

        All lists are of one server, so their versions can be compared. Empty before
        each part has one; if one is no decimal number, that one, as it says no more.
        """
        versions = [part.version for part in self.parts]
        return "" if "" in versions else min(versions, key=version_number)

    @property
    def synced(self) -> bool:
        """The first complete lists of all parts are in the store."""
        return all(part.synced for part in self.parts)


class PartialPipeline(Pipeline):
    """Fills one namespace of a store: its lists replace what is of that namespace.

    As with a whole store, a list becomes visible in one step. To build what is swapped
    in, the objects of the other namespaces are taken over, in slices, which takes about
    a microsecond for each.

    Args:
        namespace: Of all objects that its source has.
        whole: What it shares with the pipelines of the other namespaces.
        *arguments: As of `Pipeline`, which must have an index by namespace.
        **options: The same.
    """

    def __init__(
        self, namespace: str, whole: Whole, *arguments: Any, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._namespace = namespace
        self._whole = whole
        self._own_version = ""
        whole.parts.append(self)

    @property
    def version(self) -> str:
        """The version up to which everything of this namespace is in the store."""
        return self._own_version

    async def _apply_waiting(self, budget: LoopBudget) -> None:
        async with self._whole.turn:
            await super()._apply_waiting(budget)

    def _mine(self, contents: Contents[KubeObject]) -> Mapping[str, KubeObject]:
        return contents.indexes[NAMESPACE_INDEX].buckets.get(self._namespace, {})

    async def _completed(self, new: Contents[KubeObject]) -> Mapping[str, KubeObject]:
        listed = dict(new.objects)
        current = self._indexer.contents
        mine = self._mine(current)
        budget = LoopBudget.current()
        await budget.start()
        for key, obj in current.objects.items():
            if key not in mine:
                new.keep(key, obj, current)

            if budget.over():
                await budget.start()

        budget.end()
        await self._indexer.complete(new)
        return listed

    def _reached(self, version: str) -> str:
        self._own_version = version
        return self._whole.version

    def _mark_synced(self) -> None:
        if self._whole.synced:
            super()._mark_synced()
