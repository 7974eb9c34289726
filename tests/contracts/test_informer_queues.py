"""An informer with each of the queues: the same guarantees hold."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import TYPE_CHECKING

import pytest
from informer_helpers import running, text_of
from informers import Event, plain, settled

from aioinformer import Deleted, DeltaFIFO, ListWatch, OrderedFIFO, SharedInformer
from aioinformer.informer import Updated
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import Cut, Gone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aioinformer import KubeObject
    from aioinformer.cache import Queue

    Kind = Callable[..., Queue[KubeObject]]


@pytest.fixture(params=[DeltaFIFO, OrderedFIFO])
def queue(request: pytest.FixtureRequest) -> Queue[KubeObject]:
    kind: Kind = request.param
    return kind(key_func=attrgetter("key"))


@asynccontextmanager
async def pods_on(
    server: APIServer, queue: Queue[KubeObject]
) -> AsyncIterator[SharedInformer]:
    async with server.client() as client:
        pods = SharedInformer(ListWatch(client, PODS), name="pods", queue=queue)
        async with running(pods.run()):
            await pods.wait_synced(timeout=30)
            yield pods


async def test_G1_states_of_one_object_arrive_in_order_and_once(
    queue: Queue[KubeObject],
) -> None:
    async with APIServer() as server, pods_on(server, queue) as pods:
        states: list[str] = []
        pods.add_event_handler(
            lambda obj: states.append(obj.resource_version),
            lambda old, new: states.append(new.resource_version),
            lambda obj: states.append(obj.resource_version),
        )
        reported = [server.create(PODS, plain("web"))["metadata"]["resourceVersion"]]
        for number in range(50):
            patch = {"metadata": {"annotations": {"n": str(number)}}}
            changed = server.patch(PODS, "web", patch)
            reported.append(changed["metadata"]["resourceVersion"])

        server.delete(PODS, "web")
        reported.append(server.resource_version)
        await settled(server, pods)

        assert states == reported


async def test_G3_store_is_never_older_than_the_event(
    queue: Queue[KubeObject],
) -> None:
    async with APIServer() as server, pods_on(server, queue) as pods:
        stale: list[str] = []
        received = 0

        @pods.on_event
        def look(event: Event) -> None:
            nonlocal received
            received += 1
            obj = event.new if isinstance(event, Updated) else event.obj
            stored = pods.store.get_by_key(obj.key)
            if isinstance(event, Deleted) or stored is None:
                return

            if int(stored.resource_version) < int(obj.resource_version):
                stale.append(text_of(event))

        for number in range(20):
            server.create(PODS, plain(f"pod-{number}"))
            server.patch(PODS, f"pod-{number}", {"metadata": {"labels": {"a": "b"}}})
            if number % 3 == 0:
                server.delete(PODS, f"pod-{number}")
                await asyncio.sleep(0.002)

        await settled(server, pods)

        assert stale == []
        assert received == 47


async def test_G5_late_handler_gets_a_snapshot_then_every_change(
    queue: Queue[KubeObject],
) -> None:
    async with APIServer() as server:
        for number in range(10):
            server.create(PODS, plain(f"pod-{number}"))

        async with pods_on(server, queue) as pods:
            received: list[str] = []
            pods.on_event(lambda event: received.append(text_of(event)))
            server.create(PODS, plain("after"))
            await settled(server, pods)

            initial = [f"initial pod-{number}" for number in range(10)]
            assert sorted(received[:10]) == initial
            assert received[10:] == ["added after"]


async def test_G6_deletion_while_disconnected_carries_the_last_known_state(
    queue: Queue[KubeObject],
) -> None:
    async with APIServer() as server:
        for name in ("stays", "goes", "comes-again"):
            server.create(PODS, plain(name))

        async with pods_on(server, queue) as pods:
            received: list[str] = []
            pods.on_event(lambda event: received.append(text_of(event)))
            await settled(server, pods)
            received.clear()

            await server.stop()
            server.delete(PODS, "goes")
            server.delete(PODS, "comes-again")
            server.create(PODS, plain("comes-again"))
            server.compact()
            await server.start()
            await settled(server, pods)

            assert sorted(received) == [
                "added comes-again",
                "missed comes-again",
                "missed goes",
            ]
            assert received[-1] == "added comes-again"


async def test_G7_store_follows_the_server_through_cuts_and_relists(
    queue: Queue[KubeObject],
) -> None:
    async with APIServer() as server:
        # Before its first watch, which may start as soon as it is synced.
        server.faults.add(Cut(after_bytes=900), Gone(after_events=5))
        async with pods_on(server, queue) as pods:
            received: dict[str, str] = {}

            @pods.on_event
            def follow(event: Event) -> None:
                obj = event.new if isinstance(event, Updated) else event.obj
                if isinstance(event, Deleted):
                    del received[obj.name]
                else:
                    received[obj.name] = obj.resource_version

            for number in range(60):
                server.create(PODS, plain(f"pod-{number}"))
                if number % 2:
                    server.delete(PODS, f"pod-{number - 1}")

                await asyncio.sleep(0.5)

            await settled(server, pods)

            assert pods.status.restarts >= 2
            there = {pod.name: pod.resource_version for pod in pods.store.list()}
            assert received == there
            assert sorted(there) == sorted(f"pod-{n}" for n in range(1, 60, 2))
            assert pods.store.resource_version == server.resource_version


async def test_resync_of_the_queue_causes_no_event() -> None:
    """Resync events come by timers of their own."""
    queue = OrderedFIFO["KubeObject"](key_func=attrgetter("key"))
    async with APIServer() as server:
        server.create(PODS, plain("web"))
        async with pods_on(server, queue) as pods:
            received: list[str] = []
            pods.on_event(lambda event: received.append(text_of(event)))
            queue.resync()
            server.create(PODS, plain("db"))
            await settled(server, pods)

            assert received == ["initial web", "added db"]
            assert len(queue) == 0
