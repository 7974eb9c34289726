"""`Resync`: each handler gets all objects again by its own timer."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from fake_source import (
    FakeSource,
    Page,
    Stream,
    added,
    deleted,
    error_event,
    modified,
    thing,
)
from informer_helpers import Recorder, Slow, Stage, pods_of, running, settle
from namespace_helpers import slow_machine

from aioinformer.errors import OptionsError
from aioinformer.informer import Added, Deleted, SharedInformer, Updated
from aioinformer.informer.handlers.resync import ListOncePerTurn, Resync, resync_seconds

if TYPE_CHECKING:
    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject


class MapStore:
    """The part of a store that a resync needs."""

    def __init__(self, *objects: KubeObject) -> None:
        self.objects = {obj.key: obj for obj in objects}
        self.lists = 0

    def list(self) -> list[KubeObject]:
        self.lists += 1
        return [*self.objects.values()]

    def get_by_key(self, key: str) -> KubeObject | None:
        return self.objects.get(key)


class Log:
    """A handler that records notifications with their times."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.received: list[tuple[float, Notification]] = []

    def __call__(self, event: Notification) -> None:
        self.received.append((round(self.loop.time(), 3), event))

    @property
    def resyncs(self) -> list[tuple[float, str]]:
        return [
            (when, event.new.name)
            for when, event in self.received
            if isinstance(event, Updated) and event.resync
        ]


# ---------------------------------------------------------------- periods


@pytest.mark.parametrize(
    ("period", "seconds"),
    [(None, 0), (0, 0), (1, 1), (90.5, 90.5), (timedelta(minutes=2), 120)],
)
def test_period_is_seconds_or_timedelta(period: Any, seconds: float) -> None:
    assert resync_seconds(period) == seconds


@pytest.mark.parametrize(
    "period", [0.999, -1, timedelta(milliseconds=1), float("inf"), float("nan")]
)
def test_period_below_a_second_is_refused(period: Any) -> None:
    with pytest.raises(OptionsError):
        resync_seconds(period)


async def test_each_handler_has_its_own_period() -> None:
    pods = pods_of(watches=(Stream(),))
    logs = {period: Log() for period in (0, 2, 3)}
    for period, log in logs.items():
        pods.add_event_handler(on_event=log, resync_period=period)

    async with running(pods.run()):
        await asyncio.sleep(6.5)

    both = [(float(when), name) for when in (2, 4, 6) for name in "ab"]
    assert logs[0].resyncs == []
    assert logs[2].resyncs == both
    assert logs[3].resyncs == [(when, name) for when in (3, 6) for name in "ab"]


async def test_period_of_the_informer_is_the_default_of_its_handlers() -> None:
    pods = pods_of(watches=(Stream(),), resync_period=4)
    given, none, own = Log(), Log(), Log()
    pods.add_event_handler(on_event=given)
    pods.add_event_handler(on_event=none, resync_period=0)
    pods.add_event_handler(on_event=own, resync_period=timedelta(seconds=5))

    async with running(pods.run()):
        await asyncio.sleep(5.5)

    assert given.resyncs == [(4.0, "a"), (4.0, "b")]
    assert none.resyncs == []
    assert own.resyncs == [(5.0, "a"), (5.0, "b")]


def test_period_of_the_informer_below_a_second_is_refused() -> None:
    with pytest.raises(OptionsError, match="at least 1 s"):
        pods_of(resync_period=0.5)


async def test_period_of_a_late_handler_starts_when_it_is_added() -> None:
    pods = pods_of(watches=(Stream(),))

    async with running(pods.run()):
        await asyncio.sleep(1.5)
        log = Log()
        pods.add_event_handler(on_event=log, resync_period=2)
        await asyncio.sleep(4.5)

    assert [when for when, _ in log.resyncs] == [3.5, 3.5, 5.5, 5.5]


async def test_handlers_with_different_periods_are_different() -> None:
    pods = pods_of(watches=(Stream(),))
    log = Log()
    registration = pods.add_event_handler(on_event=log, resync_period=2)

    async with running(pods.run()):
        await asyncio.sleep(2.5)
        registration.remove()
        pods.add_event_handler(on_event=log, resync_period=5)
        await asyncio.sleep(6)

    assert {when for when, _ in log.resyncs} == {2.0, 7.5}


# ---------------------------------------------------------------- notifications


