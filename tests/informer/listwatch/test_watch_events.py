"""`to_changes`: duplicates, history resets, and versions of all kinds."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from fake_source import added, bookmark, deleted, error_event, modified, thing
from hypothesis import given
from hypothesis import strategies as st

from aioinformer.errors import (
    DecodeError,
    HistoryReset,
    ResourceExpired,
)
from aioinformer.informer.listwatch.watch_events import WatchChanges, to_changes
from aioinformer.model import KubeObject
from aioinformer.watch import EventType, WatchEvent

if TYPE_CHECKING:
    from collections.abc import Callable


def nothing(_: str) -> None:
    return None


def knows(*objects: KubeObject) -> Callable[[str], KubeObject | None]:
    return {obj.key: obj for obj in objects}.get


def changes(result: WatchChanges) -> list[str]:
    return [
        f"{delta.type} {delta.object.name}@{delta.object.resource_version}"
        for delta in result.deltas
    ]


def test_events_become_changes_in_their_order() -> None:
    events = [
        added(thing("a", 5)),
        modified(thing("b", 6)),
        deleted(thing("a", 7)),
        bookmark(9),
    ]

    result = to_changes(events, "4", nothing)

    assert changes(result) == ["Added a@5", "Updated b@6", "Deleted a@7"]
    assert (result.version, result.duplicates, result.error) == ("9", 0, None)


def test_no_events_cause_no_change() -> None:
    assert to_changes([], "4", nothing) == WatchChanges([], "4")


def test_bookmark_of_the_last_version_is_normal() -> None:
    result = to_changes([bookmark(4), bookmark(4)], "4", nothing)

    assert result == WatchChanges([], "4")


def test_bookmark_below_the_last_version_resets_the_history() -> None:
    result = to_changes([added(thing("a", 5)), bookmark(4)], "3", nothing)

    assert changes(result) == ["Added a@5"]
    assert result.version == "5"
    assert isinstance(result.error, HistoryReset)
    assert "BOOKMARK event of version 4 is older than version 5" in str(result.error)


@pytest.mark.parametrize("kind", [added, modified])
def test_event_that_repeats_the_known_state_is_a_duplicate(
    kind: Callable[[KubeObject], WatchEvent],
) -> None:
    known = thing("a", 3)

    result = to_changes([kind(thing("a", 3)), added(thing("b", 6))], "5", knows(known))

    assert changes(result) == ["Added b@6"]
    assert (result.version, result.duplicates, result.error) == ("6", 1, None)


@pytest.mark.parametrize(
    ("known", "event"),
    [
        pytest.param([], added(thing("a", 5)), id="unknown-object"),
        pytest.param([thing("a", 3)], modified(thing("a", 4)), id="newer-state"),
        pytest.param([thing("a", 5)], modified(thing("a", 4)), id="older-state"),
        pytest.param([thing("a", 4)], modified(thing("a", 4, "u2")), id="other-uid"),
        pytest.param([], deleted(thing("a", 5)), id="unknown-deleted"),
        pytest.param([thing("a", 3)], deleted(thing("a", 4)), id="deleted-in-the-past"),
    ],
)
def test_other_event_not_above_the_last_version_resets_the_history(
    known: list[KubeObject], event: WatchEvent
) -> None:
    result = to_changes([event, added(thing("b", 9))], "5", knows(*known))

    assert not result.deltas
    assert result.version == "5"
    assert isinstance(result.error, HistoryReset)


def test_deletion_with_the_last_version_of_its_object_is_applied() -> None:
    known = thing("a", 3)

    result = to_changes([deleted(thing("a", 3)), bookmark(5)], "5", knows(known))

    assert changes(result) == ["Deleted a@3"]
    assert (result.version, result.duplicates, result.error) == ("5", 0, None)


def test_event_that_repeats_a_deleted_state_resets_the_history() -> None:
    events = [deleted(thing("a", 6)), modified(thing("a", 6))]

    result = to_changes(events, "5", knows(thing("a", 5)))

    assert changes(result) == ["Deleted a@6"]
    assert isinstance(result.error, HistoryReset)


def test_event_that_is_left_out_moves_the_version_only() -> None:
    events = [added(thing("a", 5)), added(thing("b", 6)), deleted(thing("b", 8))]

    result = to_changes(events, "4", nothing, lambda obj, version: obj.name == "b")

    assert changes(result) == ["Added a@5"]
    assert (result.version, result.left_out, result.error) == ("8", 2, None)


def test_event_that_is_left_out_at_the_last_version_changes_nothing() -> None:
    result = to_changes([modified(thing("a", 4))], "4", nothing, lambda *_: True)

    assert (result.version, result.left_out, result.error) == ("4", 1, None)


def test_event_that_is_left_out_below_the_last_version_resets_the_history() -> None:
    result = to_changes([modified(thing("a", 3))], "4", nothing, lambda *_: True)

    assert isinstance(result.error, HistoryReset)


def test_nondecimal_versions_are_not_compared() -> None:
    events = [
        added(thing("a", "z9")),
        modified(thing("a", "a1")),
        bookmark("m"),
        modified(thing("a", "")),
    ]

    result = to_changes(events, "zzz", nothing)

    assert changes(result) == ["Added a@z9", "Updated a@a1", "Updated a@"]
    assert (result.version, result.error) == ("m", None)


def test_repeated_initial_event_does_not_change_the_version() -> None:
    events = [added(thing("a", "x")), added(thing("b", "y"))]

    result = to_changes(events, "", knows(thing("a", "x")))

    assert changes(result) == ["Added b@y"]
    assert (result.version, result.duplicates, result.error) == ("", 1, None)


def test_repeated_versions_that_are_not_decimal_are_duplicates() -> None:
    events = [
        added(thing("a", "x")),
        added(thing("b", "y")),
        modified(thing("b", "y")),
        deleted(thing("b", "y")),
    ]

    result = to_changes(events, "w", knows(thing("a", "x")))

    assert changes(result) == ["Added b@y", "Deleted b@y"]
    assert (result.version, result.duplicates, result.error) == ("y", 2, None)


def test_nondecimal_version_restarts_the_comparison() -> None:
    events = [
        added(thing("a", 5)),
        added(thing("b", "x")),
        added(thing("c", 4)),
        added(thing("d", 3)),
    ]

    result = to_changes(events, "3", nothing)

    assert changes(result) == ["Added a@5", "Added b@x", "Added c@4"]
    assert isinstance(result.error, HistoryReset)


def test_versions_are_compared_as_numbers() -> None:
    result = to_changes([added(thing("a", 10))], "9", nothing)

    assert (changes(result), result.version) == (["Added a@10"], "10")


def test_error_event_ends_the_watch_after_earlier_changes() -> None:
    events = [added(thing("a", 5)), error_event(410, "Expired"), added(thing("b", 6))]

    result = to_changes(events, "4", nothing)

    assert changes(result) == ["Added a@5"]
    assert result.version == "5"
    assert isinstance(result.error, ResourceExpired)


def test_unreadable_error_event_is_a_decode_error() -> None:
    broken = KubeObject(b"{", "", "", "", {}, thing("a").context)

    result = to_changes(
        [added(thing("a", 5)), WatchEvent(EventType.ERROR, broken)], "4", nothing
    )

    assert changes(result) == ["Added a@5"]
    assert result.version == "5"
    assert isinstance(result.error, DecodeError)


def test_bookmark_without_a_version_is_ignored() -> None:
    assert to_changes([bookmark("")], "4", nothing) == WatchChanges([], "4")


@pytest.mark.parametrize("version", ["", "0"])
def test_watch_without_a_version_starts_with_objects_in_any_order(version: str) -> None:
    events = [
        added(thing("a", 9)),
        added(thing("b", 3)),
        added(thing("c", 5)),
        bookmark(9),
        added(thing("d", 10)),
    ]

    result = to_changes(events, version, knows(thing("b", 3)))

    assert changes(result) == ["Added a@9", "Added c@5", "Added d@10"]
    assert (result.version, result.duplicates, result.error) == ("10", 1, None)


@pytest.mark.parametrize("version", ["", "0"])
def test_first_objects_of_a_watch_without_a_version_do_not_set_the_version(
    version: str,
) -> None:
    result = to_changes([added(thing("a", 9)), added(thing("b", 3))], version, nothing)

    assert changes(result) == ["Added a@9", "Added b@3"]
    assert (result.version, result.error) == (version, None)


def test_versions_are_compared_from_the_first_change_on() -> None:
    events = [added(thing("a", 9)), modified(thing("b", 10)), added(thing("c", 4))]

    result = to_changes(events, "0", nothing)

    assert changes(result) == ["Added a@9", "Updated b@10"]
    assert result.version == "10"
    assert isinstance(result.error, HistoryReset)


# ---------------------------------------------------------------- batching

EVENTS = st.builds(
    lambda kind, name, version: (
        bookmark(version) if kind is bookmark else kind(thing(name, version))
    ),
    st.sampled_from([added, modified, deleted, bookmark]),
    st.sampled_from("ab"),
    st.sampled_from([1, 2, 3, 4, 5, 6, "", "x"]),
)


@given(st.lists(EVENTS, max_size=8), st.sampled_from(["2", "0", ""]), st.data())
def test_batching_of_events_does_not_change_the_result(
    events: list[WatchEvent], version: str, data: st.DataObject
) -> None:
    cuts = data.draw(st.sets(st.integers(0, len(events))))

    whole = outcome([events], version)
    in_pieces = outcome(
        [
            events[start:end]
            for start, end in itertools.pairwise([0, *sorted(cuts), len(events)])
        ],
        version,
    )

    assert in_pieces == whole


def outcome(batches: list[list[WatchEvent]], version: str) -> tuple[object, ...]:
    """Return the objects and the version of a store after these batches of a watch."""
    objects = {"default/a": thing("a", 2)}
    duplicates = 0
    seen: list[str] = []
    for batch in batches:
        result = to_changes(batch, version, objects.get)
        seen += changes(result)
        version = result.version
        duplicates += result.duplicates
        for delta in result.deltas:
            if delta.type == "Deleted":
                objects.pop(delta.object.key, None)
            else:
                objects[delta.object.key] = delta.object

        if result.error is not None:
            return seen, version, duplicates, str(result.error)

    return seen, version, duplicates, ""
