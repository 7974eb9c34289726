"""Restarts of a program whose store stays: it resumes, or lists and compares."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from informer_helpers import running
from metrics_helpers import PlainSink
from resume_helpers import Program, Recorded, Store
from scenes import (
    Churn,
    client_of,
    config_map,
    create,
    fresh,
    remove,
    up,
)

from aioinformer import SharedInformerFactory
from aioinformer.model.resources import CONFIG_MAPS, EVENTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    import aiohttp
    from contract_servers import ServerUnderTest
    from control_plane import ControlPlane
    from scenes import Recovery

    from aioinformer import Resource, SharedInformer

pytest_plugins = ["scenario_servers"]
pytestmark = [pytest.mark.e2e, pytest.mark.realtime, pytest.mark.looptime(False)]

RBAC = "apis/rbac.authorization.k8s.io/v1"
LOST_WRITES = 500


class Place:
    """A collection of one namespace, and the store of a program that follows it."""

    def __init__(
        self, server: ServerUnderTest, resource: Resource, token: str = ""
    ) -> None:
        self.server = server
        self.path = server.path(resource.plural)
        self.store = Store()
        self.resource = resource
        self._token = token
        self.requests: list[str] = []

    @asynccontextmanager
    async def program(self) -> AsyncIterator[Program]:
        """Run the program during the block, with a client of its own."""
        async with client_of(self.server, token=self._token) as client:
            source = Recorded(client, self.resource, namespace=self.server.namespace)
            self.requests = source.requests
            program = Program(self.store, source)
            async with running(program.run()):
                yield program

    async def same(self) -> None:
        """Wait until the store equals a fresh list."""
        async with self.server.session() as http:
            while self.store.objects != await fresh(http, self.path):
                await asyncio.sleep(0.1)

    async def fill(self, http: aiohttp.ClientSession) -> None:
        """Create objects, and run the program until it has stored them."""
        await create(http, self.path, [self.body(f"old-{n}") for n in range(20)])
        async with self.program() as program:
            await program.until_synced()
            await self.same()

    def body(self, name: str) -> dict[str, Any]:
        if self.resource is CONFIG_MAPS:
            return config_map(name)

        place = self.server.namespace
        regarding = {"kind": "Pod", "namespace": place, "name": "web"}
        metadata = {"name": name}
        return {"metadata": metadata, "involvedObject": regarding, "reason": "Tested"}


async def test_restart_resumes_the_watch_and_lists_nothing(
    server: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    place = Place(server, CONFIG_MAPS)
    await place.fill(http)
    await create(http, place.path, [place.body("new")])
    await remove(http, f"{place.path}/old-7")

    async with place.program() as program:
        await program.until_synced()
        assert program.synced_after is not None
        assert program.synced_after < 1.5
        await place.same()

    assert place.requests == ["uid", "watch"]
    assert len(place.store.objects) == 20


async def test_restart_without_changes_is_synced_by_silence(
    server: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    place = Place(server, CONFIG_MAPS)
    await place.fill(http)

    async with place.program() as program:
        await program.until_synced()

    assert program.synced_after is not None
    assert program.synced_after < 2
    assert place.requests == ["uid", "watch"]


@pytest.mark.timeout(300)
async def test_version_that_was_compacted_meanwhile_leads_to_one_list(
    own: ServerUnderTest, recovery: Callable[[str], Recovery]
) -> None:
    async with own.session() as http:
        # etcd itself serves watches of events: the server does not cache them.
        place = Place(own, EVENTS)
        await place.fill(http)
        await create(http, place.path, [place.body("new")])
        await remove(http, f"{place.path}/old-7")
        await own.compact()

        async with place.program() as program, recovery("compacted"):
            await program.until_synced()
            await place.same()

    assert place.requests == ["uid", "watch", "uid", "list", "watch"]
    assert "old-7" not in {key.partition("/")[2] for key in place.store.objects}


@pytest.mark.timeout(300)
async def test_restart_while_the_server_is_down_ends_when_it_is_up(
    own: ServerUnderTest, plane: ControlPlane, recovery: Callable[[str], Recovery]
) -> None:
    place = Place(own, CONFIG_MAPS)
    async with own.session() as http:
        await place.fill(http)
        await remove(http, f"{place.path}/old-7")

    plane.kill("kube-apiserver")
    async with place.program() as program:
        await asyncio.sleep(5)
        assert program.synced_after is None
        assert len(place.store.objects) == 20

        plane.start("kube-apiserver")
        await up(plane)
        async with recovery("outage"):
            await program.until_synced()
            await place.same()

    assert len(place.store.objects) == 19


@pytest.mark.timeout(400)
async def test_server_restored_from_a_backup_meanwhile_is_compared(
    own: ServerUnderTest, plane: ControlPlane, recovery: Callable[[str], Recovery]
) -> None:
    place = Place(own, CONFIG_MAPS)
    async with own.session() as http:
        await place.fill(http)

    plane.stop()
    plane.save()
    plane.start("etcd")
    plane.start("kube-apiserver")
    await up(plane)
    kept = place.store.objects
    async with own.session() as http, place.program() as program:
        await program.until_synced()
        await Churn(http, place.path).go(LOST_WRITES)
        await remove(http, f"{place.path}/old-7")
        await place.same()

    assert place.store.objects != kept
    plane.kill("kube-apiserver")
    plane.kill("etcd")
    plane.restore()
    plane.start("etcd")
    plane.start("kube-apiserver")
    await up(plane)
    async with place.program() as program, recovery("restored"):
        await place.same()

    assert place.store.objects == kept
    assert program.reflector.history_resets == 1


# ---------------------------------------------------------------- on disk


class Cached:
    """A program with a cache directory; each run has its own client."""

    def __init__(self, place: Place, path: Path) -> None:
        self._place = place
        self._path = path
        self.lists = 0
        self.missed: list[str] = []

    @asynccontextmanager
    async def program(self) -> AsyncIterator[SharedInformer]:
        """Run the program during the block, from its sync on."""
        sink = PlainSink()
        server = self._place.server
        factory = SharedInformerFactory(
            client_of(server), cache_dir=self._path, metrics=sink
        )
        informer = factory.informer(self._place.resource, namespace=server.namespace)
        self.missed.clear()
        informer.add_event_handler(on_delete=lambda it: self.missed.append(it.name))
        async with factory:
            await informer.wait_synced(timeout=60)
            yield informer
            self.lists = sum(
                count
                for (name, _), count in sink.counts.items()
                if name == "reflector_lists_total"
            )

    async def same(self, informer: SharedInformer, http: aiohttp.ClientSession) -> None:
        """Wait until the store equals a fresh list."""
        while {
            it.key: (it.uid, it.resource_version) for it in informer.store.list()
        } != await fresh(http, self._place.path):
            await asyncio.sleep(0.1)


@pytest.mark.timeout(400)
async def test_cache_directory_survives_restarts_and_histories(
    own: ServerUnderTest,
    plane: ControlPlane,
    recovery: Callable[[str], Recovery],
    tmp_path: Path,
) -> None:
    place = Place(own, EVENTS)
    cached = Cached(place, tmp_path)
    async with own.session() as http:
        await create(http, place.path, [place.body(f"old-{n}") for n in range(20)])
        async with cached.program() as informer:
            await cached.same(informer, http)

        assert cached.lists == 1

        await remove(http, f"{place.path}/old-1")
        async with cached.program() as informer:
            await cached.same(informer, http)

        assert (cached.lists, cached.missed) == (0, ["old-1"])

        await remove(http, f"{place.path}/old-2")
        await own.compact()
        async with cached.program() as informer, recovery("compacted"):
            await cached.same(informer, http)

        assert (cached.lists, cached.missed) == (1, ["old-2"])

    plane.stop()
    plane.save()
    plane.start("etcd")
    plane.start("kube-apiserver")
    await up(plane)
    async with own.session() as http:
        await create(http, place.path, [place.body(f"new-{n}") for n in range(20)])
        await Churn(http, own.path("configmaps")).go(LOST_WRITES)
        async with cached.program() as informer:
            await cached.same(informer, http)

    plane.kill("kube-apiserver")
    plane.kill("etcd")
    plane.restore()
    plane.start("etcd")
    plane.start("kube-apiserver")
    await up(plane)
    async with (
        own.session() as http,
        cached.program() as informer,
        recovery("restored"),
    ):
        await cached.same(informer, http)

    assert len(cached.missed) == 20


async def test_history_is_checked_if_the_uid_is_forbidden(
    server: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}
    group = "rbac.authorization.k8s.io"
    role = {"metadata": {"name": "reader"}, "rules": [rule]}
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "User", "name": "alice", "apiGroup": group}],
    }
    await create(http, server.path("roles", RBAC), [role])
    await create(http, server.path("rolebindings", RBAC), [binding])
    place = Place(server, CONFIG_MAPS, server.user_token)
    await place.fill(http)
    assert place.store.cluster == ""
    # The first object of the list is one that the store has.
    await create(http, place.path, [place.body("young")])

    async with place.program() as program:
        await program.until_synced()
        await place.same()

    assert place.requests == ["uid", "check", "watch"]
    assert program.reflector.history_resets == 0
