"""`Replica`: performs what the member of a shard group decides, for one run of `Shards`."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, assert_never

from aioinformer._tasks import Notifier, finish
from aioinformer._user_code import guarded_logger, text_of
from aioinformer.backoff import Failure, failure_of
from aioinformer.controller.client import ElectionClient
from aioinformer.controller.lease_record import LeaseStatus
from aioinformer.controller.shards.clock import BootClock
from aioinformer.controller.shards.idle_ranges import IdleRanges, listed
from aioinformer.controller.shards.lease import (
    Role,
    ShardLease,
    fence_name,
    member_name,
    written_of,
    written_text,
)
from aioinformer.controller.shards.lease_watch import LeaseWatch
from aioinformer.controller.shards.member import (
    Cancel,
    Drain,
    Member,
    MemberState,
    Outcome,
    RangeState,
    Start,
    Write,
)
from aioinformer.controller.shards.status import ShardsStatus, range_statuses
from aioinformer.errors import (
    ApiError,
    Conflict,
    LeadershipLost,
    NotFound,
    OptionsError,
)
from aioinformer.model.resources import LEASES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aioinformer.client.client import Client
    from aioinformer.controller.event_recorder import EventRecorder
    from aioinformer.controller.metrics import ShardsMetrics
    from aioinformer.controller.shards.member import Command
    from aioinformer.controller.shards.shards import ShardUser
    from aioinformer.model.objects import KubeObject

__all__ = ["Replica"]

logger: Final = guarded_logger(__name__)

_INCOMPLETE: Final = "a controller or informer that shares them has ended"

_CONCURRENT_WRITES: Final = 8
"""Fences that are written at the same time. Each write takes a connection."""


_SHORTEST_SECONDS: Final = 0.001
"""Shortest time until the next step that no input requests."""


class Replica:
    """One run of a replica: its watch of Leases, its writes, and its users.

    The member decides, in `step()`, which is synchronous. Users are told everything in
    the same step. So nothing runs between a decision and its effect.

    Args:
        name: Name of the group.
        make_member: Function that returns a member that has seen nothing yet.
        client: Entered client.
        namespace: Namespace of the Leases.
        users: Users; the owner of the list calls `step()` after a change.
        recorder: Recorder of Events about moves.
        metrics: Metrics and log.
    """

    # Invariant: every range in `working` was started by the users and has not ended.
    # Those of them that should end are in `ending`.

    def __init__(
        self,
        name: str,
        make_member: Callable[[], Member],
        client: Client,
        namespace: str,
        users: Sequence[ShardUser],
        recorder: EventRecorder,
        metrics: ShardsMetrics,
    ) -> None:
        self._name = name
        self._make_member = make_member
        self._member = make_member()
        self._client = ElectionClient(client)
        self._namespace = namespace
        self._users = users
        self._recorder = recorder
        self._metrics = metrics
        self._clock = BootClock(asyncio.get_running_loop())
        self._timing = self._member.timing
        memory = self._timing.renew_deadline
        self._watch = LeaseWatch(self._client, self._name, namespace, self, memory)
        self._timer: asyncio.TimerHandle | None = None
        self._group: asyncio.TaskGroup | None = None
        self._writes: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(_CONCURRENT_WRITES)
        # Leases as they were last seen, by name.
        self._leases: dict[str, ShardLease] = {}
        self._synced = False
        # True from the first step of the member until it has left.
        self._joined = False
        self._leaving = False
        self._state: MemberState | None = None
        self._stepping = False
        self._again = False  # another step follows from this one
        self._waking = False
        self._working: set[int] = set()
        # Values are the times of cancellations.
        self._ending: dict[int, float | None] = {}
        # Ranges that users keep in memory.
        self._told: frozenset[int] = frozenset()
        # Last foreign owner of each range.
        self._before: dict[int, str] = {}
        # Versions that owners of each range have written, by resource.
        self._written: dict[int, dict[str, int]] = {}
        # Times at which writes without an answer have arrived, or never will.
        self._quiet_at: dict[int, float] = {}
        # Times since when this member lacks ranges that it should own, and is not live.
        self._missing: dict[int, float] = {}
        self._idle = IdleRanges(self._timing)
        # Most users that there were, since there was none.
        self._most_users = 0
        # Ranges that were reported, as nobody works on them.
        self._reported: frozenset[int] = frozenset()
        self._apart_since = 0.0
        self._was_live = False
        # Errors of the last writes, by the names of the Leases, until these change.
        self._refusals: dict[str, Exception] = {}
        self._stopping = False
        self._failure: Exception | None = None
        self._over = asyncio.Event()
        self._stepped = Notifier()

    def __repr__(self) -> str:
        return f"<Replica {self.state} of {self._name}>"

    # ------------------------------------------------------------ views

    @property
    def state(self) -> str:
        """State of the member; `"idle"` while there are no users."""
        return self._state.value if self._state else "idle"

    @property
    def held(self) -> frozenset[int]:
        """Ranges of which this replica may begin new work."""
        return self._member.held if self._joined else frozenset()

    @property
    def owners(self) -> tuple[str, ...]:
        """Identity of the owner of each range; empty for none."""
        return self._member.owners

    def owns(self, number: int) -> bool:
        """Return True if work on a range may go on and write at this moment."""
        if not self._joined:
            return False

        owned = self._member.owns(number, self._clock.now())
        if not owned and number in self._working:
            self._wake()  # after a pause, as that of a suspended machine

        return owned

    def status(self) -> ShardsStatus:
        """Return the state of the group."""
        member, now, problem = self._member, self._clock.now(), self._problem()
        text = "" if problem is None else _text(problem)
        return ShardsStatus(
            name=self._name,
            identity=member.identity,
            state=self.state,
            reason=member.reason if self._joined else "",
            lease=self._lease(now),
            owned=tuple(sorted(self._owned(now))),
            inactive=self._inactive(now),
            members=member.eligible,
            ranges=range_statuses(member, self._name, self._leases, now),
            problem="; ".join(self._neglected(now).values()) or text,
        )

    def _lease(self, now: float) -> LeaseStatus | None:
        """Return the state of the own Lease; None unless this replica is a member."""
        identity, renewed = self._member.identity, self._member.renewed
        if not self._joined or renewed is None:
            return None

        return LeaseStatus(
            name=f"{self._namespace}/{member_name(self._name, identity)}",
            holder=identity,
            age=now - renewed,
            duration=math.ceil(self._timing.lease_duration),
        )

    def why_not_ready(self) -> str:
        """Return why this replica does not do its part, or an empty string."""
        if self._failure is not None:
            return text_of(self._failure, repr)

        if not self._users or self._stopping:
            return ""

        now, problem = self._clock.now(), self._problem()
        late = now - self._apart_since > self._timing.patience
        away = problem is not None and failure_of(problem) is Failure.UNREACHABLE
        missed = [
            it for it, at in self._missing.items() if now - at > self._timing.patience
        ]
        if not self._is_live and (not self._was_live or (late and not away)):
            text = self._member.reason or "has not joined the group yet"
        elif missed:
            text = f"ranges are not taken: {listed(missed)}"
        else:
            self._idle.update(self._inactive(now), now)
            return self._idle.why(now)

        return text if problem is None else f"{text}: {_text(problem)}"

    def _neglected(self, now: float) -> dict[frozenset[int], str]:
        """Return ranges that nobody works on for longer than a dead owner explains.

        Values say since when, and why if this replica knows that.
        """
        found: dict[frozenset[int], str] = {}
        if self._is_live:
            unowned, group = self._member.unowned, self._name
            late = {
                it for it, at in unowned.items() if now - at > self._timing.patience
            }
            for taker in sorted({self._member.assigned[it] for it in late}):
                numbers = {it for it in late if self._member.assigned[it] == taker}
                longest = now - min(unowned[it] for it in numbers)
                text = (
                    f"ranges without an owner for {longest:.0f} s: {listed(numbers)} "
                    f"(assigned to {taker or 'nobody'})"
                )
                refusals = (self._refusals.get(fence_name(group, it)) for it in numbers)
                known = dict.fromkeys(_text(it) for it in refusals if it is not None)
                found[frozenset(numbers)] = ": ".join([text, *list(known)[:1]])

        if idle := self._idle.late(now):
            found[frozenset(idle)] = self._idle.why(now)

        return found

    @property
    def _is_live(self) -> bool:
        return self._joined and self._member.state is MemberState.LIVE

    def _problem(self) -> Exception | None:
        return self._watch.problem or next(iter(self._refusals.values()), None)

    @property
    def _wanted(self) -> frozenset[int]:
        """Ranges that are kept in memory, even if this member does not own them yet."""
        if not self._joined:
            return frozenset()

        # One that is lost or leaves does not know what it will own. Most of it will be
        # the same after an outage, which must not empty every store.
        return self._member.wanted if self._is_live else self._told

    def _owned(self, now: float) -> frozenset[int]:
        if not self._joined:
            return frozenset()

        return frozenset(it for it in self._working if self._member.owns(it, now))

    def _inactive(self, now: float) -> dict[int, str]:
        """Return the owned ranges that a user cannot work on, and why."""
        found: dict[int, str] = {}
        for user in self._users:
            found |= user.lacking()

        owned = self._owned(now)
        if self._lacks_users:
            found |= dict.fromkeys(owned, _INCOMPLETE)

        return {it: found[it] for it in sorted(owned & found.keys())}

    @property
    def _lacks_users(self) -> bool:
        """True if a user has left while others go on."""
        return len(self._users) < self._most_users and not self._stopping

    # ------------------------------------------------------------ run

    async def run(self, ready: Callable[[], None]) -> None:
        """Take part in the group until cancelled.

        Args:
            ready: Function called when it runs.

        Raises:
            OptionsError: If the group has another number of ranges or another field.
            BaseExceptionGroup: After a bug of this package.

        Cancellation:
            Gives all ranges away first, if their work ends in time.
        """
        name = f"shards {self._name}"
        self._metrics.began()
        try:
            async with asyncio.TaskGroup() as parts:
                tasks = [
                    parts.create_task(self._watch.run(), name=f"{name} watch"),
                    parts.create_task(self._recorder.run(), name=f"{name} events"),
                ]
                # A group of their own: writes go on while a failed part ends the others.
                async with asyncio.TaskGroup() as self._group:
                    await self._live(ready)

                for task in tasks:
                    task.cancel()
        finally:
            if self._timer is not None:
                self._timer.cancel()

            self._metrics.ended()

        if self._failure is not None:
            raise self._failure

    async def _live(self, ready: Callable[[], None]) -> None:
        try:
            ready()
            self.step()
            await self._over.wait()
        finally:
            self._stopping = True
            limit = self._drain_seconds + self._release_seconds + 1.0
            try:
                await finish(self._give_away(), within_seconds=limit)
            finally:
                self._joined = False
                # None may go on without a deadline, as after a second cancellation.
                for number in sorted(self._working):
                    self._cancel(number)

                self._tell_ranges()
                for task in self._writes:
                    task.cancel()

    async def _give_away(self) -> None:
        """Leave the group, if the work ends and the server answers in time."""
        self.step()
        try:
            async with asyncio.timeout(self._drain_seconds):
                while self._joined and self._working:
                    await self._stepped.wait()

            async with asyncio.timeout(self._release_seconds):
                while self._joined:
                    await self._stepped.wait()
        except TimeoutError:
            self._metrics.not_left(len(self._working))

    @property
    def _drain_seconds(self) -> float:
        """Longest time in seconds for the work to end."""
        return self._timing.drain + self._timing.stop + self._timing.flight

    @property
    def _release_seconds(self) -> float:
        """Longest time in seconds to release all ranges."""
        return self._timing.retry_period + self._timing.flight

    def _end(self, failure: Exception) -> None:
        """End the run by a failure."""
        if self._failure is None:
            self._failure = failure
            self._metrics.died(failure)

        self._over.set()

    # ------------------------------------------------------------ Leases

    def lease_seen(self, lease: ShardLease) -> None:
        """Pass a Lease to the member. The watch calls it."""
        self._leases[lease.name] = lease
        self._refusals.pop(lease.name, None)
        if lease.role is Role.FENCE and lease.holder not in {
            "",
            self._member.identity,
        }:
            self._before[lease.index] = lease.holder

        if lease.written:
            self.wrote(lease.index, written_of(lease.written))

        self._feed(lambda: self._member.lease_seen(lease, self._clock.now()))

    def lease_gone(self, name: str, *, missed: bool) -> None:
        """Pass a deletion to the member. The watch calls it."""
        self._leases.pop(name, None)
        self._refusals.pop(name, None)
        now = self._clock.now()
        self._feed(lambda: self._member.lease_gone(name, now, missed=missed))

    def leases_synced(self) -> None:
        """Pass the end of a list to the member. The watch calls it."""
        self._synced = True
        self._feed(lambda: self._member.synced(self._clock.now()))

    def _feed(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as exc:  # noqa: BLE001 - a bug, which the informer would only log
            self._end(exc)

        self._wake()

    def _wake(self) -> None:
        """Take a step soon, once for all Leases of a response."""
        if not self._waking:
            self._waking = True
            self._clock.loop.call_soon(self.step)

    # ------------------------------------------------------------ steps

    def step(self) -> None:
        """Let the member decide, and perform it, until nothing follows from that."""
        self._waking = False
        if self._stepping:
            self._again = True  # called by a user that was told something
            return

        self._stepping = self._again = True
        try:
            while self._again:
                self._again = False
                self._step_once(self._clock.now())
        except Exception as exc:  # noqa: BLE001 - a bug, raised at the end of the run
            self._end(exc)
        finally:
            self._stepping = False

        self._arm()
        self._stepped.notify()

    def work_ended(self) -> None:
        """Take a step if work of a range that should end may have ended."""
        if self._ending:
            self.step()

    def wrote(
        self, number: int, versions: Mapping[str, int], *, unanswered: bool = False
    ) -> None:
        """Record versions that work on a range has written, by resource."""
        if unanswered:
            self._quiet_at[number] = self._clock.now() + self._timing.longest_flight

        known = self._written.setdefault(number, {})
        for name, version in versions.items():
            known[name] = max(version, known.get(name, 0))

    def written(self, number: int) -> Mapping[str, int]:
        """Return the versions that owners of a range have written, by resource."""
        return self._written.get(number, {})

    def work_began(self) -> None:
        """Measure again, as a user lacks fewer ranges."""
        if self._joined and not self._stepping:
            self._measure(self._clock.now())

    def _step_once(self, now: float) -> None:
        wanted = bool(self._users) and not self._stopping and self._failure is None
        self._most_users = max(self._most_users, len(self._users)) if wanted else 0
        if not self._joined:
            if not wanted:
                return

            self._joined = True
            self._apart_since = now
        elif not wanted and not self._leaving:
            self._leaving = True
            self._member.leave(now)

        commands = self._member.step(now, datetime.now(UTC))
        self._tell_ranges()
        for command in commands:
            self._perform(command, now)

        self._note_ended(now)
        self._tell_ranges()
        self._note_state(now)
        self._measure(now)

    def _perform(self, command: Command, now: float) -> None:
        match command:
            case Write():
                if command.verb == "delete" and command.lease.role is Role.GROUP:
                    self._metrics.problem(
                        f"deleting Lease {command.lease.name}, as no member has its "
                        f"{command.lease.ranges} ranges by {command.lease.field}"
                    )

                assert self._group is not None
                task = self._group.create_task(self._write(self._member, command))
                self._writes.add(task)
                task.add_done_callback(self._writes.discard)
            case Start(index=number):
                self._start(number)
            case Drain(index=number):
                self._metrics.draining(number)
                self._ending[number] = None
                for user in tuple(self._users):
                    user.drain(number)
            case Cancel(index=number):
                if number in self._ending:
                    self._metrics.cancelled(number)

                self._ending[number] = now
                self._cancel(number)
            case _:
                assert_never(command)

    def _start(self, number: int) -> None:
        self._ending.pop(number, None)
        if number not in self._working:  # else it was draining
            self._working.add(number)
            self._note_move(number)

        for user in tuple(self._users):
            user.start(number)

    def _cancel(self, number: int) -> None:
        for user in tuple(self._users):
            user.cancel(number)

    def _tell_ranges(self) -> None:
        """Tell users which objects to keep in memory."""
        numbers = self._wanted | self._working
        if numbers != self._told:
            self._told = numbers
            for user in tuple(self._users):
                user.keep(numbers)

    def introduce(self, user: ShardUser) -> None:
        """Tell a new user which ranges are owned."""
        user.keep(self._told)
        for number in sorted(self.held & self._working):
            user.start(number)

    def _note_ended(self, now: float) -> None:
        """Report the ranges whose work has ended to the member."""
        for number, cancelled in tuple(self._ending.items()):
            busy = any(user.busy(number) for user in self._users)
            # After a cancellation, the member itself waits for that.
            late = cancelled is None and now < self._quiet_at.get(number, now)
            if not busy and not late:
                del self._ending[number]
                self._working.discard(number)
                self._member.ended(number, now)
                self._again = True
            elif cancelled is not None and now >= cancelled + self._timing.stop:
                self._ending[number] = math.inf  # reported once
                self._metrics.overran(number, now - cancelled)
                self._cancel(number)  # it may have swallowed the first one

    def _note_move(self, number: int) -> None:
        group, me = self._name, self._member.identity
        before, self._before[number] = self._before.get(number, ""), me
        self._metrics.acquired(number, before)
        self._record(
            fence_name(group, number),
            "Normal",
            "RangeAcquired",
            f"{me} acquired range {number} of shards {group}, previously "
            f"{before or 'without an owner'}",
        )

    def _record(
        self, name: str, kind: Literal["Normal", "Warning"], reason: str, note: str
    ) -> None:
        """Record an Event about a Lease."""
        lease = self._leases.get(name)
        about = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "name": name,
            "namespace": self._namespace,
            "uid": lease.uid if lease else "",
        }
        self._recorder.event(about, kind, reason, note)

    def _note_state(self, now: float) -> None:
        """Report a change of the member's state."""
        member, state = self._member, self._member.state
        if state is self._state:
            return

        if self._state in (MemberState.LIVE, MemberState.LEAVING):
            self._apart_since = now
            if state in (MemberState.LOST, MemberState.JOINING):
                stopping = member.states.count(RangeState.STOPPING)
                self._metrics.lost(stopping, member.reason)

        self._state = state
        match state:
            case MemberState.LIVE:
                self._was_live = True
                self._metrics.joined(member.epoch)
            case MemberState.LEFT:
                if self._was_live:
                    self._metrics.left()

                self._start_over(now)
            case MemberState.JOINING | MemberState.LOST | MemberState.LEAVING:
                pass
            case _:
                assert_never(state)

    def _start_over(self, now: float) -> None:
        """Follow the group by another member, which joins when there is a user."""
        if self._member.refusal:
            self._end(OptionsError(f"shards {self._name}: {self._member.refusal}"))

        self._joined = self._leaving = False
        self._idle = IdleRanges(self._timing)
        self._tell_ranges()
        self._state = None
        self._member = self._make_member()
        for lease in self._leases.values():
            self._member.lease_seen(lease, now)

        if self._synced:
            self._member.synced(now)

        self._again = True

    def _measure(self, now: float) -> None:
        owned, unowned = self._owned(now), self._member.unowned
        lacking = self._member.wanted - owned if self._is_live else frozenset()
        self._missing = {it: self._missing.get(it, now) for it in lacking}
        inactive = self._inactive(now)
        self._idle.update(inactive, now)
        since = min(unowned.values(), default=None)
        self._metrics.ranges(
            len(owned),
            len(owned) - len(inactive),
            len(unowned),
            None if since is None else now - since,
        )
        self._report(now)
        if self._is_live:
            incomplete = _INCOMPLETE if self._lacks_users else ""
            seconds = self._idle.seconds_to_decline(len(owned), now, incomplete)
            if seconds:
                self._member.decline(now, seconds)
                self._again = True

    def _report(self, now: float) -> None:
        """Log once that nobody works on some ranges, and record an Event about it.

        The Event comes from the replica that should take the ranges, or has them.
        """
        found = self._neglected(now)
        numbers = frozenset[int]().union(*found)
        new, self._reported = numbers - self._reported, numbers
        for ranges, text in found.items():
            if new & ranges:
                self._metrics.problem(text)
                if ranges & self._member.wanted:
                    self._record(self._name, "Warning", "RangesNotWorkedOn", text)

    def _arm(self) -> None:
        """Have the next step taken when it is due.

        By a timer of the loop: after a pause of the process, timers precede the tasks
        that responses and other timers wake.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

        cancelled = [it for it in self._ending.values() if it is not None]
        overdue = min(cancelled, default=math.inf) + self._timing.stop
        # Those in the past wait for work, which reports its end.
        late = (self._quiet_at.get(it, 0.0) for it in self._ending)
        quiet = min((it for it in late if it > self._clock.now()), default=math.inf)
        deadline = self._member.deadline
        deadline = math.inf if deadline is None else deadline
        due = min(self._member.next_due, overdue, quiet, deadline)
        if self._joined and due < math.inf:  # -inf: at once
            # Timers may fire a little early, and nothing would be due then.
            soon = self._clock.now() + _SHORTEST_SECONDS
            self._timer = self._clock.call_at(max(due, soon), self.step)

    # ------------------------------------------------------------ writes

    async def _write(self, member: Member, write: Write) -> None:
        """Send a write, and pass its outcome to the member that decided it."""
        outcome, lease = Outcome.NO_ANSWER, write.lease
        version, uid, retry_after = "", "", 0.0
        try:
            async with asyncio.timeout(self._timing.retry_period):
                if lease.role is Role.MEMBER and lease.holder == member.identity:
                    found = await self._send(
                        write
                    )  # a renewal waits for no other write
                else:
                    async with self._slots:
                        found = await self._send(write)

            outcome = Outcome.OK
            self._refusals.pop(lease.name, None)
            if found is not None:
                version, uid = found.resource_version, found.uid
        except (Conflict, NotFound) as exc:
            if write.verb == "create" and isinstance(exc, NotFound):
                self._failed(write, exc)  # there is no such namespace
                retry_after = self._timing.retry_failed
            else:
                outcome = self._conflict(write, exc)
        except Exception as exc:  # noqa: BLE001 - logged, and retried by the member
            self._failed(write, exc)
            if isinstance(exc, ApiError):
                retry_after = exc.retry_after or self._timing.retry_failed

        if outcome is not Outcome.NO_ANSWER:
            self._watch.answered(lease.name, lease.version)

        member.answered(
            write,
            outcome,
            self._clock.now(),
            version=version,
            uid=uid,
            retry_after=retry_after,
        )
        self.step()

    def _conflict(self, write: Write, exc: Conflict | NotFound) -> Outcome:
        """Return the outcome of a write that the state of the Lease does not allow."""
        self._refusals.pop(write.lease.name, None)
        if write.verb == "create":  # it may be one that the watch never shows
            self._refused(write.lease, exc)

        gone = write.verb == "delete" and isinstance(exc, NotFound)
        return Outcome.OK if gone else Outcome.CONFLICT

    def _failed(self, write: Write, exc: Exception) -> None:
        """Log a failed write, and note why."""
        self._refused(write.lease, exc)
        what = f"{write.verb} Lease {write.lease.name}"
        self._metrics.failed(what, exc, self._clock.now())

    def _refused(self, lease: ShardLease, why: Exception) -> None:
        """Note why a Lease could not be written, unless the watch was faster."""
        shown = self._leases.get(lease.name)
        if lease.version == ("" if shown is None else shown.version):
            self._refusals[lease.name] = why

    async def _send(self, write: Write) -> KubeObject | None:
        lease, client, place = write.lease, self._client, self._namespace
        if lease.role is Role.FENCE and not lease.holder:
            # The work has ended. The next owner waits until its informers show it.
            lease = replace(lease, written=written_text(self.written(lease.index)))

        def check() -> None:
            if self._clock.now() > write.sent + self._timing.retry_period:
                raise LeadershipLost(f"{lease.name} was to be written some time ago")

        match write.verb:
            case "create":
                body = lease.body()
                return await client.create(LEASES, body, namespace=place, fence=check)
            case "update":
                body = lease.body()
                return await client.update(LEASES, body, namespace=place, fence=check)
            case "delete":
                await client.delete(LEASES, lease.name, namespace=place, uid=lease.uid)
                return None
            case _:
                assert_never(write.verb)


def _text(problem: Exception) -> str:
    # The error of `asyncio.timeout()` has no message.
    return text_of(problem) or "no response in time"
