"""`LeaseCandidate`: registers a replica for a coordinated leader election."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from aioinformer._tasks import run_concurrently
from aioinformer.client.list_watch import ListWatch
from aioinformer.controller.controller import Controller
from aioinformer.controller.reconcile import ReconcileRequest, Result
from aioinformer.errors import NotFound
from aioinformer.informer.shared_informer import SharedInformer
from aioinformer.model.resource import Resource
from aioinformer.model.times import micro_time

if TYPE_CHECKING:
    from aioinformer.client.client import Client
    from aioinformer.controller.context import Context
    from aioinformer.controller.lease_lock import LeaseLock
    from aioinformer.model.objects import KubeObject

__all__ = ["LEASE_CANDIDATES", "LeaseCandidate"]

LEASE_CANDIDATES: Final = Resource(
    "coordination.k8s.io", "v1beta1", "leasecandidates", "LeaseCandidate"
)

RENEW_SECONDS = 300.0
"""Time between two renewals without a ping, as in client-go."""


class LeaseCandidate:
    """Registration of a replica that the API server may elect.

    ::

        lock = LeaseLock(client, "copier")
        manager = Manager(client, elector=LeaderElector(lock, coordinated=True))
        candidate = LeaseCandidate(client, lock, binary_version="1.4.0")
        manager.add(candidate, leader_only=False)

    The coordinator in the kube-apiserver elects the candidate with the lowest versions,
    so that a rolling update moves leadership once. It needs the feature gate
    `CoordinatedLeaderElection` and the API `coordination.k8s.io/v1beta1`.

    It creates the LeaseCandidate with the identity of the lock as its name, and renews it
    every 5 minutes and whenever the coordinator pings it. Failures are retried with
    backoff. The object is left to the coordinator at the end.

    It needs the verbs list, watch, create and update of `leasecandidates` in
    `coordination.k8s.io`.

    Args:
        client: Client that sends the requests. Its owner enters it.
        lock: Lock of the elector, with the Lease, its namespace and the identity.
        binary_version: Version of the program, such as `"1.4.0"`.
        emulation_version: Version that the program emulates; empty for the same.
        strategy: Name of the strategy of the coordinator.
    """

    def __init__(
        self,
        client: Client,
        lock: LeaseLock,
        *,
        binary_version: str,
        emulation_version: str = "",
        strategy: str = "OldestEmulationVersion",
    ) -> None:
        self._client = client
        self._lock = lock
        self._spec = {
            "leaseName": lock.name,
            "binaryVersion": binary_version,
            "emulationVersion": emulation_version or binary_version,
            "strategy": strategy,
        }
        self._renew_at = 0.0

    def __repr__(self) -> str:
        return f"<LeaseCandidate {self._lock.identity} of {self._lock.name}>"

    async def run(self) -> None:
        """Register the replica until cancelled.

        Raises:
            OptionsError: If the client was not entered.

        Cancellation:
            Stops it. The LeaseCandidate remains.
        """
        name, namespace = self._lock.identity, self._lock.namespace
        own = ListWatch(
            self._client,
            LEASE_CANDIDATES,
            namespace=namespace,
            field_selector=f"metadata.name={name}",
        )
        informer = SharedInformer(own, name=f"candidate of {self._lock.name}")
        controller = Controller(
            informer.name,
            self._ensure,
            for_=informer,
            client=self._client,
            cache_sync_timeout=None,
        )
        self._renew_at = 0.0
        # The object may not exist, and then nothing changes.
        controller.queue.add(ReconcileRequest(namespace, name))
        await run_concurrently(informer.run(), controller.run())

    async def _ensure(self, request: ReconcileRequest, ctx: Context) -> Result:
        now = asyncio.get_running_loop().time()
        known = ctx.lister.get(request.key)
        if known is None or _is_pinged(known) or now >= self._renew_at:
            await self._renew(known, ctx)
            self._renew_at = now + RENEW_SECONDS

        return Result(requeue_after=self._renew_at - now)

    async def _renew(self, known: KubeObject | None, ctx: Context) -> None:
        renewed = {"renewTime": micro_time(datetime.now(UTC))}
        metadata = {"name": self._lock.identity, "namespace": self._lock.namespace}
        if known is not None:
            body: dict[str, Any] = known.to_dict()
            body["spec"] = body["spec"] | self._spec | renewed
            try:
                await ctx.client.update(LEASE_CANDIDATES, body)
            except NotFound:  # deleted by the coordinator
                pass
            else:
                return

        body = {"metadata": metadata, "spec": self._spec | renewed}
        await ctx.client.create(LEASE_CANDIDATES, body, namespace=self._lock.namespace)


def _is_pinged(candidate: KubeObject) -> bool:
    """Return True if the coordinator waits for a renewal."""
    pinged, renewed = candidate.at("spec.pingTime"), candidate.at("spec.renewTime")
    # The server writes both with microseconds, in UTC.
    return pinged is not None and (renewed is None or pinged > renewed)
