"""`Reflector`: keeps a store in step with one list-watch, for as long as it runs.

It asks what the machine says, feeds the answers to the store, and waits between
attempts. All decisions are in `machine`; all state of the objects is in the store.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Protocol, assert_never

from aioinformer.backoff import Backoff
from aioinformer.errors import (
    ApiError,
    DecodeError,
    HistoryReset,
    NotFound,
    OptionsError,
    ResourceExpired,
    TransportError,
)
from aioinformer.informer.machine import (
    Action,
    Commit,
    Discard,
    Input,
    ListFailed,
    Listing,
    PageListed,
    Phase,
    Report,
    WatchEnded,
    Watching,
    advance,
    is_refusal,
    list_options,
    sift,
    version_number,
)
from aioinformer.model.durations import Duration, seconds_of
from aioinformer.watch.interface import ListOptions, WatchOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.cache.deltas import Delta
    from aioinformer.model.objects import KubeObject
    from aioinformer.watch.events import WatchEvent
    from aioinformer.watch.interface import ListerWatcher, ListPage, Watch

__all__ = ["Reflector", "ReflectorOptions", "ReflectorStore"]

logger = logging.getLogger(__name__)

WATCH_SECONDS = 300.0

SILENCE_SECONDS = 60.0
"""Servers send a bookmark about every minute: a new watch that says nothing for so long
may be one from a version that the server has not reached."""


class ReflectorStore(Protocol):
    """Where a reflector puts what it learns. A relist is bracketed: stage, commit."""

    def known(self, key: str) -> KubeObject | None:
        """The newest state that this store was given for `key`; None if it is gone."""

    async def stage(self, objects: list[KubeObject], *, anew: bool = False) -> None:
        """Take some objects of the list under way.

        Args:
            objects: As the server gave them.
            anew: Versions known before mean nothing: the same one may be another state.
        """

    async def stage_unreadable(self, keys: list[str]) -> None:
        """Of the list under way, objects that are there but cannot be read."""

    async def discard(self) -> None:
        """The list under way failed: forget what was staged."""

    async def commit(self, resource_version: str) -> None:
        """The list is complete: what was staged is everything there is."""

    async def feed(
        self, deltas: list[Delta[KubeObject]], resource_version: str
    ) -> None:
        """Take changes, and the version up to which they bring everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectorOptions:
    """How one reflector lists and watches."""

    page_size: int | None = None
    """Objects in a page; None for 500 where pages make sense. A server with a watch
    cache answers the first list whole, whatever this says."""

    watch_seconds: Duration = WATCH_SECONDS
    """How long the server should keep one watch open: drawn from [w, 2w) for each,
    so that many informers do not come back together. At least 1 s; whole seconds."""

    def __post_init__(self) -> None:
        if self.page_size is not None and self.page_size < 1:
            raise OptionsError(f"page_size must be at least 1, not {self.page_size}")

        if seconds_of(self.watch_seconds) < 1:
            raise OptionsError(
                f"watch_seconds must be at least 1, not {self.watch_seconds}"
            )


