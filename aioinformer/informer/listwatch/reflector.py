"""`Reflector`: keeps a store in step with one list-watch, for as long as it runs.

It asks what the machine says, has the answers read, and waits between attempts. All
decisions are in `machine`; all state of the objects is in the store.

The way of a failure: `ListReader` or `WatchReader` says how its answer ended, `advance`
decides what is next (by the table in `recovery`), `ReflectorStats` counts it, logs it and tells
the user, `Backoff` says how long to wait.
"""

from __future__ import annotations

import asyncio
import math
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, NoReturn, TypeGuard, assert_never

from aioinformer._user_code import guarded_logger
from aioinformer.backoff import Backoff
from aioinformer.errors import (
    ApiError,
    DecodeError,
    InternalError,
    OptionsError,
    TransportError,
)
from aioinformer.informer.listwatch.interface import (
    ReflectorOptions,
    ReflectorStore,
    store_calls,
)
from aioinformer.informer.listwatch.list_reader import ListReader
from aioinformer.informer.listwatch.machine import (
    Action,
    Commit,
    Discard,
    Input,
    ListFailed,
    Listing,
    PageListed,
    Phase,
    Report,
    Vacate,
    WatchEnded,
    Watching,
    advance,
    stream_options,
)
from aioinformer.informer.listwatch.recovery import pace_of
from aioinformer.informer.listwatch.reflector_stats import ReflectorStats
from aioinformer.informer.listwatch.watch_reader import WatchReader
from aioinformer.metrics import NULL_SINK
from aioinformer.model.times import seconds_of
from aioinformer.watch.connectivity import Connectivity
from aioinformer.watch.interface import Connected, WatchOptions
from aioinformer.watch.pages import PagesAhead

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.metrics import MetricsSink
    from aioinformer.watch.interface import ListerWatcher, Watch

__all__ = ["Reflector", "ReflectorOptions", "ReflectorStore"]

logger = guarded_logger(__name__)


