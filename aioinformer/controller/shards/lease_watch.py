"""`LeaseWatch`: follows the Leases of a shard group, and replaces a watch that lags."""

from __future__ import annotations

import asyncio
import math
import random
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol

from aioinformer._user_code import guarded_logger
from aioinformer.backoff import Failure, failure_of
from aioinformer.cache import OrderedFIFO
from aioinformer.client.list_watch import ListWatch
from aioinformer.controller.shards.lease import GROUP_LABEL, ShardLease
from aioinformer.errors import DecodeError
from aioinformer.informer.listwatch.recovery import (
    Recovery,
    is_refusal,
    recovery_for,
)
from aioinformer.informer.notifications import Deleted, object_of
from aioinformer.informer.shared_informer import SharedInformer
from aioinformer.model.object_meta import version_number
from aioinformer.model.resources import LEASES

if TYPE_CHECKING:
    from aioinformer.controller.client import ElectionClient
    from aioinformer.informer.notifications import Notification
    from aioinformer.informer.status import InformerStatus
    from aioinformer.model.objects import KubeObject

__all__ = ["LeaseReader", "LeaseWatch"]

logger: Final = guarded_logger(__name__)

SHOWN_SECONDS: Final = 3.0
"""Time within which the watch shows a change that the answer to a write has proved. Later,
it is replaced: it may have stalled, or wait for its next attempt after an outage."""

_LONGEST_SECONDS: Final = 60.0
"""Longest such time. It doubles with each replacement that does not help."""

_CHECK_SECONDS: Final = 0.5
"""Less than an informer waits before its second attempt."""

_FAILURES: Final = 3
_PATIENCE_SECONDS: Final = 12.0

_PAUSE_SECONDS: Final = 7.0
"""Pause before another attempt if a replaced watch fails at once, without jitter."""


class LeaseReader(Protocol):
    """Reader of the Leases, in the order in which the watch shows them."""

    def lease_seen(self, lease: ShardLease) -> None:
        """Take a Lease that was created or changed."""

    def lease_gone(self, name: str, *, missed: bool) -> None:
        """Take the name of a Lease that was deleted, perhaps while disconnected."""

    def leases_synced(self) -> None:
        """Take note that all Leases of a list were passed on."""


