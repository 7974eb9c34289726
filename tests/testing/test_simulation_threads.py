"""Clocks and threads of simulated programs: virtual time, and whom threads belong to."""

from __future__ import annotations

import asyncio
import math
import pickle
import random
import threading
import time
from concurrent.futures import Executor, Future
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest
from simulation_helpers import failure, get, run, write

from aioinformer import Controller, Manager
from aioinformer.controller import labels_changed
from aioinformer.errors import (
    ApiError,
    TransportError,
)
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing.simulation import (
    Cluster,
    Simulation,
)
from aioinformer.testing.simulation import loop as loop_module

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer import Client, KubeObject, ReconcileRequest
    from aioinformer.controller import Context


def test_time_is_virtual_by_every_clock() -> None:
    clocks: list[Callable[[], float]] = [
        lambda: datetime.now(UTC).timestamp(),
        lambda: time.time(),
        lambda: time.time_ns() / 1e9,
        lambda: time.monotonic(),
        lambda: time.monotonic_ns() / 1e9,
        lambda: time.perf_counter(),
        lambda: time.perf_counter_ns() / 1e9,
        lambda: perf_counter(),  # by its own name
    ]

    async def main(client: Client) -> None:
        async with client:
            began = [clock() for clock in clocks]
            await asyncio.sleep(3600)
            took = [
                clock() - before for clock, before in zip(clocks, began, strict=True)
            ]
            await write(client, "it", took=str([f"{it:.0f}" for it in took]))
            await asyncio.sleep(1e6)

    real = time.monotonic, perf_counter
    run(
        main,
        lambda it: get(it, "it") == {"took": str(["3600"] * len(clocks))},
        settle_seconds=4000,
        strategies=["unobserved states"],
    )
    assert (time.monotonic, perf_counter) == real


def test_clock_of_module_that_a_program_imports_is_real_afterwards() -> None:
    names: dict[str, Any] = {}
    lines = [
        "import time",
        "from time import monotonic",
        "class It: now = time.monotonic",
    ]

    async def main(client: Client) -> None:
        exec("\n".join(lines), names)
        before, began = asyncio.get_running_loop().time(), time.monotonic()
        assert names["monotonic"]() == names["It"]().now() == before == began
        assert before - 0.0 > 24 * 3600, "0 is long ago"
        await asyncio.sleep(1e6)

    run(main, strategies=["unobserved states"])
    assert names["monotonic"]() == pytest.approx(time.monotonic(), abs=60)
    assert names["It"]().now() == pytest.approx(time.monotonic(), abs=60)


def test_handlers_in_threads_take_no_virtual_time() -> None:
    seen: list[tuple[str, float]] = []

    def slow(obj: KubeObject) -> None:
        time.sleep(0.02)
        seen.append((obj.name, time.time()))

    async def main(client: Client) -> None:
        manager = Manager(client)
        informer = manager.informer(CONFIG_MAPS)
        informer.add_event_handler(on_add=slow, thread=True)
        await manager.run()

    async def creates(cluster: Cluster) -> None:
        await cluster.sleep(5)
        for number in range(5):
            body = {"metadata": {"name": str(number), "namespace": "default"}}
            cluster.create(CONFIG_MAPS, body)

    run(main, workload=creates, strategies=["partitions"])
    assert [name for name, _ in seen[-5:]] == ["0", "1", "2", "3", "4"]
    assert seen[-1][1] == seen[-5][1]


def test_thread_that_never_returns_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_module, "_MOST_POLLS", 50)
    ended = threading.Event()

    async def main(client: Client) -> None:
        await asyncio.to_thread(ended.wait, 60)

    try:
        assert "a thread does not return" in failure(main)
    finally:
        ended.set()


def test_threads_take_no_virtual_time() -> None:
    async def main(client: Client) -> None:
        async with client:
            before = asyncio.get_running_loop().time()
            await asyncio.to_thread(time.sleep, 0.05)
            took = asyncio.get_running_loop().time() - before
            await write(client, "it", took=str(took))
            await asyncio.sleep(1e6)

    run(main, lambda it: get(it, "it") == {"took": "0.0"}, strategies=["stale states"])


def test_waits_until_a_time_do_not_stop_the_clock() -> None:
    """They may ask for less than a clock can tell, and what they get is rounded."""

    async def main(client: Client) -> None:
        loop = asyncio.get_running_loop()
        while True:
            end = time.monotonic() + random.uniform(1, 10)
            while (left := end - time.monotonic()) > 0:
                await asyncio.sleep(left)

            end = time.time() + random.uniform(1, 10)
            while (left := end - time.time()) > 0:
                await asyncio.sleep(timedelta(seconds=left).total_seconds())

            end = loop.time() + random.uniform(1, 10)
            while loop.time() < end:
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.Event().wait(), end - loop.time())

    run(main, workload=lambda it: it.sleep(1000), seeds=10, strategies=["stale states"])


