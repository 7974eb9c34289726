"""Factories and `use()` blocks cancelled at every await."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from factory_helpers import API, FakeClient, served
from informer_helpers import Slow, settle
from task_helpers import cancelled_after

from aioinformer.client import Client
from aioinformer.errors import AioInformerError, InformerStopped
from aioinformer.informer import SharedInformerFactory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from aioinformer.informer import SharedInformer

TURNS = 30


@pytest.fixture
async def api() -> AsyncIterator[API]:
    async with served() as api:
        yield api


@pytest.fixture
async def factory() -> AsyncIterator[SharedInformerFactory]:
    """Run a factory whose server never responds."""
    async with SharedInformerFactory(FakeClient()) as factory:
        yield factory


async def uses(factory: SharedInformerFactory, until: asyncio.Event) -> None:
    async with factory.use("v1", "pods"):
        await until.wait()


# ---------------------------------------------------------------- use blocks


@pytest.mark.parametrize("times", [1, 3])
async def test_use_block_cancelled_at_any_await_leaves_nothing(
    factory: SharedInformerFactory, times: int
) -> None:
    before = asyncio.all_tasks()
    for turns in range(TURNS):
        task = await cancelled_after(uses(factory, asyncio.Event()), turns, times)

        assert task.cancelled()
        assert factory.informers == ()
        assert asyncio.all_tasks() == before


@pytest.mark.parametrize("times", [1, 3])
async def test_use_block_cancelled_on_exit_leaves_nothing(
    factory: SharedInformerFactory, times: int
) -> None:
    before = asyncio.all_tasks()
    finished = 0
    for turns in range(1, TURNS):
        enough = asyncio.Event()
        enough.set()

        task = await cancelled_after(uses(factory, enough), turns, times)

        finished += not task.cancelled()
        assert factory.informers == ()
        assert asyncio.all_tasks() == before

    assert 0 < finished < TURNS - 1


@pytest.mark.parametrize("times", [1, 3])
async def test_use_block_exit_waits_for_its_handlers(api: API, times: int) -> None:
    loop = asyncio.get_running_loop()
    async with SharedInformerFactory(Client.from_url(api.url)) as factory:
        slow = Slow(2)

        async def user() -> None:
            async with factory.use("v1", "pods") as pods:
                pods.add_event_handler(on_event=slow)
                await pods.wait_synced()
                await settle()

        leaving = asyncio.create_task(user())
        while not slow.running:
            await asyncio.sleep(0.01)

        began = loop.time()
        await settle()
        for _ in range(times):
            leaving.cancel()
            await asyncio.sleep(0.1)

        await asyncio.wait({leaving})
        assert leaving.cancelled()
        assert slow.record == ["a", "b"]
        assert loop.time() - began == pytest.approx(4, abs=0.1)
        assert not factory.informers


async def test_cancelled_use_block_does_not_affect_another(
    factory: SharedInformerFactory,
) -> None:
    async with factory.use("v1", "pods") as pods:
        for turns in range(TURNS):
            await cancelled_after(uses(factory, asyncio.Event()), turns)
            assert factory.informers == (pods,)

        assert pods.status.phase == "listing"


async def test_factory_that_ends_during_exit_of_use_block_leaves_nothing() -> None:
    before = asyncio.all_tasks()
    for turns in range(TURNS):
        factory = SharedInformerFactory(FakeClient())
        await factory.start()
        enough = asyncio.Event()
        user = asyncio.create_task(uses(factory, enough))
        await settle()
        enough.set()
        for _ in range(turns):
            await asyncio.sleep(0)

        await factory.shutdown()
        await user
        assert asyncio.all_tasks() == before


# ---------------------------------------------------------------- waiters


WAITERS: dict[str, Callable[[SharedInformerFactory], Coroutine[Any, Any, Any]]] = {
    "wait_for_cache_sync": lambda factory: factory.wait_for_cache_sync(timeout=60),
    "failed": lambda factory: factory.failed(),
}


@pytest.mark.parametrize("waiter", WAITERS.values(), ids=WAITERS)
async def test_cancelled_waiter_does_not_affect_factory_or_other_waiters(
    factory: SharedInformerFactory,
    waiter: Callable[[SharedInformerFactory], Coroutine[Any, Any, Any]],
) -> None:
    informers = [factory.informer("v1", it) for it in ("pods", "nodes")]
    await settle()
    before = asyncio.all_tasks()
    for turns in range(TURNS):
        task = await cancelled_after(waiter(factory), turns)

        assert task.cancelled()
        assert asyncio.all_tasks() == before
        assert [it.status.phase for it in informers] == ["listing"] * 2


# ---------------------------------------------------------------- hosts


async def entered(factory: SharedInformerFactory) -> None:
    async with factory:
        await asyncio.Event().wait()


async def synced(factory: SharedInformerFactory) -> None:
    async with factory.lifespan_synced(timeout=60)(None):
        await asyncio.Event().wait()


async def with_aiohttp(factory: SharedInformerFactory) -> None:
    context: Any = factory.cleanup_ctx(None)
    try:
        await anext(context)
        await asyncio.Event().wait()
    finally:
        await context.aclose()


@pytest.mark.parametrize("host", [entered, synced, with_aiohttp])
async def test_host_cancelled_at_any_await_leaves_nothing(
    host: Callable[[SharedInformerFactory], Coroutine[Any, Any, None]],
) -> None:
    before = asyncio.all_tasks()
    for turns in range(TURNS):
        client = FakeClient()
        factory = SharedInformerFactory(client)
        pods: SharedInformer = factory.informer("v1", "pods")

        task = await cancelled_after(host(factory), turns)

        assert task.cancelled()
        assert asyncio.all_tasks() == before
        assert not client.entered
        assert client.record.count("entered") == client.record.count("left")
        assert pods.status.phase in {"idle", "stopped"}


# ---------------------------------------------------------------- concurrent stops


async def test_factory_stopped_at_any_await_of_its_start_leaves_nothing() -> None:
    before = asyncio.all_tasks()
    refused = 0
    for turns in range(TURNS):
        client = FakeClient()
        factory = SharedInformerFactory(client)
        factory.informer("v1", "pods")
        waiter = asyncio.create_task(factory.wait_for_cache_sync())
        starting = asyncio.create_task(factory.start())
        for _ in range(turns):
            await asyncio.sleep(0)

        await factory.shutdown()
        await asyncio.wait({starting, waiter})

        assert isinstance(waiter.exception(), InformerStopped)
        refused += isinstance(starting.exception(), AioInformerError)
        assert asyncio.all_tasks() == before
        assert client.record.count("entered") == client.record.count("left")
        assert not client.entered

    assert 0 < refused < TURNS


async def test_either_of_two_concurrent_shutdowns_can_be_cancelled() -> None:
    before = asyncio.all_tasks()
    for turns in range(TURNS):
        client = FakeClient()
        factory = SharedInformerFactory(client)
        pods = factory.informer("v1", "pods")
        await factory.start()

        other = asyncio.create_task(factory.shutdown())
        await cancelled_after(factory.shutdown(), turns)
        await other

        assert asyncio.all_tasks() == before
        assert pods.status.phase == "stopped"
        assert not client.entered
