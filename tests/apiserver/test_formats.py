"""Formats of stored objects: whole, metadata and tables, and rejected options."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from conftest import pod

from aioinformer.errors import ApiError
from aioinformer.model.resource import Resource
from aioinformer.model.resources import PODS
from aioinformer_apiserver.serialization import formats
from aioinformer_apiserver.serialization.formats import (
    Format,
    encode_document,
    format_of,
)
from aioinformer_apiserver.storage.kinds import Kind, custom_kind
from aioinformer_apiserver.storage.storage import Change, StoredObject

WIDGETS = custom_kind(Resource("example.com", "v1", "widgets", "Widget"))
TYPED = Kind(resource=PODS)

AS = "application/json;g=meta.k8s.io;v=v1;as="
TABLE, PARTIAL = AS + "Table", AS + "PartialObjectMetadata"
PARTIALS = AS + "PartialObjectMetadataList"


def stored(name: str = "web", version: int = 7) -> StoredObject:
    return StoredObject.of(TYPED, pod(name, labels={"app": name}), version)


def widget() -> StoredObject:
    body = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "uid": "u", "labels": {"b": "2", "a": "1"}},
        "spec": {"size": 3},
    }
    return StoredObject.of(WIDGETS, body, 9)


def requested(
    accept: str, kind: Kind = TYPED, verb: str = "get", **query: str
) -> Format:
    return format_of(kind, {"Accept": accept}, query, verb=verb)


def shown_list(format_: Format, *objects: StoredObject) -> dict[str, Any]:
    pieces = format_.list({"resourceVersion": "8"}, objects)
    decoded: dict[str, Any] = json.loads(b"".join(pieces))
    return decoded


def row_of(format_: Format, it: StoredObject) -> Any:
    (row,) = json.loads(format_.object(it))["rows"]
    return row


# -------------------------------------------------------------------- whole


def test_whole_format_returns_stored_bytes() -> None:
    assert requested("").object(stored()) == stored().raw + b"\n"


def test_list_items_of_typed_kinds_omit_kind() -> None:
    found = shown_list(requested(""), stored())

    assert (found["kind"], found["apiVersion"]) == ("PodList", "v1")
    assert list(found["items"][0]) == ["metadata", "spec", "status"]


def test_whole_format_supports_yaml() -> None:
    shown = requested("application/yaml")

    assert shown.content_type == "application/yaml"
    assert yaml.safe_load(shown.object(stored())) == stored().body()


# -------------------------------------------------------------------- metadata


def test_metadata_format_keeps_order_of_typed_object() -> None:
    text = requested(PARTIAL).object(stored()).decode()

    metadata = json.dumps(stored().body()["metadata"], separators=(",", ":"))
    head = '{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"'
    assert text == f'{head},"metadata":{metadata}}}\n'


def test_metadata_format_uses_typed_order_for_custom_object() -> None:
    found = json.loads(requested(PARTIAL, WIDGETS).object(widget()))

    assert list(found["metadata"]) == ["name", "uid", "resourceVersion", "labels"]
    assert list(found["metadata"]["labels"]) == ["a", "b"]


def test_metadata_list_items_have_kind() -> None:
    found = shown_list(requested(PARTIALS, verb="list"), stored("a"), stored("b"))

    assert found["kind"] == "PartialObjectMetadataList"
    assert found["metadata"] == {"resourceVersion": "8"}
    assert [list(it) for it in found["items"]] == [
        ["kind", "apiVersion", "metadata"]
    ] * 2


def test_empty_metadata_list_has_null_items() -> None:
    assert shown_list(requested(PARTIALS, verb="list"))["items"] is None


def test_metadata_format_rejects_object_for_list() -> None:
    with pytest.raises(ApiError) as caught:
        requested(PARTIAL, verb="list").list({}, [])

    assert caught.value.status == 406
    assert caught.value.message == (
        "you requested PartialObjectMetadata, but the requested object is a list "
        "(*core.PodList)"
    )


def test_metadata_format_rejects_list_for_object() -> None:
    with pytest.raises(ApiError) as caught:
        requested(PARTIALS, WIDGETS).object(widget())

    assert caught.value.message == (
        "you requested PartialObjectMetadataList, but the requested object is not a "
        "list (*unstructured.Unstructured)"
    )


def test_watch_with_metadata_list_is_rejected() -> None:
    with pytest.raises(ApiError) as caught:
        requested(PARTIALS, verb="watch")

    assert caught.value.status == 406


# -------------------------------------------------------------------- tables


def test_table_of_object_has_its_version() -> None:
    found = json.loads(requested(TABLE).object(stored()))

    assert (found["kind"], found["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert found["metadata"] == {"resourceVersion": "7"}
    assert [it["name"] for it in found["columnDefinitions"]][:2] == ["Name", "Ready"]
    assert found["rows"][0]["cells"][:3] == ["web", "0/1", "Running"]


def test_table_of_unstored_object_has_no_version() -> None:
    assert json.loads(requested(TABLE).object(stored(version=0)))["metadata"] == {}


def test_list_is_one_table() -> None:
    found = shown_list(requested(TABLE, verb="list"), stored("a"), stored("b"))

    assert found["metadata"] == {"resourceVersion": "8"}
    assert [row["cells"][0] for row in found["rows"]] == ["a", "b"]


def test_empty_table_has_columns() -> None:
    found = shown_list(requested(TABLE, verb="list"))

    assert found["rows"] == []
    assert len(found["columnDefinitions"]) == 9


@pytest.mark.parametrize("include", ["", "Metadata"])
def test_table_row_includes_metadata(include: str) -> None:
    row = row_of(requested(TABLE, includeObject=include), stored())

    assert row["object"] == json.loads(requested(PARTIAL).object(stored()))


def test_table_row_can_include_object() -> None:
    shown = requested(TABLE, includeObject="Object")

    assert row_of(shown, stored())["object"] == stored().body()


def test_table_row_can_include_nothing() -> None:
    assert row_of(requested(TABLE, includeObject="None"), stored())["object"] is None


def test_table_row_marks_completed_pod() -> None:
    over = StoredObject.of(TYPED, pod("web", status={"phase": "Succeeded"}), 7)

    row = row_of(requested(TABLE), over)

    assert list(row) == ["cells", "conditions", "object"]
    assert row["conditions"][0]["reason"] == "Succeeded"


def test_table_rejects_invalid_include() -> None:
    shown = requested(TABLE, includeObject="other")

    with pytest.raises(ApiError) as caught:
        shown.object(stored())

    assert caught.value.status == 400
    assert caught.value.message == (
        'Unable to convert to Table as requested: includeObject: Invalid value: "other"'
        ": must be 'Metadata', 'Object', 'None', or empty"
    )


def test_watch_with_invalid_include_is_rejected() -> None:
    with pytest.raises(ApiError):
        requested(TABLE, verb="watch", includeObject="other")


# -------------------------------------------------------------------- watches


def reported(line: bytes) -> tuple[str, Any]:
    event = json.loads(line)
    return event["type"], event["object"]


@pytest.mark.parametrize("accept", ["", PARTIAL])
def test_initial_event_has_object_of_get(accept: str) -> None:
    event, shown = reported(requested(accept, verb="watch").initial(stored()))

    assert event == "ADDED"
    assert shown == json.loads(requested(accept).object(stored()))


def test_bookmark_of_whole_objects_has_version() -> None:
    line = requested("", WIDGETS, verb="watch").bookmark(9, initial_events_end=False)

    assert reported(line) == (
        "BOOKMARK",
        {
            "apiVersion": "example.com/v1",
            "kind": "Widget",
            "metadata": {"resourceVersion": "9"},
        },
    )


def test_table_watch_sends_columns_once() -> None:
    shown = requested(TABLE, verb="watch")
    change = Change(TYPED, 8, stored(), stored(version=8))

    lines = [
        shown.initial(stored()),
        shown.change("MODIFIED", change),
        shown.bookmark(9, initial_events_end=False),
    ]

    columns = [reported(line)[1]["columnDefinitions"] for line in lines]
    assert [it is None for it in columns] == [False, True, True]


@pytest.mark.parametrize("first", ["change", "bookmark"])
def test_table_watch_sends_columns_with_first_event(first: str) -> None:
    shown = requested(TABLE, verb="watch")
    change = Change(TYPED, 8, None, stored(version=8))

    if first == "change":
        line = shown.change("ADDED", change)
    else:
        line = shown.bookmark(9, initial_events_end=True)

    assert reported(line)[1]["columnDefinitions"] is not None
    assert reported(shown.change("ADDED", change))[1]["columnDefinitions"] is None


def test_change_is_encoded_once_for_all_watches_of_format() -> None:
    change = Change(TYPED, 8, stored(), stored(version=8))

    for accept in ("", PARTIAL):
        one, two = (requested(accept, verb="watch") for _ in range(2))
        assert one.change("MODIFIED", change) is two.change("MODIFIED", change)


def test_table_row_shows_current_age(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = pod("web")
    body["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    change = Change(TYPED, 7, None, StoredObject.of(TYPED, body, 7))
    ages = []
    for hour in (1, 2):
        now = datetime(2026, 1, 1, hour, tzinfo=UTC)
        monkeypatch.setattr(formats, "datetime", Mock(now=lambda tz, now=now: now))
        _, table = reported(requested(TABLE, verb="watch").change("ADDED", change))
        ages.append(table["rows"][0]["cells"][4])

    assert ages == ["60m", "120m"]


def test_formats_do_not_share_encoded_changes() -> None:
    change = Change(TYPED, 8, stored(), stored(version=8))
    found = [
        requested("", verb="watch"),
        requested(PARTIAL, verb="watch"),
        requested(PARTIAL.replace("v1", "v1beta1"), verb="watch"),
        requested(TABLE, verb="watch"),
        requested(TABLE.replace("v1", "v1beta1"), verb="watch"),
        requested(TABLE, verb="watch", includeObject="None"),
        requested(TABLE, verb="watch", includeObject="Object"),
    ]

    lines = {format_.change("MODIFIED", change) for format_ in found}
    assert len(lines) == len(found)


@pytest.mark.parametrize("accept", [PARTIAL, TABLE])
def test_deletion_event_has_last_state_at_own_version(accept: str) -> None:
    change = Change(TYPED, 12, stored(version=7), None)

    event, shown = reported(requested(accept, verb="watch").change("DELETED", change))

    row = shown["rows"][0]["object"] if accept == TABLE else shown
    assert event == "DELETED"
    assert (row["metadata"]["name"], row["metadata"]["resourceVersion"]) == (
        "web",
        "12",
    )
    assert shown["metadata"]["resourceVersion"] == "12"


def test_bookmark_of_metadata_has_version() -> None:
    line = requested(PARTIAL, verb="watch").bookmark(9, initial_events_end=True)

    event, shown = reported(line)
    assert event == "BOOKMARK"
    assert shown["kind"] == "PartialObjectMetadata"
    assert shown["metadata"]["resourceVersion"] == "9"
    assert shown["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_table_bookmark_is_row_of_empty_object() -> None:
    line = requested(TABLE, WIDGETS, verb="watch").bookmark(9, initial_events_end=False)

    _, shown = reported(line)
    assert shown["metadata"] == {"resourceVersion": "9"}
    assert shown["rows"][0]["cells"] == ["", None]
    assert shown["rows"][0]["object"]["metadata"] == {"resourceVersion": "9"}


# -------------------------------------------------------------------- choice


def test_router_of_typed_kinds_rejects_wildcards() -> None:
    with pytest.raises(ApiError, match="406: Not Acceptable"):
        requested("application/*", verb="list")


def test_custom_kinds_accept_wildcards() -> None:
    assert requested("application/*", WIDGETS).object(widget()) == widget().raw + b"\n"


@pytest.mark.parametrize(
    ("accept", "media", "text"),
    [
        ("", "application/json", '{"kind":"Status"}\n'),
        (TABLE, "application/json", '{\n  "kind": "Status"\n}'),
        ("text/html", "application/json", '{\n  "kind": "Status"\n}'),
        ("application/yaml", "application/yaml", "kind: Status\n"),
    ],
)
def test_status_falls_back_to_indented_json(accept: str, media: str, text: str) -> None:
    shown = encode_document({"kind": "Status"}, {"Accept": accept}, {})

    assert shown == (media, text.encode())
