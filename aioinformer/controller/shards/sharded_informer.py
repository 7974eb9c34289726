"""`ShardedInformer`: reads a part of a collection, while other replicas read the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from aioinformer._tasks import Supervisor, run_concurrently
from aioinformer.controller.shards.active_ranges import ActiveRanges
from aioinformer.errors import OptionsError
from aioinformer.informer.lifecycle import Lifecycle

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable

    from aioinformer.controller.shards.shards import Shards
    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.selectors import LabelSelector

__all__ = ["ShardedInformer"]


class ShardedInformer(Lifecycle):
    """Objects of one replica out of several, for programs that only read.

    ::

        pods = ShardedInformer(factory.informer("v1", "pods"), Shards("exporter", client))
        async with factory, pods.shards, pods:
            for pod in pods.list():
                ...

    Each object is read by one replica at most: as long as this one owns its range, and has
    listed all objects of that. While a range moves, its objects are read by none. The
    informer has the objects of the ranges that this replica owns or will own. So its
    handlers see an object a few seconds before `list()` does, and its end (`Deleted`
    with the reason `"moved"`) later.

    A `Manager` runs it with `manager.add(pods, leader_only=False)`, and the group with
    `manager.add(pods.shards, leader_only=False)`.

    Args:
        informer: Informer, whose selection follows the group. Its owner runs it.
        shards: Group of the replicas. Its owner runs it, too.

    Raises:
        OptionsError: If the informer cannot change its selection, or belongs to another
            group.
    """

    def __init__(self, informer: SharedInformer, shards: Shards) -> None:
        self._ranges = ActiveRanges(shards, informer, lambda numbers: None)
        self.informer: SharedInformer = informer
        """Informer."""
        self.shards: Shards = shards
        """Group of the replicas."""
        self._joined = False
        self._supervisor = Supervisor(self._run, f"sharded {informer.name}")

    def __repr__(self) -> str:
        return f"<ShardedInformer {self.informer.name} ranges={len(self.ranges)}>"

    # ------------------------------------------------------------ reads

    @property
    def ranges(self) -> frozenset[int]:
        """Ranges whose objects this replica reads."""
        return frozenset(filter(self.shards.owns, self._ranges.active))

    def list(self, selector: str | LabelSelector = "") -> builtins.list[KubeObject]:
        """Return the objects of this replica, unordered, in a new list.

        Args:
            selector: Label selector in kubectl's syntax; empty for all.

        Raises:
            SelectorSyntaxError: If the selector cannot be parsed.
            NotSynced, InformerStopped: As of `Lister.list`.
        """
        found = self.informer.lister.list(selector)
        ranges = self.ranges
        if self._ranges.complete and ranges == self._ranges.active:
            return found

        return [obj for obj in found if self.shards.range_of(obj) in ranges]

    def get(self, key: str) -> KubeObject | None:
        """Return an object of this replica, or None.

        Raises:
            NotSynced, InformerStopped, OptionsError: As of `Lister.get`.
        """
        found = self.informer.lister.get(key)
        if found is None or self.shards.range_of(found) not in self.ranges:
            return None

        return found

    # ------------------------------------------------------------ lifetime

    async def start(self) -> None:
        """Join the group, and return.

        Raises:
            OptionsError: If it is running already, or the group does not run.

        Cancellation:
            Leaves it again.
        """
        await self._supervisor.start()

    async def shutdown(self) -> None:
        """Leave the group. Idempotent.

        Raises:
            OptionsError: If the group has other ranges.
            InformerStopped: If the informer has ended before.

        Cancellation:
            Deferred until it has left.
        """
        await self._supervisor.stop()

    async def run(self) -> None:
        """Take part in the group until cancelled.

        Raises:
            OptionsError: If it is running already, or the group does not run, or has
                other ranges.
            InformerStopped: If the informer has ended.

        Cancellation:
            Leaves the group.
        """
        await self._run(lambda: None)

    async def _run(self, ready: Callable[[], None]) -> None:
        if self._joined:
            raise OptionsError(f"sharded {self.informer.name} is already running")

        await self.shards.wait_running()
        self._joined = True
        try:
            self.shards.join(self._ranges)
            ready()
            await run_concurrently(self._ranges.run(), self._fail_with_group())
        finally:
            self._joined = False
            self.shards.leave(self._ranges)
            self._ranges.leave()

    async def _fail_with_group(self) -> NoReturn:
        raise await self.shards.failed()
