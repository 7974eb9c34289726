"""`until` and `until_without_retry`: waiting for events."""

from __future__ import annotations

import asyncio
import copy
import pickle
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from fake_source import (
    END,
    FakeSource,
    Stream,
    added,
    bookmark,
    deleted,
    error_event,
    modified,
    thing,
)
from retry_helpers import BROKEN, events_of

from aioinformer import until
from aioinformer.client import ListWatch
from aioinformer.errors import (
    DecodeError,
    Forbidden,
    OptionsError,
    ResourceExpired,
    ServerError,
    WatchClosed,
)
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer
from aioinformer.watch import EventType, until_without_retry

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.watch import WatchEvent


def is_(kind: EventType, seen: list[str] | None = None) -> Callable[[WatchEvent], bool]:
    """Return a condition on the type, which records its events."""

    def condition(event: WatchEvent) -> bool:
        if seen is not None:
            seen.append(f"{kind}? {event.type}")

        return event.type is kind

    return condition


ADDED, MODIFIED, DELETED = EventType.ADDED, EventType.MODIFIED, EventType.DELETED


def ends(event: WatchEvent) -> bool:
    raise ZeroDivisionError(event.object.key)


def never(_: WatchEvent) -> bool:
    return False


# ---------------------------------------------------------------- without retry


async def test_until_without_retry_returns_event_that_met_condition() -> None:
    stream = Stream([added(thing("a", 2)), modified(thing("a", 3)), *events_of(4)])

    event = await until_without_retry(stream, is_(MODIFIED))

    assert event == modified(thing("a", 3))
    assert stream.stopped


async def test_event_that_met_condition_is_passed_to_next_one() -> None:
    seen: list[str] = []
    stream = Stream([added(thing("a", 2)), modified(thing("a", 3))])

    event = await until_without_retry(
        stream, is_(ADDED, seen), is_(ADDED, seen), is_(MODIFIED, seen)
    )

    assert event.object.resource_version == "3"
    assert seen == [
        "ADDED? ADDED",
        "ADDED? ADDED",
        "MODIFIED? ADDED",
        "MODIFIED? MODIFIED",
    ]


async def test_until_without_retry_accepts_async_conditions() -> None:
    async def slowly(event: WatchEvent) -> bool:
        await asyncio.sleep(5)
        return event.type is DELETED

    stream = Stream([added(thing("a", 2)), deleted(thing("a", 3))])

    event = await until_without_retry(stream, is_(ADDED), slowly)

    assert event.type is DELETED


async def test_until_without_retry_continues_partly_read_watch() -> None:
    stream = Stream([*events_of(2, 3), modified(thing("a", 4))])
    await anext(stream)
    seen: list[str] = []

    await until_without_retry(stream, is_(MODIFIED, seen))

    assert seen == ["MODIFIED? ADDED", "MODIFIED? MODIFIED"]


async def test_until_without_retry_without_conditions_returns_none() -> None:
    stream = Stream(events_of(2))

    await until_without_retry(stream)

    assert stream.stopped


async def test_conditions_get_only_added_modified_and_deleted() -> None:
    seen: list[str] = []
    stream = Stream([bookmark(2), added(thing("a", 3)), error_event(500)], END)

    with pytest.raises(WatchClosed):
        await until_without_retry(stream, is_(EventType.ERROR, seen))

    assert seen == ["ERROR? ADDED"]


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_end_of_watch_raises_watch_closed(number: int) -> None:
    stream = Stream([added(thing("a", 2)), modified(thing("a", 3))][:number], END)

    with pytest.raises(WatchClosed, match=r"^the watch ended \(") as caught:
        await until_without_retry(stream, is_(ADDED), is_(MODIFIED), is_(DELETED))

    last = caught.value.last_event
    assert f"{number} of 3 conditions were met" in str(caught.value)
    if number:
        assert last.object.resource_version == str(number + 1)
        assert f"{last.type} default/a at version {number + 1}" in str(caught.value)
    else:
        assert last is None
        assert "no event was received" in str(caught.value)

    assert caught.value.__cause__ is None
    assert stream.stopped


async def test_watch_closed_has_error_event_as_cause() -> None:
    gone = error_event(410, "Expired", message="too old")
    stream = Stream([added(thing("a", 2)), gone], END)

    with pytest.raises(WatchClosed, match="410 Expired: too old") as caught:
        await until_without_retry(stream, never)

    assert caught.value.last_event == gone
    assert isinstance(caught.value.__cause__, ResourceExpired)
    assert str(caught.value).endswith("the last event was ERROR)")


async def test_malformed_error_event_raises_watch_closed() -> None:
    stream = Stream([added(thing("a", 2)), error_event(0, kind="Nonsense")], END)

    with pytest.raises(WatchClosed) as caught:
        await until_without_retry(stream, never)

    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("error", [BROKEN, DecodeError("what?")])
async def test_broken_watch_raises_watch_closed(error: Exception) -> None:
    stream = Stream(events_of(2), error)

    with pytest.raises(WatchClosed, match=str(error)) as caught:
        await until_without_retry(stream, never)

    assert caught.value.__cause__ is error
    assert caught.value.last_event == events_of(2)[0]
    assert stream.stopped


@pytest.mark.parametrize("error", [ZeroDivisionError(), BROKEN, TimeoutError("mine")])
async def test_error_of_condition_is_raised_unchanged(error: Exception) -> None:
    def fails(_: WatchEvent) -> bool:
        raise error

    stream = Stream(events_of(2))

    with pytest.raises(type(error)) as caught:
        await until_without_retry(stream, fails, timeout=60)

    assert caught.value is error
    assert stream.stopped


