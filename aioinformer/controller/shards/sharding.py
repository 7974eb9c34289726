"""`Sharding`: keeps one controller to the objects of the ranges that its replica owns.

A request names an object, and a range contains hashes of uids. So the uid of each
request is known from its admission until its reconcile begins: that of the object in
the store, or, if the object is gone, that of the change that led to the request.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NoReturn, Protocol

from aioinformer._tasks import Notifier, run_concurrently
from aioinformer.budget import LoopBudget
from aioinformer.controller.shards.active_ranges import ActiveRanges, name_of
from aioinformer.errors import InternalError, NotFound
from aioinformer.informer.notifications import Added, Deleted, Updated
from aioinformer.model.object_meta import version_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioinformer.client.client import Client
    from aioinformer.controller.pending_writes import PendingWrites
    from aioinformer.controller.reconcile import ReconcileRequest
    from aioinformer.controller.shards.shards import Shards
    from aioinformer.controller.source import Source
    from aioinformer.informer.notifications import Notification
    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.model.objects import KubeObject

__all__ = ["RangeFence", "Sharding", "Work"]


class Work(Protocol):
    """Work of one run of a controller."""

    def changed(self, event: Notification) -> None:
        """Take a change of an object of an active range."""

    def cancel_range(self, number: int) -> None:
        """Cancel the reconciles and daemons of a range."""


class RangeFence:
    """Elector of one range, which each write of a reconcile is checked by."""

    __slots__ = ("_number", "_shards")

    def __init__(self, shards: Shards, number: int) -> None:
        self._shards = shards
        self._number = number

    def check(self) -> None:
        """Raise `LeadershipLost` unless this replica owns the range."""
        self._shards.check(self._number)


class Sharding:
    """Ranges of one controller: the `ShardUser`, and the admission of its requests.

    Only requests of active ranges are queued and started. When a range becomes active, all
    its objects are changes again, so nothing is lost while it has no owner.

    Args:
        shards: Group of the replicas.
        informers: Informers of the controller, beginning with that of `for_`.
        follows_objects: True if the controller has timers or daemons.

    Raises:
        OptionsError: See `ActiveRanges`.
    """

    def __init__(
        self,
        shards: Shards,
        informers: Sequence[SharedInformer],
        *,
        follows_objects: bool,
    ) -> None:
        informer = informers[0]
        self.shards: Shards = shards
        """Group of the replicas."""
        self._ranges = ActiveRanges(shards, informer, self._activated, informers)
        self._informer = informer
        self._store = informer.store
        self._resource = informer.resource
        self._by_uid = shards.shard_by == "uid"
        self._follows = follows_objects
        self._work: Work | None = None
        # Uids of queued requests whose objects are not in the store.
        self._absent: dict[ReconcileRequest, str] = {}
        # Number of reconciles and daemons of each range.
        self._in_work = Counter[int]()
        # Objects that timers and daemons know, by range and key.
        self._followed: dict[int, dict[str, KubeObject]] = {}
        # Deletions of objects of ranges that this replica keeps, and does not own yet,
        # by range and key. While a range moves, nobody else takes them.
        self._missed: dict[int, dict[str, Deleted]] = {}
        # Active ranges whose objects are changes again.
        self._new: set[int] = set()
        self._activation = Notifier()

    def __repr__(self) -> str:
        return f"<Sharding {self.shards.name} active={len(self._ranges.active)}>"

    # ------------------------------------------------------------ lifetime

    async def run(self, work: Work) -> None:
        """Take part in the group until cancelled. `leave()` must follow.

        Args:
            work: Work of this run.

        Raises:
            OptionsError: If the group does not run, or has other ranges.
            InformerStopped: If the informer has ended.
        """
        await self.shards.wait_running()
        self._work = work
        self.shards.join(self)
        await run_concurrently(
            self._ranges.run(), self._tell_new(), self._fail_with_group()
        )

    def leave(self) -> None:
        """Leave the group, once all work has ended. Idempotent."""
        self.shards.leave(self)
        self._ranges.leave()
        self._work = None
        self._absent.clear()
        self._followed.clear()
        self._missed.clear()
        self._new.clear()

    async def _fail_with_group(self) -> NoReturn:
        raise await self.shards.failed()

    def _activated(self, numbers: frozenset[int]) -> None:
        self._new |= numbers
        self._activation.notify()

    async def _tell_new(self) -> None:
        """Tell all objects of ranges that became active."""
        budget = LoopBudget.current()
        while True:
            while self._new:
                numbers, self._new = self._new, set()
                for number in numbers:
                    for event in self._missed.pop(number, {}).values():
                        self._tell(event)

                await budget.start()
                try:
                    for key in self._store.list_keys():
                        obj = self._store.get_by_key(key)
                        if obj is not None and self._number(obj) in numbers:
                            self._tell(Added(obj, initial=True))

                        if budget.over():
                            await budget.start()
                finally:
                    budget.end()

            await self._activation.wait()

    def _tell(self, event: Notification) -> None:
        if self._work is not None and self.passes(event):
            self._work.changed(event)

    # ------------------------------------------------------------ the user of the group

    def keep(self, numbers: frozenset[int]) -> None:
        """Keep the objects of these ranges in memory."""
        self._ranges.keep(numbers)
        for number in self._missed.keys() - numbers:
            del self._missed[number]

    def start(self, number: int) -> None:
        """Begin to work on a range."""
        self._ranges.start(number)

    def drain(self, number: int) -> None:
        """Begin no new work on a range. Its timers and daemons end at once."""
        self._ranges.drain(number)
        self._new.discard(number)
        followed = self._followed.pop(number, {})
        if self._work is not None:
            for obj in followed.values():
                self._work.changed(Deleted(obj, reason="moved"))

    def cancel(self, number: int) -> None:
        """Cancel all work on a range."""
        self.drain(number)
        if self._work is not None:
            self._work.cancel_range(number)

    def busy(self, number: int) -> bool:
        """Return True while work on a range is in progress."""
        return self._in_work[number] > 0

    def lacking(self) -> dict[int, str]:
        """Return the owned ranges that are not active yet, and why."""
        return self._ranges.lacking()

    # ------------------------------------------------------------ admission

    def _number(self, obj: KubeObject) -> int:
        return self.shards.range_of(obj)

    def passes(self, event: Notification) -> bool:
        """Return True for a change of `for_` that this controller works on.

        Timers and daemons follow the objects of these changes.
        """
        if isinstance(event, Deleted) and event.reason:
            return False

        obj = event.new if isinstance(event, Updated) else event.obj
        number = self._number(obj)
        if number not in self._ranges.active:
            if isinstance(event, Deleted) and number in self._ranges.kept:
                self._missed.setdefault(number, {})[obj.key] = event

            return False

        if self._follows:
            followed = self._followed.setdefault(number, {})
            if isinstance(event, Deleted):
                followed.pop(obj.key, None)
            else:
                followed[obj.key] = obj

        return True

    def admitted(
        self, requests: Iterable[ReconcileRequest], source: Source, event: Notification
    ) -> list[ReconcileRequest]:
        """Return the requests of a change that belong to active ranges."""
        uids: dict[ReconcileRequest, str] = {}
        if self._by_uid and source.uids is not None:
            if isinstance(event, Updated):
                uids |= source.uids(event.old)
                uids |= source.uids(event.new)
            else:
                uids |= source.uids(event.obj)

        return [it for it in requests if self.admits(it, uids.get(it, ""))]

    def admits(self, request: ReconcileRequest, uid: str = "") -> bool:
        """Return True if a request may be queued.

        Args:
            request: Request.
            uid: Uid of its object, if the change tells it.
        """
        active = self._ranges.active
        if not self._by_uid:
            return self.shards.range_of(request.namespace) in active

        obj = self._store.get_by_key(request.key)
        if obj is not None and self._number(obj) in active:
            return True

        # The object is gone, or has never been of this replica.
        if not uid or self.shards.range_of(uid) not in active:
            return False

        self._absent[request] = uid
        return True

    def begin(self, request: ReconcileRequest) -> tuple[int, str] | None:
        """Begin the work on a request; `ended()` must follow.

        Returns:
            Range, and uid if the object is not in the store; None if this replica does not
            work on it.
        """
        absent = self._absent.pop(request, "")
        if not self._by_uid:
            number, absent = self.shards.range_of(request.namespace), ""
        else:
            obj = self._store.get_by_key(request.key)
            if obj is not None:
                number, absent = self._number(obj), ""
            elif absent:
                number = self.shards.range_of(absent)
            else:
                return None

        if number not in self._ranges.active or not self.shards.owns(number):
            return None

        self._in_work[number] += 1
        return number, absent

    def again(self, request: ReconcileRequest, uid: str) -> None:
        """Keep the uid of a request that is retried or requeued."""
        if uid:
            self._absent.setdefault(request, uid)

    def ended(self, number: int) -> None:
        """End the work on a request of a range, or of a daemon."""
        self._in_work[number] -= 1
        if not self._in_work[number]:
            del self._in_work[number]
            self.shards.work_ended()

    def wrote(self, number: int, writes: PendingWrites) -> None:
        """Record what work on a range has written, for its next owner.

        Args:
            number: Range.
            writes: Writes of the work.
        """
        versions: dict[str, int] = {}
        for informer, version in writes.newest.items():
            # It shows the work, if that has not run into a timeout.
            shown = version_number(informer.store.resource_version)
            if (resource := informer.resource) is not None:
                versions[name_of(resource)] = max(version, shown)

        if versions or writes.unanswered:
            self.shards.wrote(number, versions, unanswered=writes.unanswered)

    def fence(self, number: int) -> RangeFence:
        """Return the check of each write of a reconcile or daemon."""
        return RangeFence(self.shards, number)

    def begin_daemon(self, request: ReconcileRequest) -> int:
        """Begin a call of an object's daemon; `ended()` must follow.

        Returns:
            Range.

        Raises:
            InternalError: If no active range has the object.
        """
        for number, followed in self._followed.items():
            if request.key in followed:
                self._in_work[number] += 1
                return number

        raise InternalError(f"a daemon of {request.key}, which no active range has")

    async def is_gone(
        self, request: ReconcileRequest, uid: str, client: Client
    ) -> bool:
        """Return True unless the server has an object that the informer may not show.

        One that has another uid may belong to another replica, which works on it.

        Args:
            request: Request of the object.
            uid: Uid of the object.
            client: Client that reads it.

        Raises:
            ApiError: If the server refused. For other errors see `Client`.

        Cancellation:
            Safe.
        """
        if self._resource is None:
            return True

        try:
            found = await client.get(
                self._resource, request.name, namespace=request.namespace or None
            )
        except NotFound:
            return True

        # It has left the selection, as by a label. Otherwise its event will come.
        return found.uid == uid and not self._informer.selects(found)
