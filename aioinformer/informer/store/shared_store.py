"""`SharedStore`: what the pipelines of one store share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioinformer.model.object_meta import version_number

if TYPE_CHECKING:
    from aioinformer.informer.store.pipeline import Pipeline

__all__ = ["SharedStore"]


class SharedStore:
    """State that the pipelines of one store share: one pipeline per namespace."""

    def __init__(self) -> None:
        self.pipelines: list[Pipeline] = []
        self.lock: asyncio.Lock = asyncio.Lock()
        """Lock of the pipeline that changes the store. A list copies the objects of
        other namespaces in several steps, and they must not change meanwhile."""

    @property
    def version(self) -> str:
        """The lowest version of the pipelines: all of them have applied it.

        All lists come from one server, so versions are comparable. Empty until every
        pipeline has a version. A version that is not decimal counts as the lowest.
        """
        versions = [pipeline.version for pipeline in self.pipelines]
        return "" if "" in versions else min(versions, key=version_number)

    @property
    def synced(self) -> bool:
        """True once the first complete lists of all pipelines are in the store."""
        return all(pipeline.synced for pipeline in self.pipelines)

    def version_in(self, namespace: str) -> str:
        """Return the version that the pipeline of a namespace has applied."""
        versions = (it.version for it in self.pipelines if it.namespace == namespace)
        return next(versions, "")
