"""`AddedList`: the list of shards that a selection gains, made beside the watch."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

from aioinformer.backoff import Backoff
from aioinformer.errors import CacheError, HistoryReset, InternalError
from aioinformer.informer.listwatch.list_reader import ListReader
from aioinformer.informer.listwatch.machine import (
    ListFailed,
    Listing,
    Report,
    advance,
    retry_after,
)
from aioinformer.informer.listwatch.recovery import pace_of
from aioinformer.watch.pages import PagesAhead

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Callable

    from aioinformer.informer.listwatch.current_selection import CurrentSelection
    from aioinformer.informer.listwatch.machine import Input, Phase
    from aioinformer.informer.listwatch.reflector_stats import ReflectorStats
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.shards import ShardSelector

__all__ = ["AddedList"]


class AddedList:
    """List of further shards, repeated with backoff until it is complete.

    The watch of the other shards continues meanwhile, so the objects are kept aside.
    The list is in pages, as only such a list shows whether the server filters it. It
    follows the rules of the machine, with a phase of its own.

    Args:
        selection: Selection of the further shards.
        added: The further shards.
        stats: Statistics of the reflector.
        page_size: Number of objects in a page; None for the default.
        rng: Source of jitter.
        on_end: Function called once it is complete, or has failed for good.

    Attributes:
        added: The further shards.
        version: Version of the complete list; empty before.
        objects: Objects of the list.
        failure: Error for which everything has to be listed, or None.
    """

    def __init__(
        self,
        selection: CurrentSelection,
        added: ShardSelector,
        stats: ReflectorStats,
        page_size: int | None,
        rng: random.Random,
        on_end: Callable[[], None],
    ) -> None:
        self.added: ShardSelector = added
        self.version: str = ""
        self.objects: list[KubeObject] = []
        self.failure: Exception | None = None
        self._selection = selection
        self._stats = stats
        self._lists = ListReader(selection, self, stats, page_size)
        self._backoff = Backoff(rng)
        self._on_end = on_end

    def __repr__(self) -> str:
        return f"<AddedList {len(self.objects)} objects version={self.version!r}>"

    @property
    def ended(self) -> bool:
        """True if it is complete, or everything has to be listed."""
        return bool(self.version) or self.failure is not None

    @asynccontextmanager
    async def complete(self, version: str) -> AsyncIterator[Self]:
        """List until that is complete.

        Args:
            version: Minimum version of the list.

        Cancellation:
            Ends the list.
        """
        try:
            await self._run(version)
        except Exception as exc:
            self.failure = exc
            raise
        finally:
            if self.ended:
                self._on_end()

        yield self

    async def _run(self, version: str) -> None:
        phase: Phase = Listing(version, known=version)
        failed = False
        while isinstance(phase, Listing):
            self._backoff.begin(_now())
            async with self._stats.connectivity.turn():
                phase, outcome, error = await self._attempt(phase)

            if error is None:
                continue

            if isinstance(error, HistoryReset):
                self.failure = error
                return

            failed = True
            wait = self._backoff.end(
                _now(), pace_of(error), retry_after=retry_after(outcome)
            )
            await asyncio.sleep(wait)

        self.version = phase.version
        self._lists.completed(self.version)
        if failed:
            self._stats.succeeded(_now(), watching=True)

    async def _attempt(self, phase: Listing) -> tuple[Phase, Input, Exception | None]:
        """List once; return the next phase, the last outcome, and its error."""
        self._lists.begin()
        self.objects = []
        async with PagesAhead(self._selection.source) as pages:
            while True:
                try:
                    outcome: Input = await self._lists.read_page(pages, phase)
                except (CacheError, InternalError):
                    raise
                except Exception as exc:  # noqa: BLE001 - reported below
                    outcome = ListFailed(exc)

                after, actions = advance(phase, outcome)
                for action in actions:
                    if isinstance(action, Report):
                        self._report(action.error)
                        return after, outcome, action.error

                if not (isinstance(after, Listing) and after.token):
                    return after, outcome, None

                phase = after

    def _report(self, error: Exception) -> None:
        self.objects = []
        self._stats.connectivity.failed(error)
        if not isinstance(error, HistoryReset):  # the reflector reports that
            self._stats.failed(error, _now(), watched=False)

    # ------------------------------------------------------------ staging

    async def stage(
        self, objects: list[KubeObject], *, after_reset: bool = False
    ) -> None:
        """Keep some objects of the list."""
        assert not after_reset
        self.objects += objects

    async def stage_unreadable(self, keys: list[str]) -> None:
        """Do nothing: unreadable objects of further shards are not stored."""

    def stage_deleted(self, keys: list[str]) -> None:
        """Do nothing: the list is no stream."""


def _now() -> float:
    return asyncio.get_running_loop().time()
