"""`StreamWatch`: events of a byte stream, and all causes of its end."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import deque

import orjson
import pytest
from canned import line, summaries
from each_case import each_case

from aioinformer.errors import DecodeError, TransportError
from aioinformer.model.resources import PODS
from aioinformer.watch import (
    EventType,
    ObjectDecoder,
    StreamDecoder,
    StreamWatch,
    WatchEvent,
)


class Bytes:
    """Byte stream that a test sends."""

    def __init__(self, *pieces: bytes | Exception) -> None:
        self.pieces = deque(pieces)
        self.closed = False
        self.patient: list[bool] = []
        self._arrived = asyncio.Event()

    def send(self, *pieces: bytes | Exception) -> None:
        self.pieces.extend(pieces)
        self._arrived.set()

    async def read_some(self, *, patient: bool = False) -> bytes:
        self.patient.append(patient)
        while not self.pieces:
            if self.closed:
                raise TransportError("closed meanwhile")

            self._arrived.clear()
            await self._arrived.wait()

        piece = self.pieces.popleft()
        if isinstance(piece, Exception):
            raise piece

        return piece

    async def read_view(self) -> memoryview:
        return memoryview(await self.read_some())

    def close(self) -> None:
        self.closed = True
        self._arrived.set()


def watch_of(source: Bytes, seconds: float | None = None) -> StreamWatch:
    return StreamWatch(source, StreamDecoder(ObjectDecoder(PODS)), seconds)


END = b""
A, B, C = line("ADDED", "a"), line("MODIFIED", "b"), line("DELETED", "c")


# ---------------------------------------------------------------- what it gives


async def test_stream_watch_returns_batches_of_arrived_events() -> None:
    watch = watch_of(Bytes(A + B, C, END))

    assert summaries(await watch.next_batch()) == ["ADDED a", "MODIFIED b"]
    assert summaries(await watch.next_batch()) == ["DELETED c"]
    assert await watch.next_batch() == []


async def test_stream_watch_iterates_over_single_events() -> None:
    watch = watch_of(Bytes(A + B, C, END))

    assert summaries([event async for event in watch]) == [
        *("ADDED a", "MODIFIED b", "DELETED c")
    ]


async def test_iteration_continues_where_it_was_left() -> None:
    watch = watch_of(Bytes(A + B + C, END))

    async for event in watch:
        assert event.object.name == "a"
        break

    assert summaries([await anext(watch)]) == ["MODIFIED b"]
    assert summaries(await watch.next_batch()) == ["DELETED c"]


@each_case("cut", [1, 30, len(A) - 1, len(A), len(A) + 1])
async def test_stream_watch_accepts_any_split_of_stream(cut: int) -> None:
    text = A + B
    watch = watch_of(Bytes(text[:cut], text[cut:], END))

    assert summaries([event async for event in watch]) == ["ADDED a", "MODIFIED b"]


async def test_stream_watch_waits_for_complete_line() -> None:
    source = Bytes(A[:20])
    watch = watch_of(source)
    waiting = asyncio.create_task(watch.next_batch())
    await asyncio.sleep(1)
    source.send(A[20:50])
    await asyncio.sleep(1)
    assert not waiting.done()

    source.send(A[50:])

    assert summaries(await waiting) == ["ADDED a"]


async def test_stream_watch_counts_unreadable_events() -> None:
    watch = watch_of(Bytes(line("SURPRISE", "a") + B, END))

    assert summaries(await watch.next_batch()) == ["MODIFIED b"]
    assert watch.skipped == 1


async def test_stream_watch_returns_error_events() -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired"}
    text = orjson.dumps({"type": "ERROR", "object": status}) + b"\n"

    (event,) = await watch_of(Bytes(text)).next_batch()

    assert event.type is EventType.ERROR
    assert event.error().status == 410


async def test_watch_waits_without_a_read_timeout() -> None:
    source = Bytes(A, END)

    assert [event async for event in watch_of(source)]
    assert source.patient == [True, True]


# ---------------------------------------------------------------- how it ends


async def test_end_of_stream_closes_source() -> None:
    source = Bytes(A, END)
    watch = watch_of(source, 300)

    assert len([event async for event in watch]) == 1

    assert source.closed
    assert not watch.stopped


async def test_last_line_without_newline_is_an_event() -> None:
    watch = watch_of(Bytes(A.rstrip(), END))

    assert summaries(await watch.next_batch()) == ["ADDED a"]
    assert await watch.next_batch() == []


async def test_truncated_last_line_raises_transport_error() -> None:
    source = Bytes(A + B[:50], END)
    watch = watch_of(source)

    assert summaries(await watch.next_batch()) == ["ADDED a"]
    with pytest.raises(TransportError, match="cut off within a line"):
        await watch.next_batch()

    assert await watch.next_batch() == []
    assert source.closed


async def test_malformed_line_ends_stream_watch() -> None:
    source = Bytes(A, b"<h1>502</h1>\n", B)
    watch = watch_of(source)

    assert summaries(await watch.next_batch()) == ["ADDED a"]
    with pytest.raises(DecodeError):
        await watch.next_batch()

    assert await watch.next_batch() == []
    assert source.closed
    assert list(source.pieces) == [B], "it was read after the end"


async def test_events_before_malformed_line_are_returned() -> None:
    source = Bytes(A + B + b"<h1>502</h1>\n" + C)
    watch = watch_of(source, 300)

    assert summaries(await watch.next_batch()) == ["ADDED a", "MODIFIED b"]
    with pytest.raises(DecodeError):
        await watch.next_batch()

    assert source.closed
    assert await watch.next_batch() == []
    assert source.patient == [True], "it waited for more bytes first"


async def test_broken_connection_is_raised_once() -> None:
    source = Bytes(A, TransportError("broken"), B)
    watch = watch_of(source, 300)

    assert summaries(await watch.next_batch()) == ["ADDED a"]
    with pytest.raises(TransportError, match="broken"):
        await watch.next_batch()

    assert await watch.next_batch() == []
    assert source.closed


async def test_stop_wakes_read_immediately() -> None:
    loop = asyncio.get_running_loop()
    source = Bytes()
    watch = watch_of(source, 300)
    waiting = asyncio.create_task(watch.next_batch())
    await asyncio.sleep(1)

    watch.stop()
    watch.stop()

    assert await waiting == []
    assert loop.time() == pytest.approx(1.0)
    assert source.closed


async def test_stop_with_unread_events_frees_watch() -> None:
    source = Bytes(A + B, C)
    watch = watch_of(source, 300)
    await anext(watch)
    reference = weakref.ref(watch)

    watch.stop()

    assert [event async for event in watch] == []
    del watch
    gc.collect()
    assert reference() is None, "its timer keeps it"


async def test_bytes_read_during_stop_are_not_decoded() -> None:
    source = Bytes()
    watch = watch_of(source)
    waiting = asyncio.create_task(watch.next_batch())
    await asyncio.sleep(1)

    source.send(A)
    watch.stop()

    assert await waiting == []


async def test_stream_watch_ends_after_time_limit() -> None:
    loop = asyncio.get_running_loop()
    source = Bytes(A)

    events = [event async for event in watch_of(source, 310)]

    assert summaries(events) == ["ADDED a"]
    assert loop.time() == pytest.approx(310)
    assert source.closed


async def test_time_limit_within_a_line_is_not_an_error() -> None:
    watch = watch_of(Bytes(A + B[:40]), 310)

    assert summaries([event async for event in watch]) == ["ADDED a"]


async def test_events_read_before_time_limit_are_returned() -> None:
    watch = watch_of(Bytes(A + B + C), 310)
    first = await anext(watch)
    await asyncio.sleep(400)

    rest = [event async for event in watch]

    assert summaries([first, *rest]) == ["ADDED a", "MODIFIED b", "DELETED c"]


# ---------------------------------------------------------------- cancellation


async def test_cancelled_wait_loses_no_events() -> None:
    source = Bytes(A[:40])
    watch = watch_of(source)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await watch.next_batch()

    source.send(A[40:])

    assert summaries(await watch.next_batch()) == ["ADDED a"]


@pytest.mark.parametrize("ends", ["stream", "timer"])
async def test_reader_cancelled_in_any_turn_loses_no_events(
    ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each chunk waits for a slice of the budget, so there are turns in between."""
    monkeypatch.setattr("aioinformer.budget.SLICE_SECONDS", 0.0)
    for turns in range(20):
        source = Bytes(A, B, C)
        watch = watch_of(source, 10 if ends == "timer" else None)
        seen: list[WatchEvent] = []

        async def read(watch: StreamWatch, seen: list[WatchEvent]) -> None:
            while batch := await watch.next_batch():
                seen += batch

        reader = asyncio.create_task(read(watch, seen))
        for _ in range(turns):
            await asyncio.sleep(0)

        reader.cancel()
        await asyncio.wait({reader})
        if ends == "stream":
            source.send(END)

        await read(watch, seen)

        assert summaries(seen) == ["ADDED a", "MODIFIED b", "DELETED c"], turns


async def test_event_read_before_time_limit_survives_cancellation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aioinformer.budget.SLICE_SECONDS", 0.0)
    source = Bytes(A)
    watch = watch_of(source, 10)
    reader = asyncio.create_task(watch.next_batch())
    await asyncio.sleep(0)
    assert not source.pieces, "it should have read, and be waiting for its slice"
    reader.cancel()
    await asyncio.wait({reader})
    assert reader.cancelled()

    await asyncio.sleep(20)

    assert summaries(await watch.next_batch()) == ["ADDED a"]
    assert await watch.next_batch() == []
