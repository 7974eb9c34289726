"""Rate limit of a client: order and timing of requests, and cancellation."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from canned import CannedServer
from conftest import pod
from each_case import each_case
from metrics_helpers import PlainSink
from queue_helpers import settle

from aioinformer.client import Client, ClientConfig
from aioinformer.client.throttle import Throttle
from aioinformer.errors import OptionsError, TransportError
from aioinformer.model.resources import PODS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

WAITED = "rest_client_rate_limiter_duration_seconds"


def now() -> float:
    return asyncio.get_running_loop().time()


def timers() -> list[asyncio.TimerHandle]:
    scheduled: list[asyncio.TimerHandle]
    scheduled = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    return [timer for timer in scheduled if not timer.cancelled()]


async def wait_and_record(
    throttle: Throttle, record: list[tuple[str, float]], name: str
) -> None:
    await throttle.wait()
    record.append((name, now()))


# ---------------------------------------------------------------- the bucket


async def test_throttle_allows_burst_then_limits_rate() -> None:
    throttle = Throttle(4, 3)
    times = []

    for _ in range(7):
        await throttle.wait()
        times.append(now())

    assert times == [0, 0, 0, 0.25, 0.5, 0.75, 1]


async def test_pause_refills_bucket_up_to_burst() -> None:
    throttle = Throttle(2, 2)
    times = []
    for _ in range(2):
        await throttle.wait()

    await asyncio.sleep(100)
    for _ in range(4):
        await throttle.wait()
        times.append(now())

    assert times == [100, 100, 100.5, 101]


async def test_throttle_is_first_in_first_out() -> None:
    throttle = Throttle(1, 1)
    record: list[tuple[str, float]] = []

    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(wait_and_record(throttle, record, name))

        await asyncio.sleep(1.5)
        group.create_task(wait_and_record(throttle, record, "d"))

    assert record == [("a", 0), ("b", 1), ("c", 2), ("d", 3)]
    assert timers() == []


async def test_cancelled_waiter_takes_no_token() -> None:
    throttle = Throttle(1, 1)
    record: list[tuple[str, float]] = []
    tasks = [
        asyncio.create_task(wait_and_record(throttle, record, name)) for name in "abcd"
    ]
    await settle()

    tasks[1].cancel()
    tasks[2].cancel()
    await asyncio.wait(tasks)

    assert record == [("a", 0), ("d", 1)]


@pytest.mark.parametrize("before", [False, True], ids=["after it", "before it"])
async def test_waiter_cancelled_with_token_passes_it_on(
    before: bool,
) -> None:
    throttle = Throttle(1, 1)
    record: list[tuple[str, float]] = []
    tasks: list[asyncio.Task[None]] = []

    # In the turn in which its token comes: callbacks run in the order of scheduling.
    if before:
        asyncio.get_running_loop().call_at(1, lambda: tasks[1].cancel())

    tasks += [
        asyncio.create_task(wait_and_record(throttle, record, name)) for name in "abc"
    ]
    await settle()
    if not before:
        asyncio.get_running_loop().call_at(1, tasks[1].cancel)

    await asyncio.wait(tasks)

    assert record == [("a", 0), ("c", 1)]
    assert timers() == []


async def test_new_request_does_not_overtake_waiters() -> None:
    throttle = Throttle(1, 1)
    record: list[tuple[str, float]] = []
    newcomer = wait_and_record(throttle, record, "newcomer")

    def come() -> None:
        with suppress(StopIteration):
            newcomer.send(None)

    # The token is available, and its timer is about to run.
    asyncio.get_running_loop().call_at(1, come)
    await throttle.wait()

    await wait_and_record(throttle, record, "first")

    assert record == [("first", 1)]
    newcomer.close()


async def test_early_timer_grants_its_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    throttle = Throttle(1, 1)
    await throttle.wait()
    waiting = [asyncio.create_task(throttle.wait()) for _ in range(2)]
    await settle()
    loop = asyncio.get_running_loop()

    with monkeypatch.context() as patched:
        patched.setattr(loop, "time", lambda: 1 - 1e-9)
        throttle._drop_timer()
        throttle._on_timer(loop)

    await settle()
    assert [task.done() for task in waiting] == [True, False]
    await waiting[1]
    assert now() == pytest.approx(2)


async def test_timer_is_set_only_while_requests_wait() -> None:
    throttle = Throttle(1, 1)
    await throttle.wait()
    before = timers()
    tasks = [asyncio.create_task(throttle.wait()) for _ in range(3)]
    await settle()
    during = len(timers())

    for task in tasks:
        task.cancel()

    await asyncio.wait(tasks)

    assert before == []
    assert during == 1
    assert timers() == []
    assert repr(throttle) == "<Throttle qps=1 burst=1 waiting=0>"


async def test_closed_coroutine_takes_no_token() -> None:
    throttle = Throttle(1, 1)
    await throttle.wait()
    abandoned = throttle.wait()
    abandoned.send(None)

    abandoned.close()
    await throttle.wait()

    assert now() == 1


async def test_release_wakes_all_waiters() -> None:
    throttle = Throttle(0.001, 1)
    record: list[tuple[str, float]] = []
    tasks = [
        asyncio.create_task(wait_and_record(throttle, record, name)) for name in "abc"
    ]
    await settle()

    throttle.release()
    await asyncio.wait(tasks)

    assert record == [("a", 0), ("b", 0), ("c", 0)]
    assert timers() == []


def test_throttle_works_in_another_loop_with_earlier_clock() -> None:
    throttle = Throttle(100, 1)

    async def use(start: float) -> float:
        loop = asyncio.get_running_loop()
        real = loop.time
        loop.time = lambda: real() + start  # type: ignore[method-assign]
        before = loop.time()
        for _ in range(3):
            await throttle.wait()

        return loop.time() - before

    began = time.monotonic()
    first, second = asyncio.run(use(1e6)), asyncio.run(use(0.0))
    took = time.monotonic() - began

    assert 0.015 < first < took
    assert 0.015 < second < took


@pytest.mark.parametrize("qps", [3, 7, 30, 1000 / 3])
async def test_throttle_keeps_rate_despite_rounding(qps: float) -> None:
    await asyncio.sleep(1e6 / 3)
    before = now()
    throttle = Throttle(qps, 1)

    for _ in range(1000):
        await throttle.wait()

    assert now() - before == pytest.approx(999 / qps, rel=1e-3)


@each_case(
    "qps, burst, expected",
    [
        (None, None, None),
        (5, None, "<Throttle qps=5 burst=10 waiting=0>"),
        (0.1, None, "<Throttle qps=0.1 burst=1 waiting=0>"),
        (0.6, None, "<Throttle qps=0.6 burst=2 waiting=0>"),
        (50, 1, "<Throttle qps=50 burst=1 waiting=0>"),
    ],
)
def test_throttle_has_default_burst(
    qps: float | None, burst: int | None, expected: str | None
) -> None:
    made = Throttle.of(qps, burst)

    assert (None if made is None else repr(made)) == expected


@each_case(
    "qps, burst",
    [
        (0, None),
        (-1, 5),
        (math.nan, None),
        (math.inf, None),
        (5, 0),
        (5, math.nan),
        (5, math.inf),
        (None, 5),
    ],
)
def test_throttle_rejects_invalid_options(qps: float | None, burst: Any) -> None:
    with pytest.raises(OptionsError):
        Client.from_url("http://api.example", qps=qps, burst=burst)


# ---------------------------------------------------------------- a client with it


@pytest.fixture
async def server() -> AsyncIterator[CannedServer]:
    async with CannedServer() as server:
        server.json(pod("a", "x"))
        yield server


async def test_client_limits_rate_of_requests(server: CannedServer) -> None:
    async with Client.from_url(server.url, qps=0.1, burst=2) as client:
        for _ in range(4):
            await client.get(PODS, "a", namespace="x")

        assert 20 <= now() < 20.5

    assert len(server.seen) == 4


async def test_client_has_no_rate_limit_by_default(server: CannedServer) -> None:
    async with Client.from_url(server.url) as client:
        for _ in range(100):
            await client.get(PODS, "a", namespace="x")

        assert now() < 1


async def test_opening_watch_takes_one_token(server: CannedServer) -> None:
    async with Client.from_url(server.url, qps=0.1, burst=1) as client:
        times = []
        for _ in range(3):
            async with client.watch(PODS):
                times.append(now())

    assert times == pytest.approx([0, 10, 20], abs=0.5)


async def test_close_ends_throttled_requests(
    server: CannedServer,
) -> None:
    client = Client.from_url(server.url, qps=0.001, burst=1)
    await client.start()
    await client.get(PODS, "a", namespace="x")
    waiting = [
        asyncio.create_task(client.get(PODS, "a", namespace="x")) for _ in range(3)
    ]
    await settle()
    before = now()

    await client.close()
    await asyncio.wait(waiting)

    assert now() - before < 0.5
    assert [type(task.exception()) for task in waiting] == [TransportError] * 3
    assert len(server.seen) == 1


async def test_cancelled_request_leaves_token_to_next(
    server: CannedServer,
) -> None:
    async with Client.from_url(server.url, qps=0.1, burst=1) as client:
        await client.get(PODS, "a", namespace="x")
        cancelled = asyncio.create_task(client.get(PODS, "a", namespace="x"))
        await settle()
        cancelled.cancel()
        await client.get(PODS, "a", namespace="x")

        assert 10 <= now() < 10.5

    assert len(server.seen) == 2


async def test_unentered_client_raises_before_throttling() -> None:
    client = Client.from_url("http://api.example", qps=0.001, burst=1)

    for _ in range(2):
        with pytest.raises(OptionsError, match="async with client"):
            await client.get(PODS, "a", namespace="x")

    assert now() == 0


async def test_throttled_time_is_measured(server: CannedServer) -> None:
    sink = PlainSink()
    client = Client.from_url(server.url, qps=0.1, burst=1, metrics=sink)
    async with client:
        for _ in range(2):
            await client.get(PODS, "a", namespace="x")

    assert sink.observed[WAITED][0] == 0
    assert sink.observed[WAITED][1] == pytest.approx(10, abs=0.5)
    assert sink.labels[WAITED] == {
        ("verb", "GET"),
        ("host", server.url.removeprefix("http://")),
    }


async def test_unthrottled_client_measures_no_throttled_time(
    server: CannedServer,
) -> None:
    sink = PlainSink()
    async with Client.from_url(server.url, metrics=sink) as client:
        await client.get(PODS, "a", namespace="x")

    assert WAITED not in sink.observed


class BrokenSink(PlainSink):
    def observe(self, name: str, value: float, /, **labels: str) -> None:
        self.calls += 1
        raise ZeroDivisionError


async def test_failing_sink_does_not_fail_requests(
    server: CannedServer, caplog: pytest.LogCaptureFixture
) -> None:
    sink = BrokenSink()
    async with Client.from_url(server.url, qps=5, metrics=sink) as client:
        for _ in range(3):
            await client.get(PODS, "a", namespace="x")

    assert sink.calls == 1
    assert "the metrics sink failed" in caplog.text


@pytest.mark.parametrize("way", ["from_env", "from_kubeconfig", "in_cluster", "source"])
def test_every_client_constructor_accepts_rate(way: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"qps": 7, "burst": 9}
    if way == "source":
        client = Client(ClientConfig(server="http://api.example"), **options)
    else:
        client = getattr(Client, way)(**options)

    assert repr(client._endpoint._throttle) == "<Throttle qps=7 burst=9 waiting=0>"
