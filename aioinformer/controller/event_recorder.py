"""`EventRecorder`: writes Kubernetes Events about the work of a controller."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from aioinformer._tasks import Supervisor, finish
from aioinformer._user_code import guarded_logger
from aioinformer.backoff import Backoff, Failure
from aioinformer.client.client import Client
from aioinformer.controller.client import EventsClient
from aioinformer.controller.event_correlator import (
    MAX_SERIES,
    EventCorrelator,
    EventKey,
    ObjectReference,
    TooManyEvents,
)
from aioinformer.errors import (
    AioInformerError,
    AlreadyExists,
    NotFound,
    OptionsError,
    ServerError,
    TooManyRequests,
    TransportError,
    WrongLoop,
)
from aioinformer.informer.handlers.error_reporter import LogLimit
from aioinformer.informer.lifecycle import Lifecycle, running_loop
from aioinformer.model.resource import Resource
from aioinformer.model.validation import qualified_name_problem, shown

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from aioinformer.controller.event_correlator import EventSeries
    from aioinformer.model.objects import KubeObject

__all__ = ["EventClient", "EventRecorder"]

logger: Final = guarded_logger(__name__)

EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event")

MAX_WAITING: Final = 1000
"""Maximum number of events that wait to be written, as in client-go."""

MAX_ATTEMPTS: Final = 12
"""Maximum number of attempts to write an event, as in client-go. They take 3 to 7
minutes while a server is unreachable."""

CHECK_SECONDS: Final = 30.0
"""Interval at which series are checked for due writes."""

IDLE_SECONDS: Final = 10.0
"""Time after which events that wait for a recorder that does not run are reported."""

FINISH_SECONDS: Final = 5.0
"""Maximum time to write the remaining events at the end."""

# Timers of a loop fire up to its resolution early, and nothing would be due then.
_EARLY: Final = 0.001

# The server's limit, in bytes.
_INSTANCE_BYTES: Final = 128


class EventClient(Protocol):
    """Part of `Client` that a recorder uses."""

    async def create(
        self, resource: Resource, body: Any, *, namespace: str | None = None
    ) -> KubeObject:
        """Create an object."""

    async def patch(
        self, resource: Resource, name: str, body: Any, *, namespace: str | None = None
    ) -> KubeObject:
        """Change parts of an object."""


class _Retry:
    """Number of attempts to write an event, and the loop's time of the next one."""

    __slots__ = ("attempts", "backoff", "when")

    def __init__(self, rng: random.Random | None) -> None:
        self.attempts = 0
        self.backoff = Backoff(rng)
        self.when = 0.0