class Reflector:
    """Lists, watches, and lists again where needed, until it is cancelled.

    Only two things end it: its cancellation, and a bug (a store that raises, a broken
    invariant). No answer of a server does, no failure of a network, and nothing else
    that a source raises: permissions, credentials, disks and servers come back while it
    runs.

    * Every end of a list or watch (clean, refused, cut off, garbled, silent) is followed
      by another attempt: a watch from the last version, or a list where that cannot do.
    * An attempt is a list, in pages or as a stream, or a watch; a complete stream goes
      on as one. After one that failed the next begins 0.8 to 60 s later, and not before
      a `Retry-After` is over; see `Backoff`. A list is followed by its watch at once; a
      stream that the server turns out not to do, once, by the list in pages.
    * While the server cannot be reached, all reflectors of one client take turns to
      probe it; see `Connectivity`.
    * A watch that has fallen silent is ended: after 2.5 times the longest pause between
      bookmarks, at least 90 s, once their rhythm is known. A new one that says nothing
      for 60 s is checked: its server may have gone back to an older state.
    * Where the resource is not served any more, the store keeps what it has; when the
      server has not named it for a minute, the store is vacated, the phase is
      `"absent"`, and the attempts go on.

    It owns no task: `run()` is its whole life, and its only one. Besides the watch or
    list under way it holds one connection at most, of the next page. All of it belongs
    to one event loop.

    client-go's reflector is the model. It also resyncs its store; here that is done for
    each handler, by its informer. Its check of streamed lists against common ones, meant
    for its own tests, has no counterpart.

    Args:
        source: What to list and watch. One that is a `ServedCheck` as well is asked
            whether the resource exists; without it none is ever absent. One that is
            `Connected` shares with others what is known of the server.
        store: Where the objects go.
        name: Names it in the log and in metrics.
        options: How to list and watch.
        on_change: Called after each change of its state; must not wait.
        metrics: Where measurements go; their names are told by `Measures`.
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
        metrics: MetricsSink = NULL_SINK,
        rng: random.Random | None = None,
    ) -> None:
        self.name = name
        self._source = source
        self._store = store
        self._options = options = options or ReflectorOptions()
        self._on_change = on_change
        self._rng = rng or random.Random()
        self._backoff = Backoff(self._rng)
        self._connectivity = (
            source.connectivity if isinstance(source, Connected) else Connectivity()
        )
        self._account = account = ReflectorStats(name, metrics, self._connectivity)
        self._lists = ListReader(source, store, account, options.page_size)
        patience = seconds_of(options.internal_error_seconds)
        self._watches = WatchReader(source, store, account, patience)
        self._phase: Phase = Listing(streaming=options.streaming_list)
        self._pausing = False
        self._begun = False
        # What the attempt under way was reported to have failed with.
        self._error: Exception | None = None

    def __repr__(self) -> str:
        return f"<Reflector {self.name} phase={self._phase!r} failures={self.failures}>"

    async def run(self) -> NoReturn:
        """Keep the store in step, for ever.

        Raises:
            OptionsError: It was called before: what a list was at is not known then.
            InternalError: A bug of ours; errors of the server never end it.

        Cancellation:
            The way to stop it. Its connections are closed before this returns.
        """
        if self._begun:
            raise OptionsError(f"{self.name} runs once")

        self._begun = True
        while True:
            if self._connectivity.down:
                self._pausing = True
                self._on_change()

            async with self._connectivity.turn():
                self._pausing, self._error = False, None
                self._backoff.begin(_now())
                outcome = await self._try()

            listed = isinstance(outcome, PageListed)
            if not (listed and isinstance(self._phase, Watching)):
                await self._pause(outcome)

    def set_watch_error_handler(
        self, handler: Callable[[Exception], None] | None
    ) -> None:
        """Have a function told of every failure from here on.

        It is called with what a list or watch failed with: refusals, broken and garbled
        answers, ERROR events, silence, a history that went backwards. Each is counted
        and logged anyway, and followed by another attempt whatever the function does.
        A watch that the server ends in time is no failure.

        client-go's handler is told of failed lists and refused watches alone, not of
        what ends a watch that had begun.

        Args:
            handler: A plain function that does not wait. What it raises is logged and
                dropped. None for nobody.

        Raises:
            OptionsError: If it is a coroutine function, or no function at all.
        """
        self._account.set_handler(handler)

    # ------------------------------------------------------------ how it is doing

    @property
    def phase(self) -> str:
        """`"listing"`, `"watching"`, `"backing off"` or `"absent"`.

        `"absent"`: for a minute at least, the server has not named the resource among
        those it serves; whatever is done about it meanwhile.
        """
        if self._lists.absent:
            return "absent"

        if self._pausing:
            return "backing off"

        return "listing" if isinstance(self._phase, Listing) else "watching"

    @property
    def last_contact(self) -> float | None:
        """When the server last kept us up to date, on the loop's clock."""
        return self._account.last_contact

    @property
    def last_event(self) -> float | None:
        """When the last change came, on the loop's clock."""
        return self._account.last_event

    @property
    def in_step(self) -> float | None:
        """When the store was last known to follow the server, on the loop's clock.

        A list was complete, an event or bookmark came, a watch ended in time. The parts
        of a list, and a watch that is just accepted, are contact, but prove nothing.
        """
        return self._account.in_step

    @property
    def last_error(self) -> Exception | None:
        """The last failure, until the next success."""
        return self._account.last_error

    @property
    def restarts(self) -> int:
        """Attempts that were begun after an error."""
        return self._account.restarts

    @property
    def failures(self) -> int:
        """Attempts that failed in a row."""
        return self._account.failures

    @property
    def refusals(self) -> int:
        """Attempts that ended in a refusal, which only a person can change, in a row."""
        return self._account.refusals

    @property
    def duplicates(self) -> int:
        """Events that repeated what was known."""
        return self._account.duplicates

    @property
    def history_resets(self) -> int:
        """How often the server's versions went backwards."""
        return self._account.history_resets

    @property
    def skipped(self) -> int:
        """Objects and events that could not be read."""
        return self._account.skipped

    @property
    def not_served(self) -> bool:
        """To the last attempt the server said that it has no such resource (404)."""
        return self._account.not_served

    @property
    def streamless(self) -> bool:
        """Lists were asked for as streams, until the server turned out not to do them."""
        return self._account.streamless

    # ------------------------------------------------------------ attempts

    async def _try(self) -> Input:
        """Make one attempt, whatever the source raises; returns how it ended."""
        try:
            outcome = await self._attempt()
        except InternalError:
            raise
        except Exception as exc:  # noqa: BLE001 - reported by the step
            outcome = (
                ListFailed(exc)
                if isinstance(self._phase, Listing)
                else WatchEnded(self._phase.version, exc, established=False)
            )
            await self._step(outcome)

        if self._error is not None:
            self._connectivity.failed(self._error)

        return outcome

    async def _attempt(self) -> Input:
        """Make one attempt, with all its steps; returns how it ended."""
        match self._phase:
            case Listing(streaming=True) as phase:
                outcome = await self._list_as_stream(phase)
                pages = self._pages_instead(outcome)
                if pages is None:
                    return outcome

                # If it fails as well, the next attempt has to wait for this one's gap.
                self._backoff.begin(_now())
                return await self._list_in_pages(pages)
            case Listing() as phase:
                return await self._list_in_pages(phase)
            case Watching(version=version):
                outcome = await self._watch(version)
                await self._step(outcome)
                return outcome
            case _:
                assert_never(self._phase)

    async def _list_in_pages(self, phase: Listing) -> Input:
        self._lists.begin()
        async with PagesAhead(self._source) as pages:
            while True:
                outcome = await self._lists.read_page(pages, phase)
                after = await self._step(outcome)
                if not (isinstance(after, Listing) and after.token):
                    return outcome

                phase = after

    async def _list_as_stream(self, phase: Listing) -> Input:
        """List by a watch that begins with the current objects, and follow it."""
        self._lists.begin()
        outcome: Input
        async with AsyncExitStack() as stack:
            try:
                watch = await self._open(stack, stream_options(phase, self._seconds()))
            except (ApiError, TransportError, DecodeError) as exc:
                outcome = await self._lists.failed(exc)
                await self._step(outcome)
                return outcome

            outcome, rest = await self._lists.read_stream(watch, phase)
            after = await self._step(outcome)
            if isinstance(after, Listing):
                return outcome

            # From here on it is a watch: only how long that lives counts.
            self._backoff.begin(_now())
            outcome = await self._watches.follow(watch, after.version, rest)

        await self._step(outcome)
        return outcome

    def _pages_instead(self, outcome: Input) -> Listing | None:
        """The same list in pages, at once, if streams have just been given up.

        That happens once; so it does not have to wait, unless it was asked to.
        """
        if not _gives_up_streams(self._phase) or _retry_after(outcome) is not None:
            return None

        return self._phase

    async def _watch(self, version: str) -> WatchEnded:
        options = WatchOptions(
            resource_version=version, timeout_seconds=self._seconds()
        )
        async with AsyncExitStack() as stack:
            try:
                watch = await self._open(stack, options)
            except (ApiError, TransportError, DecodeError) as exc:
                return self._watches.refused(version, exc)

            self._succeeded()
            return await self._watches.follow(watch, version)

    async def _open(self, stack: AsyncExitStack, options: WatchOptions) -> Watch:
        watch = await stack.enter_async_context(self._source.watch(options))
        stack.enter_context(self._account.watching(watch))
        self._account.answered()
        return watch

    def _seconds(self) -> int:
        """How long the server should keep the next watch open."""
        least = seconds_of(self._options.watch_seconds)
        return max(int(least * (1.0 + self._rng.random())), math.ceil(least))

    # ------------------------------------------------------------ steps

    async def _step(self, outcome: Input) -> Phase:
        """Let the machine decide, and do what it says; returns the phase from here on."""
        before = self._phase
        self._phase, actions = advance(before, outcome)
        if _accepted(outcome) and self._backoff.lived(_now()):
            self._account.watched_well()

        for action in actions:
            await self._perform(action, outcome)

        if before.streaming and _gives_up_streams(self._phase):
            self._account.streams_given_up()

        self._on_change()
        return self._phase

    async def _perform(self, action: Action, outcome: Input) -> None:
        match action:
            case Commit(version=version):
                with store_calls:
                    await self._store.commit(version)

                self._lists.completed(version)
                self._account.in_step = _now()
                self._succeeded()
                logger.info("%s: listed at version %s", self.name, version)
            case Discard():
                with store_calls:
                    await self._store.discard()
            case Vacate():
                with store_calls:
                    await self._store.vacate()

                logger.warning(
                    "%s: the server has this resource no more; all of it is gone",
                    self.name,
                )
            case Report(error=error):
                self._error = error
                self._account.failed(
                    error, watched=_accepted(outcome), absent=self._lists.absent
                )
            case _:
                assert_never(action)

    def _succeeded(self) -> None:
        self._account.succeeded(_now())
        self._on_change()

    async def _pause(self, outcome: Input) -> None:
        """Wait until the next attempt may begin."""
        wait = self._backoff.end(
            _now(),
            pace_of(self._error),
            accepted=_accepted(outcome),
            relists=isinstance(self._phase, Listing),
            retry_after=_retry_after(outcome),
        )
        if wait > 0:
            self._pausing = True
            self._on_change()
            try:
                await asyncio.sleep(wait)
            finally:
                self._pausing = False


def _accepted(outcome: Input) -> bool:
    """True for a watch that the server accepted, however it went on."""
    return isinstance(outcome, WatchEnded) and outcome.established


def _retry_after(outcome: Input) -> float | None:
    """Seconds that the server asked to wait."""
    match outcome:
        case (
            ListFailed(error=ApiError() as error)
            | WatchEnded(error=ApiError() as error)
        ):
            return error.retry_after
        case _:
            return None


def _gives_up_streams(phase: Phase) -> TypeGuard[Listing]:
    """True for a list in pages, as is every one from then on.

    Not for one that is in pages just this once, and not for the watch behind a list.
    """
    return isinstance(phase, Listing) and not phase.streaming and not phase.detour


def _now() -> float:
    return asyncio.get_running_loop().time()
