"""`Broadcaster`: one sequence of events for any number of watches."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from canned import summaries
from conftest import pod

from aioinformer.errors import OptionsError, WrongLoop
from aioinformer.watch import Broadcaster, EventType, FullChannelBehavior, WatchEvent

if TYPE_CHECKING:
    from aioinformer.watch import Watch

WAIT = FullChannelBehavior.WAIT_IF_CHANNEL_FULL
DROP = FullChannelBehavior.DROP_IF_CHANNEL_FULL

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


# ---------------------------------------------------------------- distribution


@pytest.mark.parametrize("length", [0, 1, 10])
async def test_broadcaster_sends_events_to_all_watches_in_order(length: int) -> None:
    broadcaster = Broadcaster(length)
    watches = [await broadcaster.watch(), await broadcaster.watch()]

    async with asyncio.TaskGroup() as group:
        readers = [group.create_task(read(watch, len(TABLE))) for watch in watches]
        for event in TABLE:
            await broadcaster.action(event.type, event.object)

        await broadcaster.shutdown()

    assert [reader.result() for reader in readers] == [summaries(TABLE)] * 2
    assert [await watch.next_batch() for watch in watches] == [[], []]


async def test_watch_gets_no_earlier_events() -> None:
    broadcaster = Broadcaster(10)
    await broadcaster.action("ADDED", pod("a"))
    first = await broadcaster.watch()
    await broadcaster.action("ADDED", pod("b"))
    second = await broadcaster.watch()
    await broadcaster.action("ADDED", pod("c"))

    assert summaries(await first.next_batch()) == ["ADDED b", "ADDED c"]
    assert summaries(await second.next_batch()) == ["ADDED c"]


async def test_watch_starts_after_waiting_events() -> None:
    broadcaster = Broadcaster(1)
    first = await broadcaster.watch()
    for name in "abc":
        await broadcaster.action("ADDED", pod(name))

    asking = asyncio.create_task(broadcaster.watch())
    await turns()
    assert not asking.done(), "c is held up by the first watch"
    await broadcaster.action("ADDED", pod("d"))

    assert await read(first, 4) == ["ADDED a", "ADDED b", "ADDED c", "ADDED d"]
    second = await asking
    assert summaries(await second.next_batch()) == ["ADDED d"]


async def test_watch_with_prefix_returns_prefix_first() -> None:
    broadcaster = Broadcaster(1)
    watch = await broadcaster.watch_with_prefix(TABLE)

    # Room for the whole prefix and one more, so others are not blocked.
    await broadcaster.action("ADDED", pod("new"))
    await asyncio.create_task(broadcaster.shutdown())

    assert summaries([event async for event in watch]) == [
        *summaries(TABLE),
        "ADDED new",
    ]


async def test_full_watch_blocks_later_events_for_all_watches() -> None:
    broadcaster = Broadcaster(1)
    slow, quick = await broadcaster.watch(), await broadcaster.watch()
    for name in "abcd":
        await broadcaster.action("ADDED", pod(name))

    assert summaries(await quick.next_batch()) == ["ADDED a", "ADDED b"]
    reading = asyncio.create_task(quick.next_batch())
    await turns()
    assert not reading.done()

    assert await read(slow, 1) == ["ADDED a"]

    assert summaries(await reading) == ["ADDED c"]
    assert await read(slow, 3) == ["ADDED b", "ADDED c", "ADDED d"]


async def test_full_watch_misses_events_with_drop_behavior() -> None:
    broadcaster = Broadcaster(1, DROP)
    slow, quick = await broadcaster.watch(), await broadcaster.watch()
    seen = []
    for event in TABLE:
        await broadcaster.action(event)
        seen += summaries(await quick.next_batch())

    await broadcaster.shutdown()

    assert summaries([event async for event in slow]) == ["ADDED foo"]
    assert seen == summaries(TABLE)
    assert (slow.skipped, quick.skipped) == (len(TABLE) - 1, 0)


async def test_burst_of_one_sender_is_not_dropped() -> None:
    broadcaster = Broadcaster(1, DROP)
    watch = await broadcaster.watch()
    reader = asyncio.create_task(read(watch, 100))
    await turns()

    for number in range(100):
        await broadcaster.action("ADDED", pod(f"p-{number}"))

    assert len(await reader) == 100
    assert watch.skipped == 0


async def test_events_without_watches_are_dropped() -> None:
    broadcaster = Broadcaster(1)
    for event in TABLE * 20:
        await broadcaster.action(event)

    await broadcaster.shutdown()


# ---------------------------------------------------------------- senders


async def test_sender_waits_while_incoming_queue_is_full() -> None:
    broadcaster = Broadcaster(1)
    watch = await broadcaster.watch()
    # One is in the watch, and another one blocks the incoming queue of 25.
    names = [f"p-{number}" for number in range(28)]
    for name in names[:27]:
        await broadcaster.action("ADDED", pod(name))

    sending = asyncio.create_task(broadcaster.action("ADDED", pod(names[27])))
    await asyncio.sleep(60)
    assert not sending.done()
    assert not broadcaster.action_or_drop("ADDED", pod("dropped"))

    assert await read(watch, 1) == ["ADDED p-0"]
    await sending

    assert await read(watch, 27) == [f"ADDED {name}" for name in names[1:]]


async def test_action_or_drop_sends_unless_incoming_queue_is_full() -> None:
    broadcaster = Broadcaster(0, incoming_length=1)
    watch = await broadcaster.watch()

    kept = [broadcaster.action_or_drop(event) for event in TABLE]

    assert kept == [True, True, False, False]
    assert await read(watch, 2) == summaries(TABLE[:2])
    assert broadcaster.action_or_drop(TABLE[3])


async def test_incoming_length_limits_waiting_events() -> None:
    broadcaster = Broadcaster(0, incoming_length=1000)
    watch = await broadcaster.watch()

    async with asyncio.timeout(1):
        for number in range(1001):
            await broadcaster.action("ADDED", pod(f"p-{number}"))

    assert len(await read(watch, 1001)) == 1001


async def test_cancelled_sender_withdraws_event() -> None:
    broadcaster = Broadcaster(0, incoming_length=1)
    watch = await broadcaster.watch()
    for event in TABLE[:2]:
        await broadcaster.action(event)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await broadcaster.action(TABLE[2])

    async with asyncio.TaskGroup() as group:
        group.create_task(broadcaster.action(TABLE[3]))

        assert await read(watch, 3) == summaries([*TABLE[:2], TABLE[3]])


# ---------------------------------------------------------------- stopping a watch


async def test_watches_can_be_stopped_around_shutdown() -> None:
    broadcaster = Broadcaster(0)
    first, second = await broadcaster.watch(), await broadcaster.watch()
    first.stop()
    await broadcaster.shutdown()

    assert await first.next_batch() == []
    assert await second.next_batch() == []
    first.stop()
    second.stop()
    await broadcaster.shutdown()


async def test_stopping_full_watch_unblocks_others() -> None:
    broadcaster = Broadcaster(1)
    stuck, watch = await broadcaster.watch(), await broadcaster.watch()

    async with asyncio.TaskGroup() as group, asyncio.timeout(1):
        reader = group.create_task(read(watch, 4))
        for event in TABLE:
            await broadcaster.action(event)

        assert not reader.done()
        stuck.stop()

    assert reader.result() == summaries(TABLE)
    await broadcaster.shutdown()


async def test_stopping_two_full_watches_unblocks_broadcaster() -> None:
    broadcaster = Broadcaster(1)
    watches = [await broadcaster.watch(), await broadcaster.watch()]
    for event in TABLE:
        await broadcaster.action(event)

    async with asyncio.TaskGroup() as group, asyncio.timeout(1):
        group.create_task(broadcaster.shutdown())
        for watch in watches:
            await turns()
            watch.stop()


async def test_stop_wakes_reader() -> None:
    loop = asyncio.get_running_loop()
    broadcaster = Broadcaster(1)
    watch = await broadcaster.watch()
    reading = asyncio.create_task(watch.next_batch())
    await asyncio.sleep(1)

    watch.stop()

    assert await reading == []
    assert loop.time() == pytest.approx(1.0)


async def test_cancelled_reader_loses_no_events() -> None:
    for number in range(4):
        broadcaster = Broadcaster(1)
        watch = await broadcaster.watch()
        reading = asyncio.create_task(watch.next_batch())
        await turns()
        await broadcaster.action(TABLE[0])
        await turns(number)
        reading.cancel()
        await asyncio.wait({reading})

        seen = [] if reading.cancelled() else reading.result()
        await broadcaster.shutdown()
        seen += [event async for event in watch]

        assert summaries(seen) == ["ADDED foo"]


# ---------------------------------------------------------------- the rest


@pytest.mark.parametrize(
    ("length", "behavior", "incoming"),
    [
        pytest.param(-1, WAIT, 25, id="negative"),
        pytest.param(0, DROP, 25, id="drops-everything"),
        pytest.param(1, WAIT, 0, id="nothing-comes-in"),
    ],
)
def test_broadcaster_rejects_invalid_lengths(
    length: int, behavior: FullChannelBehavior, incoming: int
) -> None:
    with pytest.raises(OptionsError, match="_length"):
        Broadcaster(length, behavior, incoming_length=incoming)


async def test_broadcaster_rejects_invalid_events() -> None:
    broadcaster = Broadcaster(1)

    with pytest.raises(OptionsError, match="SURPRISE"):
        await broadcaster.action("SURPRISE", pod("a"))

    with pytest.raises(OptionsError, match="missing"):
        broadcaster.action_or_drop("ADDED")


async def test_broadcaster_raises_wrong_loop_in_another_loop() -> None:
    broadcaster = Broadcaster(1)
    watch = await broadcaster.watch()

    def elsewhere() -> None:
        calls = broadcaster.action(TABLE[0]), broadcaster.shutdown()
        for call in (*calls, watch.next_batch()):
            with pytest.raises(WrongLoop):
                asyncio.run(call)

        with pytest.raises(WrongLoop):
            broadcaster.action_or_drop(TABLE[0])

    await asyncio.to_thread(elsewhere)

    await broadcaster.action(TABLE[1])
    assert summaries(await watch.next_batch()) == ["ADDED bar"]


async def test_broadcaster_can_be_created_outside_a_loop() -> None:
    broadcaster = await asyncio.to_thread(Broadcaster, 1)
    watch = await broadcaster.watch()

    assert broadcaster.action_or_drop(TABLE[0])
    assert summaries(await watch.next_batch()) == ["ADDED foo"]


async def test_broadcaster_repr_shows_state() -> None:
    broadcaster = Broadcaster(0)
    watch = await broadcaster.watch()
    await broadcaster.action(TABLE[0])
    await broadcaster.action(TABLE[1])
    states = [repr(broadcaster)]
    ending = asyncio.create_task(broadcaster.shutdown())
    await turns()
    states.append(repr(broadcaster))
    watch.stop()
    await ending
    states.append(repr(broadcaster))

    assert states == [
        "<Broadcaster open watches=1 incoming=1>",
        "<Broadcaster ending watches=1 incoming=1>",
        "<Broadcaster ended watches=0 incoming=0>",
    ]
