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


def test_error_event_with_an_object_of_another_kind_says_so() -> None:
    event = WatchEvent(EventType.ERROR, KubeObject.of(pod("web-0", "shop")))

    with pytest.raises(DecodeError, match="a Pod shop/web-0 instead of a Status"):
        event.error()


def test_error_event_that_is_not_json_raises_decode_error() -> None:
    event = WatchEvent(EventType.ERROR, ObjectDecoder(NODES).decode(BROKEN))

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


# ---------------------------------------------------------------- making events


@pytest.mark.parametrize("kind", [EventType.MODIFIED, "MODIFIED"])
def test_an_event_is_made_of_its_type_and_a_mapping(kind: str) -> None:
    event = WatchEvent.of(kind, pod("a"))

    assert event == WatchEvent(EventType.MODIFIED, KubeObject.of(pod("a")))
    assert isinstance(event.type, EventType)


def test_an_object_is_taken_as_it_is() -> None:
    obj = KubeObject.of(pod("a"))

    assert WatchEvent.of("ADDED", obj).object is obj


def test_a_complete_event_stays_itself() -> None:
    event = WatchEvent.of("ADDED", pod("a"))

    assert WatchEvent.of(event) is event


def test_what_makes_no_event_is_refused() -> None:
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


def test_an_error_goes_into_an_event_and_comes_out_of_it() -> None:
    error = TooManyRequests(
        "slow down", status=429, reason="TooManyRequests", retry_after=7.0
    )

    event = WatchEvent.of_error(error)

    assert event.type is EventType.ERROR
    found = event.error()
    assert isinstance(found, TooManyRequests)
    assert str(found) == str(error)
    assert found.retry_after == 7.0


def test_the_details_of_an_error_go_with_it() -> None:
    details = {"name": "web", "retryAfterSeconds": 3}
    error = TooManyRequests("slow down", retry_after=1.0, details=details)

    found = WatchEvent.of_error(error).error()

    assert found.details == details
    assert details == {"name": "web", "retryAfterSeconds": 3}


def test_a_wait_that_no_status_has_room_for_is_a_long_one() -> None:
    error = TooManyRequests("slow down", retry_after=float("9" * 400))

    assert WatchEvent.of_error(error).error().retry_after == 2**31 - 1


@pytest.mark.parametrize("status", [STATUS, KubeObject.of(STATUS)])
def test_a_status_is_taken_as_it_is(status: KubeObject) -> None:
    assert WatchEvent.of_error(status).object == STATUS


# ---------------------------------------------------------------- what is shown


def test_shows_of_which_object_it_is_and_nothing_of_its_body() -> None:
    secret = {
        "kind": "Secret",
        "metadata": {"name": "key", "namespace": "shop", "resourceVersion": "7"},
        "data": {"password": "c2VzYW1l"},
    }

    assert (
        repr(WatchEvent.of("ADDED", secret)) == "<WatchEvent ADDED 'shop/key' rv='7'>"
    )


def test_shows_what_an_error_says() -> None:
    assert repr(WatchEvent.of_error(STATUS)) == "<WatchEvent ERROR 410 Expired>"
    assert repr(WatchEvent.of_error({})) == "<WatchEvent ERROR 0>"


def test_shows_an_error_that_is_not_json() -> None:
    event = WatchEvent(EventType.ERROR, ObjectDecoder(NODES).decode(BROKEN))

    assert repr(event) == "<WatchEvent ERROR unreadable>"
