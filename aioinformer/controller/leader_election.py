"""`LeaderElector`: of several replicas, one works."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from aioinformer._tasks import Supervisor
from aioinformer.backoff import Failure, failure_of
from aioinformer.controller.leader_measures import LeaderMeasures
from aioinformer.controller.leader_standing import LATE, Standing
from aioinformer.controller.lease_record import Step, released
from aioinformer.controller.lease_timing import LeaseTiming
from aioinformer.errors import (
    ApiError,
    Conflict,
    InternalError,
    LeadershipLost,
    NotFound,
    OptionsError,
    WrongLoop,
)
from aioinformer.metrics import NULL_SINK
from aioinformer.model.callables import check_plain, check_runs
from aioinformer.model.times import seconds_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from aioinformer.controller.lease_record import LeaseRecord
    from aioinformer.errors import HandlerError
    from aioinformer.metrics import MetricsSink
    from aioinformer.model.times import Duration

__all__ = ["LeaderElector", "LeaderLock"]

# Mistakes in the program, which no further attempt mends. A leader tries again even so,
# until its deadline. Anything else is a failed attempt: the server, the network, the
# credentials or the operating system may recover.
_MISTAKES = (OptionsError, WrongLoop, InternalError)


class LeaderLock(Protocol):
    """What an election is about, such as a `LeaseLock`; see there for the methods.

    Any exception is a failed attempt, which is logged and tried again. Only an
    `OptionsError`, a `WrongLoop` or an `InternalError` ends the waiting of a candidate.
    """

    @property
    def name(self) -> str:
        """Names it in the log."""

    @property
    def identity(self) -> str:
        """Ours; no two electors may have the same."""

    async def get(self) -> LeaseRecord | None:
        """Read it; None if there is none."""

    async def create(self, record: LeaseRecord) -> None:
        """Create it, or raise `Conflict` if it is there."""

    async def update(self, record: LeaseRecord) -> None:
        """Write it, or raise `Conflict` if somebody has since it was read or written."""


class LeaderElector:
    """Lets one of several replicas lead; electors of client-go may be among them.

    ::

        elector = LeaderElector(LeaseLock(client, "copier"))
        async with elector.leading():  # waits until it leads
            await copy_for_ever()

    Guarantees:
        G11: The leader's work is asked to stop, by a cancellation, when `renew_deadline`
        has passed since the last successful renewal was *sent*, whether requests fail or
        hang; or at once when the Lease is seen to name somebody else. The elector
        neither renews nor releases before the work has ended. The others wait for
        `lease_duration`, so the difference is left for that, and for what the work has
        sent to arrive. Work that takes longer is logged and counted, and from the
        deadline on `check()` refuses: so does `Context.client`, for each write.
        Times of other machines are not compared with the own clock: a lease counts as
        alive until its duration has passed since this process first saw it as it is.
        What is not guaranteed: clocks that run at different rates, or stand still while
        a virtual machine is suspended, are not noticed; and a request that was
        cancelled, and not waited for, may reach the server after the Lease was released.

    A Lease that is deleted is created again by its leader. One that cannot be read or
    written is tried again and again, and the log says why. Waiting electors pause for
    `retry_period` times a number drawn from [1, 2.2).

    Each request has a timeout of its own: half of `renew_deadline`, so that a leader has
    time for another attempt. A candidate waits for the answer of its claim until
    `renew_deadline` after it was sent, and then leads for what is left of that time. If
    the answer never comes but the Lease names this replica, it claims the Lease once
    more. If that has no answer either, it lets the Lease run out, and leaves it to the others for a
    few seconds longer: a replica that cannot renew must not block the others.

    When the work is over by itself, or its caller is cancelled, the elector goes on
    renewing until the work has ended, and then releases the Lease, so that another
    replica may lead at once. A Lease that was lost is not written: it has run out by
    itself when, or soon after, the work has ended. (client-go tries to release it
    there, too.) Neither is it if the loop itself is being shut down, with all its tasks
    cancelled at once: end what leads before the program's main coroutine returns.

    An elector may lead again after it has lost, also in another loop. It runs one task
    of its own, while it leads or waits to. `check()`, `healthy()` and the properties may
    be used from any thread.

    Args:
        lock: What is held, and under which identity: a `LeaseLock`.
        lease_duration: How long others wait for a leader of which nothing is seen; in
            seconds or a timedelta, cut to whole seconds, as they are in a Lease.
        renew_deadline: How long a leader goes on without a successful renewal.
        retry_period: The time from one attempt to the next.
        release_on_cancel: False to let the Lease run out instead of releasing it.
        on_new_leader: A plain function, called with the identity of each new leader that
            is seen, also with ours, and with an empty one if there is none any more.
        name: Names it in the log and in metrics; the lock's name, unless given.
        metrics: Takes `leader_election_master_status` and other metrics.
        on_error: Called with a `HandlerError` when `on_new_leader` fails.
        rng: Where the jitter comes from; seed it for a reproducible sequence.

    Raises:
        OptionsError: Unless `lease_duration` is more than `renew_deadline`, and that
            more than 1.2 times `retry_period`, and that positive.
    """

    def __init__(
        self,
        lock: LeaderLock,
        *,
        lease_duration: Duration = 15.0,
        renew_deadline: Duration = 10.0,
        retry_period: Duration = 2.0,
        release_on_cancel: bool = True,
        on_new_leader: Callable[[str], object] | None = None,
        name: str | None = None,
        metrics: MetricsSink = NULL_SINK,
        on_error: Callable[[HandlerError], None] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if on_new_leader is not None:
            check_plain(on_new_leader, "on_new_leader")

        if not lock.identity:
            raise OptionsError("the identity of a lock cannot be empty")

        self.name = lock.name if name is None else name
        self._timing = LeaseTiming.of(lease_duration, renew_deadline, retry_period)
        self._lock = lock
        self._release_on_cancel = release_on_cancel
        self._measures = LeaderMeasures(self.name, lock.identity, metrics, on_error)
        self._rng = random.Random() if rng is None else rng

        self._standing = Standing(
            lock.identity, self._timing, self._measures, on_new_leader
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        # What stops the work at the deadline, while there is work.
        self._patience: asyncio.Timeout | None = None
        self._busy = False

    def __repr__(self) -> str:
        state = "leads" if self.is_leader else f"leader={self.leader!r}"
        return f"<LeaderElector {self.name} as {self.identity} {state}>"

    # ------------------------------------------------------------ what is known

    @property
    def identity(self) -> str:
        """Under which this replica leads."""
        return self._lock.identity

    @property
    def leader(self) -> str:
        """Who leads, by what was seen last; empty if nobody does, or nothing was seen."""
        return self._standing.leader

    @property
    def is_leader(self) -> bool:
        """True while this replica leads, and its deadline has not passed."""
        return self._loop is not None and self._standing.leads(self._now())

    @property
    def deadline(self) -> float | None:
        """The time of the loop until which the leader may write; None if not leading."""
        return self._standing.deadline

    def check(self) -> None:
        """Fence a write: call it right before the write is sent, with no await between.

        Raises:
            LeadershipLost: If somebody else may lead by now.
        """
        if not self.is_leader:
            raise LeadershipLost(
                f"{self.identity} does not lead {self.name}, or its deadline has passed"
            )

    def healthy(self, tolerance: Duration = 0.0) -> bool:
        """Whether a liveness probe should be content.

        False if this replica's work goes on though its lease ran out, and `tolerance`
        has passed since: others may lead, and a restart helps. Who waits is healthy.

        Args:
            tolerance: In seconds or a timedelta; 20 s are usual.
        """
        ends = self._standing.lease_ends
        return ends is None or self._now() <= ends + seconds_of(tolerance)

    # ------------------------------------------------------------ leading

    @asynccontextmanager
    async def leading(self) -> AsyncGenerator[None]:
        """Wait until this replica leads, and lead for as long as the block lasts.

        The block runs in the caller's task, and is cancelled when leadership is lost, as
        by `asyncio.timeout()`: outside of the block there is `LeadershipLost` and no
        cancellation. Another exception that leaves the block is passed on.

        Raises:
            LeadershipLost: If it was lost before the block ended.
            OptionsError: If it leads or waits already, or its client was not entered.
            WrongLoop: If its client was entered in another event loop.

        Cancellation:
            While waiting, it ends that; a claim that was under way may have been done,
            and the Lease then has to run out. Later, the block is left first; leadership
            is kept until then, and released. The release takes `renew_deadline` at most.
        """
        if self._busy:
            raise OptionsError(f"the elector {self.name} leads or waits already")

        self._busy = True
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            # Since when it is known tells nothing by another clock.
            self._standing.forget()

        term = Supervisor(self._term, f"leader election {self.name}")
        try:
            await term.start()
            async with self._until_lost():
                yield
        finally:
            try:
                await term.stop()
            finally:
                self._standing.work_ended(self._now())
                self._busy = False

    async def run(self, work: Callable[[], Awaitable[object]]) -> None:
        """Wait until this replica leads, and run `work()`, as the block of `leading()`.

        Returns when the work has returned: somebody else may lead then. To lead for
        ever, work for ever.

        Raises:
            LeadershipLost: If leadership was lost: the work was cancelled, and has ended.
            OptionsError: See `leading()`; or the work is a generator.
            BaseException: What the work failed with. The Lease is released.

        Cancellation:
            Passed on to the work; raised when it has ended and the Lease is released.
        """
        check_runs(work, "work")
        async with self.leading():
            await work()

    @asynccontextmanager
    async def _until_lost(self) -> AsyncGenerator[None]:
        """Cancel the block at the deadline, which each renewal moves."""
        if not self.is_leader:
            raise self._loss()

        patience = asyncio.timeout_at(self.deadline)
        try:
            async with patience:
                self._patience = patience
                try:
                    yield
                finally:
                    self._patience = None
        except TimeoutError as exc:
            if patience.expired():
                raise self._loss() from exc

            raise

        # The block has kept its cancellation for itself, or there was none yet: it has
        # held the loop until behind the deadline.
        if patience.expired() or not self.is_leader:
            raise self._loss()

    def _loss(self) -> LeadershipLost:
        why = self._standing.why_lost
        return LeadershipLost(f"{self.identity} has lost {self.name}: {why}")

    async def _term(self, ready: Callable[[], None]) -> None:
        """Acquire, renew, release: the life of the task. It is cancelled at the end."""
        await self._acquire()
        ready()
        try:
            await self._renew()
            await self._outlast_work()
        finally:
            if self._patience is not None:
                # Somebody else has cancelled this, as `asyncio.run()` does at its end.
                self._lose("nobody renews it any more")
            elif self._standing.work_ended(self._now()) and self._release_on_cancel:
                await self._release()

    async def _acquire(self) -> None:
        while True:
            await self._attempt()
            if self.deadline is not None:
                return

            await asyncio.sleep(self._timing.pause(self._rng.random()))

    async def _renew(self) -> None:
        """Renew until leadership is lost. Attempts begin a period apart.

        The first is due a period after the claim was sent: with slow answers that is now.
        """
        started = self._standing.sent
        assert started is not None  # it leads
        while (deadline := self.deadline) is not None:
            try:
                async with asyncio.timeout_at(deadline):
                    await asyncio.sleep(started + self._timing.retry - self._now())
                    started = self._now()
                    await self._attempt()
            except TimeoutError:
                self._lose(LATE)

    async def _outlast_work(self) -> None:
        """Wait for the end of work that was asked to stop; then this is cancelled."""
        ends = self._standing.lease_ends
        assert ends is not None  # it led
        await asyncio.sleep(ends - self._now())
        self._measures.overran()
        await asyncio.Event().wait()

    async def _attempt(self) -> None:
        """Try once to lead, or to go on leading; what fails is told and tried again."""
        try:
            await self._try()
        except Conflict:
            pass  # somebody was faster: look again in the next attempt
        except Exception as exc:
            leads = self.deadline is not None
            if not leads and isinstance(exc, _MISTAKES):
                raise

            what = "renew the lease" if leads else "acquire the lease"
            self._measures.failed(what, exc, self._now())

        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # A lock that made an error of it, or nothing, must not make this immortal.
            raise asyncio.CancelledError

    async def _try(self) -> None:
        if self.deadline is not None and self._standing.sighting is not None:
            try:
                await self._claim()
            except (Conflict, NotFound):
                # Written by somebody, perhaps by an attempt of ours that was given up.
                self._measures.slow_path()
            else:
                return

        async with asyncio.timeout(self._timing.request):
            record = await self._lock.get()

        self._standing.see(record, self._now())
        match self._standing.next_step(self._now()):
            case Step.CREATE | Step.CLAIM:
                await self._claim()
            case Step.YIELD:
                self._lose(f"it names {self.leader or 'nobody'} now")
            case Step.WAIT:
                pass

    async def _claim(self) -> None:
        record = self._standing.claim(datetime.now(UTC))
        sent = self._now()
        if self.deadline is not None and not self._standing.leads(sent):
            # The loop stood still, and nobody was cancelled yet.
            self._lose(LATE)
            return

        try:
            async with asyncio.timeout(self._standing.claim_seconds):
                if self._standing.sighting is None:
                    await self._lock.create(record)
                else:
                    await self._lock.update(record)
        except Conflict:
            raise  # an answer: it was not written
        except Exception as exc:
            if isinstance(exc, ApiError) or failure_of(exc) is Failure.UNREACHABLE:
                self._standing.doubtful = True
            else:
                self._standing.unanswered += 1

            raise
        except BaseException:
            self._standing.unanswered += 1
            raise

        self._standing.written(record, sent, self._now())
        self._move_deadline()

    async def _release(self) -> None:
        """Give the Lease back, unless somebody else has it."""
        try:
            async with asyncio.timeout(self._timing.renew):
                while await self._release_once():
                    pass
        except Exception as exc:  # noqa: BLE001 - told; what the work has raised counts
            self._measures.failed("release the lease", exc, self._now())

    async def _release_once(self) -> bool:
        """True to try again."""
        record = await self._lock.get()
        self._standing.see(record, self._now())
        if record is None or record.holder != self.identity:
            return False

        free = released(record, datetime.now(UTC))
        try:
            await self._lock.update(free)
        except Conflict:
            await asyncio.sleep(self._timing.again)
            return True

        self._standing.see(free, self._now())
        return False

    def _lose(self, why: str) -> None:
        self._standing.lost(why)
        self._move_deadline()

    def _move_deadline(self) -> None:
        """Have the work stopped when leadership ends, or at once if it has ended."""
        # A timeout that has gone off stays so.
        if self._patience is not None and not self._patience.expired():
            now = self._now()
            self._patience.reschedule(now if self.deadline is None else self.deadline)

    def _now(self) -> float:
        assert self._loop is not None  # nothing is known that needs a time
        return self._loop.time()
