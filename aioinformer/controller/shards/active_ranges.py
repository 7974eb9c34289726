"""`ActiveRanges`: ranges that this replica owns, and whose objects an informer has."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from aioinformer._tasks import Notifier
from aioinformer.controller.shards.shards import Shards
from aioinformer.errors import InformerStopped, OptionsError
from aioinformer.informer.shared_informer import SharedInformer
from aioinformer.model.shards import ShardSelector, ranges_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ActiveRanges"]

# The group that decides on the selection of an informer.
_GROUPS: Final[WeakKeyDictionary[SharedInformer, Shards]] = WeakKeyDictionary()


class ActiveRanges:
    """Ranges of a group that are owned, and whose objects an informer has completely.

    It is a `ShardUser` without work of its own, and sets the informer's selection to the
    ranges that the replica owns or will own.

    Args:
        shards: Group.
        informer: Informer of the collection that is shared.
        activated: Callback for ranges that became active.

    Raises:
        OptionsError: If `shards` is no group, or the informer cannot follow it.
    """

    def __init__(
        self,
        shards: Shards,
        informer: SharedInformer,
        activated: Callable[[frozenset[int]], None],
    ) -> None:
        if not isinstance(shards, Shards):
            raise OptionsError(f"shards= takes Shards, not {shards!r}")

        if not isinstance(informer, SharedInformer):
            raise OptionsError(f"shards are of an informer, not {informer!r}")

        group = _GROUPS.get(informer, shards)
        if group is not shards:
            raise OptionsError(
                f"informer {informer.name} belongs to shards {group.name} already: pass "
                "name= for a second informer"
            )

        self.shards: Shards = shards
        """The group."""
        self.active: set[int] = set()
        """Ranges that are owned, and whose objects the informer has."""
        self._informer = informer
        self._activated = activated
        self._ranges = ranges_of(shards.ranges)
        # Ranges whose objects the informer should have.
        self._kept: frozenset[int] = frozenset()
        self._owned: set[int] = set()
        self._changed = Notifier()
        # Before the first list: an unsharded one would be of all objects.
        self._select(frozenset())
        _GROUPS[informer] = shards

    @property
    def complete(self) -> bool:
        """True if the informer has objects of active ranges only."""
        shards = self._informer.selection.shards
        return self._kept == self.active and shards == self._selector(self._kept)

    def hold(self, numbers: frozenset[int]) -> None:
        """Keep the objects of these ranges: see `ShardUser`."""
        self._kept = numbers
        with suppress(InformerStopped):  # its controllers end, too
            self._select(numbers)

        self._changed.notify()

    def start(self, number: int) -> None:
        """Take a range that is owned now: see `ShardUser`."""
        self._owned.add(number)
        self._activate()

    def drain(self, number: int) -> None:
        """Give a range up: see `ShardUser`."""
        self._owned.discard(number)
        self.active.discard(number)

    def cancel(self, number: int) -> None:
        """Give a range up: see `ShardUser`."""
        self.drain(number)

    def busy(self, number: int) -> bool:
        """Return False: a range is given up at once."""
        return False

    def drain_all(self) -> None:
        """Give all ranges up, after leaving the group."""
        self._owned.clear()
        self.active.clear()

    async def run(self) -> None:
        """Take note of lists that are complete, until cancelled.

        Raises:
            InformerStopped: If the informer has ended.
        """
        while True:
            await self._informer.wait_selection()
            self._activate()
            await self._changed.wait()

    def _activate(self) -> None:
        if not self._informer.has_synced:
            return

        shards = self._informer.selection.shards
        listed = {
            number
            for number in self._owned - self.active
            if shards is None or shards.has_range(self._ranges[number])
        }
        if listed:
            self.active |= listed
            self._activated(frozenset(listed))

    def _select(self, numbers: frozenset[int]) -> None:
        self._informer.set_selection(shards=self._selector(numbers))

    def _selector(self, numbers: frozenset[int]) -> ShardSelector:
        return ShardSelector(
            tuple(self._ranges[it] for it in sorted(numbers)), self.shards.shard_by
        )
