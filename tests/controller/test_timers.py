"""`Controller(every=)`: reconciles of each object at regular intervals."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import Acts, Notes, controlled, informer_of, named
from informer_helpers import settle

from aioinformer import Added, Controller, Deleted, KubeObject, Updated
from aioinformer.controller import Cause, Context, Every
from aioinformer.controller.timers import Timers, delay_from_creation, delay_since
from aioinformer.errors import HandlerError, OptionsError
from aioinformer.informer.handlers.error_reporter import ErrorReporter
from aioinformer.model.times import kube_time
from aioinformer.testing import FakeListerWatcher

if TYPE_CHECKING:
    from aioinformer import ReconcileRequest

EPOCH = datetime(2026, 8, 1, tzinfo=UTC)


def made(name: str = "a", ago: float = 0, uid: str = "u1", **more: Any) -> Any:
    created = kube_time(datetime.now(UTC) - timedelta(seconds=ago))
    return named(name, uid=uid, creationTimestamp=created) | more


class Times(Notes):
    """A reconcile that records the causes and the time of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.due: list[float] = []

    async def act(self, request: ReconcileRequest, ctx: Context) -> None:
        assert ctx.causes
        if any(cause.change == "timer" for cause in ctx.causes):
            self.due.append(asyncio.get_running_loop().time())


# ---------------------------------------------------------------- when it is due


async def test_object_is_reconciled_at_each_interval() -> None:
    times = Times()
    source = FakeListerWatcher(made())
    async with controlled(times, source, every=timedelta(seconds=300)):
        await asyncio.sleep(3000)

    gaps = [b - a for a, b in pairwise(times.due)]
    assert len(times.due) == 10
    assert times.due[0] <= 301
    assert gaps == [pytest.approx(300, abs=0.01)] * 9
    assert times.contexts[1].causes == (Cause("timer", "", "default/a"),)


async def test_times_are_kept_over_restarts() -> None:
    dues = []
    for ago in (0, 1000):  # as if the second controller started 1000 s later
        times = Times()
        source = FakeListerWatcher(made(ago=ago))
        loop = asyncio.get_running_loop()
        async with controlled(times, source, every=300):
            began = loop.time()
            await asyncio.sleep(301)

        dues.append(times.due[0] - began + ago)

    assert (dues[1] - dues[0]) % 300 == pytest.approx(0, abs=2) or (
        dues[1] - dues[0]
    ) % 300 == pytest.approx(300, abs=2)


@pytest.mark.parametrize("age", [0, 1, 299, 300, 301, 86_400.5])
def test_delay_from_creation_reaches_the_next_multiple(age: float) -> None:
    now = EPOCH + timedelta(seconds=age)

    delay = delay_from_creation(EPOCH, 300, "u1", now)

    phase = delay_from_creation(EPOCH, 300, "u1", EPOCH)
    assert 0 <= delay <= 300
    assert (age + delay - phase) % 300 == pytest.approx(0, abs=0.001) or (
        age + delay - phase
    ) % 300 == pytest.approx(300, abs=0.001)


def test_objects_of_one_creation_are_due_at_different_times() -> None:
    delays = [delay_from_creation(EPOCH, 300, f"u{n}", EPOCH) for n in range(10_000)]
    by_second = [
        sum(second <= it < second + 1 for it in delays) for second in range(300)
    ]

    assert sum(by_second) == 10_000
    assert max(by_second) < 100, "33 objects in each second, if it was even"


@pytest.mark.parametrize(
    ("ago", "least", "most"), [(0, 300, 330), (290, 10, 40), (400, 0, 0)]
)
def test_delay_since_last_run_has_up_to_a_tenth_of_jitter(
    ago: float, least: float, most: float
) -> None:
    now = EPOCH + timedelta(seconds=ago)

    assert least <= delay_since(EPOCH, 300, "u1", now) <= most


async def test_time_in_status_delays_the_next_run() -> None:
    last = Every(300, since=lambda pod: pod.at("status.lastSync"))
    long_ago = {"lastSync": "2020-01-01T00:00:00Z"}
    times = Times()
    source = FakeListerWatcher(made(status=long_ago))
    async with controlled(times, source, every=last):
        await asyncio.sleep(1)
        assert len(times.due) == 1, "it is overdue at the start"
        now = kube_time(datetime.now(UTC))
        source.modify(made(status={"lastSync": now}))
        await asyncio.sleep(298)
        assert len(times.due) == 1
        await asyncio.sleep(40)

    assert len(times.due) == 2


