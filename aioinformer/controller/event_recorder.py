"""`EventRecorder`: tells the users of a cluster what a controller did, and why not."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from aioinformer._tasks import Supervisor, finish
from aioinformer._user_code import guarded_logger
from aioinformer.backoff import Backoff, Failure
from aioinformer.controller.event_book import (
    MOST_KNOWN,
    BookFull,
    EventBook,
    Happening,
    Reference,
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
from aioinformer.informer.hosting import Entered
from aioinformer.informer.liveness import running_loop
from aioinformer.informer.log_limit import LogLimit
from aioinformer.model.resource import Resource
from aioinformer.model.validation import qualified_name_problem

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from aioinformer.controller.event_book import Series
    from aioinformer.model.objects import KubeObject

__all__ = ["EventClient", "EventRecorder"]

logger = guarded_logger(__name__)

EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event")

MOST_WAITING: Final = 1000
"""Events that wait to be written; more are dropped. The number is client-go's."""

ATTEMPTS: Final = 12
"""How often one is tried, as in client-go; of a server that is away, 3 to 7 minutes."""

LOOK_SECONDS: Final = 30.0
"""How often series are looked through for what is due."""

FINISH_SECONDS: Final = 5.0
"""How long the end waits for what is not written yet."""

# The server's limit, in bytes.
_INSTANCE_BYTES: Final = 128


class EventClient(Protocol):
    """What a recorder needs of a `Client`; for the meanings see there."""

    async def create(
        self, resource: Resource, body: Any, *, namespace: str | None = None
    ) -> KubeObject:
        """Create an object."""

    async def patch(
        self, resource: Resource, name: str, body: Any, *, namespace: str | None = None
    ) -> KubeObject:
        """Change parts of an object."""


class _Retry:
    """How often something was tried, and when it is tried next, on the loop's clock."""

    __slots__ = ("attempts", "backoff", "when")

    def __init__(self, rng: random.Random | None) -> None:
        self.attempts = 0
        self.backoff = Backoff(rng)
        self.when = 0.0


