"""`Reflector`: log records, counters, and state."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest
from fake_source import (
    END,
    FakeSource,
    FakeStore,
    Page,
    Stream,
    added,
    bookmark,
    error_event,
    thing,
)
from informer_helpers import Even, reflector_of, running, settle

from aioinformer.errors import (
    ApiError,
    Forbidden,
    NotFound,
    ResourceExpired,
    ServerError,
    TransportError,
    Unauthorized,
)
from aioinformer.informer import Reflector
from aioinformer.informer.listwatch.machine import Listing

BUSY = ServerError("busy", status=503)
BROKEN = TransportError("broken")
EXPIRED = ResourceExpired("too old", status=410)


# ---------------------------------------------------------------- log records


async def test_failures_are_logged_at_growing_intervals(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "aioinformer")

    async with running(reflector_of(FakeSource([BUSY])).run()):
        await asyncio.sleep(200)

    lines = [(it.levelname, it.getMessage()) for it in caplog.records]
    assert lines == [
        (
            "WARNING",
            f"pods: list or watch failed, will retry (failures={n}): 503: busy",
        )
        for n in (1, 2, 4, 8)
    ]


@pytest.mark.parametrize(
    "refusal",
    [NotFound("?", status=404), ApiError("no", status=405), EXPIRED],
    ids=["404", "405", "410"],
)
async def test_successful_lists_in_between_do_not_restart_the_log_intervals(
    refusal: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    source = FakeSource([Page(version=7)], [refusal] * 200)

    async with running(reflector_of(source).run()):
        await asyncio.sleep(6000)

    assert len(source.requests) > 200
    assert 15 < len(caplog.records) < 25


async def test_failures_of_a_long_outage_are_logged_every_five_minutes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(reflector_of(FakeSource([BUSY])).run()):
        await asyncio.sleep(200)
        caplog.clear()
        await asyncio.sleep(3600)

    times = [record.created for record in caplog.records]
    assert 9 <= len(times) <= 12


async def test_recovery_after_a_logged_failure_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = FakeSource(
        [BUSY, BUSY, BUSY, Page(version=7)],
        [BUSY, Stream(60.0, END), Stream(60.0, END)],
    )

    async with running(reflector_of(source).run()):
        await asyncio.sleep(300)

    lines = [(it.levelname, it.getMessage()) for it in caplog.records]
    *failures, (level, recovery) = lines
    assert len(failures) == 3  # the 1st, 2nd and 4th
    assert level == "WARNING"
    assert re.fullmatch(r"pods: recovered after \d+ s \(failures=4\)", recovery)


async def test_recovery_after_an_ordinary_interruption_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "aioinformer")
    source = FakeSource([Page(version=7)], [Stream(5.0, BROKEN), Stream(60.0, END)])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(30)

    assert "interrupted" in caplog.text
    assert "recovered" not in caplog.text


async def test_history_reset_is_logged_as_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = FakeSource([Page(version=7), Page(version=3)], [EXPIRED])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(30)

    (line,) = [it for it in caplog.records if "reset" in it.getMessage()]
    assert line.levelname == "WARNING"
    assert line.getMessage() == (
        "pods: list of version 3 is older than version 7: the server's history was "
        "reset, listing and comparing all objects"
    )


async def test_successful_watch_restarts_the_log_intervals(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watches: list[Stream | Exception] = [BUSY, BUSY, BUSY, Stream(60.0, END), BUSY]
    source = FakeSource([Page(version=7)], watches)

    async with running(reflector_of(source).run()):
        await asyncio.sleep(200)

    received = [record.getMessage() for record in caplog.records]
    received = [text for text in received if "recovered" not in text]
    assert [text.split()[7] for text in received] == [
        f"(failures={n}):" for n in (1, 2, 1)
    ]


async def test_watches_that_always_fail_after_their_start_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "aioinformer")
    source = FakeSource([Page()], [Stream([error_event(500)]) for _ in range(20)])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(200)

    lines = [
        (it.levelname, it.getMessage().partition(")")[0])
        for it in caplog.records
        if it.getMessage().startswith("pods: list or watch")
    ]
    assert lines[0][0] == "INFO"
    assert lines[1:4] == [
        ("WARNING", f"pods: list or watch failed, will retry (failures={n}")
        for n in (2, 4, 8)
    ]


async def test_unreadable_items_are_logged_and_keep_their_state(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FakeStore()
    page = Page([thing("a")], version=5, skipped=2, unreadable=["default/bad"])

    async with running(reflector_of(FakeSource([page]), store).run()):
        await settle()

    assert store.unreadable == ["default/bad"]
    assert "2 objects of a list cannot be read" in caplog.text
    assert "default/bad" in caplog.text


@pytest.mark.parametrize(
    "watch",
    [
        pytest.param(EXPIRED, id="410-as-status"),
        pytest.param(Stream(5.0, BROKEN), id="connection-broke"),
        pytest.param(Stream(5.0, [error_event(500)]), id="error-event"),
    ],
)
async def test_ordinary_ends_of_watches_are_not_logged_as_warnings(
    watch: Stream | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aioinformer")

    async with running(reflector_of(FakeSource([Page(version=7)], [watch])).run()):
        await asyncio.sleep(5.5)

    lines = [(it.levelname, it.getMessage()) for it in caplog.records]
    assert lines[0] == ("INFO", "pods: listed at version 7")
    assert lines[1][0] == "INFO"
    assert lines[1][1].startswith("pods: list or watch was interrupted, retrying: ")


async def test_failures_restarts_and_refusals_are_counted() -> None:
    refused = Forbidden("no", status=403)
    source = FakeSource([BUSY, refused, refused, Page()])
    reflector = reflector_of(source)
    account = []

    def note() -> None:
        counts = (reflector.restarts, reflector.failures, reflector.refusals)
        account.append((*counts, reflector.last_error))

    async with running(reflector.run()):
        note()
        for moment in (0.6, 1.8, 4.8, 4.8):  # after the starts at 0, 1.2, 3.6 and 8.4
            await asyncio.sleep(moment)
            note()

    assert account == [
        (0, 0, 0, None),
        (1, 1, 0, BUSY),
        (2, 2, 1, refused),
        (3, 3, 2, refused),
        (3, 0, 0, None),
    ]


@pytest.mark.parametrize(
    "refusal",
    [
        Unauthorized("?", status=401),
        Forbidden("?", status=403),
        NotFound("?", status=404),
        ApiError("?", status=405),
    ],
    ids=str,
)
async def test_another_failure_resets_the_count_of_refusals(refusal: Exception) -> None:
    reflector = reflector_of(FakeSource([refusal, BUSY]))

    async with running(reflector.run()):
        await settle()
        counts = [reflector.refusals]
        await asyncio.sleep(2)
        counts.append(reflector.refusals)

    assert counts == [1, 0]


async def test_accepted_watch_resets_the_count_of_failures() -> None:
    source = FakeSource([Page()], [BUSY, Stream(1.0, BROKEN)])
    reflector = reflector_of(source)
    errors = []

    async with running(reflector.run()):
        for moment in (0.5, 1.0, 1.0):
            await asyncio.sleep(moment)
            errors.append((reflector.failures, reflector.last_error))

    assert errors == [(1, BUSY), (0, None), (1, BROKEN)]


@pytest.mark.parametrize("then", [Page(), BUSY], ids=["listed", "another-failure"])
async def test_unserved_resource_is_noticed(then: Page | Exception) -> None:
    source = FakeSource([NotFound("?", status=404), then])
    reflector = reflector_of(source)

    async with running(reflector.run()):
        await settle()
        before = reflector.not_served
        await asyncio.sleep(5)

    assert before
    assert not reflector.not_served


async def test_duplicates_and_unreadable_events_are_counted() -> None:
    stream = Stream([added(thing("a", 3)), added(thing("b", 8))])
    stream.skipped = 2
    source = FakeSource([Page([thing("a", 3)], version=7, skipped=3)], [stream])
    reflector = reflector_of(source)

    async with running(reflector.run()):
        await settle()
        counted = reflector.skipped
        stream.skipped = 4
        stream.then(END)
        await settle()

    assert reflector.duplicates == 1
    assert counted == 5
    assert reflector.skipped == 7, "events after the last batch count too"


async def test_unreadable_events_of_several_watches_are_added_up() -> None:
    streams = [Stream(2.0, END), Stream()]
    streams[0].skipped = streams[1].skipped = 1
    reflector = reflector_of(FakeSource([Page()], streams))

    async with running(reflector.run()):
        await asyncio.sleep(3)

    assert reflector.skipped == 2


async def test_time_of_the_last_contact_is_recorded() -> None:
    stream = Stream(10.0, [added(thing("a", 8))], 10.0, [bookmark(9)], 10.0, END)
    reflector = reflector_of(FakeSource([Page(version=7, seconds=5.0)], [stream]))
    contacts, events = [], []

    async with running(reflector.run()):
        for moment in (1, 5, 10, 10, 10):
            await asyncio.sleep(moment)
            contacts.append(reflector.last_contact)
            events.append(reflector.last_event)

    assert contacts == [None, *(pytest.approx(it, abs=1e-3) for it in (5, 15, 25, 35))]
    assert events == [None, None, *(pytest.approx(15, abs=1e-3),) * 3]


async def test_time_of_the_last_synced_state_is_recorded() -> None:
    stream = Stream(10.0, [bookmark(9)], 10.0, BROKEN)
    pages = [Page([thing("a")], 7, "t", seconds=1.0), Page(version=7, seconds=4.0)]
    source = FakeSource(pages, [stream, Stream(10.0, END), BUSY])
    reflector = reflector_of(source)
    moments = []

    async with running(reflector.run()):
        for moment in (2, 4, 10, 10, 10):  # listed at 5 s, watched at 5, 25 and 35 s
            await asyncio.sleep(moment)
            moments.append(reflector.in_step)

    assert moments == [None, *(pytest.approx(it, abs=1e-3) for it in (5, 15, 15, 35))]


async def test_phase_changes_are_reported() -> None:
    phases: list[str] = []
    source = FakeSource([BUSY, Page([thing("a")], seconds=1.0)])
    reflector = Reflector(
        source,
        FakeStore(),
        name="pods",
        on_change=lambda: phases.append(reflector.phase),
        rng=Even(),
    )
    idle = (reflector.phase, repr(reflector))

    async with running(reflector.run()):
        await asyncio.sleep(1.5)
        listing = reflector.phase
        await asyncio.sleep(3)

        assert reflector.phase == "watching"

    assert idle == (
        "listing",
        f"<Reflector pods phase={Listing()!r} failures=0>",
    )
    assert listing == "listing"
    assert list(dict.fromkeys(phases)) == ["listing", "backing off", "watching"]


async def test_reflector_works_with_defaults() -> None:
    source = FakeSource([BUSY, Page()])

    async with running(Reflector(source, FakeStore()).run()):
        await asyncio.sleep(2)

    assert source.requested == ["list '0'", "list '0'", "watch '1'"]
