"""`LeaderElector`: leader election among the replicas of a program."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from aioinformer._runnables import wait_until_cancelled
from aioinformer._tasks import Supervisor
from aioinformer._user_code import text_of
from aioinformer.backoff import Failure, failure_of
from aioinformer.controller.elector_state import NOT_RENEWED, ElectorState, LeaseTiming
from aioinformer.controller.lease_record import LeaseStatus, Step, released
from aioinformer.controller.metrics import LeaderMetrics
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
    from contextlib import AbstractAsyncContextManager

    from aioinformer.controller.lease_record import LeaseRecord
    from aioinformer.errors import HandlerError
    from aioinformer.metrics import MetricsSink
    from aioinformer.model.times import Duration

__all__ = ["LeaderElector", "LeaderLock"]

# Bugs in the program, which persist. A leader retries nevertheless, until its deadline.
# Any other error is a failed attempt: the server, the network, the credentials or the
# operating system may recover.
_PERSISTENT_ERRORS = (OptionsError, WrongLoop, InternalError)


class LeaderLock(Protocol):
    """Lock that replicas compete for, such as a `LeaseLock`; see there.

    Any exception is a failed attempt, which is logged and retried. Only an
    `OptionsError`, a `WrongLoop` or an `InternalError` ends the wait of a candidate.
    """

    @property
    def name(self) -> str:
        """Name of the lock in the log."""

    @property
    def identity(self) -> str:
        """Identity of this replica, unique among all electors."""

    async def get(self) -> LeaseRecord | None:
        """Read the record, or return None if it does not exist."""

    async def create(self, record: LeaseRecord) -> None:
        """Create the record, or raise `Conflict` if it exists."""

    async def update(self, record: LeaseRecord) -> None:
        """Write the record, or raise `Conflict` if it changed since the last access."""


class LeaderElector:
    """Leader election among several replicas, compatible with client-go's electors.

    ::

        elector = LeaderElector(LeaseLock(client, "copier"))
        async with elector.leading():  # waits until it leads
            await copy_for_ever()

    Guarantees:
        G11: The leader's work is cancelled when `renew_deadline` has passed since the
        last successful renewal was *sent*, whether requests fail or hang. It is
        cancelled at once if the Lease names another replica. The elector neither renews
        nor releases before the work has ended. Other replicas wait for
        `lease_duration`. The difference is the time that the work has to end, and its
        last requests to arrive. Work that takes longer is logged and counted. After the
        deadline `check()` raises, and so does each write by `Context.client`.
        Timestamps of other machines are never compared with the local clock: a lease is
        valid until its duration has passed since this process first saw it unchanged.
        Not guaranteed: clocks that run at different rates, or stop while a virtual
        machine is suspended, are not detected. A cancelled request that was not awaited
        may reach the server after the Lease was released.

    The leader creates a deleted Lease again. Failed reads and writes are logged and
    retried. Candidates pause for `retry_period` times a random number in [1, 2.2).

    Each request has a timeout of half of `renew_deadline`, so that a leader has time
    for a second attempt. A candidate waits for the response to its claim until
    `renew_deadline` after it was sent, and leads for the rest of that time. If no
    response arrives but the Lease names this replica, it claims the Lease once more. If
    that gets no response either, it lets the Lease expire and leaves it to other
    replicas for a few more seconds: a replica that cannot renew must not block them.

    When the work returns, or its caller is cancelled, the elector renews until the work
    has ended. It then releases the Lease, so that another replica can lead at once. A
    lost Lease is not written: it expires when the work ends, or soon after. (client-go
    tries to release it.) The Lease is not released either if the event loop shuts down
    and cancels all tasks at once: end the leader's work before the program's main
    coroutine returns.

    An elector can lead again after it lost, also in another loop. It then pauses before
    its first attempt, so that other replicas are faster. It runs one task while it
    leads or waits to. `check()`, `healthy()` and the properties are thread-safe.

    Args:
        lock: Lock to hold, with the identity of this replica: a `LeaseLock`.
        lease_duration: Time that candidates wait for an inactive leader, in seconds or
            a timedelta, cut to whole seconds.
        renew_deadline: Time that a leader continues without a successful renewal.
        retry_period: Time between two attempts.
        release_on_cancel: False to let the Lease expire instead of releasing it.
        on_new_leader: Plain function, called with the identity of each new leader,
            including this replica, and with an empty one if there is no leader any
            more.
        on_started_leading: Plain function, called without arguments when this replica
            becomes the leader.
        on_stopped_leading: Plain function, called without arguments when it stops
            leading: as soon as leadership is lost, or when the work has ended and
            before the Lease is released.
        coordinated: True if a coordinator elects, with a `LeaseCandidate` of this
            replica. The elector then never creates or takes the Lease. It stops leading
            when the coordinator prefers another replica.
        name: Name in the log and in metrics; None for that of the lock.
        metrics: Sink of `leader_election_master_status` and other metrics.
        on_error: Callback for a `HandlerError` when one of these functions fails.
        rng: Source of the jitter. Seed it for a reproducible sequence.

    Raises:
        OptionsError: Unless `lease_duration` is above `renew_deadline`,
            `renew_deadline` above 1.2 times `retry_period`, and `retry_period` above 0.
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
        on_started_leading: Callable[[], object] | None = None,
        on_stopped_leading: Callable[[], object] | None = None,
        coordinated: bool = False,
        name: str | None = None,
        metrics: MetricsSink = NULL_SINK,
        on_error: Callable[[HandlerError], None] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        callbacks = {
            "on_new_leader": on_new_leader,
            "on_started_leading": on_started_leading,
            "on_stopped_leading": on_stopped_leading,
        }
        for what, callback in callbacks.items():
            if callback is not None:
                check_plain(callback, what)

        if not getattr(lock, "identity", ""):
            raise OptionsError(
                "an elector needs a lock with an identity, such as LeaseLock(client, "
                f"name), not {lock!r}"
            )

        self.name: str = lock.name if name is None else name
        self._timing = LeaseTiming.of(lease_duration, renew_deadline, retry_period)
        self._lock = lock
        self._release_on_cancel = release_on_cancel
        self._metrics = LeaderMetrics(self.name, lock.identity, metrics, on_error)
        self._rng = random.Random() if rng is None else rng

        self._state = ElectorState(
            lock.identity,
            self._timing,
            self._metrics,
            on_new_leader,
            on_started_leading,
            on_stopped_leading,
            coordinated,
        )
        self._coordinated = coordinated
        self._loop: asyncio.AbstractEventLoop | None = None
        # Cancels the work at the deadline, while there is work.
        self._work_timeout: asyncio.Timeout | None = None
        self._busy = False
        # Reason why the first attempt has not succeeded yet; empty once one has.
        self._not_ready = "the lease has not been read yet"

    def __repr__(self) -> str:
        state = "leads" if self.is_leader else f"leader={self.leader!r}"
        return f"<LeaderElector {self.name} as {self.identity} {state}>"

    def set_metrics(self, sink: MetricsSink) -> None:
        """Set the sink of metrics, unless the elector has one.

        A `Manager` with a sink calls it.
        """
        self._metrics.set_sink(sink)

    # ------------------------------------------------------------ status

    @property
    def identity(self) -> str:
        """Identity of this replica."""
        return self._lock.identity

    @property
    def leader(self) -> str:
        """Identity of the last observed leader, empty for none."""
        return self._state.leader

    @property
    def is_leader(self) -> bool:
        """True while this replica leads and its deadline has not passed."""
        return self._loop is not None and self._state.leads(self._now())

    @property
    def lease(self) -> LeaseStatus | None:
        """State of the Lease as last observed.

        None before the first observation, and while the Lease does not exist.
        """
        # In this order: another thread may enter another loop meanwhile.
        loop, observed = self._loop, self._state.observed
        if loop is None or observed is None:
            return None

        # Only a `LeaseLock` must have a namespace.
        namespace = getattr(self._lock, "namespace", "")
        return LeaseStatus(
            name=f"{namespace}/{self._lock.name}" if namespace else self._lock.name,
            holder=observed.record.holder,
            age=loop.time() - observed.since,
            duration=observed.record.lease_seconds,
        )

    @property
    def deadline(self) -> float | None:
        """Time of the loop until which this replica may write. None if not leading."""
        return self._state.deadline

    def check(self) -> None:
        """Fence a write. Call it right before sending, without an await in between.

        Raises:
            LeadershipLost: If another replica may lead by now.
        """
        if not self.is_leader:
            raise LeadershipLost(
                f"{self.identity} does not lead {self.name}, or its deadline has passed"
            )

    def healthy(self, tolerance: Duration = 0.0) -> bool:
        """Return False if a liveness probe should fail.

        It should fail if this replica's work still runs `tolerance` after its lease
        expired, as then a restart helps. Candidates are healthy.

        Args:
            tolerance: Seconds or a timedelta, usually 20 s.
        """
        ends = self._state.lease_ends
        return ends is None or self._now() <= ends + seconds_of(tolerance)

    def why_not_ready(self) -> str:
        """Return why this replica could not lead if it had to, or an empty string.

        It can once an attempt has succeeded: it then may read the Lease, and write it if
        nobody else leads. Later failures, such as an outage, do not change that.
        """
        return self._not_ready

    # ------------------------------------------------------------ leading

    def leading(self) -> AbstractAsyncContextManager[None]:
        """Wait until this replica leads, and lead until the block ends.

        The block runs in the caller's task. It is cancelled when leadership is lost, as
        by `asyncio.timeout()`: the caller gets `LeadershipLost` and no cancellation.
        Other exceptions of the block are passed on.

        Raises:
            LeadershipLost: If leadership was lost before the block ended.
            OptionsError: If it leads or waits already, or its client was not entered.
            WrongLoop: If its client was entered in another event loop.

        Cancellation:
            Ends the wait. A pending claim may have been written, and the Lease then has
            to expire. A cancelled leader ends the block first, and then releases the
            Lease, within `renew_deadline`.
        """
        return self._leading()

    @asynccontextmanager
    async def _leading(self) -> AsyncGenerator[None]:
        if self._busy:
            raise OptionsError(
                f"the elector {self.name} is already leading or waiting to lead"
            )

        self._busy = True
        # This process may be a fork of the one that created the elector.
        self._state.identity = self._metrics.identity = self.identity
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # The observation may have the time of another loop's clock.
            self._state.forget()
            self._loop = loop

        term = Supervisor(self._term, f"leader election {self.name}")
        try:
            await term.start()
            async with self._until_lost():
                yield
        finally:
            try:
                await term.stop()
            finally:
                self._state.work_ended(self._now())
                self._busy = False

    async def run(self, work: Callable[[], Awaitable[object]]) -> None:
        """Wait until this replica leads, and run `work()` in the block of `leading()`.

        It returns when the work returns, and another replica may lead then.

        Raises:
            LeadershipLost: If leadership was lost. The work was cancelled and has
                ended.
            OptionsError: See `leading()`, or the work is a generator.
            BaseException: Exception of the work. The Lease is released.

        Cancellation:
            Passed on to the work, and raised once the Lease is released.
        """
        check_runs(work, "work")
        async with self.leading():
            await work()

    @asynccontextmanager
    async def _until_lost(self) -> AsyncGenerator[None]:
        """Cancel the block at the deadline, which each renewal moves."""
        if not self.is_leader:
            raise self._loss()

        timeout = asyncio.timeout_at(self.deadline)
        try:
            async with timeout:
                self._work_timeout = timeout
                try:
                    yield
                finally:
                    self._work_timeout = None
        except TimeoutError:
            if timeout.expired():
                # The cancellation that led here says nothing about the reason.
                raise self._loss() from None

            raise

        # The block swallowed its cancellation, or blocked the loop beyond the deadline
        # before it could be cancelled.
        if timeout.expired() or not self.is_leader:
            raise self._loss()

    def _loss(self) -> LeadershipLost:
        why = self._state.why_lost
        return LeadershipLost(f"{self.identity} lost leadership of {self.name}: {why}")

    async def _term(self, ready: Callable[[], None]) -> None:
        """Acquire, renew and release the Lease. This task is cancelled at its end."""
        await self._acquire()
        ready()
        try:
            await self._renew()
            await self._outlast_work()
        finally:
            if self._work_timeout is not None:
                # Cancelled by other code, such as `asyncio.run()` at its end.
                self._lose("the elector's task was cancelled")
            elif self._state.work_ended(self._now()) and self._release_on_cancel:
                await self._release()

    async def _acquire(self) -> None:
        while True:
            if not self._state.pauses:
                await self._attempt()

            if self.deadline is not None:
                return

            self._state.pauses = False
            await asyncio.sleep(self._timing.pause(self._rng.random()))

    async def _renew(self) -> None:
        """Renew until leadership is lost. Attempts begin one period apart.

        The first is due one period after the claim was sent, which may be now.
        """
        started = self._state.sent
        assert started is not None
        while (deadline := self.deadline) is not None:
            try:
                async with asyncio.timeout_at(deadline):
                    await asyncio.sleep(started + self._timing.retry - self._now())
                    started = self._now()
                    await self._attempt()
            except TimeoutError:
                self._lose(NOT_RENEWED)

    async def _outlast_work(self) -> None:
        """Wait for the end of cancelled work. This task is cancelled then."""
        ends = self._state.lease_ends
        assert ends is not None
        await asyncio.sleep(ends - self._now())
        self._metrics.overran()
        await wait_until_cancelled()

    async def _attempt(self) -> None:
        """Try once to acquire or renew the Lease. Failures are reported and retried."""
        try:
            await self._try()
            self._not_ready = ""
        except Conflict:
            self._not_ready = ""
            # Another replica was faster: the next attempt reads the Lease.
        except Exception as exc:
            if self._not_ready:
                self._not_ready = f"the lease cannot be acquired: {text_of(exc, repr)}"

            leads = self.deadline is not None
            if not leads and isinstance(exc, _PERSISTENT_ERRORS):
                raise

            what = "renew the lease" if leads else "acquire the lease"
            self._metrics.failed(what, exc, self._now())

        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # A lock that swallows cancellations must not keep this task alive.
            raise asyncio.CancelledError

    async def _try(self) -> None:
        leads = self.deadline is not None and self._state.observed is not None
        if leads and self._coordinated:
            self._metrics.slow_path()  # the coordinator may prefer another replica
        elif leads:
            try:
                await self._claim()
            except (Conflict, NotFound):
                # Written by another replica, or by an earlier attempt that timed out.
                self._metrics.slow_path()
            else:
                return

        async with asyncio.timeout(self._timing.request):
            record = await self._lock.get()

        self._state.observe(record, self._now())
        match self._state.next_step(self._now()):
            case Step.CREATE | Step.CLAIM:
                await self._claim()
            case Step.YIELD:
                self._lose(self._state.why_yield)
            case Step.WAIT:
                pass

    async def _claim(self) -> None:
        sent = self._now()
        if self.deadline is not None and not self._state.leads(sent):
            # The loop was blocked, so that the work is not cancelled yet.
            self._lose(NOT_RENEWED)
            return

        record = self._state.claim(datetime.now(UTC), sent)
        try:
            async with asyncio.timeout(self._state.claim_seconds):
                if self._state.observed is None:
                    await self._lock.create(record)
                else:
                    await self._lock.update(record)
        except Conflict:
            raise  # the server responded: the claim was not written
        except Exception as exc:
            if isinstance(exc, ApiError) or failure_of(exc) is Failure.UNREACHABLE:
                self._state.doubtful = True
            else:
                self._state.unanswered += 1

            raise
        except BaseException:
            self._state.unanswered += 1
            raise

        self._state.written(record, sent, self._now())
        self._move_deadline()

    async def _release(self) -> None:
        """Release the Lease, unless another replica holds it."""
        try:
            async with asyncio.timeout(self._timing.renew):
                while await self._release_once():
                    pass
        except Exception as exc:  # noqa: BLE001 - the exception of the work matters more
            self._metrics.failed("release the lease", exc, self._now())

    async def _release_once(self) -> bool:
        """Release the Lease, and return True to try again."""
        record = await self._lock.get()
        self._state.observe(record, self._now())
        if record is None or record.holder != self.identity:
            return False

        free = released(record, datetime.now(UTC))
        try:
            await self._lock.update(free)
        except Conflict:
            await asyncio.sleep(self._timing.release_retry)
            return True

        self._state.observe(free, self._now())
        return False

    def _lose(self, why: str) -> None:
        self._state.lost(why)
        self._move_deadline()

    def _move_deadline(self) -> None:
        """Have the work cancelled at the deadline, or at once if leadership has ended."""
        # A timeout that has expired cannot be rescheduled.
        if self._work_timeout is not None and not self._work_timeout.expired():
            now = self._now()
            self._work_timeout.reschedule(
                now if self.deadline is None else self.deadline
            )

    def _now(self) -> float:
        assert self._loop is not None
        return self._loop.time()
