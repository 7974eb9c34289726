"""`Reflector`: its error handler, and internal errors of the server."""

from __future__ import annotations

import asyncio
import functools
from itertools import pairwise

import pytest
from fake_source import (
    END,
    FakeSource,
    FakeStore,
    Page,
    Stream,
    bookmark,
    error_event,
    modified,
    thing,
)
from informer_helpers import reflector_of, running, settle

from aioinformer.errors import (
    ApiError,
    DecodeError,
    Forbidden,
    HistoryReset,
    NotFound,
    OptionsError,
    ResourceExpired,
    ServerError,
    TransportError,
)
from aioinformer.informer import ReflectorOptions

BUSY = ServerError("busy", status=503)
BROKEN = TransportError("broken")
INTERNAL = ServerError("etcd is on fire", status=500)


# ---------------------------------------------------------------- error handler


@pytest.mark.parametrize(
    ("lists", "watches", "kind"),
    [
        pytest.param([BUSY, Page()], [], ServerError, id="list-refused"),
        pytest.param(
            [Page(error=BROKEN), Page()], [], TransportError, id="list-broken"
        ),
        pytest.param(
            [Page([thing("a")], 7, "t"), Page([thing("b")], 7, "t"), Page()],
            [],
            DecodeError,
            id="list-that-leads-to-itself",
        ),
        pytest.param([], [Forbidden("no", status=403)], Forbidden, id="watch-refused"),
        pytest.param([], [BROKEN], TransportError, id="connection-refused"),
        pytest.param([], [Stream(BROKEN)], TransportError, id="broken"),
        pytest.param([], [Stream(DecodeError("?"))], DecodeError, id="garbled"),
        pytest.param([], [Stream([error_event(410)])], ResourceExpired, id="410-event"),
        pytest.param([], [Stream([error_event(500)])], ServerError, id="500-event"),
        pytest.param(
            [Page(version=7)], [Stream([bookmark(3)])], HistoryReset, id="history-reset"
        ),
        pytest.param([], [NotFound("?", status=404)], NotFound, id="404"),
    ],
)
async def test_error_handler_gets_every_failure_once(
    lists: list[Page | Exception],
    watches: list[Stream | Exception],
    kind: type[Exception],
) -> None:
    errors: list[Exception] = []
    reflector = reflector_of(FakeSource(lists, watches))
    reflector.set_watch_error_handler(errors.append)

    async with running(reflector.run()):
        await settle()

    assert [type(error) for error in errors] == [kind]
    assert errors[0] is reflector.last_error or reflector.last_error is None


async def test_error_handler_gets_no_ordinary_end() -> None:
    errors: list[Exception] = []
    source = FakeSource([], [Stream(END), Stream(5.0, END)])
    reflector = reflector_of(source)
    reflector.set_watch_error_handler(errors.append)

    async with running(reflector.run()):
        await asyncio.sleep(20)

    assert errors == []


async def test_failing_error_handler_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: Exception) -> None:
        raise ValueError("a bug of the user")

    source = FakeSource([BUSY, Page()])
    reflector = reflector_of(source)
    reflector.set_watch_error_handler(fail)

    async with running(reflector.run()):
        await asyncio.sleep(2)

    assert source.requested == ["list '0'", "list '0'", "watch '1'"]
    assert "pods: the watch error handler failed" in caplog.text
    assert "a bug of the user" in caplog.text


async def test_error_handler_can_be_set_and_removed_at_any_time() -> None:
    first: list[Exception] = []
    second: list[Exception] = []
    reflector = reflector_of(FakeSource([BUSY]))

    async with running(reflector.run()):
        await asyncio.sleep(1)
        reflector.set_watch_error_handler(first.append)
        await asyncio.sleep(2)
        reflector.set_watch_error_handler(second.append)
        await asyncio.sleep(3)
        reflector.set_watch_error_handler(None)
        await asyncio.sleep(10)

    assert (len(first), len(second)) == (1, 1)
    assert reflector.failures == 4


class AsyncCallable:
    async def __call__(self, _: Exception) -> None: ...


async def coroutine_function(_: Exception, __: int = 0) -> None: ...


@pytest.mark.parametrize(
    "handler",
    [
        pytest.param(coroutine_function, id="function"),
        pytest.param(functools.partial(coroutine_function), id="partial"),
        pytest.param(AsyncCallable(), id="object"),
        pytest.param("log", id="no-function"),
    ],
)
def test_error_handler_must_be_a_plain_function(handler: object) -> None:
    with pytest.raises(OptionsError, match="must be a"):
        reflector_of(FakeSource()).set_watch_error_handler(handler)  # type: ignore[arg-type]


# ---------------------------------------------------------------- internal errors


def always_internal() -> list[Stream | Exception]:
    """Return internal errors, alternately as an event and as a response."""
    return [
        answer for _ in range(10) for answer in (Stream([error_event(500)]), INTERNAL)
    ]


async def requested_in(
    seconds: float, source: FakeSource, **options: float
) -> list[str]:
    async with running(reflector_of(source, None, **options).run()):
        await asyncio.sleep(seconds)

    return source.requested


async def test_internal_errors_cause_a_list_after_a_minute_of_resumes() -> None:
    source = FakeSource([Page(version=7)], always_internal())

    requested = await requested_in(121, source)

    assert requested[:2] == ["list '0'", "watch '7'"]
    assert requested[-2:] == ["list '7'", "watch '7'"]
    assert set(requested[2:-2]) == {"watch '7'"}
    assert source.times[-2] > 60


async def test_minute_of_resumes_restarts_after_that_list() -> None:
    source = FakeSource([Page(version=7)], always_internal())

    requested = await requested_in(400, source)

    lists = [it.time for it in source.requests if it.verb == "list"]
    assert len(requested) > 8
    assert len(lists) > 3
    assert all(later - one > 60 for one, later in pairwise(lists))


async def test_internal_errors_cause_a_list_at_once_if_the_limit_is_0() -> None:
    source = FakeSource([Page(version=7)], always_internal())

    requested = await requested_in(5, source, internal_error_seconds=0)

    assert requested[:4] == ["list '0'", "watch '7'", "list '7'", "watch '7'"]


async def test_events_in_between_restart_the_minute_of_resumes() -> None:
    streams = [Stream([bookmark(8 + n), error_event(500)]) for n in range(20)]
    source = FakeSource([Page(version=7)], streams)

    requested = await requested_in(300, source)

    assert [it for it in requested if it.startswith("list")] == ["list '0'"]


async def test_other_errors_are_always_resumed() -> None:
    source = FakeSource([Page(version=7)], [BUSY] * 100)

    requested = await requested_in(1000, source)

    assert [it for it in requested if it.startswith("list")] == ["list '0'"]


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_invalid_internal_error_seconds_are_refused(seconds: float) -> None:
    with pytest.raises(OptionsError, match=r"internal_error_seconds|duration"):
        ReflectorOptions(internal_error_seconds=seconds)


async def test_error_names_the_version_of_a_history_reset() -> None:
    errors: list[Exception] = []
    stream = Stream([modified(thing("a", 4))])
    reflector = reflector_of(FakeSource([Page(version=7)], [stream]), FakeStore())
    reflector.set_watch_error_handler(errors.append)

    async with running(reflector.run()):
        await settle()

    assert "MODIFIED event of version 4 is older than version 7" in str(errors[0])
    assert not isinstance(errors[0], ApiError)