async def test_object_whose_time_stays_is_due_once_an_interval() -> None:
    last = Every(300, since=lambda pod: pod.at("status.lastSync"))
    times = Times()
    source = FakeListerWatcher(made(status={"lastSync": "2020-01-01T00:00:00Z"}))
    async with controlled(times, source, every=last):
        await asyncio.sleep(10)
        source.modify(
            made(labels={"a": "b"}, status={"lastSync": "2020-01-01T00:00:00Z"})
        )
        await asyncio.sleep(1000)

    assert len(times.due) == 4


@pytest.mark.parametrize(
    "since",
    [
        pytest.param(lambda pod: 1 / 0, id="raises"),
        pytest.param(lambda pod: 7, id="number"),
        pytest.param(lambda pod: "yesterday", id="no-time"),
        pytest.param(lambda pod: datetime(2026, 1, 1), id="no-zone"),  # noqa: DTZ001
    ],
)
async def test_failing_since_is_reported_and_objects_are_due_nevertheless(
    since: Any,
) -> None:
    failures: list[HandlerError] = []
    times = Times()
    source = FakeListerWatcher(made())
    options = {"every": Every(300, since=since), "on_error": failures.append}
    async with controlled(times, source, **options):
        source.modify(made(status={"x": 1}))  # changes no timer
        await asyncio.sleep(1000)

    assert len(times.due) >= 3
    assert [str(it) for it in failures] == ["since of every= failed"]


async def test_object_never_run_counts_from_its_creation() -> None:
    times = Times()
    options = {"every": Every(300, since=lambda pod: pod.at("status.lastSync"))}
    async with controlled(times, FakeListerWatcher(made()), **options):
        await asyncio.sleep(301)

    assert len(times.due) == 1


# ---------------------------------------------------------------- lives of objects


async def test_deleted_object_is_not_due_any_more() -> None:
    times = Times()
    source = FakeListerWatcher(made("a"), made("b", uid="u2"))
    async with controlled(times, source, every=60):
        source.delete(made("a"))
        await settle()
        times.names.clear()
        await asyncio.sleep(600)

    assert set(times.names) == {"b"}


async def test_failed_reconcile_is_retried_beside_its_timer() -> None:
    async def fail(request: ReconcileRequest, ctx: Context) -> None:
        raise ValueError("boom")

    notes = Acts(fail)
    async with controlled(notes, FakeListerWatcher(made()), every=60):
        await asyncio.sleep(600)

    changes = {cause.change for ctx in notes.contexts for cause in ctx.causes}
    assert changes == {"initial", "retry", "timer"}


def timers(every: Every, due: list[str]) -> Timers:
    return Timers(every, due.append, ErrorReporter("test"))


async def test_timers_leave_nothing_behind() -> None:
    due: list[str] = []
    mine = timers(Every(60), due)
    for n in range(1000):
        mine.changed(Added(KubeObject.of(made(f"p{n}", uid=f"u{n}"))))

    assert len(mine) == 1000
    for n in range(999):
        mine.changed(Deleted(KubeObject.of(made(f"p{n}", uid=f"u{n}"))))

    await asyncio.sleep(61)
    assert set(due) == {"default/p999"}
    mine.close()
    due.clear()
    await asyncio.sleep(600)
    assert len(mine) == 0
    assert due == []


async def test_update_without_since_changes_no_timer() -> None:
    due: list[str] = []
    mine = timers(Every(60), due)
    old = KubeObject.of(made())
    mine.changed(Added(old))
    for n in range(60):
        await asyncio.sleep(1)
        new = KubeObject.of(made(labels={"n": str(n)}))
        mine.changed(Updated(old, new))
        old = new

    assert len(due) == 1
    mine.close()


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("every", "text"),
    [
        (lambda: 0, "must be positive"),
        (lambda: timedelta(0), "must be positive"),
        (lambda: float("nan"), "finite"),
        (lambda: "5m", "a number of seconds"),
        (lambda: Every(-1), "must be positive"),
        (lambda: Every(1, since=7), "must be a plain function"),  # type: ignore[arg-type]
    ],
)
def test_invalid_interval_is_refused(every: Any, text: str) -> None:
    pods = informer_of(FakeListerWatcher())

    with pytest.raises(OptionsError, match=text):
        Controller("pods", Notes(), for_=pods, every=every())
