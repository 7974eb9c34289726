"""`LeaseLock`: the Lease that replicas elect their leader by."""

from __future__ import annotations

import socket
import uuid
from typing import TYPE_CHECKING, Any, Protocol

from aioinformer.client.client import Client
from aioinformer.controller.client import ElectionClient
from aioinformer.controller.lease_record import LeaseRecord
from aioinformer.errors import NotFound, OptionsError
from aioinformer.model.resources import LEASES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource

__all__ = ["LeaseClient", "LeaseLock"]


class LeaseClient(Protocol):
    """What a lock needs of a `Client`; for the meanings see there."""

    @property
    def namespace(self) -> str:
        """Where the Lease is, unless told."""

    async def get(
        self, resource: Resource, name: str, *, namespace: str | None = None
    ) -> KubeObject:
        """Read one object."""

    async def create(
        self, resource: Resource, body: Any, *, namespace: str | None = None
    ) -> KubeObject:
        """Create an object."""

    async def update(
        self, resource: Resource, body: Any, *, namespace: str | None = None
    ) -> KubeObject:
        """Replace an object, if it is of the version that the body has."""


class LeaseLock:
    """One Lease, read and written under one identity; for `LeaderElector`.

    A write succeeds only if nobody has written since this lock has read or written the
    Lease last: that is what makes an election of it. What others keep in the Lease
    (labels, annotations, further fields of the spec) is left as it is.

    Needs the verbs get, create and update of `leases` in `coordination.k8s.io`. It is
    for one elector.

    Args:
        client: Sends the requests; entered by whom it belongs to. They are sent at once,
            whatever waits for its `qps`.
        name: The Lease's. All replicas have the same.
        namespace: Where it is; None for the client's own, which is the pod's in a
            cluster.
        identity: Under which this replica leads; no two may have the same. None for the
            name of the host (in a cluster, of the pod) and something random.
        labels: Put on the Lease, besides those that it has.

    Raises:
        OptionsError: If the name, the namespace or the identity is empty.
    """

    def __init__(
        self,
        client: LeaseClient,
        name: str,
        *,
        namespace: str | None = None,
        identity: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        given = {"name": name, "namespace": namespace, "identity": identity}
        empty = [what for what, text in given.items() if text == ""]
        if empty:
            raise OptionsError(f"the {empty[0]} of a lease lock cannot be empty")

        self.name = name
        self.identity = (
            f"{socket.gethostname()}_{uuid.uuid4()}" if identity is None else identity
        )
        self._client: LeaseClient = (
            ElectionClient(client) if isinstance(client, Client) else client
        )
        self._namespace = namespace
        self._labels = dict(labels or {})
        # As it was read or written last.
        self._lease: KubeObject | None = None

    def __repr__(self) -> str:
        return f"<LeaseLock {self.name} as {self.identity}>"

    @property
    def namespace(self) -> str:
        """Where the Lease is.

        Raises:
            OptionsError: If none was given, and the client was never entered.
        """
        return self._client.namespace if self._namespace is None else self._namespace

    async def get(self) -> LeaseRecord | None:
        """Read it; None if there is none.

        Raises:
            ApiError: If the server refused; for other errors see `Client`.

        Cancellation:
            Safe.
        """
        try:
            lease = await self._client.get(LEASES, self.name, namespace=self.namespace)
        except NotFound:
            return None

        self._lease = lease
        return _record_of(lease)

    async def create(self, record: LeaseRecord) -> None:
        """Create it.

        Raises:
            AlreadyExists: If somebody was faster; for other errors see `Client`.

        Cancellation:
            It may have been created.
        """
        metadata = {"name": self.name, "labels": self._labels}
        self._lease = await self._client.create(
            LEASES,
            {"metadata": metadata, "spec": record.spec()},
            namespace=self.namespace,
        )

    async def update(self, record: LeaseRecord) -> None:
        """Write it, if nobody has since it was read or written here.

        Raises:
            Conflict: If somebody has: read it again.
            NotFound: If it is gone, from a server that does not create it again; a
                kube-apiserver does, for leases.
            OptionsError: If it was neither read nor created before. For other errors
                see `Client`.

        Cancellation:
            It may have been written.
        """
        if self._lease is None:
            raise OptionsError("the lease is not known yet: call get() or create()")

        lease = self._lease.to_dict()
        lease["spec"] = {**(lease.get("spec") or {}), **record.spec()}
        if self._labels:
            metadata = lease["metadata"]
            metadata["labels"] = {**(metadata.get("labels") or {}), **self._labels}

        self._lease = await self._client.update(LEASES, lease, namespace=self.namespace)


def _record_of(lease: KubeObject) -> LeaseRecord:
    spec = lease.at("spec")
    return LeaseRecord.of({} if spec is None else spec)
