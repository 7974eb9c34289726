"""`Reflector`: resuming from a stored list, after checking that the server has it."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING, Any

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
    error_event,
    initial_events_end,
    thing,
)
from informer_helpers import Even, running
from metrics_helpers import PlainSink

from aioinformer.errors import (
    CacheError,
    DecodeError,
    HistoryReset,
    ResourceExpired,
    ServerError,
    TooManyRequests,
    TransportError,
    Unauthorized,
)
from aioinformer.informer.listwatch.interface import ReflectorOptions, Resume
from aioinformer.informer.listwatch.reflector import Reflector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.model import KubeObject

A5, B6 = thing("a", 5, "uid-a"), thing("b", 6, "uid-b")
REFUSED = TransportError("refused", unreachable=True)


class Cluster(FakeSource):
    """A source that knows the uid of its cluster; the last answer is repeated."""

    def __init__(
        self,
        *uids: str | Exception,
        lists: Iterable[Page | Exception] = (),
        watches: Iterable[Stream | Exception] = (),
    ) -> None:
        super().__init__(lists, watches)
        self.uids = deque(uids)
        self.uid_requests: list[float] = []

    async def endpoint_print(self) -> str:
        return "here"

    async def cluster_uid(self) -> str:
        self.uid_requests.append(asyncio.get_running_loop().time())
        answer = self.uids.popleft() if len(self.uids) > 1 else self.uids[0]
        async with self._answered(answer):
            assert isinstance(answer, str)
            return answer


class Program:
    """A reflector that resumes from the objects a (version 5) and b (6), at 7."""

    def __init__(self, source: FakeSource, **resume: Any) -> None:
        self.source = source
        self.store = FakeStore()
        self.store.objects = {obj.key: obj for obj in (A5, B6)}
        self.clusters: list[str] = []
        self.confirmed: list[float] = []
        self.confirmed_at = ""
        known = {"version": "7", "cluster": "c1"} | resume
        streaming = known.pop("streaming", False)
        self.reflector = Reflector(
            source,
            self.store,
            name="pods",
            options=ReflectorOptions(streaming_list=bool(streaming)),
            resume=Resume(
                **known,
                on_cluster=self.clusters.append,
                on_confirmed=self._confirm,
            ),
            rng=Even(),
        )
        self.errors: list[Exception] = []
        self.reflector.set_watch_error_handler(self.errors.append)

    def _confirm(self) -> None:
        self.confirmed.append(now())
        self.confirmed_at = self.store.version

    async def run(self, seconds: float) -> None:
        async with running(self.reflector.run()):
            await asyncio.sleep(seconds)


def now() -> float:
    return asyncio.get_running_loop().time()


# ---------------------------------------------------------------- the same cluster


async def test_stored_list_is_resumed_without_a_list() -> None:
    source = Cluster("c1", watches=[Stream([added(thing("c", 9))])])
    program = Program(source)

    await program.run(10)

    assert source.requested == ["watch '7'"]
    assert source.checks == []
    assert len(source.uid_requests) == 1
    assert program.clusters == []
    assert program.store.names == ["a@5", "b@6", "c@9"]
    assert program.confirmed == [pytest.approx(0.1, abs=0.01)]
    assert program.errors == []
    assert program.reflector.phase == "watching"


@pytest.mark.parametrize(
    "events",
    [pytest.param([bookmark(8)], id="newer"), pytest.param([bookmark(7)], id="same")],
)
async def test_bookmark_confirms_the_stored_list(events: list[Any]) -> None:
    program = Program(Cluster("c1", watches=[Stream(0.2, events)]))

    await program.run(5)

    assert program.confirmed == [pytest.approx(0.2, abs=0.01)]


async def test_half_a_second_of_silence_confirms_the_stored_list() -> None:
    source = Cluster("c1", watches=[Stream(30.0, [bookmark(8)])])
    program = Program(source)

    await program.run(4)

    assert program.confirmed == [pytest.approx(0.5, abs=0.01)]
    assert program.reflector.in_step == pytest.approx(0.5, abs=0.01)
    assert (source.requested, source.checks) == (["watch '7'"], [])


async def test_events_are_fed_before_they_confirm_the_stored_list() -> None:
    program = Program(Cluster("c1", watches=[Stream([added(thing("c", 9))])]))

    await program.run(1)

    assert program.confirmed_at == "9"


def changes(count: int, pause: float, *, first: int = 9) -> list[Any]:
    """Return batches of one event, with pauses between them."""
    return [
        part
        for number in range(first, first + count)
        for part in ([added(thing(f"c{number}", number))], pause)
    ]


async def test_backlog_is_fed_before_it_confirms_the_stored_list() -> None:
    source = Cluster("c1", watches=[Stream(*changes(20, 0.05))])
    program = Program(source, in_step=-100.0)

    async with running(program.reflector.run()):
        await asyncio.sleep(0.5)
        assert program.store.version != "7"
        assert program.reflector.in_step == -100.0
        await asyncio.sleep(1.5)

    assert program.confirmed_at == "28"
    assert program.confirmed == [pytest.approx(1.05, abs=0.02)]
    assert program.reflector.in_step == program.confirmed[0]


async def test_bookmark_confirms_the_stored_list_among_constant_changes() -> None:
    events = [*changes(4, 0.05), [bookmark(20)], 0.05, *changes(200, 0.05, first=21)]
    program = Program(Cluster("c1", watches=[Stream(*events)]))

    await program.run(2)

    assert program.confirmed == [pytest.approx(0.2, abs=0.01)]
    assert program.confirmed_at == "20"


async def test_constant_changes_confirm_the_stored_list_after_seconds() -> None:
    watches = [Stream(*changes(50, 0.05), END)]
    watches += [Stream(*changes(200, 0.05, first=59))]
    program = Program(Cluster("c1", watches=watches), in_step=-100.0)

    async with running(program.reflector.run()):
        await asyncio.sleep(3)
        assert program.reflector.in_step == -100.0
        await asyncio.sleep(5)
        age = now() - (program.reflector.in_step or 0.0)

    assert program.confirmed == [pytest.approx(5.5, abs=0.6)]
    assert age < 0.1


async def test_stored_list_is_confirmed_once() -> None:
    watches = [Stream([bookmark(8)], 2.0, [bookmark(9)], END), Stream([bookmark(9)])]
    program = Program(Cluster("c1", watches=watches))

    await program.run(60)

    assert len(program.confirmed) == 1
    assert program.source.requested == ["watch '7'", "watch '9'"]


async def test_watch_that_ends_at_once_confirms_nothing() -> None:
    source = Cluster("c1", watches=[Stream(0.1, END), Stream(0.1, END), Stream()])
    program = Program(source)

    await program.run(20)

    assert source.requested == ["watch '7'"] * 3
    assert len(source.uid_requests) == 3
    assert program.confirmed == [pytest.approx(source.times[-1] + 0.5, abs=0.01)]


async def test_confirmed_watches_are_resumed_without_another_check() -> None:
    source = Cluster("c1", watches=[Stream([bookmark(8)], END), Stream()])
    program = Program(source)

    await program.run(20)

    assert source.requested == ["watch '7'", "watch '8'"]
    assert len(source.uid_requests) == 1


async def test_time_of_the_stored_list_is_kept_until_it_is_confirmed() -> None:
    source = Cluster(REFUSED)
    program = Program(source, in_step=-100.0)

    await program.run(5)

    assert program.reflector.in_step == -100.0
    assert program.confirmed == []


# ---------------------------------------------------------------- another history


async def test_another_cluster_is_listed_and_compared() -> None:
    lists = [Page([thing("z", 3, "uid-z")], version=900)]
    source = Cluster("c2", lists=lists)
    program = Program(source)

    await program.run(10)

    assert source.requested == ["list ''", "watch '900'"]
    assert program.store.after_reset == [True]
    assert program.store.names == ["z@3"]
    assert program.clusters == ["c2"]
    assert [type(error) for error in program.errors] == [HistoryReset]
    assert program.confirmed == []
    assert source.times[0] < 2


@pytest.mark.parametrize("cluster", ["", "c1"])
async def test_store_that_is_not_comparable_is_listed_and_compared(
    cluster: str,
) -> None:
    source = Cluster("c1", lists=[Page([A5], version=8)])
    program = Program(source, comparable=False, cluster=cluster)

    await program.run(10)

    assert source.requested == ["list ''", "watch '8'"]
    assert program.store.after_reset == [True]
    assert (program.errors, source.times[0]) == ([], 0)
    assert program.clusters == ["c1"]


@pytest.mark.parametrize("refusal", ["answer", "event"])
@pytest.mark.parametrize("streaming", [False, True])
async def test_expired_version_is_followed_by_one_list(
    refusal: str, streaming: bool
) -> None:
    expired = ResourceExpired("too old", status=410)
    watch = expired if refusal == "answer" else Stream([error_event(410)])
    first = Stream([added(A5), initial_events_end(20)]) if streaming else None
    source = Cluster(
        "c1",
        lists=[Page([A5], version=20)],
        watches=[watch, *([first] if first else [])],
    )
    program = Program(source, streaming=streaming)

    await program.run(10)

    assert source.requested[:2] == [
        "watch '7'",
        f"{'stream' if streaming else 'list'} ''",
    ]
    assert program.store.after_reset == [False]
    assert program.store.names == ["a@5"]
    assert program.confirmed == []
    assert len(source.uid_requests) == 2


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(bookmark(3), id="bookmark"),
        pytest.param(added(thing("c", 4)), id="event"),
        pytest.param(added(thing("a", 5, "uid-other")), id="other-object"),
    ],
)
async def test_event_of_another_history_is_followed_by_a_comparing_list(
    event: Any,
) -> None:
    source = Cluster("c1", lists=[Page([], version=4)], watches=[Stream([event])])
    program = Program(source)

    await program.run(10)

    assert source.requested == ["watch '7'", "list ''", "watch '4'"]
    assert program.store.names == []
    assert program.confirmed == []


async def test_version_that_the_server_has_not_reached_is_followed_by_a_list() -> None:
    ahead = ServerError(
        "?", status=504, details={"causes": [{"reason": "ResourceVersionTooLarge"}]}
    )
    source = Cluster("c1", lists=[Page([A5], version=8)], watches=[ahead])
    program = Program(source)

    await program.run(10)

    assert source.requested == ["watch '7'", "list ''", "watch '8'"]


async def test_version_that_the_server_cannot_watch_from_is_followed_by_a_list() -> (
    None
):
    """After a compaction, it may lack the last states of deleted objects."""
    source = Cluster(
        "c1", lists=[Page([A5], version=8)], watches=[Stream([error_event(500)])]
    )
    program = Program(source)

    await program.run(10)

    assert source.requested == ["watch '7'", "list '7'", "watch '8'"]
    assert program.store.names == ["a@5"]


async def test_refused_watch_is_resumed_after_an_internal_error() -> None:
    internal = ServerError("starting", status=500)
    source = Cluster("c1", watches=[internal, internal, Stream()])
    program = Program(source)

    await program.run(20)

    assert source.requested == ["watch '7'"] * 3
    assert len(program.confirmed) == 1


async def test_silent_server_with_an_older_version_is_noticed_after_seconds() -> None:
    source = Cluster("c1", lists=[Page([A5], version=6)])
    source.newest = 6
    program = Program(source)

    await program.run(70)

    assert source.checks[0] == pytest.approx(5, abs=0.1)
    assert source.requested == ["watch '7'", "list ''", "watch '6'"]


async def test_object_that_the_store_lacks_is_no_sign_of_another_history() -> None:
    """A transform may have left it out, which only the earlier process knew."""
    source = Cluster("c1")
    source.newest = Page([thing("left-out", 4, "uid-l")], version=8)
    program = Program(source)

    await program.run(70)

    assert len(source.checks) == 1
    assert source.requested == ["watch '7'"]


# ---------------------------------------------------------------- unknown clusters


@pytest.mark.parametrize(
    ("stored", "found"),
    [
        pytest.param("", "c1", id="not-stored"),
        pytest.param("c1", "", id="not-found"),
        pytest.param("", "", id="neither"),
    ],
)
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(A5, id="same-state"),
        pytest.param(thing("a", 12, "uid-a"), id="changed-since"),
    ],
)
async def test_history_is_checked_if_the_cluster_is_unknown(
    stored: str, found: str, first: KubeObject
) -> None:
    source = Cluster(found)
    source.newest = Page([first], version=12)
    program = Program(source, cluster=stored)

    await program.run(4)

    assert source.checks == [pytest.approx(0, abs=0.01)]
    assert source.requested == ["watch '7'"]
    assert len(program.confirmed) == 1


async def test_history_is_checked_if_the_source_has_no_identity() -> None:
    source = FakeSource()
    source.newest = Page([A5], version=12)
    program = Program(source)

    await program.run(4)

    assert (len(source.checks), source.requested) == (1, ["watch '7'"])


@pytest.mark.parametrize(
    ("objects", "version"),
    [
        pytest.param([thing("a", 5, "uid-2")], 12, id="other-object"),
        pytest.param([thing("a", 9, "uid-2")], 12, id="newer-other-object"),
        pytest.param([thing("0", 9, "uid-0")], 12, id="new-object"),
        pytest.param([thing("0", 4, "uid-0")], 12, id="unknown-object"),
        pytest.param([thing("a", 5, "")], 12, id="no-uid"),
        pytest.param([], 12, id="no-object"),
        pytest.param([A5], 6, id="older-version"),
    ],
)
async def test_unknown_cluster_without_a_common_object_is_listed_and_compared(
    objects: list[KubeObject], version: int
) -> None:
    page = Page(objects, version)
    source = Cluster("", lists=[page])
    source.newest = page
    program = Program(source)

    await program.run(10)

    assert source.requested == ["list ''", f"watch '{version}'"]
    assert program.store.after_reset == [True] * bool(objects)
    assert program.reflector.history_resets == 1
    assert program.confirmed == []


@pytest.mark.parametrize("error", [ServerError("?", status=500), DecodeError("?")])
async def test_refused_identity_is_replaced_by_a_check_of_the_history(
    error: Exception,
) -> None:
    source = Cluster(error)
    source.newest = Page([A5], version=12)
    program = Program(source)

    await program.run(10)

    assert source.requested == ["watch '7'"]
    assert len(program.confirmed) == 1
    assert program.errors == []


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    "busy",
    [
        TooManyRequests("?", status=429, retry_after=5.0),
        ServerError("?", status=503, retry_after=5.0),
    ],
)
async def test_identity_that_a_busy_server_refuses_is_requested_again(
    busy: Exception,
) -> None:
    source = Cluster(busy, "c1", watches=[Stream([bookmark(8)])])
    program = Program(source)

    await program.run(20)

    assert source.uid_requests == [0, pytest.approx(5, abs=2)]
    assert source.uid_requests[1] >= 5
    assert (source.checks, source.requested) == ([], ["watch '7'"])
    assert program.errors == [busy]


async def test_resumed_version_is_measured() -> None:
    sink = PlainSink()
    source = Cluster("c1")
    reflector = Reflector(
        source, FakeStore(), resume=Resume(version="7", cluster="c1"), metrics=sink
    )
    async with running(reflector.run()):
        await asyncio.sleep(1)

    assert sink.gauges == {("reflector_last_resource_version", ("reflector",)): 7}


async def test_unreachable_server_is_retried_until_it_is_verified() -> None:
    source = Cluster(REFUSED, REFUSED, REFUSED, "c1", watches=[Stream([bookmark(8)])])
    program = Program(source)

    await program.run(60)

    gaps = [b - a for a, b in pairwise(source.uid_requests)]
    assert len(gaps) == 3
    assert all(0.8 <= gap <= 10 for gap in gaps)
    assert source.requested == ["watch '7'"]
    assert source.checks == []
    assert program.errors == [REFUSED] * 3
    assert len(program.confirmed) == 1
    assert program.reflector.last_error is None


async def test_refused_watch_is_verified_again() -> None:
    """Another server may have taken the address meanwhile."""
    busy = ServerError("busy", status=503)
    source = Cluster("c1", "c2", lists=[Page([], version=3)], watches=[busy])
    program = Program(source)

    await program.run(20)

    assert source.requested == ["watch '7'", "list ''", "watch '3'"]


@pytest.mark.parametrize(
    "answer", [Unauthorized("?", status=401), TransportError("?"), Silence()]
)
async def test_failed_check_of_the_history_is_retried(
    answer: Exception | Silence,
) -> None:
    source = Cluster("")
    source.newest = answer
    program = Program(source)

    await program.run(100)

    assert source.requested == []
    assert 2 < len(source.checks) <= program.reflector.failures + 1
    assert program.store.names == ["a@5", "b@6"]
    assert program.confirmed == []


async def test_list_does_not_depend_on_the_identity_of_the_cluster() -> None:
    source = Cluster(REFUSED, lists=[Page([A5], version=8)])
    program = Program(source, version="")

    await program.run(1)

    assert source.requested == ["list '0'", "watch '8'"]
    assert program.clusters == [""]
    assert program.errors == []


async def test_identity_that_takes_too_long_delays_a_list_by_seconds() -> None:
    class Slow(Cluster):
        async def cluster_uid(self) -> str:
            await asyncio.Event().wait()
            return ""

    source = Slow("", lists=[Page([A5], version=8)])
    program = Program(source, version="")

    await program.run(10)

    assert source.times[0] == pytest.approx(5, abs=0.01)


async def test_each_list_reports_its_cluster() -> None:
    expired = ResourceExpired("too old", status=410)
    source = Cluster(
        "c1", "c2", lists=[Page([A5], version=8)], watches=[expired, Stream()]
    )
    program = Program(source, version="")

    await program.run(20)

    assert program.clusters == ["c1", "c2"]


async def test_store_on_disk_that_fails_ends_the_reflector() -> None:
    class Full(FakeStore):
        async def feed(self, *_: Any) -> None:
            raise CacheError("disk full")

    program = Program(Cluster("c1", watches=[Stream([bookmark(8)])]))
    reflector = Reflector(
        program.source, Full(), resume=Resume(version="7", cluster="c1")
    )

    with pytest.raises(CacheError, match="disk full"):
        await reflector.run()
