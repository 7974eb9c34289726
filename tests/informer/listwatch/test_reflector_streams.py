"""`Reflector`: streaming lists, and lists in pages where they fail."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest
from fake_source import (
    END,
    FakeSource,
    FakeStore,
    Page,
    Silence,
    Stream,
    added,
    bookmark,
    deleted,
    error_event,
    initial_events_end,
    modified,
    thing,
)
from informer_helpers import reflector_of, running, settle

from aioinformer.errors import (
    ApiError,
    DecodeError,
    Forbidden,
    Invalid,
    ResourceExpired,
    ServerError,
    TooManyRequests,
    TransportError,
)
from aioinformer.watch import WatchOptions

if TYPE_CHECKING:
    from aioinformer.informer import Reflector
    from aioinformer.watch import WatchEvent

BROKEN = TransportError("broken")


def streaming(source: FakeSource, store: FakeStore | None = None) -> Reflector:
    return reflector_of(source, store, streaming_list=True)


def listed(*more: WatchEvent | float) -> Stream:
    """Make a stream with one initial object, up to version 9."""
    steps: list[list[WatchEvent] | float] = [[added(thing("a", 3))]]
    steps.append([initial_events_end(9)])
    return Stream(*steps, *([it] if not isinstance(it, float) else it for it in more))


# ---------------------------------------------------------------- working streams


async def test_stream_lists_and_watches_in_one_request() -> None:
    stream = listed()
    source, store = FakeSource([], [stream]), FakeStore()

    async with running(streaming(source, store).run()):
        await settle()
        stream.send(modified(thing("a", 10)), added(thing("b", 11)))
        await settle()

    assert [request.options for request in source.requests] == [
        WatchOptions(timeout_seconds=450, bookmarks=True, send_initial_events=True)
    ]
    assert store.commits == ["9"]
    assert (store.names, store.version) == (["a@10", "b@11"], "11")


async def test_changes_during_the_initial_events_are_merged() -> None:
    stream = Stream(
        [added(thing("a", 3)), added(thing("b", 4)), added(thing("c", 5))],
        [modified(thing("a", 7)), deleted(thing("b", 8)), bookmark(8)],
        [added(thing("b", 9, uid="new")), deleted(thing("c", 10))],
        [initial_events_end(10)],
    )
    source, store = FakeSource([], [stream]), FakeStore()

    async with running(streaming(source, store).run()):
        await settle()

    assert store.names == ["a@7", "b@9"]
    assert store.fed == []


async def test_streaming_list_is_invisible_until_its_end() -> None:
    stream = Stream([added(thing("a", 3))], [initial_events_end(9, "false")])
    source, store = FakeSource([], [stream]), FakeStore()
    reflector = streaming(source, store)

    async with running(reflector.run()):
        await settle()

        assert (store.objects, reflector.phase) == ({}, "listing")
        stream.send(initial_events_end(9))
        await settle()

        assert (store.names, reflector.phase) == (["a@3"], "watching")


async def test_events_after_the_end_in_the_same_batch_are_watched() -> None:
    stream = Stream(
        [added(thing("a", 3)), initial_events_end(9), added(thing("b", 10))],
        [deleted(thing("a", 11))],
    )
    source, store = FakeSource([], [stream]), FakeStore()

    async with running(streaming(source, store).run()):
        await settle()

    assert store.commits == ["9"]
    assert (store.names, store.version) == (["b@10"], "11")


async def test_versions_are_compared_again_after_the_end() -> None:
    stream = listed(modified(thing("a", 4)))
    source = FakeSource([], [stream])
    reflector = streaming(source)

    async with running(reflector.run()):
        await settle()

    assert reflector.history_resets == 1
    assert source.requested == ["stream ''"]


async def test_stream_that_ends_after_the_list_is_resumed_by_a_watch() -> None:
    source = FakeSource([], [listed(bookmark(12), 5.0)])
    source.watches[0].then(END)  # type: ignore[union-attr]

    async with running(streaming(source).run()):
        await asyncio.sleep(6)

    assert source.requested == ["stream ''", "watch '12'"]


async def test_relist_streams_state_not_older_than_known() -> None:
    stream = listed()
    stream.then(5.0)
    stream.then(DecodeError("garbled"))
    source = FakeSource([], [stream])

    async with running(streaming(source).run()):
        await asyncio.sleep(10)

    assert source.requested == ["stream ''", "stream '9'"]


async def test_stream_older_than_known_resets_the_history() -> None:
    first = listed(5.0)
    first.then(DecodeError("garbled"))
    older = Stream([added(thing("z", 1)), initial_events_end(2)])
    source, store = FakeSource([], [first, older]), FakeStore()
    reflector = streaming(source, store)

    async with running(reflector.run()):
        await asyncio.sleep(20)

        assert source.open == 1, "the older stream was closed"

    assert reflector.history_resets == 1
    assert source.requested == ["stream ''", "stream '9'", "stream ''"]
    assert store.commits == ["9"]


async def test_stream_after_a_history_reset_is_taken_as_it_is() -> None:
    again = Stream([added(thing("a", 3))], [initial_events_end(4)])
    source = FakeSource([], [listed(modified(thing("a", 4))), again])
    store = FakeStore()

    async with running(streaming(source, store).run()):
        await asyncio.sleep(5)

    assert store.commits == ["9", "4"]
    assert store.after_reset[0] is False
    assert store.after_reset[-1] is True


async def test_slow_stream_that_progresses_is_not_abandoned() -> None:
    objects = [[added(thing(f"a{n}", n + 1))] for n in range(10)]
    stream = Stream()
    for batch in objects:
        stream.then(29.0)
        stream.then(batch)
    stream.then([initial_events_end(50)])
    source, store = FakeSource([], [stream]), FakeStore()

    async with running(streaming(source, store).run()):
        await asyncio.sleep(291)

    assert source.requested == ["stream ''"]
    assert len(store.objects) == 10


# ---------------------------------------------------------------- servers without streams


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(Invalid("sendInitialEvents is forbidden", status=422), id="422"),
        pytest.param(Invalid("what is that", status=400), id="400"),
        pytest.param(ApiError("not allowed", status=405), id="405"),
    ],
)
async def test_refused_stream_is_replaced_by_pages_permanently(
    refusal: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    garbled = Stream(5.0, DecodeError("garbled"))
    source = FakeSource([Page([thing("a")], version=7)], [refusal, garbled])
    reflector = streaming(source)

    async with running(reflector.run()):
        await settle()

        assert (reflector.phase, reflector.refusals) == ("watching", 0)
        await asyncio.sleep(10)

    assert source.requested == [
        *("stream ''", "list '0'", "watch '7'"),
        *("list '7'", "watch '7'"),
    ]
    assert source.times[:3] == [0, 0, 0]
    assert caplog.text.count("does not support streamed lists") == 1


async def test_refusal_of_a_stream_does_not_count_as_refusal() -> None:
    source = FakeSource([Forbidden("no", status=403)], [Invalid("?", status=400)])
    reflector = streaming(source)

    async with running(reflector.run()):
        await settle()

        assert reflector.refusals == 1, "the refusal of the list"


async def test_retry_after_is_respected_before_pages() -> None:
    refusal = Invalid("?", status=400, retry_after=9.0)
    source = FakeSource([], [refusal])

    async with running(streaming(source).run()):
        await asyncio.sleep(10)

    assert source.requested[:2] == ["stream ''", "list '0'"]
    assert source.times[:2] == pytest.approx([0, 9], abs=1e-3)


async def test_silent_stream_is_abandoned_after_30_s() -> None:
    source, store = FakeSource([Page(version=7)], [Stream()]), FakeStore()
    reflector = streaming(source, store)

    async with running(reflector.run()):
        await asyncio.sleep(31)

        assert reflector.phase == "watching"

    assert source.requested == ["stream ''", "list '0'", "watch '7'"]
    assert source.times[1] == pytest.approx(30, abs=1e-3)
    assert (store.discards, source.open) == (1, 0)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(modified, id="modified"),
        pytest.param(lambda obj: bookmark(obj.resource_version), id="bookmarks"),
        pytest.param(deleted, id="deleted"),
    ],
)
async def test_ordinary_watch_in_reply_is_abandoned_after_30_s(kind: object) -> None:
    assert callable(kind)
    stream = Stream([added(thing("a", 3))])
    for number in range(1000):
        stream.then(0.1)
        stream.then([kind(thing("a", 10 + number)), added(thing(f"b{number}", number))])
    source = FakeSource([Page(version=2000)], [stream])

    async with running(streaming(source).run()):
        await asyncio.sleep(40)

    assert source.requested == ["stream ''", "list '0'", "watch '2000'"]
    assert source.times[1] == pytest.approx(30.1, abs=1e-3)


async def test_waiting_for_the_end_of_a_stream_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "aioinformer")
    stream = Stream([added(thing("a", 3))], 11.0, [added(thing("b", 4))], 9.0)
    stream.then([initial_events_end(9)])
    source, store = FakeSource([], [stream]), FakeStore()

    async with running(streaming(source, store).run()):
        await asyncio.sleep(21)

    (warned,) = [it.getMessage() for it in caplog.records]
    assert warned.startswith("pods: waiting for the end of a streamed list")
    assert warned.endswith("(1 events so far, none for the last 10 s)")
    assert store.names == ["a@3", "b@4"], "the late object is not lost"


# ---------------------------------------------------------------- broken streams


@pytest.mark.parametrize(
    "breaks",
    [
        pytest.param(END, id="ends"),
        pytest.param(BROKEN, id="broken"),
        pytest.param(DecodeError("garbled"), id="garbled"),
        pytest.param([error_event(500)], id="error-event"),
    ],
)
async def test_broken_stream_is_requested_again(
    breaks: list[WatchEvent] | Exception,
) -> None:
    stream = Stream([added(thing("a", 3))], breaks)
    again = Stream([added(thing("b", 4)), initial_events_end(9)])
    source, store = FakeSource([], [stream, again]), FakeStore()
    errors: list[Exception] = []
    reflector = streaming(source, store)
    reflector.set_watch_error_handler(errors.append)

    async with running(reflector.run()):
        await asyncio.sleep(5)

    assert source.requested == ["stream ''", "stream ''"]
    assert source.times == pytest.approx([0, 1.2], abs=1e-3)
    assert (store.names, store.discards, len(errors)) == (["b@4"], 1, 1)


async def test_three_broken_streams_in_a_row_are_replaced_by_pages() -> None:
    source = FakeSource([Page(version=7)], [Stream(END) for _ in range(3)])

    async with running(streaming(source).run()):
        await asyncio.sleep(10)

    assert source.requested == [*(["stream ''"] * 3), "list '0'", "watch '7'"]


async def test_expired_stream_requests_the_newest_state() -> None:
    garbled = listed(5.0)
    garbled.then(DecodeError("garbled"))
    expired = ResourceExpired("too old", status=410)
    source = FakeSource([], [garbled, expired, listed()])

    async with running(streaming(source).run()):
        await asyncio.sleep(30)

    assert source.requested == ["stream ''", "stream '9'", "stream ''"]


async def test_too_many_requests_delay_the_next_stream() -> None:
    patience = TooManyRequests("later", status=429, retry_after=5.0)
    source = FakeSource([], [patience, patience, patience, patience, listed()])

    async with running(streaming(source).run()):
        await asyncio.sleep(60)

    assert source.requested == ["stream ''"] * 5


# ---------------------------------------------------------------- unreadable events


async def test_unreadable_events_of_the_first_stream_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = listed()
    stream.skipped = 2
    source, store = FakeSource([], [stream]), FakeStore()
    reflector = streaming(source, store)

    async with running(reflector.run()):
        await settle()

        assert (reflector.skipped, store.names) == (2, ["a@3"])

    assert "leaving out 2 unreadable events of a streamed list" in caplog.text


async def test_unreadable_events_of_a_later_stream_delete_nothing() -> None:
    first = listed(5.0)
    first.then(DecodeError("garbled"))
    blind = [Stream([initial_events_end(12)]) for _ in range(3)]
    for stream in blind:
        stream.skipped = 1
    page = Page([], version=13, skipped=1, unreadable=["default/a"])
    source, store = FakeSource([page], [first, *blind]), FakeStore()

    async with running(streaming(source, store).run()):
        await asyncio.sleep(60)

    assert source.requested[:5] == ["stream ''", *(["stream '9'"] * 3), "list '9'"]
    assert (store.commits, store.unreadable) == (["9", "13"], ["default/a"])


# ---------------------------------------------------------------- cancellation


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Silence, id="unanswered"),
        pytest.param(Stream, id="silent"),
        pytest.param(lambda: Stream([added(thing("a"))]), id="half"),
        pytest.param(listed, id="watching"),
        pytest.param(lambda: ServerError("busy", status=503), id="pause"),
    ],
)
async def test_cancelled_stream_leaves_nothing(answer: object) -> None:
    assert callable(answer)
    source = FakeSource([], [answer()])
    reflector = streaming(source)

    async with running(reflector.run()) as task:
        await settle()

    assert task.cancelled()
    assert source.open == 0
