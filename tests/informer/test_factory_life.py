"""`SharedInformerFactory`: start and shutdown by all kinds of hosts."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from aiohttp import web
from factory_helpers import API, Bug, FakeClient, break_requests, served
from informer_helpers import Slow, settle

from aioinformer.client import Client
from aioinformer.errors import (
    InformerStopped,
    NotSynced,
    OptionsError,
)
from aioinformer.informer import SharedInformerFactory
from aioinformer.informer.namespace_sources import NamespaceSource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager


@pytest.fixture
async def api() -> AsyncIterator[API]:
    async with served() as api:
        yield api


@pytest.fixture
def client(api: API) -> Client:
    return Client.from_url(api.url)


@pytest.fixture
async def factory(client: Client) -> SharedInformerFactory:
    return SharedInformerFactory(client)


# ---------------------------------------------------------------- client


async def test_factory_enters_and_closes_a_client_that_nobody_entered() -> None:
    client = FakeClient()
    factory = SharedInformerFactory(client)
    factory.informer("v1", "pods")

    async with factory:
        await settle()
        record = list(client.record)

    assert record == ["entered", "asked"]
    assert client.record == ["entered", "asked", "left"]


async def test_factory_leaves_an_entered_client_to_its_owner() -> None:
    client = FakeClient()
    async with client:
        async with SharedInformerFactory(client) as factory:
            factory.informer("v1", "pods")
            await settle()

        assert client.record == ["entered", "asked"]


async def test_connections_end_before_the_client(
    api: API, factory: SharedInformerFactory
) -> None:
    factory.informer("v1", "pods")

    async with factory:
        await factory.wait_for_cache_sync()

    await api.gone.wait()


async def test_start_raises_the_error_of_the_client() -> None:
    client = FakeClient(broken=OptionsError("no configuration"))
    factory = SharedInformerFactory(client)
    pods = factory.informer("v1", "pods")

    with pytest.raises(OptionsError, match="no configuration"):
        await factory.start()

    assert pods.status.phase == "idle"
    client.broken = None
    async with factory:
        assert client.entered


# ---------------------------------------------------------------- once


async def test_factory_runs_only_once(factory: SharedInformerFactory) -> None:
    async with factory:
        with pytest.raises(OptionsError, match="is already running"):
            await factory.start()

    with pytest.raises(InformerStopped, match="runs only once"):
        await factory.start()


async def test_shutdown_is_idempotent(factory: SharedInformerFactory) -> None:
    pods = factory.informer("v1", "pods")
    async with factory:
        await factory.wait_for_cache_sync()

    await factory.shutdown()
    await factory.shutdown()

    assert pods.status.phase == "stopped"


async def test_shutdown_before_start_wakes_waiters() -> None:
    factory = SharedInformerFactory(FakeClient())
    factory.informer("v1", "pods")
    waiter = asyncio.create_task(factory.wait_for_cache_sync())
    await settle()

    await factory.shutdown()

    with pytest.raises(InformerStopped, match="pods has ended"):
        await waiter


async def test_waiters_wake_up_if_the_task_of_their_informer_never_began() -> None:
    factory = SharedInformerFactory(FakeClient())
    await factory.start()
    stopping = asyncio.create_task(factory.shutdown())
    pods = factory.informer("v1", "pods")
    waiter = asyncio.create_task(pods.wait_synced())

    await stopping

    with pytest.raises(InformerStopped):
        await waiter

    with pytest.raises(InformerStopped):
        pods.lister.list()


async def test_waiters_wake_up_when_the_task_of_the_factory_is_cancelled() -> None:
    factory = SharedInformerFactory(FakeClient())
    await factory.start()
    (life,) = [it for it in asyncio.all_tasks() if it.get_name() == "informer factory"]

    life.cancel()
    pods = factory.informer("v1", "pods")  # its task is cancelled before it begins
    with pytest.raises(InformerStopped):
        await pods.wait_synced()

    await factory.shutdown()


async def test_handlers_get_5_s_to_finish_on_exit(
    factory: SharedInformerFactory,
) -> None:
    loop = asyncio.get_running_loop()
    handler = Slow(2)
    pods = factory.informer("v1", "pods")
    pods.add_event_handler(on_event=handler)

    async with factory:
        await factory.wait_for_cache_sync()
        await settle()
        before = loop.time()

    assert handler.record == ["a", "b"]
    assert loop.time() - before == pytest.approx(4, abs=0.2)


# ---------------------------------------------------------------- hosts


async def test_factory_can_be_entered_and_exited_in_different_tasks(
    factory: SharedInformerFactory,
) -> None:
    factory.informer("v1", "pods")
    tasks = asyncio.all_tasks()

    await asyncio.create_task(factory.__aenter__())
    await asyncio.create_task(factory.wait_for_cache_sync())
    await asyncio.create_task(factory.__aexit__(None, None, None))

    assert asyncio.all_tasks() == tasks


async def test_lifespan_serves_at_once(factory: SharedInformerFactory) -> None:
    pods = factory.informer("v1", "pods")

    async with factory.lifespan(object()):
        at_once = pods.has_synced
        await pods.wait_synced()

    assert not at_once
    assert pods.status.phase == "stopped"


async def test_lifespan_synced_serves_once_synced(
    factory: SharedInformerFactory,
) -> None:
    pods = factory.informer("v1", "pods")

    async with factory.lifespan_synced(timeout=60)(object()):
        assert pods.has_synced

    assert pods.status.phase == "stopped"


async def test_lifespan_synced_fails_on_timeout(looptime: float) -> None:
    client = FakeClient()
    factory = SharedInformerFactory(client)
    pods = factory.informer("v1", "pods")

    with pytest.raises(NotSynced, match="pods: listing"):
        async with factory.lifespan_synced(timeout=30)(None):
            raise AssertionError("it does not serve")

    assert looptime == 30
    assert pods.status.phase == "stopped"
    assert not client.entered


@pytest.mark.parametrize("timeout", [FakeClient(), "60"], ids=["app", "text"])
async def test_lifespan_synced_must_be_called_first(
    factory: SharedInformerFactory, timeout: Any
) -> None:
    with pytest.raises(OptionsError, match=r"lifespan=factory\.lifespan_synced\("):
        factory.lifespan_synced(timeout)


async def test_lifespan_and_cleanup_ctx_must_not_be_called(
    factory: SharedInformerFactory,
) -> None:
    """`lifespan=factory.lifespan()` raises at the call."""
    for called in (factory.lifespan, factory.cleanup_ctx):
        with pytest.raises(TypeError, match=r"missing 1 required .* 'app'"):
            called()  # type: ignore[call-arg]


async def test_cleanup_ctx_runs_with_an_aiohttp_app(
    factory: SharedInformerFactory,
) -> None:
    pods = factory.informer("v1", "pods")
    app = web.Application()
    app.cleanup_ctx.append(factory.cleanup_ctx)
    runner = web.AppRunner(app)

    await runner.setup()
    await pods.wait_synced()
    await runner.cleanup()

    assert pods.status.phase == "stopped"


async def test_closed_cleanup_ctx_stops_the_factory() -> None:
    client = FakeClient()
    context: Any = SharedInformerFactory(client).cleanup_ctx(None)
    await anext(context)

    await context.aclose()

    assert client.record == ["entered", "left"]


@asynccontextmanager
async def by_hand(factory: SharedInformerFactory) -> AsyncIterator[None]:
    await factory.start()
    try:
        yield
    finally:
        await factory.shutdown()


@pytest.mark.parametrize(
    "host",
    [
        lambda factory: factory,
        by_hand,
        lambda factory: factory.lifespan(None),
        lambda factory: factory.lifespan_synced()(None),
        lambda factory: asynccontextmanager(factory.cleanup_ctx)(None),
    ],
    ids=["async-with", "start-shutdown", "lifespan", "lifespan-synced", "cleanup-ctx"],
)
async def test_error_of_the_host_leaves_nothing_behind(
    factory: SharedInformerFactory,
    host: Callable[[SharedInformerFactory], AbstractAsyncContextManager[object]],
) -> None:
    factory.informer("v1", "pods")
    tasks = asyncio.all_tasks()

    async def run() -> None:
        async with host(factory):
            await factory.wait_for_cache_sync()
            raise KeyError("the host")

    with pytest.raises(KeyError, match="the host"):
        await run()

    # The server's own tasks need a turn to notice the closed connection.
    ours = [it for it in asyncio.all_tasks() - tasks if "informer" in it.get_name()]
    assert ours == []
    await settle()
    assert asyncio.all_tasks() <= tasks


# ---------------------------------------------------------------- bugs


async def test_informer_that_dies_ends_no_other(
    factory: SharedInformerFactory, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    pods, nodes = factory.informer("v1", "pods"), factory.informer("v1", "nodes")
    break_requests(client, "pods")

    await factory.start()
    failure = await factory.failed()
    await nodes.wait_synced()
    phases = (pods.status.phase, nodes.status.phase)
    with pytest.raises(InformerStopped) as stopped:
        pods.lister.list()

    with pytest.raises(InformerStopped):
        factory.informer("v1", "pods")

    with pytest.raises(InformerStopped):
        await factory.wait_for_cache_sync()

    with pytest.raises(Bug, match="pods"):
        await factory.shutdown()

    assert isinstance(failure, Bug)
    assert stopped.value.__cause__ is failure
    assert phases == ("stopped", "watching")
    (record,) = [it for it in caplog.records if it.levelno == logging.CRITICAL]
    assert record.getMessage() == "informer pods failed"


class Foreign(BaseException):
    """A base exception that is neither an error nor an exit."""


async def test_informer_that_dies_of_a_base_exception_ends_no_other(
    factory: SharedInformerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods, nodes = factory.informer("v1", "pods"), factory.informer("v1", "nodes")

    async def fail(*_: object, **__: object) -> NoReturn:
        raise Foreign

    (source,) = pods._sources.all
    assert isinstance(source, NamespaceSource)
    monkeypatch.setattr(source.pipeline, "stage", fail)
    await factory.start()
    await nodes.wait_synced()
    assert isinstance(await factory.failed(), Foreign)
    await settle()
    assert (pods.status.phase, nodes.status.phase) == ("stopped", "watching")
    with pytest.raises(Foreign):
        await factory.shutdown()


async def test_failure_is_raised_once(
    factory: SharedInformerFactory, client: Client
) -> None:
    factory.informer("v1", "pods")
    break_requests(client, "pods")
    await factory.start()
    await factory.failed()

    with pytest.raises(Bug):
        await factory.shutdown()

    await factory.shutdown()
    assert isinstance(await factory.failed(), Bug), "still returned"


async def test_first_failure_is_raised(
    factory: SharedInformerFactory, client: Client
) -> None:
    factory.informer("v1", "pods")
    factory.informer("v1", "nodes")
    break_requests(client, "pods", after=2.0)
    break_requests(client, "nodes", after=1.0)

    await factory.start()
    await asyncio.sleep(5)

    with pytest.raises(Bug, match="nodes"):
        await factory.shutdown()


async def test_failed_returns_the_failure_during_shutdown(
    factory: SharedInformerFactory,
    client: Client,
) -> None:
    pods = factory.informer("v1", "pods")
    pods.add_event_handler(on_event=Slow(2))
    break_requests(client, "pods", after=1.0, watches_only=True)
    await factory.start()
    while pods.status.phase != "stopped":
        await asyncio.sleep(0.01)

    # Its handler is busy, so it has not ended, and no waiter was notified.
    stopping = asyncio.create_task(factory.shutdown())
    await settle()
    assert isinstance(await factory.failed(), Bug)
    with pytest.raises(Bug):
        await stopping
