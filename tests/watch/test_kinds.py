"""`KindCheck`: objects of another kind or API version are skipped."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import pod
from each_case import each_case
from json_helpers import nested, written

from aioinformer.errors import DecodeError
from aioinformer.model.resource import Resource
from aioinformer.model.resources import DEPLOYMENTS, NODES, PODS
from aioinformer.watch.decoding import ListSplitter, ObjectDecoder, StreamDecoder
from aioinformer.watch.kinds import KindCheck, type_of

WIDGETS = Resource("example.com", "v1", "widgets", "Widget")
UNKNOWN = Resource("example.com", "v1", "widgets")

TABLE = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "rows": []}


def called(kind: str | None, api_version: str | None, name: str = "a") -> Any:
    """Return a pod with another type; None leaves a field out."""
    body = pod(name, metadata={"resourceVersion": "99"})
    given = {"kind": kind, "apiVersion": api_version}
    rest = {key: it for key, it in body.items() if key not in given}
    return {key: it for key, it in given.items() if it is not None} | rest


# ---------------------------------------------------------------- types of objects


@each_case("style", ["compact", "spaced", "pretty", "escaped"])
@each_case(
    "body",
    [
        pytest.param({"kind": "Pod", "apiVersion": "v1", "x": 1}, id="built-in"),
        pytest.param({"apiVersion": "v1", "kind": "Pod", "x": 1}, id="custom"),
        pytest.param({"apiVersion": "v1", "kind": "Pod"}, id="nothing-else"),
        pytest.param(
            {"x": {"kind": "A"}, "apiVersion": "v1", "kind": "Pod"}, id="last"
        ),
        pytest.param({"kind": "Pod", "x": 1, "apiVersion": "v1"}, id="apart"),
    ],
)
def test_type_of_reads_fields_at_any_position(body: Any, style: str) -> None:
    assert type_of(written(body, style)) == ("Pod", "v1")


@each_case(
    "body, expected",
    [
        (b"{}", ("", "")),
        (b'{"kind":null,"apiVersion":null}', ("", "")),
        (b'{"kind":"Pod","metadata":{}}', ("Pod", "")),
        (b'{"apiVersion":"v1"}', ("", "v1")),
        (b'{"kind":"P\\u006fd","apiVersion":"v1","x":1}', ("Pod", "v1")),
        (b'{"metadata":{"kind":"A","apiVersion":"b"}}', ("", "")),
    ],
)
def test_type_of_returns_empty_strings_for_missing_fields(
    body: bytes, expected: tuple[str, str]
) -> None:
    assert type_of(body) == expected


@each_case(
    "body",
    [
        pytest.param(b'{"kind":"\xff","apiVersion":"v1","x":1}', id="not-utf8"),
        pytest.param(
            b'{"kind":"a\nb","apiVersion":"v1","x":1}', id="control-character"
        ),
        pytest.param(b'{"kind":7,"apiVersion":"v1"}', id="number"),
        pytest.param(b'{"x":' + nested() + b',"kind":7}', id="too-deep"),
        pytest.param(b"[]", id="array"),
    ],
)
def test_type_of_raises_decode_error_for_malformed_type(body: bytes) -> None:
    with pytest.raises(DecodeError):
        type_of(body)


def test_type_of_reads_type_after_deeply_nested_value() -> None:
    body = b'{"apiVersion":"v1","data":' + nested() + b',"kind":"Pod"}'

    assert type_of(body) == ("Pod", "v1")


@each_case(
    "resource, kind, api_version, passes",
    [
        (PODS, "Pod", "v1", True),
        (PODS, None, None, True),
        (PODS, "Pod", None, True),
        (PODS, None, "v1", True),
        (PODS, "Node", "v1", False),
        (PODS, "Pods", "v1", False),
        (PODS, "Pod", "v2", False),
        (PODS, "Pod", "core/v1", False),
        (PODS, None, "v2", False),
        (PODS, "Table", "meta.k8s.io/v1", False),
        (PODS, "PartialObjectMetadata", "meta.k8s.io/v1", False),
        (DEPLOYMENTS, "Deployment", "apps/v1", True),
        (DEPLOYMENTS, "Deployment", "apps/v1beta1", False),
        (DEPLOYMENTS, "Deployment", "extensions/v1", False),
        (UNKNOWN, "Widget", "example.com/v1", True),
        (UNKNOWN, "Anything", "example.com/v2", True),
        (UNKNOWN, "Table", "example.com/v1", True),
        (UNKNOWN, "Table", "meta.k8s.io/v1", False),
        (UNKNOWN, "Table", "meta.k8s.io/v1beta1", False),
    ],
)
@each_case("style", ["compact", "spaced"])
def test_kind_check_passes_only_requested_type(
    resource: Resource,
    kind: str | None,
    api_version: str | None,
    passes: bool,
    style: str,
) -> None:
    body = written(called(kind, api_version), style)

    assert KindCheck(resource).passes(body) is passes


# ---------------------------------------------------------------- in a watch


def watched(resource: Resource, *objects: Any, kind: str = "ADDED") -> list[Any]:
    """Return names and versions of the events, and the number of skipped ones."""
    decoder = StreamDecoder(ObjectDecoder(resource))
    lines = (written({"type": kind, "object": it}) for it in objects)
    events = decoder.feed(b"".join(it + b"\n" for it in lines))
    return [(it.object.name, it.object.resource_version) for it in events] + [
        decoder.skipped
    ]


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"])
def test_watch_skips_objects_of_other_type(kind: str) -> None:
    strangers = [
        called("Node", "v1"),
        called("Pod", "v2"),
        TABLE | {"metadata": {"name": "t", "resourceVersion": "99"}},
    ]

    found = watched(PODS, pod("a"), *strangers, pod("b"), kind=kind)

    assert found == [("a", "1"), ("b", "1"), 3]


def test_watch_accepts_objects_without_type() -> None:
    assert watched(PODS, called(None, None)) == [("a", "99"), 0]
    assert watched(NODES, called(None, "v1")) == [("a", "99"), 0]


def test_watch_of_unknown_kind_accepts_all_but_tables() -> None:
    table = TABLE | {"metadata": {"name": "t"}}

    assert watched(UNKNOWN, called("Any", "v7"), table) == [("a", "99"), 1]


@pytest.mark.parametrize("text", [b'{"type": %s, "object": %s}', b'{"object":%s}'])
def test_watch_skips_other_types_in_any_style(text: bytes) -> None:
    stranger = written(called("Node", "v1"))
    if text.startswith(b'{"object"'):
        text = b'{"object":%s,"type":"ADDED"}' % stranger
    else:
        text %= (b'"ADDED"', stranger)

    decoder = StreamDecoder(ObjectDecoder(PODS))

    assert decoder.feed(text + b"\n") == []
    assert decoder.skipped == 1


def test_kind_of_error_event_is_not_checked() -> None:
    decoder = StreamDecoder(ObjectDecoder(PODS))
    event = {"type": "ERROR", "object": called("Node", "v1")}

    (found,) = decoder.feed(written(event) + b"\n")

    with pytest.raises(DecodeError, match="Node default/a instead of a Status"):
        found.error()


# ---------------------------------------------------------------- in a list


AT_7 = {"resourceVersion": "7"}


def listed(resource: Resource, body: Any) -> list[Any]:
    splitter = ListSplitter(ObjectDecoder(resource))
    objects = splitter.feed(written(body)) + splitter.finish()
    return [it.name for it in objects] + [splitter.skipped]


def test_list_skips_items_of_other_type() -> None:
    items = [
        called("Pod", "v1", "a"),
        called("Node", "v1", "b"),
        called("Pod", "v2", "c"),
        called(None, None, "d"),
        TABLE | {"metadata": {"name": "e"}},
    ]
    body = {"kind": "PodList", "apiVersion": "v1", "metadata": AT_7, "items": items}

    assert listed(PODS, body) == ["a", "d", 3]


@each_case(
    "kind, api_version, message",
    [
        ("NodeList", "v1", "expected a list of v1 Pod, got v1 NodeList"),
        ("PodList", "v2", "expected a list of v1 Pod, got v2 PodList"),
        ("Table", "meta.k8s.io/v1", "expected a list of v1 Pod, got meta.k8s.io/v1 Ta"),
    ],
)
@each_case("type_last", [False, True])
def test_list_of_other_type_raises_decode_error(
    kind: str, api_version: str, message: str, type_last: bool
) -> None:
    head = {"kind": kind, "apiVersion": api_version, "metadata": AT_7}
    items = {"items": [pod("a")]}

    with pytest.raises(DecodeError, match=message):
        listed(PODS, items | head if type_last else head | items)


def test_list_of_unknown_kind_rejects_table() -> None:
    with pytest.raises(DecodeError, match="not a list: Table"):
        listed(UNKNOWN, TABLE)

    with pytest.raises(
        DecodeError, match=r"expected a list of example\.com/v1 widgets"
    ):
        listed(UNKNOWN, TABLE | {"items": [pod("a")]})


def test_items_of_list_without_kind_are_checked() -> None:
    items = [called("Deployment", "apps/v1", "a"), called("Pod", "v1", "b")]
    body = {"kind": "List", "apiVersion": "v1", "metadata": AT_7, "items": items}

    assert listed(DEPLOYMENTS, body) == ["a", 1]


def test_untyped_item_of_list_without_kind_is_accepted() -> None:
    items = [called(None, None)]
    body = {"kind": "List", "apiVersion": "v1", "metadata": AT_7, "items": items}
    splitter = ListSplitter(ObjectDecoder(DEPLOYMENTS))

    (found,) = splitter.feed(written(body)) + splitter.finish()

    assert (found.kind, found.api_version) == ("Deployment", "apps/v1")
