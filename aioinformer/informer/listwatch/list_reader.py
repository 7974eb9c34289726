"""`ListReader`: stages lists, in pages or as streams, and returns their outcomes."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from aioinformer._user_code import guarded_logger
from aioinformer.errors import ApiError, DecodeError, NotFound, TransportError
from aioinformer.informer.listwatch.interface import store_calls
from aioinformer.informer.listwatch.machine import (
    ListFailed,
    PageListed,
    StreamListed,
    list_options,
)
from aioinformer.informer.listwatch.recovery import Absence
from aioinformer.informer.listwatch.watch_events import InitialEvents
from aioinformer.watch.interface import ServedCheck, ShardedPage

if TYPE_CHECKING:
    from aioinformer.informer.listwatch.current_selection import CurrentSelection
    from aioinformer.informer.listwatch.interface import Staging
    from aioinformer.informer.listwatch.machine import Listing
    from aioinformer.informer.listwatch.reflector_stats import ReflectorStats
    from aioinformer.model.objects import KubeObject
    from aioinformer.watch.events import WatchEvent
    from aioinformer.watch.interface import ListPage, Watch
    from aioinformer.watch.pages import PagesAhead

__all__ = ["ListReader"]

logger: Final = guarded_logger(__name__)

WARN_SECONDS = 10.0
"""Seconds without an event after which an incomplete stream is logged as a warning, as
in client-go."""

DISCOVERY_SECONDS = 30.0
"""Time limit of the discovery request for a resource whose list ended in 404."""


class ListReader:
    """Reader that stages the lists of one reflector in its store, one after the other.

    Args:
        selection: Selection to list. If its source is a `ServedCheck`, it is also used
            for discovery.
        store: Store in which the objects are staged.
        stats: Statistics of the reflector.
        page_size: Number of objects in a page; None for the default.

    Attributes:
        selection: Selection of the current list, or the next one.
    """

    def __init__(
        self,
        selection: CurrentSelection,
        store: Staging,
        stats: ReflectorStats,
        page_size: int | None,
    ) -> None:
        self.selection: CurrentSelection = selection
        self._store = store
        self._stats = stats
        self._page_size = page_size
        self._absence = Absence()
        # Start and size of the current list, and the tokens of the pages requested so
        # far.
        self._began = 0.0
        self._items = 0
        self._tokens: set[str] = set()
        # True if the current list has objects of other shards.
        self._has_others = False

    @property
    def absent(self) -> bool:
        """True while the resource is absent; see `Absence`."""
        return self._absence.confirmed

    def begin(self) -> None:
        """Begin a list."""
        self._began, self._items = _now(), 0
        self._tokens.clear()
        self._has_others = False
        self._stats.metrics.list_began()

    def completed(self, version: str) -> None:
        """Record that the list was committed."""
        self._absence.ended()
        self._stats.metrics.reached(version)
        self._stats.metrics.list_completed(_now() - self._began, self._items)

    async def failed(
        self, error: Exception, *, established: bool = False, endless: bool = False
    ) -> ListFailed:
        """Return the outcome of a failed list; after a 404, check discovery.

        Args:
            error: Error of the list.
            established: True for a stream that the server had accepted.
            endless: True for a stream whose initial events did not end in time.
        """
        absent = False
        if isinstance(error, NotFound):
            absent = self._absence.answered(await self._is_served(), _now())
        else:
            self._absence.interrupted()

        return ListFailed(error, established, endless, absent)

    async def _is_served(self) -> bool | None:
        """Return True if discovery lists the resource; None if it is unknown."""
        source = self.selection.source
        if not isinstance(source, ServedCheck):
            return None

        try:
            async with asyncio.timeout(DISCOVERY_SECONDS):
                return await source.is_served()
        except (ApiError, TransportError, DecodeError, TimeoutError) as exc:
            name = self._stats.name
            logger.debug("%s: discovery after a 404 failed: %r", name, exc)
            return None

    # ------------------------------------------------------------ in pages

    async def read_page(
        self, pages: PagesAhead, phase: Listing
    ) -> PageListed | ListFailed:
        """Stage one page; request the next one as soon as its token is known.

        Cancellation:
            Leaves the list incomplete.
        """
        self._tokens.add(phase.token)
        try:
            async with pages.page(list_options(phase, self._page_size)) as page:
                self._stats.answered()
                async with aclosing(aiter(page)) as pieces:
                    async for objects in pieces:
                        self._request_ahead(pages, phase, page.continue_token)
                        await self._stage(objects, after_reset=phase.after_reset)

                self._stats.last_contact = _now()
                self._note_sharding(page)
                await self._stage_unreadable(page)
                if not page.resource_version:
                    raise DecodeError("list has no resource version to watch from")

                return PageListed(page.resource_version, self._next_token(page))
        except (ApiError, TransportError, DecodeError) as exc:
            return await self.failed(exc)

    def _note_sharding(self, page: ListPage) -> None:
        """Record whether the server has filtered a page by shard.

        Filtered lists of custom resources do not show it, so the absence proves nothing.
        """
        if self.selection.selectors.shards is None or not isinstance(page, ShardedPage):
            return

        if page.sharded or self._has_others:
            self._stats.list_sharded(page.sharded)

    def _request_ahead(self, pages: PagesAhead, phase: Listing, token: str) -> None:
        if token and token not in self._tokens:
            pages.request_ahead(
                list_options(replace(phase, token=token), self._page_size)
            )

    def _next_token(self, page: ListPage) -> str:
        """Return the token of the next page; empty after the last one.

        Raises:
            DecodeError: If the token is that of an earlier page.
        """
        token = page.continue_token
        if token and token in self._tokens:
            raise DecodeError(
                "server repeats a page of the list: its continue token is not new"
            )

        return token

    async def _stage(self, objects: list[KubeObject], *, after_reset: bool) -> None:
        self._stats.last_contact = _now()
        self._items += len(objects)
        selection = self.selection
        if not selection.has_all:
            received = len(objects)
            objects = [obj for obj in objects if selection.has(obj)]
            self._has_others |= len(objects) < received

        with store_calls:
            await self._store.stage(objects, after_reset=after_reset)

    async def _stage_unreadable(self, page: ListPage) -> None:
        if page.skipped:
            self._stats.unreadable(page.skipped, page.unreadable)
            keys = [key for key in page.unreadable if self.selection.may_have(key)]
            with store_calls:
                await self._store.stage_unreadable(keys)

    # ------------------------------------------------------------ as a stream

    async def read_stream(
        self, watch: Watch, phase: Listing
    ) -> tuple[StreamListed | ListFailed, list[WatchEvent]]:
        """Stage the initial events of a watch, up to the bookmark that ends them.

        Returns:
            Outcome of the list, and the events after its end.

        Cancellation:
            Leaves the list incomplete.
        """
        initial = InitialEvents()
        rest: list[WatchEvent] = []
        try:
            while not initial.complete:
                batch = await self._next_batch(watch, initial)
                rest = await self._stage_portion(
                    batch, initial, after_reset=phase.after_reset
                )

            self._check_readable(watch, phase)
        except TimeoutError:
            error = TransportError(
                f"no end of the initial events after {initial.count} events: the server "
                "does not seem to support streamed lists"
            )
            return await self.failed(error, established=True, endless=True), []
        except (ApiError, TransportError, DecodeError) as exc:
            return await self.failed(exc, established=True), []

        return StreamListed(initial.version), rest

    async def _next_batch(
        self, watch: Watch, initial: InitialEvents
    ) -> list[WatchEvent]:
        """Wait for the next initial events.

        Raises:
            TimeoutError: If the initial events do not end in time.
        """
        now = _now()
        deadline = initial.deadline(now)
        try:
            async with asyncio.timeout_at(min(now + WARN_SECONDS, deadline)):
                return await watch.next_batch()
        except TimeoutError:
            if _now() >= deadline:
                raise

        logger.warning(
            "%s: waiting for the end of a streamed list (%d events so far, none for the "
            "last %d s)",
            self._stats.name,
            initial.count,
            WARN_SECONDS,
        )
        async with asyncio.timeout_at(deadline):
            return await watch.next_batch()

    async def _stage_portion(
        self, batch: list[WatchEvent], initial: InitialEvents, *, after_reset: bool
    ) -> list[WatchEvent]:
        """Stage a batch of initial events; return the events after their end."""
        if not batch:
            raise TransportError("streamed list ended before it was complete")

        portion = initial.take(batch, _now())
        await self._stage(portion.present, after_reset=after_reset)
        if portion.deleted:
            with store_calls:
                self._store.stage_deleted(portion.deleted)

        return portion.rest

    def _check_readable(self, watch: Watch, phase: Listing) -> None:
        """Check that no known object would seem deleted because its event was skipped.

        A page has the keys of its unreadable objects, but a stream has not.

        Raises:
            DecodeError: If an event was skipped, and it may belong to a known object.
        """
        if not watch.skipped:
            return

        if phase.known is not None:
            raise DecodeError(f"streamed list has {watch.skipped} unreadable events")

        logger.warning(
            "%s: leaving out %d unreadable events of a streamed list",
            self._stats.name,
            watch.skipped,
        )


def _now() -> float:
    return asyncio.get_running_loop().time()
