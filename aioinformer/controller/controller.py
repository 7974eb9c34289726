"""`Controller`: calls a reconcile for each object that changes.

`Manager` runs controllers by `run()`, with a client and an elector. One cancellation
drains a controller, a second one stops it at once. It ends by itself only with an
error.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from aioinformer._tasks import Supervisor, run_concurrently, unwrap_group
from aioinformer._user_code import guarded_logger
from aioinformer.controller.context import reconcile_of
from aioinformer.controller.finalizers import finalizers_of
from aioinformer.controller.metrics import ControllerMetrics
from aioinformer.controller.run_parts import PartOptions, RunParts
from aioinformer.controller.shards.active_ranges import require_whole
from aioinformer.controller.shards.sharding import Sharding
from aioinformer.controller.source import request_of, sources_of
from aioinformer.controller.workers import Workers
from aioinformer.controller.writer import ControllerEvents
from aioinformer.errors import InformerStopped, NotSynced, OptionsError
from aioinformer.informer.handlers.error_reporter import ErrorReporter
from aioinformer.informer.lifecycle import Lifecycle
from aioinformer.informer.notifications import Deleted
from aioinformer.metrics import NULL_SINK, ScopedSink
from aioinformer.model.callables import check_plain
from aioinformer.model.times import seconds_of, timeout_of
from aioinformer.tracing import ReconcileTracer
from aioinformer.workqueue.priority import PriorityQueue

if TYPE_CHECKING:
    from collections.abc import (
        Awaitable,
        Callable,
        Coroutine,
        Iterable,
        Mapping,
        Sequence,
    )

    from opentelemetry.trace import TracerProvider

    from aioinformer.client.client import Client
    from aioinformer.controller.client import Elector
    from aioinformer.controller.context import PlainReconcile, Reconcile
    from aioinformer.controller.daemons import Daemon
    from aioinformer.controller.event_recorder import EventRecorder
    from aioinformer.controller.event_sources import EventSource
    from aioinformer.controller.predicates import Predicate
    from aioinformer.controller.reconcile import ReconcileRequest
    from aioinformer.controller.shards.shards import Shards
    from aioinformer.controller.source import Owned, Source, Watched
    from aioinformer.controller.status import (
        ControllerStatus,
        EndedReconcile,
        WaitingRequests,
    )
    from aioinformer.controller.timers import Every
    from aioinformer.errors import HandlerError
    from aioinformer.informer.handlers.registration import Registration
    from aioinformer.informer.notifications import Notification
    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.metrics import MetricsSink
    from aioinformer.model.times import Duration

__all__ = ["Controller"]

logger: Final = guarded_logger(__name__)

SYNC_WARNING_SECONDS = 30.0
"""Interval of the warnings of a controller that waits for its informers."""

# Queues in use. Two controllers with one queue would take each other's requests.
_QUEUES_IN_USE: WeakSet[PriorityQueue[ReconcileRequest]] = WeakSet()


class Controller(Lifecycle):
    """Loop that calls a reconcile for each object that changes.

    ::

        async def reconcile(request: ReconcileRequest, ctx: Context) -> Result | None:
            site = ctx.lister.get(request.key)
            ...

        controller = Controller("sites", reconcile, for_=sites, owns=[deployments])
        async with factory:
            await controller.run()

    After a reconcile:
        On `TerminalError`, or a group of only these, the failures of the request are
        forgotten and it waits for the next change. On any other failure (an exception,
        the timeout, cancelling itself, an invalid return value) it is retried after the
        delay of the queue's rate limiter, which grows with each failure in a row. On
        success its failures are forgotten, and it waits for the next change or for
        `Result(requeue_after=...)`. A change that arrives earlier always triggers a
        reconcile at once, and a requeue is still done at its time.

    Guarantees:
        G10: A request is never reconciled twice at once. A request that is added while
            it is being reconciled is reconciled again. Each change is followed by a
            reconcile that sees it, or a later state. Threads of `ctx.run_in_thread()`
            are part of the reconcile. Those of `asyncio.to_thread()` outlive a
            cancellation.
        Writes through `ctx.client` are visible to the next reconcile of the same
            request, which waits until the informers of this controller show them. After
            10 s it begins with `ctx.stale` set, a warning and a metric. Writes that no
            informer selects are not waited for: see `ReconcileClient`.
        A failed reconcile is logged with its key and cause, counted, and passed to
            `on_error`. Others continue. A reconcile of more than a minute is logged.
        G14: With `shards`, an object is worked on by the replica that owns its range,
            and by no other one. Writes of the others raise `LeadershipLost`.
        G12: A predicate that raises lets the change pass. A mapping that raises returns
            no requests. Both are reported.

    Not guaranteed:
        That a reconcile sees each change, or the writes of other requests. The order of
        requests: those of the first list and of resyncs have a lower priority.

    Lifetime:
        It runs by `run()`, `async with controller:`, or `start()` and `shutdown()`,
        and can run again after it has ended. Another run begins with all objects again:
        earlier requests, delays and failures are dropped. Its owner runs the informers,
        for example in a factory, and enters the client. Handlers are added at the
        start, and the first reconcile begins when they have processed the initial
        objects. It owns a task for each running reconcile and each request with pending
        writes, one for each informer, and two more. Each running daemon and each source
        has one, too. When stopped, it waits `drain_timeout` for running reconciles,
        cancels them, and drops queued requests. (A reconcile that swallows its
        cancellation keeps it from ending.)

    Args:
        name: Name in the log and in metrics.
        reconcile: Coroutine function of a `ReconcileRequest` and a `Context`. Use
            `with_object` for one that takes the object. It must reach the desired state
            from any state, as it does not see each change. A plain function is called
            in a thread: see `Context.run_in_thread` and `Context.wait`.
        for_: Informer of the objects to reconcile. Each change queues a request for the
            object.
        owns: Informers of objects that those of `for_` own. Each change queues a
            request for the owner marked as controller. A tuple of an informer and
            predicates filters the changes.
        watches: Tuples of an informer of other objects, a mapping to requests, and
            optionally predicates: see `aioinformer.controller.source`.
        sources: Sources of events outside of the cluster, by name: async generator
            functions that yield keys or requests. They are opened after the caches are
            synced. One that raises or ends is reported, and opened again with backoff.
        every: Interval of reconciles of each object of `for_`: seconds, a `timedelta`,
            or an `Every`. The times differ between objects, and are kept over restarts.
        daemons: Coroutine functions that run for each object of `for_`, beside its
            reconciles, from its addition to the request of its deletion. One that
            raises is reported and called again with backoff, or after a
            `TerminalError` once more than the status has changed. One that returns is
            called again after `Result(requeue_after=...)`, else for the next object of
            that name. `Daemon` has options.
        concurrency: Maximum number of concurrent reconciles.
        predicates: Filters of the changes of `for_`. All must return True; combine them
            with `&`, `|` and `~`: see `aioinformer.controller.predicates`. They select
            changes, not objects: `every` and `daemons` apply to all objects of `for_`.
        queue: Queue to use instead of a `PriorityQueue` with the default rate limiter.
            The controller owns it and shuts it down.
        timeout: Maximum seconds of a reconcile, or None.
        drain_timeout: Seconds that running reconciles may continue after a stop.
            Daemons are cancelled at the stop, and have these seconds to end.
        cache_sync_timeout: Maximum seconds from the start until the initial objects are
            processed, as `CacheSyncTimeout` of controller-runtime. None for no limit.
        client: Client that `ctx.client` wraps.
        elector: Elector checked right before each write of `ctx.client`. Its `check()`
            raises `LeadershipLost`.
        on_error: Callback for failures of reconciles, mappings, predicates, sources and
            daemons.
        metrics: Sink of the metrics: see `aioinformer.controller.metrics`.
        storm_breaker: True to slow a key down to one reconcile a second while its
            reconciles trigger each other by their own writes, or fight with others
            over a field. False for no limit.
        tracer_provider: OpenTelemetry's provider, such as `trace.get_tracer_provider()`,
            to trace reconciles: see `aioinformer.tracing`. None for no traces.
        shards: Group of replicas that share the objects of `for_`. Its informer then has
            those of this replica only, and must not be used for anything else. Informers
            of `owns` have the children of all objects, which is right unless these do
            not fit into memory. Requests of `sources`, and of mappings in `watches`, are
            dropped unless this replica has their object.

    Raises:
        OptionsError: If an option is invalid, such as a reconcile that does not take
            two arguments, or a queue of another controller.
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconcile | PlainReconcile,
        *,
        for_: SharedInformer,
        owns: Iterable[Owned] = (),
        watches: Iterable[Watched] = (),
        sources: Mapping[str, EventSource] = MappingProxyType({}),
        every: Duration | Every | None = None,
        daemons: Iterable[Reconcile | Daemon] = (),
        concurrency: int = 4,
        predicates: Iterable[Predicate] = (),
        queue: PriorityQueue[ReconcileRequest] | None = None,
        timeout: Duration | None = None,
        drain_timeout: Duration = 10.0,
        cache_sync_timeout: Duration | None = 120.0,
        client: Client | None = None,
        elector: Elector | None = None,
        on_error: Callable[[HandlerError], None] | None = None,
        metrics: MetricsSink = NULL_SINK,
        storm_breaker: bool = True,
        tracer_provider: TracerProvider | None = None,
        shards: Shards | None = None,
    ) -> None:
        _check(name, concurrency)
        called = reconcile_of(reconcile)
        self.name = name
        self._client = client
        self._elector = elector
        self._tracer_provider = tracer_provider
        self._drain_seconds = _not_negative(drain_timeout)
        self.cache_sync_timeout: float | None = _positive(
            "cache_sync_timeout", cache_sync_timeout
        )
        """Maximum seconds from the start until the first reconcile, or None."""
        seconds = _positive("timeout", timeout)
        self._concurrency = concurrency
        self._metrics = ScopedSink(metrics, f"controller {name}")
        self._reconcile_metrics = ControllerMetrics(name, self._metrics, on_error)
        self._reporter = ErrorReporter(f"controller {name}", on_error, self._metrics)
        self._sources = sources_of(
            for_, owns, watches, predicates, self._reporter, finalizers_of(reconcile)
        )
        self._part_options = PartOptions.of(every, daemons, sources)
        if shards is not None and elector is not None:
            raise OptionsError("pass shards= or elector=, not both")

        self._sharding: Sharding | None = (
            None
            if shards is None
            else Sharding(
                shards,
                [it.informer for it in self._sources],
                follows_objects=self._part_options.follow_objects,
            )
        )
        whole = self._sources if shards is None else self._sources[1:]
        require_whole((it.informer for it in whole), name, shards)
        self._queue: PriorityQueue[ReconcileRequest] = (
            PriorityQueue(name, metrics=metrics)
            if queue is None
            else _claim_queue(queue)
        )
        self._events = ControllerEvents(name)
        self._observers: dict[object, Callable[[EndedReconcile], None]] = {}
        self._new_workers = partial(
            Workers,
            name,
            called,
            self._queue,
            self.informers,
            concurrency=concurrency,
            timeout=seconds,
            events=self._events,
            metrics=self._reconcile_metrics,
            observers=self._observers,
            storm_breaker=storm_breaker,
            sharding=self._sharding,
        )
        self._workers = self._new_workers()
        self._running = False
        self._ended = False  # True after its first run
        self._synced = False
        self._supervisor = Supervisor(self._run_supervised, f"controller {name}")

    def __repr__(self) -> str:
        return f"<Controller {self.name} {self._workers!r} {self._queue!r}>"

    @property
    def informers(self) -> tuple[SharedInformer, ...]:
        """Distinct informers of the controller, that of `for_` first."""
        return tuple(dict.fromkeys(source.informer for source in self._sources))

    @property
    def shards(self) -> Shards | None:
        """Group of replicas that share the objects; None for a controller without one."""
        return None if self._sharding is None else self._sharding.shards

    @property
    def queue(self) -> PriorityQueue[ReconcileRequest]:
        """Queue of requests: `controller.queue.add(ReconcileRequest("shop", "web"))`."""
        return self._queue

    @property
    def recorder(self) -> EventRecorder | None:
        """Recorder of `Context.event`; None before the first event of a run."""
        return self._events.current

    @property
    def has_synced(self) -> bool:
        """True once the handlers have processed the initial objects.

        Reconciles begin then. It stays True after the end, until the next run.
        """
        return self._synced

    def set_metrics(self, sink: MetricsSink) -> None:
        """Set the sink of metrics of the controller and its queue, unless they have one.

        A `Manager` with a sink calls it.
        """
        self._metrics.connect(sink)
        self._queue.set_metrics(sink)

    def set_tracer_provider(self, provider: TracerProvider) -> None:
        """Set the provider of the next run's tracer, unless the controller has one.

        A `Manager` with a provider calls it.
        """
        if self._tracer_provider is None:
            self._tracer_provider = provider

    def status(self) -> ControllerStatus:
        """Return what the controller does at the moment, to show it to people.

        Call it in the event loop of the controller.
        """
        return self._workers.status(self.name, synced=self._synced)

    def waiting(self, *, limit: int = 200) -> WaitingRequests:
        """Return the requests that wait for a worker or a delay, to show them to people.

        Call it in the event loop of the controller. It takes time for the requests that
        it returns, not for all.

        Args:
            limit: Maximum number of queued requests, and of delayed ones.
        """
        return self._workers.waiting(limit)

    def observe(self, observer: Callable[[EndedReconcile], None]) -> Callable[[], None]:
        """Call a function with each reconcile that has ended, of this and later runs.

        It is called in the step that decides about a retry or a requeue, and should be
        fast. Its exceptions are logged. Reconciles that are cancelled at a stop, or
        because their range moves to another replica, are left out.

        Args:
            observer: Plain function.

        Returns:
            Function that removes the observer. Idempotent.

        Raises:
            OptionsError: If the observer is not a plain function.
        """
        check_plain(observer, "an observer")
        token = object()
        self._observers[token] = observer

        def remove() -> None:
            self._observers.pop(token, None)

        return remove

    # ------------------------------------------------------------ by hand

    def requeue(self, request: ReconcileRequest | str) -> bool:
        """Reconcile an object now, as after a change, even if nothing has changed.

        The object need not exist. If it is being reconciled, it is reconciled again
        afterwards. A delay of its request does not end: a retry or a requeue is still
        done at its time. The cause is `Cause("manual", "", key)`.

        Args:
            request: Request, or key of the object.

        Returns:
            True if it is queued. False if the controller is stopped, or another replica
            of its shards has the object.

        Raises:
            OptionsError: If the key is invalid.
            WrongLoop: If called from another event loop or thread.
        """
        return self._workers.requeue(request_of(request, "requeue() takes"))

    def forget(self, request: ReconcileRequest | str) -> None:
        """Drop the retry or requeue of a request, and forget its failures.

        The object is then reconciled after its next change, and a failure is retried
        after the shortest delay. A request that is queued or running stays so.

        Args:
            request: Request, or key of the object.

        Raises:
            OptionsError: If the key is invalid.
            WrongLoop: If called from another event loop or thread.
        """
        self._workers.forget(request_of(request, "forget() takes"))

    # ------------------------------------------------------------ lifetime

    async def run(
        self, *, client: Client | None = None, elector: Elector | None = None
    ) -> None:
        """Run until cancelled.

        Args:
            client: Client that `ctx.client` wraps, if the controller has none of its
                own.
            elector: Elector, if the controller has none of its own.

        Raises:
            InformerStopped: If an informer has ended, so that there are no more
                changes.
            NotSynced: If an informer is not synced within `cache_sync_timeout`. It has
                the reason.
            QueueShutDown: If the queue was shut down by other code.
            OptionsError: If it runs already, or the queue contained anything but
                requests.
            Exception: After a bug of this package.

        Cancellation:
            Stops it: handlers are removed, and running reconciles get `drain_timeout`
            to end, unless leadership is lost. A second cancellation cancels them at
            once. Nothing is left running afterwards.
        """
        failure = None
        try:
            await self._run(_nothing, client, elector)
        except BaseExceptionGroup as group:
            failure = unwrap_group(group)

        if failure is not None:  # pragma: no branch - `_run()` never returns
            raise failure

    def hurry(self) -> None:
        """Skip the drain: cancel running reconciles once the controller is stopped.

        It does not stop the controller.
        """
        self._workers.hurry()

    async def write_events(self) -> None:
        """Write the events of `ctx.event()` until cancelled.

        `run()` does this, unless it runs already. A `Manager` runs it on every replica,
        so that events outlive the leader's work.

        Cancellation:
            Stops it once the waiting events are written, or after 5 s.
        """
        await self._events.run()

    async def start(self) -> None:
        """Start it in a task of its own, and return when its handlers are added.

        Raises:
            OptionsError: If it runs already.
            InformerStopped: If an informer has ended.

        Cancellation:
            Stops it again.
        """
        await self._supervisor.start()

    async def shutdown(self) -> None:
        """Stop it as `run()` does, and wait for its end. Idempotent.

        If one of its reconciles calls it, it does not wait.

        Raises:
            Exception: Failure of the controller, once.

        Cancellation:
            Deferred until it has ended.
        """
        await self._supervisor.stop()

    def _shutdown_note(self) -> str:
        return f"controller {self.name} also failed"

    async def _run_supervised(self, ready: Callable[[], None]) -> None:
        await self._run(ready)

    async def _run(
        self,
        ready: Callable[[], None],
        client: Client | None = None,
        elector: Elector | None = None,
    ) -> None:
        if self._running:
            raise OptionsError(f"controller {self.name} is already running")

        if self._ended:
            self._renew()

        self._running = True
        try:
            await self._work(ready, client, elector)
        finally:
            if self._sharding is not None:  # cancelled work has ended, too
                self._sharding.leave()

            self._running, self._ended = False, True
            self._metrics.end()
            self._queue.forget_metrics()

    def _renew(self) -> None:
        """Begin anew, with nothing of the previous run."""
        self._synced = False
        self._metrics.resume()
        self._workers = self._new_workers()
        self._workers.reopen_queue()

    async def _work(
        self, ready: Callable[[], None], client: Client | None, elector: Elector | None
    ) -> None:
        """Run the task that starts reconciles, and drain the reconciles after it."""
        workers = self._workers
        workers.client = client if self._client is None else self._client
        workers.elector = elector if self._elector is None else self._elector
        if self._tracer_provider is not None:
            workers.tracer = ReconcileTracer(self.name, self._tracer_provider)

        self._reconcile_metrics.concurrency(self._concurrency)
        registrations: list[Registration] = []
        async with asyncio.TaskGroup() as work:  # pragma: no branch - see above
            parts = RunParts(self._part_options, workers, work, self._reporter)
            events = None
            if not self._events.running:
                events = work.create_task(
                    self.write_events(), name=f"{self.name} events"
                )

            try:
                registrations.extend(
                    self._listen(source, parts) for source in self._sources
                )

                ready()
                await run_concurrently(
                    self._serve(registrations, work, parts),
                    workers.warn_of_long(),
                    *map(self._end_with, registrations),
                )
            finally:
                for registration in registrations:
                    registration.remove()

                parts.close()
                await workers.drain(self._drain_seconds, parts.background)
                if events is not None:
                    events.cancel()

    def _listen(self, source: Source, parts: RunParts) -> Registration:
        enqueue = partial(self._workers.enqueue, source)
        sharding = self._sharding

        def changed(event: Notification) -> None:
            enqueue(event)
            parts.changed(event)

        def changed_here(event: Notification) -> None:
            if sharding is not None and sharding.passes(event):
                changed(event)

        if source is not self._sources[0]:
            handler: Callable[[Notification], None] = enqueue
        elif sharding is not None:
            handler = changed_here
        else:
            handler = changed if self._part_options.follow_objects else enqueue

        return source.informer.add_event_handler(
            on_event=handler, name=f"controller {self.name}"
        )

    async def _serve(
        self,
        registrations: Sequence[Registration],
        work: asyncio.TaskGroup,
        parts: RunParts,
    ) -> None:
        deadline = deadline_in(self.cache_sync_timeout)
        for source, registration in zip(self._sources, registrations, strict=True):
            await self._sync(source.informer, registration, deadline)

        self._synced = True
        await run_concurrently(
            parts.start(), self._workers.run(work), *self._shared(parts)
        )

    def _shared(self, parts: RunParts) -> list[Coroutine[Any, Any, None]]:
        """Return the part in a group of replicas, if there is one."""
        if self._sharding is None:
            return []

        return [self._sharding.run(_RunWork(self._workers, self._sources[0], parts))]

    async def _sync(
        self, informer: SharedInformer, registration: Registration, deadline: float
    ) -> None:
        def why(exc: NotSynced) -> str:
            return str(exc) if informer.has_synced else informer.why_not_synced()

        def warn(exc: NotSynced) -> None:
            logger.warning(
                "controller %s: waiting for informer %s: %s",
                self.name,
                informer.name,
                why(exc),
            )

        try:
            await wait_with_warnings(registration.wait_synced, deadline, warn)
        except NotSynced as exc:
            advice = "Increase cache_sync_timeout= to wait longer."
            if informer.status.phase == "idle":
                advice = (
                    "Nobody runs it: take informers of a manager from manager.informer(), "
                    "or start their factory."
                )

            raise NotSynced(
                f"controller {self.name}: informer {informer.name} is not synced after "
                f"{self.cache_sync_timeout:g} s: {why(exc)}. {advice}",
                results={informer.name: why(exc)},
            ) from None

    async def _end_with(self, registration: Registration) -> None:
        await registration.wait_ended()
        raise InformerStopped(f"informer of handler {registration.name} has stopped")


