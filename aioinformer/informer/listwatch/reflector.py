"""`Reflector`: keeps a store up to date with one list-watch.

It performs the requests that `machine` decides on, and waits between attempts. It keeps
no objects: they are in the store.

After a failure, `ListReader` or `WatchReader` returns how the response ended, `advance`
decides on the next request (by the rules in `recovery`), `ReflectorStats` counts and
logs the failure and calls the user's handler, and `Backoff` computes the delay.
"""

from __future__ import annotations

import asyncio
import math
import random
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NoReturn, TypeGuard, assert_never

from aioinformer._user_code import guarded_logger
from aioinformer.backoff import Backoff
from aioinformer.errors import (
    ApiError,
    CacheError,
    DecodeError,
    HistoryReset,
    InternalError,
    OptionsError,
    TransportError,
)
from aioinformer.informer.listwatch.current_selection import CurrentSelection
from aioinformer.informer.listwatch.interface import (
    ReflectorOptions,
    ReflectorStore,
    Resume,
    store_calls,
)
from aioinformer.informer.listwatch.list_reader import ListReader
from aioinformer.informer.listwatch.machine import (
    Action,
    Clear,
    Commit,
    Discard,
    Extend,
    Input,
    ListFailed,
    Listing,
    PageListed,
    Phase,
    Report,
    StreamListed,
    Unverified,
    WatchEnded,
    Watching,
    advance,
    first_phase,
    retry_after,
    stream_options,
)
from aioinformer.informer.listwatch.recovery import (
    is_internal,
    is_refusal,
    pace_of,
)
from aioinformer.informer.listwatch.reflector_stats import ReflectorStats
from aioinformer.informer.listwatch.selection_changes import SelectionChanges
from aioinformer.informer.listwatch.watch_reader import WatchReader
from aioinformer.metrics import NULL_SINK
from aioinformer.model.times import seconds_of
from aioinformer.watch.connectivity import Connectivity
from aioinformer.watch.interface import Connected, Identified, Selection, WatchOptions
from aioinformer.watch.pages import PagesAhead

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.metrics import MetricsSink
    from aioinformer.watch.events import WatchEvent
    from aioinformer.watch.interface import ListerWatcher, Selectors, Watch

__all__ = ["Reflector", "ReflectorOptions", "ReflectorStore", "Resume"]

logger: Final = guarded_logger(__name__)

UID_SECONDS = 5.0
"""Time limit of the request for the cluster's uid before a list. The list does not need
it: only the next `Resume` does."""


