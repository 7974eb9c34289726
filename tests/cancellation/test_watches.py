"""Readers of watches cancelled at every await: no lost events and no leftovers."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from fake_source import (
    END,
    FakeSource,
    Page,
    Stream,
    added,
    bookmark,
    deleted,
    error_event,
    modified,
    thing,
)
from informer_helpers import Even
from task_helpers import cancelled_after

from aioinformer.errors import ServerError, TransportError
from aioinformer.informer import InformerWatch, until_with_sync
from aioinformer.watch import RetryWatch, Watch, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from fake_source import Step

    from aioinformer.watch import WatchEvent, WatchOptions

BUSY = ServerError("busy", status=503)
BROKEN = TransportError("broken")
TURNS = 40
"""More turns of the loop than any moment takes; a test below checks that."""


class Prompt(Stream):
    """A stream that can be stopped while it is silent."""

    def __init__(self, *steps: Step) -> None:
        super().__init__(*steps)
        self._closed = asyncio.Event()

    def _close(self) -> None:
        self._closed.set()
        super()._close()

    async def _sleep(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        try:
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            self._steps.appendleft(end - loop.time())
            raise


# The events of a watch that starts after each version.
SCRIPT: dict[str, list[Step]] = {
    "1": [[added(thing("o2", 2)), bookmark(3)], [added(thing("o4", 4))], END],
    "4": [[modified(thing("o4", 5))], 2.0, BROKEN],
    "5": [[deleted(thing("o2", 6)), error_event(500)]],
    "6": [[added(thing("o7", 7))], 1.0, [added(thing("o8", 8))]],
}


class Slow(FakeSource):
    """A source that refuses once, follows the script, and starts and closes slowly."""

    @asynccontextmanager
    async def watch(self, options: WatchOptions) -> AsyncIterator[Stream]:
        steps = SCRIPT[options.resource_version]
        self.watches.append(Prompt(*steps) if self.requests_of("watch") else BUSY)
        async with super().watch(options) as stream:
            try:
                await turns(3)
                yield stream
            finally:
                self.open += 1
                try:
                    await turns(3)
                finally:
                    self.open -= 1

    def requests_of(self, verb: str) -> int:
        return sum(request.verb == verb for request in self.requests)


def scripted() -> Slow:
    return Slow([Page([thing("o1", 1)], version=1)])


# The times of requests and events.
MOMENTS = [0.0, 1.2, 3.6, 5.6, 6.0, 8.4, 9.4]
WANTED = ["o2@2", "o4@4", "o4@5", "o2@6", "o7@7", "o8@8"]


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def received(events: list[WatchEvent]) -> list[str]:
    return [f"{it.object.name}@{it.object.resource_version}" for it in events]


async def read_for(watch: Watch, seconds: float, number: int, got: list[Any]) -> None:
    """Read in a task, and cancel it after some time and turns of the loop."""

    async def read() -> None:
        while batch := await watch.next_batch():
            got.extend(batch)

    task = asyncio.create_task(read())
    await asyncio.sleep(seconds)
    await turns(number)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


@pytest.mark.parametrize("moment", MOMENTS)
async def test_retry_watch_loses_no_event_when_its_reader_is_cancelled(
    moment: float,
) -> None:
    before = asyncio.all_tasks()
    for number in range(TURNS):
        source = scripted()
        got: list[WatchEvent] = []
        async with RetryWatch(source, "1", rng=Even()) as watch:
            await read_for(watch, moment, number, got)
            assert source.open <= 1
            await read_for(watch, 100, 0, got)

        assert received(got) == WANTED
        assert source.open == 0
        assert asyncio.all_tasks() == before


@pytest.mark.parametrize("moment", MOMENTS)
async def test_retry_watch_left_after_a_cancellation_leaves_nothing(
    moment: float,
) -> None:
    before = asyncio.all_tasks()
    opened = 0
    for number in range(TURNS):
        source = scripted()
        async with RetryWatch(source, "1", rng=Even()) as watch:
            await read_for(watch, moment, number, [])
            opened += source.open

        assert source.open == 0
        assert asyncio.all_tasks() == before
        assert await watch.next_batch() == []

    if moment in {3.6, 18.0}:
        assert opened > 0, "a watch was open"


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_block_of_retry_watch_leaves_nothing(
    moment: float,
) -> None:
    before = asyncio.all_tasks()
    for number in range(TURNS):
        source = scripted()

        async def life(source: FakeSource) -> None:
            async with RetryWatch(source, "1", rng=Even()) as watch:
                async for _ in watch:
                    pass

        task = await cancelled_after(life(source), number, moment=moment)

        assert task.cancelled()
        assert source.open == 0
        assert asyncio.all_tasks() == before


@pytest.mark.parametrize("moment", MOMENTS)
async def test_retry_watch_stopped_at_any_await_ends_at_once(moment: float) -> None:
    loop = asyncio.get_running_loop()
    for number in range(TURNS):
        source = scripted()
        watch = RetryWatch(source, "1", rng=Even())
        reading = asyncio.create_task(read_to_its_end(watch))
        await asyncio.sleep(moment)
        await turns(number)
        before = loop.time()

        watch.stop()
        got = received(await reading)

        assert loop.time() == before
        assert got == WANTED[: len(got)]
        assert source.open == 0


async def test_cancellation_points_cover_the_whole_run() -> None:
    source = scripted()
    seen = []
    got: list[WatchEvent] = []
    async with RetryWatch(source, "1", rng=Even()) as watch:
        at = 0.0
        for moment in MOMENTS:
            await read_for(watch, moment - at, TURNS - 1, got)
            seen.append((len(source.requests), len(got)))
            at = moment

    assert seen == [(1, 0), (2, 2), (3, 3), (3, 3), (4, 4), (5, 5), (5, 6)]


# ---------------------------------------------------------------- informers


@pytest.mark.parametrize("moment", [0.0, 1.2, 3.6, 5.6])
async def test_informer_watch_loses_no_event_when_its_reader_is_cancelled(
    moment: float,
) -> None:
    before = asyncio.all_tasks()
    for number in range(TURNS):
        source = scripted()
        got: list[WatchEvent] = []
        async with InformerWatch(source, rng=Even()) as watch:
            await read_for(watch, moment, number, got)
            await read_for(watch, 100, 0, got)

        assert received(got) == ["o1@1", *WANTED]
        assert source.open == 0
        assert asyncio.all_tasks() == before


@pytest.mark.parametrize("moment", [0.0, 1.2, 3.6, 5.6])
@pytest.mark.parametrize("times", [1, 5])
async def test_cancelled_block_of_informer_watch_leaves_nothing(
    moment: float, times: int
) -> None:
    before = asyncio.all_tasks()
    for number in range(TURNS):
        source = scripted()
        watch = InformerWatch(source, rng=Even())

        async def life(watch: InformerWatch) -> None:
            async with watch:
                async for _ in watch:
                    pass

        task = await cancelled_after(life(watch), number, times, moment=moment)

        assert task.cancelled()
        assert source.open == 0
        assert asyncio.all_tasks() == before
        if number or moment:
            assert watch.informer.status.phase == "stopped"
            assert await watch.next_batch() == []


@pytest.mark.parametrize("moment", [0.0, 1.2, 3.6])
async def test_informer_watch_stopped_at_any_await_ends_at_once(
    moment: float,
) -> None:
    loop = asyncio.get_running_loop()
    before = asyncio.all_tasks()
    for number in range(TURNS):
        source = scripted()
        async with InformerWatch(source, rng=Even()) as watch:
            reading = asyncio.create_task(read_to_its_end(watch))
            await asyncio.sleep(moment)
            await turns(number)
            at = loop.time()
            watch.stop()
            got = received(await reading)
            assert loop.time() == at
            assert got == ["o1@1", *WANTED][: len(got)]

        assert loop.time() == at
        assert source.open == 0
        assert asyncio.all_tasks() == before


# ---------------------------------------------------------------- until

WAITS: dict[str, Callable[[FakeSource], Coroutine[Any, Any, Any]]] = {
    "until": lambda source: until(source, "1", never),
    "until_with_sync": lambda source: until_with_sync(source, never),
    "a-slow-precondition": lambda source: until_with_sync(source, precondition=slow),
}


def never(_: WatchEvent) -> bool:
    return False


async def slow(_: object) -> bool:
    await asyncio.sleep(1000)
    return False


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
@pytest.mark.parametrize("moment", [0.0, 1.5, 5.6])
async def test_until_cancelled_at_any_await_leaves_nothing(
    wait: Callable[[FakeSource], Coroutine[Any, Any, Any]], moment: float
) -> None:
    before = asyncio.all_tasks()
    for number in range(TURNS):
        source = scripted()

        task = await cancelled_after(wait(source), number, moment=moment)

        assert task.cancelled()
        assert source.open == 0
        assert asyncio.all_tasks() == before


async def read_to_its_end(watch: Watch) -> list[WatchEvent]:
    got = []
    while batch := await watch.next_batch():
        got += batch

    return got
