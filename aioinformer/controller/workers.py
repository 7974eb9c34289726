"""`Workers`: the running reconciles of a controller.

Each reconcile has a task of its own, so that cancelling itself does not affect others.
One synchronous step at the end of that task decides about retries and requeues, so that
the queue never hands out a request twice at once.

A request with pending writes stays in work until the informers show them. It occupies
no worker. If it is added again meanwhile, it is reconciled then.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aioinformer._user_code import guarded_logger, user_errors
from aioinformer.controller.client import ReconcileClient
from aioinformer.controller.context import Context
from aioinformer.controller.pending_writes import PendingWrites
from aioinformer.controller.reconcile import (
    Cause,
    Outcome,
    PendingCauses,
    ReconcileRequest,
    outcome_of_answer,
    outcome_of_failure,
)
from aioinformer.controller.status import (
    ControllerStatus,
    DelayedRequest,
    EndedReconcile,
    Failures,
    QueuedRequest,
    RunningReconcile,
    WaitingRequests,
    error_texts,
)
from aioinformer.controller.storm_breaker import StormBreaker
from aioinformer.controller.threads import Threads
from aioinformer.controller.writer import Writer, Writers
from aioinformer.errors import HistoryReset, LeadershipLost, OptionsError
from aioinformer.informer.handlers.handler_calls import BLOCKING_SECONDS, TimedCoroutine
from aioinformer.informer.lifecycle import running_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aioinformer.client.client import Client
    from aioinformer.controller.background import Background
    from aioinformer.controller.client import Elector
    from aioinformer.controller.context import Reconcile
    from aioinformer.controller.metrics import ControllerMetrics
    from aioinformer.controller.shards.sharding import Sharding
    from aioinformer.controller.source import Source
    from aioinformer.controller.writer import ControllerEvents
    from aioinformer.informer.notifications import Notification
    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.tracing import ReconcileTracer
    from aioinformer.workqueue.priority import PriorityQueue

__all__ = ["LONG_SECONDS", "MAX_DAEMON_WRITES", "SETTLE_SECONDS", "Workers"]

logger: Final = guarded_logger(__name__)

SETTLE_SECONDS = 10.0
"""Maximum wait for the informers to show a write."""

FALLBACK_SECONDS = 10.0
"""Delay of a retry if the rate limiter raises."""

MAX_DAEMON_WRITES = 256
"""Number of objects whose writes a daemon remembers, as it may run for months."""

LONG_SECONDS = 60.0
"""Duration of a reconcile after which a warning is logged."""


_NO_REQUEST = (
    "the queue of a controller takes a ReconcileRequest, not {!r}: use "
    'ReconcileRequest.of("namespace/name") for a key'
)


@dataclass(slots=True, eq=False)
class _Run:
    """One running reconcile."""

    request: ReconcileRequest
    priority: int
    context: Context
    threads: Threads
    writer: Writer
    writes: PendingWrites | None
    """Writes that the informers have not shown yet; None without a client."""
    began: float
    number: int | None = None
    """Range of a sharded controller."""
    uid: str = ""
    """Uid of an object that is not in the store of a sharded controller."""
    warned: bool = False
    moved: bool = False
    """True once it was cancelled because its range moves."""


@dataclass(slots=True, eq=False)
class _Unshown:
    """Pending writes of a request that were not shown in time, or may be lost."""

    writes: PendingWrites
    why: Exception
    waiting: asyncio.Task[None] | None = field(default=None, repr=False)


class Workers:
    """Running reconciles of one controller.

    Args:
        name: Name of the controller.
        reconcile: Reconcile of the user.
        queue: Queue of requests.
        informers: Informers of the controller. Reconciles get the lister of the first.
        concurrency: Maximum number of concurrent reconciles.
        timeout: Maximum seconds of a reconcile, or None.
        events: Recorder of `Context.event`.
        metrics: Metrics of the controller.
        observers: Functions to call with each reconcile that has ended. The owner may
            change them.
        storm_breaker: True to slow down keys in a reconcile storm.
        sharding: Ranges of a sharded controller.
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        queue: PriorityQueue[ReconcileRequest],
        informers: Iterable[SharedInformer],
        *,
        events: ControllerEvents,
        concurrency: int,
        timeout: float | None,
        metrics: ControllerMetrics,
        observers: Mapping[object, Callable[[EndedReconcile], None]],
        storm_breaker: bool = True,
        sharding: Sharding | None = None,
    ) -> None:
        self.client: Client | None = None
        """Client that `Context.client` wraps."""
        self.elector: Elector | None = None
        """Elector that fences its writes."""
        self.tracer: ReconcileTracer | None = None
        """Tracer of its reconciles."""
        self._name = name
        self._breaker = StormBreaker() if storm_breaker else None
        self._reconcile = reconcile
        self._queue = queue
        self._informers = tuple(informers)
        self._lister = self._informers[0].lister
        self._writers = Writers(name, self._informers, events)
        self._timeout = timeout
        self._metrics = metrics
        self._observers = observers
        self._sharding = sharding
        self._causes = PendingCauses()
        self._slots = asyncio.Semaphore(concurrency)
        # Invariant: exactly the reconciles whose tasks have not ended.
        self._running: dict[asyncio.Task[Outcome], _Run] = {}
        # Tasks that wait for pending writes, and the ranges of their requests.
        self._waiting: dict[asyncio.Task[Any], int | None] = {}
        # Running calls of daemons of a sharded controller, and their ranges.
        self._daemons: dict[asyncio.Task[Any], int] = {}
        # Tasks that end storms.
        self._storm_ends: set[asyncio.Task[None]] = set()
        # Invariant: an entry is removed once its writes are shown.
        self._unshown: dict[ReconcileRequest, _Unshown] = {}
        self._failures = Failures()
        self._draining = False
        # Tasks of daemons and sources that have been cancelled.
        self._background: set[asyncio.Task[Any]] = set()
        self._hurried = False
        self._aborting = False

    def __repr__(self) -> str:
        return f"<Workers {self._name} running={len(self._running)}>"

    def enqueue(self, source: Source, event: Notification) -> None:
        """Queue the requests of a change, with their cause."""
        found = source.requests(event)
        if found is None:
            return

        requests, cause, priority = found
        if self._sharding is not None:
            requests = self._sharding.admitted(requests, source, event)

        if self._breaker is not None and self._breaker.inspects:
            self._breaker.observe(requests, source.informer, source.kind, event)

        for request in requests:
            self._add(request, cause, priority)

    def add(self, request: ReconcileRequest, cause: Cause, priority: int) -> None:
        """Queue a request with its cause, if this replica works on it."""
        if self._sharding is None or self._sharding.admits(request):
            self._add(request, cause, priority)

    def _add(self, request: ReconcileRequest, cause: Cause, priority: int) -> None:
        self._causes.add(request, cause)
        if self.tracer is not None:
            self.tracer.received(request, cause.change, cause.kind, cause.key)

        self._queue.add(request, priority)

    def requeue(self, request: ReconcileRequest) -> bool:
        """Queue a request by hand. Return False if it is not worked on here and now."""
        admits = self._sharding is None or self._sharding.admits(request)
        if self._queue.shutting_down or not admits:
            return False

        self._add(request, Cause("manual", "", request.key), 0)
        return True

    def forget(self, request: ReconcileRequest) -> None:
        """Drop the delay and the failures of a request."""
        if self._queue.cancel_delay(request):
            self._causes.drop_delayed(request)

        self._forget(request)
        self._failures.succeeded(request)

    def waiting(self, limit: int) -> WaitingRequests:
        """Return the requests that wait, at most `limit` of each kind."""
        loop = running_loop()
        now = 0.0 if loop is None else loop.time()
        return WaitingRequests(
            longest=self._queue.longest_wait(),
            queued=tuple(
                QueuedRequest(
                    request=request,
                    seconds=seconds,
                    causes=self._causes.of(request, now),
                )
                for request, seconds in self._queue.next_queued(limit)
            ),
            delayed=tuple(
                DelayedRequest(
                    request=request,
                    seconds=seconds,
                    causes=self._causes.of(request, now + seconds),
                )
                for request, seconds in self._queue.next_delayed(limit)
            ),
        )

    def status(self, name: str, *, synced: bool) -> ControllerStatus:
        """Return what the controller does at the moment."""
        # Before its start, there is nothing whose time counts.
        loop = running_loop()
        now = 0.0 if loop is None else loop.time()
        return ControllerStatus(
            name=name,
            synced=synced,
            queued=len(self._queue),
            delayed=self._queue.delayed,
            unshown=len(self._waiting),
            storms=0 if self._breaker is None else self._breaker.storms,
            running=tuple(
                RunningReconcile(
                    request=run.request,
                    seconds=now - run.began,
                    attempt=run.context.attempt,
                    causes=run.context.causes,
                    stale=run.context.stale,
                )
                for run in self._running.values()
            ),
            failing_total=len(self._failures),
            failing=self._failures.newest_first(now, self._queue.seconds_until),
        )

    # ------------------------------------------------------------ lifetime

    def reopen_queue(self) -> None:
        """Open the queue of an earlier run, without its requests and failures."""
        for request in self._queue.reopen():
            self._forget(request)

    async def run(self, work: asyncio.TaskGroup) -> None:
        """Start a reconcile for each request of the queue, until cancelled.

        Args:
            work: Task group of the reconciles and of the waits for pending writes.

        Raises:
            QueueShutDown: If the queue was shut down by other code.
            OptionsError: If the queue contains anything but requests.

        Cancellation:
            Stops it. Running reconciles continue.
        """
        while True:
            await self._slots.acquire()
            request, priority = await self._queue.get_with_priority()
            if not isinstance(request, ReconcileRequest):
                raise OptionsError(_NO_REQUEST.format(request))

            number, uid = None, ""
            if self._sharding is not None:
                place = self._sharding.begin(request)
                if place is None:
                    self._drop(request)
                    await asyncio.sleep(0)  # all of a lost replica are dropped at once
                    continue

                number, uid = place

            run = self._begin(request, priority, work, number, uid)
            if self._breaker is not None and self._breaker.inspects:
                self._check_storm(self._breaker, run, work)

            task = work.create_task(self._work(run), name=f"{self._name} {request.key}")
            self._running[task] = run
            if self._metrics.enabled:
                self._metrics.active(len(self._running))

            task.add_done_callback(lambda task: self._ended(task, work))

    def _drop(self, request: ReconcileRequest) -> None:
        """Forget a request that another replica works on, instead of reconciling it."""
        self._slots.release()
        self._forget_moved(request)
        self._queue.done(request)

    def _forget_moved(self, request: ReconcileRequest) -> None:
        self._forget(request)
        self._failures.succeeded(request)
        self._causes.take(request, asyncio.get_running_loop().time())
        unshown = self._unshown.pop(request, None)
        if unshown is not None and unshown.waiting is not None:
            unshown.waiting.cancel()

    def cancel_range(self, number: int) -> None:
        """Cancel all work on a range, which moves to another replica."""
        for task, run in self._running.items():
            if run.number == number:
                run.moved = True
                task.cancel()

        for others in (self._waiting, self._daemons):
            for task, its_number in others.items():
                if its_number == number:
                    task.cancel()

    async def warn_of_long(self) -> None:
        """Warn of long reconciles, until cancelled."""
        while True:
            await asyncio.sleep(LONG_SECONDS)
            now = asyncio.get_running_loop().time()
            for run in self._running.values():
                if now - run.began >= LONG_SECONDS and not run.warned:
                    run.warned = True
                    self._metrics.long(
                        run.request, now - run.began, bounded=self._timeout is not None
                    )

    async def drain(self, seconds: float, background: Background) -> None:
        """Shut the queue down, wait for running reconciles, and cancel the rest.

        After leadership is lost they are cancelled at once. Tasks in the background,
        which have been cancelled before, are waited for and cancelled again, too.

        Cancellation:
            Running reconciles are cancelled at once.
        """
        self._draining = True
        self._background = background.tasks
        self._queue.shut_down()
        for task in (*self._waiting, *self._storm_ends):
            task.cancel()

        try:
            tasks = {*self._running, *self._background}
            if tasks and not (self._hurried or self._has_lost()):
                await asyncio.wait(tasks, timeout=seconds)
                self._warn_of_background(seconds)
        finally:
            self._abort()

    def _warn_of_background(self, seconds: float) -> None:
        if self._background:
            names = ", ".join(sorted(it.get_name() for it in self._background)[:5])
            logger.warning(
                "controller %s: %d daemons and sources have not ended %g s after their "
                "cancellation, cancelling them again: %s",
                self._name,
                len(self._background),
                seconds,
                names,
            )

    def hurry(self) -> None:
        """Skip the drain: cancel running reconciles once it has begun."""
        self._hurried = True
        if self._draining:
            self._abort()

    def _has_lost(self) -> bool:
        """Return True if another replica may lead by now."""
        try:
            if self.elector is not None:
                self.elector.check()
        except LeadershipLost:
            return True

        return False

    def _abort(self) -> None:
        """Cancel the running reconciles, once."""
        if self._aborting:
            return

        self._aborting = True
        if self._running:
            keys = ", ".join(run.request.key for run in self._running.values())
            logger.warning(
                "controller %s: cancelling running reconciles: %s", self._name, keys
            )

        for task in (*self._running, *self._background):
            task.cancel()

    # ------------------------------------------------------------ one reconcile

    def _begin(
        self,
        request: ReconcileRequest,
        priority: int,
        work: asyncio.TaskGroup,
        number: int | None,
        uid: str,
    ) -> _Run:
        now = asyncio.get_running_loop().time()
        unshown = self._unshown.pop(request, None)
        if unshown is not None:
            self._metrics.stale(request, unshown.why)
            if unshown.waiting is not None:
                unshown.waiting.cancel()

        client = writes = None
        if self.client is not None:
            # Writes that are not shown stay pending, together with further ones.
            writes = (
                PendingWrites(self._informers) if unshown is None else unshown.writes
            )
            elector = self.elector
            if self._sharding is not None and number is not None:
                elector = self._sharding.fence(number)

            client = ReconcileClient(self.client, writes, elector)

        stale = unshown is not None
        threads = Threads(request, self._metrics.thread_overdue, work.create_task)
        writer = Writer(self._writers, request, client, self.client, stale=stale)
        context = Context(
            request,
            self._lister,
            causes=self._causes.take(request, now),
            attempt=self._attempt(request),
            stale=stale,
            client=client,
            settle=lambda ctx: self._settle(ctx, writes),
            threads=threads,
            writer=writer,
        )
        return _Run(
            request, priority, context, threads, writer, writes, now, number, uid
        )

    async def _work(self, run: _Run) -> Outcome:
        """Call the reconcile and write its status, in a span."""
        tracer, request = self.tracer, run.request
        if tracer is None:
            return await self._call_and_write(run)

        with tracer.reconcile(request, request.key, run.context.attempt) as span:
            outcome = await self._call_and_write(run)
            tracer.failed(span, outcome.failure)
            if outcome.retry or outcome.after is not None:
                tracer.again(request, span)

            return outcome

    async def _call_and_write(self, run: _Run) -> Outcome:
        """Call the reconcile, and write the status that it has set."""
        outcome = await self._call(run)
        failure = await run.writer.end(outcome.failure)
        if failure is None or failure is outcome.failure:
            return outcome

        return outcome_of_failure(failure, timed_out=outcome.timed_out)

    async def _call(self, run: _Run) -> Outcome:
        """Call the reconcile, and wait for its threads."""
        timeout = asyncio.timeout(self._timeout)
        try:
            async with timeout:
                if not await self._may_call(run):
                    return outcome_of_answer(None)

                steps = TimedCoroutine(self._reconcile(run.request, run.context))
                try:
                    answer: object = await steps
                finally:
                    if steps.longest > BLOCKING_SECONDS:
                        self._metrics.blocked(run.request, steps.longest)

            return outcome_of_answer(answer)
        except TimeoutError as exc:
            if not timeout.expired():
                return outcome_of_failure(exc)  # raised by the reconcile itself

            late = TimeoutError(f"timed out after {self._timeout:g} s")
            return outcome_of_failure(late, timed_out=True)
        except asyncio.CancelledError:
            raise
        except user_errors() as exc:  # reported at the end of the task
            return outcome_of_failure(exc, timed_out=timeout.expired())
        finally:
            await run.threads.ended()

    async def _may_call(self, run: _Run) -> bool:
        """Return False if another replica works on a new object of the same name."""
        if self._sharding is None or not run.uid or self.client is None:
            return True

        return await self._sharding.is_gone(run.request, run.uid, self.client)

    def _ended(self, task: asyncio.Task[Outcome], work: asyncio.TaskGroup) -> None:
        """Retry, requeue or forget the request of a reconcile that has ended."""
        run = self._running.pop(task)
        self._slots.release()
        if self._metrics.enabled:
            self._metrics.active(len(self._running))

        try:
            outcome = self._outcome_of(task, run)
            if outcome is not None:
                self._conclude(run, outcome)
            elif run.moved:
                self._forget_moved(run.request)
        finally:
            pause = self._pause_after(run)
            ends = self._draining or run.moved
            if run.writes is not None and (run.writes or pause) and not ends:
                self._await_shown(run, run.writes, pause, work)
            else:
                self._finish(run)

    def _finish(self, run: _Run) -> None:
        """End the work on a request, which the queue may return again."""
        self._queue.done(run.request)
        if self._sharding is not None and run.number is not None:
            if run.writes is not None:
                self._sharding.wrote(run.number, run.writes)

            self._sharding.ended(run.number)

    def _outcome_of(self, task: asyncio.Task[Outcome], run: _Run) -> Outcome | None:
        """Return the outcome, or None after a bug or a cancellation by `drain()`."""
        if not task.cancelled():
            return None if task.exception() is not None else task.result()

        if self._aborting or run.moved:
            return None

        return outcome_of_failure(asyncio.CancelledError("reconcile cancelled itself"))

    def _conclude(self, run: _Run, outcome: Outcome) -> None:
        request, queue = run.request, self._queue
        now = asyncio.get_running_loop().time()
        if self._sharding is not None and (outcome.retry or outcome.after is not None):
            self._sharding.again(request, run.uid)

        if outcome.retry:
            self._causes.add(request, Cause("retry", "", request.key))
            self._retry(request, run.priority)
        elif outcome.after is not None and outcome.after <= 0:
            # With the backoff of a failure, as it may be a loop.
            self._causes.add_requeue(request, now)
            self._retry(request, run.priority)
        else:
            self._forget(request)
            if outcome.after is not None:
                self._causes.add_requeue(request, now + outcome.after)
                queue.add_after(request, outcome.after, run.priority)

        self._metrics.ended(outcome, now - run.began)
        if outcome.failure is None:
            self._failures.succeeded(request)
        else:
            attempt = run.context.attempt
            repeats = self._failures.repeats(request, outcome.failure)
            self._failures.failed(request, outcome.failure, attempt, now)
            self._metrics.failed(
                request,
                outcome,
                attempt,
                now,
                repeats=repeats,
                stopping=self._draining,
            )

        if self._observers:
            self._tell_observers(run, outcome, now)

    def _tell_observers(self, run: _Run, outcome: Outcome, now: float) -> None:
        request, failure = run.request, outcome.failure
        error, message = ("", "") if failure is None else error_texts(failure)
        retry_in = None
        if outcome.retry:  # without a delay, it is queued already
            retry_in = self._queue.seconds_until(request) or 0.0

        ended = EndedReconcile(
            request=request,
            at=now,
            seconds=now - run.began,
            attempt=run.context.attempt,
            causes=run.context.causes,
            error=error,
            message=message,
            retry_in=retry_in,
            requeue_after=outcome.after,
        )
        for observer in tuple(self._observers.values()):
            try:
                observer(ended)
            except user_errors():
                logger.exception(
                    "controller %s: observer failed (key=%s)", self._name, request.key
                )

    def _retry(self, request: ReconcileRequest, priority: int) -> None:
        """Add the request after the delay of the rate limiter, which may raise."""
        try:
            self._queue.add_rate_limited(request, priority)
        except user_errors():  # the request must not be lost
            logger.exception(
                "controller %s: rate limiter failed, retrying in %d s (key=%s)",
                self._name,
                FALLBACK_SECONDS,
                request.key,
            )
            self._queue.add_after(request, FALLBACK_SECONDS, priority)

    def _forget(self, request: ReconcileRequest) -> None:
        try:
            self._queue.forget(request)
        except user_errors():
            logger.exception(
                "controller %s: rate limiter failed to forget a request (key=%s)",
                self._name,
                request.key,
            )

    def _attempt(self, request: ReconcileRequest) -> int:
        """Return the number of attempts in a row, by the rate limiter."""
        try:
            return self._queue.num_requeues(request) + 1
        except user_errors():  # the request is reconciled nevertheless
            logger.exception(
                "controller %s: rate limiter failed to count attempts (key=%s)",
                self._name,
                request.key,
            )
            return 1

    # ------------------------------------------------------------ daemons

    async def call_daemon(
        self,
        work: asyncio.TaskGroup,
        function: Reconcile,
        request: ReconcileRequest,
        attempt: int,
    ) -> float | None:
        """Call a daemon once, and wait for its threads.

        Returns:
            Seconds until the next call, or None for no other one.

        Raises:
            BaseException: Exception of the daemon.
        """
        call = partial(self._call_daemon, work, function, request, attempt)
        if self._sharding is None:
            return await call(self.elector, None)

        number, task = self._sharding.begin_daemon(request), asyncio.current_task()
        assert task is not None
        self._daemons[task] = number
        try:
            return await call(self._sharding.fence(number), number)
        finally:
            del self._daemons[task]
            self._sharding.ended(number)

    async def _call_daemon(
        self,
        work: asyncio.TaskGroup,
        function: Reconcile,
        request: ReconcileRequest,
        attempt: int,
        elector: Elector | None,
        number: int | None,
    ) -> float | None:
        client = writes = None
        if self.client is not None:
            writes = PendingWrites(self._informers, limit=MAX_DAEMON_WRITES)
            client = ReconcileClient(self.client, writes, elector)

        threads = Threads(request, self._metrics.thread_overdue, work.create_task)
        # Of its own: the reconciles of the request apply other children.
        writers = Writers(
            self._name,
            self._informers,
            self._writers.events,
            max_children=MAX_DAEMON_WRITES,
        )
        writer = Writer(writers, request, client, self.client, stale=False, daemon=True)
        context = Context(
            request,
            self._lister,
            causes=(),
            attempt=attempt,
            stale=False,
            client=client,
            settle=lambda ctx: self._settle(ctx, writes),
            threads=threads,
            writer=writer,
        )
        try:
            try:
                outcome = outcome_of_answer(await function(request, context))
            except asyncio.CancelledError:
                raise
            except user_errors() as exc:
                outcome = outcome_of_failure(exc)
            finally:
                await threads.ended()

            failure = await writer.end(outcome.failure)
        finally:
            if self._sharding is not None and number is not None and writes is not None:
                self._sharding.wrote(number, writes)

        if failure is not None:
            raise failure

        return outcome.after

    # ------------------------------------------------------------ pending writes

    def _await_shown(
        self,
        run: _Run,
        writes: PendingWrites,
        pause: float,
        work: asyncio.TaskGroup,
    ) -> None:
        """Keep a request in work until its writes are shown, or the wait times out.

        In a storm, also for a pause.
        """
        wait = work.create_task(
            self._not_shown(writes, pause), name=f"{self._name} {run.request.key} shown"
        )
        self._waiting[wait] = run.number
        wait.add_done_callback(lambda wait: self._end_wait(wait, run, work))

    def _end_wait(
        self,
        wait: asyncio.Task[_Unshown | None],
        run: _Run,
        work: asyncio.TaskGroup,
    ) -> None:
        """Return a request to the queue at the end of its wait for writes."""
        del self._waiting[wait]
        request = run.request
        failed = wait.cancelled() or wait.exception() is not None
        unshown = None if failed else wait.result()
        if unshown is not None:
            self._unshown[request] = unshown
            if len(unshown.writes) and not self._draining:
                # The next reconcile is stale, unless the writes are shown before it.
                late = work.create_task(
                    self._await_late(request, unshown), name=f"{wait.get_name()} late"
                )
                unshown.waiting = late
                self._waiting[late] = None
                late.add_done_callback(self._waiting.pop)

        self._finish(run)

    async def _await_late(self, request: ReconcileRequest, unshown: _Unshown) -> None:
        with suppress(HistoryReset):
            await unshown.writes.applied()

        if self._unshown.get(request) is unshown:
            del self._unshown[request]

    async def _settle(self, ctx: Context, writes: PendingWrites | None) -> None:
        unshown = None if writes is None else await self._not_shown(writes)
        if unshown is not None:
            ctx.stale = True
            self._metrics.stale(ctx.request, unshown.why)

    async def _not_shown(
        self, writes: PendingWrites, pause: float = 0.0
    ) -> _Unshown | None:
        """Wait until all writes are shown. Return them if that fails."""
        if pause:
            await asyncio.sleep(pause)

        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                await writes.applied()
        except TimeoutError:
            why = TimeoutError(f"timed out after {SETTLE_SECONDS:g} s")
            return _Unshown(writes, why)
        except HistoryReset as exc:
            return _Unshown(writes, exc)

        return None

    # ------------------------------------------------------------ storms

    def _pause_after(self, run: _Run) -> float:
        """Return the seconds to wait before the next reconcile of the request."""
        if self._breaker is None or run.writes is None:
            return 0.0

        own, run.writes.own = run.writes.own, []
        now = asyncio.get_running_loop().time()
        return self._breaker.ended(run.request, own, now)

    def _check_storm(
        self, breaker: StormBreaker, run: _Run, work: asyncio.TaskGroup
    ) -> None:
        """Report a storm that is found now, and end it in time."""
        request, ctx = run.request, run.context
        storm = breaker.began(request, ctx.causes, run.began)
        if storm is None:
            return

        self._metrics.storm(request, storm, breaker.storms, run.began)
        note = f"Slowed down to one reconcile a second: {storm}. {storm.advice}"
        try:
            ctx.event(self._reference(request), "Warning", "ReconcileStorm", note)
        except OptionsError as exc:  # without a client, or a known kind
            logger.warning("%s %s: no event of the storm: %s", self._name, request, exc)

        end = work.create_task(
            self._end_storm(breaker, request), name=f"{self._name} {request.key} storm"
        )
        self._storm_ends.add(end)
        end.add_done_callback(self._storm_ends.discard)

    def _reference(self, request: ReconcileRequest) -> dict[str, str]:
        """Return a reference to the object of a request, whatever a transform keeps."""
        obj, resource = self._lister.get(request.key), self._informers[0].resource
        found = {"namespace": request.namespace, "name": request.name}
        if obj is not None:
            found |= obj.type_meta | {"uid": obj.uid}

        if resource is not None and resource.kind:
            found |= {"apiVersion": resource.api_version, "kind": resource.kind}

        return found

    async def _end_storm(
        self, breaker: StormBreaker, request: ReconcileRequest
    ) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            seconds = breaker.proceed(request, clock())
            if seconds is None:
                self._metrics.storm_ended(request, breaker.storms)
                return

            # A virtual clock does not advance by less than its resolution.
            await asyncio.sleep(max(seconds, 0.001))