class Reflector:
    """Loop of lists and watches that keeps a store up to date until it is cancelled.

    Only its cancellation and bugs end it (a store that raises, a broken invariant).
    Responses, network failures and other errors of the source do not: permissions,
    credentials, disks and servers may be restored while it runs.

    * After every end of a list or watch (clean, refused, cut off, malformed, silent),
      it makes another attempt: a watch from the last version, or a list if needed.
    * An attempt is a list, in pages or as a stream, or a watch; a complete stream
      continues as a watch. After a failed attempt the next one begins 0.8 to 60 s
      later, and not before a `Retry-After`; see `Backoff`. A watch follows its list at
      once. If the server turns out not to support streams, the list in pages follows at
      once.
    * While the server is unreachable, the reflectors of one client take turns to probe
      it; see `Connectivity`.
    * If the server sends bookmarks, a watch that is silent for 2.5 times their longest
      gap, and at least 90 s, is ended. If a new watch is silent for 60 s, or the server
      was unreachable before, the reflector checks the server's version and one object,
      as the server may have been restored or replaced.
    * If the resource is no longer served, the store keeps its objects. If discovery has
      not listed the resource for a minute, the objects are removed and the phase is
      `"absent"`. Attempts continue.

    * If the selection changes, the store follows it: see `select`.

    Everything happens in `run()`, which may be called once. Besides the current list or
    watch, it has at most one other request, for the next page. While it adds shards to
    its selection, it has a task that lists them beside the watch. It belongs to one
    event loop.

    client-go's reflector is the model. It also resyncs its store; here each handler has
    its own resync. Its consistency check of streamed lists, a test feature, is left
    out.

    Args:
        source: Source to list and watch. If it is a `ServedCheck`, a missing resource
            can become absent. If it is `Connected`, it shares the state of the
            connection. If it is `Reselectable`, its selection can be changed. If it is
            `ManagedFieldsOptOut`, `drops_managed_fields` takes effect.
        store: Store of the objects.
        name: Name in log and metrics.
        options: Options of lists and watches.
        on_change: Function called after each change of its state; must not wait.
        resume: List that the store has from an earlier reflector, to continue; None to
            begin with a list. Pass one, if only with its callbacks, for a store that
            outlives this process. The source should be `Identified`.
        drops_managed_fields: Function called when it starts to run. True if the store
            removes all managed fields, so that the source need not send them.
        metrics: Sink of measurements; see `ReflectorMetrics` for their names.
        rng: Source of jitter.
    """

    def __init__(
        self,
        source: ListerWatcher,
        store: ReflectorStore,
        *,
        name: str = "reflector",
        options: ReflectorOptions | None = None,
        on_change: Callable[[], None] = lambda: None,
        resume: Resume | None = None,
        drops_managed_fields: Callable[[], bool] = lambda: False,
        metrics: MetricsSink = NULL_SINK,
        rng: random.Random | None = None,
    ) -> None:
        self.name = name
        self._store = store
        self._options = options = options or ReflectorOptions()
        self._on_change = on_change
        self._rng = rng or random.Random()
        self._backoff = Backoff(self._rng)
        self._connectivity = (
            source.connectivity if isinstance(source, Connected) else Connectivity()
        )
        self._stats = stats = ReflectorStats(name, metrics, self._connectivity)
        selection = CurrentSelection(source, store.known)
        self._lists = ListReader(selection, store, stats, options.page_size)
        self._grace_seconds = seconds_of(options.watch_grace_seconds)
        internal_error_seconds = seconds_of(options.internal_error_seconds)
        self._watches = WatchReader(selection, store, stats, internal_error_seconds)
        self._resume = resume
        self._drops_managed_fields = drops_managed_fields
        self._phase = first_phase(resume, streaming=options.streaming_list)
        if resume is not None:
            stats.in_step = resume.in_step
            if isinstance(self._phase, Watching):
                selection.stored = True
                self._watches.resume(resume.on_confirmed)
                stats.metrics.reached(resume.version)

        self._pausing = False
        self._begun = False
        # Error of the current attempt.
        self._error: Exception | None = None
        self._selections = SelectionChanges(
            name, selection, store, stats, options.page_size, self._rng
        )

    def __repr__(self) -> str:
        return f"<Reflector {self.name} phase={self._phase!r} failures={self.failures}>"

    async def run(self) -> NoReturn:
        """Keep the store up to date, until cancelled.

        Raises:
            OptionsError: If it was called before. The state of an ended run is lost.
            CacheError: If the store is on disk and cannot be used any more.
            InternalError: If there is a bug in this package or in the store.

        Cancellation:
            Stops it. Its connections are closed before this returns.
        """
        if self._begun:
            raise OptionsError(f"{self.name} runs only once")

        self._begun = True
        if self._drops_managed_fields():
            self._selections.current.drop_managed_fields()

        try:
            await self._run()
        finally:
            await self._selections.close()

    async def _run(self) -> NoReturn:
        while True:
            await self._reselect()
            if self._connectivity.down:
                self._pausing = True
                self._on_change()

            async with self._connectivity.turn():
                self._pausing, self._error = False, None
                self._backoff.begin(_now())
                outcome = await self._attempt()

            listed = isinstance(outcome, PageListed)
            reselects = self._selections.due and self._error is None
            if not (reselects or (listed and isinstance(self._phase, Watching))):
                await self._pause(outcome)

    def set_watch_error_handler(
        self, handler: Callable[[Exception], None] | None
    ) -> None:
        """Set a function to call with the error of every list or watch that fails.

        Failures are refusals, incomplete and malformed responses, ERROR events,
        silence, and server histories that went backwards. Each is also counted and
        logged, and another attempt follows. The regular end of a watch is no failure.

        client-go's handler is only called for failed lists and refused watches.

        Args:
            handler: Plain function that does not wait; its errors are logged and
                dropped. None removes the handler.

        Raises:
            OptionsError: If it is not a plain function.
        """
        self._stats.set_handler(handler)

    def select(self, selectors: Selectors) -> None:
        """Change the selection; the store follows.

        Several calls within 0.1 s are one change. Shards that are removed leave the
        store at once. Shards that are added are listed, while the watch of the others
        continues. Then one watch of all shards begins, from the lower version of both.
        Any other change leads to a list of the whole new selection. So does a relist
        for another reason, which takes the selection set last.

        The source must be `Reselectable`.

        Raises:
            SelectorSyntaxError: If a selector cannot be parsed.
        """
        self._selections.select(selectors, at_once=not self._begun)
        self._on_change()

    # ------------------------------------------------------------ state

    @property
    def source(self) -> ListerWatcher:
        """Source of the objects that are fed to the store."""
        return self._selections.current.source

    @property
    def selectors(self) -> Selectors:
        """Selectors of the objects in the store."""
        return self._selections.shown

    @property
    def wanted(self) -> Selectors:
        """Selectors that were set last; the store follows."""
        return self._selections.wanted

    @property
    def sharded_by_server(self) -> bool | None:
        """True if the server filters lists by shard, None if unknown or not requested."""
        by_shard = self._selections.current.selectors.shards is not None
        return self._stats.sharded if by_shard else None

    @property
    def phase(self) -> str:
        """`"listing"`, `"watching"`, `"backing off"` or `"absent"`.

        It is `"absent"` while discovery has not listed the resource for a minute,
        whatever the current attempt does.
        """
        if self._lists.absent:
            return "absent"

        if self._pausing:
            return "backing off"

        return "listing" if isinstance(self._phase, Listing) else "watching"

    @property
    def last_contact(self) -> float | None:
        """Time of the last contact with the server, on the loop's clock."""
        return self._stats.last_contact

    @property
    def last_event(self) -> float | None:
        """Time of the last change, on the loop's clock."""
        return self._stats.last_event

    @property
    def in_step(self) -> float | None:
        """Time at which the store was last known to be up to date, on the loop's clock.

        That is the last time at which a list was complete, an event or bookmark
        arrived, a watch ended regularly, or a watch confirmed the list that it resumes
        from. Pages, the start of a watch, and its events before the confirmation do not
        prove that.
        """
        return self._stats.in_step

    @property
    def last_error(self) -> Exception | None:
        """Last failure, until the next success."""
        return self._stats.last_error

    @property
    def relists(self) -> int:
        """Number of relists after a watch."""
        return self._stats.metrics.relists

    @property
    def relist_reason(self) -> str:
        """Reason of the last relist; empty before."""
        return self._stats.metrics.relist_reason

    @property
    def restarts(self) -> int:
        """Number of attempts after errors."""
        return self._stats.restarts

    @property
    def failures(self) -> int:
        """Number of attempts that failed in a row."""
        return self._stats.failures

    @property
    def refusals(self) -> int:
        """Number of attempts in a row with an error that only a person can correct."""
        return self._stats.refusals

    @property
    def duplicates(self) -> int:
        """Number of events that repeated a known state."""
        return self._stats.duplicates

    @property
    def history_resets(self) -> int:
        """Number of times that the server's versions went backwards."""
        return self._stats.history_resets

    @property
    def skipped(self) -> int:
        """Number of objects and events that could not be read."""
        return self._stats.skipped

    @property
    def not_served(self) -> bool:
        """True if the last attempt failed with 404: the resource is not served."""
        return self._stats.not_served

    @property
    def streamless(self) -> bool:
        """True if it lists in pages because the server does not support streams."""
        return self._stats.streamless

    # ------------------------------------------------------------ attempts

    async def _attempt(self) -> Input:
        """Make one attempt, advance the machine, and return the last outcome."""
        outcome: Input
        try:
            if isinstance(self._phase, Watching):
                outcome = await self._watch(self._phase.version)
                await self._step(outcome)
            else:
                self._lists.selection = self._selections.to_list()
                await self._identify()
                outcome = await self._list(self._phase)
        except (CacheError, InternalError):
            raise
        except Exception as exc:  # noqa: BLE001 - reported by `_step()`
            outcome = (
                ListFailed(exc)
                if isinstance(self._phase, Listing)
                else WatchEnded(self._phase.version, exc, established=False)
            )
            await self._step(outcome)

        if self._error is not None:
            self._connectivity.failed(self._error)

        return outcome

    async def _list(self, phase: Listing) -> Input:
        if not phase.streaming:
            return await self._list_in_pages(phase)

        outcome = await self._list_as_stream(phase)
        pages = self._pages_instead(outcome)
        if pages is None:
            return outcome

        # If the pages fail as well, the delay counts from here.
        self._backoff.begin(_now())
        return await self._list_in_pages(pages)

    async def _list_in_pages(self, phase: Listing) -> Input:
        self._lists.begin()
        async with PagesAhead(self._lists.selection.source) as pages:
            while True:
                outcome = await self._lists.read_page(pages, phase)
                after = await self._step(outcome)
                if not (isinstance(after, Listing) and after.token):
                    return outcome

                phase = after

    async def _list_as_stream(self, phase: Listing) -> Input:
        """List with a watch that begins with the current objects, then follow it."""
        self._lists.begin()
        outcome: Input
        async with AsyncExitStack() as stack:
            try:
                watch = await self._open(
                    stack,
                    replace(
                        stream_options(phase, self._seconds()),
                        grace_seconds=self._grace_seconds,
                    ),
                )
            except (ApiError, TransportError, DecodeError) as exc:
                outcome = await self._lists.failed(exc)
                await self._step(outcome)
                return outcome

            outcome, rest = await self._lists.read_stream(watch, phase)
            after = await self._step(outcome)
            if isinstance(after, Listing):
                return outcome

            # From here on it is a watch. The backoff only counts the watch's duration.
            self._backoff.begin(_now())
            outcome = await self._follow(watch, after.version, rest)

        await self._step(outcome)
        return outcome

    def _pages_instead(self, outcome: Input) -> Listing | None:
        """Return the phase of a list in pages that follows at once, or None.

        It follows when streams are given up. That happens once, so there is no delay,
        unless the server requested one.
        """
        if not _gives_up_streams(self._phase) or retry_after(outcome) is not None:
            return None

        return self._phase

    async def _watch(self, version: str) -> WatchEnded | Unverified:
        if self._watches.unconfirmed and self._resume is not None:
            try:
                await self._verify(self._resume, version)
            except (CacheError, InternalError):
                raise
            except Exception as exc:  # noqa: BLE001 - reported by `_step()`
                return Unverified(exc)

        options = WatchOptions(
            resource_version=version,
            timeout_seconds=self._seconds(),
            grace_seconds=self._grace_seconds,
        )
        async with AsyncExitStack() as stack:
            try:
                watch = await self._open(stack, options)
            except (ApiError, TransportError, DecodeError) as exc:
                return self._watches.refused(version, exc)

            self._succeeded(watching=True)
            return await self._follow(watch, version)

    async def _follow(
        self, watch: Watch, version: str, rest: list[WatchEvent] | None = None
    ) -> WatchEnded:
        """Feed a watch to the store, until it ends or the selection changes."""
        with self._selections.following(watch, version):
            return await self._watches.follow(watch, version, rest)

    async def _verify(self, resume: Resume, version: str) -> None:
        """Check that the server has the history of the stored list.

        Raises:
            HistoryReset: If it has another, or that cannot be known.
            Exception: If a request failed.
        """
        try:
            uid = await self._cluster_uid()
        except (ApiError, DecodeError) as exc:
            if not _is_lasting(exc):
                raise

            logger.debug("%s: uid of the cluster is unknown: %r", self.name, exc)
            uid = ""

        if uid and resume.cluster:
            if uid != resume.cluster:
                raise HistoryReset(
                    f"the server's cluster has the uid {uid}, the stored list is of "
                    f"cluster {resume.cluster}"
                )
        else:
            await self._watches.verify(version)

    async def _identify(self) -> None:
        """Report the cluster of the next list, if its store may be resumed later."""
        if self._resume is None:
            return

        uid = ""
        try:
            async with asyncio.timeout(UID_SECONDS):
                uid = await self._cluster_uid()
        except Exception as exc:  # noqa: BLE001 - the list reports its own failure
            logger.debug("%s: uid of the cluster is unknown: %r", self.name, exc)

        self._resume.on_cluster(uid)

    async def _cluster_uid(self) -> str:
        source = self._selections.current.source
        return await source.cluster_uid() if isinstance(source, Identified) else ""

    async def _open(self, stack: AsyncExitStack, options: WatchOptions) -> Watch:
        listing = isinstance(self._phase, Listing)
        selection = self._lists.selection if listing else self._selections.current
        watch = await stack.enter_async_context(selection.source.watch(options))
        stack.enter_context(self._stats.watching(watch))
        self._stats.answered()
        return watch

    def _seconds(self) -> int:
        """Return the seconds after which the server should end the next watch."""
        least = seconds_of(self._options.watch_seconds)
        return max(int(least * (1.0 + self._rng.random())), math.ceil(least))

    # ------------------------------------------------------------ steps

    async def _step(self, outcome: Input) -> Phase:
        """Advance the machine, perform its actions, and return the new phase."""
        before = self._phase
        self._phase, actions = advance(before, outcome)
        self._stats.metrics.advanced(
            before, outcome, self._phase, reselects=self._selections.due
        )
        if _accepted(outcome) and self._backoff.lasted(_now()):
            self._stats.reset_series()

        after_reset = isinstance(before, Listing) and before.after_reset
        for action in actions:
            await self._perform(action, outcome, after_reset=after_reset)

        if before.streaming and _gives_up_streams(self._phase):
            self._stats.streams_given_up()

        self._on_change()
        return self._phase

    async def _perform(
        self, action: Action, outcome: Input, *, after_reset: bool
    ) -> None:
        match action:
            case Commit(version=version):
                await self._commit(version, after_reset=after_reset)
                self._lists.completed(version)
                self._watches.listed()
                self._stats.in_step = _now()
                logger.info("%s: listed at version %s", self.name, version)
                # A complete stream continues as a watch.
                self._succeeded(watching=isinstance(outcome, StreamListed))
            case Extend(watched=watched, listed=listed):
                assert isinstance(self._phase, Watching)
                await self._selections.extend(watched, listed, self._phase.version)
            case Discard():
                with store_calls:
                    await self._store.discard()
            case Clear():
                with store_calls:
                    await self._store.clear()

                logger.warning(
                    "%s: resource is no longer served, removing all objects",
                    self.name,
                )
            case Report(error=error):
                self._error = error
                self._stats.failed(
                    error,
                    _now(),
                    watched=_accepted(outcome),
                    absent=self._lists.absent,
                )
            case _:
                assert_never(action)

    async def _commit(self, version: str, *, after_reset: bool) -> None:
        """Commit the staged list; if it is of another selection, so is the store."""
        listed, changes = self._lists.selection, self._selections
        with store_calls:
            if listed is changes.current:
                await self._store.commit(version, after_reset=after_reset)
            else:
                source = listed.source
                selects = source.selects if isinstance(source, Selection) else None
                await self._store.commit(
                    version, after_reset=after_reset, selects=selects
                )
                changes.current = self._watches.selection = listed
                await self._store.applied()

            changes.taken()

    async def _reselect(self) -> None:
        """Change the selection of the store as far as that is possible now."""
        selections = self._selections
        selections.due = False
        while isinstance(self._phase, Watching):
            happened = await selections.perform(self._phase.version)
            self._on_change()
            if happened is None:
                return

            await self._step(happened)

        await selections.leave_added()  # a list has everything

    def _succeeded(self, *, watching: bool) -> None:
        self._stats.succeeded(_now(), watching=watching)
        self._on_change()

    async def _pause(self, outcome: Input) -> None:
        """Wait for the delay before the next attempt."""
        wait = self._backoff.end(
            _now(),
            pace_of(self._error),
            accepted=_accepted(outcome),
            relists=isinstance(self._phase, Listing),
            retry_after=retry_after(outcome),
        )
        if wait > 0:
            self._pausing = True
            self._on_change()
            try:
                await asyncio.sleep(wait)
            finally:
                self._pausing = False


def _is_lasting(error: Exception) -> bool:
    """Return True if a request may be refused or unreadable forever."""
    lasting = is_refusal(error) or is_internal(error)
    return lasting or isinstance(error, DecodeError)


def _accepted(outcome: Input) -> bool:
    """Return True for a watch that the server accepted, however it ended."""
    return isinstance(outcome, WatchEnded) and outcome.established


def _gives_up_streams(phase: Phase) -> TypeGuard[Listing]:
    """Return True for a phase that lists in pages, as all later lists do.

    False for a list that is in pages this time only, and for watches.
    """
    return isinstance(phase, Listing) and not phase.streaming and not phase.detour


def _now() -> float:
    return asyncio.get_running_loop().time()
