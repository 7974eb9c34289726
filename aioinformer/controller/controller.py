"""`Controller`: brings objects to their desired state, one at a time each.

The seam for those who run several: `run()` is the whole life of a controller. It begins
with whatever its informers hold by then, so informers may be warm long before; it is
given the client and the elector that reconciles write through; cancelled once it drains,
cancelled twice it stops at once. It ends by itself only with an error.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakSet

from aioinformer._tasks import Supervisor, run_concurrently, unwrap_group
from aioinformer._user_code import guarded_logger
from aioinformer.controller.measures import Measures
from aioinformer.controller.reconcile import check_reconcile
from aioinformer.controller.source import sources_of
from aioinformer.controller.workers import Workers
from aioinformer.errors import InformerStopped, NotSynced, OptionsError
from aioinformer.informer.hosting import Entered
from aioinformer.informer.reporting import Reporter
from aioinformer.metrics import NULL_SINK, ScopedSink
from aioinformer.model.times import seconds_of, timeout_of
from aioinformer.workqueue.priority import PriorityQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aioinformer.client.client import Client
    from aioinformer.controller.client import Elector
    from aioinformer.controller.predicates import Predicate
    from aioinformer.controller.reconcile import Reconcile
    from aioinformer.controller.request import ReconcileRequest
    from aioinformer.controller.source import Source, Watched
    from aioinformer.errors import HandlerError
    from aioinformer.informer.notifications import Notification
    from aioinformer.informer.registration import Registration
    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.metrics import MetricsSink
    from aioinformer.model.times import Duration

__all__ = ["Controller"]

logger = guarded_logger(__name__)

SYNC_PATIENCE_SECONDS = 30.0
"""A controller that waits for its informers says so as often."""

# Each belongs to a controller already: two would do each other's requests.
_TAKEN: WeakSet[PriorityQueue[ReconcileRequest]] = WeakSet()


class Controller(Entered):
    """Calls a coroutine function for each object that has changed, or is to be.

    ::

        async def reconcile(request: ReconcileRequest, ctx: Context) -> Result | None:
            site = ctx.lister.get(request.key)
            ...

        controller = Controller("sites", reconcile, for_=sites, owns=[deployments])
        async with factory:
            await controller.run()

    What becomes of a request when its reconcile has ended:
        If it raised `TerminalError`, or a group of nothing else, its failures are
        forgotten and it waits for the next change. If it failed otherwise (by any other
        exception, its timeout, cancelling itself, or answering neither a `Result` nor
        None), it is tried again after the delay of the queue's rate limiter, which grows
        with each failure in a row. If it answered `Result(requeue_after=...)`, its
        failures are forgotten, and it is done again after that time; otherwise it waits
        for the next change. A change that came meanwhile, or comes before such a time is
        over, has it done at once, whatever it answered; and when that time is over, it
        is done once more.

    Guarantees:
        G10: One request is never worked on twice at once; if it is asked for while it is
            in work, it is worked on again. Behind each change follows a reconcile that
            sees it, or a later state. Threads of `ctx.run_in_thread()` are part of the
            work; those of `asyncio.to_thread()` go on alone after a cancellation.
        What a reconcile wrote through `ctx.client`, the next one of the same request
            reads: it begins when the informers of this controller show it. That is
            waited for 10 s; then it begins with `ctx.stale` set, a warning and a metric.
            What none of these informers selects is not waited for; see
            `ReconcileClient` for what else is not.
        A reconcile that fails is logged with its key and cause, counted and told to
            `on_error`, and others go on. One that takes longer than a minute is warned
            of.
        G12: A predicate that raises lets the change pass; a mapping that raises yields
            nothing. Both are reported.

    Not guaranteed:
        That a reconcile sees each change, or what another request has written. Any order
        between requests: those of the first list and of resyncs come behind others.

    Lifetime:
        It runs once, by `run()`, or as `async with controller:`, or by `start()` and
        `shutdown()`. The informers are run by somebody else, such as their factory, and
        the client is entered by somebody else. Its handlers are added when it begins;
        the first reconcile begins when they have seen all that is there. It owns a task
        for each reconcile under way and for each request whose writes are waited for,
        one for each informer, and two. When it is stopped, reconciles under way go on
        for `drain_timeout`, and are cancelled then; what waits in the queue is dropped.
        (One that swallows its cancellation keeps it from ending.)

    Args:
        name: In log and metrics.
        reconcile: Called with a `ReconcileRequest` and a `Context`; see `with_object`
            for one that takes the object. It should bring things to the desired state
            whatever they were, as it does not learn of each change.
        for_: The informer of what it is about: a change of an object is a request of its
            name.
        owns: Informers of what these objects own: a change is a request of the owner
            that is the controller of it.
        watches: Informers of other things, each with a mapping to requests, and perhaps
            a predicate: see `aioinformer.controller.mapping`.
        concurrency: How many reconciles are under way at most.
        predicates: Which changes of `for_` matter: those to which all say yes. See
            `aioinformer.controller.predicates`.
        queue: In the place of a `PriorityQueue` with the usual rate limiter, such as one
            with another limiter. It belongs to this controller alone, and is shut down
            by it.
        timeout: How many seconds a reconcile may take; None for any number.
        drain_timeout: How many seconds those under way may go on when it is stopped.
        client: What reconciles write through as `ctx.client`.
        elector: Asked right before each such write is sent: `elector.check()` raises
            `LeadershipLost`.
        on_error: Told of each failure in reconciles, mappings and predicates.
        metrics: Where measurements go: see `aioinformer.controller.measures`.

    Raises:
        OptionsError: If an option cannot work: the reconcile is no coroutine function of
            two arguments, a queue is that of another controller, and the like.
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        *,
        for_: SharedInformer,
        owns: Iterable[SharedInformer] = (),
        watches: Iterable[Watched] = (),
        concurrency: int = 4,
        predicates: Iterable[Predicate] = (),
        queue: PriorityQueue[ReconcileRequest] | None = None,
        timeout: Duration | None = None,
        drain_timeout: Duration = 10.0,
        client: Client | None = None,
        elector: Elector | None = None,
        on_error: Callable[[HandlerError], None] | None = None,
        metrics: MetricsSink = NULL_SINK,
    ) -> None:
        _check(name, concurrency)
        check_reconcile(reconcile)
        self.name = name
        self._client = client
        self._elector = elector
        self._drain_seconds = _not_negative(drain_timeout)
        seconds = _positive(timeout)
        self._concurrency = concurrency
        self._metrics = ScopedSink(metrics, f"controller {name}")
        self._measures = Measures(name, self._metrics, on_error)
        reporter = Reporter(f"controller {name}", on_error, self._metrics)
        self._sources = sources_of(for_, owns, watches, predicates, reporter)
        self._queue: PriorityQueue[ReconcileRequest] = (
            PriorityQueue(name, metrics=metrics) if queue is None else _taken(queue)
        )
        self._workers = Workers(
            name,
            reconcile,
            self._queue,
            self.informers,
            concurrency=concurrency,
            timeout=seconds,
            measures=self._measures,
        )
        self._begun = False
        self._synced = False
        self._supervisor = Supervisor(self._life, f"controller {name}")

    def __repr__(self) -> str:
        return f"<Controller {self.name} {self._workers!r} {self._queue!r}>"

    @property
    def informers(self) -> tuple[SharedInformer, ...]:
        """Those that it watches, each once; that of `for_` first."""
        return tuple(dict.fromkeys(source.informer for source in self._sources))

    @property
    def queue(self) -> PriorityQueue[ReconcileRequest]:
        """What it works on: `controller.queue.add(ReconcileRequest("shop", "web"))`."""
        return self._queue

    @property
    def has_synced(self) -> bool:
        """True once its handlers have seen all that was there when it began.

        From then on reconciles are begun. Never becomes False again.
        """
        return self._synced

    # ------------------------------------------------------------ its life

    async def run(
        self, *, client: Client | None = None, elector: Elector | None = None
    ) -> None:
        """Work until cancelled.

        Args:
            client: That of reconciles, if the controller was given none itself.
            elector: The same.

        Raises:
            InformerStopped: An informer of it has ended: there would be no more changes.
            QueueShutDown: Somebody has shut its queue down.
            OptionsError: A second call; or something was put into its queue that is no
                request.
            Exception: A bug of ours.

        Cancellation:
            The way to stop it: nothing new is begun, its handlers are removed, and
            reconciles under way go on for `drain_timeout`, unless the elector says that
            leadership is lost; a second cancellation cancels them at once. Afterwards
            nothing of it is left.
        """
        failure = None
        try:
            await self._run(_nothing, client, elector)
        except BaseExceptionGroup as group:
            failure = unwrap_group(group)

        if failure is not None:  # pragma: no branch - `_run()` never ends by itself
            raise failure

    def hurry(self) -> None:
        """Let it not wait for reconciles under way when it is stopped, or is stopping.

        They are cancelled then at once. It does not stop it.
        """
        self._workers.hurry()

    async def start(self) -> None:
        """Start it in a task of its own; returns when its handlers are added.

        Raises:
            OptionsError: It was started before.
            InformerStopped: An informer of it has ended.

        Cancellation:
            Stops it again.
        """
        await self._supervisor.start()

    async def shutdown(self) -> None:
        """Stop it as `run()` says, and wait for that; idempotent.

        Called from a reconcile of its own, it does not wait.

        Raises:
            Exception: What it had failed with, if it had: once.

        Cancellation:
            Deferred until it has ended.
        """
        await self._supervisor.stop()

    def _left_with_an_error(self) -> str:
        return f"the controller {self.name} had failed, too"

    async def _life(self, ready: Callable[[], None]) -> None:
        await self._run(ready)

    async def _run(
        self,
        ready: Callable[[], None],
        client: Client | None = None,
        elector: Elector | None = None,
    ) -> None:
        if self._begun:
            raise OptionsError(f"the controller {self.name} has been run already")

        self._begun = True
        try:
            await self._work(ready, client, elector)
        finally:
            self._metrics.end()
            self._queue.forget_metrics()

    async def _work(
        self, ready: Callable[[], None], client: Client | None, elector: Elector | None
    ) -> None:
        """What begins reconciles ends first; then those in the group drain."""
        workers = self._workers
        workers.client = client if self._client is None else self._client
        workers.elector = elector if self._elector is None else self._elector
        self._measures.concurrency(self._concurrency)
        registrations: list[Registration] = []
        async with asyncio.TaskGroup() as work:  # pragma: no branch - see above
            try:
                registrations += map(self._listen, self._sources)
                ready()
                await run_concurrently(
                    self._serve(registrations, work),
                    workers.look_after(),
                    *map(self._end_with, registrations),
                )
            finally:
                for registration in registrations:
                    registration.remove()

                await workers.drain(self._drain_seconds)

    def _listen(self, source: Source) -> Registration:
        def changed(event: Notification) -> None:
            found = source.requests(event)
            if found is not None:
                requests, cause = found
                for request in requests:
                    self._workers.enqueue(request, cause)

        return source.informer.add_event_handler(
            on_event=changed, name=f"controller {self.name}"
        )

    async def _serve(
        self, registrations: Sequence[Registration], work: asyncio.TaskGroup
    ) -> None:
        for source, registration in zip(self._sources, registrations, strict=True):
            await self._sync(source.informer, registration)

        self._synced = True
        await self._workers.give_out(work)

    async def _sync(self, informer: SharedInformer, registration: Registration) -> None:
        while not registration.has_synced:
            try:
                await registration.wait_synced(timeout=SYNC_PATIENCE_SECONDS)
            except NotSynced as exc:
                logger.warning(
                    "controller %s has not begun: it waits for %s: %s",
                    self.name,
                    informer.name,
                    exc if informer.has_synced else informer.why_not_synced(),
                )

    async def _end_with(self, registration: Registration) -> None:
        await registration.wait_ended()
        raise InformerStopped(f"{registration.name} is told of no more changes")


def _check(name: str, concurrency: object) -> None:
    if not name:
        raise OptionsError("a controller needs a name, for log and metrics")

    if not isinstance(concurrency, int) or concurrency < 1:
        raise OptionsError(
            f"concurrency must be a whole number, at least 1, not {concurrency!r}"
        )


def _taken(queue: PriorityQueue[ReconcileRequest]) -> PriorityQueue[ReconcileRequest]:
    if not isinstance(queue, PriorityQueue):
        raise OptionsError(f"the queue of a controller is a PriorityQueue: {queue!r}")

    if queue in _TAKEN or queue.shutting_down:
        raise OptionsError(f"{queue!r} belongs to another controller, or is shut down")

    _TAKEN.add(queue)
    return queue


def _not_negative(timeout: Duration) -> float:
    seconds = seconds_of(timeout)
    if seconds < 0:
        raise OptionsError(f"a time to drain cannot be {timeout!r}")

    return seconds


def _positive(timeout: Duration | None) -> float | None:
    seconds = timeout_of(timeout)
    if seconds is not None and seconds <= 0:
        raise OptionsError(f"a timeout must be above 0, not {timeout!r}")

    return seconds


def _nothing() -> None:
    """Nobody waits for it to be ready."""