@dataclass(frozen=True, slots=True)
class _RunWork:
    """Work of one run of a sharded controller."""

    workers: Workers
    source: Source
    parts: RunParts

    def changed(self, event: Notification) -> None:
        """Take a change of an object of an active range, or the end of its range."""
        ends = isinstance(event, Deleted) and event.reason
        if not ends:
            self.workers.enqueue(self.source, event)

        # Nothing follows an object that was deleted while its range moved.
        if ends or not isinstance(event, Deleted):
            self.parts.changed(event)

    def cancel_range(self, number: int) -> None:
        """Cancel the reconciles and daemons of a range."""
        self.workers.cancel_range(number)


def deadline_in(seconds: float | None) -> float:
    """Return the time of the loop when a timeout expires, infinity for None."""
    now = asyncio.get_running_loop().time()
    return math.inf if seconds is None else now + seconds


async def wait_with_warnings(
    wait: Callable[[float], Awaitable[None]],
    deadline: float,
    warn: Callable[[NotSynced], None],
) -> None:
    """Wait for caches until a deadline, with a warning every 30 s.

    Args:
        wait: Coroutine function that raises `NotSynced` after the given seconds.
        deadline: Time of the loop.
        warn: Function that logs the warning.

    Raises:
        NotSynced: If the deadline has passed.
    """
    loop = asyncio.get_running_loop()
    while True:
        left = max(deadline - loop.time(), 0.0)
        try:
            return await wait(min(left, SYNC_WARNING_SECONDS))
        except NotSynced as exc:
            if left <= SYNC_WARNING_SECONDS:
                raise

            warn(exc)