class EventRecorder(Entered):
    """Tells the users of a cluster what a controller did, and why not.

    They see it by `kubectl describe` and `kubectl events`::

        recorder = EventRecorder(client, "site-operator")
        manager.add(recorder, leader_only=False)

        recorder.event(site, "Normal", "Deployed", "made the deployment blog")

    Telling never waits, and nothing comes back of it: a controller works the same
    whether its events are written or not. A task writes them, one after the other. An
    event that comes again makes a series: it is written at its second time, every 5
    minutes while it goes on, and when it has been away for 6. As in client-go's recorder
    for events.k8s.io (`tools/events`), but for that client-go refreshes after half an
    hour, and takes each version of an object for another one.

    Not guaranteed:
        That an event is written. Given up is what the server refuses, which is logged,
        and what could not be sent in 12 attempts; dropped is what comes while 1000 are
        waiting, beyond 20,000 different ones within 6 minutes, or when it has ended.
        What comes again is tried again, when its series is due.

    Lifetime:
        Add it to a `Manager` with `leader_only=False`, so that it outlives the
        controllers; or enter it (`async with recorder:`), or `start()` and `shutdown()`
        it. It may run again, in the same loop or another. What is told before is written
        when it begins, and what waits when it ends is given 5 s. It needs a client that
        is entered, and the verbs create and patch of `events` in `events.k8s.io`.

    Args:
        client: Sends the requests; entered by whom it belongs to.
        controller: Who tells: a name such as `"site-operator"`, or with a domain,
            `"example.com/site-operator"`.
        instance: Which of its replicas; None for the controller with the name of the
            host, which in a cluster is that of the pod.
        rng: Where the jitter between attempts comes from.

    Attributes:
        dropped: How often something was not written, for whichever reason: each of them
            is logged, with a bound. A repeat that is counted in a series is none.

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
                f"{problem}; it may be 'site-operator' or 'example.com/site-operator'"
            )

        if instance is None:
            host = f"-{socket.gethostname()}"
            instance = controller[: _INSTANCE_BYTES - len(host)] + host

        if not 0 < len(instance.encode()) <= _INSTANCE_BYTES:
            raise OptionsError(
                f"an instance has 1 to {_INSTANCE_BYTES} bytes, and is not {instance!r}"
            )

        self.controller = controller
        self.instance = instance
        self.dropped = 0
        self._client = client
        self._rng = rng
        self._book = EventBook()
        # In the order in which they are written; each once.
        self._waiting: dict[Series, _Retry] = {}
        # How long to leave the server alone, and until when; on the loop's clock.
        self._patience = Backoff(rng)
        self._pause_until = 0.0
        self._more = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None  # while it runs
        self._ended = False
        self._next_look = 0.0  # on the loop's clock
        self._limit = LogLimit()
        self._supervisor = Supervisor(self._live, "event recorder")

    def __repr__(self) -> str:
        return (
            f"<EventRecorder {self.controller} waiting={self.waiting} "
            f"dropped={self.dropped}>"
        )

    @property
    def waiting(self) -> int:
        """How many events wait to be written."""
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
        """Tell of something that has happened; returns at once.

        Args:
            regarding: What it has happened to: an object, its body, or a reference
                (`apiVersion`, `kind`, `name`, `namespace`, `uid`, `fieldPath`). The
                event is written in its namespace; in `default` if it has none. Without
                the uid, `kubectl describe` does not show it.
            type: `"Warning"` if somebody should look at it.
            reason: Why it has happened, in one word for programs: `"FailedMount"`.
            note: The same for people. More than 1024 bytes are cut off. A series has
                the note of its first event.
            action: What was done or failed, in one word: `"MountVolume"`; the reason if
                left out.
            related: Another object that has to do with it.

        Raises:
            OptionsError: If the server would refuse it.
            WrongLoop: Called outside of the event loop that it runs in.
        """
        happening = Happening(
            Reference.to(regarding),
            type,
            reason,
            reason if action is None else action,
            None if related is None else Reference.to(related),
        )
        loop = running_loop()
        if not isinstance(note, str):
            raise OptionsError(f"the note of an event is a text, not {note!r}")

        if loop is None or self._loop not in {None, loop}:
            raise WrongLoop("tell of events from the event loop of their recorder")

        if self._ended:
            self._drop(f"{type} {reason}", "the recorder has ended")
            return

        now = datetime.now(UTC)
        try:
            series = self._book.note(happening, note, now, loop.time())
        except BookFull:
            self._drop(f"{type} {reason}", f"{MOST_KNOWN} others are known")
            return

        if series is not None:
            self._put(series)

    # ------------------------------------------------------------ its life

    async def start(self) -> None:
        """Begin to write.

        Raises:
            OptionsError: It runs already.

        Cancellation:
            Ends it again.
        """
        await self._supervisor.start()

    async def shutdown(self) -> None:
        """Write what waits, for 5 s at most, and end what `start()` began; idempotent.

        Cancellation:
            Deferred until it has ended.
        """
        await self._supervisor.stop()

    async def run(self) -> None:
        """Write events until cancelled: for a `Manager`, or a task of your own.

        Raises:
            OptionsError: It runs already.

        Cancellation:
            Ends it, when what waits is written, or 5 s later.
        """
        await self._live(lambda: None)

    async def _live(self, ready: Callable[[], None]) -> None:
        if self._loop is not None:
            raise OptionsError("the event recorder runs already")

        self._loop = asyncio.get_running_loop()
        self._ended = False
        # Of this loop, and by its clock.
        self._more = asyncio.Event()
        self._next_look = self._pause_until = 0.0
        try:
            ready()
            while True:
                await self._write_next()
        finally:
            try:
                await self._finish()
            finally:
                self._loop, self._ended = None, True

    def _look(self) -> None:
        """Let series be written that are due."""
        now = self._now()
        if now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            for series in self._book.due(now):
                self._put(series)

    async def _finish(self) -> None:
        try:
            await finish(self._write_rest(), within_seconds=FINISH_SECONDS)
        except TimeoutError:
            pass  # each of them is told
        finally:
            for series in (*self._waiting, *self._book.left()):
                self._give_up(series, "the recorder has ended")

    async def _write_rest(self) -> None:
        # What waits may be over, and so not in the book any more.
        while left := [*self._waiting, *self._book.left()]:
            for series in left:
                self._waiting.setdefault(series, _Retry(self._rng))

            while self._waiting:
                await self._write_next()

    # ------------------------------------------------------------ writing

    def _put(self, series: Series) -> None:
        if series not in self._waiting and len(self._waiting) >= MOST_WAITING:
            self._give_up(series, f"{MOST_WAITING} are waiting")
            return

        self._waiting.setdefault(series, _Retry(self._rng))
        self._more.set()

    async def _write_next(self) -> None:
        """Try what comes next, once; or wait until it is time for that."""
        self._look()
        series, when = self._next()
        if series is None:
            self._more.clear()
            try:
                async with asyncio.timeout_at(when):
                    await self._more.wait()
            except TimeoutError:
                pass

            return

        problem = await self._try(series)
        if problem is not None:
            self._give_up(series, problem)

    def _next(self) -> tuple[Series | None, float | None]:
        """What is to be tried now; if nothing is, when there is something to do."""
        now = self._now()
        times = [self._next_look] if len(self._book) else []
        if self._pause_until > now:
            # New events change nothing about that: they wait, too.
            return None, min([self._pause_until, *times])

        for series, retry in self._waiting.items():
            if retry.when <= now:
                return series, None

            times.append(retry.when)

        return None, min(times, default=None)

    async def _try(self, series: Series) -> Exception | None:
        """Write it, now or in a later attempt; what is wrong if there is to be none."""
        retry = self._waiting[series]
        retry.attempts += 1
        now = series.tried = self._now()
        self._patience.begin(now)
        retry.backoff.begin(now)
        try:
            await self._write(series)
        except (TransportError, TooManyRequests) as exc:
            # It would be the same for all others: they wait.
            after = getattr(exc, "retry_after", None)
            wait = self._patience.end(self._now(), Failure.OTHER, retry_after=after)
            self._pause_until = self._now() + wait
            return exc if retry.attempts >= ATTEMPTS else None
        except (ServerError, OSError, RuntimeError) as exc:
            if isinstance(exc, WrongLoop):
                return exc

            # It may be a webhook for one namespace: others may go on.
            wait = retry.backoff.end(self._now(), Failure.OTHER)
            retry.when = self._now() + wait
            return exc if retry.attempts >= ATTEMPTS else None
        except AioInformerError as exc:
            return exc

        self._patience = Backoff(self._rng)
        if series.written < 2 <= series.count:
            self._waiting[series] = _Retry(self._rng)  # a series since then
        else:
            del self._waiting[series]

        return None

    async def _write(self, series: Series) -> None:
        count = series.count
        create = not series.written
        if not create:
            try:
                await self._change(series)
            except NotFound:
                create = True  # servers keep them for an hour

        if create:
            body = series.body(self.controller, self.instance)
            try:
                await self._client.create(EVENTS, body, namespace=series.namespace)
            except AlreadyExists:
                # By us: an attempt of which the answer was lost, of another number.
                if count > 1:
                    await self._change(series)

        series.written = series.dealt = count

    async def _change(self, series: Series) -> None:
        await self._client.patch(
            EVENTS, series.name, series.change(), namespace=series.namespace
        )

    def _give_up(self, series: Series, why: object) -> None:
        self._waiting.pop(series, None)
        if series.dealt < series.count:
            series.dealt = series.count
            self._drop(series, why)

    def _drop(self, what: object, why: object) -> None:
        self.dropped += 1
        verdict = self._limit.note(asyncio.get_running_loop().time())
        if verdict.each:
            logger.warning("event %s was not recorded: %s", what, why)

        for count in verdict.sums:
            logger.warning("%d events were not recorded within a minute", count)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