async def test_resync_delivers_updates_from_a_state_to_itself() -> None:
    pods = pods_of(Page([thing("a", 3)], version=5), watches=(Stream(),))
    log, updates = Log(), list[object]()
    pods.add_event_handler(on_event=log, resync_period=2)
    pods.add_event_handler(
        on_update=lambda *both: updates.append(both), resync_period=2
    )

    async with running(pods.run()):
        await asyncio.sleep(2.5)

    assert log.received[1:] == [(2.0, Updated(thing("a", 3), thing("a", 3), True))]
    assert updates == [(thing("a", 3), thing("a", 3))]


async def test_resync_sends_no_request() -> None:
    source = FakeSource([Page([thing("a")], version=5)], [Stream()])
    pods = SharedInformer(source, name="pods")
    pods.add_event_handler(on_event=Recorder(), resync_period=1)

    async with running(pods.run()):
        await settle()
        requested = list(source.requested)
        await asyncio.sleep(20)

        assert source.requested == requested


async def test_nothing_is_resynced_before_the_first_list() -> None:
    pods = pods_of(Page([thing("a")], version=5, seconds=4.5), watches=(Stream(),))
    log = Log()
    registration = pods.add_event_handler(on_event=log, resync_period=1)

    async with running(pods.run()):
        await asyncio.sleep(4)
        assert (log.received, registration.depth) == ([], 0)
        await asyncio.sleep(1.5)

    assert log.received[0][1] == Added(thing("a"), True)
    assert log.resyncs == [(5.0, "a")]


async def test_newest_state_is_resynced() -> None:
    stream = Stream()
    pods = pods_of(watches=(stream,))
    log = Log()
    pods.add_event_handler(on_event=log, resync_period=2)

    async with running(pods.run()):
        await settle()
        stream.send(modified(thing("a", 6)), deleted(thing("b", 7)))
        stream.send(added(thing("c", 8)))
        await asyncio.sleep(2.5)

    new = [event.new for when, event in log.received if isinstance(event, Updated)]
    assert new == [thing("a", 6), thing("a", 6), thing("c", 8)]


async def test_resync_passes_the_filter() -> None:
    pods = pods_of(watches=(Stream(),))
    log = Log()
    pods.add_event_handler(
        on_event=log, resync_period=2, filter=lambda obj: obj.name == "a"
    )

    async with running(pods.run()):
        await asyncio.sleep(2.5)

    assert log.resyncs == [(2.0, "a")]


async def test_large_resync_is_one_entry_delivered_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow_machine(monkeypatch)
    stage, store = Stage(), MapStore(*(thing(f"pod-{it}") for it in range(3000)))
    record = Recorder()
    listener = stage.listen(record, resync=Resync(5.0, store))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while len(record.record) < 3000:
            turns += bool(record.record)
            await asyncio.sleep(0)

    async with running(stage.run()):
        await asyncio.sleep(5)
        assert (listener.depth, listener._inbox._queue.qsize()) == (3000, 1)
        await others()

    assert turns > 0
    assert store.lists == 1


# ---------------------------------------------------------------- queued resyncs


async def test_handlers_resynced_together_share_one_list() -> None:
    store = MapStore(thing("a"))
    listed = ListOncePerTurn(store)
    stage, logs = Stage(), [Log() for _ in range(100)]
    for number, log in enumerate(logs):
        stage.listen(log, name=f"{number}", resync=Resync(10, listed))

    async with running(stage.run()):
        await asyncio.sleep(10.5)
        together = store.lists
        store.objects["default/b"] = thing("b")
        await asyncio.sleep(10)

    assert together == 1
    assert store.lists == 2, "the next resync takes the objects stored then"
    received = [(10.0, "a"), (20.0, "a"), (20.0, "b")]
    assert [log.resyncs for log in logs] == [received] * 100


async def test_objects_with_queued_events_are_not_resynced(
    looptime: float,
) -> None:
    a, b = thing("a", 1), thing("b", 1)
    a2 = thing("a", 2)
    store = MapStore(a, b)
    stage, log = Stage(), Log()

    async def slow(event: Notification) -> None:
        log(event)
        await asyncio.sleep(3)

    stage.listen(slow, resync=Resync(5.0, store))

    async with running(stage.run()):
        stage.publish([Added(thing("x"), True), Added(a, True), Added(b, True)])
        store.objects[a.key] = a2
        stage.publish([Updated(a, a2)])
        # At 5 s the first event is being handled, then b and a are queued until 12 s.
        await asyncio.sleep(19)

    assert [when for when, _ in log.received] == [0, 3, 6, 9, 15, 18]
    assert log.resyncs == [(15, "a"), (18, "b")]


