"""Restarts of a program whose store stays, with a test server."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from conftest import pod
from informer_helpers import running
from resume_helpers import Program, Store

from aioinformer.client import ListWatch
from aioinformer.model.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, PODS
from aioinformer.testing import APIServer
from aioinformer.testing.server import DirectEndpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def new_pod(name: str) -> dict[str, Any]:
    body = pod(name, "shop")
    del body["metadata"]["resourceVersion"]
    return body


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
    def expected(self) -> dict[str, tuple[str, str]]:
        """Return the pods of the server, as `Store.objects` should be."""
        return {
            f"{it['namespace']}/{it['name']}": (it["uid"], it["resourceVersion"])
            for it in (pod["metadata"] for pod in self.server.objects(PODS))
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


async def test_another_cluster_with_higher_versions_is_compared() -> None:
    async with world() as made, APIServer(auto_namespaces=True) as other:
        for number in range(50):
            other.create(PODS, new_pod(f"x{number}"))

        moved = World(other)
        moved.store = made.store
        async with restarted(moved, "get namespaces", *COMPARED):
            pass

        assert len(made.store.objects) == 50


async def test_restored_backup_is_noticed_after_seconds() -> None:
    async with world() as made:
        backup = made.server.snapshot()
        made.create("c", "d", "e")
        async with made.program():
            await asyncio.sleep(1)

        await made.server.restart(snapshot=backup)
        async with made.program() as program:
            assert "shop/c" in made.store.objects
            made.create("f")
            await asyncio.sleep(10)
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
