"""`SelectionChanges`: lets the store of a reflector follow changes of its selection."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, assert_never

from aioinformer._tasks import BackgroundContext
from aioinformer._user_code import guarded_logger
from aioinformer.errors import HistoryReset
from aioinformer.informer.listwatch.added_list import AddedList
from aioinformer.informer.listwatch.current_selection import (
    CurrentSelection,
    ListAgain,
    Narrow,
    Widen,
    next_change,
    reselected,
)
from aioinformer.informer.listwatch.interface import store_calls
from aioinformer.informer.listwatch.machine import (
    Reselected,
    ShardsListed,
    WatchEnded,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from aioinformer.informer.listwatch.interface import ReflectorStore
    from aioinformer.informer.listwatch.machine import Input
    from aioinformer.informer.listwatch.reflector_stats import ReflectorStats
    from aioinformer.watch.interface import Selectors, Watch

__all__ = ["SelectionChanges"]

logger: Final = guarded_logger(__name__)

GATHER_SECONDS = 0.1
"""Seconds within which several changes are one."""


class SelectionChanges:
    """Selection of a reflector, and the changes from it to the one set last.

    The reflector calls `perform` between two watches, so nothing else is fed to the
    store meanwhile. `current_selection` decides on the steps, and `machine` on the
    requests after them.

    Args:
        name: Name of the reflector.
        selection: First selection.
        store: Store of the reflector.
        stats: Statistics of the reflector.
        page_size: Number of objects in a page; None for the default.
        rng: Source of jitter.

    Attributes:
        current: Selection of the watch, and of what is fed to the store.
        wanted: Selectors that were set last.
        shown: Selectors of the objects that readers of the store see.
        due: True if the watch has to end, as a step can be made.
    """

    def __init__(
        self,
        name: str,
        selection: CurrentSelection,
        store: ReflectorStore,
        stats: ReflectorStats,
        page_size: int | None,
        rng: random.Random,
    ) -> None:
        self.current: CurrentSelection = selection
        self.wanted: Selectors = selection.selectors
        self.shown: Selectors = selection.selectors
        self.due: bool = False
        self._name = name
        self._store = store
        self._stats = stats
        self._page_size = page_size
        self._rng = rng
        # Delay from the first of several changes.
        self._gathering: asyncio.TimerHandle | None = None
        # Watch to be ended for a change, and the version at which it began.
        self._followed: Watch | None = None
        self._version = ""
        # List of the shards to be added, the task that makes it, and the step that
        # takes it.
        self._added: AddedList | None = None
        self._adding: BackgroundContext[AddedList] | None = None
        self._widening: Widen | None = None

    def __repr__(self) -> str:
        return f"<SelectionChanges {self._name} {self.shown} to {self.wanted}>"

    def select(self, selectors: Selectors, *, at_once: bool) -> None:
        """Set the selection that the store has to follow; see `Reflector.select`.

        Args:
            selectors: Selectors of that selection.
            at_once: True before the reflector runs.
        """
        reselected(self.current.source, selectors)  # checks them
        if selectors == self.wanted:
            return

        self.wanted = selectors
        if not at_once and self._gathering is None:
            loop = asyncio.get_running_loop()
            self._gathering = loop.call_later(GATHER_SECONDS, self._gathered)

    @contextmanager
    def following(self, watch: Watch, version: str) -> Iterator[None]:
        """End a watch, which is followed in the block, when a step needs that.

        Args:
            watch: Watch of the current selection.
            version: Version after which it has changes.
        """
        self._followed, self._version = watch, version
        if self.due:
            watch.stop()

        try:
            yield
        finally:
            self._followed = None

    def to_list(self) -> CurrentSelection:
        """Return the selection to list: that set last."""
        if self.current.selectors == self.wanted:
            return self.current

        source = reselected(self.current.source, self.wanted)
        return CurrentSelection(source, self._store.known)

    def taken(self) -> None:
        """Record that the store has a complete list of the current selection."""
        self.current.listed()
        self.shown = self.current.selectors

    async def perform(self, version: str) -> Input | None:
        """Make the steps that are possible now.

        Args:
            version: Version of the last watch.

        Returns:
            Input of the machine, after whose actions to call it again; None if no step
            is left, or the list of further shards is not complete.

        Cancellation:
            Leaves the change incomplete.
        """
        while True:
            change = next_change(self.current.selectors, self.wanted)
            added = self._added
            match change:
                case None:
                    await self.leave_added()
                    return None
                case ListAgain():
                    return Reselected()
                case Narrow(selectors=selectors):
                    await self._narrow(selectors)
                case Widen() if added is None or not change.has_some(added.added):
                    await self.leave_added()
                    self._begin_added(change, version)
                    return None
                case Widen() if not added.ended:
                    return None
                case Widen():
                    return await self._take_added(added, change, version)
                case _:
                    assert_never(change)

    async def _narrow(self, selectors: Selectors) -> None:
        with store_calls:
            await self._store.applied()
            source = reselected(self.current.source, selectors)
            await self._store.narrow(CurrentSelection(source, self._store.known).has)
            self.current.becomes(selectors)
            await self._store.applied()

        self.shown = selectors
        logger.info("%s: removed shards from the selection", self._name)

    # ------------------------------------------------------------ further shards

    def _begin_added(self, change: Widen, version: str) -> None:
        """Start to list further shards, while the watch of the others continues."""
        selectors = replace(change.selectors, shards=change.added)
        source = reselected(self.current.source, selectors)
        self._added = AddedList(
            CurrentSelection(source, self._store.known),
            change.added,
            self._stats,
            self._page_size,
            self._rng,
            self._interrupt,
        )
        self._adding = BackgroundContext(
            self._added.complete(version), f"{self._name} list of further shards"
        )

    async def _take_added(
        self, added: AddedList, change: Widen, version: str
    ) -> WatchEnded | ShardsListed:
        """Return the outcome of the list of further shards."""
        if isinstance(added.failure, HistoryReset):
            return WatchEnded(version, added.failure)

        if self._adding is not None:
            await self._adding.value()  # raises other failures

        self._widening = change
        return ShardsListed(added.version)

    async def extend(self, watched: int, listed: int, version: str) -> None:
        """Add the listed objects of further shards to the store.

        Args:
            watched: Version of the last watch.
            listed: Version of the list.
            version: Version of the next watch, the lower one.

        Cancellation:
            Leaves the change incomplete.
        """
        added, change, current = self._added, self._widening, self.current
        assert added is not None
        assert change is not None
        selectors = change.part(current.selectors, added.added)
        current.widen(selectors, added.added, watched=watched, listed=listed)
        objects, added.objects = added.objects, []
        number, repeated = len(objects), max(current.newest_floor, watched, listed)
        await self.leave_added()
        with store_calls:
            await self._store.widen(objects, version, repeated)
            await self._store.applied()

        self.shown = selectors
        logger.info(
            "%s: added shards to the selection (objects=%d)", self._name, number
        )

    async def leave_added(self) -> None:
        """Give up the list of further shards, if there is one.

        Cancellation:
            Deferred until the list has ended.
        """
        adding, self._added, self._adding = self._adding, None, None
        if adding is not None:
            await adding.leave()

    def _gathered(self) -> None:
        self._gathering = None
        change = next_change(self.current.selectors, self.wanted)
        following = self._followed is not None and not self.due
        if isinstance(change, Widen) and self._added is None and following:
            self._begin_added(change, self._version)  # needs no end of the watch
        elif change is not None or self._added is not None:
            self._interrupt()

    def _interrupt(self) -> None:
        """End the watch, so that the reflector calls `perform`."""
        self.due = True
        if self._followed is not None:
            self._followed.stop()

    async def close(self) -> None:
        """End the timer and the list of further shards. Idempotent.

        Cancellation:
            Deferred until the list has ended.
        """
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None

        await self.leave_added()
