"""`ActiveRanges`: ranges that this replica owns, and whose objects an informer has."""

from __future__ import annotations

from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from aioinformer._tasks import Notifier, run_concurrently
from aioinformer._user_code import guarded_logger
from aioinformer.controller.shards.shards import Shards
from aioinformer.errors import HistoryReset, InformerStopped, OptionsError
from aioinformer.informer.shared_informer import SharedInformer
from aioinformer.model.object_meta import version_number
from aioinformer.model.shards import ShardSelector, ranges_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aioinformer.model.resource import Resource

__all__ = ["ActiveRanges", "name_of", "require_whole"]


logger: Final = guarded_logger(__name__)

CATCH_UP_SECONDS = 10.0
"""Maximum wait for the informers to show what a previous owner has written."""


def name_of(resource: Resource) -> str:
    """Return the name of a resource, such as `deployments.apps`."""
    return f"{resource.plural}.{resource.group}".rstrip(".")


class _Selecting:
    """Group that decides on the selection of an informer, and what its users keep.

    The informer has the ranges of all users. Each is told the same, one after the other.
    """

    def __init__(self, shards: Shards) -> None:
        self.shards: Shards = shards
        self.kept: dict[ActiveRanges, frozenset[int]] = {}


_SELECTING: Final[WeakKeyDictionary[SharedInformer, _Selecting]] = WeakKeyDictionary()

# Names of controllers without shards.
_WHOLE: Final[WeakKeyDictionary[SharedInformer, str]] = WeakKeyDictionary()


def require_whole(
    informers: Iterable[SharedInformer], name: str, shards: Shards | None
) -> None:
    """Refuse informers that have a part of their objects, now and later.

    A group by namespace is an exception for its own controllers: what belongs together
    is at the same replica.

    Args:
        informers: Informers that a controller needs all objects of.
        name: Name of the controller.
        shards: Group of the controller, or None.

    Raises:
        OptionsError: If an informer follows a group.
    """
    by_uid = shards is None or shards.shard_by == "uid"
    for informer in informers:
        selecting = _SELECTING.get(informer)
        if selecting is None:
            if by_uid:
                _WHOLE.setdefault(informer, name)
        elif by_uid or selecting.shards is not shards:
            raise OptionsError(
                f"controller {name} needs all objects of informer {informer.name}, which "
                f"has those of one replica of shards {selecting.shards.name}: pass name= "
                "for a second informer"
            )


