"""`ListReader`: stages lists, which come in pages or as streams, and says how they ended."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

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
from aioinformer.watch.interface import ServedCheck

if TYPE_CHECKING:
    from aioinformer.informer.listwatch.interface import ReflectorStore
    from aioinformer.informer.listwatch.machine import Listing
    from aioinformer.informer.listwatch.reflector_stats import ReflectorStats
    from aioinformer.model.objects import KubeObject
    from aioinformer.watch.events import WatchEvent
    from aioinformer.watch.interface import ListerWatcher, ListPage, Watch
    from aioinformer.watch.pages import PagesAhead

__all__ = ["ListReader"]

logger = guarded_logger(__name__)

WARN_SECONDS = 10.0
"""After so long without an event a stream that is not complete is worth a warning, as
in client-go; once for each such pause, as there is an end to our patience."""

ASK_SECONDS = 30.0
"""How long the server may take to say whether it has the resource."""


class ListReader:
    """Stages the lists of one reflector in its store, one after the other.

    Args:
        source: Asked whether the server has the resource, if it can tell.
        store: Where the objects are staged.
        account: Told what comes.
        page_size: Objects in a page if the user chose it, else None.
    """

    def __init__(
        self,
        source: ListerWatcher,
        store: ReflectorStore,
        account: ReflectorStats,
        page_size: int | None,
    ) -> None:
        self._source = source
        self._store = store
        self._account = account
        self._page_size = page_size
        self._absence = Absence()
        # Of the current list; the tokens are those of the pages asked for so far.
        self._began = 0.0
        self._items = 0
        self._tokens: set[str] = set()

    @property
    def absent(self) -> bool:
        """For long, the server has not named the resource among those it serves."""
        return self._absence.confirmed

    def begin(self) -> None:
        """A list is about to be asked for."""
        self._began, self._items = _now(), 0
        self._tokens.clear()
        self._account.measures.list_began()

    def completed(self, version: str) -> None:
        """What was staged has been committed."""
        self._absence.ended()
        self._account.measures.reached(version)
        self._account.measures.list_completed(_now() - self._began, self._items)

    async def failed(
        self, error: Exception, *, established: bool = False, endless: bool = False
    ) -> ListFailed:
        """A list was refused, or broke off; finds out whether there is anything to list.

        Args:
            error: What it failed with.
            established: It was a stream that the server had accepted.
            endless: It was a stream without an end in sight.
        """
        absent = False
        if isinstance(error, NotFound):
            absent = self._absence.answered(await self._is_served(), _now())
        else:
            self._absence.interrupted()

        return ListFailed(error, established, endless, absent)

    async def _is_served(self) -> bool | None:
        """Ask whether the server has the resource; None if that cannot be told."""
        if not isinstance(self._source, ServedCheck):
            return None

        try:
            async with asyncio.timeout(ASK_SECONDS):
                return await self._source.is_served()
        except (ApiError, TransportError, DecodeError, TimeoutError) as exc:
            name = self._account.name
            logger.debug("%s: cannot tell what the server has: %r", name, exc)
            return None

    # ------------------------------------------------------------ in pages

    async def read_page(
        self, pages: PagesAhead, phase: Listing
    ) -> PageListed | ListFailed:
        """Stage one page; the next one is asked for as soon as it is known.

        Cancellation:
            Leaves the list incomplete.
        """
        self._tokens.add(phase.token)
        try:
            async with pages.page(list_options(phase, self._page_size)) as page:
                self._account.answered()
                async with aclosing(aiter(page)) as pieces:
                    async for objects in pieces:
                        self._ask_ahead(pages, phase, page.continue_token)
                        await self._stage(objects, anew=phase.anew)

                self._account.last_contact = _now()
                await self._note_unreadable(page)
                if not page.resource_version:
                    raise DecodeError("a list without a resource version to watch from")

                return PageListed(page.resource_version, self._next_token(page))
        except (ApiError, TransportError, DecodeError) as exc:
            return await self.failed(exc)

    def _ask_ahead(self, pages: PagesAhead, phase: Listing, token: str) -> None:
        if token and token not in self._tokens:
            pages.ask(list_options(replace(phase, token=token), self._page_size))

    def _next_token(self, page: ListPage) -> str:
        """Where the page behind this one begins; empty behind the last one.

        Raises:
            DecodeError: There it would be one that was read before.
        """
        token = page.continue_token
        if token and token in self._tokens:
            raise DecodeError("the pages of a list lead back to an earlier one")

        return token

    async def _stage(self, objects: list[KubeObject], *, anew: bool) -> None:
        self._account.last_contact = _now()
        self._items += len(objects)
        with store_calls:
            await self._store.stage(objects, anew=anew)

    async def _note_unreadable(self, page: ListPage) -> None:
        if page.skipped:
            self._account.unreadable(page.skipped, page.unreadable)
            with store_calls:
                await self._store.stage_unreadable(page.unreadable)

    # ------------------------------------------------------------ as a stream

    async def read_stream(
        self, watch: Watch, phase: Listing
    ) -> tuple[StreamListed | ListFailed, list[WatchEvent]]:
        """Stage the initial events of a watch, up to their end.

        Returns:
            How that went, and the events that came behind the end.

        Cancellation:
            Leaves the list incomplete.
        """
        initial = InitialEvents()
        rest: list[WatchEvent] = []
        try:
            while not initial.complete:
                batch = await self._next_batch(watch, initial)
                rest = await self._stage_portion(batch, initial, anew=phase.anew)

            self._check_readable(watch, phase)
        except TimeoutError:
            error = TransportError(
                f"after {initial.count} events, the end of the initial ones is not in "
                "sight: the server does not seem to stream lists"
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
            TimeoutError: They have taken too long.
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
            "%s: still waiting for the end of a streamed list, after %d events; none "
            "came for %d s",
            self._account.name,
            initial.count,
            WARN_SECONDS,
        )
        async with asyncio.timeout_at(deadline):
            return await watch.next_batch()

    async def _stage_portion(
        self, batch: list[WatchEvent], initial: InitialEvents, *, anew: bool
    ) -> list[WatchEvent]:
        """Stage what a batch says; returns what of it came behind the end."""
        if not batch:
            raise TransportError("a streamed list ended before it was complete")

        portion = initial.take(batch, _now())
        await self._stage(portion.present, anew=anew)
        if portion.deleted:
            with store_calls:
                await self._store.stage_deleted(portion.deleted)

        return portion.rest

    def _check_readable(self, watch: Watch, phase: Listing) -> None:
        """What was skipped must not seem deleted: a page names it, a stream does not.

        Raises:
            DecodeError: Something was, which perhaps is known.
        """
        if not watch.skipped:
            return

        if phase.known is not None:
            raise DecodeError(
                f"{watch.skipped} events of a streamed list are unreadable"
            )

        logger.warning(
            "%s: %d events of a streamed list cannot be read, and are left out",
            self._account.name,
            watch.skipped,
        )


def _now() -> float:
    return asyncio.get_running_loop().time()
