"""Informers during and after an outage in which no connection can be made."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from informer_helpers import running
from wire import Cutting, Proxy, proxying

from aioinformer import Client, KubeObject, ListWatch, SharedInformer
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer
from aioinformer.watch import EventType, RetryWatch
from aioinformer_apiserver.faults import Gone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from aioinformer.watch import WatchEvent

OBJECTS = 5


def pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


@asynccontextmanager
async def informers_of(url: str, number: int) -> AsyncIterator[list[SharedInformer]]:
    """Run informers of one client, each with jitter of its own."""
    async with Client.from_url(url) as client, AsyncExitStack() as stack:
        informers = [
            SharedInformer(
                ListWatch(client, PODS), name=f"pods-{seed}", rng=random.Random(seed)
            )
            for seed in range(number)
        ]
        for informer in informers:
            await stack.enter_async_context(running(informer.run()))

        for informer in informers:
            await informer.wait_synced(timeout=60)

        yield informers


async def seconds_until_equal(
    server: APIServer, informers: Sequence[SharedInformer]
) -> float:
    """Wait until all stores show what the server has."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    wanted = {it["metadata"]["resourceVersion"] for it in server.objects(PODS)}
    for informer in informers:
        while wanted != {it.resource_version for it in informer.store.list()}:
            await asyncio.sleep(0.05)

    return loop.time() - began


def probes(proxy: Proxy, after: float) -> list[float]:
    """Return the times of refused connections after some time."""
    return [when for when in proxy.refused if when > after]


@pytest.mark.parametrize(
    ("seconds", "number", "bound", "expired"),
    [
        pytest.param(2, 1, 5.0, False, id="2s-one-resumed"),
        pytest.param(15, 50, 10.0, True, id="15s-many-relisted"),
        pytest.param(60, 1, 5.0, True, id="60s-one-relisted"),
        pytest.param(300, 50, 10.0, False, id="300s-many-resumed"),
    ],
)
async def test_informers_are_equal_soon_after_an_outage(
    seconds: float, number: int, bound: float, *, expired: bool
) -> None:
    loop = asyncio.get_running_loop()
    async with (
        APIServer() as server,
        proxying(server.url) as proxy,
    ):
        for name in range(OBJECTS):
            server.create(PODS, pod(f"old-{name}"))

        async with informers_of(proxy.url, number) as informers:
            await asyncio.sleep(300)
            proxy.break_off()
            down = loop.time()
            server.create(PODS, pod("new"))
            server.delete(PODS, "old-0", namespace="default")
            if expired:
                server.faults.add(Gone(times=number))

            await asyncio.sleep(seconds)
            proxy.refusing = False
            took = await seconds_until_equal(server, informers)

    assert took < bound
    # Each informer detects the outage by itself. Then one probes for all of them.
    tries = probes(proxy, down + 0.5)
    assert len(proxy.refused) - len(tries) <= number
    assert len(tries) <= seconds
    assert all(after - before >= 0.99 for before, after in pairwise(tries))


async def test_watches_of_a_client_resume_spread_over_two_seconds() -> None:
    async with APIServer() as server, proxying(server.url) as proxy:
        async with informers_of(proxy.url, 50) as informers:
            await asyncio.sleep(10)
            proxy.break_off()
            await asyncio.sleep(30)
            before = len(proxy.watches)
            proxy.refusing = False
            server.create(PODS, pod("new"))
            await seconds_until_equal(server, informers)

        times = [it.answered for it in proxy.watches[before:]]

    assert len(times) == 50
    assert 1.0 < max(times) - min(times) <= 3.5
    assert max(sum(0 <= it - one < 0.2 for it in times) for one in times) < 20


async def test_another_informer_probes_after_the_prober_is_stopped() -> None:
    loop = asyncio.get_running_loop()
    async with (
        APIServer() as server,
        proxying(server.url) as proxy,
        Client.from_url(proxy.url) as client,
    ):
        first, second = (
            SharedInformer(ListWatch(client, PODS), name=name, rng=random.Random(1))
            for name in ("first", "second")
        )
        async with running(second.run()):
            async with running(first.run()):
                await first.wait_synced(timeout=10)
                await second.wait_synced(timeout=10)
                proxy.break_off()
                await asyncio.sleep(20.2)

            stopped = loop.time()
            await asyncio.sleep(20)
            tries = probes(proxy, stopped)
            proxy.refusing = False
            server.create(PODS, pod("new"))

            assert await seconds_until_equal(server, [second]) < 5.0

    assert 10 <= len(tries) <= 20


async def test_informer_started_in_an_outage_lists_soon_after_it() -> None:
    async with (
        APIServer() as server,
        proxying(server.url) as proxy,
        Client.from_url(proxy.url) as client,
    ):
        proxy.break_off()
        informer = SharedInformer(ListWatch(client, PODS), rng=random.Random(1))
        async with running(informer.run()):
            await asyncio.sleep(300)
            assert informer.status.phase == "backing off"
            proxy.refusing = False
            server.create(PODS, pod("new"))

            assert await seconds_until_equal(server, [informer]) < 5.0


def anonymous(obj: KubeObject) -> KubeObject:
    return KubeObject.of({"metadata": {"name": obj.name, "namespace": obj.namespace}})


