"""`SharedInformer`: handlers, content, status, and loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from fake_source import (
    END,
    FakeSource,
    Page,
    Stream,
    added,
    deleted,
    error_event,
    modified,
    states_of,
    thing,
)
from informer_helpers import Recorder, pods_of, running, settle
from queue_helpers import error_in_thread

from aioinformer.cache import index_by
from aioinformer.errors import (
    HandlerError,
    InformerStopped,
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

# ---------------------------------------------------------------- handlers


async def test_decorated_functions_become_handlers() -> None:
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


async def test_late_handler_gets_a_snapshot_and_every_later_change() -> None:
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


async def test_failures_of_handlers_and_index_functions_reach_on_error() -> None:
    received_by: list[HandlerError] = []

    def index(obj: KubeObject) -> list[str]:
        raise KeyError(obj.name)

    def handler(obj: KubeObject) -> None:
        raise ValueError(obj.name)

    pods = pods_of(
        Page([thing("a")], version=5),
        indexers={"bad": index},
        on_error=received_by.append,
    )
    pods.add_event_handler(on_add=handler, name="greet")

    async with running(pods.run()):
        await settle()
        stored = states_of(pods.store.list())

    assert stored == ["a@1"]
    assert [(it.where, it.name) for it in received_by] == [
        ("index function", "bad"),
        ("handler", "pods/greet"),
    ]


def test_invalid_handlers_are_refused() -> None:
    with pytest.raises(OptionsError, match="pass either"):
        pods_of().add_event_handler()


# ---------------------------------------------------------------- content


async def test_objects_are_indexed_by_namespace_and_given_indexers() -> None:
    pods = pods_of(indexers={"node": index_by("spec.nodeName")})

    async with running(pods.run()):
        await pods.wait_synced()
        pods.add_indexers({"phase": index_by("status.phase")})

        assert states_of(pods.lister.namespace("default").list()) == ["a@1", "b@1"]
        assert states_of(pods.lister.by_index("node", "node-1")) == ["a@1", "b@1"]
        assert states_of(pods.lister.by_index("phase", "Running")) == ["a@1", "b@1"]
        assert pods.store is pods.indexer


def test_namespace_index_cannot_be_replaced() -> None:
    with pytest.raises(OptionsError, match="namespace"):
        pods_of(indexers={"namespace": index_by("spec.nodeName")})


async def test_index_added_during_a_list_is_complete() -> None:
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


async def test_index_is_built_during_many_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aioinformer.budget.SLICE_SECONDS", 0.0)
    stream = Stream()
    things = [thing(f"p{number}") for number in range(200)]
    relisted = Page([*things[:150], thing("new", 8)], version=9)
    pods = pods_of(Page(things, version=5), relisted, watches=(stream,))
    by_node = {"node": index_by("spec.nodeName")}

    async with running(pods.run()):
        await pods.wait_synced()
        building = asyncio.create_task(pods.build_indexers(by_node))
        await asyncio.sleep(0)
        stream.send(deleted(thing("p0", 6)), modified(thing("p1", 7)))
        stream.send(error_event(410))
        with pytest.raises(OptionsError, match="index 'node' already exists"):
            pods.add_indexers({"node": index_by("spec.other")})
        turns = 0
        while not building.done():
            assert "node" not in pods.indexer.indexers
            assert len(pods.lister.list()) in {151, 199, 200}
            turns += 1
            await asyncio.sleep(0)

        await asyncio.sleep(5)
        found = states_of(pods.lister.by_index("node", "node-1"))
        everything = states_of(pods.lister.list())

    assert turns > 5
    assert sorted(found) == sorted(everything)
    assert len(found) == 151
    with pytest.raises(InformerStopped):
        await pods.build_indexers({})


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


async def test_status_counts_failures() -> None:
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
    assert (status.relists, status.last_relist) == (1, "HistoryReset")


def test_status_of_an_informer_that_never_ran() -> None:
    pods = pods_of()

    status = pods.status

    assert (status.phase, status.synced, status.age) == ("idle", False, None)
    assert (status.last_contact, status.last_event) == (None, None)
    assert repr(pods) == "<SharedInformer pods idle 0 objects>"
    assert pods.why_not_synced() == "idle, not started yet"


async def test_informer_works_with_defaults() -> None:
    pods = SharedInformer(FakeSource())

    async with running(pods.run()):
        await pods.wait_synced()

    assert (pods.name, pods.options) == ("informer", ReflectorOptions())


# ---------------------------------------------------------------- loop


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
async def test_running_informer_refuses_another_loop(
    use: Callable[[SharedInformer], object],
) -> None:
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
async def test_informer_can_be_read_in_any_thread(
    read: Callable[[SharedInformer], object],
) -> None:
    pods = pods_of()

    async with running(pods.run()):
        await pods.wait_synced()

        assert error_in_thread(lambda: read(pods)) is None


def test_handlers_can_be_added_without_a_running_loop() -> None:
    pods = pods_of()

    pods.add_event_handler(on_event=Recorder())
    pods.add_indexers({"node": index_by("spec.nodeName")})


# ---------------------------------------------------------------- trust


async def test_lister_raises_before_the_first_list_and_after_the_end() -> None:
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
    assert states_of(pods.lister.list(allow_unsynced=True)) == ["a@1"]
    assert states_of(pods.store.list()) == ["a@1"], "the data is kept"
