"""The guarantees on uvloop, in real time, as its clock cannot be virtual."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import ssl
from typing import TYPE_CHECKING, Any

import uvloop
from canned import make_certificates
from doctor_helpers import Front
from informers import plain
from processes import in_real_time

from aioinformer import (
    Client,
    Controller,
    LeaderElector,
    Manager,
    RateLimitingQueue,
    Result,
    SharedInformerFactory,
)
from aioinformer.client import ClientConfig, TLSOptions
from aioinformer.controller import LeaseLock
from aioinformer.model.resources import CONFIG_MAPS, PODS
from aioinformer.testing import APIServer
from aioinformer.testing.faults import Cut, End, Gone, Refuse, Stall

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from aioinformer import SharedInformer
    from aioinformer.testing.faults import Fault

pytestmark = in_real_time

SECONDS = 20
"""Timeout of each scenario, much longer than needed."""


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario on uvloop. Nothing of it may be left behind."""

    async def bounded() -> None:
        assert type(asyncio.get_running_loop()).__module__.startswith("uvloop")
        async with asyncio.timeout(SECONDS):
            await scenario

        for _ in range(50):  # closing connections take a few turns
            if len(asyncio.all_tasks()) == 1:
                return

            await asyncio.sleep(0.01)

        raise AssertionError(f"tasks still running: {asyncio.all_tasks()}")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())


def stored(informer: SharedInformer) -> dict[str, str]:
    """Return names and versions in the store."""
    return {it.name: it.resource_version for it in informer.store.list()}


def served(server: APIServer) -> dict[str, str]:
    metadata = [it["metadata"] for it in server.objects(PODS)]
    return {it["name"]: it["resourceVersion"] for it in metadata}


# ---------------------------------------------------------------- informers


def test_handlers_get_each_change_in_order() -> None:
    async def scenario() -> None:
        seen: list[str] = []
        async with APIServer() as server:
            for number in range(500):
                server.create(PODS, plain(f"old-{number}"))

            factory = SharedInformerFactory(server.client())
            pods = factory.informer(PODS)
            pods.add_event_handler(
                on_add=lambda pod: seen.append(f"+{pod.name}"),
                on_update=lambda _, pod: seen.append(f"~{pod.labels['n']}"),
                on_delete=lambda pod: seen.append(f"-{pod.name}"),
            )
            async with factory:
                await factory.wait_for_cache_sync(timeout=10)
                await server.until(lambda: len(seen) == 500)
                server.create(PODS, plain("web"))
                for number in range(200):
                    patch = {"metadata": {"labels": {"n": str(number)}}}
                    server.patch(PODS, "web", patch)

                server.delete(PODS, "web")
                await server.until(lambda: seen[-1] == "-web")

        assert seen[500:] == ["+web", *(f"~{it}" for it in range(200)), "-web"]

    run(scenario())


def test_reader_of_a_cache_follows_and_takes_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with APIServer() as server, contextlib.AsyncExitStack() as stack:
            server.create(PODS, plain("old"))
            writer, reader = (
                SharedInformerFactory(server.client(), cache_dir=tmp_path)
                for _ in range(2)
            )
            pods = reader.informer(PODS)
            writer.informer(PODS)
            async with writer:
                await writer.wait_for_cache_sync(timeout=10)
                await stack.enter_async_context(reader)
                await reader.wait_for_cache_sync(timeout=10)
                server.create(PODS, plain("new"))
                await server.until(lambda: stored(pods) == served(server), timeout=10)

            server.delete(PODS, "old")
            await server.until(lambda: stored(pods) == served(server), timeout=10)

    run(scenario())


FAULTS = [
    Refuse(verb="list", status=503),
    Refuse(verb="list", status=429, retry_after=1),
    Cut(verb="list", after_bytes=100),
    Cut(verb="watch", after_bytes=300, reset=True),
    Cut(verb="watch", head=False),
    End(verb="watch", after_bytes=300),
    Stall(verb="watch", after_bytes=300, seconds=1),
    Gone(verb="watch"),
]


async def survive(fault: Fault) -> None:
    async with APIServer() as server:
        server.create(PODS, plain("old"))
        server.faults.add(fault)
        factory = SharedInformerFactory(server.client())
        pods = factory.informer(PODS)
        async with factory:
            await factory.wait_for_cache_sync(timeout=10)
            server.create(PODS, plain("new"))
            server.delete(PODS, "old")
            await server.until(lambda: stored(pods) == served(server), timeout=10)

        server.faults.check()


def test_store_is_complete_after_each_fault() -> None:
    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:  # at once, as they mostly wait
            for fault in FAULTS:
                group.create_task(survive(fault))

    run(scenario())


