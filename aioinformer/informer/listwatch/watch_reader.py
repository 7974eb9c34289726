"""`WatchReader`: feeds watches to a store, and returns their outcomes."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, Self

from aioinformer._user_code import guarded_logger
from aioinformer.backoff import (
    LONGEST_SECONDS,
    Failure,
    RetryWithDeadline,
    failure_of,
)
from aioinformer.errors import (
    ApiError,
    CacheError,
    DecodeError,
    HistoryReset,
    InternalError,
    TransportError,
)
from aioinformer.informer.listwatch.interface import store_failed
from aioinformer.informer.listwatch.machine import WatchEnded
from aioinformer.informer.listwatch.recovery import Watchdog, is_internal
from aioinformer.informer.listwatch.watch_events import (
    history_reset,
    same_state,
    to_changes,
)
from aioinformer.model.object_meta import version_number
from aioinformer.watch.interface import ListOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.informer.listwatch.current_selection import CurrentSelection
    from aioinformer.informer.listwatch.interface import ReflectorStore
    from aioinformer.informer.listwatch.reflector_stats import ReflectorStats
    from aioinformer.model.objects import KubeObject
    from aioinformer.watch.events import WatchEvent
    from aioinformer.watch.interface import Watch

__all__ = ["WatchReader", "WatchdogTimer"]

logger: Final = guarded_logger(__name__)

CONFIRMATION_SECONDS = 0.5
"""Seconds without an event at the start of a resumed watch after which the stored list
counts as up to date. A server that lacks its version refuses the watch, or its first
event is an error."""

PAUSE_SECONDS = 0.1
"""Seconds without an event that end the backlog of a resumed watch. Servers send what
they have without pauses, so the stored list is up to date then."""

BUSY_SECONDS = 5.0
"""Seconds of waiting for events after which a resumed watch without such a pause or a
bookmark counts as up to date. It is one of constant changes: during a backlog, the
reader hardly waits."""

SILENCE_SECONDS = 60.0
"""Seconds without an event at the start of a watch after which the server's version is
checked. Servers send a bookmark about every minute. A silent server may have been
restored to a version before the start of the watch."""

RESUMED_SILENCE_SECONDS = 5.0
"""The same for a watch that resumes from a stored list. After a restore, programs are
started again, and find what they have stored before."""

CHECK_SECONDS = 30.0
"""Time limit of that check. The watch is not read meanwhile."""

OUTAGE_CHECK_SECONDS = 2.0
"""Time limit of the check at the start of a watch, if the server could not be reached
before. It may have been replaced meanwhile. Shorter, as events may be waiting."""

REFUSAL_SECONDS = 30.0
"""Maximum time that the client waits for a watch to be accepted or refused."""

INTERNAL_RESET_SECONDS = 2 * LONGEST_SECONDS + REFUSAL_SECONDS
"""Seconds without an internal error that end a series of them. Attempts may start up to
twice the longest delay apart, because of jitter."""


class WatchReader:
    """Reader that feeds the watches of one reflector to its store, one after the other.

    Args:
        selection: Selection of the watches. The newest version of its source is
            requested when a watch is silent.
        store: Store of the changes.
        stats: Statistics of the reflector.
        internal_error_seconds: Seconds for which internal errors may end watches.

    Attributes:
        selection: Selection of the current watch, or the next one.
    """

    def __init__(
        self,
        selection: CurrentSelection,
        store: ReflectorStore,
        stats: ReflectorStats,
        internal_error_seconds: float,
    ) -> None:
        self.selection: CurrentSelection = selection
        self._store = store
        self._stats = stats
        self._watchdog = Watchdog()
        self._internal_error_seconds = internal_error_seconds
        self._internal_errors = self._no_internal_errors()
        # The version that the current watch has reached in the store.
        self._version = ""
        self._items = 0
        # True from an attempt that could not connect to the next accepted watch.
        self._was_unreachable = False
        # Function to call once the watch has confirmed the list that it resumes from.
        self._confirm: Callable[[], None] | None = None
        # Seconds of waiting for later events of unconfirmed watches.
        self._waited = 0.0
        # True if the store may have left out objects of the list, unknown to it.
        self._resumed = False

    def resume(self, confirm: Callable[[], None]) -> None:
        """Follow the next watches from a stored list.

        Args:
            confirm: Function called once a watch has confirmed that list.
        """
        self._confirm, self._resumed = confirm, True

    def listed(self) -> None:
        """Record that the store has a list of this reflector."""
        self._confirm, self._resumed = None, False

    @property
    def unconfirmed(self) -> bool:
        """True until a watch has confirmed the list that it resumes from."""
        return self._confirm is not None

    async def follow(
        self, watch: Watch, version: str, rest: list[WatchEvent] | None = None
    ) -> WatchEnded:
        """Feed a watch to the store until it ends.

        Args:
            watch: Watch to read to its end.
            version: Version of the store.
            rest: First events of a watch that continues a stream; may be empty. None
                for a new watch, which is checked if it is silent.

        Cancellation:
            Safe: each batch is fed as a whole.
        """
        began = _now()
        self._version, self._items = version, 0
        self._stats.metrics.watch_began()
        failure: Exception | None = None
        with WatchdogTimer(watch, self._watchdog) as timer:
            try:
                if rest is None:
                    batch = await self._first_batch(watch)
                else:
                    batch = rest or await watch.next_batch()

                while batch:
                    timer.reading = False
                    failure = await self._feed(batch, timer)
                    if failure is not None:
                        break

                    timer.reading = True
                    del batch  # free its objects before the wait for the next batch
                    batch = await self._next_batch(watch)
            except (ApiError, TransportError, DecodeError, HistoryReset) as exc:
                failure = exc

        if timer.failure is not None and not isinstance(failure, HistoryReset):
            failure = timer.failure  # any other failure follows from it

        self._stats.metrics.watch_ended(_now() - began, self._items)
        if failure is None and not watch.stopped:
            self._stats.last_contact = _now()
            if self._confirm is None:
                self._stats.in_step = _now()

        return self._ended(version, failure, established=True)

    def refused(self, version: str, error: Exception) -> WatchEnded:
        """Return the outcome of a watch that was refused, or whose request failed."""
        self._version = version
        return self._ended(version, error, established=False)

    def _ended(
        self, version: str, failure: Exception | None, *, established: bool
    ) -> WatchEnded:
        now = _now()
        if failure_of(failure) is Failure.UNREACHABLE:
            self._was_unreachable = True

        if self._version != version:
            # The watch made progress, so the server can read its storage.
            self._internal_errors = self._no_internal_errors()

        persistent = False
        if failure is not None:
            self._internal_errors.after(failure, now)
            retry = self._internal_errors.should_retry(now)
            # A server cannot send deletions whose last states were compacted meanwhile.
            # That does not end, so a stored list is not resumed again.
            gives_up = not retry or (established and self.unconfirmed)
            persistent = is_internal(failure) and gives_up

        return WatchEnded(self._version, failure, established, persistent)

    def _no_internal_errors(self) -> RetryWithDeadline:
        return RetryWithDeadline(
            is_internal,
            self._internal_error_seconds,
            min_reset_period=INTERNAL_RESET_SECONDS,
        )

    # ------------------------------------------------------------ reading

    async def _feed(
        self, batch: list[WatchEvent], timer: WatchdogTimer
    ) -> Exception | None:
        """Feed a batch to the store; return its error that ends the watch, or None."""
        now = asyncio.get_running_loop().time()
        stats = self._stats
        stats.last_contact = timer.last_batch = now
        self._items += len(batch)
        selection = self.selection
        leaves_out = None if selection.has_all else selection.leaves_out
        changes = to_changes(batch, self._version, self._store.known, leaves_out)
        known = len(changes.deltas) + changes.duplicates + changes.left_out
        bookmarked = changes.error is None and known < len(batch)
        if bookmarked:
            timer.bookmark(now)  # some of the events are bookmarks

        if changes.deltas:
            stats.last_event = now

        try:
            await self._store.feed(changes.deltas, changes.version)
        except (CacheError, InternalError):
            raise
        except Exception as exc:
            raise store_failed(exc) from exc

        self._version = changes.version
        if not selection.caught_up:
            selection.reached(version_number(changes.version))
        elif bookmarked:
            self._confirmed()
        elif changes.error is None and self._confirm is None:
            stats.in_step = now

        stats.duplicates += changes.duplicates
        if stats.metrics.enabled:
            stats.metrics.reached(changes.version)

        return changes.error

    async def _first_batch(self, watch: Watch) -> list[WatchEvent]:
        """Wait for the first events of a watch; check the server if it is silent.

        A server that was restored to an older state sends nothing on a watch until it
        reaches the watch's version.

        Raises:
            HistoryReset: If the server's history is not the one of the store.
        """
        if self._was_unreachable:
            self._was_unreachable = False
            await self._check_history(OUTAGE_CHECK_SECONDS)

        silence = SILENCE_SECONDS
        if self._confirm is not None:
            silence = RESUMED_SILENCE_SECONDS - CONFIRMATION_SECONDS
            batch = await self._batch_or_pause(watch, CONFIRMATION_SECONDS)
            if batch is not None:
                return batch

            self._confirmed()

        try:
            async with asyncio.timeout(silence):
                return await watch.next_batch()
        except TimeoutError:
            await self._check_history(CHECK_SECONDS)

        return await watch.next_batch()

    async def _next_batch(self, watch: Watch) -> list[WatchEvent]:
        """Wait for more events; a pause confirms the list that the watch resumes from.

        Its first events do not: they may be hours old, with thousands behind them.
        """
        if self._confirm is not None:
            began = _now()
            batch = await self._batch_or_pause(watch, PAUSE_SECONDS)
            self._waited += _now() - began
            if batch is not None and self._waited < BUSY_SECONDS:
                return batch

            self._confirmed()
            if batch is not None:
                return batch

        return await watch.next_batch()

    async def _batch_or_pause(
        self, watch: Watch, seconds: float
    ) -> list[WatchEvent] | None:
        try:
            async with asyncio.timeout(seconds):
                return await watch.next_batch()
        except TimeoutError:
            return None

    def _confirmed(self) -> None:
        self._stats.in_step = _now()
        confirm, self._confirm = self._confirm, None
        if confirm is not None:
            confirm()

    async def verify(self, version: str) -> None:
        """Check that the server has the history of a stored list, of unknown cluster.

        One object of the server must be in the store, with the same uid. Two clusters
        have no uid in common. Objects may have come and gone meanwhile, so the list may
        be right although that fails.

        Raises:
            HistoryReset: If the history is another, or cannot be proven to be the same.
            ApiError: If the server refused the request.
            TransportError: If the network failed, or the check took too long.
            DecodeError: If the response cannot be read.
        """
        self._version = version
        self._was_unreachable = False
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                proven = await self._compare_one()
        except TimeoutError as exc:
            raise TransportError(
                f"the server's history could not be checked in {CHECK_SECONDS:g} s"
            ) from exc

        if not proven:
            raise HistoryReset(
                f"no object shows that the stored list of version {version} is of this "
                "server's history"
            )

    async def _check_history(self, seconds: float) -> None:
        """Compare the newest version and one object of the server with the store.

        A new server may have reached the store's version, with other objects. An object
        at or below the store's version has the same state in both, unless the server
        has another history.

        Args:
            seconds: Time limit of the request.

        Raises:
            HistoryReset: If they differ. Failed requests prove nothing.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._compare_one()
        except (ApiError, TransportError, DecodeError, TimeoutError) as exc:
            name = self._stats.name
            logger.debug("%s: check of the server's history failed: %r", name, exc)

    async def _compare_one(self) -> bool:
        """Compare the newest version and one object of the server with the store.

        Returns:
            True if the store has an object of the same uid.

        Raises:
            HistoryReset: If they differ.
        """
        reached = version_number(self._version)
        proven = False
        async with self.selection.source.list(ListOptions(limit=1)) as page:
            async with aclosing(aiter(page)) as pieces:
                async for objects in pieces:
                    for obj in objects:
                        self._check_object(obj, reached)
                        proven = proven or self._knows(obj)

            newest = version_number(page.resource_version)

        if 0 <= newest < reached:
            what = f"newest list, of version {newest},"
            raise history_reset(what, self._version)

        return proven

    def _knows(self, obj: KubeObject) -> bool:
        """Return True if the store has the object, in any version."""
        known = self._store.known(obj.key)
        return known is not None and known.uid == obj.uid != ""

    def _check_object(self, obj: KubeObject, reached: int) -> None:
        if not 0 <= version_number(obj.resource_version) <= reached:
            return

        if not self.selection.has(obj):
            return  # a server that does not filter by shard

        known = self._store.known(obj.key)
        if known is None and self._resumed:
            return  # an earlier transform may have left it out

        if known is None or not same_state(known, obj):
            raise HistoryReset(
                f"{obj.key} of version {obj.resource_version} is not the object known at "
                f"version {self._version}: the server's history was reset"
            )


