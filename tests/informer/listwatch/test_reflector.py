"""`Reflector`: its requests, failed attempts, and end."""

from __future__ import annotations

import asyncio
import gc
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
    DecodeError,
    Forbidden,
    HistoryReset,
    InternalError,
    NotFound,
    ResourceExpired,
    ServerError,
    TransportError,
)
from aioinformer.watch import ListOptions, WatchOptions

if TYPE_CHECKING:
    from collections.abc import Callable

BUSY = ServerError("busy", status=503)
BROKEN = TransportError("broken")
EXPIRED = ResourceExpired("too old", status=410)


# ---------------------------------------------------------------- requests


async def test_reflector_lists_version_0_and_watches_from_there() -> None:
    source = FakeSource([Page([thing("a", 3)], version=7)])
    store = FakeStore()

    async with running(reflector_of(source, store).run()):
        await settle()

    assert [request.options for request in source.requests] == [
        ListOptions(resource_version="0", limit=500),
        WatchOptions(resource_version="7", timeout_seconds=450, bookmarks=True),
    ]
    assert (store.names, store.commits) == (["a@3"], ["7"])


async def test_pages_are_read_without_a_pause() -> None:
    source = FakeSource(
        [
            Page([thing("a"), thing("b"), thing("c")], version=7, token="t1"),
            Page([thing("d")], version=8, token="t2"),
            Page([thing("e")], version=9),
        ]
    )
    store = FakeStore()

    async with running(reflector_of(source, store, page_size=3).run()):
        await settle()

    assert source.requested == ["list '0'", "list t1", "list t2", "watch '7'"]
    assert source.times == [0, 0, 0, 0]
    assert [getattr(it.options, "limit", None) for it in source.requests] == [
        *(3, 3, 3),
        None,
    ]
    assert store.names == ["a@1", "b@1", "c@1", "d@1", "e@1"]


async def test_empty_list_is_complete() -> None:
    store = FakeStore()

    async with running(reflector_of(FakeSource([Page(version=5)]), store).run()):
        await settle()

    assert store.commits == ["5"]


async def test_watch_events_reach_the_store_in_batches() -> None:
    stream = Stream([added(thing("a", 8)), added(thing("b", 9))], [bookmark(12)])
    store = FakeStore()

    async with running(
        reflector_of(FakeSource([Page(version=7)], [stream]), store).run()
    ):
        await settle()

    fed = [(len(deltas), version) for deltas, version in store.fed]
    assert fed == [(2, "9"), (0, "12")]
    assert store.names == ["a@8", "b@9"]


@pytest.mark.parametrize(
    ("answer", "then"),
    [
        pytest.param(Stream([bookmark(9)], END), "watch '9'", id="clean-end"),
        pytest.param(Stream([bookmark(9)], BROKEN), "watch '9'", id="broken"),
        pytest.param(
            Stream([bookmark(9)], DecodeError("?")), "list '9'", id="unreadable"
        ),
        pytest.param(BROKEN, "watch '7'", id="connection-refused"),
        pytest.param(Forbidden("no", status=403), "watch '7'", id="403"),
        pytest.param(NotFound("?", status=404), "list '7'", id="404"),
        pytest.param(BUSY, "watch '7'", id="503"),
        pytest.param(EXPIRED, "list ''", id="410-as-status"),
        pytest.param(
            Stream([bookmark(9)], [error_event(410, "Expired")]),
            "list ''",
            id="410-as-event",
        ),
        pytest.param(
            Stream([bookmark(9)], [error_event(500)]), "watch '9'", id="500-as-event"
        ),
        pytest.param(
            Stream([bookmark(9)], [error_event(500, "StorageReadError")]),
            "list '9'",
            id="what-the-server-cannot-read",
        ),
        pytest.param(
            Stream([bookmark(9)], [bookmark(8)]), "list ''", id="history-reset"
        ),
    ],
)
async def test_reflector_continues_after_any_end_of_a_watch(
    answer: Stream | Exception, then: str
) -> None:
    source = FakeSource([Page(version=7)], [answer])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(10)

    assert source.requested[:3] == ["list '0'", "watch '7'", then]


async def test_list_that_fails_between_pages_starts_again() -> None:
    source = FakeSource(
        [
            Page([thing("a")], version=7, token="t1"),
            Page([thing("b")], error=EXPIRED),
            Page([thing("c")], version=9),
        ]
    )
    store = FakeStore()

    async with running(reflector_of(source, store).run()):
        await asyncio.sleep(10)

    assert source.requested == ["list '0'", "list t1", "list ''", "watch '9'"]
    assert (store.names, store.discards) == (["c@1"], 1)


async def test_changes_before_an_error_event_are_stored() -> None:
    stream = Stream([added(thing("a", 8)), error_event(410), added(thing("b", 9))])
    store = FakeStore()

    async with running(
        reflector_of(FakeSource([Page(version=7)], [stream]), store).run()
    ):
        await settle()

        assert store.names == ["a@8"]


