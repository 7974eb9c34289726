"""`LeaseLock` with a server: reads, writes and conflicts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aioinformer import Client, Conflict, LeaderElector
from aioinformer.controller import LeaseLock, LeaseRecord
from aioinformer.errors import AlreadyExists, Forbidden, OptionsError
from aioinformer.model.resources import LEASES
from aioinformer.testing import APIServer, faults

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TIME = "2026-08-01T12:00:00.000000Z"
LATER = "2026-08-01T12:00:02.000000Z"
OURS = LeaseRecord("us", 15, TIME, TIME, 0)


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[APIServer, Client]]:
    async with APIServer() as server, server.client() as client:
        yield server, client


def stored(server: APIServer) -> dict[str, Any]:
    lease: dict[str, Any] = server.get(LEASES, "copier")
    return lease


async def test_get_returns_none_without_lease() -> None:
    async with cluster() as (server, client):
        lock = LeaseLock(client, "copier", labels={"app": "copier"})
        assert await lock.get() is None

        await lock.create(OURS)
        lease = stored(server)
        assert lease["spec"] == OURS.spec()
        assert lease["metadata"]["labels"] == {"app": "copier"}
        assert lease["metadata"]["namespace"] == client.namespace
        assert await lock.get() == OURS


async def test_second_create_conflicts() -> None:
    async with cluster() as (_, client):
        await LeaseLock(client, "copier").create(OURS)
        with pytest.raises(AlreadyExists):
            await LeaseLock(client, "copier").create(OURS)


async def test_lease_is_updated_repeatedly_without_read() -> None:
    async with cluster() as (server, client):
        lock = LeaseLock(client, "copier")
        await lock.create(OURS)
        for number in range(3):
            await lock.update(LeaseRecord("us", 15, TIME, LATER, number))

        assert stored(server)["spec"]["leaseTransitions"] == 2
        assert stored(server)["spec"]["renewTime"] == LATER
        assert [it.method for it in server.requests] == ["POST", "PUT", "PUT", "PUT"]


async def test_update_of_changed_lease_conflicts() -> None:
    async with cluster() as (server, client):
        one, two = (LeaseLock(client, "copier", identity=it) for it in "ab")
        await one.create(OURS)
        await two.get()
        await two.update(LeaseRecord("b", 15, TIME, TIME, 1))
        with pytest.raises(Conflict):
            await one.update(OURS)

        assert stored(server)["spec"]["holderIdentity"] == "b"
        await one.get()
        await one.update(LeaseRecord("a", 15, TIME, TIME, 2))
        assert stored(server)["spec"]["holderIdentity"] == "a"


async def test_update_keeps_other_fields_of_lease() -> None:
    async with cluster() as (server, client):
        metadata = {
            "name": "copier",
            "labels": {"app": "theirs", "team": "blue"},
            "annotations": {"why": "because"},
        }
        spec = {"strategy": "OldestEmulationVersion", "holderIdentity": "them"}
        server.create(LEASES, {"metadata": metadata, "spec": spec})
        lock = LeaseLock(client, "copier", labels={"app": "copier"})
        assert await lock.get() == LeaseRecord("them")

        await lock.update(OURS)
        lease = stored(server)
        assert lease["metadata"]["labels"] == {"app": "copier", "team": "blue"}
        assert lease["metadata"]["annotations"] == {"why": "because"}
        assert lease["spec"] == OURS.spec() | {"strategy": "OldestEmulationVersion"}


async def test_lease_without_spec_has_no_holder() -> None:
    async with cluster() as (server, client):
        server.create(LEASES, {"metadata": {"name": "copier"}})
        lock = LeaseLock(client, "copier")
        assert await lock.get() == LeaseRecord()

        await lock.update(OURS)
        assert stored(server)["spec"] == OURS.spec()


async def test_update_of_unknown_lease_is_refused() -> None:
    async with cluster() as (_, client):
        with pytest.raises(OptionsError, match=r"call get\(\) or create\(\)"):
            await LeaseLock(client, "copier").update(OURS)


async def test_update_of_deleted_lease_conflicts() -> None:
    # The update of most other resources would fail with 404.
    async with cluster() as (server, client):
        lock = LeaseLock(client, "copier")
        await lock.create(OURS)
        server.delete(LEASES, "copier")
        with pytest.raises(Conflict):
            await lock.update(OURS)

        assert await lock.get() is None
        await lock.create(OURS)
        assert stored(server)["spec"] == OURS.spec()


async def test_update_of_recreated_lease_conflicts() -> None:
    async with cluster() as (server, client):
        one, two = (LeaseLock(client, "copier", identity=it) for it in "ab")
        await one.create(OURS)
        server.delete(LEASES, "copier")
        await two.create(LeaseRecord("b", 15, TIME, TIME, 0))
        with pytest.raises(Conflict):
            await one.update(OURS)

        assert stored(server)["spec"]["holderIdentity"] == "b"


async def test_lock_raises_refusals_of_server() -> None:
    async with cluster() as (server, client):
        server.faults.add(faults.Refuse(status=403, verb="get"))
        with pytest.raises(Forbidden):
            await LeaseLock(client, "copier").get()


async def test_lease_is_in_given_namespace() -> None:
    async with cluster() as (server, client):
        lock = LeaseLock(client, "copier", namespace="default")
        await lock.create(OURS)

        assert lock.namespace == "default"
        assert server.objects(LEASES)[0]["metadata"]["namespace"] == "default"


def test_default_identities_have_host_and_differ() -> None:
    client = Client.from_url("http://127.0.0.1:1")
    identities = {LeaseLock(client, "copier").identity for _ in range(3)}

    assert len(identities) == 3
    assert all(it.startswith(f"{socket.gethostname()}_") for it in identities)


async def test_fork_of_a_process_elects_as_another_replica(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster() as (server, client):
        elector = LeaderElector(LeaseLock(client, "copier"))
        parent = elector.identity
        monkeypatch.setattr(os, "getpid", lambda: -1)
        async with elector.leading():
            holder = stored(server)["spec"]["holderIdentity"]
            assert holder == elector.identity == elector.leader
            assert holder != parent


FORKS = """
import os
from aioinformer import Client, Shards
from aioinformer.controller import LeaseLock

