"""`LeaseLock`: the Lease of a leader election."""

from __future__ import annotations

import os
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

__all__ = ["LeaseClient", "LeaseLock", "ReplicaIdentity"]


class ReplicaIdentity:
    """Identity of a replica: a given one, or the host name and a random suffix.

    A fork of the process is another replica, so it gets another suffix. Web servers may
    import a program once, and fork it for each worker.
    """

    def __init__(self, given: str | None) -> None:
        self._given = given
        self._random = ""
        self._process = 0

    def __str__(self) -> str:
        """Return the identity in this process."""
        if self._given is not None:
            return self._given

        if self._process != os.getpid():
            # Other threads read it, too.
            self._random = f"{socket.gethostname()}_{uuid.uuid4()}"
            self._process = os.getpid()

        return self._random


class LeaseClient(Protocol):
    """Part of `Client` that a lock uses."""

    @property
    def namespace(self) -> str:
        """Default namespace of the Lease."""

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
        """Replace an object, if it still has the version of the body."""


class LeaseLock:
    """Lease that a `LeaderElector` reads and writes under one identity.

    A write succeeds only if the Lease has not changed since this lock last read or
    wrote it. Labels, annotations and other fields of the Lease are preserved.

    It needs the verbs get, create and update of `leases` in `coordination.k8s.io`, and
    belongs to one elector.

    Args:
        client: Client that sends the requests, without waiting for its `qps`. Its owner
            enters it.
        name: Name of the Lease, the same for all replicas.
        namespace: Namespace of the Lease. None for that of the client, which in a
            cluster is that of the pod.
        identity: Unique identity of this replica. None for the host name (in a cluster,
            that of the pod) and a random suffix, another one in each fork of the
            process.
        labels: Labels to add to the Lease.

    Raises:
        OptionsError: If the name is no text, or the name, the namespace or the identity
            is empty.
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
        if not isinstance(name, str):
            raise OptionsError(
                f"the name of a LeaseLock must be a str, not {name!r}: call "
                "LeaseLock(client, name)"
            )

        given = {"name": name, "namespace": namespace, "identity": identity}
        empty = [what for what, text in given.items() if text == ""]
        if empty:
            raise OptionsError(f"the {empty[0]} of a LeaseLock cannot be empty")

        self.name = name
        self._identity = ReplicaIdentity(identity)
        self._client: LeaseClient = (
            ElectionClient(client) if isinstance(client, Client) else client
        )
        self._namespace = namespace
        self._labels = dict(labels or {})
        # As it was last read or written.
        self._lease: KubeObject | None = None

    def __repr__(self) -> str:
        return f"<LeaseLock {self.name} as {self.identity}>"

    @property
    def identity(self) -> str:
        """Identity of this replica."""
        return str(self._identity)

    @property
    def namespace(self) -> str:
        """Namespace of the Lease.

        Raises:
            OptionsError: If none was given and the client was never entered.
        """
        return self._client.namespace if self._namespace is None else self._namespace

    async def get(self) -> LeaseRecord | None:
        """Read the Lease, or return None if it does not exist.

        Raises:
            ApiError: If the server refused. For other errors see `Client`.

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
        """Create the Lease.

        Raises:
            AlreadyExists: If the Lease exists. For other errors see `Client`.

        Cancellation:
            The Lease may have been created.
        """
        metadata = {"name": self.name, "labels": self._labels}
        self._lease = await self._client.create(
            LEASES,
            {"metadata": metadata, "spec": record.spec()},
            namespace=self.namespace,
        )

    async def update(self, record: LeaseRecord) -> None:
        """Write the Lease, if it has not changed since this lock last read or wrote it.

        Raises:
            Conflict: If it has changed, or was deleted: read it again.
            OptionsError: If it was neither read nor created before. For other errors
                see `Client`.

        Cancellation:
            The Lease may have been written.
        """
        if self._lease is None:
            raise OptionsError("the Lease is unknown: call get() or create() first")

        lease = self._lease.to_dict()
        lease["spec"] = {**(lease.get("spec") or {}), **record.spec()}
        if self._labels:
            metadata = lease["metadata"]
            metadata["labels"] = {**(metadata.get("labels") or {}), **self._labels}

        self._lease = await self._client.update(LEASES, lease, namespace=self.namespace)


def _record_of(lease: KubeObject) -> LeaseRecord:
    spec = lease.at("spec")
    return LeaseRecord.of({} if spec is None else spec)
