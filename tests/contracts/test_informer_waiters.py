"""G8 and G9 for waiters of an informer, over real HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from factory_helpers import Bug, break_requests
from informer_helpers import settle, text_of
from informers import Event, plain, pods_of, settled

from aioinformer import SharedInformerFactory
from aioinformer.errors import InformerStopped
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioinformer import SharedInformer

KEY = "default/web"


def never(subject: object) -> bool:
    return False


async def next_event(informer: SharedInformer) -> None:
    async with informer.events() as events:
        async for _ in events:
            pass


async def handled(informer: SharedInformer) -> None:
    """Add a handler that never finishes the first list."""
    waiting = asyncio.Event()
    registration = informer.add_event_handler(on_add=lambda obj: waiting.wait())
    await registration.wait_synced()


WAITERS: dict[str, Callable[[SharedInformer], Coroutine[Any, Any, object]]] = {
    "of-an-object": lambda it: it.wait_until(never, KEY),
    "of-the-store": lambda it: it.wait_until(never),
    "of-a-version": lambda it: it.wait_for_version("999999"),
    "of-events": next_event,
    "of-a-handler": handled,
}

READS: dict[str, Callable[[SharedInformer], object]] = {
    "get": lambda it: it.lister.get(KEY),
    "list": lambda it: it.lister.list(),
    "json": lambda it: it.lister.json(),
    "by_index": lambda it: it.lister.by_index("namespace", "default"),
    "namespace": lambda it: it.lister.namespace("default").list(),
    "into": lambda it: it.lister.into(dict).list(),
}


def refused(informer: SharedInformer) -> list[str]:
    """Return the reads that a dead informer refuses."""
    names = []
    for name, read in READS.items():
        try:
            read(informer)
        except InformerStopped:
            names.append(name)

    return names


@pytest.mark.parametrize("wait", WAITERS.values(), ids=WAITERS)
async def test_G8_waiter_raises_informer_stopped(
    wait: Callable[[SharedInformer], Coroutine[Any, Any, None]],
) -> None:
    async with APIServer() as server:
        server.create(PODS, plain("web"))
        async with pods_of(server) as (_, informer):
            waiter = asyncio.create_task(wait(informer))
            await settle()
            assert not waiter.done()

        with pytest.raises(InformerStopped) as caught:
            await waiter

        assert caught.value.__cause__ is None
        assert refused(informer) == [*READS]
        with pytest.raises(InformerStopped):
            await wait(informer)


@pytest.mark.parametrize("wait", WAITERS.values(), ids=WAITERS)
async def test_G8_waiter_raises_with_the_cause_of_death(
    wait: Callable[[SharedInformer], Coroutine[Any, Any, None]],
) -> None:
    async with APIServer() as server:
        server.create(PODS, plain("web"))
        client = server.client()
        factory = SharedInformerFactory(client)
        informer = factory.informer("v1", "pods")
        break_requests(client, "pods", after=1.0, watches_only=True)
        await factory.start()
        await factory.wait_for_cache_sync(timeout=30)
        waiter = asyncio.create_task(wait(informer))
        error = await factory.failed()

        with pytest.raises(InformerStopped) as caught:
            async with asyncio.timeout(10):
                await waiter

        if wait is not handled:  # its registration reports that
            assert caught.value.__cause__ is error

        assert refused(informer) == [*READS]
        with pytest.raises(Bug):
            await factory.shutdown()


async def test_G8_waiter_sees_what_the_server_holds() -> None:
    async with APIServer() as server, pods_of(server) as (_, informer):
        for number in range(20):
            name = f"web-{number}"
            waiter = asyncio.create_task(
                informer.wait_until(lambda it: it is not None, f"default/{name}")
            )
            server.create(PODS, plain(name))
            await waiter
            server.delete(PODS, name)
            await informer.wait_until(lambda it: it is None, f"default/{name}")

        assert informer.lister.list() == []


async def test_G9_waiter_leaves_nothing_in_the_informer() -> None:
    async with APIServer() as server, pods_of(server) as (_, informer):
        before = asyncio.all_tasks()
        followers = list(informer._run_state.followers)
        waiters = [asyncio.create_task(wait(informer)) for wait in WAITERS.values()]
        await settle()
        during = len(informer._waiters)
        for waiter in waiters:
            waiter.cancel()

        await asyncio.wait(waiters)
        for registration in informer._processor.listeners:
            informer._processor.remove(registration)

        await settle()

        assert during == 3
        assert len(informer._waiters) == 0
        assert informer._run_state.followers == followers
        assert asyncio.all_tasks() == before


async def test_G9_informer_with_many_waiters_leaves_nothing() -> None:
    async with APIServer() as server:
        server.create(PODS, plain("web"))
        before = asyncio.all_tasks()
        async with pods_of(server) as (_, informer):
            waiters = [
                asyncio.create_task(wait(informer))
                for wait in WAITERS.values()
                for _ in range(5)
            ]
            await asyncio.sleep(1)

        ends = await asyncio.gather(*waiters, return_exceptions=True)

        assert {type(end) for end in ends} == {InformerStopped}
        await asyncio.sleep(0.1)
        assert asyncio.all_tasks() <= before
        loop: Any = asyncio.get_running_loop()
        ours = [timer for timer in loop._scheduled if "aioinformer" in repr(timer)]
        assert [timer for timer in ours if not timer.cancelled()] == []


async def test_G5_handlers_and_iterators_added_late_see_everything() -> None:
    """Add and remove handlers, indexes and event iterators during changes."""
    async with APIServer() as server, pods_of(server) as (_, informer):
        seen: dict[int, list[str]] = {}
        wrong: list[str] = []
        for number in range(60):
            server.create(PODS, plain(f"pod-{number}", app=f"a{number % 3}"))
            if number % 2:
                server.delete(PODS, f"pod-{number - 1}")

            record = seen[number] = []
            registration = informer.add_event_handler(on_event=Teller(record))
            informer.add_indexers({f"by-{number}": lambda obj: [obj.labels["app"]]})
            async with informer.events() as events:
                await settled_at(server, informer)
                waiting = events.depth
                names = [text_of(await anext(events)) for _ in range(waiting)]
                if names != record:
                    wrong.append(f"{number}: {names} and {record}")

            if number % 3:
                registration.remove()

        await settled(server, informer)
        names = sorted(obj.name for obj in informer.lister.list())
        sizes = {
            sum(len(informer.lister.by_index(f"by-{n}", f"a{a}")) for a in range(3))
            for n in range(60)
        }
        stays = [record for number, record in seen.items() if number % 3 == 0]

    assert wrong == []
    assert names == sorted(f"pod-{number}" for number in range(1, 60, 2))
    assert sizes == {30}
    for record in stays:
        assert folded(record) == set(names)


class Teller:
    """A handler that records its events."""

    def __init__(self, record: list[str]) -> None:
        self._record = record

    def __call__(self, event: Event) -> None:
        self._record.append(text_of(event))


async def settled_at(server: APIServer, informer: SharedInformer) -> None:
    await informer.wait_for_version(server.resource_version, timeout=300)
    await settle()


def folded(record: list[str]) -> set[str]:
    """Return the objects that result from the events."""
    there: set[str] = set()
    for what, _, name in (line.partition(" ") for line in record):
        if what in {"deleted", "missed"}:
            there.remove(name)
        else:
            assert (name in there) == (what == "updated")
            there.add(name)

    return there
