"""`Shards`: one replica in a group of replicas that share the work on a collection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from aioinformer._tasks import Notifier, Supervisor
from aioinformer._user_code import text_of
from aioinformer.client.client import Client
from aioinformer.client.keep_open import keep_open
from aioinformer.controller.event_recorder import EventRecorder
from aioinformer.controller.lease_lock import ReplicaIdentity
from aioinformer.controller.metrics import ShardsMetrics
from aioinformer.controller.shards.member import Member
from aioinformer.controller.shards.replica import Replica
from aioinformer.controller.shards.timing import ShardTiming
from aioinformer.errors import LeadershipLost, OptionsError
from aioinformer.informer.lifecycle import Lifecycle
from aioinformer.metrics import NULL_SINK
from aioinformer.model.objects import KubeObject
from aioinformer.model.shards import hash_of
from aioinformer.model.times import seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioinformer.controller.shards.status import ShardsStatus
    from aioinformer.metrics import MetricsSink
    from aioinformer.model.shards import ShardField
    from aioinformer.model.times import Duration

__all__ = ["ShardUser", "Shards"]

START_SECONDS = 5.0
"""Time for the start of a group, which begins with its users."""


class ShardUser(Protocol):
    """Part of a program that works on the ranges of its replica, such as a controller.

    All methods are called in the event loop, and must neither wait nor raise.
    """

    def keep(self, numbers: frozenset[int]) -> None:
        """Keep the objects of these ranges in memory, and of no others.

        They are those that this replica owns, and those that it should own soon.
        """

    def start(self, number: int) -> None:
        """Begin to work on a range, or take new work of it again: it is owned now."""

    def drain(self, number: int) -> None:
        """Begin no new work on a range.

        Call `Shards.work_ended()` when `busy()` may have become False.
        """

    def cancel(self, number: int) -> None:
        """Cancel all work on a range. It has a second to end."""

    def busy(self, number: int) -> bool:
        """Return True while work on a range is in progress."""

    def lacking(self) -> Mapping[int, str]:
        """Return the owned ranges that it cannot work on yet, and why.

        Call `Shards.work_began()` when there are fewer.
        """


class Shards(Lifecycle):
    """Membership of this replica in a group that shares the work on a collection.

    ::

        shards = Shards("sites", client)
        controller = Controller("sites", reconcile, for_=sites, shards=shards)
        manager.add(controller)  # on every replica

    The hashes of all objects are divided into ranges. Each range belongs to one replica
    at a time, which alone works on its objects. Replicas join and leave at any time, and
    ranges move as few as possible.

    Guarantees:
        A range has one owner at a time. An owner that cannot renew its membership ends
        its work before another replica may begin, while clocks differ by at most 20 % in
        speed, and requests that were sent arrive within 1 s. A range moves when nothing
        of it is in work any more, or after `drain_timeout` and a cancellation. After the
        deadline, `check()` raises, and so does each write of a sharded controller.

        A replica that ends in order gives its ranges away within about `drain_timeout`.
        The ranges of one that was killed have a new owner within 24 s by default.

    Not guaranteed:
        That work ends within a second after its cancellation. It is then logged, and
        this replica owns nothing until it has ended. A virtual machine that is paused
        by its host, without its clocks, does not notice that.

    It writes a Lease for each replica, every `retry_period`, and one for each range,
    when that moves. All are in one namespace, with the label `aioinformer.dev/shards`.
    It needs the verbs list, watch, create, update and delete of `leases` in
    `coordination.k8s.io`, and records Events about moves if it may.

    Lifetime:
        A `Manager` runs it with its controllers. Without one, enter it
        (`async with shards:`), or call `start()` and `shutdown()`. It joins the group
        while it has users, such as controllers that run. It can run again, in any loop.

    Args:
        name: Name of the group, the same for all replicas.
        client: Client that sends the requests, without waiting for its `qps`.
        ranges: Number of ranges, a power of two; fixed for the life of the group.
        shard_by: `"uid"` to spread objects, `"namespace"` to keep namespaces together.
        lease_duration: Time after which others take the ranges of a silent replica, in
            seconds or a timedelta.
        renew_deadline: Time after its last renewal at which a replica ends its work.
        retry_period: Time between two renewals, and limit of one request.
        drain_timeout: Time for the work of a range that moves, before it is cancelled.
        namespace: Namespace of the Leases. None for that of the client, which in a
            cluster is that of the pod.
        identity: Unique identity of this replica. None for the host name (in a cluster,
            that of the pod) and a random suffix, another one in each fork of the
            process.
        metrics: Sink of `aioinformer_shard_owned_ranges` and other metrics.

    Raises:
        OptionsError: If the name, the number of ranges, the field or the identity is
            invalid, or the durations would allow two owners of a range.
    """

    def __init__(
        self,
        name: str,
        client: Client,
        *,
        ranges: int = 64,
        shard_by: ShardField = "uid",
        lease_duration: Duration = 20.0,
        renew_deadline: Duration = 11.0,
        retry_period: Duration = 3.0,
        drain_timeout: Duration = 7.0,
        namespace: str | None = None,
        identity: str | None = None,
        metrics: MetricsSink = NULL_SINK,
    ) -> None:
        if not isinstance(client, Client):
            raise OptionsError(f"shards {name} need a Client, not {client!r}")

        if namespace == "":
            raise OptionsError("the namespace of shards cannot be empty")

        self.name: str = name
        """Name of the group."""
        self.ranges: int = ranges
        """Number of ranges."""
        self.shard_by: ShardField = shard_by
        """Field of an object's metadata that is hashed."""
        self._identity = ReplicaIdentity(identity)
        self.timing: ShardTiming = ShardTiming(
            lease_duration=seconds_of(lease_duration),
            renew_deadline=seconds_of(renew_deadline),
            retry_period=seconds_of(retry_period),
            drain=seconds_of(drain_timeout),
        )
        """Durations of the group."""
        self._make_member()  # checks the arguments
        self._client = client
        self._namespace = namespace
        self._metrics = ShardsMetrics(name, self.identity, metrics)
        self._recorder = EventRecorder(client, "aioinformer.dev/shards")
        self._users: list[ShardUser] = []
        self._replica: Replica | None = None  # set while it runs
        self._failure: Exception | None = None
        self._started = Notifier()
        self._ended = Notifier()
        self._supervisor = Supervisor(self._run_supervised, f"shards {name}")

    def __repr__(self) -> str:
        state = "stopped" if self._replica is None else self._replica.state
        return f"<Shards {self.name} as {self.identity} {state} owns {len(self.held)}>"

    def set_metrics(self, sink: MetricsSink) -> None:
        """Set the sink of metrics, unless there is one. A `Manager` with a sink calls it."""
        self._metrics.set_sink(sink)

    # ------------------------------------------------------------ views

    @property
    def identity(self) -> str:
        """Identity of this replica."""
        return str(self._identity)

    @property
    def running(self) -> bool:
        """True while it follows the group."""
        return self._replica is not None

    @property
    def held(self) -> frozenset[int]:
        """Ranges of which this replica may begin new work."""
        return frozenset() if self._replica is None else self._replica.held

    def range_of(self, what: KubeObject | str) -> int:
        """Return the number of the range of an object.

        Args:
            what: Object, or its uid, or with `shard_by="namespace"` its namespace.
        """
        if isinstance(what, KubeObject):
            what = what.uid if self.shard_by == "uid" else what.namespace

        return hash_of(what) * self.ranges >> 64

    def owner_of(self, what: KubeObject | str) -> str:
        """Return the identity of the replica that owns an object, or an empty string.

        It is what this replica has seen, and may have changed meanwhile.

        Args:
            what: See `range_of`.
        """
        number = self.range_of(what)
        return "" if self._replica is None else self._replica.owners[number]

    def owns(self, number: int) -> bool:
        """Return True if work on a range may go on at this moment."""
        return self._replica is not None and self._replica.owns(number)

    def check(self, number: int) -> None:
        """Fence a write. Call it right before sending, without an await in between.

        Raises:
            LeadershipLost: If another replica may own the range by now.
        """
        if not self.owns(number):
            raise LeadershipLost(
                f"{self.identity} does not own range {number} of shards {self.name}, or "
                "its deadline has passed"
            )

    def status(self) -> ShardsStatus:
        """Return the state of the group, as this replica sees it.

        Raises:
            OptionsError: If it does not run.
        """
        if self._replica is None:
            raise OptionsError(
                f"shards {self.name} do not run: enter them, or run their manager"
            )

        return self._replica.status()

    def why_not_ready(self) -> str:
        """Return why this replica does not do its part, or an empty string.

        It does once it has joined the group, unless a range that it should own is not
        taken for longer than a dead owner explains, or is owned as long while an
        informer cannot list its objects, or a user has ended before the others. An
        outage of the API server is no reason. Without users, it has no part.
        """
        if self._failure is not None:
            return text_of(self._failure, repr)

        return "" if self._replica is None else self._replica.why_not_ready()

    async def wait_running(self) -> None:
        """Wait up to 5 s until it runs. Users call it before they join.

        Raises:
            OptionsError: If it does not run.

        Cancellation:
            Safe.
        """
        try:
            async with asyncio.timeout(START_SECONDS):
                while not self.running:
                    await self._started.wait()
        except TimeoutError:
            raise OptionsError(
                f"shards {self.name} do not run: enter them (async with shards:), or add "
                "their controller to a manager"
            ) from None

    # ------------------------------------------------------------ users

    def join(self, user: ShardUser) -> None:
        """Add a user, which is told at once which ranges are owned.

        Raises:
            OptionsError: If it has joined already.
        """
        if user in self._users:
            raise OptionsError(f"{user!r} uses shards {self.name} already")

        self._users.append(user)
        if self._replica is not None:
            self._replica.introduce(user)
            self._replica.step()

    def leave(self, user: ShardUser) -> None:
        """Remove a user, whose work has ended. Idempotent.

        After the last one, this replica leaves the group. While others stay, nobody works
        for this one, so the ranges move to other replicas after half a minute.
        """
        if user in self._users:
            self._users.remove(user)
            if self._replica is not None:
                self._replica.step()

    def work_ended(self) -> None:
        """Take note that work on some range may have ended. Users call it."""
        if self._replica is not None:
            self._replica.work_ended()

    def wrote(
        self, number: int, versions: Mapping[str, int], *, unanswered: bool = False
    ) -> None:
        """Record versions that work on a range has written. Users call it.

        The next owner begins when its informers have them.

        Args:
            number: Number of the range.
            versions: Resource versions by resource, such as `deployments.apps`.
            unanswered: True if a write may still arrive. The range is not given away
                before that.
        """
        if self._replica is not None:
            self._replica.wrote(number, versions, unanswered=unanswered)

    def written(self, number: int) -> Mapping[str, int]:
        """Return the versions that owners of a range have written, by resource.

        Args:
            number: Number of the range.
        """
        return {} if self._replica is None else self._replica.written(number)

    def work_began(self) -> None:
        """Take note that a user lacks fewer ranges. Users call it."""
        if self._replica is not None:
            self._replica.work_began()

    # ------------------------------------------------------------ lifetime

    async def start(self) -> None:
        """Start to follow the group, and return.

        Raises:
            OptionsError: If it is running already, or there is no usable configuration.

        Cancellation:
            Stops it again.
        """
        await self._supervisor.start()

    async def shutdown(self) -> None:
        """Give all ranges away, and stop. Idempotent.

        Work on them has `drain_timeout` to end, and is then cancelled.

        Raises:
            OptionsError: If the group has another number of ranges or another field.

        Cancellation:
            Deferred until it has ended.
        """
        await self._supervisor.stop()

    async def failed(self) -> Exception:
        """Wait until a run fails, and return its error.

        A program without a `Manager` needs it: nothing is owned any more then.

        Cancellation:
            Safe.
        """
        while self._failure is None:
            await self._ended.wait()

        return self._failure

    async def run(self) -> None:
        """Take part in the group until cancelled, in a `Manager` or a task of your own.

        Raises:
            OptionsError: If it is running already, or the group has another number of
                ranges or another field.

        Cancellation:
            Stops it, as `shutdown()` does.
        """
        await self._run_supervised(lambda: None)

    async def _run_supervised(self, ready: Callable[[], None]) -> None:
        if self._replica is not None:
            raise OptionsError(f"shards {self.name} are already running")

        self._failure = None
        try:
            async with keep_open(self._client):
                await self._run_replica(ready)
        except Exception as exc:
            self._failure = exc
            raise
        finally:
            self._ended.notify()

    async def _run_replica(self, ready: Callable[[], None]) -> None:
        self._replica = Replica(
            self.name,
            self._make_member,
            self._client,
            self._client.namespace if self._namespace is None else self._namespace,
            self._users,
            self._recorder,
            self._metrics,
        )
        self._metrics.identity = self.identity  # of this process, perhaps a fork
        self._started.notify()
        try:
            await self._replica.run(ready)
        finally:
            self._replica = None

    def _make_member(self) -> Member:
        return Member(
            self.identity,
            self.name,
            self.timing,
            ranges=self.ranges,
            field=self.shard_by,
        )
