"""`HandlerFilter`: notifications of a handler with a filter."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from fake_source import thing
from informer_helpers import Stage, keep_busy, running

from aioinformer.errors import HandlerError, OptionsError
from aioinformer.informer import Added, Deleted, Updated
from aioinformer.informer.handlers.error_reporter import ErrorReporter
from aioinformer.informer.handlers.event_handlers import HandlerFilter, HandlerOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject


def web(version: int, name: str = "a") -> KubeObject:
    return thing(name, version, labels={"app": "web"})


def other(version: int, name: str = "a") -> KubeObject:
    return thing(name, version, labels={"app": "db"})


def is_web(obj: KubeObject) -> bool:
    return obj.labels["app"] == "web"


class Filtered:
    """A filter, and its result for each event."""

    def __init__(self, accepts: Callable[[KubeObject], object] = is_web) -> None:
        self.failures: list[HandlerError] = []
        reporter = ErrorReporter("pods", self.failures.append)
        self._filter = HandlerFilter(accepts, "pods/greet", reporter)

    def __call__(self, *events: Notification) -> list[Notification | None]:
        return list(self._filter.apply(iter(events)))


# ---------------------------------------------------------------- events that pass


@pytest.mark.parametrize(
    ("before", "event", "received"),
    [
        pytest.param(web(1), Updated(web(1), web(2)), Updated(web(1), web(2)), id="uu"),
        pytest.param(other(1), Updated(other(1), web(2)), Added(web(2)), id="begins"),
        pytest.param(web(1), Updated(web(1), other(2)), Deleted(web(1)), id="ceases"),
        pytest.param(other(1), Updated(other(1), other(2)), None, id="neither"),
        pytest.param(web(1), Deleted(web(2)), Deleted(web(2)), id="end"),
        pytest.param(web(1), Deleted(web(1), True), Deleted(web(1), True), id="unseen"),
        pytest.param(other(1), Deleted(other(2)), None, id="end-of-another"),
        pytest.param(
            web(1), Updated(web(1), web(1), True), Updated(web(1), web(1), True), id="r"
        ),
        pytest.param(other(1), Updated(other(1), other(1), True), None, id="r-other"),
    ],
)
def test_old_and_new_state_decide_the_event(
    before: KubeObject, event: Notification, received: Notification | None
) -> None:
    first, second = Filtered()(Added(before), event)

    assert first == (Added(before) if is_web(before) else None)
    assert second == received


def test_initial_addition_stays_initial() -> None:
    assert Filtered()(Added(web(1), True)) == [Added(web(1), True)]


def test_update_that_starts_to_pass_is_a_noninitial_addition() -> None:
    received = Filtered()(Added(other(1), True), Updated(other(1), web(2)))

    assert received == [None, Added(web(2), False)]


def test_update_that_no_longer_passes_is_a_deletion() -> None:
    received = Filtered()(Added(web(1)), Updated(web(1), other(2)))

    assert received[1] == Deleted(web(1), False)


def test_deletion_is_delivered_although_the_final_state_does_not_pass() -> None:
    received = Filtered()(Added(web(1)), Deleted(other(2)))

    assert received == [Added(web(1)), Deleted(other(2))]


def test_deletion_of_an_undelivered_object_is_not_delivered() -> None:
    received = Filtered()(Added(other(1)), Deleted(web(2)))

    assert received == [None, None]


def test_object_can_pass_again() -> None:
    received = Filtered()(
        Added(web(1)),
        Updated(web(1), other(2)),
        Deleted(other(3)),
        Added(web(4)),
        Deleted(web(5)),
    )

    assert received == [
        Added(web(1)),
        Deleted(web(1)),
        None,
        Added(web(4)),
        Deleted(web(5)),
    ]


def test_objects_are_filtered_independently() -> None:
    received = Filtered()(
        Added(web(1, "a")),
        Added(other(1, "b")),
        Deleted(other(2, "b")),
        Deleted(web(2)),
    )

    assert received == [Added(web(1, "a")), None, None, Deleted(web(2))]


def test_merged_away_event_does_not_reach_the_filter() -> None:
    called: list[KubeObject] = []
    reporter = ErrorReporter("pods")
    passing = HandlerFilter(called.append, "pods/greet", reporter).apply

    assert list(passing(iter([None]))) == [None]
    assert called == []


@pytest.mark.parametrize("answer", [1, "yes", [0]])
def test_any_true_result_passes(answer: object) -> None:
    assert Filtered(lambda _: answer)(Added(web(1))) == [Added(web(1))]


def test_filter_that_changes_its_mind_causes_no_contradiction() -> None:
    wanted = {"a"}
    filtered = Filtered(lambda obj: obj.name in wanted)
    a, b = web(1, "a"), web(1, "b")
    received = filtered(Added(a), Added(b))
    wanted.clear()
    wanted.add("b")

    received += filtered(
        Updated(a, a, True), Updated(b, b, True), Updated(b, web(2, "b"))
    )

    assert received == [Added(a), None, Deleted(a), Added(b), Updated(b, web(2, "b"))]


def test_filter_is_called_once_for_each_state() -> None:
    called: list[str] = []

    def accepts(obj: KubeObject) -> bool:
        called.append(obj.resource_version)
        return True

    Filtered(accepts)(Added(web(1)), Updated(web(1), web(2)), Deleted(web(3)))

    assert called == ["1", "2"]


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    "error", [ValueError("no"), asyncio.CancelledError("no")], ids=["error", "cancel"]
)
def test_failing_filter_passes_and_is_reported(
    error: BaseException,
) -> None:
    def accepts(obj: KubeObject) -> bool:
        if obj.resource_version == "2":
            raise error

        return False

    filtered = Filtered(accepts)

    received = filtered(
        Added(web(1)), Updated(web(1), web(2)), Updated(web(2), web(3)), Deleted(web(3))
    )

    assert received == [None, Added(web(2)), Deleted(web(2)), None]
    (failure,) = filtered.failures
    assert (failure.where, failure.name) == ("filter", "pods/greet")
    assert failure.subject == Updated(web(1), web(2))
    assert failure.__cause__ is error


async def accepts_later(obj: KubeObject) -> bool:
    return is_web(obj)


class AcceptsLater:
    async def __call__(self, obj: KubeObject) -> bool:
        return is_web(obj)


@pytest.mark.parametrize(
    "accepts",
    [accepts_later, AcceptsLater(), "app=web", 3],
    ids=["coroutine-function", "callable-object", "text", "number"],
)
def test_filter_must_be_a_plain_function(accepts: Any) -> None:
    with pytest.raises(OptionsError, match="a filter must be a plain function"):
        HandlerOptions(filter=accepts)


# ---------------------------------------------------------------- running handlers


async def test_handler_is_synced_although_its_filter_rejects_everything() -> None:
    stage, record = Stage(), list[object]()
    listener = stage.listen(record.append, filter=is_web)

    async with running(stage.run()):
        stage.publish([Added(other(1, "a"), True), Added(other(1, "b"), True)])
        stage.mark_synced()
        await listener.wait_synced()

    assert record == []
    assert listener.depth == 0


async def test_filter_that_blocks_the_loop_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    listener = stage.listen(lambda _: None, filter=lambda _: keep_busy(0.06))

    async with running(stage.run()):
        stage.publish([Added(web(1))])
        await listener.wait_idle()

    assert "handler pods/greet blocked the event loop" in caplog.text


async def test_filter_affects_no_other_handler() -> None:
    stage = Stage()
    some, everything = list[object](), list[object]()
    stage.listen(some.append, filter=is_web)
    stage.listen(everything.append)

    async with running(stage.run()):
        stage.publish([Added(web(1)), Updated(web(1), other(2))])
        await stage.drained()

    assert some == [Added(web(1)), Deleted(web(1))]
    assert everything == [Added(web(1)), Updated(web(1), other(2))]
