"""Restarts of a reflector whose store stays: with a test server, in virtual time.

The store is in memory, and stands for one on disk.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pytest
from conftest import pod
from informer_helpers import running

from aioinformer.cache import Indexer
from aioinformer.client import ListWatch
from aioinformer.informer.handlers.processor import Processor
from aioinformer.informer.listwatch.interface import Resume
from aioinformer.informer.listwatch.reflector import Reflector
from aioinformer.informer.store.pipeline import Pipeline
from aioinformer.model.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, PODS
from aioinformer.testing import APIServer
from aioinformer.testing.server import DirectEndpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.model import KubeObject


def new_pod(name: str) -> dict[str, Any]:
    body = pod(name, "shop")
    del body["metadata"]["resourceVersion"]
    return body


class Store:
    """A store that outlives the programs that write it, like one on disk."""

    def __init__(self) -> None:
        self.indexer: Indexer[KubeObject] = Indexer(key_func=attrgetter("key"))
        self.cluster = ""
        self.listed = False

    @property
    def objects(self) -> dict[str, str]:
        return {it.key: it.resource_version for it in self.indexer.list()}


class Program:
    """One run of a reflector and its pipeline."""

    def __init__(self, store: Store, source: ListWatch) -> None:
        self.store = store
        self.pipeline = Pipeline(store.indexer, Processor(), self._synced)
        version = store.indexer.resource_version if store.listed else ""
        if version:
            self.pipeline.resume(version)

        resume = Resume(
            version=version,
            cluster=store.cluster,
            on_cluster=self._found,
            on_confirmed=self.pipeline.confirm,
        )
        self.reflector = Reflector(source, self.pipeline, resume=resume, name="pods")
        self.began = asyncio.get_running_loop().time()
        self.synced_after: float | None = None

    def _found(self, uid: str) -> None:
        self.store.cluster = uid

    def _synced(self) -> None:
        self.store.listed = True
        self.synced_after = asyncio.get_running_loop().time() - self.began

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pipeline.run())
            group.create_task(self.reflector.run())

    async def until_synced(self) -> None:
        async with asyncio.timeout(300):
            while self.synced_after is None:
                await asyncio.sleep(0.1)


class World:
    """A server with pods, and a store that a program has filled."""

    def __init__(self, server: APIServer, token: str | None = None) -> None:
        self.server = server
        self.store = Store()
        self.source = ListWatch(
            DirectEndpoint(server, token=token or server.token), PODS
        )

    @asynccontextmanager
    async def program(self) -> AsyncIterator[Program]:
        """Run a program during the block, from its sync on."""
        self.server.requests.clear()
        program = Program(self.store, self.source)
        async with running(program.run()):
            await program.until_synced()
            yield program

    def create(self, *names: str) -> None:
        for name in names:
            self.server.create(PODS, new_pod(name))

    @property
    def verbs(self) -> list[str]:
        """Return the requests since the start of the program."""
        return [f"{it.verb} {it.resource}" for it in self.server.requests]

    @property
    def expected(self) -> dict[str, str]:
        """Return the pods of the server, as `Store.objects` should be."""
        metadata = [it["metadata"] for it in self.server.objects(PODS)]
        return {
            f"{it['namespace']}/{it['name']}": it["resourceVersion"] for it in metadata
        }


@asynccontextmanager
async def world(**options: Any) -> AsyncIterator[World]:
    """Run a server with two pods, and a program that has stored them and ended."""
    async with APIServer(auto_namespaces=True, **options) as server:
        made = World(server)
        made.create("a", "b")
        async with made.program() as program:
            assert made.store.objects == made.expected
            assert made.verbs == ["get namespaces", "list pods", "watch pods"]
            assert program.pipeline.synced

        yield made


@asynccontextmanager
async def restarted(made: World, *verbs: str) -> AsyncIterator[Program]:
    """Run the program again, until the store equals the server."""
    async with made.program() as program:
        yield program
        async with asyncio.timeout(300):
            while made.store.objects != made.expected:
                await asyncio.sleep(0.5)

        assert made.verbs == list(verbs)


RESUMED = ("get namespaces", "watch pods")
COMPARED = ("get namespaces", "list pods", "watch pods")


async def test_restart_resumes_the_watch_and_lists_nothing() -> None:
    async with world() as made:
        made.create("c")
        made.server.delete(PODS, "a", namespace="shop")

        async with restarted(made, *RESUMED) as program:
            assert program.synced_after == pytest.approx(0.1, abs=0.1)

        assert set(made.store.objects) == {"shop/b", "shop/c"}


async def test_restart_without_changes_is_synced_after_half_a_second() -> None:
    async with world() as made, restarted(made, *RESUMED) as program:
        assert program.synced_after == pytest.approx(0.5, abs=0.1)
        assert program.reflector.in_step == pytest.approx(program.began + 0.5, abs=0.1)


async def test_expired_version_leads_to_one_list() -> None:
    async with world() as made:
        made.create("c")
        made.server.delete(PODS, "a", namespace="shop")
        made.server.compact()

        verbs = "get namespaces", "watch pods", *COMPARED
        async with restarted(made, *verbs) as program:
            assert program.reflector.history_resets == 0
            assert program.synced_after is not None
            assert program.synced_after < 3


async def test_another_cluster_is_compared_although_it_has_the_same_names() -> None:
    async with world() as made:
        before = made.store.cluster
        await made.server.restart(new_history=True)

        async with restarted(made, "get namespaces", *COMPARED) as program:
            assert program.reflector.history_resets == 1

        assert made.store.cluster not in {"", before}
        uids = {it["metadata"]["uid"] for it in made.server.objects(PODS)}
        assert {it.uid for it in made.store.indexer.list()} == uids


async def test_another_cluster_with_higher_versions_is_compared() -> None:
    async with world() as made, APIServer(auto_namespaces=True) as other:
        for number in range(50):
            other.create(PODS, new_pod(f"x{number}"))

        moved = World(other)
        moved.store = made.store
        async with restarted(moved, "get namespaces", *COMPARED):
            pass

        assert len(made.store.objects) == 50


async def test_restored_backup_is_noticed_by_its_next_event() -> None:
    async with world() as made:
        backup = made.server.snapshot()
        made.create("c", "d", "e")
        async with made.program():
            await asyncio.sleep(1)

        await made.server.restart(snapshot=backup)
        async with made.program() as program:
            assert "shop/c" in made.store.objects
            made.create("f")
            await asyncio.sleep(70)
            assert made.store.objects == made.expected
            assert program.reflector.history_resets == 1


@asynccontextmanager
async def world_of_alice() -> AsyncIterator[World]:
    """Run a world whose program may read nothing but pods."""
    async with APIServer(
        auto_namespaces=True, token="admin", users={"of-alice": "alice"}
    ) as server:
        rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
        server.create(CLUSTER_ROLES, {"metadata": {"name": "pods"}, "rules": [rule]})
        group = "rbac.authorization.k8s.io"
        binding = {
            "metadata": {"name": "pods-to-alice"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "pods"},
            "subjects": [{"kind": "User", "apiGroup": group, "name": "alice"}],
        }
        server.create(CLUSTER_ROLE_BINDINGS, binding)
        made = World(server, "of-alice")
        made.create("a", "b")
        async with made.program():
            pass

        yield made


async def test_history_is_checked_by_one_object_if_the_uid_is_forbidden() -> None:
    async with world_of_alice() as made:
        assert made.store.cluster == ""
        made.create("c")

        async with restarted(made, *COMPARED) as program:
            assert program.reflector.history_resets == 0

        assert made.server.requests[1].query["limit"] == "1"


async def test_another_cluster_is_noticed_although_the_uid_is_forbidden() -> None:
    async with world_of_alice() as made:
        await made.server.restart(new_history=True)

        verbs = "get namespaces", "list pods", *COMPARED
        async with restarted(made, *verbs) as program:
            assert program.reflector.history_resets == 1


async def test_restart_before_its_server_waits_and_resumes() -> None:
    async with world() as made:
        await made.server.stop()
        made.server.requests.clear()
        program = Program(made.store, made.source)
        async with running(program.run()):
            await asyncio.sleep(20)
            assert program.synced_after is None
            assert len(made.store.objects) == 2

            await made.server.start()
            made.create("c")
            await program.until_synced()
            await asyncio.sleep(1)

        assert made.store.objects == made.expected
        assert made.verbs == list(RESUMED)