def _check(name: str, concurrency: object) -> None:
    if not name:
        raise OptionsError("a controller needs a name for logs and metrics")

    if not isinstance(concurrency, int) or concurrency < 1:
        raise OptionsError(
            f"concurrency must be an integer of at least 1, not {concurrency!r}"
        )


def _claim_queue(
    queue: PriorityQueue[ReconcileRequest],
) -> PriorityQueue[ReconcileRequest]:
    if not isinstance(queue, PriorityQueue):
        raise OptionsError(f"queue must be a PriorityQueue, not {queue!r}")

    if queue in _QUEUES_IN_USE or queue.shutting_down:
        raise OptionsError(f"{queue!r} belongs to another controller, or is shut down")

    _QUEUES_IN_USE.add(queue)
    return queue


def _not_negative(timeout: Duration) -> float:
    seconds = seconds_of(timeout)
    if seconds < 0:
        raise OptionsError(f"drain_timeout must not be negative: {timeout!r}")

    return seconds


def _positive(option: str, timeout: Duration | None) -> float | None:
    seconds = timeout_of(timeout)
    if seconds is not None and seconds <= 0:
        raise OptionsError(f"{option} must be positive, not {timeout!r}")

    return seconds


def _nothing() -> None:
    """Do nothing, as no caller waits for the start."""