class EventRecorder(Lifecycle):
    """Recorder of Kubernetes Events, shown by `kubectl describe` and `kubectl events`.

    ::

        recorder = EventRecorder(client, "site-operator")
        manager.add(recorder, leader_only=False)

        recorder.event(site, "Normal", "Deployed", "created deployment blog")

    `event()` never blocks and never raises on server errors. A task writes the events
    one by one. A repeated event becomes a series: it is written at its second
    occurrence, every 5 minutes while it continues, and 6 minutes after the last
    occurrence. The behavior is that of client-go's recorder for events.k8s.io
    (`tools/events`), which refreshes every 30 minutes and starts a new series for each
    version of an object.

    Not guaranteed:
        That an event is written. Events that the server refuses, or that fail in 12
        attempts, are given up. Events are dropped while 1000 are waiting, beyond 20,000
        different ones within 6 minutes, or after the recorder has ended. All of this is
        logged. A repeated event is tried again when its series is due.

    Lifetime:
        Add it to a `Manager` with `leader_only=False`, so that it outlives the
        controllers; or enter it (`async with recorder:`), or call `start()` and
        `shutdown()`. It can run again, in any loop. Events from before the start are
        written then, and remaining events get 5 s at the end. It needs an entered
        client, and the verbs create and patch of `events` in `events.k8s.io`.

    Args:
        client: Client that sends the requests. Its owner enters it.
        controller: Name of the reporting controller, such as `"site-operator"` or
            `"example.com/site-operator"`.
        instance: Name of the replica. None for the controller and the host name, which
            in a cluster is that of the pod.
        rng: Source of the jitter between attempts.

    Attributes:
        dropped: Number of events that were not written, each logged within limits.
            Repeats counted in a series are not included.

    Raises:
        OptionsError: If the server would refuse the controller or the instance.
    """

    def __init__(
        self,
        client: EventClient,
        controller: str,
        *,
        instance: str | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if problem := qualified_name_problem(controller, "the name of a controller"):
            raise OptionsError(
                f"{problem}. Use 'site-operator' or 'example.com/site-operator'"
            )

        if instance is None:
            host = f"-{socket.gethostname()}"
            instance = controller[: _INSTANCE_BYTES - len(host)] + host

        if not 0 < len(instance.encode()) <= _INSTANCE_BYTES:
            raise OptionsError(
                f"instance must have 1 to {_INSTANCE_BYTES} bytes, not {instance!r}"
            )

        self.controller = controller
        self.instance = instance
        self.dropped: int = 0
        self._client: EventClient = (
            EventsClient(client) if isinstance(client, Client) else client
        )
        self._rng = rng
        self._events = EventCorrelator()
        # In the order of writing.
        self._waiting: dict[EventSeries, _Retry] = {}
        # Pause of all requests after the server was unreachable, on the loop's clock.
        self._backoff = Backoff(rng)
        self._pause_until = 0.0
        self._more = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None  # set while it runs
        self._ended = False
        # Loop's time of the first event before it ran; None once that was reported.
        self._idle_since: float | None = float("inf")
        self._next_check = 0.0  # on the loop's clock
        self._limit = LogLimit()
        self._supervisor = Supervisor(self._write_until_cancelled, "event recorder")

    def __repr__(self) -> str:
        return (
            f"<EventRecorder {self.controller} waiting={self.waiting} "
            f"dropped={self.dropped}>"
        )

    @property
    def waiting(self) -> int:
        """Number of events that wait to be written."""
        return len(self._waiting)

    def event(
        self,
        regarding: KubeObject | Mapping[str, Any],
        type: Literal["Normal", "Warning"],  # noqa: A002 - the API's own word
        reason: str,
        note: str,
        *,
        action: str | None = None,
        related: KubeObject | Mapping[str, Any] | None = None,
    ) -> None:
        """Record an event, without waiting.

        Args:
            regarding: Object of the event, its body, or a reference (`apiVersion`,
                `kind`, `name`, `namespace`, `uid`, `fieldPath`). The event is written
                in its namespace, or in `default`. `kubectl describe` needs the uid.
            type: `"Warning"` if it needs attention, else `"Normal"`.
            reason: Reason as one CamelCase word, such as `"FailedMount"`.
            note: Explanation for people, cut to 1024 bytes. A series keeps the note of
                its first event.
            action: Action that was taken or failed, as one word, such as
                `"MountVolume"`; None for the reason.
            related: Related object.

        Raises:
            OptionsError: If the server would refuse the event.
            WrongLoop: If called outside of the recorder's event loop.
        """
        key = EventKey(
            ObjectReference.to(regarding),
            type,
            reason,
            reason if action is None else action,
            None if related is None else ObjectReference.to(related),
        )
        loop = running_loop()
        if not isinstance(note, str):
            raise OptionsError(
                f"the note of an event must be a string, not {shown(note)}"
            )

        if loop is None or self._loop not in {None, loop}:
            raise WrongLoop("call event() in the event loop of the recorder")

        if self._ended:
            self._drop(f"{type} {reason}", "the recorder has ended")
            return

        if self._loop is None:
            self._check_idle(loop.time())

        now = datetime.now(UTC)
        try:
            series = self._events.add(key, note, now, loop.time())
        except TooManyEvents:
            self._drop(f"{type} {reason}", f"limit of {MAX_SERIES} series")
            return

        if series is not None:
            self._put(series)

    def _check_idle(self, now: float) -> None:
        """Log once that nothing runs it: the events would wait for ever."""
        if self._idle_since is None:
            return

        self._idle_since = min(self._idle_since, now)
        if now - self._idle_since >= IDLE_SECONDS:
            self._idle_since = None
            logger.warning(
                "event recorder %s: %d events wait, but it is not running (call "
                "manager.add(recorder, leader_only=False), or enter it)",
                self.controller,
                self.waiting,
            )

    # ------------------------------------------------------------ lifetime

    async def start(self) -> None:
        """Start to write events.

        Raises:
            OptionsError: If it is running already.

        Cancellation:
            Stops it again.
        """
        await self._supervisor.start()

    async def shutdown(self) -> None:
        """Write the waiting events, within 5 s, and stop. Idempotent.

        Cancellation:
            Deferred until it has ended.
        """
        await self._supervisor.stop()

    async def run(self) -> None:
        """Write events until cancelled, in a `Manager` or a task of your own.

        Raises:
            OptionsError: If it is running already.

        Cancellation:
            Stops it once the waiting events are written, or after 5 s.
        """
        await self._write_until_cancelled(lambda: None)

    async def _write_until_cancelled(self, ready: Callable[[], None]) -> None:
        if self._loop is not None:
            raise OptionsError("the event recorder is already running")

        self._loop = asyncio.get_running_loop()
        self._ended = False
        # Reset, as the loop and its clock may differ from the last run.
        self._more = asyncio.Event()
        self._next_check = self._pause_until = 0.0
        try:
            ready()
            while True:
                await self._write_next()
        finally:
            try:
                await self._finish()
            finally:
                self._loop, self._ended = None, True

    def _queue_due(self) -> None:
        """Queue the series that are due."""
        now = self._now()
        if now >= self._next_check:
            self._next_check = now + CHECK_SECONDS
            for series in self._events.due(now):
                self._put(series)

    async def _finish(self) -> None:
        try:
            await finish(self._write_rest(), within_seconds=FINISH_SECONDS)
        except TimeoutError:
            pass  # each event is logged below
        finally:
            for series in (*self._waiting, *self._events.unwritten()):
                self._give_up(series, "the recorder has ended")

    async def _write_rest(self) -> None:
        # Waiting series may have ended, and are not known to the correlator then.
        while left := [*self._waiting, *self._events.unwritten()]:
            for series in left:
                self._waiting.setdefault(series, _Retry(self._rng))

            while self._waiting:
                await self._write_next()

    # ------------------------------------------------------------ writing

    def _put(self, series: EventSeries) -> None:
        if series not in self._waiting and len(self._waiting) >= MAX_WAITING:
            self._give_up(series, f"limit of {MAX_WAITING} unwritten events")
            return

        self._waiting.setdefault(series, _Retry(self._rng))
        self._more.set()

    async def _write_next(self) -> None:
        """Try the next event once, or wait until one is due."""
        self._queue_due()
        series, when = self._next()
        if series is None:
            self._more.clear()
            try:
                async with asyncio.timeout_at(None if when is None else when + _EARLY):
                    await self._more.wait()
            except TimeoutError:
                pass

            return

        problem = await self._try(series)
        if problem is not None:
            self._give_up(series, problem)

    def _next(self) -> tuple[EventSeries | None, float | None]:
        """Return the series to try now, or the time to look again."""
        now = self._now()
        times = [self._next_check] if len(self._events) else []
        if self._pause_until > now:
            # New events wait, too.
            return None, min([self._pause_until, *times])

        for series, retry in self._waiting.items():
            if retry.when <= now:
                return series, None

            times.append(retry.when)

        return None, min(times, default=None)

    async def _try(self, series: EventSeries) -> Exception | None:
        """Try to write a series. Return the error if it is not retried."""
        retry = self._waiting[series]
        retry.attempts += 1
        now = series.tried = self._now()
        self._backoff.begin(now)
        retry.backoff.begin(now)
        try:
            await self._write(series)
        except (TransportError, TooManyRequests) as exc:
            # All other events would fail in the same way: they wait.
            after = getattr(exc, "retry_after", None)
            wait = self._backoff.end(self._now(), Failure.OTHER, retry_after=after)
            self._pause_until = self._now() + wait
            return exc if retry.attempts >= MAX_ATTEMPTS else None
        except (ServerError, OSError, RuntimeError) as exc:
            if isinstance(exc, WrongLoop):
                return exc

            # Perhaps a webhook of one namespace: other events continue.
            after = getattr(exc, "retry_after", None)
            wait = retry.backoff.end(self._now(), Failure.OTHER, retry_after=after)
            retry.when = self._now() + wait
            return exc if retry.attempts >= MAX_ATTEMPTS else None
        except AioInformerError as exc:
            return exc

        self._backoff = Backoff(self._rng)
        if series.written < 2 <= series.count:
            self._waiting[series] = _Retry(self._rng)  # repeated meanwhile
        else:
            del self._waiting[series]

        return None

    async def _write(self, series: EventSeries) -> None:
        count = series.count
        create = not series.written
        if not create:
            try:
                await self._change(series)
            except NotFound:
                create = True  # servers keep Events for an hour

        if create:
            body = series.body(self.controller, self.instance)
            try:
                await self._client.create(EVENTS, body, namespace=series.namespace)
            except AlreadyExists:
                # An earlier attempt, whose response was lost, created it.
                if count > 1:
                    await self._change(series)

        series.written = series.handled = count

    async def _change(self, series: EventSeries) -> None:
        await self._client.patch(
            EVENTS, series.name, series.change(), namespace=series.namespace
        )

    def _give_up(self, series: EventSeries, why: object) -> None:
        self._waiting.pop(series, None)
        if series.handled < series.count:
            series.handled = series.count
            self._drop(series, why)

    def _drop(self, what: object, why: object) -> None:
        self.dropped += 1
        limit = self._limit.note(asyncio.get_running_loop().time())
        if limit.each:
            logger.warning("dropping event (%s): %s", what, why)

        for count in limit.sums:
            logger.warning("dropped %d events within a minute", count)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
