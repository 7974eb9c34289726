"""`SharedInformerFactory`: shutdown by handlers, after errors, and of a shared client."""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING

import pytest
from factory_helpers import API, Bug, FakeClient, break_requests, served
from informer_helpers import Slow, settle

from aioinformer import index_by
from aioinformer.cache import index_by_label
from aioinformer.client import Client
from aioinformer.errors import InformerStopped, NotSynced, OptionsError
from aioinformer.informer import SharedInformerFactory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.model import KubeObject


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


# ---------------------------------------------------------------- shutdown by handlers


async def test_handler_can_shut_down_its_factory(
    factory: SharedInformerFactory,
) -> None:
    pods = factory.informer("v1", "pods")
    returned: list[str] = []

    @pods.on_add
    async def stop(obj: KubeObject) -> None:
        await factory.shutdown()
        returned.append(obj.name)

    async with asyncio.timeout(60):
        async with factory:
            while pods.status.phase != "stopped":
                await asyncio.sleep(0.1)

    assert returned == ["a", "b"], "queued events were delivered"
    with pytest.raises(InformerStopped):
        pods.lister.list()


async def test_shutdown_in_a_handler_leaves_the_failure_to_the_host(
    factory: SharedInformerFactory, client: Client
) -> None:
    pods = factory.informer("v1", "pods")
    factory.informer("v1", "nodes")
    break_requests(client, "nodes", after=1.0)
    returned: list[str] = []

    @pods.on_add
    async def stop(obj: KubeObject) -> None:
        await factory.failed()
        await factory.shutdown()
        returned.append(obj.name)

    await factory.start()
    while not returned:
        await asyncio.sleep(0.1)

    with pytest.raises(Bug, match="nodes"):
        await factory.shutdown()


async def test_task_of_a_handler_can_shut_down_its_factory(
    factory: SharedInformerFactory,
) -> None:
    pods = factory.informer("v1", "pods")

    @pods.on_add
    async def stop(obj: KubeObject) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(factory.shutdown())

    async with asyncio.timeout(60):
        await factory.start()
        while pods.status.phase != "stopped":
            await asyncio.sleep(0.1)

        await factory.shutdown()


# ---------------------------------------------------------------- waits for a failure


@pytest.mark.parametrize("informers", [[], ["pods"]], ids=["none", "one"])
async def test_failed_raises_informer_stopped_after_the_end(
    factory: SharedInformerFactory, informers: list[str]
) -> None:
    for resource in informers:
        factory.informer("v1", resource)

    await factory.start()
    waiting = asyncio.create_task(factory.failed())
    await settle()
    await factory.shutdown()

    with pytest.raises(InformerStopped):
        await waiting

    with pytest.raises(InformerStopped):
        await factory.failed()


async def test_failed_waits_until_the_last_informer_has_ended(
    factory: SharedInformerFactory,
) -> None:
    handler = Slow(2)
    pods = factory.informer("v1", "pods")
    pods.add_event_handler(on_event=handler)
    await factory.start()
    while not handler.running:
        await asyncio.sleep(0.01)

    waiting = asyncio.create_task(factory.failed())
    stopping = asyncio.create_task(factory.shutdown())
    await asyncio.sleep(1)
    assert not waiting.done()

    await stopping
    with pytest.raises(InformerStopped):
        await waiting


# ---------------------------------------------------------------- errors of the host


async def test_error_of_the_host_precedes_the_failure_of_an_informer(
    factory: SharedInformerFactory,
    client: Client,
) -> None:
    factory.informer("v1", "pods")
    break_requests(client, "pods")

    async def host() -> None:
        async with factory:
            await factory.failed()
            raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        await host()

    assert any("Bug('pods')" in note for note in caught.value.__notes__)


async def test_cancellation_precedes_the_failure_of_an_informer(
    factory: SharedInformerFactory,
    client: Client,
) -> None:
    factory.informer("v1", "pods")
    break_requests(client, "pods")

    async def host() -> None:
        async with factory:
            await factory.failed()
            await asyncio.Event().wait()

    task = asyncio.create_task(host())
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait({task})

    assert task.cancelled()


async def test_dead_informer_is_reported_while_its_handlers_drain(
    factory: SharedInformerFactory,
    client: Client,
) -> None:
    pods = factory.informer("v1", "pods")
    seen: list[tuple[str, str]] = []

    break_requests(client, "pods", after=1.0, watches_only=True)

    @pods.on_add
    async def slow(obj: KubeObject) -> None:
        await asyncio.sleep(2)
        seen.append((pods.status.phase, repr(pods.status.last_error)))

    await factory.start()
    await factory.failed()
    assert seen == [], "reported at once"
    with pytest.raises(Bug):
        await factory.shutdown()

    assert seen == [("stopped", "Bug('pods')")] * 2