client = Client.from_url("http://127.0.0.1:1")
made = [LeaseLock(client, "copier"), Shards("sites", client)]
given = LeaseLock(client, "copier", identity="us").identity
before = {it.identity for it in made}
if not os.fork():
    print(len(before | {it.identity for it in made}), given, flush=True)
    os._exit(0)
os.wait()
assert before == {it.identity for it in made}
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_identities_of_fork_differ() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, check=True
    )
    assert done.stdout == "4 us\n"


def test_repr_shows_name_and_identity() -> None:
    lock = LeaseLock(Client.from_url("http://127.0.0.1:1"), "copier", identity="a")

    assert repr(lock) == "<LeaseLock copier as a>"


@pytest.mark.parametrize("empty", ["name", "namespace", "identity"])
def test_lock_refuses_empty_options(empty: str) -> None:
    given: dict[str, Any] = {"name": "copier", empty: ""}
    with pytest.raises(OptionsError, match=f"the {empty} of a LeaseLock"):
        LeaseLock(Client.from_url("http://127.0.0.1:1"), **given)


def test_swapped_arguments_are_refused() -> None:
    client: Any = Client.from_url("http://127.0.0.1:1")
    name: Any = "copier"
    with pytest.raises(OptionsError, match=r"must be a str, not <Client .*call LeaseL"):
        LeaseLock(name, client)

    with pytest.raises(OptionsError, match=r"needs a lock with an identity.*'copier'"):
        LeaderElector(name)
