"""`SharedInformerFactory.use`: temporary informers."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import TYPE_CHECKING, Any

import pytest
from factory_helpers import API, Bug, FakeClient, break_requests, served
from informer_helpers import Recorder, Slow, settle

from aioinformer.cache import index_by
from aioinformer.client import Client
from aioinformer.errors import InformerStopped, OptionsError, WrongLoop
from aioinformer.informer import SharedInformerFactory
from aioinformer.informer.informer_spec import InformerOptions
from aioinformer.model import strip_managed_fields

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.informer import SharedInformer


@pytest.fixture
async def api() -> AsyncIterator[API]:
    async with served() as api:
        yield api


@pytest.fixture
async def factory(api: API) -> AsyncIterator[SharedInformerFactory]:
    """Run a factory."""
    async with SharedInformerFactory(Client.from_url(api.url)) as factory:
        yield factory


def tasks_of(factory: SharedInformerFactory) -> set[str]:
    names = {it.get_name() for it in asyncio.all_tasks()}
    return {name for name in names if name.startswith(("informer pods", "handler"))}


# ---------------------------------------------------------------- one block


async def test_use_block_starts_stops_and_forgets_its_informer(
    factory: SharedInformerFactory,
) -> None:
    async with factory.use("v1", "pods") as pods:
        assert [*factory.informers] == [pods]
        await pods.wait_synced(timeout=10)
        names = [obj.name for obj in pods.lister.list()]

    assert names == ["a", "b"]
    assert not factory.informers
    assert tasks_of(factory) == set()
    with pytest.raises(InformerStopped):
        pods.lister.list()

    async with factory.use("v1", "pods") as again:
        assert again is not pods
        await again.wait_synced(timeout=10)


async def test_use_passes_options_to_the_informer(
    factory: SharedInformerFactory,
) -> None:
    async with factory.use(
        "v1",
        "pods",
        namespace="shop",
        label_selector="app=web",
        indexers={"node": index_by("spec.nodeName")},
        transform=strip_managed_fields,
        watch_seconds=60,
    ) as pods:
        assert pods.name == "pods in shop where app=web"
        assert "node" in pods.indexer.indexers
        assert pods.transform is strip_managed_fields
        assert pods.options.watch_seconds == 60


async def test_handlers_drain_on_exit_of_the_block(
    factory: SharedInformerFactory,
) -> None:
    loop = asyncio.get_running_loop()
    handler = Slow(2)
    async with factory.use("v1", "pods") as pods:
        pods.add_event_handler(on_event=handler)
        await pods.wait_synced(timeout=10)
        await settle()
        before = loop.time()

    assert handler.record == ["a", "b"]
    assert loop.time() - before == pytest.approx(4, abs=0.2)


async def test_error_in_the_block_is_raised_and_stops_the_informer(
    factory: SharedInformerFactory,
) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with factory.use("v1", "pods"):
            raise KeyError("mine")

    assert not factory.informers
    assert tasks_of(factory) == set()


def test_use_accepts_every_informer_option() -> None:
    signature = inspect.signature(SharedInformerFactory.informer)
    keywords = {
        name
        for name, it in signature.parameters.items()
        if it.kind is inspect.Parameter.KEYWORD_ONLY
    }

    assert set(InformerOptions.__annotations__) == keywords


# ---------------------------------------------------------------- several blocks


async def test_last_of_several_blocks_stops_the_informer(
    factory: SharedInformerFactory,
) -> None:
    pods: list[SharedInformer] = []

    async def user(seconds: float) -> None:
        async with factory.use("v1", "pods") as informer:
            pods.append(informer)
            await informer.wait_synced(timeout=10)
            await asyncio.sleep(seconds)
            assert len(informer.lister.list()) == 2, (
                "readable until the end of the block"
            )

    async with asyncio.TaskGroup() as group:
        for seconds in (1, 5, 3):
            group.create_task(user(seconds))

        await asyncio.sleep(4)
        assert pods[0].status.phase == "watching"

    assert len(set(pods)) == 1
    assert pods[0].status.phase == "stopped"
    assert not factory.informers


async def test_blocks_with_other_options_have_their_own_informers(
    factory: SharedInformerFactory,
) -> None:
    others: list[dict[str, Any]] = [
        {"namespace": "a"},
        {"namespace": "b"},
        {"name": "mine"},
    ]
    async with contextlib.AsyncExitStack() as stack:
        found = [
            await stack.enter_async_context(factory.use("v1", "pods", **options))
            for options in others
        ]
        assert len(set(found)) == 3

    assert not factory.informers


async def test_block_entered_while_the_informer_stops_gets_a_new_one(
    factory: SharedInformerFactory,
) -> None:
    entered = asyncio.Event()

    async def first() -> None:
        async with factory.use("v1", "pods") as pods:
            pods.add_event_handler(on_event=Slow(2))
            await pods.wait_synced(timeout=10)
            entered.set()

    leaving = asyncio.create_task(first())
    await entered.wait()
    await settle()
    assert not leaving.done(), "its handler is busy"

    async with factory.use("v1", "pods") as again:
        await again.wait_synced(timeout=10)
        await leaving
        assert len(again.lister.list()) == 2
        assert factory.informers == (again,)


async def test_conflicting_blocks_are_refused(
    factory: SharedInformerFactory,
) -> None:
    async with factory.use("v1", "pods") as pods:
        with pytest.raises(
            OptionsError, match="pass name= for a second informer"
        ) as raised:
            async with factory.use("v1", "pods", page_size=10):
                raise AssertionError("it is not entered")

        assert str(raised.value).count(__file__) == 2, "both calling places"
        await pods.wait_synced(timeout=10)

    assert not factory.informers


async def test_informer_has_the_indexes_of_all_blocks(
    factory: SharedInformerFactory,
) -> None:
    async with factory.use("v1", "pods") as pods:
        node = index_by("spec.nodeName")
        async with factory.use("v1", "pods", indexers={"node": node}) as again:
            assert again is pods
            assert "node" in pods.indexer.indexers


# ---------------------------------------------------------------- permanent informers


async def test_permanent_informer_is_shared_and_kept(
    factory: SharedInformerFactory,
) -> None:
    pods = factory.informer("v1", "pods")
    async with factory.use("v1", "pods") as used:
        assert used is pods
        await pods.wait_synced(timeout=10)

    assert factory.informers == (pods,)
    assert len(pods.lister.list()) == 2


async def test_informer_requested_permanently_during_the_block_is_kept(
    factory: SharedInformerFactory,
) -> None:
    async with factory.use("v1", "pods") as used:
        pods = factory.informer("v1", "pods")

    assert pods is used
    await factory.wait_for_cache_sync(timeout=10)
    assert len(pods.lister.list()) == 2


async def test_temporary_informers_do_not_affect_factory_readiness(
    factory: SharedInformerFactory,
) -> None:
    factory.informer("v1", "nodes")
    async with factory.use("v1", "secrets") as secrets:  # not served
        await factory.wait_for_cache_sync(timeout=10)

        assert factory.not_ready() == {}
        assert not secrets.has_synced


# ---------------------------------------------------------------- start and shutdown


@pytest.fixture
def unanswered() -> SharedInformerFactory:
    return SharedInformerFactory(FakeClient())


async def test_use_requires_a_running_factory(
    unanswered: SharedInformerFactory,
) -> None:
    with pytest.raises(
        OptionsError, match="cannot use 'pods': the factory is not running"
    ):
        async with unanswered.use("v1", "pods"):
            raise AssertionError("it is not entered")

    assert unanswered.informers == ()
    async with unanswered:
        await settle()

    with pytest.raises(InformerStopped, match="factory has ended"):
        async with unanswered.use("v1", "pods"):
            raise AssertionError("it is not entered")


@pytest.mark.parametrize(
    "options", [{"label_selector": "a in b"}, {"page_size": 0}, {"namespace": []}]
)
async def test_invalid_options_are_refused_at_once(
    unanswered: SharedInformerFactory, options: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"a in b|page_size|namespaces"):
        unanswered.use("v1", "pods", **options)


async def test_unknown_options_are_refused_at_once(
    unanswered: SharedInformerFactory,
) -> None:
    with pytest.raises(TypeError, match="unknown options of an informer: colour"):
        unanswered.use("v1", "pods", colour="red")  # type: ignore[call-arg]


async def test_block_that_is_not_entered_starts_nothing(
    unanswered: SharedInformerFactory,
) -> None:
    async with unanswered:
        unanswered.use("v1", "pods")
        await settle()
        assert unanswered.informers == ()


async def test_use_refuses_another_loop(unanswered: SharedInformerFactory) -> None:
    async def use() -> None:
        async with unanswered.use("v1", "pods"):
            raise AssertionError("it is not entered")

    async with unanswered:
        with pytest.raises(WrongLoop):
            await asyncio.to_thread(lambda: asyncio.run(use()))


async def test_shutdown_stops_informers_in_use(
    unanswered: SharedInformerFactory,
) -> None:
    await unanswered.start()
    async with unanswered.use("v1", "pods") as pods:
        waiter = asyncio.create_task(pods.wait_synced())
        await settle()
        await unanswered.shutdown()

        with pytest.raises(InformerStopped):
            await waiter

        with pytest.raises(InformerStopped):
            pods.lister.list()


async def test_dead_informer_stays_dead_for_its_users_and_is_new_for_the_next(
    api: API,
) -> None:
    client = Client.from_url(api.url)
    factory = SharedInformerFactory(client)
    await factory.start()
    answer = client.stream
    async with factory.use("v1", "pods"):
        break_requests(client, "pods")
        assert isinstance(await factory.failed(), Bug)
        with pytest.raises(InformerStopped):
            async with factory.use("v1", "pods"):
                raise AssertionError("it is not entered")

    client.stream = answer  # type: ignore[method-assign]
    async with factory.use("v1", "pods") as again:
        await again.wait_synced(timeout=10)
        assert len(again.lister.list()) == 2

    with pytest.raises(Bug):
        await factory.shutdown()


# ---------------------------------------------------------------- use in handlers


async def test_handler_can_leave_the_block_of_its_informer(
    factory: SharedInformerFactory,
) -> None:
    stack = contextlib.AsyncExitStack()
    pods = await stack.enter_async_context(factory.use("v1", "pods"))
    recorder = Recorder()

    @pods.on_add
    async def leave(_: object) -> None:
        await stack.aclose()
        recorder.record.append(pods.status.phase)

    async with asyncio.timeout(60):
        while pods.status.phase != "stopped":
            await asyncio.sleep(0.1)

    assert recorder.record[0] != "stopped", "no deadlock"
    assert not factory.informers


async def test_handler_can_use_another_informer(
    factory: SharedInformerFactory,
) -> None:
    found: list[int] = []
    pods = factory.informer("v1", "pods")

    @pods.on_add
    async def look(_: object) -> None:
        async with factory.use("v1", "nodes") as nodes:
            await nodes.wait_synced(timeout=10)
            found.append(len(nodes.lister.list()))

    async with asyncio.timeout(60):
        while len(found) < 2:
            await asyncio.sleep(0.1)

    await settle()
    assert factory.informers == (pods,)