# ---------------------------------------------------------------- shared clients


@pytest.mark.parametrize("first_leaves_first", [True, False])
async def test_last_factory_closes_the_shared_client(first_leaves_first: bool) -> None:
    client = FakeClient()
    factories = [SharedInformerFactory(client) for _ in range(2)]
    for factory in factories:
        factory.informer("v1", "pods")

    async with asyncio.TaskGroup() as group:
        for factory in factories:
            group.create_task(factory.start())

    await settle()
    assert client.record == ["entered", "asked", "asked"]

    one, other = factories if first_leaves_first else factories[::-1]
    await one.shutdown()
    assert client.record[-1] != "left"
    await other.shutdown()

    assert client.record == ["entered", "asked", "asked", "left"]


async def test_client_that_failed_to_start_can_be_started_again() -> None:
    client = FakeClient(broken=OptionsError("no configuration"))
    factory = SharedInformerFactory(client)
    with pytest.raises(OptionsError, match="no configuration"):
        await factory.start()

    client.broken = None
    async with factory:
        assert client.entered

    assert not client.entered


# ---------------------------------------------------------------- shared indexes


async def test_same_index_can_be_requested_twice(
    factory: SharedInformerFactory,
) -> None:
    first, second = (
        factory.informer(
            "v1",
            "pods",
            indexers={"node": index_by("spec.nodeName"), "app": index_by_label("app")},
        )
        for _ in range(2)
    )

    assert first is second
    assert set(first.indexer.indexers) == {"namespace", "node", "app"}
    with pytest.raises(OptionsError, match="node"):
        factory.informer("v1", "pods", indexers={"node": index_by("spec.other")})

    with pytest.raises(OptionsError, match="app"):
        factory.informer("v1", "pods", indexers={"app": index_by_label("other")})


# ---------------------------------------------------------------- the calling task


async def test_failed_wait_leaves_the_calling_task_uncancelled(
    factory: SharedInformerFactory,
) -> None:
    factory.informer("v1", "pods")
    factory.informer("v1", "secrets")  # not served
    task = asyncio.current_task()
    assert task is not None

    async with factory:
        for _ in range(2):
            with pytest.raises(NotSynced):
                await factory.wait_for_cache_sync(timeout=30)

            assert task.cancelling() == 0

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.Event().wait()


# ---------------------------------------------------------------- context variables

REQUEST: ContextVar[str] = ContextVar("request", default="none")


@pytest.mark.parametrize("late", ["handler", "informer", "temporary"])
async def test_handler_added_to_a_running_factory_can_shut_it_down(
    factory: SharedInformerFactory, late: str
) -> None:
    seen: list[str] = []

    async def stop(obj: KubeObject) -> None:
        seen.append(REQUEST.get())
        await factory.shutdown()

    pods = factory.informer("v1", "pods") if late == "handler" else None
    async with asyncio.timeout(60), contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(factory)
        REQUEST.set("GET /")
        if late == "temporary":
            pods = await stack.enter_async_context(factory.use("v1", "pods"))

        pods = pods or factory.informer("v1", "pods")
        await pods.wait_synced()
        pods.on_add(stop)
        while pods.status.phase != "stopped":
            await asyncio.sleep(0.1)

    assert set(seen) == {"none"}, "not the context of the request"


# ---------------------------------------------------------------- concurrent stops


@pytest.mark.parametrize("first", ["factory", "block", "both"])
async def test_handlers_drain_although_two_callers_stop_their_informer(
    factory: SharedInformerFactory, first: str
) -> None:
    handler = Slow(2)
    enough = asyncio.Event()

    async def user() -> None:
        async with factory.use("v1", "pods") as pods:
            pods.add_event_handler(on_event=handler)
            await pods.wait_synced(timeout=10)
            if first == "factory":
                with pytest.raises(InformerStopped):
                    await pods.wait_until(lambda _: False)
            else:
                await enough.wait()

    await factory.start()
    block = asyncio.create_task(user())
    while not handler.running:
        await asyncio.sleep(0.01)

    enough.set()
    if first == "block":
        await asyncio.sleep(1)

    await factory.shutdown()
    assert handler.record == ["a", "b"]
    await block
