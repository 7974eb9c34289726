"""G10 of controllers, and their behaviour with many objects and failing reconciles."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import tracemalloc
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import (
    Acts,
    Lagging,
    Notes,
    controlled,
    informed,
    informer_of,
    named,
)
from fake_source import FakeSource, Page, Stream, modified
from informer_helpers import running, settle
from metrics_helpers import PlainSink

from aioinformer import Controller, KubeObject, PriorityQueue, ReconcileRequest, Result
from aioinformer.model.resources import CONFIG_MAPS, PODS
from aioinformer.testing import APIServer, FakeListerWatcher
from aioinformer.workqueue import ItemExponentialFailureRateLimiter

if TYPE_CHECKING:
    from aioinformer.controller import Context


# ---------------------------------------------------------------- G10


class RandomOutcomes(Notes):
    """A reconcile that records states, then works, raises, hangs or cancels itself."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng
        self.good = False
        self.seen: dict[str, int] = {}

    async def act(self, request: ReconcileRequest, ctx: Context) -> Result | None:
        pod = ctx.lister.get(request.key)
        saw = -1 if pod is None else int(pod.labels["n"])
        if not self.good:
            await asyncio.sleep(self.rng.choice([0, 0, 0.01, 0.5, 3]))
            await self._misbehave(self.rng.randrange(8))

        # Only completed reconciles count.
        self.seen[request.name] = saw
        return None

    async def _misbehave(self, number: int) -> None:
        if number == 0:
            raise ValueError("boom")

        if number == 1:
            await asyncio.Event().wait()

        if number == 2:
            raise asyncio.CancelledError

        if number == 3:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(1)


@pytest.mark.parametrize("seed", range(5))
async def test_G10_each_change_is_reconciled_and_no_key_twice_at_once(
    seed: int,
) -> None:
    rng = random.Random(seed)
    notes = RandomOutcomes(rng)
    queue: PriorityQueue[ReconcileRequest] = PriorityQueue(
        rate_limiter=ItemExponentialFailureRateLimiter(0.005, 5.0)
    )
    names = [f"pod-{number}" for number in range(8)]
    last: dict[str, int] = {}
    async with controlled(notes, queue=queue, timeout=20, concurrency=3) as (source, _):
        for step in range(300):
            name = rng.choice(names)
            if last.get(name, -1) < 0:
                source.add(named(name, labels={"n": str(step)}))
                last[name] = step
            elif rng.random() < 0.2:
                source.delete(named(name))
                last[name] = -1
            else:
                source.modify(named(name, labels={"n": str(step)}))
                last[name] = step

            await asyncio.sleep(rng.choice([0, 0, 0.001, 0.1, 1]))

        notes.good = True
        await asyncio.sleep(100)
        assert notes.seen == last
        assert len(notes.names) > 50


async def test_G10_change_during_a_reconcile_is_reconciled_again() -> None:
    async def slowly(request: ReconcileRequest, ctx: Context) -> None:
        await asyncio.sleep(5)

    notes = Acts(slowly)
    async with controlled(notes, FakeListerWatcher(named("a"))) as (source, _):
        source.modify(named("a", labels={"n": "1"}))
        await asyncio.sleep(1)
        assert notes.names == ["a"]
        await asyncio.sleep(20)

    assert notes.names == ["a", "a"]


# ---------------------------------------------------------------- many objects


def held() -> list[int]:
    """Return the sizes of the allocations since tracing began."""
    gc.collect()
    return [trace.size for trace in tracemalloc.take_snapshot().traces]


def objects(count: int, letter: str, version: int) -> list[KubeObject]:
    """Make objects whose size does not depend on their state."""
    return [
        KubeObject.of(
            b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"pod-%05d","namespace":'
            b'"default","uid":"uid-%05d","resourceVersion":"%d","labels":{"n":"%b"}}}'
            % (number, number, version + number, letter.encode() * 200)
        )
        for number in range(count)
    ]


def references(kept: list[KubeObject]) -> set[int]:
    """Return the reference counts of objects; the list and the call hold two."""
    return set(map(sys.getrefcount, kept))


