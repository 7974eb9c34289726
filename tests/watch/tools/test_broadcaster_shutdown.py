"""`Broadcaster.shutdown()`, and tasks that wait for a broadcaster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from canned import summaries
from conftest import pod

from aioinformer.errors import QueueShutDown
from aioinformer.watch import Broadcaster, EventType, WatchEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioinformer.watch import Watch

TABLE = [
    WatchEvent.of(EventType.ADDED, pod("foo")),
    WatchEvent.of(EventType.ADDED, pod("bar")),
    WatchEvent.of(EventType.MODIFIED, pod("foo")),
    WatchEvent.of(EventType.DELETED, pod("bar")),
]


async def turns(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def read(watch: Watch, number: int) -> list[str]:
    return summaries([await anext(watch) for _ in range(number)])


CALLS: dict[str, Callable[[Broadcaster], Coroutine[None, None, object]]] = {
    "watch": lambda it: it.watch(),
    "watch_with_prefix": lambda it: it.watch_with_prefix(TABLE),
    "action": lambda it: it.action("ADDED", pod("a")),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_watch_after_shutdown_raises_queue_shut_down(
    call: Callable[[Broadcaster], Coroutine[None, None, object]],
) -> None:
    broadcaster = Broadcaster(10)
    await broadcaster.shutdown()

    with pytest.raises(QueueShutDown, match="broadcaster has been shut down"):
        await call(broadcaster)


async def test_action_after_shutdown_raises_queue_shut_down() -> None:
    broadcaster = Broadcaster(10)
    await broadcaster.shutdown()

    with pytest.raises(QueueShutDown, match="broadcaster has been shut down"):
        broadcaster.action_or_drop("ADDED", pod("a"))


async def test_unread_events_can_be_read_after_shutdown() -> None:
    broadcaster = Broadcaster(10)
    watch = await broadcaster.watch()
    for event in TABLE:
        await broadcaster.action(event)

    await broadcaster.shutdown()

    assert summaries([event async for event in watch]) == summaries(TABLE)


async def test_shutdown_waits_until_all_events_are_delivered() -> None:
    broadcaster = Broadcaster(1, incoming_length=1)
    watch = await broadcaster.watch()
    sending = [asyncio.create_task(broadcaster.action(event)) for event in TABLE]
    await turns()
    assert not sending[3].done()

    ending = asyncio.create_task(broadcaster.shutdown())
    await turns()
    with pytest.raises(QueueShutDown):
        await broadcaster.action("ADDED", pod("late"))

    seen = await read(watch, 2)
    await turns()
    assert not ending.done()
    seen += await read(watch, 1)
    await ending
    seen += summaries([event async for event in watch])

    assert seen == summaries(TABLE)
    assert all(it.exception() is None for it in sending)


async def test_watch_requested_before_shutdown_is_registered() -> None:
    broadcaster = Broadcaster(0)
    first = await broadcaster.watch()
    await broadcaster.action(TABLE[0])
    asking = asyncio.create_task(broadcaster.watch_with_prefix(TABLE[1:]))
    await turns()
    ending = asyncio.create_task(broadcaster.shutdown())
    await turns()

    first.stop()
    await ending

    second = await asking
    assert summaries([event async for event in second]) == summaries(TABLE[1:])


async def test_cancelled_shutdown_continues() -> None:
    broadcaster = Broadcaster(0)
    watch = await broadcaster.watch()
    await broadcaster.action(TABLE[0])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await broadcaster.shutdown()

    assert summaries([event async for event in watch]) == ["ADDED foo"]

    async with asyncio.timeout(1):
        await broadcaster.shutdown()


async def test_watches_started_during_shutdown_end() -> None:
    broadcaster = Broadcaster(1)
    ended: list[bool] = []

    async def watch(number: int) -> None:
        await turns(number)
        try:
            stream = await broadcaster.watch()
        except QueueShutDown:
            return

        ended.append(await stream.next_batch() == [])

    async with asyncio.TaskGroup() as group, asyncio.timeout(1):
        for number in range(10):
            group.create_task(watch(number))

        await turns()
        await broadcaster.shutdown()

    assert ended
    assert all(ended)


# ---------------------------------------------------------------- cancelling a watch


@pytest.mark.parametrize("incoming_length", [1, 2])
@pytest.mark.parametrize("read_first", [True, False])
async def test_watch_cancelled_in_any_turn_blocks_no_other(
    read_first: bool, incoming_length: int
) -> None:
    for number in range(8):
        broadcaster = Broadcaster(0, incoming_length=incoming_length)
        first = await broadcaster.watch()
        await broadcaster.action(TABLE[0])
        await broadcaster.action(TABLE[1])
        asking = asyncio.create_task(broadcaster.watch())
        await turns(number)
        if read_first:
            assert await read(first, 2) == summaries(TABLE[:2])

        asking.cancel()
        await asyncio.wait({asking})
        if not read_first:
            assert asking.cancelled(), "there is no watch yet"

        if not asking.cancelled():
            asking.result().stop()

        first.stop()
        async with asyncio.timeout(1):
            for event in TABLE * 20:
                await broadcaster.action(event)

            await broadcaster.shutdown()
