"""`Watch`: batches and single events, and the end of a watch."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from canned import summaries
from conftest import pod

from aioinformer.errors import TransportError
from aioinformer.watch import Watch, WatchEvent


def event(name: str) -> WatchEvent:
    return WatchEvent.of("ADDED", pod(name))


class Proxy(Watch):
    """Minimal watch of events that a test sends."""

    def __init__(self, *batches: str | Exception | None) -> None:
        super().__init__()
        self.batches = deque(batches)
        self.arrived = asyncio.Event()
        self.fetches = 0
        self.closings = 0

    def send(self, batch: str | Exception | None) -> None:
        self.batches.append(batch)
        self.arrived.set()

    async def _fetch(self) -> list[WatchEvent]:
        self.fetches += 1
        while not self.batches and not self.stopped:
            self.arrived.clear()
            await self.arrived.wait()

        batch = self.batches.popleft() if self.batches else None
        if isinstance(batch, Exception):
            raise batch

        return [event(name) for name in batch or ""]

    def _close(self) -> None:
        self.closings += 1
        self.arrived.set()


async def test_watch_returns_batches_as_they_arrive() -> None:
    watch = Proxy("ab", "c", None)

    assert summaries(await watch.next_batch()) == ["ADDED a", "ADDED b"]
    assert summaries(await watch.next_batch()) == ["ADDED c"]
    assert await watch.next_batch() == []


async def test_watch_iterates_over_single_events() -> None:
    watch = Proxy("ab", "c", None)

    assert summaries([it async for it in watch]) == ["ADDED a", "ADDED b", "ADDED c"]


async def test_batches_and_single_events_can_alternate() -> None:
    watch = Proxy("abc", "de", "f", None)

    assert summaries([await anext(watch)]) == ["ADDED a"]
    assert summaries(await watch.next_batch()) == ["ADDED b", "ADDED c"]
    assert summaries([await anext(watch)]) == ["ADDED d"]
    assert summaries([it async for it in watch]) == ["ADDED e", "ADDED f"]


async def test_iteration_continues_where_it_was_left() -> None:
    watch = Proxy("abc", None)

    async for it in watch:
        assert it.object.name == "a"
        break

    assert summaries([it async for it in watch]) == ["ADDED b", "ADDED c"]


async def test_end_of_source_is_fetched_once() -> None:
    watch = Proxy(None, "late")

    assert await watch.next_batch() == []
    assert [it async for it in watch] == []
    assert watch.fetches == 1


async def test_stop_wakes_waiting_next_batch() -> None:
    loop = asyncio.get_running_loop()
    watch = Proxy()
    waiting = asyncio.create_task(watch.next_batch())
    await asyncio.sleep(1)

    watch.stop()

    assert await waiting == []
    assert loop.time() == pytest.approx(1.0)


async def test_stop_wakes_waiting_iteration() -> None:
    watch = Proxy("a")
    seen = []

    async def iterate() -> None:
        async for it in watch:
            seen.extend(summaries([it]))

    waiting = asyncio.create_task(iterate())
    await asyncio.sleep(1)
    watch.stop()
    await waiting

    assert seen == ["ADDED a"]


async def test_second_stop_does_nothing() -> None:
    watch = Proxy()
    states = [watch.stopped]

    watch.stop()
    watch.stop()

    assert [*states, watch.stopped] == [False, True]
    assert watch.closings == 1


async def test_unread_watch_can_be_stopped() -> None:
    watch = Proxy("a")

    watch.stop()

    assert await watch.next_batch() == []
    assert watch.fetches == 0


async def test_stop_drops_unread_events() -> None:
    watch = Proxy("abc")
    await anext(watch)

    watch.stop()

    assert [it async for it in watch] == []
    assert await watch.next_batch() == []


async def test_events_that_arrive_during_stop_are_dropped() -> None:
    watch = Proxy()
    waiting = asyncio.create_task(watch.next_batch())
    await asyncio.sleep(1)

    watch.send("a")
    watch.stop()

    assert await waiting == []


async def test_leaving_context_stops_watch() -> None:
    async with Proxy("a") as watch:
        assert summaries(await watch.next_batch()) == ["ADDED a"]

    assert watch.stopped


async def test_error_within_context_stops_watch() -> None:
    watch = Proxy()

    with pytest.raises(ZeroDivisionError):
        async with watch:
            raise ZeroDivisionError

    assert watch.stopped


async def test_error_of_source_is_raised_after_earlier_events() -> None:
    watch = Proxy("ab", TransportError("broken"), None)

    assert summaries([await anext(watch), await anext(watch)]) == ["ADDED a", "ADDED b"]
    with pytest.raises(TransportError, match="broken"):
        await anext(watch)

    assert await watch.next_batch() == []


async def test_cancelled_wait_loses_no_events() -> None:
    watch = Proxy()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await watch.next_batch()

    watch.send("ab")

    assert summaries([await anext(watch)]) == ["ADDED a"]
    assert summaries(await watch.next_batch()) == ["ADDED b"]


async def test_skipped_is_0_by_default() -> None:
    assert Proxy().skipped == 0