def test_thread_waits_for_a_request_in_the_loop() -> None:
    def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        for number in ("1", "2"):
            body = {"data": {"n": number}}
            ctx.wait(
                ctx.client.patch(CONFIG_MAPS, "it", body, namespace=request.namespace)
            )
            time.sleep(0.001)
            ctx.wait(asyncio.sleep(10))

    async def later(cluster: Cluster) -> None:
        cluster.create(CONFIG_MAPS, {"metadata": {"name": "it"}})
        await cluster.sleep(60)

    def manager(client: Client) -> Manager:
        it = Manager(client)
        predicates = [labels_changed]
        maps = it.informer(CONFIG_MAPS)
        it.add(Controller("maps", reconcile, for_=maps, predicates=predicates))
        return it

    run(manager, lambda it: get(it, "it") == {"n": "2"}, workload=later, seeds=12)


@pytest.mark.parametrize("strategy", ["intermediate states", "partitions"])
@pytest.mark.parametrize("way", ["reconcile", "executor", "thread"])
def test_threads_belong_to_their_program(way: str, strategy: str) -> None:
    """Nothing that they begin survives it, and they do not wait for it for ever."""
    starts: list[int] = []

    async def writing(client: Client, number: int) -> None:
        while True:
            with suppress(ApiError, TransportError):
                await write(client, "it", by=str(number))

            await asyncio.sleep(1)

    def program(client: Client) -> Any:
        starts.append(len(starts))
        number = starts[-1]
        if way == "reconcile":

            def reconcile(request: ReconcileRequest, ctx: Context) -> None:
                for _ in range(3):
                    ctx.set_status(a=1)
                    time.sleep(0.0005)

                ctx.wait(writing(client, number))

            manager = Manager(client)
            maps = manager.informer(CONFIG_MAPS)
            manager.add(Controller("maps", reconcile, for_=maps))
            return manager

        async def main() -> None:
            loop = asyncio.get_running_loop()

            def begin() -> None:
                asyncio.run_coroutine_threadsafe(writing(client, number), loop)

            async with client:
                if way == "executor":
                    await loop.run_in_executor(None, begin)
                else:
                    threading.Thread(target=begin).start()

                while True:
                    with suppress(ApiError, TransportError):
                        await client.get(CONFIG_MAPS, "it", namespace="default")

                    await asyncio.sleep(1)

        return main()

    highest: list[int] = []

    def only_the_newest_writes(cluster: Cluster) -> None:
        by = int(get(cluster, "it").get("by", 0))
        assert by >= max(highest, default=0)
        highest.append(by)

    def setup(cluster: Cluster) -> None:
        starts.clear()
        highest.clear()
        cluster.create(CONFIG_MAPS, {"metadata": {"name": "it"}, "data": {}})

    before = threading.active_count()
    Simulation().run(
        program,
        setup=setup,
        workload=lambda it: it.sleep(60),
        invariants=[only_the_newest_writes],
        strategies=[strategy],
        seeds=8,
    )
    deadline = time.monotonic() + 10
    while threading.active_count() > before + 1 and time.monotonic() < deadline:
        time.sleep(0.01)  # one is that of the executor

    assert threading.active_count() <= before + 1


class Pickling(Executor):
    """Executor that needs what it gets in another process."""

    def submit(self, fn: Any, /, *args: Any, **more: Any) -> Future[Any]:
        function, given = pickle.loads(pickle.dumps((fn, args)))
        done: Future[Any] = Future()
        done.set_result(function(*given))
        return done


def test_calls_from_and_into_threads_are_those_of_the_program() -> None:
    async def main(client: Client) -> None:
        loop, called = asyncio.get_running_loop(), asyncio.Event()
        assert await loop.run_in_executor(Pickling(), math.sqrt, 4) == 2

        def thread() -> None:
            def callback() -> None:
                called.set()
                assert late

            loop.call_soon_threadsafe(callback)
            time.sleep(0.01)
            late = True

        await asyncio.to_thread(thread)
        await called.wait()
        async with client:
            await write(client, "it", done="yes")
            await asyncio.sleep(1e6)

    run(main, lambda it: get(it, "it") == {"done": "yes"}, strategies=["stale states"])


def test_clock_of_a_thread_goes_on() -> None:
    def poll() -> None:
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            time.sleep(0.01)

    async def main(client: Client) -> None:
        async with client:
            await asyncio.to_thread(poll)
            await asyncio.to_thread(lambda: asyncio.run(asyncio.sleep(0.01)))
            loop = asyncio.get_running_loop()

            def begins() -> None:
                asyncio.run_coroutine_threadsafe(asyncio.sleep(3600), loop)
                time.sleep(0.05)

            before = loop.time()
            await asyncio.to_thread(begins)
            assert loop.time() - before < 1, "nobody waits for it"
            await write(client, "it", done="yes")
            await asyncio.sleep(1e6)

    run(main, lambda it: get(it, "it") == {"done": "yes"}, strategies=["stale states"])
