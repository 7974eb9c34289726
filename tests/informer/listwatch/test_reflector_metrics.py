"""Metrics of a `Reflector`: names, values, and failing sinks."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from fake_source import (
    END,
    FakeSource,
    FakeStore,
    Page,
    Stream,
    added,
    bookmark,
    initial_events_end,
    thing,
)
from informer_helpers import Even, running

from aioinformer.errors import (
    Forbidden,
    Invalid,
    ResourceExpired,
    ServerError,
    TransportError,
)
from aioinformer.informer import Reflector, ReflectorOptions

if TYPE_CHECKING:
    from aioinformer.metrics import MetricsSink

BUSY = ServerError("busy", status=503)


class Sink:
    """A sink that keeps values by name and labels other than the reflector's name."""

    enabled = True

    def __init__(self) -> None:
        self.recorded: dict[str, list[float]] = defaultdict(list)

    def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
        self._note(name, amount, labels)

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        self._note(name, value, labels)

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        self._note(name, round(value, 2), labels)

    def _note(self, name: str, value: float, labels: dict[str, str]) -> None:
        assert labels.pop("name") == "pods"
        short = name.removeprefix("aioinformer_").removeprefix("reflector_")
        self.recorded[" ".join([short, *labels.values()])].append(value)


class Failing(Sink):
    def _note(self, name: str, value: float, labels: dict[str, str]) -> None:
        super()._note(name, value, labels)
        raise ValueError("a bug of the user")


class Disabled(Failing):
    enabled = False


def measured(source: FakeSource, sink: MetricsSink, **options: bool) -> Reflector:
    return Reflector(
        source,
        FakeStore(),
        name="pods",
        metrics=sink,
        options=ReflectorOptions(**options),
        rng=Even(),
    )


async def test_list_in_pages_counts_as_one_list() -> None:
    pages = [
        Page([thing("a"), thing("b")], 7, "t", seconds=1.0),
        Page([thing("c")], 7, seconds=0.5),
    ]
    sink = Sink()

    async with running(measured(FakeSource(pages), sink).run()):
        await asyncio.sleep(3)

    assert sink.recorded == {
        "lists_total": [1],
        "list_duration_seconds": [1.5],
        "items_per_list": [3],
        "last_resource_version": [7],
        "watches_total": [1],
    }


async def test_watch_is_measured_when_it_ends() -> None:
    stream = Stream([added(thing("a", 8)), added(thing("b", 9))], 5.0, [bookmark(12)])
    stream.then(2.0)
    stream.then(END)
    sink = Sink()

    async with running(measured(FakeSource([Page(version=7)], [stream]), sink).run()):
        await asyncio.sleep(7.5)

    assert sink.recorded["watch_duration_seconds"][0] == 7
    assert sink.recorded["items_per_watch"][0] == 3
    assert sink.recorded["last_resource_version"] == [7, 9, 12]
    assert sink.recorded["watches_total"] == [1, 1]


@pytest.mark.parametrize(
    ("stream", "short"),
    [
        pytest.param(lambda: Stream(0.9, END), 1, id="short"),
        pytest.param(lambda: Stream(1.0, END), 0, id="not-short"),
        pytest.param(lambda: Stream([bookmark(9)], END), 0, id="with-an-event"),
        pytest.param(lambda: Stream(TransportError("cut")), 1, id="broken"),
    ],
)
async def test_short_watches_are_counted(stream: object, short: int) -> None:
    assert callable(stream)
    sink = Sink()

    async with running(measured(FakeSource([Page()], [stream()]), sink).run()):
        await asyncio.sleep(1.1)
        assert sum(sink.recorded["short_watches_total"]) == short


async def test_streaming_list_counts_as_a_list_and_a_watch() -> None:
    stream = Stream([added(thing("a")), added(thing("b"))], 2.0)
    stream.then([initial_events_end(9), bookmark(10)])
    stream.then(3.0)
    stream.then(END)
    sink = Sink()
    reflector = measured(FakeSource([], [stream]), sink, streaming_list=True)

    async with running(reflector.run()):
        await asyncio.sleep(6)

    assert sink.recorded["lists_total"] == [1]
    assert sink.recorded["list_duration_seconds"] == [2]
    assert sink.recorded["items_per_list"] == [2]
    assert sink.recorded["watch_duration_seconds"][0] == 3
    assert sink.recorded["items_per_watch"][0] == 1


