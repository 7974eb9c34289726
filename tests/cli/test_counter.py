"""The demo's controller: config maps say how many pods of their app run."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from conftest import pod

from aioinformer.cli.counter import PodCounter, app_of
from aioinformer.model import KubeObject
from aioinformer.model.resources import CONFIG_MAPS, PODS
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import Refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


def fill(server: APIServer, *phases: str) -> None:
    """One app, with a pod in each of these phases."""
    server.create(CONFIG_MAPS, {"metadata": {"name": "web"}}, namespace="shop")
    for number, phase in enumerate(phases):
        body = pod(f"web-{number}", "shop", {"app": "web"}, status={"phase": phase})
        del body["metadata"]["resourceVersion"]
        server.create(PODS, body)


def count_of(server: APIServer) -> object:
    return server.get(CONFIG_MAPS, "web", namespace="shop").get("data")


async def until(condition: Callable[[], bool]) -> None:
    """Wait for it, by the clock of the test; far longer than it can take."""
    async with asyncio.timeout(600):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def counting(server: APIServer) -> AsyncIterator[PodCounter]:
    """A counter at work, from when its handlers have been told of every object."""
    async with server.client() as client:
        counter = PodCounter(client)
        async with counter.factory, asyncio.TaskGroup() as group:
            pods, maps = len(server.objects(PODS)), len(server.objects(CONFIG_MAPS))
            await until(
                lambda: (counter.pod_events, counter.map_events) == (pods, maps)
            )
            task = group.create_task(counter.manager.run())
            yield counter
            task.cancel()


async def test_counts_running_pods() -> None:
    async with APIServer(auto_namespaces=True) as server:
        fill(server, "Running", "Pending", "Running")
        async with counting(server) as counter:
            # What was written comes back, and is looked at once more.
            await until(lambda: counter.reconciles == 2)

            assert count_of(server) == {"running": "2"}
            assert counter.wrong() == []
            assert counter.writes == 1


async def test_follows_changes() -> None:
    async with APIServer(auto_namespaces=True) as server:
        fill(server, "Running", "Pending")
        async with counting(server):
            await until(lambda: count_of(server) == {"running": "1"})
            started = {"status": {"phase": "Running"}}
            server.patch(PODS, "web-1", started, namespace="shop")
            await until(lambda: count_of(server) == {"running": "2"})

            server.delete(PODS, "web-0", namespace="shop")
            await until(lambda: count_of(server) == {"running": "1"})


async def test_mends_a_count_that_somebody_changed() -> None:
    async with APIServer(auto_namespaces=True) as server:
        fill(server, "Running")
        async with counting(server):
            await until(lambda: count_of(server) == {"running": "1"})
            wrong = {"data": {"running": "7"}}
            server.patch(CONFIG_MAPS, "web", wrong, namespace="shop")

            await until(lambda: count_of(server) == {"running": "1"})


async def test_tries_again_what_the_server_refused() -> None:
    async with APIServer(auto_namespaces=True) as server:
        fill(server, "Running")
        server.faults.add(Refuse(verb="patch", status=500, times=2))
        async with counting(server) as counter:
            await until(lambda: count_of(server) == {"running": "1"})

            assert counter.retries == 2


async def test_names_what_is_wrong() -> None:
    async with APIServer(auto_namespaces=True) as server:
        fill(server, "Running")
        server.faults.add(Refuse(verb="patch", status=500, times=None))
        async with counting(server) as counter:
            await until(lambda: counter.retries >= 2)

            assert counter.wrong() == ["shop/web"]


async def test_reads_what_it_has_written() -> None:
    """So no count is written twice, however often its pods change meanwhile."""
    async with APIServer(auto_namespaces=True) as server:
        fill(server, *["Running"] * 5)
        async with counting(server) as counter:
            await until(lambda: count_of(server) == {"running": "5"})
            for number in range(5):
                server.delete(PODS, f"web-{number}", namespace="shop")

            await until(lambda: count_of(server) == {"running": "0"})
            await asyncio.sleep(1)
            assert counter.writes <= 6
            assert counter.wrong() == []


def test_a_pod_without_the_label_belongs_to_no_app() -> None:
    assert list(app_of(KubeObject.of(pod("a", "x")))) == []
    assert list(app_of(KubeObject.of(pod("a", "x", {"app": "b"})))) == ["x/b"]