async def test_watch_closed_can_be_copied_and_pickled() -> None:
    error = WatchClosed("over", last_event=events_of(2)[0])

    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert str(twin) == "over"
        assert twin.last_event == error.last_event


@pytest.mark.parametrize("timeout", [30, 30.0, timedelta(seconds=30)])
async def test_until_without_retry_timeout_names_last_event(
    timeout: Any, looptime: float
) -> None:
    stream = Stream([added(thing("a", 2))], [modified(thing("a", 3))])

    with pytest.raises(TimeoutError) as caught:
        await until_without_retry(stream, is_(ADDED), is_(DELETED), timeout=timeout)

    assert str(caught.value) == (
        "timed out after 30 s: 1 of 2 conditions were met, the last event was MODIFIED "
        "default/a at version 3"
    )
    assert looptime == 30
    assert stream.stopped


async def test_timeout_includes_slow_conditions() -> None:
    async def slow(_: WatchEvent) -> bool:
        await asyncio.sleep(1000)
        return True

    with pytest.raises(TimeoutError, match="timed out after 5 s: 0 of 1"):
        await until_without_retry(Stream(events_of(2)), slow, timeout=5)


async def test_cancelled_until_without_retry_stops_watch() -> None:
    stream = Stream()

    waiting = asyncio.create_task(until_without_retry(stream, never))
    await asyncio.sleep(5)
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert stream.stopped


# ---------------------------------------------------------------- with retry


def source_of(*watches: Stream | Exception) -> FakeSource:
    return FakeSource(watches=watches)


async def test_until_survives_end_of_connections() -> None:
    source = source_of(
        BROKEN,
        Stream(events_of(2), END),
        Stream([error_event(500)]),
        Stream([modified(thing("a", 3))]),
    )

    event = await until(source, "1", is_(ADDED), is_(MODIFIED), timeout=60)

    assert event.object.resource_version == "3"
    assert source.requested == ["watch '1'", "watch '1'", "watch '2'", "watch '2'"]
    assert source.open == 0


async def test_until_without_conditions_sends_nothing() -> None:
    source = source_of()

    await until(source, "1", timeout=1)

    assert source.requests == []


@pytest.mark.parametrize("version", ["", "0"])
async def test_until_requires_version(version: str) -> None:
    with pytest.raises(OptionsError):
        await until(source_of(), version, never)


async def test_until_raises_watch_closed_after_a_final_refusal() -> None:
    refusal = Forbidden("not you", status=403, reason="Forbidden")
    source = source_of(Stream(events_of(2), END), refusal)

    with pytest.raises(WatchClosed, match="403 Forbidden: not you") as caught:
        await until(source, "1", never)

    assert isinstance(caught.value.__cause__, Forbidden)
    assert caught.value.last_event.type is EventType.ERROR
    assert source.open == 0


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        pytest.param(
            [Stream([added(thing("a", 7))])],
            "timed out after 30 s: 0 of 1 conditions were met, the last event was ADDED "
            "default/a at version 7",
            id="with-an-event",
        ),
        pytest.param(
            [Stream()],
            "timed out after 30 s: 0 of 1 conditions were met, no event was received",
            id="without",
        ),
        pytest.param(
            [ServerError("busy", status=503, retry_after=99.0)],
            "timed out after 30 s: 0 of 1 conditions were met, no event was received "
            "(the last attempt failed: 503: busy)",
            id="not-reached",
        ),
    ],
)
async def test_until_timeout_names_the_last_failure(
    steps: list[Any], text: str, looptime: float
) -> None:
    source = source_of(*steps)

    with pytest.raises(TimeoutError) as caught:
        await until(source, "1", never, timeout=30)

    assert str(caught.value) == text
    assert looptime == 30
    assert source.open == 0


async def test_until_names_itself_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    source = source_of(ServerError("busy", status=503), Stream(events_of(2)))

    await until(source, "1", lambda _: True)

    assert [it.getMessage().partition(":")[0] for it in caplog.records] == ["until"]


async def test_until_raises_error_of_condition_and_closes() -> None:
    source = source_of(Stream(events_of(2)))

    with pytest.raises(ZeroDivisionError):
        await until(source, "1", ends)

    assert source.open == 0


# ---------------------------------------------------------------- a server


async def test_until_example_of_docstring_works() -> None:
    """The example is that of the docstring."""
    async with APIServer(auto_namespaces=True) as server, server.client() as client:
        spec = {"containers": [{"name": "main", "image": "registry.example/app:1"}]}
        body = {"metadata": {"name": "web"}, "spec": spec}
        web = await client.create(PODS, body, namespace="default")
        server.create(PODS, {"metadata": {"name": "other"}, "spec": spec})

        async def start() -> None:
            await asyncio.sleep(5)
            server.patch(PODS, "web", {"status": {"podIP": "10.0.0.7"}})
            server.patch(PODS, "web", {"status": {"phase": "Running"}})

        async with asyncio.TaskGroup() as group:
            group.create_task(start())

            source = ListWatch(client, PODS, field_selector="metadata.name=web")
            event = await until(
                source,
                web.resource_version,
                lambda event: event.object.at("status.phase") == "Running",
                timeout=60,
            )

        assert event.type is MODIFIED
        assert event.object.key == "default/web"
        assert event.object.at("status.podIP") == "10.0.0.7"
