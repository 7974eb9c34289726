"""`InitialEvents`: the listed objects, the end of the list, and the patience for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fake_source import (
    added,
    bookmark,
    deleted,
    error_event,
    initial_events_end,
    modified,
    states_of,
    thing,
)

from aioinformer.errors import DecodeError, ResourceExpired
from aioinformer.informer.listwatch.watch_events import InitialEvents
from aioinformer.model import KubeObject
from aioinformer.watch import EventType, WatchEvent

if TYPE_CHECKING:
    from collections.abc import Callable

A, B, C = thing("a", 5), thing("b", 3), thing("c", 4)


def test_objects_are_taken_in_any_order_of_versions() -> None:
    initial = InitialEvents()

    portion = initial.take([added(A), added(B), added(C)], 0)

    assert states_of(portion.present) == ["a@5", "b@3", "c@4"]
    assert (portion.deleted, portion.rest, initial.complete) == ([], [], False)
    assert initial.count == 3


@pytest.mark.parametrize(
    ("events", "present", "removed"),
    [
        pytest.param([added(A), modified(thing("a", 9))], ["a@9"], [], id="modified"),
        pytest.param([modified(thing("a", 9))], ["a@9"], [], id="never-added"),
        pytest.param([added(A), deleted(A)], [], ["default/a"], id="deleted"),
        pytest.param([deleted(A)], [], ["default/a"], id="deleted-of-another-batch"),
        pytest.param(
            [added(A), deleted(A), added(thing("a", 9))], ["a@9"], [], id="comes-back"
        ),
    ],
)
def test_last_event_of_an_object_counts(
    events: list[WatchEvent], present: list[str], removed: list[str]
) -> None:
    portion = InitialEvents().take(events, 0)

    assert (states_of(portion.present), portion.deleted) == (present, removed)


def test_annotated_bookmark_ends_the_list_and_the_rest_is_returned() -> None:
    initial = InitialEvents()
    after = [modified(thing("a", 12)), bookmark(13)]

    portion = initial.take([added(A), initial_events_end(11), *after], 0)

    assert (initial.complete, initial.version) == (True, "11")
    assert (states_of(portion.present), portion.rest) == (["a@5"], after)
    assert initial.count == 2


@pytest.mark.parametrize("said", ["false", "True", "", "1"])
def test_only_the_value_true_ends_the_list(said: str) -> None:
    initial = InitialEvents()

    initial.take([bookmark(9), initial_events_end(11, said)], 0)

    assert not initial.complete


def test_annotation_of_an_object_does_not_end_the_list() -> None:
    annotations = {"k8s.io/initial-events-end": "true"}
    obj = thing("a").to_dict()
    obj["metadata"]["annotations"] = annotations
    initial = InitialEvents()

    initial.take([added(KubeObject.of(obj))], 0)

    assert not initial.complete


def test_end_without_a_version_raises_decode_error() -> None:
    with pytest.raises(DecodeError, match="no resource version"):
        InitialEvents().take([initial_events_end("")], 0)


def test_error_event_is_raised() -> None:
    with pytest.raises(ResourceExpired):
        InitialEvents().take([added(A), error_event(410)], 0)


def test_unreadable_error_event_raises_decode_error() -> None:
    unreadable = KubeObject(b"{", "", "", "", {}, A.context)
    broken = WatchEvent(EventType.ERROR, unreadable)

    with pytest.raises(DecodeError):
        InitialEvents().take([broken], 0)


# ---------------------------------------------------------------- patience


def test_patience_restarts_while_only_objects_arrive() -> None:
    initial = InitialEvents()
    deadlines = [initial.deadline(0)]
    for now in (25, 50, 75):
        initial.take([added(A)], now)
        deadlines.append(initial.deadline(now))

    assert deadlines == [30, 55, 80, 105]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda: modified(B), id="modified"),
        pytest.param(lambda: deleted(B), id="deleted"),
        pytest.param(lambda: bookmark(9), id="bookmark"),
        pytest.param(lambda: initial_events_end(9, "false"), id="not-the-end"),
    ],
)
def test_patience_is_limited_after_any_other_event(
    other: Callable[[], WatchEvent],
) -> None:
    initial = InitialEvents()
    initial.take([added(A)], 100)
    initial.take([added(C), other()], 110)
    initial.take([added(A), other()], 120)

    assert initial.deadline(130) == 140
