"""`RetryWatch`: a watch that survives the end of its connections.

The pure function `decide` decides what to do after an event or an error. `RetryWatch`
does it, and waits between two watches. It never lists.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from aioinformer._user_code import guarded_logger
from aioinformer.backoff import Backoff, failure_of
from aioinformer.errors import (
    ApiError,
    DecodeError,
    Forbidden,
    InternalError,
    Invalid,
    OptionsError,
    ResourceExpired,
    ServerError,
    Unauthorized,
    WrongLoop,
)
from aioinformer.model.object_meta import version_number
from aioinformer.model.times import Duration, seconds_of
from aioinformer.watch.connectivity import Connectivity
from aioinformer.watch.events import EventType, WatchEvent
from aioinformer.watch.interface import Connected, Watch, WatchOptions

if TYPE_CHECKING:
    from aioinformer.watch.interface import ListerWatcher

__all__ = ["Decision", "Finish", "Forward", "Ignore", "Retry", "RetryWatch", "decide"]

logger: Final = guarded_logger(__name__)

SHORTEST_GAP_SECONDS = 1.0
"""Minimum time between the starts of two watches, as in client-go."""


WATCH_SECONDS = 300.0
"""Minimum duration of a watch. A silently dead connection is noticed at its end."""


class RetryWatch(Watch):
    """Watch that resumes after its last event whenever its connection ends.

    ::

        async with RetryWatch(source, pods.resource_version) as watch:
            async for event in watch:
                ...

    Returns ADDED, MODIFIED and DELETED events, each once and in the order of the
    server, over as many watches as needed. Bookmarks are requested and remembered, but
    not returned. Events that the server repeats (with decimal versions not above the
    last one) are left out.

    It resumes after every error that may be temporary. If no further attempt can
    succeed, its last event is an ERROR. Nothing is raised. `event.error()` is the
    reason: `ResourceExpired` (the server has dropped the history after the last
    version: list again), `Forbidden`, `Unauthorized` or `Invalid`. The table of
    `decide` has all cases.

    As client-go's `RetryWatcher`, with three differences. 410, 400 and 422 in response
    to a request end it; client-go repeats the request forever. Repeated events are
    left out. Failures in a row lead to growing pauses.

    Not guaranteed:
        Detection of a server whose history goes backwards (a restored backup): that
        requires a list, as in informers. Deletions, if the server sends them with the
        previous version of the object.

    Pace:
        Watches start at least 1 s apart, and follow one that ended cleanly within 5 s.
        While they fail, the pauses grow to 30 to 60 s. While the server cannot be
        reached, it is probed once a second. A server's `Retry-After` is respected, up
        to 2 minutes.

    Lifetime:
        It owns no task: the reader's task connects, reads and pauses. Leave it by
        `async with`, in the task that reads, which closes the connection. `stop()` ends
        it at once and may be called by other tasks. The reader, or the `async with`,
        then leaves the context of the connection.

    Args:
        source: Source to watch.
        resource_version: Version to start after: that of a list, or of an object.
        name: Name in the log.
        watch_seconds: Time for which the server should keep one watch open: drawn from
            [w, 2w) for each. At least 1 s; whole seconds.
        rng: Source of jitter.

    Raises:
        OptionsError: If the version is `""` or `"0"`, from which no watch can resume,
            or the seconds are less than 1.

    Attributes:
        failures: Number of watches in a row that were refused, or broke off without an
            event.
        last_error: Last failure, until a watch is accepted.
        duplicates: Number of events left out because the server had sent them before.
    """

    def __init__(
        self,
        source: ListerWatcher,
        resource_version: str,
        *,
        name: str = "retry watch",
        watch_seconds: Duration = WATCH_SECONDS,
        rng: random.Random | None = None,
    ) -> None:
        if resource_version in ("", "0"):
            raise OptionsError(
                f"cannot resume a watch from version {resource_version!r}: use "
                "that of a list, or of an object"
            )

        if seconds_of(watch_seconds) < 1:
            raise OptionsError(f"watch_seconds must be at least 1, not {watch_seconds}")

        super().__init__()
        self.failures: int = 0
        self.last_error: Exception | None = None
        self.duplicates: int = 0
        self._name = name
        self._source = source
        self._seconds = seconds_of(watch_seconds)
        self._rng = rng or random.Random()
        # Invariant: everything up to this version was read and forwarded.
        self._version = resource_version
        self._finished = False

        # The current watch. Its context is left some time after the watch has ended. So
        # there may be a context without a watch, but no watch without a context.
        self._watch: Watch | None = None
        self._context = AsyncExitStack()
        self._skipped = 0

        self._backoff = Backoff(self._rng)
        self._connectivity = (
            source.connectivity if isinstance(source, Connected) else Connectivity()
        )
        self._started = -math.inf
        self._not_before = -math.inf
        # Set while a reader pauses or connects, so that `stop()` can end the wait.
        self._wait_timeout: asyncio.Timeout | None = None

    def __repr__(self) -> str:
        state = "connected" if self._watch is not None else "not connected"
        if self._ended or self._finished:
            state = "ended"

        return (
            f"<RetryWatch {self._name} version={self._version} {state} "
            f"failures={self.failures}>"
        )

    @property
    def skipped(self) -> int:
        """Number of events left out so far: unreadable, or of another kind or type."""
        return self._skipped + (self._watch.skipped if self._watch is not None else 0)

    async def next_batch(self) -> list[WatchEvent]:
        """Wait for events and return all that have arrived; an empty list is the end.

        Errors of the server and the network are not raised: see the class. Errors of
        the program are, such as the `OptionsError` of a client that was not entered.

        Cancellation:
            Safe: nothing is lost, call again. A cancelled connection attempt starts
            again.
        """
        return await super().next_batch()

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        await self._leave()

    async def _fetch(self) -> list[WatchEvent]:
        while not self._stopped and not self._finished:
            if self._watch is not None:
                events = await self._read(self._watch)
            else:
                events = await self._connect()

            if events:
                return events

        self._end_watch()
        await self._leave()
        return []

    def _close(self) -> None:
        if self._watch is not None:
            self._watch.stop()

        if self._wait_timeout is not None:
            self._wait_timeout.reschedule(self._now())

    # ------------------------------------------------------------ attempts

    async def _connect(self) -> list[WatchEvent]:
        """Start another watch when it is due; return an event if it is refused."""
        await self._leave()
        if self._stopped:
            return []

        try:
            async with asyncio.timeout(None) as self._wait_timeout:
                await asyncio.sleep(max(self._not_before - self._now(), 0.0))
                async with self._connectivity.turn():
                    self._begin()
                    context = self._source.watch(self._options())
                    self._watch = await self._context.enter_async_context(context)
        except (InternalError, OptionsError, WrongLoop):
            raise
        except Exception as exc:  # noqa: BLE001 - whatever a source raises
            if self.stopped:
                return []

            self._connectivity.failed(exc)
            return self._perform(exc, accepted=False)
        else:
            self.last_error = None
            self._connectivity.reached()
        finally:
            self._wait_timeout = None

        return []

    async def _read(self, watch: Watch) -> list[WatchEvent]:
        """Read the next batch; return those of its events that are forwarded."""
        try:
            batch = await watch.next_batch()
        except (InternalError, OptionsError, WrongLoop):
            raise
        except Exception as exc:  # noqa: BLE001 - whatever a source raises
            return self._perform(exc)

        events: list[WatchEvent] = []
        for happened in batch or (None,):
            events += self._perform(happened)
            if self._watch is None:
                break  # events after its end have no meaning

        return events

    async def _leave(self) -> None:
        """Leave the context of the last watch, if there is one."""
        # An error of leaving does not matter: that watch is over.
        with contextlib.suppress(Exception):
            await self._context.aclose()

    # Atomic: no await between the arrival of an event and its effect.

    def _perform(
        self, happened: WatchEvent | Exception | None, *, accepted: bool = True
    ) -> list[WatchEvent]:
        """Apply a decision; return the events that are forwarded."""
        match decide(happened, self._version):
            case Forward(version=version):
                assert isinstance(happened, WatchEvent)
                self._version, self.failures = version, 0
                return [happened]
            case Ignore(version=version):
                self._note_ignored(happened)
                self._version, self.failures = version, 0
                return []
            case Retry() as retry:
                self._end_watch()
                self._plan(retry, accepted=accepted)
                return []
            case Finish(event=event):
                self._end_watch()
                self._finished = True
                return [event]
            case never:
                assert_never(never)

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._skipped += self._watch.skipped
            self._watch = None

    def _begin(self) -> None:
        self._started = now = self._now()
        # Also for an attempt that is cancelled.
        self._not_before = now + SHORTEST_GAP_SECONDS
        self._backoff.begin(now)

    def _plan(self, retry: Retry, *, accepted: bool) -> None:
        """Set the time of the next watch."""
        now = self._now()
        wait = self._backoff.end(
            now,
            failure_of(retry.error),
            accepted=accepted,
            retry_after=retry.seconds,
        )
        self._not_before = max(self._started + SHORTEST_GAP_SECONDS, now + wait)
        self.last_error = retry.error
        self.failures = 0 if retry.error is None else self.failures + 1
        if _is_power_of_two(self.failures):
            # The first failure of an accepted watch is normal.
            logger.log(
                logging.INFO if accepted and self.failures == 1 else logging.WARNING,
                "%s: watch failed, will resume (failures=%d, version=%s): %s",
                *(self._name, self.failures, self._version, retry.error),
            )

    def _note_ignored(self, happened: object) -> None:
        if not isinstance(happened, WatchEvent) or happened.type is EventType.BOOKMARK:
            return

        self.duplicates += 1
        if _is_power_of_two(self.duplicates):
            # A server that was restored to an older state may send no other events.
            logger.warning(
                "%s: leaving out events that are not newer than the last one "
                "(events=%d, version=%s, last=%s)",
                *(self._name, self.duplicates),
                *(happened.object.resource_version, self._version),
            )

    def _options(self) -> WatchOptions:
        least = self._seconds
        seconds = max(int(least * (1.0 + self._rng.random())), math.ceil(least))
        return WatchOptions(resource_version=self._version, timeout_seconds=seconds)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _is_power_of_two(number: int) -> bool:
    """Return True for 1, 2, 4 ...: the failures of a long series that are logged."""
    return number > 0 and number & (number - 1) == 0


@dataclass(frozen=True, slots=True)
class Forward:
    """Forward the event; after it, the watch is at `version`."""

    version: str


@dataclass(frozen=True, slots=True)
class Ignore:
    """Do not forward the event; the watch is at `version`."""

    version: str


@dataclass(frozen=True, slots=True)
class Retry:
    """Start another watch after the last version: this one is over."""

    error: Exception | None = None
    """Reason; None if the watch just ended."""

    @property
    def seconds(self) -> float | None:
        """Seconds that the server requested to wait, or None."""
        return self.error.retry_after if isinstance(self.error, ApiError) else None


@dataclass(frozen=True, slots=True)
class Finish:
    """Forward this ERROR event as the last one: no other watch can succeed."""

    event: WatchEvent


Decision: TypeAlias = Forward | Ignore | Retry | Finish


# Refusals that last until a person acts.
_FINAL: Final = Unauthorized | Forbidden | Invalid | ResourceExpired


def decide(happened: WatchEvent | Exception | None, version: str) -> Decision:
    """Decide what to do after an event, a failure, or the end of a watch.

    ==================================  ================================================
    what happened                       decision
    ==================================  ================================================
    ADDED, MODIFIED, DELETED
      with a version                    Forward, at that version
      with a decimal version that is    Ignore: the server repeats itself
      not above the last one
      without a version                 Finish, with an InternalError: the watch could not
                                        resume after it
    BOOKMARK
      with a version                    Ignore, at that version
      with none, or one not above       Ignore
      the last one
    ERROR
      410                               Finish, with that event
      any other, or not a Status        Retry, after a `Retry-After`
    a failure
      401, 403                          Finish, with its Status
      400, 410, 422                     Finish, with its Status: the same request is
                                        refused each time. client-go repeats it
      any other refusal, a broken       Retry, after a `Retry-After`
      connection, bytes that cannot
      be read
    the end of the stream               Retry
    ==================================  ================================================

    Args:
        happened: Event, error by which a watch was refused or broke off, or None for a
            stream that has ended.
        version: Last version before.
    """
    match happened:
        case None:
            return Retry()
        case WatchEvent(type=EventType.ERROR):
            return _decide_error(happened)
        case WatchEvent():
            return _decide_event(happened, version)
        case ApiError() if isinstance(happened, _FINAL):
            return Finish(WatchEvent.of_error(happened))
        case _:
            return Retry(happened)


def _decide_error(event: WatchEvent) -> Decision:
    try:
        error: Exception = event.error()
    except DecodeError as exc:
        error = exc

    return Finish(event) if isinstance(error, ResourceExpired) else Retry(error)


def _decide_event(event: WatchEvent, version: str) -> Decision:
    new = event.object.resource_version
    if event.type is not EventType.BOOKMARK and not new:
        error = ServerError(
            f"{event.type} event of {event.object.key} has no resource version: the "
            "watch cannot be resumed after it",
            status=500,
            reason="InternalError",
        )
        return Finish(WatchEvent.of_error(error))

    if not new or 0 <= version_number(new) <= version_number(version):
        return Ignore(version)

    return Ignore(new) if event.type is EventType.BOOKMARK else Forward(new)