@pytest.mark.parametrize(
    ("select", "options"),
    [
        pytest.param({}, {"transform": lambda _: None}, id="left-out"),
        pytest.param({}, {"transform": anonymous}, id="without-identity"),
        pytest.param({}, {"compression": "zstd"}, id="compressed"),
        pytest.param({"metadata_only": True}, {}, id="metadata-only"),
        pytest.param({"field_selector": "status.phase=Running"}, {}, id="fields"),
        pytest.param({"label_selector": "app=web"}, {}, id="labels"),
    ],
)
async def test_informer_of_some_data_resumes_after_an_outage(
    select: dict[str, Any], options: dict[str, Any]
) -> None:
    async with (
        APIServer() as server,
        proxying(server.url) as proxy,
        Client.from_url(proxy.url) as client,
    ):
        for number in range(OBJECTS):
            body = pod(f"a{number}")
            body["metadata"]["labels"] = {"app": "web" if number % 2 else "db"}
            body["status"] = {"phase": "Running" if number % 2 else "Pending"}
            server.create(PODS, body)

        informer = SharedInformer(ListWatch(client, PODS, **select), **options)
        async with running(informer.run()):
            await informer.wait_synced(timeout=60)
            for name in ("a0", "a1"):
                server.patch(PODS, name, {"metadata": {"labels": {"app": "web"}}})

            server.delete(PODS, "a3")
            await asyncio.sleep(30)
            proxy.break_off()
            await asyncio.sleep(10)
            server.patch(PODS, "a1", {"status": {"phase": "Pending"}})
            proxy.refusing = False
            await asyncio.sleep(30)

            assert informer.status.history_resets == 0
            lists = [
                it.query.get("limit") for it in server.requests if it.verb == "list"
            ]
            assert "1" in lists, "the history has been checked"
            assert len(lists) - lists.count("1") <= 1, "it has not relisted"


async def test_retry_watch_resumes_soon_after_an_outage() -> None:
    loop = asyncio.get_running_loop()
    async with (
        APIServer() as server,
        proxying(server.url) as proxy,
        Client.from_url(proxy.url) as client,
    ):
        version = server.create(PODS, pod("old"))["metadata"]["resourceVersion"]
        async with RetryWatch(
            ListWatch(client, PODS), version, rng=random.Random(1)
        ) as watch:
            server.create(PODS, pod("first"))
            assert [it.object.name for it in await watch.next_batch()] == ["first"]
            proxy.break_off()
            loop.call_later(300, setattr, proxy, "refusing", False)
            server.create(PODS, pod("second"))
            began = loop.time()
            assert [it.object.name for it in await watch.next_batch()] == ["second"]

    assert 300 <= loop.time() - began < 305
    assert len(proxy.refused) <= 300


async def test_refused_connection_of_one_retry_watch_wakes_the_others() -> None:
    loop = asyncio.get_running_loop()
    async with (
        APIServer() as server,
        proxying(server.url) as proxy,
        Client.from_url(proxy.url) as client,
        AsyncExitStack() as stack,
    ):
        version = server.create(PODS, pod("old"))["metadata"]["resourceVersion"]
        ends: list[asyncio.Task[list[WatchEvent]]] = []
        for seed in range(50):
            watch = await stack.enter_async_context(
                RetryWatch(ListWatch(client, PODS), version, rng=random.Random(seed))
            )
            ends.append(asyncio.create_task(watch.next_batch()))

        await asyncio.sleep(5)
        proxy.break_off()
        await asyncio.sleep(30)
        server.faults.add(Gone(times=50))
        proxy.refusing = False
        began = loop.time()
        await asyncio.wait(ends)

    assert all(end.result()[0].type is EventType.ERROR for end in ends)
    assert loop.time() - began < 10


# ---------------------------------------------------------------- cutting proxies


async def mean_delay(
    server: APIServer, informer: SharedInformer, hours: float
) -> float:
    """Return the mean delay of changes in the store, in seconds."""
    loop = asyncio.get_running_loop()
    until, random_times = loop.time() + 3600 * hours, random.Random(1)
    delays: list[float] = []
    while loop.time() < until:
        await asyncio.sleep(10 * random_times.random())
        changed = server.patch(
            PODS,
            "old",
            {"metadata": {"labels": {"n": str(len(delays))}}},
            namespace="default",
        )
        began = loop.time()
        await informer.wait_for_version(changed["metadata"]["resourceVersion"])
        delays.append(loop.time() - began)

    return sum(delays) / len(delays)


@pytest.mark.parametrize(("seconds", "how"), [(5, "reset"), (15, "end"), (55, "fin")])
async def test_changes_arrive_as_fast_through_a_cutting_proxy_after_an_outage(
    seconds: float, how: Cutting
) -> None:
    async with (
        APIServer() as server,
        proxying(server.url, how=how, seconds=seconds) as proxy,
    ):
        server.create(PODS, pod("old"))
        async with informers_of(proxy.url, 1) as (informer,):
            before = await mean_delay(server, informer, hours=0.25)
            proxy.break_off()
            await asyncio.sleep(70)
            proxy.refusing = False
            after = await mean_delay(server, informer, hours=0.25)

    assert before < 0.1
    assert after < 0.1