async def test_failures_are_counted_by_class() -> None:
    source = FakeSource([BUSY, BUSY, Page()], [Forbidden("no", status=403)])
    sink = Sink()

    async with running(measured(source, sink).run()):
        await asyncio.sleep(10)

    assert sink.recorded["failures_total ServerError"] == [1, 1]
    assert sink.recorded["failures_total Forbidden"] == [1]
    assert sink.recorded["lists_total"] == [1, 1, 1]
    assert len(sink.recorded["list_duration_seconds"]) == 1


async def test_abandoned_stream_and_its_list_count_as_two_lists() -> None:
    source = FakeSource([Page()], [Invalid("?", status=400)])
    sink = Sink()

    async with running(measured(source, sink, streaming_list=True).run()):
        await asyncio.sleep(1)

    assert sink.recorded["lists_total"] == [1, 1]
    assert len(sink.recorded["items_per_list"]) == 1


async def test_version_that_is_no_number_is_not_measured() -> None:
    sink = Sink()

    async with running(measured(FakeSource([Page(version="abc")]), sink).run()):
        await asyncio.sleep(1)

    assert "last_resource_version" not in sink.recorded


async def test_failing_sink_is_logged_once_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = FakeSource([BUSY, Page()], [Stream([bookmark(9)], END)])
    sink = Failing()

    async with running(measured(source, sink).run()):
        await asyncio.sleep(10)

    assert source.requested == ["list '0'", "list '0'", "watch '1'", "watch '9'"]
    assert len(sink.recorded) > 5
    assert caplog.text.count("pods: the metrics sink failed") == 1
    assert "a bug of the user" in caplog.text


async def test_disabled_sink_is_not_called() -> None:
    sink = Disabled()

    async with running(measured(FakeSource([BUSY, Page()]), sink).run()):
        await asyncio.sleep(10)

    assert sink.recorded == {}


async def test_relists_and_watch_restarts_are_counted_by_reason() -> None:
    sink = Sink()
    page = Page([thing("a", 7)], 7)
    source = FakeSource(
        [page, page, page],
        [
            Stream(END),
            Stream(ServerError("busy", status=503)),
            Stream([added(thing("b", 8))], TransportError("cut")),
            Stream(ResourceExpired("old", status=410)),
            BUSY,
            Stream(),
        ],
    )
    async with running(measured(source, sink).run()):
        await asyncio.sleep(300)

    counted = {
        name: sum(values)
        for name, values in sink.recorded.items()
        if name.startswith(("relists", "watch_restarts"))
    }
    assert counted == {
        "relists_total ResourceExpired": 1,
        "watch_restarts_total Ended": 1,
        "watch_restarts_total ServerError": 1,
        "watch_restarts_total TransportError": 1,
    }
    # The first watch, and that after the relist, are no restarts.
    assert sum(sink.recorded["watches_total"]) == 5


async def test_refused_attempts_in_an_outage_are_no_watch_restarts() -> None:
    sink = Sink()
    down = [TransportError("down")] * 8
    source = FakeSource([Page([], 5)], [Stream(END), *down, BUSY, Stream()])
    async with running(measured(source, sink).run()):
        await asyncio.sleep(600)

    assert sink.recorded["watches_total"] == [1, 1]
    assert sink.recorded["watch_restarts_total ServerError"] == [1]
    assert "watch_restarts_total TransportError" not in sink.recorded
    assert "watch_restarts_total Ended" not in sink.recorded


async def test_refused_watches_after_lists_are_relists() -> None:
    sink = Sink()
    pages = [Page([], version) for version in (5, 6, 7)]
    expired = ResourceExpired("old", status=410)
    source = FakeSource(pages, [expired, expired, Stream()])
    reflector = measured(source, sink)
    async with running(reflector.run()):
        await asyncio.sleep(300)

    assert (reflector.relists, reflector.relist_reason) == (2, "ResourceExpired")
    assert sink.recorded["relists_total ResourceExpired"] == [1, 1]
    assert sink.recorded["watches_total"] == [1]


async def test_relist_without_a_version_to_continue_from_has_its_own_reason() -> None:
    sink = Sink()
    source = FakeSource([Page([], "0"), Page([], "0")], [Stream(END), Stream()])
    async with running(measured(source, sink).run()):
        await asyncio.sleep(300)

    assert sink.recorded["relists_total NoVersion"] == [1]