class Reflector:
    """Lists, watches, and lists again where needed, until it is cancelled.

    Every end of a list or watch (clean, refused, cut off, silent) is followed by
    another attempt; attempts start at least 0.8 to 60 s apart while they fail. It owns
    no task: `run()` is its whole life.

    Args:
        source: What to list and watch.
        store: Where the objects go.
        name: Names it in the log.
        options: How to list and watch.
        on_change: Called after each change of its state; must not wait.
        rng: Where jitter comes from.
    """

    def __init__(
        self,
        source: ListerWatcher,
        store: ReflectorStore,
        *,
        name: str = "reflector",
        options: ReflectorOptions | None = None,
        on_change: Callable[[], None] = lambda: None,
        rng: random.Random | None = None,
    ) -> None:
        self.name = name
        self._source = source
        self._store = store
        self._options = options or ReflectorOptions()
        self._on_change = on_change
        self._rng = rng or random.Random()
        self._backoff = Backoff(self._rng)
        self._phase: Phase = Listing()
        self._pausing = False
        # The version up to which the current watch has been fed to the store.
        self._taken = ""
        # Watches in a row that were accepted, and then failed within their gap.
        self._short_watches = 0

        self.last_contact: float | None = None
        """When the server last kept us up to date, on the loop's clock."""
        self.last_event: float | None = None
        """When the last change came, on the loop's clock."""
        self.last_error: Exception | None = None
        """The last failure, until the next success."""
        self.restarts = 0
        """Attempts that were begun after an error."""
        self.failures = 0
        """Attempts that failed in a row."""
        self.refusals = 0
        """Attempts that ended in a refusal (see `is_refusal`), in a row."""
        self.duplicates = 0
        """Events that repeated what was known."""
        self.history_resets = 0
        """How often the server's versions went backwards."""
        self.skipped = 0
        """Objects and events that could not be read."""
        self.not_served = False
        """The server says that it has no such resource, and nothing else since."""

    def __repr__(self) -> str:
        return f"<Reflector {self.name} phase={self._phase!r} failures={self.failures}>"

    @property
    def phase(self) -> str:
        """`"listing"`, `"watching"` or `"backing off"`."""
        if self._pausing:
            return "backing off"

        return "listing" if isinstance(self._phase, Listing) else "watching"

    async def run(self) -> NoReturn:
        """Keep the store in step, for ever.

        Raises:
            InternalError: A bug of ours; errors of the server never end it.

        Cancellation:
            The way to stop it. Its connection is closed before this returns.
        """
        while True:
            outcome = await self._attempt(self._phase)
            self._phase, actions = advance(self._phase, outcome)
            for action in actions:
                await self._perform(action, outcome)

            self._on_change()
            if not isinstance(outcome, PageListed) or actions[:1] == [Discard()]:
                await self._pause(outcome)  # else what follows is the same attempt

    # ------------------------------------------------------------ attempts

    async def _attempt(self, phase: Phase) -> Input:
        if not (isinstance(phase, Listing) and phase.token):
            self._backoff.begin(self._now())

        match phase:
            case Listing():
                return await self._list(phase)
            case Watching(version=version):
                return await self._watch(version)
            case _:
                assert_never(phase)

    async def _list(self, phase: Listing) -> Input:
        options = list_options(phase, self._options.page_size)
        try:
            async with self._source.list(options) as page:
                async with aclosing(aiter(page)) as pieces:
                    async for objects in pieces:
                        self.last_contact = self._now()
                        await self._store.stage(objects, anew=phase.anew)

                self.last_contact = self._now()
                await self._note_unreadable(page)
                return PageListed(page.resource_version, page.continue_token)
        except (ApiError, TransportError, DecodeError) as exc:
            return ListFailed(exc)

    async def _note_unreadable(self, page: ListPage) -> None:
        if not page.skipped:
            return

        self.skipped += page.skipped
        await self._store.stage_unreadable(page.unreadable)
        logger.warning(
            "%s: %d objects of a list cannot be read; what is known of them stays: %s",
            self.name,
            page.skipped,
            ", ".join(page.unreadable[:5]) or "not even their names",
        )

    async def _watch(self, version: str) -> WatchEnded:
        self._taken = version
        established = False
        try:
            async with self._source.watch(self._watch_options(version)) as watch:
                established = True
                self._succeeded()
                failure = await self._follow(watch)
        except (ApiError, TransportError, DecodeError, HistoryReset) as exc:
            failure = exc

        return WatchEnded(self._taken, failure, established)

    async def _follow(self, watch: Watch) -> Exception | None:
        """Feed a watch to the store until it ends; returns why, if by an error."""
        skipped_before = self.skipped
        try:
            batch = await self._first_batch(watch)
            while batch:
                self.skipped = skipped_before + watch.skipped
                failure = await self._take(batch)
                if failure is not None:
                    return failure

                batch = await watch.next_batch()
        finally:
            # What came behind the last batch.
            self.skipped = skipped_before + watch.skipped

        self.last_contact = self._now()
        return None

    async def _first_batch(self, watch: Watch) -> list[WatchEvent]:
        """Wait for the first events of a watch; check a server that is silent for long.

        A server whose history went backwards answers a watch from a version that it has
        not reached (yet) with silence, for as long as that takes.

        Raises:
            HistoryReset: Its newest version is older than ours.
        """
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                return await watch.next_batch()
        except TimeoutError:
            newest = await self._newest_version()
            known = version_number(self._taken)
            if 0 <= newest < known:
                raise HistoryReset(
                    f"the newest version is {newest}, after version {known}: the "
                    "server's history is not the one known so far"
                ) from None

        return await watch.next_batch()

    async def _newest_version(self) -> int:
        """Ask for the newest version there is; -1 if that cannot be told."""
        try:
            async with self._source.list(ListOptions(limit=1)) as page:
                async with aclosing(aiter(page)) as pieces:
                    async for _ in pieces:
                        pass

                return version_number(page.resource_version)
        except (ApiError, TransportError, DecodeError) as exc:
            logger.debug("%s: a check of a silent watch failed: %s", self.name, exc)
            return -1

    async def _take(self, batch: list[WatchEvent]) -> Exception | None:
        """Feed a batch to the store; returns why the watch is over, if it says so."""
        now = self._now()
        self.last_contact = now
        sifted = sift(batch, self._taken, self._store.known)
        if sifted.deltas:
            self.last_event = now

        await self._store.feed(sifted.deltas, sifted.version)
        self._taken = sifted.version
        self.duplicates += sifted.duplicates
        return sifted.error

    def _watch_options(self, version: str) -> WatchOptions:
        least = seconds_of(self._options.watch_seconds)
        seconds = max(int(least * (1.0 + self._rng.random())), math.ceil(least))
        return WatchOptions(resource_version=version, timeout_seconds=seconds)

    # ------------------------------------------------------------ between attempts

    async def _perform(self, action: Action, outcome: Input) -> None:
        match action:
            case Commit(version=version):
                await self._store.commit(version)
                self._succeeded()
                logger.info("%s: listed at version %s", self.name, version)
            case Discard():
                await self._store.discard()
            case Report(error=error):
                self._failed(error, outcome)
            case _:
                assert_never(action)

    async def _pause(self, outcome: Input) -> None:
        """Wait until the next attempt may begin."""
        error = None if isinstance(outcome, PageListed) else outcome.error
        wait = self._backoff.end(
            self._now(),
            failed=not _accepted(outcome),
            retry_after=error.retry_after if isinstance(error, ApiError) else None,
        )
        if wait > 0:
            self._pausing = True
            self._on_change()
            try:
                await asyncio.sleep(wait)
            finally:
                self._pausing = False

    def _succeeded(self) -> None:
        self.last_contact = self._now()
        self.last_error = None
        self.failures = 0
        self.refusals = 0
        self.not_served = False
        self._on_change()

    def _failed(self, error: Exception, outcome: Input) -> None:
        self.restarts += 1
        self.failures += 1
        self.refusals = self.refusals + 1 if is_refusal(error) else 0
        self.last_error = error
        if isinstance(error, HistoryReset):
            self.history_resets += 1

        if isinstance(error, NotFound):
            self.not_served = True

        row = self.failures
        if _accepted(outcome):
            outlived = self._backoff.outlived(self._now())
            self._short_watches = 0 if outlived else self._short_watches + 1
            row = self._short_watches

        if row <= 1 and (_accepted(outcome) or isinstance(error, ResourceExpired)):
            # Part of normal life: a history that moved on, a connection that broke.
            logger.info("%s: watch ended, going on: %s", self.name, error)
        elif row & (row - 1) == 0:
            # The 1st, 2nd, 4th, 8th ... of a row: it may last for days.
            logger.warning(
                "%s: attempt failed (%d in a row), will try again: %s",
                self.name,
                row,
                error,
            )

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _accepted(outcome: Input) -> bool:
    """True for a watch that the server accepted, however it went on."""
    return isinstance(outcome, WatchEnded) and outcome.established
