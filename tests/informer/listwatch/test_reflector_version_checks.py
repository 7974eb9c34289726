"""`Reflector`: version checks of silent watches, which detect a replaced server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from fake_source import FakeSource, FakeStore, Page, Silence, Stream, bookmark, thing
from informer_helpers import reflector_of, running

from aioinformer.errors import HistoryReset, ServerError, TransportError

if TYPE_CHECKING:
    from aioinformer.model import KubeObject


async def test_silent_watch_is_checked_once_after_a_minute() -> None:
    source = FakeSource([Page(version=7)], [Stream()])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(290)

    assert source.checks == [pytest.approx(60, abs=0.1)]
    assert source.requested == ["list '0'", "watch '7'"]


async def test_watch_with_events_is_not_checked() -> None:
    source = FakeSource([Page(version=7)], [Stream(59.0, [bookmark(8)])])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(290)

    assert source.checks == []


async def test_each_watch_is_checked() -> None:
    source = FakeSource([Page(version=7)], [Stream(100.0, TransportError("cut"))])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(200)

    assert [round(moment) for moment in source.checks] == [60, 160]


async def test_server_with_an_older_version_resets_the_history() -> None:
    source = FakeSource([Page([thing("a", 7)], version=7), Page([thing("b", 3)], 3)])
    source.newest = 3
    store = FakeStore()
    reflector = reflector_of(source, store)

    async with running(reflector.run()):
        await asyncio.sleep(70)

    assert source.requested[:4] == ["list '0'", "watch '7'", "list ''", "watch '3'"]
    assert store.after_reset == [False, True]
    assert store.names == ["b@3"]
    assert reflector.history_resets == 1


REFUSED = TransportError("refused", unreachable=True)


@pytest.mark.parametrize(
    ("failures", "checks"),
    [
        pytest.param([REFUSED, REFUSED], [0, 60], id="unreachable"),
        pytest.param(
            [REFUSED, ServerError("busy", status=503)], [0, 60], id="starting"
        ),
        pytest.param([ServerError("busy", status=503)], [60], id="reachable"),
    ],
)
async def test_watch_after_an_outage_is_checked_at_once(
    failures: list[Exception], checks: list[float]
) -> None:
    source = FakeSource([Page(version=7)], [*failures, Stream()])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(120)

    accepted = source.times[-1]
    assert source.checks == [pytest.approx(accepted + it, abs=0.1) for it in checks]


@pytest.mark.parametrize(
    ("found", "resets"),
    [
        pytest.param(thing("a", 5, uid="1"), 0, id="same-object"),
        pytest.param(thing("a", 5, uid="2"), 1, id="other-object"),
        pytest.param(thing("a", 6, uid="1"), 1, id="other-version"),
        pytest.param(thing("b", 5, uid="1"), 1, id="unknown-object"),
        pytest.param(thing("b", 8, uid="1"), 0, id="newer-object"),
        pytest.param(thing("b", "abc", uid="1"), 0, id="version-without-order"),
    ],
)
async def test_object_that_the_store_lacks_resets_the_history(
    found: KubeObject, resets: int
) -> None:
    listed = Page([thing("a", 5, uid="1")], version=7)
    source = FakeSource([listed, Page([found], version=9)], [Stream()])
    source.newest = Page([found], version=9)
    store = FakeStore()
    reflector = reflector_of(source, store)

    async with running(reflector.run()):
        await asyncio.sleep(70)

    assert reflector.history_resets == resets
    state = f"{found.name}@{found.resource_version}"
    assert store.names == ([state] if resets else ["a@5"])


async def test_slow_check_after_an_outage_delays_events_by_two_seconds() -> None:
    stream = Stream()
    source, store = FakeSource([Page(version=7)], [REFUSED, stream]), FakeStore()
    source.newest = Silence()

    async with running(reflector_of(source, store).run()):
        await asyncio.sleep(1)
        while len(source.checks) == 0:
            await asyncio.sleep(0.1)

        stream.send(bookmark(9))
        await asyncio.sleep(1.8)
        assert store.version == "7"
        await asyncio.sleep(0.3)

        assert store.version == "9"


async def test_slow_check_is_abandoned() -> None:
    stream = Stream()
    source, store = FakeSource([Page(version=7)], [stream]), FakeStore()
    source.newest = Silence()

    async with running(reflector_of(source, store).run()):
        await asyncio.sleep(70)
        stream.send(bookmark(9))
        await asyncio.sleep(19)
        assert store.version == "7", "the watch is not read during the check"
        await asyncio.sleep(2)

        assert store.version == "9"


@pytest.mark.parametrize(
    "newest",
    [
        pytest.param(7, id="nothing-happened"),
        pytest.param("abc", id="versions-that-cannot-be-compared"),
        pytest.param(ServerError("busy", status=503), id="refused"),
    ],
)
async def test_inconclusive_check_changes_nothing(
    newest: int | str | Exception,
) -> None:
    source = FakeSource([Page(version=7)], [Stream(90.0, [bookmark(9)])])
    source.newest = newest
    store = FakeStore()
    reflector = reflector_of(source, store)

    async with running(reflector.run()):
        await asyncio.sleep(100)

    assert len(source.checks) == 1
    assert store.version == "9", "events after the check are not lost"
    assert not isinstance(reflector.last_error, HistoryReset)
