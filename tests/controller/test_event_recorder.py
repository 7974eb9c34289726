"""`EventRecorder`: writes, retries and dropped events."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from event_helpers import POD, Events, failing, now, record, recorder_of, recording

from aioinformer.controller import event_correlator as event_correlator
from aioinformer.controller.event_recorder import MAX_ATTEMPTS, MAX_WAITING
from aioinformer.errors import (
    Forbidden,
    OptionsError,
    TooManyRequests,
    TransportError,
)

# ---------------------------------------------------------------- what is written


@pytest.mark.parametrize("note", [None, ValueError("no such volume")])
async def test_note_that_is_not_a_string_is_refused(note: Any) -> None:
    recorder = recorder_of(Events())

    with pytest.raises(OptionsError, match="the note of an event must be a string"):
        recorder.event(POD, "Normal", "Mounted", note)


async def test_event_is_written_soon_without_blocking() -> None:
    async with recording() as (events, recorder):
        record(recorder)
        assert (recorder.waiting, events.sent) == (1, [])

        await asyncio.sleep(0.01)

        assert recorder.waiting == 0
        (body,) = events.bodies.values()
        assert body["reportingController"] == "mounter"
        assert body["reportingInstance"].startswith("mounter-")
        assert (body["type"], body["reason"]) == ("Warning", "FailedMount")
        assert body["action"] == "FailedMount"
        assert "series" not in body


async def test_event_before_start_is_written_after_start() -> None:
    events = Events()
    recorder = recorder_of(events)
    record(recorder, "A")
    await asyncio.sleep(100)
    assert events.sent == []

    async with recorder:
        await asyncio.sleep(1)
        assert events.counts == {"A": 1}


async def test_repeated_event_is_series_written_every_5_minutes() -> None:
    async with recording() as (events, recorder):
        start = now()
        for _ in range(1000):
            record(recorder)
            await asyncio.sleep(1)

        times = [round(at - start) for at, _ in events.sent]
        assert events.verbs == ["create", "patch", "patch", "patch", "patch"]
        assert times[:2] == [0, 1]
        assert all(300 <= later - at <= 330 for at, later in pairwise(times[1:]))

        await asyncio.sleep(400)
        assert events.counts == {"FailedMount": 1000}
        assert len(events.sent) == 6

        record(recorder)
        await asyncio.sleep(1)
        assert len(events.bodies) == 2  # the earlier series had ended


async def test_thousand_repeats_at_once_need_at_most_two_requests() -> None:
    async with recording() as (events, recorder):
        events.delay = 1
        for _ in range(500):
            record(recorder)

        await asyncio.sleep(0.5)  # created as a series of 500
        for _ in range(500):
            record(recorder)

        await asyncio.sleep(10)
        assert events.counts == {"FailedMount": 500}
        await asyncio.sleep(400)
        assert events.counts == {"FailedMount": 1000}
        assert events.verbs == ["create", "patch"]


async def test_event_repeated_during_creation_becomes_series() -> None:
    async with recording() as (events, recorder):
        events.delay = 1
        record(recorder)
        await asyncio.sleep(0.5)
        record(recorder)
        record(recorder)

        await asyncio.sleep(10)
        assert events.verbs == ["create", "patch"]
        assert events.counts == {"FailedMount": 3}


async def test_event_repeated_during_write_is_in_final_count() -> None:
    async with recording() as (events, recorder):
        events.delay = 1
        record(recorder)
        await asyncio.sleep(2)
        record(recorder)
        await asyncio.sleep(0.5)
        record(recorder)

        await asyncio.sleep(400)
        assert events.verbs == ["create", "patch", "patch"]
        assert events.counts == {"FailedMount": 3}


async def test_series_is_refreshed_during_constant_load() -> None:
    async with recording() as (events, recorder):
        for number in range(500):
            record(recorder)
            record(recorder, f"R{number}")
            await asyncio.sleep(1)

        assert events.counts["FailedMount"] > 300


async def test_expired_event_is_created_again() -> None:
    async with recording() as (events, recorder):
        record(recorder)
        await asyncio.sleep(1)
        events.bodies.clear()

        record(recorder)
        await asyncio.sleep(1)

        assert events.verbs == ["create", "patch", "create"]
        assert events.counts == {"FailedMount": 2}


# ---------------------------------------------------------------- what is not


async def test_connection_error_pauses_all_events_and_is_retried() -> None:
    async with recording() as (events, recorder):
        events.fault = failing(3, TransportError("cut"))
        record(recorder, "A")
        record(recorder, "B")

        await asyncio.sleep(60)

        assert events.counts == {"A": 1, "B": 1}
        assert events.verbs == ["create"] * 5
        times = [at for at, _ in events.sent]
        assert times[1] - times[0] >= 0.8
        assert times[2] - times[1] >= 1.6
        assert recorder.dropped == 0


async def test_backoff_is_reset_after_outage() -> None:
    async with recording() as (events, recorder):
        events.fault = failing(6, TransportError("cut"))
        record(recorder, "A")
        await asyncio.sleep(120)
        assert events.counts == {"A": 1}

        events.fault = failing(1, TransportError("cut"))
        record(recorder, "B")
        await asyncio.sleep(2)
        assert events.counts == {"A": 1, "B": 1}


async def test_server_error_is_retried_while_others_are_written() -> None:
    async with recording() as (events, recorder):
        events.broken = {f"R{number}" for number in range(20)}
        for reason in (*sorted(events.broken), "A"):
            record(recorder, reason)

        await asyncio.sleep(0.5)
        assert events.counts == {"A": 1}
        assert recorder.waiting == 20

        await asyncio.sleep(10)
        assert len(events.sent) <= 21 + 4 * 20
        events.broken.clear()
        await asyncio.sleep(30)
        assert len(events.counts) == 21
        assert recorder.dropped == 0


@pytest.mark.parametrize(
    "error",
    [OSError(28, "No space left on device"), RuntimeError("can't start new thread")],
    ids=["disk-full", "no-thread"],
)
async def test_os_error_is_retried(
    error: Exception,
) -> None:
    async with recording() as (events, recorder):
        events.fault = failing(2, error)
        record(recorder, "A")
        await asyncio.sleep(30)

        assert events.counts == {"A": 1}
        assert recorder.dropped == 0


async def test_event_is_given_up_after_repeated_server_errors() -> None:
    async with recording() as (events, recorder):
        events.broken = {"A"}
        record(recorder, "A")
        await asyncio.sleep(1000)

        assert events.verbs == ["create"] * MAX_ATTEMPTS
        assert (recorder.waiting, recorder.dropped) == (0, 1)


async def test_retry_after_of_server_is_respected() -> None:
    async with recording() as (events, recorder):
        events.fault = failing(1, TooManyRequests("busy", status=429, retry_after=40))
        record(recorder)

        await asyncio.sleep(39)
        assert len(events.sent) == 1
        await asyncio.sleep(2)
        assert events.counts == {"FailedMount": 1}


async def test_events_are_given_up_one_by_one_during_long_outage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with recording() as (events, recorder):
        events.fault = lambda _: TransportError("refused")
        record(recorder, "A")
        await asyncio.sleep(600)

        assert len(events.sent) == MAX_ATTEMPTS
        assert 200 < events.sent[-1][0] - events.sent[0][0] < 400
        assert (recorder.dropped, recorder.waiting) == (1, 0)
        assert "dropping event (Warning A of Pod shop/web-0): " in caplog.text

        events.fault = lambda _: None
        record(recorder, "A")
        await asyncio.sleep(1)
        assert events.counts == {"A": 1}


async def test_lost_response_creates_no_second_event() -> None:
    async with recording() as (events, recorder):
        events.lost = failing(1, TransportError("cut"))
        record(recorder)
        await asyncio.sleep(0.5)
        record(recorder)
        await asyncio.sleep(60)

        assert events.verbs == ["create", "create", "patch"]
        assert events.counts == {"FailedMount": 2}
        assert len(events.bodies) == 1


async def test_refused_event_is_given_up_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with recording() as (events, recorder):
        events.fault = failing(1, Forbidden("events is forbidden", status=403))
        record(recorder, "A")
        record(recorder, "B")
        await asyncio.sleep(1)

        assert events.counts == {"B": 1}
        assert recorder.dropped == 1
        assert "A of Pod shop/web-0): " in caplog.text
        assert "events is forbidden" in caplog.text

        record(recorder, "A")
        await asyncio.sleep(1)
        assert events.counts == {"A": 2, "B": 1}


@pytest.mark.parametrize("allowed", [set(), {"create"}], ids=["nothing", "create"])
async def test_refused_event_is_not_sent_for_each_repeat(
    allowed: set[str],
) -> None:
    async with recording() as (events, recorder):
        refused = Forbidden("forbidden", status=403)
        events.fault = lambda verb: None if verb in allowed else refused
        for _ in range(1000):
            record(recorder)
            await asyncio.sleep(1)

        assert len(events.sent) == 5  # two, and one every 5 minutes
        assert len(events.bodies) == len(allowed)


async def test_events_beyond_20000_series_are_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(event_correlator, "MAX_SERIES", 3)
    async with recording() as (events, recorder):
        for reason in "ABCD":
            record(recorder, reason)

        await asyncio.sleep(400)
        record(recorder, "E")
        await asyncio.sleep(1)

    assert set(events.counts) == set("ABCE")
    assert recorder.dropped == 1
    assert "dropping event (Warning D): " in caplog.text


async def test_events_beyond_1000_waiting_are_dropped_with_summary(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with recording() as (events, recorder):
        events.delay = 0.001
        for number in range(MAX_WAITING + 500):
            record(recorder, f"R{number}")

        for number in range(MAX_WAITING):
            record(
                recorder, f"R{number}"
            )  # repeats of waiting events: nothing is dropped

        assert (recorder.waiting, recorder.dropped) == (MAX_WAITING, 500)
        assert len(caplog.records) < 20

        await asyncio.sleep(10)
        assert set(events.counts) == {f"R{number}" for number in range(MAX_WAITING)}
        assert set(events.counts.values()) == {2}


async def test_bug_in_client_ends_recorder_and_is_raised() -> None:
    events = Events()
    events.fault = lambda _: ZeroDivisionError("bug")
    recorder = recorder_of(events)
    await recorder.start()
    record(recorder)
    await asyncio.sleep(1)

    with pytest.raises(ZeroDivisionError):
        await recorder.shutdown()
