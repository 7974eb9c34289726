"""`SharedInformer`: waiting for it, its status, its loop, its end."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest
from fake_source import (
    END,
    FakeSource,
    Page,
    Silence,
    Stream,
    added,
    bookmark,
    deleted,
    error_event,
    modified,
    thing,
    told,
)
from informer_helpers import Recorder, Slow, running, settle
from queue_helpers import error_in_thread

from aioinformer.cache import index_by
from aioinformer.errors import (
    Forbidden,
    HandlerError,
    HistoryReset,
    InformerStopped,
    InternalError,
    NotFound,
    NotSynced,
    OptionsError,
    ServerError,
    TransportError,
    WrongLoop,
)
from aioinformer.informer import (
    Added,
    Deleted,
    ReflectorOptions,
    SharedInformer,
    Updated,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.model import KubeObject

BUSY = ServerError("busy", status=503)
REFUSED = Forbidden("no", status=403)


def pods_of(
    *lists: Page | Exception | Silence,
    watches: tuple[Stream | Exception | Silence, ...] = (),
    **options: Any,
) -> SharedInformer:
    source = FakeSource(lists or [Page([thing("a"), thing("b")], version=5)], watches)
    return SharedInformer(source, name="pods", rng=random.Random(1), **options)


# ---------------------------------------------------------------- handlers


async def test_decorated_functions_are_handlers() -> None:
    stream = Stream()
    pods = pods_of(watches=(stream,))
    record: list[object] = []

    @pods.on_add
    def came(obj: KubeObject) -> None:
        record.append(("add", obj.name))

    @pods.on_update
    async def moved(old: KubeObject, new: KubeObject) -> None:
        record.append(("update", old.resource_version, new.resource_version))

    @pods.on_delete
    async def went(obj: KubeObject) -> None:
        record.append(("delete", obj.name))

    @pods.on_event
    def happened(event: Added | Updated | Deleted) -> None:
        events.append(type(event))

    events: list[type] = []
    async with running(pods.run()):
        await settle()
        stream.send(modified(thing("a", 6)), deleted(thing("b", 7)))
        await settle()

    assert record == [("add", "a"), ("add", "b"), ("update", "1", "6"), ("delete", "b")]
    assert events == [Added, Added, Updated, Deleted]
    assert callable(came)


async def test_a_late_handler_gets_a_snapshot_and_every_later_change() -> None:
    stream = Stream()
    pods = pods_of(watches=(stream,))
    events: list[object] = []

    async with running(pods.run()):
        await pods.wait_synced()
        stream.send(added(thing("c", 6)))
        await settle()
        pods.add_event_handler(on_event=events.append)
        stream.send(modified(thing("c", 7)))
        await settle()

    assert [getattr(event, "initial", None) for event in events] == [
        *(True, True, True),
        None,
    ]
    assert isinstance(events[-1], Updated)


async def test_failures_of_handlers_and_index_functions_go_to_on_error() -> None:
    told_of: list[HandlerError] = []

    def index(obj: KubeObject) -> list[str]:
        raise KeyError(obj.name)

    def handler(obj: KubeObject) -> None:
        raise ValueError(obj.name)

    pods = pods_of(
        Page([thing("a")], version=5), indexers={"bad": index}, on_error=told_of.append
    )
    pods.add_event_handler(on_add=handler, name="greet")

    async with running(pods.run()):
        await settle()
        stored = told(pods.store.list())

    assert stored == ["a@1"]
    assert [(it.where, it.name) for it in told_of] == [
        ("index function", "bad"),
        ("handler", "pods/greet"),
    ]


def test_handlers_that_cannot_work_are_refused() -> None:
    with pytest.raises(OptionsError, match="give either"):
        pods_of().add_event_handler()


# ---------------------------------------------------------------- what it holds


async def test_lists_by_namespace_and_by_the_indexers_given() -> None:
    pods = pods_of(indexers={"node": index_by("spec.nodeName")})

    async with running(pods.run()):
        await pods.wait_synced()
        pods.add_indexers({"phase": index_by("status.phase")})

        assert told(pods.lister.namespace("default").list()) == ["a@1", "b@1"]
        assert told(pods.lister.by_index("node", "node-1")) == ["a@1", "b@1"]
        assert told(pods.lister.by_index("phase", "Running")) == ["a@1", "b@1"]
        assert pods.store is pods.indexer


def test_the_index_by_namespace_cannot_be_replaced() -> None:
    with pytest.raises(OptionsError, match="namespace"):
        pods_of(indexers={"namespace": index_by("spec.nodeName")})


async def test_an_index_added_while_a_list_arrives_is_complete() -> None:
    pods = pods_of(Page([thing("a"), thing("b"), thing("c")], version=5))
    calls = 0

    async with running(pods.run()):
        while not pods.has_synced:
            calls += 1
            pods.add_indexers({f"node-{calls}": index_by("spec.nodeName")})
            await asyncio.sleep(0)

        names = [f"node-{number + 1}" for number in range(calls)]
        sizes = {len(pods.indexer.by_index(name, "node-1")) for name in names}

    assert calls > 2
    assert sizes == {3}


# ---------------------------------------------------------------- wait_synced


async def test_waiting_ends_when_the_first_list_is_in_the_store(
    looptime: float,
) -> None:
    pods = pods_of(Page([thing("a")], version=5, seconds=3))
    before = pods.has_synced

    async with running(pods.run()):
        await pods.wait_synced(timeout=10)

        assert (before, pods.has_synced, pods.why_not_synced()) == (
            *(False, True),
            "synced",
        )
        assert looptime == 3
        assert told(pods.lister.list()) == ["a@1"]


async def test_waiting_may_begin_before_it_runs() -> None:
    pods = pods_of()
    waiter = asyncio.create_task(pods.wait_synced())
    await settle()

    async with running(pods.run()):
        await waiter


async def test_waiting_gives_up_when_the_time_is_over(looptime: float) -> None:
    pods = pods_of(Silence())

    async with running(pods.run()):
        with pytest.raises(NotSynced) as raised:
            await pods.wait_synced(timeout=7)

    assert looptime == 7
    assert str(raised.value) == "pods is not synced: listing, no error so far"
    assert raised.value.results == {"pods": "listing, no error so far"}
    assert raised.value.__cause__ is None


async def test_waiting_that_gives_up_says_the_last_error() -> None:
    pods = pods_of(BUSY)

    async with running(pods.run()):
        with pytest.raises(NotSynced) as raised:
            await pods.wait_synced(timeout=1)

    assert str(raised.value) == (
        "pods is not synced: backing off, 1 attempts failed: 503: busy"
    )
    assert raised.value.__cause__ is BUSY


async def test_waiting_gives_up_after_two_refusals(looptime: float) -> None:
    pods = pods_of(REFUSED)

    async with running(pods.run()):
        with pytest.raises(NotSynced, match="2 attempts failed: 403: no"):
            await pods.wait_synced(timeout=1000)

        refused_at = float(looptime)
        with pytest.raises(NotSynced):
            await pods.wait_synced()

        assert looptime == refused_at, "at once"
        assert 0.8 <= refused_at < 1.6


async def test_the_informer_itself_keeps_trying() -> None:
    pods = pods_of(REFUSED, REFUSED, REFUSED, Page([thing("a")], version=5))

    async with running(pods.run()):
        with pytest.raises(NotSynced):
            await pods.wait_synced()

        await pods.wait_synced(fail_fast=False)


async def test_refusals_must_be_in_a_row_to_give_up() -> None:
    pods = pods_of(REFUSED, BUSY, REFUSED, BUSY, Page(version=5))

    async with running(pods.run()):
        await pods.wait_synced()


async def test_a_busy_server_is_waited_for(looptime: float) -> None:
    pods = pods_of(BUSY)

    async with running(pods.run()):
        with pytest.raises(NotSynced):
            await pods.wait_synced(timeout=600)

    assert looptime == 600


async def test_waiting_ends_with_the_informer() -> None:
    pods = pods_of(Silence())
    waiter = asyncio.create_task(pods.wait_synced())

    async with running(pods.run()):
        await settle()

    with pytest.raises(InformerStopped, match="pods has ended"):
        await waiter

    with pytest.raises(InformerStopped):
        await pods.wait_synced()


async def test_once_synced_waiting_is_over_for_ever() -> None:
    pods = pods_of()
    async with running(pods.run()):
        await pods.wait_synced()

    await pods.wait_synced()


# ---------------------------------------------------------------- wait_for_version


async def test_waits_until_the_store_shows_a_version(looptime: float) -> None:
    pods = pods_of(watches=(Stream(2.0, [added(thing("c", 9))], 2.0, [bookmark(12)]),))

    async with running(pods.run()):
        await pods.wait_for_version("5")
        await pods.wait_for_version("9", timeout=5)
        stored = told(pods.store.list())
        await pods.wait_for_version("11")

    assert stored == ["a@1", "b@1", "c@9"]
    assert looptime == 4


async def test_a_version_that_does_not_come_in_time_is_a_timeout() -> None:
    pods = pods_of()

    async with running(pods.run()):
        with pytest.raises(
            TimeoutError, match="pods is at version 5, not at 6, after 3 s: watching"
        ):
            await pods.wait_for_version("6", timeout=3)


async def test_a_version_may_never_come_behind_a_history_reset() -> None:
    pods = pods_of(
        Page(version=50),
        Page(version=7),
        watches=(Stream(2.0, [added(thing("c", 6))]),),
    )

    async with running(pods.run()):
        with pytest.raises(HistoryReset, match="version 51 may never come"):
            await pods.wait_for_version("51")


async def test_waiting_for_a_version_ends_with_the_informer() -> None:
    pods = pods_of()
    waiter = asyncio.create_task(pods.wait_for_version("6"))

    async with running(pods.run()):
        await settle()

    with pytest.raises(InformerStopped):
        await waiter


@pytest.mark.parametrize("version", ["", "abc", "-1", "1.5"])
async def test_a_version_that_is_not_decimal_cannot_be_waited_for(version: str) -> None:
    with pytest.raises(OptionsError, match="not comparable"):
        await pods_of().wait_for_version(version)


async def test_versions_of_a_server_that_are_not_decimal_cannot_be_waited_for() -> None:
    pods = pods_of(Page(version="abc"))

    async with running(pods.run()):
        with pytest.raises(OptionsError, match="not comparable here: 'abc'"):
            await pods.wait_for_version("5")


# ---------------------------------------------------------------- status


async def test_status_in_each_phase() -> None:
    pods = pods_of(
        Page([thing("a")], version=5, seconds=10),
        watches=(
            Stream(10.0, [added(thing("b", 6))], TransportError("broken")),
            BUSY,
        ),
    )
    phases = [pods.status.phase]

    async with running(pods.run()):
        await asyncio.sleep(5)
        phases.append(pods.status.phase)
        assert (pods.status.synced, pods.status.age) == (False, None)
        await asyncio.sleep(10)
        phases.append(pods.status.phase)
        assert pods.status.age == pytest.approx(5, abs=0.01)
        await asyncio.sleep(5.1)
        phases.append(pods.status.phase)
        status = pods.status

    assert [*phases, pods.status.phase] == [
        *("idle", "listing", "watching", "backing off", "stopped")
    ]
    assert (status.synced, status.resource_version, status.failures) == (True, "6", 2)
    assert status.last_event == pytest.approx(20, abs=0.01)
    assert status.last_error is BUSY
    assert status.restarts == 2


async def test_status_counts_what_was_wrong() -> None:
    stream = Stream(
        [added(thing("a", 1))], [added(thing("b", 3))], [error_event(404)], END
    )
    stream.skipped = 2
    pods = pods_of(
        Page([thing("a")], version=5, skipped=1),
        NotFound("?", status=404),
        watches=(stream,),
    )

    async with running(pods.run()):
        await asyncio.sleep(10)
        status = pods.status

    assert (status.duplicates, status.history_resets, status.degraded) == (1, 1, 3)
    assert status.not_served


def test_status_of_one_that_never_ran() -> None:
    pods = pods_of()

    status = pods.status

    assert (status.phase, status.synced, status.age) == ("idle", False, None)
    assert (status.last_contact, status.last_event) == (None, None)
    assert repr(pods) == "<SharedInformer pods idle 0 objects>"
    assert pods.why_not_synced() == "idle, no error so far"


async def test_works_with_defaults() -> None:
    pods = SharedInformer(FakeSource())

    async with running(pods.run()):
        await pods.wait_synced()

    assert (pods.name, pods.options) == ("informer", ReflectorOptions())


# ---------------------------------------------------------------- its loop


@pytest.mark.parametrize(
    "use",
    [
        lambda pods: pods.add_event_handler(on_add=print),
        lambda pods: pods.add_indexers({}),
        lambda pods: asyncio.run(pods.wait_synced()),
        lambda pods: asyncio.run(pods.wait_for_version("1")),
    ],
    ids=["add_event_handler", "add_indexers", "wait_synced", "wait_for_version"],
)
async def test_belongs_to_its_loop(use: Callable[[SharedInformer], object]) -> None:
    pods = pods_of()

    async with running(pods.run()):
        await pods.wait_synced()
        error = error_in_thread(lambda: use(pods))

    assert isinstance(error, WrongLoop)
    assert "pods belongs to another event loop" in str(error)


@pytest.mark.parametrize(
    "read",
    [
        lambda pods: pods.status,
        lambda pods: pods.has_synced,
        lambda pods: pods.lister.list(),
        lambda pods: repr(pods),
    ],
    ids=["status", "has_synced", "lister", "repr"],
)
async def test_can_be_read_from_any_thread(
    read: Callable[[SharedInformer], object],
) -> None:
    pods = pods_of()

    async with running(pods.run()):
        await pods.wait_synced()

        assert error_in_thread(lambda: read(pods)) is None


def test_handlers_may_be_added_where_no_loop_runs() -> None:
    pods = pods_of()

    pods.add_event_handler(on_event=Recorder())
    pods.add_indexers({"node": index_by("spec.nodeName")})


# ---------------------------------------------------------------- trust


async def test_its_lister_refuses_before_the_first_list_and_behind_the_end() -> None:
    pods = pods_of(Page([thing("a")], version=5, seconds=5))
    errors: list[type] = []

    def read() -> None:
        try:
            pods.lister.list()
        except (NotSynced, InformerStopped) as exc:
            errors.append(type(exc))

    read()
    async with running(pods.run()):
        await settle()
        read()
        await pods.wait_synced()
        read()

    read()

    assert errors == [NotSynced, NotSynced, InformerStopped]
    assert told(pods.lister.list(allow_unsynced=True)) == ["a@1"]
    assert told(pods.store.list()) == ["a@1"], "the data stays"
