"""Causes: why a request is worked on."""

from __future__ import annotations

import pytest
from fake_source import thing

from aioinformer import Added, Deleted, ReconcileRequest, Updated
from aioinformer.controller.causes import MOST_CAUSES, Cause, Causes, cause_of

WEB = ReconcileRequest("default", "web")


@pytest.mark.parametrize(
    ("event", "change"),
    [
        (Added(thing("web"), True), "initial"),
        (Added(thing("web")), "added"),
        (Updated(thing("web"), thing("web", 2)), "updated"),
        (Updated(thing("web"), thing("web"), True), "resync"),
        (Deleted(thing("web")), "deleted"),
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
def test_says_what_a_notification_tells(
    event: Added | Updated | Deleted, change: str
) -> None:
    assert cause_of(event, "Pod") == Cause(change, "Pod", "default/web")  # type: ignore[arg-type]


def test_are_kept_in_order_each_once() -> None:
    causes = Causes()
    for change in ("added", "updated", "updated", "deleted"):
        causes.note(WEB, Cause(change, "Pod", WEB.key))

    assert [it.change for it in causes.take(WEB, 0.0)] == [
        "added",
        "updated",
        "deleted",
    ]


def test_are_bounded() -> None:
    causes = Causes()
    for number in range(1000):
        causes.note(WEB, Cause("updated", "Pod", f"default/{number}"))

    taken = causes.take(WEB, 0.0)

    assert len(taken) == MOST_CAUSES
    assert taken[0].key == "default/0"


def test_are_forgotten_when_taken() -> None:
    causes = Causes()
    causes.note(WEB, Cause("added", "Pod", WEB.key))
    causes.take(WEB, 0.0)

    assert causes.take(WEB, 0.0) == ()
    assert len(causes) == 0


def test_a_requeue_is_a_cause_when_its_time_is_over() -> None:
    causes = Causes()
    causes.note_requeue(WEB, 100.0)
    causes.note_requeue(WEB, 200.0)  # the queue has it once, at the first time
    causes.note(WEB, Cause("updated", "Pod", WEB.key))

    taken = [causes.take(WEB, now) for now in (10.0, 99.9999, 200.0)]

    assert [[it.change for it in each] for each in taken] == [
        ["updated"],
        ["requeue"],
        [],
    ]
