"""`MetadataDecoder`: objects with metadata only."""

from __future__ import annotations

import json
from typing import Any

import pytest
from each_case import each_case

from aioinformer.errors import DecodeError
from aioinformer.model import Resource
from aioinformer.model.resources import PODS
from aioinformer.watch.decoding import (
    ListSplitter,
    MetadataDecoder,
    MetadataKinds,
    StreamDecoder,
)

PARTIAL = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
METADATA = {
    "name": "web",
    "namespace": "shop",
    "uid": "u1",
    "resourceVersion": "7",
    "labels": {"app": "web"},
}


def written(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def line(kind: str, content: Any) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), written(content))


def test_metadata_decoder_keeps_metadata_unchanged() -> None:
    body = written(PARTIAL | {"metadata": METADATA})

    found = MetadataDecoder(PODS).decode(body)

    assert found.raw == body
    assert (found.key, found.uid, found.resource_version) == ("shop/web", "u1", "7")
    assert dict(found.labels) == {"app": "web"}
    assert (found.kind, found.api_version) == tuple(PARTIAL.values())


@pytest.mark.parametrize(
    "whole",
    [
        {"kind": "Pod", "apiVersion": "v1", "metadata": METADATA, "spec": {"a": 1}},
        {"apiVersion": "v1", "kind": "Pod", "spec": {"a": 1}, "metadata": METADATA},
        {"metadata": METADATA, "status": {"big": "x" * 1000}},
    ],
    ids=["kind-first", "version-first", "untyped"],
)
def test_metadata_decoder_reduces_whole_object(whole: dict[str, Any]) -> None:
    found = MetadataDecoder(PODS).decode(written(whole))

    assert json.loads(found.raw) == PARTIAL | {"metadata": METADATA}
    assert found.key == "shop/web"


@pytest.mark.parametrize("rest", [b"", b',"metadata":{}', b',"metadata":null'])
def test_metadata_decoder_accepts_object_without_metadata(rest: bytes) -> None:
    found = MetadataDecoder(PODS).decode(b'{"kind":"Pod","apiVersion":"v1"%s}' % rest)

    assert found.key == ""
    assert not json.loads(found.raw)["metadata"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"kind":"Pod","apiVersion":"v1","metadata":{',
        b'{"metadata":1}',
        b"[]",
        b"\xff",
    ],
)
def test_unreadable_metadata_raises_decode_error(body: bytes) -> None:
    with pytest.raises(DecodeError):
        MetadataDecoder(PODS).decode(body)


@each_case(
    "kind, api_version, passes",
    [
        ("PartialObjectMetadata", "meta.k8s.io/v1", True),
        ("PartialObjectMetadata", "meta.k8s.io/v1beta1", False),
        ("Pod", "v1", True),
        ("", "", True),
        ("Node", "v1", False),
        ("Table", "meta.k8s.io/v1", False),
    ],
)
def test_metadata_kinds_allow_metadata_and_whole_objects(
    kind: str, api_version: str, *, passes: bool
) -> None:
    kinds = MetadataKinds(PODS)
    body = written({"kind": kind, "apiVersion": api_version, "metadata": METADATA})

    assert kinds.allows(kind, api_version) == passes
    assert kinds.passes(body) == passes


def test_metadata_kinds_of_unknown_kind_allow_all_but_tables() -> None:
    kinds = MetadataKinds(Resource.of("example.com/v1", "widgets"))

    assert kinds.allows("PartialObjectMetadata", "meta.k8s.io/v1")
    assert kinds.allows("Widget", "example.com/v1")
    assert not kinds.allows("Table", "meta.k8s.io/v1")


# ---------------------------------------------------------------- lists, streams


@pytest.mark.parametrize(
    ("head", "item"),
    [
        (
            {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"},
            PARTIAL | {"metadata": METADATA},
        ),
        (
            {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"},
            {"metadata": METADATA},
        ),
        ({"kind": "PodList", "apiVersion": "v1"}, {"metadata": METADATA, "spec": {}}),
    ],
    ids=["metadata", "untyped-metadata", "whole"],
)
def test_metadata_decoder_reads_lists_of_both_forms(
    head: dict[str, str], item: dict[str, Any]
) -> None:
    splitter = ListSplitter(MetadataDecoder(PODS))
    body = written(head | {"metadata": {"resourceVersion": "9"}, "items": [item]})

    found = splitter.feed(body) + splitter.finish()

    assert [json.loads(it.raw) for it in found] == [PARTIAL | {"metadata": METADATA}]
    assert (splitter.resource_version, splitter.skipped) == ("9", 0)


def test_metadata_list_of_other_kind_raises() -> None:
    splitter = ListSplitter(MetadataDecoder(PODS))

    with pytest.raises(DecodeError, match="expected a list"):
        splitter.feed(b'{"kind":"NodeList","apiVersion":"v1","items":[')


def test_metadata_stream_with_error_event_is_read() -> None:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "code": 410,
        "reason": "Expired",
    }
    stream = StreamDecoder(MetadataDecoder(PODS))

    events = stream.feed(
        line("ADDED", PARTIAL | {"metadata": METADATA})
        + line("MODIFIED", {"kind": "Pod", "apiVersion": "v1", "metadata": METADATA})
        + line("ADDED", {"kind": "Node", "apiVersion": "v1", "metadata": METADATA})
        + line("BOOKMARK", PARTIAL | {"metadata": {"resourceVersion": "8"}})
        + line("ERROR", status)
    )

    assert [it.type.value for it in events] == [
        "ADDED",
        "MODIFIED",
        "BOOKMARK",
        "ERROR",
    ]
    assert events[1].object["kind"] == "PartialObjectMetadata"
    assert events[3].object["code"] == 410
    assert stream.skipped == 1