async def test_controller_keeps_nothing_after_3000_objects_changed_at_once() -> None:
    count = 3_000
    stream = Stream()
    source = FakeSource(
        [Page(objects(count, "a", 100_000), 200_000, piece=500)], [stream]
    )
    reconciled: Counter[str] = Counter()
    now: set[str] = set()

    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        assert request.key not in now, "one key twice at once"
        now.add(request.key)
        if int(request.name[-5:]) % 64 == 0:
            await asyncio.sleep(0.01)

        pod = ctx.lister.get(request.key)
        assert pod is not None
        reconciled[f"{request.key} {pod.labels['n'][0]}"] += 1
        now.discard(request.key)

    async def change_all(states: list[KubeObject], letter: str) -> None:
        reconciled.clear()
        for start in range(
            0, count, 200
        ):  # all at once, in chunks as a server sends them
            stream.send(*map(modified, states[start : start + 200]))

        await asyncio.sleep(10)
        assert len(reconciled) == count
        assert all(state.endswith(letter) for state in reconciled)
        reconciled.clear()

    pods = informer_of(source)
    controller = Controller("pods", reconcile, for_=pods, concurrency=8)
    async with informed(pods), running(controller.run()):
        await asyncio.sleep(10)
        assert len(reconciled) == count

        # Tracing is slow, so the objects are created before, and counted separately.
        old, new = objects(count, "b", 300_000), objects(count, "c", 500_000)
        await change_all(old, "b")
        tracemalloc.start()
        try:
            await change_all(new, "c")
            sizes = held()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

        # Of the queue's states, of its order and of the FIFO: as large as the tables
        # they replace.
        tables = [size for size in sizes if size > 100_000]
        left = sum(sizes) - sum(tables)
        assert not now
        print(f"{peak:,} bytes at the peak, {left:,} afterwards, and tables: {tables}")
        assert left <= 0.02 * peak
        assert len(tables) <= 3
        assert references(old) == references(objects(1, "d", 1))


# ---------------------------------------------------------------- failing reconciles


async def nonsense() -> str:
    return "done"


async def raises() -> None:
    raise ValueError("boom")


async def hangs() -> None:
    await asyncio.Event().wait()


async def is_cancelled() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (raises, "ValueError: boom"),
        (hangs, "TimeoutError: timed out after 5 s"),
        (is_cancelled, "CancelledError: reconcile cancelled itself"),
        (nonsense, "TypeError: a reconcile must return a Result or None, not str"),
    ],
)
async def test_failing_reconcile_is_reported_and_others_continue(
    act: Any, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def reconcile(request: ReconcileRequest, ctx: Context) -> Any:
        return await act() if request.name == "bad" and ctx.attempt == 1 else None

    sink, notes = PlainSink(), Acts(reconcile)
    source = FakeListerWatcher(named("bad"), named("good"))
    async with controlled(notes, source, concurrency=1, timeout=5, metrics=sink):
        await asyncio.sleep(60)

    assert sorted(notes.names) == ["bad", "bad", "good"]
    (record,) = caplog.records
    assert record.getMessage() == (
        f"controller pods: reconcile failed (key=default/bad attempt=1, will be retried): {text}"
    )
    assert sink.counts["controller_runtime_reconcile_errors_total", ("pods",)] == 1
    assert sink.counts["controller_runtime_reconcile_total", ("pods", "success")] == 2


# ---------------------------------------------------------------- own writes


async def test_reconcile_reads_its_own_writes() -> None:
    count, made, looked = 300, 0, 0
    async with APIServer() as server, server.client() as client:
        for number in range(count):
            server.create(PODS, named(f"pod-{number}"))

        pods = informer_of(Lagging(server.list_watch(PODS), 2.0))
        maps = informer_of(Lagging(server.list_watch(CONFIG_MAPS), 2.0), "maps")

        async def reconcile(request: ReconcileRequest, ctx: Context) -> Result | None:
            nonlocal made, looked
            assert not ctx.stale
            if maps.lister.by_index("pod", request.name):
                looked += 1
                return None

            # With a name generated by the server: nothing would refuse a duplicate.
            labels = {"pod": request.name}
            body = {"metadata": {"generateName": "made-", "labels": labels}}
            await ctx.client.create(CONFIG_MAPS, body, namespace=request.namespace)
            made += 1
            return Result(requeue_after=0)

        maps.add_indexers({"pod": lambda it: [it.labels.get("pod", "")]})
        controller = Controller(
            "pods", reconcile, for_=pods, owns=[maps], client=client, concurrency=16
        )
        async with informed(pods, maps), running(controller.run()):
            async with asyncio.timeout(1000):
                while looked < count:
                    await asyncio.sleep(1)

            await settle()

        assert made == count
        assert len(server.objects(CONFIG_MAPS)) == count
