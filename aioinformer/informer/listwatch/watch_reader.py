"""`WatchReader`: feeds watches to a store, and says how they ended."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Self

from aioinformer._user_code import guarded_logger
from aioinformer.backoff import RetryWithDeadline
from aioinformer.errors import (
    ApiError,
    DecodeError,
    HistoryReset,
    InternalError,
    TransportError,
)
from aioinformer.informer.listwatch.interface import store_failed
from aioinformer.informer.listwatch.machine import WatchEnded
from aioinformer.informer.listwatch.recovery import Watchdog, is_internal
from aioinformer.informer.listwatch.watch_events import history_reset, to_changes
from aioinformer.model.keys import version_number
from aioinformer.watch.interface import ListOptions

if TYPE_CHECKING:
    from aioinformer.informer.listwatch.interface import ReflectorStore
    from aioinformer.informer.listwatch.reflector_stats import ReflectorStats
    from aioinformer.watch.events import WatchEvent
    from aioinformer.watch.interface import ListerWatcher, Watch

__all__ = ["WatchReader", "WatchdogTimer"]


logger = guarded_logger(__name__)


SILENCE_SECONDS = 60.0
"""Servers send a bookmark about every minute: a new watch that says nothing for so long
may be one from a version that the server has not reached."""


CHECK_SECONDS = 30.0
"""How long the check of a silent watch may take: meanwhile nobody reads that watch."""


INTERNAL_RESET_SECONDS = 90.0
"""Internal errors further apart are not of one row. Attempts begin up to 60 s apart, and
one may take 30 s to be refused."""


class WatchReader:
    """Feeds the watches of one reflector to its store, one after the other.

    Args:
        source: Asked for its newest version when a watch is silent.
        store: Where changes go.
        account: Told what comes.
        internal_error_seconds: For how long internal errors may end watches.
    """

    def __init__(
        self,
        source: ListerWatcher,
        store: ReflectorStore,
        account: ReflectorStats,
        internal_error_seconds: float,
    ) -> None:
        self._source = source
        self._store = store
        self._account = account
        self._watchdog = Watchdog()
        self._internal_error_seconds = internal_error_seconds
        self._internal_errors = self._no_internal_errors()
        # The version up to which the current watch has been fed to the store.
        self._taken = ""
        self._items = 0

    async def follow(
        self, watch: Watch, version: str, rest: list[WatchEvent] | None = None
    ) -> WatchEnded:
        """Feed a watch to the store until it ends.

        Args:
            watch: Read to its end.
            version: Up to which everything is in the store.
            rest: The first events of it, which have been read already; None if nothing
                has: then its silence is doubted.

        Cancellation:
            Safe: what was fed was fed completely.
        """
        began = _now()
        self._taken, self._items = version, 0
        self._account.measures.watch_began()
        failure: Exception | None
        with WatchdogTimer(watch, self._watchdog) as guard:
            try:
                failure = await self._read(watch, guard, rest)
            except (ApiError, TransportError, DecodeError, HistoryReset) as exc:
                failure = exc

        if guard.failure is not None and not isinstance(failure, HistoryReset):
            failure = guard.failure  # the rest follows from that

        self._account.measures.watch_ended(_now() - began, self._items)
        if failure is None:
            self._account.in_step = self._account.last_contact = _now()

        return self._ended(version, failure, established=True)

    def refused(self, version: str, error: Exception) -> WatchEnded:
        """A watch from a version was refused, or could not be asked for."""
        self._taken = version
        return self._ended(version, error, established=False)

    def _ended(
        self, version: str, failure: Exception | None, *, established: bool
    ) -> WatchEnded:
        now = _now()
        if self._taken != version:
            # It got on, so the server can read what it stores.
            self._internal_errors = self._no_internal_errors()

        persistent = False
        if failure is not None:
            self._internal_errors.after(failure, now)
            retry = self._internal_errors.should_retry(now)
            persistent = is_internal(failure) and not retry

        return WatchEnded(self._taken, failure, established, persistent)

    def _no_internal_errors(self) -> RetryWithDeadline:
        return RetryWithDeadline(
            is_internal,
            self._internal_error_seconds,
            min_reset_period=INTERNAL_RESET_SECONDS,
        )

    # ------------------------------------------------------------ reading

    async def _read(
        self, watch: Watch, guard: WatchdogTimer, rest: list[WatchEvent] | None
    ) -> Exception | None:
        """Feed a watch to the store until it ends; returns why, if by an error."""
        if rest is None:
            batch = await self._first_batch(watch)
        else:
            batch = rest or await watch.next_batch()

        while batch:
            guard.reading = False
            failure = await self._take(batch, guard)
            if failure is not None:
                return failure

            guard.reading = True
            del batch  # what it deleted is not kept until the next one comes
            batch = await watch.next_batch()

        return None

    async def _take(
        self, batch: list[WatchEvent], guard: WatchdogTimer
    ) -> Exception | None:
        """Feed a batch to the store; returns why the watch is over, if it says so."""
        now = _now()
        account = self._account
        account.last_contact = now
        self._items += len(batch)
        sifted = to_changes(batch, self._taken, self._store.known)
        # What is neither a change nor a repetition is a bookmark, or an error.
        changes = len(sifted.deltas) + sifted.duplicates
        guard.heard(now, bookmark=sifted.error is None and changes < len(batch))
        if sifted.deltas:
            account.last_event = now

        try:
            await self._store.feed(sifted.deltas, sifted.version)
        except InternalError:
            raise
        except Exception as exc:
            raise store_failed(exc) from exc

        self._taken = sifted.version
        if sifted.error is None:
            account.in_step = now

        account.duplicates += sifted.duplicates
        if account.measures.enabled:
            account.measures.reached(sifted.version)

        return sifted.error

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
            if 0 <= newest < version_number(self._taken):
                what = f"a list of the newest version, {newest},"
                raise history_reset(what, self._taken) from None

        return await watch.next_batch()

    async def _newest_version(self) -> int:
        """Ask for the newest version there is; -1 if that cannot be told."""
        try:
            async with (
                asyncio.timeout(CHECK_SECONDS),
                self._source.list(ListOptions(limit=1)) as page,
            ):
                async with aclosing(aiter(page)) as pieces:
                    async for _ in pieces:
                        pass

                return version_number(page.resource_version)
        except (ApiError, TransportError, DecodeError, TimeoutError) as exc:
            name = self._account.name
            logger.debug("%s: a check of a silent watch failed: %r", name, exc)
            return -1


def _now() -> float:
    return asyncio.get_running_loop().time()


class WatchdogTimer:
    """The timer that ends one watch when the watchdog says that it is dead.

    Enter it while the watch is read. An event costs it nothing, a batch of them the
    noting of a time: the timer is set once, and when it fires it is set again for the
    deadline of then.

    Args:
        watch: Stopped when it is dead; whoever reads it gets its end.
        watchdog: Says when; one for all watches of a reflector.

    Attributes:
        failure: Why the watch was ended, if it was.
        reading: False while nobody waits for the watch, whose silence says nothing then.
    """

    def __init__(self, watch: Watch, watchdog: Watchdog) -> None:
        self.failure: TransportError | None = None
        self.reading = True
        self._watch = watch
        self._watchdog = watchdog
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._watchdog.begin(self._heard)
        self._set()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def heard(self, now: float, *, bookmark: bool) -> None:
        """Events came, perhaps a bookmark among them."""
        self._heard = now
        if bookmark:
            self._watchdog.bookmark(now)
            self._set()
        else:
            self._watchdog.heard(now)

    def _set(self) -> None:
        """Have the timer fire at the deadline, or before it."""
        deadline = self._watchdog.deadline()
        if deadline is None:
            return

        if self._timer is not None:
            if self._timer.when() <= deadline:
                return

            self._timer.cancel()

        self._timer = self._loop.call_at(deadline, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._loop.time()
        if not self.reading:
            # What has come since lies unread, and this may have taken long.
            self.heard(now, bookmark=False)

        deadline = self._watchdog.deadline()
        if deadline is not None and deadline <= now:
            self._bite(now)
        else:
            self._set()

    def _bite(self, now: float) -> None:
        gap = self._watchdog.longest_gap
        self.failure = TransportError(
            f"nothing came for {now - self._heard:.0f} s, though bookmarks came every "
            f"{gap:.0f} s"
        )
        self._watchdog.bitten()
        self._watch.stop()