class ActiveRanges:
    """Ranges of a group that are owned, and whose objects an informer has completely.

    It is a `ShardUser` without work of its own, and sets the informer's selection to the
    ranges that the replica owns or will own.

    Args:
        shards: Group.
        informer: Informer of the collection that is shared.
        activated: Callback for ranges that became active.
        informers: Informers that must show what previous owners have written.

    Raises:
        OptionsError: If `shards` is no group, or the informer cannot follow it.
    """

    def __init__(
        self,
        shards: Shards,
        informer: SharedInformer,
        activated: Callable[[frozenset[int]], None],
        informers: Sequence[SharedInformer] = (),
    ) -> None:
        if not isinstance(shards, Shards):
            raise OptionsError(f"shards= takes Shards, not {shards!r}")

        if not isinstance(informer, SharedInformer):
            raise OptionsError(f"shards are of an informer, not {informer!r}")

        if informer in _WHOLE:
            raise OptionsError(
                f"controller {_WHOLE[informer]} needs all objects of informer "
                f"{informer.name}: pass name= for a second informer"
            )

        selecting = _SELECTING.get(informer)
        if selecting is not None and selecting.shards is not shards:
            raise OptionsError(
                f"informer {informer.name} belongs to shards {selecting.shards.name} "
                "already: pass name= for a second informer"
            )

        self.shards: Shards = shards
        """The group."""
        self.active: set[int] = set()
        """Ranges that are owned, and whose objects the informer has."""
        self.kept: frozenset[int] = frozenset()
        """Ranges whose objects the informer should have."""
        self._informer = informer
        self._activated = activated
        self._informers = informers
        # Versions that informers did not reach in time.
        self._missed: dict[SharedInformer, int] = {}
        self._behind_changed = Notifier()
        self._ranges = ranges_of(shards.ranges)
        self._owned: set[int] = set()
        if selecting is None:
            selecting = _Selecting(shards)
            # Before the first list: an unsharded one would be of all objects.
            informer.set_selection(shards=self._selector(frozenset()))
            _SELECTING[informer] = selecting

        self._selecting = selecting

    @property
    def complete(self) -> bool:
        """True if the informer has objects of active ranges only."""
        shards = self._informer.selection.shards
        return self.kept == self.active and shards == self._selector(self.kept)

    def keep(self, numbers: frozenset[int]) -> None:
        """Keep the objects of these ranges: see `ShardUser`."""
        self.kept = numbers
        self._selecting.kept[self] = numbers
        self._select()

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

    def lacking(self) -> dict[int, str]:
        """Return the owned ranges whose objects the informer does not have yet."""
        lacking = self._owned - self.active
        if not lacking:
            return {}

        name, error = self._informer.name, self._informer.status.last_error
        why = f"{name} has not listed them" + ("" if error is None else f": {error}")
        return dict.fromkeys(lacking, why)

    def leave(self) -> None:
        """Give all ranges up, after leaving the group. Idempotent."""
        self._owned.clear()
        self.active.clear()
        self.kept = frozenset()
        if self._selecting.kept.pop(self, None) is not None:
            self._select()

    async def run(self) -> None:
        """Take note of lists that are complete, until cancelled.

        Raises:
            InformerStopped: If the informer has ended.
        """
        await run_concurrently(self._follow_selection(), self._catch_up())

    async def _follow_selection(self) -> None:
        while True:
            self._activate()
            # A part of the change is enough: further ranges may be added all the time.
            shown = self._informer.selection if self._informer.has_synced else None
            await self._informer.wait_selection(other_than=shown)

    async def _catch_up(self) -> None:
        """Wait until the informers show what previous owners have written."""
        while True:
            while behind := self._behind(self._owned - self.active):
                version, informer = min(behind, key=itemgetter(0))
                try:
                    await informer.wait_for_version(str(version), CATCH_UP_SECONDS)
                except (TimeoutError, HistoryReset, OptionsError) as exc:
                    self._missed[informer] = max(it for it, _ in behind)
                    logger.warning(
                        "shards %s: starting on ranges whose last writes informer %s "
                        "does not show: %s",
                        self.shards.name,
                        informer.name,
                        exc,
                    )

                self._activate()

            await self._behind_changed.wait()

    def _behind(self, numbers: Iterable[int]) -> list[tuple[int, SharedInformer]]:
        """Return informers that lack writes of previous owners, and their versions."""
        return [
            (version, informer)
            for number in numbers
            for name, version in self.shards.written(number).items()
            for informer in self._informers
            if informer.resource is not None
            and name_of(informer.resource) == name
            and version > version_number(informer.store.resource_version)
            and version > self._missed.get(informer, -1)
        ]

    def _activate(self) -> None:
        if not self._informer.has_synced:
            return

        shards = self._informer.selection.shards
        listed = {
            number
            for number in self._owned - self.active
            if shards is None or shards.has_range(self._ranges[number])
        }
        ready = frozenset(number for number in listed if not self._behind([number]))
        if ready != listed:
            self._behind_changed.notify()

        if ready:
            self.active |= ready
            self.shards.work_began()
            self._activated(ready)

    def _select(self) -> None:
        numbers = frozenset[int]().union(*self._selecting.kept.values())
        with suppress(InformerStopped):  # its controllers end, too
            self._informer.set_selection(shards=self._selector(numbers))

    def _selector(self, numbers: frozenset[int]) -> ShardSelector:
        return ShardSelector(
            tuple(self._ranges[it] for it in sorted(numbers)), self.shards.shard_by
        )
