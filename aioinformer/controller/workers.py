"""`Workers`: what a controller has to do, and those who do it.

Each reconcile has a task of its own, which may do to itself whatever it likes; at most
`concurrency` of them are under way. What becomes of a request is decided in one step,
when its task has ended: so the queue never has it twice in work.

A request whose reconcile has written something stays in work until the informers show
it, without keeping a worker. What is asked for meanwhile is done then.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from aioinformer._user_code import guarded_logger, user_errors
from aioinformer.controller.causes import Cause, Causes
from aioinformer.controller.client import ReconcileClient
from aioinformer.controller.context import Context, Threads
from aioinformer.controller.request import ReconcileRequest
from aioinformer.controller.result import (
    Verdict,
    verdict_on_answer,
    verdict_on_failure,
)
from aioinformer.controller.source import priority_of
from aioinformer.controller.writes import Writes
from aioinformer.errors import HistoryReset, LeadershipLost, OptionsError
from aioinformer.informer.slowness import BLOCKING_SECONDS
from aioinformer.informer.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.client.client import Client
    from aioinformer.controller.client import Elector
    from aioinformer.controller.measures import Measures
    from aioinformer.controller.reconcile import Reconcile
    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.workqueue.priority import PriorityQueue

__all__ = ["LONG_SECONDS", "SETTLE_SECONDS", "Workers"]

logger = guarded_logger(__name__)

SETTLE_SECONDS = 10.0
"""So long the informers have to show what was written."""

FALLBACK_SECONDS = 10.0
"""After so long a request is tried again if the rate limiter fails to say when."""

LONG_SECONDS = 60.0
"""A reconcile that takes longer is warned of while it goes on, as it may never end."""


@dataclass(slots=True, eq=False)
class _Run:
    """One reconcile under way."""

    request: ReconcileRequest
    priority: int
    context: Context
    threads: Threads
    writes: Writes
    began: float
    warned: bool = False


@dataclass(slots=True, eq=False)
class _Unshown:
    """What a request has written and was not shown in time, or may be lost."""

    writes: Writes
    why: Exception
    waiting: asyncio.Task[None] | None = field(default=None, repr=False)


class Workers:
    """The requests of one controller, and the reconciles that are under way.

    Args:
        name: The controller's.
        reconcile: The user's.
        queue: Which request is next.
        informers: Those of the controller, the one whose lister reconciles get first.
        concurrency: How many reconciles are under way at most.
        timeout: How many seconds one may take; None for any number.
        measures: Is told.
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        queue: PriorityQueue[ReconcileRequest],
        informers: Iterable[SharedInformer],
        *,
        concurrency: int,
        timeout: float | None,
        measures: Measures,
    ) -> None:
        self.client: Client | None = None
        """What reconciles write through."""
        self.elector: Elector | None = None
        """Who is asked before they do."""
        self._name = name
        self._reconcile = reconcile
        self._queue = queue
        self._informers = tuple(informers)
        self._timeout = timeout
        self._measures = measures
        self._causes = Causes()
        self._slots = asyncio.Semaphore(concurrency)
        # Invariant: exactly the reconciles whose tasks have not ended.
        self._running: dict[asyncio.Task[Verdict], _Run] = {}
        # Those that wait until what was written is shown.
        self._waiting: set[asyncio.Task[Any]] = set()
        # Invariant: one for each request at most; one that waits is taken out when all
        # is shown.
        self._unshown: dict[ReconcileRequest, _Unshown] = {}
        self._draining = False
        self._hurried = False
        self._aborting = False

    def __repr__(self) -> str:
        return f"<Workers {self._name} {len(self._running)} at work>"

    def enqueue(self, request: ReconcileRequest, cause: Cause) -> None:
        """Have a request worked on, for this reason."""
        self._causes.note(request, cause)
        self._queue.add(request, priority_of(cause))

    # ------------------------------------------------------------ its life

    async def give_out(self, work: asyncio.TaskGroup) -> None:
        """Begin one reconcile after the other, for ever.

        Args:
            work: Where they run, and where is waited for what they have written.

        Raises:
            QueueShutDown: If somebody else shuts the queue down.
            OptionsError: If somebody puts something else into it than requests.

        Cancellation:
            The way to stop it; reconciles under way go on.
        """
        while True:
            await self._slots.acquire()
            request, priority = await self._queue.get_with_priority()
            _check_request(request)
            run = self._run(request, priority)
            task = work.create_task(self._work(run), name=f"{self._name} {request.key}")
            self._running[task] = run
            self._measures.active(len(self._running))
            task.add_done_callback(lambda task: self._ended(task, work))

    async def look_after(self) -> None:
        """Warn of reconciles that take long, for ever."""
        while True:
            await asyncio.sleep(LONG_SECONDS)
            now = asyncio.get_running_loop().time()
            for run in self._running.values():
                if now - run.began >= LONG_SECONDS and not run.warned:
                    run.warned = True
                    self._measures.long(
                        run.request, now - run.began, bounded=self._timeout is not None
                    )

    async def drain(self, seconds: float) -> None:
        """Take nothing new, and wait for what is under way; then ask that to end.

        Not waited for is what nobody may do any more, as leadership is lost.

        Cancellation:
            What is under way is asked to end at once.
        """
        self._draining = True
        self._queue.shut_down()
        for task in self._waiting:
            task.cancel()

        try:
            if self._running and not (self._hurried or self._has_lost()):
                await asyncio.wait(set(self._running), timeout=seconds)
        finally:
            self._abort()

    def hurry(self) -> None:
        """Have no drain wait any more: neither the one that goes on, nor a later one."""
        self._hurried = True
        if self._draining:
            self._abort()

    def _has_lost(self) -> bool:
        """Whether somebody else may lead by now."""
        try:
            if self.elector is not None:
                self.elector.check()
        except LeadershipLost:
            return True

        return False

    def _abort(self) -> None:
        """Ask what is under way to end, once."""
        if self._aborting:
            return

        self._aborting = True
        if self._running:
            keys = ", ".join(run.request.key for run in self._running.values())
            logger.warning(
                "controller %s: cancelled before they had ended: %s", self._name, keys
            )

        for task in self._running:
            task.cancel()

    # ------------------------------------------------------------ one reconcile

    def _run(self, request: ReconcileRequest, priority: int) -> _Run:
        now = asyncio.get_running_loop().time()
        writes = Writes(self._informers)
        unshown = self._unshown.pop(request, None)
        if unshown is not None:
            self._measures.stale(request, unshown.why)
            writes = unshown.writes  # still waited for, with what is written now
            if unshown.waiting is not None:
                unshown.waiting.cancel()

        client = None
        if self.client is not None:
            client = ReconcileClient(self.client, writes, self.elector)

        overdue = partial(self._measures.thread_overdue, request)
        threads = Threads(request.key, overdue)
        context = Context(
            request,
            self._informers[0].lister,
            causes=self._causes.take(request, now),
            attempt=self._attempt(request),
            stale=unshown is not None,
            client=client,
            settle=lambda ctx: self._settle(ctx, writes),
            threads=threads,
        )
        return _Run(request, priority, context, threads, writes, now)

    async def _work(self, run: _Run) -> Verdict:
        try:
            return await self._verdict(run)
        finally:
            await run.threads.ended()

    async def _verdict(self, run: _Run) -> Verdict:
        patience = asyncio.timeout(self._timeout)
        try:
            async with patience:
                answer = await self._answer(run)
        except TimeoutError as exc:
            if not patience.expired():
                return verdict_on_failure(exc)  # its own

            late = TimeoutError(f"not done within {self._timeout:g} s")
            return verdict_on_failure(late, timed_out=True)
        except asyncio.CancelledError:
            raise
        except user_errors() as exc:  # reported when it has ended
            return verdict_on_failure(exc, timed_out=patience.expired())

        return verdict_on_answer(answer)

    async def _answer(self, run: _Run) -> object:
        steps = Steps(self._reconcile(run.request, run.context))
        try:
            return await steps
        finally:
            if steps.longest > BLOCKING_SECONDS:
                self._measures.blocked(run.request, steps.longest)

    def _ended(self, task: asyncio.Task[Verdict], work: asyncio.TaskGroup) -> None:
        """Decide what becomes of a request whose reconcile has ended."""
        run = self._running.pop(task)
        self._slots.release()
        self._measures.active(len(self._running))
        try:
            verdict = self._verdict_of(task)
            if verdict is not None:
                self._conclude(run, verdict)
        finally:
            if len(run.writes) and not self._draining:
                self._hold(run, work)
            else:
                self._queue.done(run.request)

    def _verdict_of(self, task: asyncio.Task[Verdict]) -> Verdict | None:
        """What it came to; None if that was not its own doing, or ends all of us."""
        if not task.cancelled():
            return None if task.exception() is not None else task.result()

        if self._aborting:
            return None

        return verdict_on_failure(asyncio.CancelledError("it has cancelled itself"))

    def _conclude(self, run: _Run, verdict: Verdict) -> None:
        request, queue = run.request, self._queue
        now = asyncio.get_running_loop().time()
        if verdict.retry:
            self._causes.note(request, Cause("retry", "", request.key))
            self._retry(request, run.priority)
        else:
            self._forget(request)
            if verdict.after is not None:
                self._causes.note_requeue(request, now + verdict.after)
                queue.add_after(request, verdict.after, run.priority)

        self._measures.ended(verdict, now - run.began)
        if verdict.failure is not None:
            self._measures.failed(
                request, verdict, run.context.attempt, now, stopping=self._draining
            )

    def _retry(self, request: ReconcileRequest, priority: int) -> None:
        """Have it done again, when the rate limiter says; that may be a user's."""
        try:
            self._queue.add_rate_limited(request, priority)
        except user_errors():  # logged, and the request is not lost
            logger.exception(
                "controller %s: the rate limiter failed; %s is tried again in %d s",
                self._name,
                request.key,
                FALLBACK_SECONDS,
            )
            self._queue.add_after(request, FALLBACK_SECONDS, priority)

    def _forget(self, request: ReconcileRequest) -> None:
        try:
            self._queue.forget(request)
        except user_errors():  # logged, and that is all that was to be done
            logger.exception(
                "controller %s: the rate limiter did not forget %s",
                self._name,
                request.key,
            )

    def _attempt(self, request: ReconcileRequest) -> int:
        """The how manieth it is since the last success, as far as the limiter says."""
        try:
            return self._queue.num_requeues(request) + 1
        except user_errors():  # logged; it is worked on all the same
            logger.exception(
                "controller %s: the rate limiter cannot tell the attempts of %s",
                self._name,
                request.key,
            )
            return 1

    # ------------------------------------------------------------ what it has written

    def _hold(self, run: _Run, work: asyncio.TaskGroup) -> None:
        """Keep a request in work until what it has written is shown, or too late."""
        hold = work.create_task(
            self._not_shown(run.writes), name=f"{self._name} {run.request.key} shown"
        )
        self._waiting.add(hold)
        hold.add_done_callback(lambda hold: self._held(hold, run.request, work))

    def _held(
        self,
        hold: asyncio.Task[_Unshown | None],
        request: ReconcileRequest,
        work: asyncio.TaskGroup,
    ) -> None:
        """Let a request be worked on again, when its hold has ended in whichever way."""
        self._waiting.discard(hold)
        failed = hold.cancelled() or hold.exception() is not None
        unshown = None if failed else hold.result()
        if unshown is not None:
            self._unshown[request] = unshown
            if len(unshown.writes) and not self._draining:
                # Who works on it next is told that it is late, unless it comes before.
                late = work.create_task(
                    self._await_late(request, unshown), name=f"{hold.get_name()} late"
                )
                unshown.waiting = late
                self._waiting.add(late)
                late.add_done_callback(self._waiting.discard)

        self._queue.done(request)

    async def _await_late(self, request: ReconcileRequest, unshown: _Unshown) -> None:
        with suppress(HistoryReset):
            await unshown.writes.applied()

        if self._unshown.get(request) is unshown:
            del self._unshown[request]

    async def _settle(self, ctx: Context, writes: Writes) -> None:
        unshown = await self._not_shown(writes)
        if unshown is not None:
            ctx.stale = True
            self._measures.stale(ctx.request, unshown.why)

    async def _not_shown(self, writes: Writes) -> _Unshown | None:
        """Wait until all is shown; what is not if that takes too long."""
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                await writes.applied()
        except TimeoutError:
            why = TimeoutError(f"not within {SETTLE_SECONDS:g} s")
            return _Unshown(writes, why)
        except HistoryReset as exc:
            return _Unshown(writes, exc)

        return None


def _check_request(request: object) -> None:
    if not isinstance(request, ReconcileRequest):
        raise OptionsError(
            f"the queue of a controller takes a ReconcileRequest, not {request!r}: "
            'ReconcileRequest.of("namespace/name") makes one of a key'
        )
