"""`Channel`: room, order and wake-ups."""

from __future__ import annotations

import asyncio

import pytest

from aioinformer.errors import WrongLoop
from aioinformer.watch.tools.channel import Channel


async def turns(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_channel_holds_items_up_to_its_room() -> None:
    channel: Channel[str] = Channel(2)

    assert [channel.offer(it) for it in "abc"] == [True, True, False]
    assert len(channel) == 2
    assert channel.take() == ["a", "b"]


async def test_put_without_room_makes_channel_overfull() -> None:
    channel: Channel[str] = Channel(1)
    states = []
    for item in "ab":
        channel.put(item)
        states.append(channel.overfull)

    assert states == [False, True]
    assert not channel.offer("c")
    assert channel.take(1) == ["a"]
    assert not channel.overfull


async def test_sender_to_channel_without_room_waits_until_taken() -> None:
    channel: Channel[str] = Channel(0)
    sending = asyncio.create_task(channel.send("a"))
    await turns()
    assert not sending.done()

    assert channel.take() == ["a"]

    assert await sending


async def test_channel_senders_are_served_in_order() -> None:
    channel: Channel[str] = Channel(1)
    sending = [asyncio.create_task(channel.send(it)) for it in "abc"]
    await turns()
    assert [it.done() for it in sending] == [True, False, False]

    assert channel.take(1) == ["a"]
    await turns()

    assert [it.done() for it in sending] == [True, True, False]
    assert channel.take() == ["b", "c"]
    assert all([await it for it in sending])


async def test_offer_does_not_overtake_waiting_sender() -> None:
    channel: Channel[str] = Channel(1)
    channel.put("a")
    sending = asyncio.create_task(channel.send("b"))
    await turns()

    taken = channel.take(1)
    assert not channel.offer("c"), "the room is b's"

    assert [*taken, *channel.take()] == ["a", "b"]
    assert await sending


async def test_cancelled_sender_withdraws_item() -> None:
    channel: Channel[str] = Channel(0)
    sending = [asyncio.create_task(channel.send(it)) for it in "abc"]
    await turns()

    sending[1].cancel()
    await turns()

    assert channel.take() == ["a", "c"]
    assert sending[1].cancelled()
    assert await sending[0]
    assert await sending[2]


async def test_cancelled_senders_leave_no_items() -> None:
    channel: Channel[str] = Channel(0)
    for _ in range(3):
        sending = asyncio.create_task(channel.send("a"))
        await turns()
        sending.cancel()
        await asyncio.wait({sending})

    assert len(channel._senders) == 0


async def test_item_is_withdrawn_before_cancelled_sender_runs() -> None:
    channel: Channel[str] = Channel(0)
    sending = asyncio.create_task(channel.send("a"))
    await turns()

    sending.cancel()

    assert channel.take() == []
    await asyncio.wait({sending})
    assert sending.cancelled()


async def test_receiver_waits_again_after_sender_was_cancelled() -> None:
    channel: Channel[str] = Channel(0)
    receiving = asyncio.create_task(channel.filled())
    await turns()
    sending = asyncio.create_task(channel.send("a"))
    await asyncio.sleep(0)  # it has sent, and the receiver is about to run
    sending.cancel()
    await turns()
    assert not receiving.done()

    channel.put("b")

    assert await receiving
    assert channel.take() == ["b"]


async def test_accepted_item_stays_after_cancellation() -> None:
    channel: Channel[str] = Channel(1)
    channel.put("a")
    sending = asyncio.create_task(channel.send("b"))
    await turns()

    assert channel.take(1) == ["a"]
    sending.cancel()
    await asyncio.wait({sending})

    assert channel.take() == ["b"]


async def test_closed_sender_coroutine_withdraws_item() -> None:
    channel: Channel[str] = Channel(0)
    sending = channel.send("a")
    sending.send(None)

    sending.close()

    assert channel.take() == []


async def test_cancelled_receiver_takes_nothing() -> None:
    channel: Channel[str] = Channel(1)
    receiving = asyncio.create_task(channel.filled())
    await turns()

    channel.put("a")
    receiving.cancel()
    await asyncio.wait({receiving})

    assert channel.take() == ["a"]


async def test_items_of_closed_channel_can_be_received() -> None:
    channel: Channel[str] = Channel(2)
    channel.put("a")

    channel.close()
    channel.close()

    assert channel.closed
    assert not channel.offer("b")
    assert not await channel.send("c")
    assert await channel.filled()
    assert channel.take() == ["a"]
    assert not await channel.filled()


async def test_close_rejects_waiting_senders() -> None:
    channel: Channel[str] = Channel(1)
    channel.put("a")
    sending = [asyncio.create_task(channel.send(it)) for it in "bc"]
    await turns()
    sending[0].cancel()

    channel.close()

    assert not await sending[1]
    await asyncio.wait({sending[0]})
    assert sending[0].cancelled()
    assert channel.take() == ["a"]


async def test_close_wakes_waiting_receivers() -> None:
    channel: Channel[str] = Channel(1)
    receiving = asyncio.create_task(channel.filled())
    await turns()

    channel.close()

    assert not await receiving


def test_receive_in_other_loop_than_sender_raises_wrong_loop() -> None:
    channel: Channel[str] = Channel(0)
    loop = asyncio.new_event_loop()
    sending = loop.create_task(channel.send("a"))
    loop.run_until_complete(asyncio.sleep(0))

    async def receive_elsewhere() -> None:
        with pytest.raises(WrongLoop, match="another event loop"):
            await channel.filled()

    asyncio.run(receive_elsewhere())

    assert loop.run_until_complete(channel.filled())
    assert channel.take() == ["a"]
    assert loop.run_until_complete(sending)
    loop.close()
    asyncio.set_event_loop(None)


def test_channel_may_be_used_by_one_loop_after_another() -> None:
    channel: Channel[str] = Channel(0)

    async def wait_in_vain() -> None:
        for waiting in (channel.filled(), channel.send("a")):
            task = asyncio.create_task(waiting)
            await turns()
            task.cancel()
            await asyncio.wait({task})

    async def use() -> list[str]:
        sending = asyncio.create_task(channel.send("b"))
        assert await channel.filled()
        taken = channel.take()
        assert await sending
        return taken

    asyncio.run(wait_in_vain())

    assert asyncio.run(use()) == ["b"]


def test_send_in_other_loop_than_receiver_raises_wrong_loop() -> None:
    channel: Channel[str] = Channel(0)
    loop = asyncio.new_event_loop()
    receiving = loop.create_task(channel.filled())
    loop.run_until_complete(asyncio.sleep(0))

    async def send_elsewhere() -> None:
        with pytest.raises(WrongLoop, match="another event loop"):
            await Channel.send(channel, "a")

    asyncio.run(send_elsewhere())
    with pytest.raises(WrongLoop):
        channel.put("a")

    assert channel.take() == []
    receiving.cancel()
    loop.run_until_complete(asyncio.wait({receiving}))
    loop.close()
    asyncio.set_event_loop(None)