def _now() -> float:
    return asyncio.get_running_loop().time()


class WatchdogTimer:
    """Timer that ends one watch when the watchdog considers it dead.

    Enter it while the watch is read. It adds one assignment per batch: the timer is not
    moved by events, but set again when it fires before the deadline.

    Args:
        watch: Watch to stop when it is dead, which ends its iteration.
        watchdog: Watchdog of the reflector, for all its watches.

    Attributes:
        failure: Error that ended the watch, or None.
        reading: False while its reader is busy, when silence proves nothing.
        last_batch: Time of the last batch on the loop's clock.
    """

    def __init__(self, watch: Watch, watchdog: Watchdog) -> None:
        self.failure: TransportError | None = None
        self.reading = True
        self._watch = watch
        self._watchdog = watchdog
        self._loop = asyncio.get_running_loop()
        self.last_batch: float = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._watchdog.begin(self.last_batch)
        self._set()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def bookmark(self, now: float) -> None:
        """Pass a bookmark to the watchdog, and set the timer for its new deadline."""
        self._watchdog.bookmark(now)
        self._set()

    def _set(self) -> None:
        """Set the timer to the deadline, unless it fires before that anyway."""
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
            # The reader is busy with a batch; the events after it are unread.
            self.last_batch = now

        self._watchdog.event(self.last_batch)
        deadline = self._watchdog.deadline()
        if deadline is not None and deadline <= now:
            self._stop_watch(now)
        else:
            self._set()

    def _stop_watch(self, now: float) -> None:
        gap = self._watchdog.longest_gap
        self.failure = TransportError(
            f"watch was silent for {now - self.last_batch:.0f} s, with bookmarks every "
            f"{gap:.0f} s before"
        )
        self._watchdog.ended_watch()
        self._watch.stop()