class LeaseWatch:
    """List and watch of the Leases of one group, by one informer after another.

    Args:
        client: Client that sends the requests.
        group: Name of the group.
        namespace: Namespace of the Leases.
        reader: Reader of the Leases.
        memory: Seconds for which the reader relies on what it was told.
    """

    def __init__(
        self,
        client: ElectionClient,
        group: str,
        namespace: str,
        reader: LeaseReader,
        memory: float,
    ) -> None:
        self._group = group
        self._source = ListWatch(
            client, LEASES, namespace=namespace, label_selector=f"{GROUP_LABEL}={group}"
        )
        self._reader = reader
        self._memory = memory
        self._informer: SharedInformer | None = None
        self._began = 0.0
        # Versions of the Leases that the reader knows, by name.
        self._shown: dict[str, str] = {}
        # Highest version that was passed on, and when that was.
        self._newest = -1
        self._passed_at = -math.inf
        # Versions of Leases that are known to be old, and since when.
        self._outdated: dict[str, tuple[str, float]] = {}
        self._shown_seconds = SHOWN_SECONDS
        # Names of Leases that exist, but not in this group.
        self._foreign: set[str] = set()
        # True once the list of the informer was passed on, and if it needs another one.
        self._passed = self._expired = False
        # True while watches are replaced because they fail.
        self._failing = False

    def __repr__(self) -> str:
        return f"<LeaseWatch of {self._group} {len(self._shown)} leases>"

    @property
    def problem(self) -> Exception | None:
        """Error of the last list or watch; None after a success."""
        status = self._status()
        error = None if status is None else status.last_error
        return error if isinstance(error, Exception) else None

    def answered(self, name: str, version: str) -> None:
        """Record that the server has another state of a Lease than this version.

        It was written, or the version was refused. The watch has to show that.
        """
        if self._shown.get(name, "") == version and name not in self._foreign:
            self._outdated.setdefault(name, (version, _now()))

    async def run(self) -> None:
        """Follow the Leases until cancelled.

        Raises:
            BaseExceptionGroup: After a bug of this package.

        Cancellation:
            Ends it, without a task or a connection.
        """
        while True:
            informer = SharedInformer(
                self._source,
                name=f"leases of shards {self._group}",
                # The reader gets the writes in the order of the server.
                queue=OrderedFIFO(key_func=attrgetter("key")),
            )
            informer.set_watch_error_handler(self._failed)
            self._informer, self._began = informer, _now()
            self._passed = self._expired = False
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(informer.run(), name=informer.name),
                    group.create_task(self._pass_on(informer)),
                ]
                while True:
                    await asyncio.sleep(_CHECK_SECONDS)
                    fails = self._fails()
                    if fails or self._expired or self._is_late():
                        break

                for task in tasks:
                    task.cancel()

            if fails and self._failing:
                asked = getattr(self.problem, "retry_after", None) or 0.0
                pause = max(_PAUSE_SECONDS, min(asked, _PATIENCE_SECONDS))
                await asyncio.sleep(pause * random.uniform(0.75, 1.25))
                continue

            # The informer and the writes log their errors.
            logger.info(
                "shards %s: the watch of Leases is behind, replacing it (last error: %s)",
                self._group,
                self.problem,
            )
            self._failing |= fails

    async def _pass_on(self, informer: SharedInformer) -> None:
        """Pass on the list in one step, and then each change.

        A member that saw a part of a list would take its own Lease for a sign that it
        has seen everything before. So the list of another informer replaces a relist. One
        that is older than what was shown would bring back deleted fences: the server that
        sent it is behind others.
        """
        unknown = [it for it, (version, _) in self._outdated.items() if not version]
        self._outdated.clear()
        await informer.wait_synced(fail_fast=False)
        version = version_number(informer.store.resource_version)
        if version < self._newest and _now() - self._passed_at < self._memory:
            self._expired = True
            return

        listed = informer.indexer.list()
        self._foreign.update(set(unknown) - {it.name for it in listed})
        for name in self._shown.keys() - {it.name for it in listed}:
            self._note(name, "")
            self._reader.lease_gone(name, missed=True)

        for it in listed:
            self._take(it)

        self._reader.leases_synced()
        self._passed, self._newest, self._passed_at = True, version, _now()
        informer.add_event_handler(on_event=self._notice, name="member")

    def _failed(self, error: Exception) -> None:
        """Ignore the informer if it cannot continue its watch."""
        if self._passed and recovery_for(error) is not Recovery.RESUME:
            self._expired = True

    def _is_late(self) -> bool:
        since = min((it for _, it in self._outdated.values()), default=math.inf)
        if _now() - since > self._shown_seconds:
            self._shown_seconds = min(2 * self._shown_seconds, _LONGEST_SECONDS)
            return True

        return False

    def _fails(self) -> bool:
        """Return True if attempts fail, and the next one would come too late.

        The backoff of an informer would keep the member out for up to a minute.
        """
        status, error = self._status(), self.problem
        old = _now() - self._began > _PATIENCE_SECONDS
        if status is None or error is None or is_refusal(error):
            self._failing &= not old
            return False

        if failure_of(error) is Failure.UNREACHABLE:
            return False  # tried each second

        return self._failing or (old and status.failures >= _FAILURES)

    def _status(self) -> InformerStatus | None:
        return None if self._informer is None else self._informer.status

    def _notice(self, event: Notification) -> None:
        if self._expired:
            return

        obj = object_of(event)
        self._newest = max(self._newest, version_number(obj.resource_version))
        self._passed_at = _now()
        if isinstance(event, Deleted):
            self._note(obj.name, "")
            self._reader.lease_gone(obj.name, missed=event.final_state_unknown)
        else:
            self._take(obj)

    def _take(self, obj: KubeObject) -> None:
        if self._shown.get(obj.name) == obj.resource_version:
            return  # the handler begins with the list

        self._note(obj.name, obj.resource_version)
        try:
            lease = ShardLease.of(obj)
        except DecodeError as exc:
            logger.warning(
                "shards %s: ignoring Lease %s: %s", self._group, obj.key, exc
            )
        else:
            self._reader.lease_seen(lease)

    def _note(self, name: str, version: str) -> None:
        """Record the version that is shown; empty after a deletion."""
        if version:
            self._shown[name] = version
        else:
            self._shown.pop(name, None)

        self._foreign.discard(name)
        outdated = self._outdated.get(name)
        if outdated is not None and outdated[0] != version:
            del self._outdated[name]
            if not self._outdated:
                self._shown_seconds = SHOWN_SECONDS


def _now() -> float:
    return asyncio.get_running_loop().time()