async def test_list_after_a_history_reset_is_taken_as_it_is() -> None:
    stream = Stream([added(thing("a", 90))], [modified(thing("b", 4))])
    source = FakeSource([Page(version=80), Page([thing("b", 4)], version=5)], [stream])
    store = FakeStore()
    reflector = reflector_of(source, store)

    async with running(reflector.run()):
        await asyncio.sleep(10)

        assert reflector.history_resets == 1
        assert source.requested == ["list '0'", "watch '80'", "list ''", "watch '5'"]
        assert (store.names, store.version) == (["b@4"], "5")


async def test_history_reset_names_both_versions() -> None:
    stream = Stream([modified(thing("a", 4))])
    source = FakeSource([Page([thing("a", 3)], version=7), Silence()], [stream])
    reflector = reflector_of(source)

    async with running(reflector.run()):
        await settle()

    assert isinstance(reflector.last_error, HistoryReset)
    assert "MODIFIED event of version 4 is older than version 7" in str(
        reflector.last_error
    )
    assert (reflector.history_resets, reflector.restarts) == (1, 1)


# ---------------------------------------------------------------- end


async def test_broken_invariant_ends_the_reflector() -> None:
    source = FakeSource([InternalError("a bug")])

    with pytest.raises(InternalError, match="a bug"):
        await reflector_of(source).run()

    assert source.open == 0


@pytest.mark.parametrize("where", ["stage", "commit", "feed"])
async def test_store_that_raises_ends_the_reflector(where: str) -> None:
    source = FakeSource([Page([thing("a")])], [Stream([deleted(thing("a", 9))])])
    store = FakeStore()

    async def fail(*_: object, **__: object) -> None:
        raise ValueError("a bug")

    setattr(store, where, fail)

    with pytest.raises(InternalError, match="the store failed: ValueError"):
        await reflector_of(source, store).run()

    assert source.open == 0


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(OSError(28, "No space left on device"), id="disk-full"),
        pytest.param(RuntimeError("can't start new thread"), id="no-thread"),
        pytest.param(KeyError("token"), id="plugin"),
    ],
)
@pytest.mark.parametrize("streaming", [False, True], ids=["pages", "stream"])
async def test_any_error_of_the_source_is_a_failed_attempt(
    error: Exception, streaming: bool, caplog: pytest.LogCaptureFixture
) -> None:
    watches: list[Stream | Exception | Silence] = [
        error,
        Stream([]),
        error,
        Stream([added(thing("b", 9))], error),
    ]
    source = FakeSource([error, Page([thing("a")])], watches)
    if streaming:
        initial = [added(thing("a")), initial_events_end(7)]
        source = FakeSource([], [error, Stream(initial, error), *watches])

    reflector = reflector_of(source, streaming_list=streaming)
    async with running(reflector.run()) as task:
        await asyncio.sleep(30)

        assert not task.done()
        assert source.open <= 1
        assert reflector.restarts >= 2
        assert reflector.last_error is None or reflector.last_error is error

    assert {it.levelname for it in caplog.records if it.exc_info} == {"ERROR"}


class StuckStore(FakeStore):
    """A store that hangs in one of its coroutines."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.stuck = asyncio.Event()
        setattr(self, where, self._wait)

    async def _wait(self, *_: object, **__: object) -> None:
        self.stuck.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("where", ["stage", "commit", "feed"])
async def test_cancellation_while_the_store_waits_leaves_nothing(where: str) -> None:
    source = FakeSource([Page([thing("a")])], [Stream([deleted(thing("a", 9))])])
    store = StuckStore(where)
    tasks = asyncio.all_tasks()

    async with running(reflector_of(source, store).run()) as task:
        await store.stuck.wait()

    assert task.cancelled()
    assert source.open == 0
    del task  # its traceback keeps references
    gc.collect()
    for _ in range(3):
        assert asyncio.all_tasks() == tasks, "nothing is closed later by another task"
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(lambda: FakeSource([Silence()]), id="list-unanswered"),
        pytest.param(lambda: FakeSource([Page(seconds=9)]), id="list-arriving"),
        pytest.param(lambda: FakeSource([Page()], [Silence()]), id="watch-unanswered"),
        pytest.param(lambda: FakeSource([Page()], [Stream()]), id="watch-silent"),
        pytest.param(lambda: FakeSource([BUSY]), id="pause"),
    ],
)
async def test_cancellation_while_the_source_waits_leaves_nothing(
    source: Callable[[], FakeSource],
) -> None:
    answers = source()
    reflector = reflector_of(answers)

    async with running(reflector.run()) as task:
        await settle()

    assert task.cancelled()
    assert answers.open == 0
    assert reflector.phase != "backing off"
