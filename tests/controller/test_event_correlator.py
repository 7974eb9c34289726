"""`EventCorrelator`: equal events, series and due writes."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import orjson
import pytest
from compression_helpers import compressed
from conftest import pod

from aioinformer import KubeObject, Resource
from aioinformer.controller.event_correlator import (
    MAX_SERIES,
    QUIET_SECONDS,
    REFRESH_SECONDS,
    EventCorrelator,
    EventKey,
    EventSeries,
    ObjectReference,
    TooManyEvents,
    short_note,
)
from aioinformer.errors import OptionsError
from aioinformer.informer.store.transformer import Transformer
from aioinformer.model import transform_dict
from aioinformer.model.resources import DEPLOYMENTS, PODS
from aioinformer.watch.decoding import MetadataDecoder

PARTIAL = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)
POD = ObjectReference("v1", "Pod", "web-0", "shop", "u-1", "7")
REFERENCE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "namespace": "shop",
    "name": "web-0",
    "uid": "u-1",
    "resourceVersion": "7",
}


def failed(**other: Any) -> EventKey:
    fields: dict[str, Any] = {
        "regarding": POD,
        "type": "Warning",
        "reason": "FailedMount",
        "action": "MountVolume",
    }
    return EventKey(**{**fields, **other})


def noted(events: EventCorrelator, now: float, **other: Any) -> EventSeries | None:
    moment = NOON + timedelta(seconds=now)
    return events.add(failed(**other), f"at {now}", moment, now)


def first(events: EventCorrelator, now: float = 0, **other: Any) -> EventSeries:
    series = noted(events, now, **other)
    assert series is not None
    assert series.count == 1
    return series


def write(series: EventSeries) -> None:
    series.written = series.handled = series.count


# ---------------------------------------------------------------- what it is about


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(KubeObject.of, id="object"),
        pytest.param(lambda body: body, id="body"),
        pytest.param(lambda _: REFERENCE, id="reference"),
    ],
)
def test_reference_has_fields_of_object(obj: Any) -> None:
    body = pod("web-0", "shop", metadata={"uid": "u-1", "resourceVersion": "7"})

    reference = ObjectReference.to(obj(body))

    assert reference == POD
    assert reference.body() == REFERENCE


@pytest.mark.parametrize("change", ["none", "pickle", "transform", "compression"])
def test_metadata_only_object_is_referred_to_by_its_kind(change: str) -> None:
    metadata = {
        "name": "web",
        "namespace": "shop",
        "uid": "u",
        "annotations": {"note": "x" * 999},
    }
    body = {**PARTIAL, "metadata": metadata}
    obj: KubeObject | None = MetadataDecoder(DEPLOYMENTS).decode(orjson.dumps(body))
    assert obj is not None
    match change:
        case "pickle":
            obj = pickle.loads(pickle.dumps(obj))
        case "transform":
            transforming = Transformer()
            transforming.function = transform_dict(lambda it: it | {"more": 1})
            obj = transforming(obj)
        case "compression":
            obj = compressed(obj)
            assert obj.context.codec is not None
        case _:
            pass

    assert obj is not None
    assert obj.kind == "PartialObjectMetadata"
    assert obj.type_meta == {"apiVersion": "apps/v1", "kind": "Deployment"}
    assert ObjectReference.to(obj) == ObjectReference(
        "apps/v1", "Deployment", "web", "shop", "u"
    )


def test_object_type_precedes_that_of_resource() -> None:
    obj = KubeObject.of({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}})
    status = MetadataDecoder(PODS).decode(b'{"kind":"Status","apiVersion":"v1"}')

    assert obj.type_meta == {"apiVersion": "v1", "kind": "Pod"}
    assert status.type_meta == {"apiVersion": "v1", "kind": "Status"}


@pytest.mark.parametrize("as_dict", [True, False])
def test_metadata_only_object_of_unknown_kind_is_refused(as_dict: bool) -> None:
    widgets = Resource.of("example.com/v1", "widgets")
    body = orjson.dumps({**PARTIAL, "metadata": {"name": "a"}})
    obj = MetadataDecoder(widgets).decode(body)

    with pytest.raises(
        OptionsError, match="PartialObjectMetadata has no kind of its own"
    ):
        ObjectReference.to(obj.to_dict() if as_dict else obj)


def test_reference_to_cluster_scoped_object_has_no_namespace() -> None:
    reference = ObjectReference.to(
        {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
    )

    assert reference.body() == {"apiVersion": "v1", "kind": "Node", "name": "node-1"}


@pytest.mark.parametrize("missing", ["apiVersion", "kind", "name"])
@pytest.mark.parametrize("null", [False, True])
def test_object_without_type_or_name_is_refused(missing: str, null: bool) -> None:
    instead = [missing] if null else []
    rest = {key: it for key, it in REFERENCE.items() if key != missing}

    with pytest.raises(OptionsError, match=rf"missing or invalid: {missing}\)$"):
        ObjectReference.to(rest | dict.fromkeys(instead, None))


def test_reference_has_field_path() -> None:
    part = {**REFERENCE, "fieldPath": "spec.containers{a}"}

    assert ObjectReference.to(part).body() == part


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "Secret", "metadata": {"name": "key"}, "data": {"a": "c2VjcmV0"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": None, "data": "c2VjcmV0"},
        {"apiVersion": "v1", "kind": "Secret", "name": 7, "data": "c2VjcmV0"},
        {**REFERENCE, "uid": 7},
    ],
)
def test_reference_error_hides_object(body: dict[str, Any]) -> None:
    with pytest.raises(OptionsError, match="missing or invalid: ") as caught:
        ObjectReference.to(body)

    assert "c2VjcmV0" not in str(caught.value)


def test_event_needs_object_or_mapping() -> None:
    with pytest.raises(OptionsError, match="not str"):
        ObjectReference.to("web-0")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"type": "Error"}, "'Normal' or 'Warning', not 'Error'"),
        ({"reason": ""}, "the reason of an event"),
        ({"reason": "x" * 129}, "the reason of an event"),
        ({"reason": "é" * 65}, "the reason of an event must have 1 to 128 bytes"),
        ({"action": ""}, "the action of an event"),
    ],
)
def test_invalid_event_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionsError, match=message):
        failed(**fields)


# ---------------------------------------------------------------- which are the same


def test_first_and_second_event_are_written_and_others_counted() -> None:
    events = EventCorrelator()
    series = first(events)
    write(series)

    assert noted(events, 1) is series
    write(series)
    assert [noted(events, now) for now in range(2, 9)] == [None] * 7
    assert (series.count, series.written) == (9, 2)
    assert events.unwritten() == [series]


def test_object_version_and_note_do_not_distinguish_events() -> None:
    events = EventCorrelator()
    series = first(events)
    newer = ObjectReference("v1", "Pod", "web-0", "shop", "u-1", "8")

    assert noted(events, 1, regarding=newer) is series
    assert series.note == "at 0"


@pytest.mark.parametrize(
    "other",
    [
        {"regarding": ObjectReference("v1", "Pod", "web-1", "shop", "u-1", "7")},
        {"regarding": ObjectReference("v1", "Pod", "web-0", "shop", "u-2", "7")},
        {"regarding": ObjectReference("v1", "Pod", "web-0", "other", "u-1", "7")},
        {"regarding": replace(POD, field_path="spec.containers{a}")},
        {"type": "Normal"},
        {"reason": "Unhealthy"},
        {"action": "Probe"},
        {"related": POD},
    ],
    ids=lambda other: "-".join(other),
)
def test_different_content_makes_different_series(other: dict[str, Any]) -> None:
    events = EventCorrelator()
    series = first(events)

    second = first(events, **other)

    assert second is not series
    assert second.name != series.name


# ---------------------------------------------------------------- what is due


def test_active_series_is_refreshed() -> None:
    events = EventCorrelator()
    series = first(events)
    written = []
    for now in range(0, 1800, 10):
        if now:
            noted(events, now)

        if events.due(now) or series.count == 2:
            assert series.count > series.written
            written.append(now)
            write(series)
            series.tried = now

    gaps = [later - now for now, later in pairwise(written[1:])]
    assert written[:2] == [10, 310]
    assert set(gaps) == {REFRESH_SECONDS}


def test_ended_series_is_written_with_final_count() -> None:
    events = EventCorrelator()
    series = first(events)
    noted(events, 1)
    write(series)
    noted(events, 2)

    assert events.due(2 + QUIET_SECONDS - 1) == [
        series
    ]  # the series continues, and is refreshed
    assert events.due(2 + QUIET_SECONDS) == [series]
    assert len(events) == 0
    assert events.due(2 + QUIET_SECONDS) == []
    assert first(events, 3 + QUIET_SECONDS) is not series


def test_single_event_is_forgotten_after_quiet_time() -> None:
    events = EventCorrelator()
    write(first(events))

    assert events.due(QUIET_SECONDS) == []
    assert len(events) == 0


def test_given_up_series_is_due_only_after_repeat() -> None:
    events = EventCorrelator()
    series = first(events)
    series.handled = series.count

    assert events.due(REFRESH_SECONDS) == []
    assert noted(events, REFRESH_SECONDS) is series
    series.handled, series.tried = series.count, REFRESH_SECONDS

    noted(events, REFRESH_SECONDS + 1)
    assert events.due(2 * REFRESH_SECONDS - 1) == []
    assert events.due(2 * REFRESH_SECONDS) == [series]


def test_too_many_series_are_refused_until_some_end() -> None:
    events = EventCorrelator()
    for number in range(MAX_SERIES):
        first(events, reason=f"R{number}")

    with pytest.raises(TooManyEvents):
        noted(events, 1, reason="more")

    assert noted(events, 1, reason="R0") is not None
    assert len(events.due(QUIET_SECONDS)) == MAX_SERIES
    first(events, QUIET_SECONDS, reason="more")
    assert len(events) == 2


# ---------------------------------------------------------------- what is written


def test_event_body_has_all_fields() -> None:
    related = ObjectReference("v1", "Secret", "key", "shop", "", "")
    series = EventSeries(failed(related=related), "no such volume", NOON, 0)

    body = series.body("example.com/mounter", "mounter-1")

    name = body["metadata"].pop("name")
    assert body == {
        "metadata": {"namespace": "shop"},
        "eventTime": "2026-08-01T12:00:00.000000Z",
        "type": "Warning",
        "reason": "FailedMount",
        "action": "MountVolume",
        "note": "no such volume",
        "regarding": REFERENCE,
        "related": {
            "apiVersion": "v1",
            "kind": "Secret",
            "namespace": "shop",
            "name": "key",
        },
        "reportingController": "example.com/mounter",
        "reportingInstance": "mounter-1",
    }
    prefix, _, unique = name.rpartition(".")
    assert prefix == "web-0"
    assert len(unique) == 16


def test_event_repeated_before_creation_is_created_as_series() -> None:
    series = EventSeries(failed(), "", NOON, 0)
    series.add(NOON + timedelta(seconds=1.5), 1.5)

    change = {"series": {"count": 2, "lastObservedTime": "2026-08-01T12:00:01.500000Z"}}
    assert series.change() == change
    assert series.body("a", "b")["series"] == change["series"]
    assert series.body("a", "b")["eventTime"] == "2026-08-01T12:00:00.000000Z"


@pytest.mark.parametrize(
    "name", ["system:node", "A", "x" * 250, "-a", "a..b", "a.-b", "a-.b"]
)
def test_invalid_object_name_is_not_part_of_event_name(name: str) -> None:
    regarding = ObjectReference("rbac/v1", "ClusterRole", name, "", "", "")
    series = EventSeries(failed(regarding=regarding), "", NOON, 0)

    assert series.name.startswith("event.")
    assert series.namespace == "default"


def test_long_note_is_cut_between_characters() -> None:
    assert short_note("é" * 512) == "é" * 512
    assert short_note("é" * 513) == "é" * 510 + "..."
    assert len(short_note("x" * 5000)) == 1024


def test_undecodable_note_is_readable() -> None:
    """The text is decoded with surrogates, such as a file name."""
    assert short_note("no \udcff here") == "no ? here"
