"""Events of a watch."""

from __future__ import annotations

import gc

import pytest
from conftest import pod

from aioinformer.errors import ApiError, DecodeError, ResourceExpired
from aioinformer.model.objects import KubeObject
from aioinformer.model.resources import NODES
from aioinformer.watch.decoding import ObjectDecoder
from aioinformer.watch.events import EventType, WatchEvent

STATUS = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": "too old resource version: 1 (2)",
    "reason": "Expired",
    "code": 410,
}


def test_types_are_what_is_on_the_wire() -> None:
    wire = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]

    assert list(EventType) == wire
    assert [EventType(it).name for it in wire] == wire


def test_error_event_is_turned_into_the_error_that_names_it() -> None:
    event = WatchEvent(EventType.ERROR, KubeObject.of(STATUS))

    error = event.error()

    assert isinstance(error, ResourceExpired)
    assert (error.status, error.reason) == (410, "Expired")
    assert error.message == "too old resource version: 1 (2)"


def test_error_event_that_says_nothing_is_an_error_all_the_same() -> None:
    error = WatchEvent(EventType.ERROR, KubeObject.of(b"{}")).error()

    assert type(error) is ApiError


def test_error_event_that_is_not_json_raises_decode_error() -> None:
    body = (
        b'{"metadata":{"name":"x","uid":"u","resourceVersion":"1","labels":{}},"data":'
    )
    event = WatchEvent(EventType.ERROR, ObjectDecoder(NODES).decode(body))

    with pytest.raises(DecodeError):
        event.error()


def test_events_are_equal_by_type_and_object() -> None:
    event = WatchEvent(EventType.ADDED, KubeObject.of(pod("a")))

    assert event == WatchEvent(EventType.ADDED, KubeObject.of(pod("a")))
    assert event != WatchEvent(EventType.MODIFIED, KubeObject.of(pod("a")))
    assert event != WatchEvent(EventType.ADDED, KubeObject.of(pod("b")))


def test_event_cannot_be_changed() -> None:
    event = WatchEvent(EventType.ADDED, KubeObject.of(pod("a")))

    with pytest.raises(AttributeError):
        event.type = EventType.DELETED  # type: ignore[misc]


def test_event_is_not_tracked_by_the_collector() -> None:
    assert not gc.is_tracked(WatchEvent(EventType.ADDED, KubeObject.of(pod("a"))))