async def test_objects_changed_since_the_resync_began_are_not_resynced() -> None:
    a, b, b2 = thing("a", 1), thing("b", 1), thing("b", 2)
    c = thing("c", 1)
    store = MapStore(a, b, c)
    stage = Stage()
    received: list[Notification] = []

    async def slow(event: Notification) -> None:
        received.append(event)
        await asyncio.sleep(2)

    stage.listen(slow, resync=Resync(4.0, store))
    async with running(stage.run()):
        await asyncio.sleep(5)  # is handling a
        store.objects[b.key] = b2
        del store.objects[c.key]
        stage.publish([Updated(b, b2), Deleted(c)])
        await asyncio.sleep(6)

    assert received[:3] == [Updated(a, a, True), Updated(b, b2), Deleted(c)]


async def test_slow_handler_has_one_resync_at_a_time() -> None:
    store = MapStore(*(thing(name) for name in "abc"))
    stage, slow = Stage(), Slow(4)
    listener = stage.listen(slow, resync=Resync(1.0, store))
    depths = set()

    async with running(stage.run()):
        for _ in range(40):
            await asyncio.sleep(1)
            await settle()
            depths.add(listener.depth)

    assert max(depths) <= 4
    assert slow.record[:6] == ["a", "b", "c", "a", "b", "c"]


async def test_events_during_a_resync_stay_in_order() -> None:
    store = MapStore(thing("a"), thing("b"))
    stage, slow = Stage(), Slow(2)
    stage.listen(slow, resync=Resync(4.0, store))

    async with running(stage.run()):
        await asyncio.sleep(5)
        stage.publish([Added(thing("new"))])
        await asyncio.sleep(6)

    assert slow.record[:3] == ["a", "b", "new"]


# ---------------------------------------------------------------- timer


def timers() -> list[asyncio.TimerHandle]:
    loop: Any = asyncio.get_running_loop()
    return [
        timer
        for timer in loop._scheduled
        if "Resync" in repr(timer) and not timer.cancelled()
    ]


async def test_resync_has_one_timer_while_running_and_none_after() -> None:
    pods = pods_of(watches=(Stream(),))
    removed = pods.add_event_handler(on_event=Recorder(), resync_period=2)
    pods.add_event_handler(on_event=Recorder(), resync_period=3)
    assert timers() == []

    async with running(pods.run()):
        await asyncio.sleep(10)
        counts = [len(timers())]
        removed.remove()
        counts.append(len(timers()))

    assert counts == [2, 1]
    assert timers() == []


async def test_handler_removed_during_its_call_is_not_resynced() -> None:
    stage, store = Stage(), MapStore(thing("a"), thing("b"))
    record: list[object] = []

    async def handler(event: Notification) -> None:
        record.append(event)
        stage.remove(listener)
        await asyncio.sleep(10)

    listener = stage.listen(handler, resync=Resync(1.0, store))
    async with running(stage.run()):
        await asyncio.sleep(5)
        assert timers() == []
        await listener.wait_ended()

    assert len(record) == 1


async def test_resync_keeps_its_schedule_when_the_loop_is_late() -> None:
    stage, store = Stage(), MapStore(thing("a"))
    log = Log()
    resync = Resync(2.0, store)
    stage.listen(log, resync=resync)

    async with running(stage.run()):
        await settle()
        # Call it 0.7 s late, as a busy loop would.
        assert resync._timer is not None
        resync._timer.cancel()
        asyncio.get_running_loop().call_at(2.7, resync._due)
        await asyncio.sleep(6.5)

    assert [when for when, _ in log.resyncs] == [2.7, 4.0, 6.0]


async def test_missed_resyncs_are_not_repeated() -> None:
    stage, store = Stage(), MapStore(thing("a"))
    log = Log()
    resync = Resync(2.0, store)
    stage.listen(log, resync=resync)

    async with running(stage.run()):
        await settle()
        assert resync._timer is not None
        resync._timer.cancel()
        asyncio.get_running_loop().call_at(9.0, resync._due)
        await asyncio.sleep(12)

    assert [when for when, _ in log.resyncs] == [9.0, 11.0]


async def test_relist_does_not_postpone_the_resync() -> None:
    gone = error_event(410, "Expired")
    pods = pods_of(
        Page([thing("a")], version=5),
        Page([thing("a")], version=7),
        watches=(Stream(1.5, [gone]), Stream()),
    )
    log = Log()
    pods.add_event_handler(on_event=log, resync_period=3)

    async with running(pods.run()):
        await asyncio.sleep(6.5)
        restarts = pods.status.restarts

    assert restarts > 0
    assert log.resyncs == [(3.0, "a"), (6.0, "a")]