def test_informer_survives_restart_of_server() -> None:
    async def scenario() -> None:
        async with APIServer() as server:
            server.create(PODS, plain("old"))
            factory = SharedInformerFactory(server.client())
            pods = factory.informer(PODS)
            async with factory:
                await factory.wait_for_cache_sync(timeout=10)
                await server.stop()
                server.delete(PODS, "old")
                await server.start()
                server.create(PODS, plain("new"))
                await server.until(lambda: stored(pods) == served(server), timeout=15)

    run(scenario())


def test_informer_of_another_thread_can_be_read() -> None:
    async def scenario() -> None:
        async with APIServer() as server:
            server.create(PODS, plain("web"))
            factory = SharedInformerFactory(server.client())
            pods = factory.informer(PODS)
            async with factory:
                await factory.wait_for_cache_sync(timeout=10)
                names = await asyncio.to_thread(
                    lambda: [it.name for it in pods.lister.list()]
                )

        assert names == ["web"]

    run(scenario())


def test_informer_works_over_tls(tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.server, files.server_key)

    async def scenario() -> None:
        async with APIServer() as server, Front(server.url, context) as front:
            config = ClientConfig(server=front.url, tls=TLSOptions(ca=files.ca))
            factory = SharedInformerFactory(Client(config))
            pods = factory.informer(PODS)
            async with factory:
                await factory.wait_for_cache_sync(timeout=10)
                server.create(PODS, plain("new"))
                await server.until(lambda: stored(pods) == served(server))

    run(scenario())


# ---------------------------------------------------------------- queues


def test_queue_delays_and_retries_in_order() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        queue = RateLimitingQueue[str]("uvloop")
        start, taken = loop.time(), []
        for name, seconds in (("c", 0.3), ("b", 0.1001), ("a", 0.0004)):
            queue.add_after(name, seconds)

        for _ in range(3):
            async with queue.item() as key:
                taken.append((key, loop.time() - start))

        assert [name for name, _ in taken] == ["a", "b", "c"]
        # The clock of uvloop counts whole milliseconds.
        assert [after > 0.098 for _, after in taken] == [False, True, True]
        assert taken[2][1] > 0.298
        for _ in range(5):
            queue.add_rate_limited("failing")
            async with queue.item() as key:
                assert key == "failing"

        assert queue.num_requeues("failing") == 5
        assert 0.15 < loop.time() - start - taken[-1][1] < 5  # 5, 10, ..., 80 ms

    run(scenario())


# ---------------------------------------------------------------- controllers


def make_manager(server: APIServer, calls: list[str], **options: Any) -> Manager:
    async def reconcile(request: Any, ctx: Any) -> Result | None:
        calls.append(request.name)
        if len(calls) == 1:
            raise ValueError("the first call fails")

        patch = {"data": {"calls": str(len(calls))}}
        await ctx.client.patch(CONFIG_MAPS, request.name, patch, namespace="default")
        return Result(requeue_after=0.05) if len(calls) < 5 else None

    manager = Manager(server.client(), **options)
    maps = manager.informer(CONFIG_MAPS, label_selector="app=web")
    manager.add(Controller("maps", reconcile, for_=maps))
    return manager


def test_controller_retries_and_requeues() -> None:
    async def scenario() -> None:
        calls: list[str] = []
        async with APIServer() as server:
            labels = {"app": "web"}
            server.create(CONFIG_MAPS, {"metadata": {"name": "one", "labels": labels}})
            client = server.client()
            lock = LeaseLock(client, "maps", namespace="default")
            async with client:
                elector = LeaderElector(lock)
                async with make_manager(server, calls, elector=elector):
                    await server.until(lambda: len(calls) >= 5, timeout=10)

            last = server.get(CONFIG_MAPS, "one")["data"]
            assert int(last["calls"]) >= 4

    run(scenario())


def test_signal_ends_a_running_manager() -> None:
    async def scenario() -> None:
        calls: list[str] = []
        async with APIServer() as server:
            labels = {"app": "web"}
            server.create(CONFIG_MAPS, {"metadata": {"name": "one", "labels": labels}})
            manager = make_manager(server, calls)
            async with asyncio.TaskGroup() as group:
                running = group.create_task(manager.run(handle_signals=True))
                await server.until(lambda: len(calls) >= 5, timeout=10)
                os.kill(os.getpid(), signal.SIGTERM)
                await running

    run(scenario())


def test_factory_stops_at_once_during_a_stalled_list() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with APIServer() as server:
            server.faults.add(Stall(verb="list", after_bytes=100))
            factory = SharedInformerFactory(server.client())
            factory.informer(PODS)
            async with factory:
                await server.until(lambda: server.requests)
                before = loop.time()

            assert loop.time() - before < 2

    run(scenario())
