"""Events of a watch."""

from __future__ import annotations

import gc

import pytest
from conftest import pod

from aioinformer.errors import (
    ApiError,
    DecodeError,
    OptionsError,
    ResourceExpired,
    TooManyRequests,
)
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

# Read up to its head only.
BROKEN = b'{"metadata":{"name":"x","uid":"u","resourceVersion":"1","labels":{}},"data":'


def test_event_types_have_values_of_the_api() -> None:
    wire = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]

    assert list(EventType) == wire
    assert [EventType(it).name for it in wire] == wire


def test_error_event_becomes_matching_error() -> None:
    event = WatchEvent(EventType.ERROR, KubeObject.of(STATUS))

    error = event.error()

    assert isinstance(error, ResourceExpired)
    assert (error.status, error.reason) == (410, "Expired")
    assert error.message == "too old resource version: 1 (2)"


def test_empty_error_event_becomes_error() -> None:
    error = WatchEvent(EventType.ERROR, KubeObject.of(b"{}")).error()

    assert type(error) is ApiError


def test_error_event_with_other_object_names_its_kind() -> None:
    event = WatchEvent(EventType.ERROR, KubeObject.of(pod("web-0", "shop")))

    with pytest.raises(DecodeError, match="a Pod shop/web-0 instead of a Status"):
        event.error()


def test_error_event_that_is_not_json_raises_decode_error() -> None:
    event = WatchEvent(EventType.ERROR, ObjectDecoder(NODES).decode(BROKEN))

    with pytest.raises(DecodeError):
        event.error()


def test_events_with_equal_type_and_object_are_equal() -> None:
    event = WatchEvent(EventType.ADDED, KubeObject.of(pod("a")))

    assert event == WatchEvent(EventType.ADDED, KubeObject.of(pod("a")))
    assert event != WatchEvent(EventType.MODIFIED, KubeObject.of(pod("a")))
    assert event != WatchEvent(EventType.ADDED, KubeObject.of(pod("b")))


def test_event_is_immutable() -> None:
    event = WatchEvent(EventType.ADDED, KubeObject.of(pod("a")))

    with pytest.raises(AttributeError):
        event.type = EventType.DELETED  # type: ignore[misc]


def test_event_is_not_tracked_by_garbage_collector() -> None:
    assert not gc.is_tracked(WatchEvent(EventType.ADDED, KubeObject.of(pod("a"))))


# ---------------------------------------------------------------- making events


@pytest.mark.parametrize("kind", [EventType.MODIFIED, "MODIFIED"])
def test_watch_event_of_type_and_mapping(kind: str) -> None:
    event = WatchEvent.of(kind, pod("a"))

    assert event == WatchEvent(EventType.MODIFIED, KubeObject.of(pod("a")))
    assert isinstance(event.type, EventType)


def test_watch_event_of_object_keeps_it() -> None:
    obj = KubeObject.of(pod("a"))

    assert WatchEvent.of("ADDED", obj).object is obj


def test_watch_event_of_event_returns_it() -> None:
    event = WatchEvent.of("ADDED", pod("a"))

    assert WatchEvent.of(event) is event


def test_watch_event_of_rejects_invalid_arguments() -> None:
    event = WatchEvent.of("ADDED", pod("a"))

    with pytest.raises(
        OptionsError, match=r"unknown event type 'added' .* ADDED, MODIFIED"
    ):
        WatchEvent.of("added", pod("a"))

    with pytest.raises(OptionsError, match="missing"):
        WatchEvent.of("ADDED")

    with pytest.raises(OptionsError, match=r"type or object is missing$"):
        WatchEvent.of(pod("a"))  # type: ignore[arg-type]

    with pytest.raises(OptionsError, match="has an object"):
        WatchEvent.of(event, pod("a"))


def test_error_survives_conversion_to_event_and_back() -> None:
    error = TooManyRequests(
        "slow down", status=429, reason="TooManyRequests", retry_after=7.0
    )

    event = WatchEvent.of_error(error)

    assert event.type is EventType.ERROR
    found = event.error()
    assert isinstance(found, TooManyRequests)
    assert str(found) == str(error)
    assert found.retry_after == 7.0


def test_error_details_survive_conversion_to_event() -> None:
    details = {"name": "web", "retryAfterSeconds": 3}
    error = TooManyRequests("slow down", retry_after=1.0, details=details)

    found = WatchEvent.of_error(error).error()

    assert found.details == details
    assert details == {"name": "web", "retryAfterSeconds": 3}


def test_huge_retry_after_is_capped_in_status() -> None:
    error = TooManyRequests("slow down", retry_after=float("9" * 400))

    assert WatchEvent.of_error(error).error().retry_after == 2**31 - 1


@pytest.mark.parametrize("status", [STATUS, KubeObject.of(STATUS)])
def test_watch_event_of_error_accepts_status(status: KubeObject) -> None:
    assert WatchEvent.of_error(status).object == STATUS


# ---------------------------------------------------------------- what is shown


def test_event_repr_names_object_and_hides_body() -> None:
    secret = {
        "kind": "Secret",
        "metadata": {"name": "key", "namespace": "shop", "resourceVersion": "7"},
        "data": {"password": "c2VzYW1l"},
    }

    assert (
        repr(WatchEvent.of("ADDED", secret)) == "<WatchEvent ADDED 'shop/key' rv='7'>"
    )


def test_event_repr_shows_code_and_reason_of_error() -> None:
    assert repr(WatchEvent.of_error(STATUS)) == "<WatchEvent ERROR 410 Expired>"
    assert repr(WatchEvent.of_error({})) == "<WatchEvent ERROR 0>"


def test_event_repr_of_malformed_error() -> None:
    event = WatchEvent(EventType.ERROR, ObjectDecoder(NODES).decode(BROKEN))

    assert repr(event) == "<WatchEvent ERROR unreadable>"
