"""Decoding list bodies."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from conftest import pod
from each_case import each_case
from json_helpers import calls_of, nested, pieces_of, written

from aioinformer.errors import DecodeError
from aioinformer.model.resource import Resource
from aioinformer.model.resources import PODS
from aioinformer.watch.decoding import ListSplitter, ObjectDecoder

FOOS = Resource("example.com", "v1", "foos", "Foo")
STATUS = {"kind": "Status", "code": 410, "reason": "Expired", "metadata": {}}


def pod_list(**fields: Any) -> dict[str, Any]:
    """Return a list of pods as servers write it, without types of the items."""
    items = [pod("a"), pod("b"), pod("c")]
    for item in items:
        del item["apiVersion"], item["kind"]

    return {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "7", "continue": "next"},
        "items": items,
        **fields,
    }


def split(
    body: bytes, size: int = 0, resource: Resource = PODS
) -> tuple[list[Any], ListSplitter]:
    splitter = ListSplitter(ObjectDecoder(resource))
    objects = [
        obj
        for piece in pieces_of(body, size or len(body) or 1)
        for obj in splitter.feed(piece)
    ]
    objects += splitter.finish()
    return [it.to_dict() for it in objects], splitter


def test_list_splitter_reads_objects_and_version() -> None:
    splitter = ListSplitter(ObjectDecoder(PODS))

    objects = splitter.feed(written(pod_list())) + splitter.finish()

    assert [it.key for it in objects] == ["default/a", "default/b", "default/c"]
    assert [it.to_dict() for it in objects] == [pod("a"), pod("b"), pod("c")]
    assert [(it.api_version, it.kind) for it in objects] == [("v1", "Pod")] * 3
    assert (splitter.resource_version, splitter.continue_token) == ("7", "next")
    assert splitter.skipped == 0


@pytest.mark.parametrize("size", [0, 1, 64])
@pytest.mark.parametrize(
    ("info", "selector"),
    [
        ({}, ""),
        ({"shardInfo": None}, ""),
        ({"shardInfo": {}}, ""),
        ({"shardInfo": {"selector": "shardRange(a)"}}, "shardRange(a)"),
    ],
    ids=str,
)
def test_list_splitter_reads_the_shard_selector(
    info: dict[str, Any], selector: str, size: int
) -> None:
    body = written(pod_list(metadata={"resourceVersion": "7", **info}))

    assert split(body, size)[1].shard_selector == selector


def test_raw_of_listed_object_starts_with_type() -> None:
    splitter = ListSplitter(ObjectDecoder(PODS))

    objects = splitter.feed(written(pod_list())) + splitter.finish()

    item = written(pod_list()["items"][0])
    assert objects[0].raw == b'{"apiVersion":"v1","kind":"Pod",' + item[1:]


def test_continue_token_is_known_with_first_bytes() -> None:
    splitter = ListSplitter(ObjectDecoder(PODS))
    body = written(pod_list())

    splitter.feed(body[: body.index(b'"items"') + 9])

    assert (splitter.resource_version, splitter.continue_token) == ("7", "next")


def test_list_splitter_returns_objects_as_they_arrive() -> None:
    splitter = ListSplitter(ObjectDecoder(PODS))
    body = written(pod_list())
    third = body.index(b'"name":"c"')

    first = splitter.feed(body[:third])
    rest = splitter.feed(body[third:])

    assert [it.name for it in first] == ["a", "b"]
    assert rest == []
    assert [it.name for it in splitter.finish()] == ["c"]


@each_case("style", ["compact", "spaced", "pretty"])
@each_case("size", [1, 50, 0])
def test_list_splitter_keeps_types_of_custom_objects(style: str, size: int) -> None:
    """Custom objects have a type, and their lists have it after the items."""
    items = [
        {"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": name}}
        for name in "abc"
    ]
    body = written(
        {
            "apiVersion": "example.com/v1",
            "items": items,
            "kind": "FooList",
            "metadata": {"continue": "next", "resourceVersion": "7"},
        },
        style,
    )

    found, splitter = split(body, size, FOOS)

    assert found == items
    assert (splitter.resource_version, splitter.continue_token) == ("7", "next")


def test_item_with_type_is_kept_unchanged() -> None:
    item = b'{ "kind" : "Pod", "apiVersion":"v1","metadata":{"name":"a"}}'
    splitter = ListSplitter(ObjectDecoder(PODS))
    head = b'{"kind":"List","metadata":{"resourceVersion":"7"},"items":['

    assert splitter.feed(head + item + b"]}") == []

    assert [it.raw for it in splitter.finish()] == [item]


@each_case(
    "resource, fields, types",
    [
        pytest.param(PODS, {}, ("v1", "Pod"), id="known"),
        pytest.param(
            Resource("", "v1", "pods"), {}, ("v1", "Pod"), id="kind-of-the-list"
        ),
        pytest.param(
            PODS, {"kind": "List", "apiVersion": "v2"}, ("v1", "Pod"), id="plain-list"
        ),
        pytest.param(
            PODS, {"kind": "List", "apiVersion": None}, ("v1", "Pod"), id="no-version"
        ),
        pytest.param(
            Resource("", "v1", "pods"),
            {"kind": 'A"\\List', "apiVersion": "ü"},
            ("ü", 'A"\\'),
            id="to-be-escaped",
        ),
    ],
)
def test_list_splitter_adds_missing_type(
    resource: Resource, fields: Any, types: tuple[str, str]
) -> None:
    found, _ = split(written(pod_list(**fields)), 0, resource)

    assert {(it["apiVersion"], it["kind"]) for it in found} == {types}


@each_case(
    "fields",
    [
        pytest.param({"items": []}, id="empty"),
        pytest.param({"items": None}, id="null"),
    ],
)
@each_case("style", ["compact", "spaced", "pretty"])
@each_case("size", [1, 0])
def test_list_splitter_reads_empty_list(fields: Any, style: str, size: int) -> None:
    found, splitter = split(written(pod_list(**fields), style), size)

    assert found == []
    assert splitter.skipped == 0
    assert splitter.resource_version == "7"


@pytest.mark.parametrize("metadata", [{}, {"resourceVersion": None, "continue": None}])
def test_list_of_aggregated_api_may_lack_version(metadata: Any) -> None:
    """Lists of metrics.k8s.io have none. Null counts as absent."""
    metrics = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")
    names = {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1"}
    body = written({**names, "metadata": metadata, "items": []})

    _, splitter = split(body, 0, metrics)

    assert (splitter.resource_version, splitter.continue_token) == ("", "")


NAMELESS: list[Any] = [
    *(None, 7, "x", '"},\\"spec\\":', [], {}, {"metadata": None}),
    *({"metadata": 7}, {"metadata": {"namespace": "s"}}, {"metadata": {"name": 7}}),
]


@each_case("item", NAMELESS, ids=map(str, range(len(NAMELESS))))
@each_case("size", [1, 100, 0])
def test_item_without_name_fails_list(item: Any, size: int) -> None:
    """Left out, it would seem deleted."""
    good = pod_list()["items"]

    for items in ([item], [good[0], item, good[1], good[2]], [*good, item]):
        with pytest.raises(DecodeError):
            split(written(pod_list(items=items)), size)


@pytest.mark.parametrize("last", [False, True], ids=["in-the-middle", "at-the-end"])
@pytest.mark.parametrize("size", [4000, 0])
def test_list_splitter_reads_deeply_nested_item(size: int, last: bool) -> None:
    deep = b',{"a":' + nested() + b',"metadata":{"name":"deep","uid":"u"}}'
    body = written(pod_list())
    body = body.replace(b',{"metadata"', deep + b',{"metadata"', 1)
    if last:
        body = body[:-2] + deep + b'],"metadata":{"resourceVersion":"8"}}'

    splitter = ListSplitter(ObjectDecoder(PODS))
    pieces = pieces_of(body, size or len(body))
    objects = [obj for piece in pieces for obj in splitter.feed(piece)]
    objects += splitter.finish()

    names = ["a", "deep", "b", "c", "deep"] if last else ["a", "deep", "b", "c"]
    assert [it.name for it in objects] == names
    assert (objects[1].uid, splitter.skipped) == ("u", 0)
    assert objects[1].raw == b'{"apiVersion":"v1","kind":"Pod",' + deep[2:]
    assert splitter.resource_version == ("8" if last else "7")


def test_malformed_deep_item_fails_list() -> None:
    item = b'{"a":%b,"metadata":{"name":"deep"}}' % nested().replace(b"1", b"x")
    body = written(pod_list()).replace(b"]}", b"," + item + b"]}")

    with pytest.raises(DecodeError):
        split(body)


@each_case(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"null", id="null"),
        pytest.param(b"[]", id="array"),
        pytest.param(b"<html></html>", id="html"),
        pytest.param(b"{}", id="no-fields"),
        pytest.param(written(STATUS), id="status"),
        pytest.param(written({"kind": "Table", "rows": [{"cells": []}]}), id="table"),
        pytest.param(written(pod("a")), id="one-object"),
        pytest.param(
            written(pod("a", spec={"volumes": [{"items": [{"key": "x"}]}]})), id="inner"
        ),
        pytest.param(written({'x"items': [pod("a")], "a": "b"}), id="quote"),
        pytest.param(written(pod_list(items={})), id="items-is-an-object"),
        pytest.param(written(pod_list(items=7)), id="items-is-a-number"),
        pytest.param(written(pod_list(metadata=7)), id="metadata-is-a-number"),
        pytest.param(written(pod_list(metadata=None)), id="no-metadata"),
        pytest.param(written(pod_list(metadata={})), id="no-version"),
        pytest.param(
            written(pod_list(metadata={"resourceVersion": ""})), id="empty-version"
        ),
        pytest.param(written(pod_list(kind=None)), id="no-kind"),
        pytest.param(written(pod_list(kind="")), id="empty-kind"),
        pytest.param(written(pod_list(kind="Pod")), id="kind-of-an-object"),
        pytest.param(b'{"items":[]}', id="nothing-but-items"),
        pytest.param(
            b'{"items":[],"metadata":{"resourceVersion":"7"}}', id="no-kind-after"
        ),
        pytest.param(b'{"items":[],"kind":"PodList"}', id="no-metadata-after"),
        pytest.param(
            b'{"items":[],"kind":"Table","metadata":{"resourceVersion":"7"}}',
            id="table-after",
        ),
        pytest.param(written(pod_list(kind="NodeList")), id="other-kind-in-front"),
        pytest.param(
            written(dict(reversed(pod_list(kind="NodeList").items()))),
            id="other-kind-after",
        ),
        pytest.param(written(pod_list()) + b"}", id="more-after"),
        pytest.param(b'{"items":[{}]}' + written(pod_list()), id="two-lists"),
        pytest.param(b'{"a":' + nested() + b"}", id="too-deep"),
        pytest.param(b'{"kind":"\xff","items":[]}', id="not-utf8-in-front"),
        pytest.param(b'{"items":[],"kind":"\xff"}', id="not-utf8-after"),
        pytest.param(b'{"items":[{}],"a":' + nested() + b"}", id="too-deep-after"),
        pytest.param(b'{"items":[' + nested() + b",", id="too-deep-cut-off"),
    ],
)
@each_case("size", [50, 0])
def test_decoding_a_non_list_raises_decode_error(body: bytes, size: int) -> None:
    with pytest.raises(DecodeError):
        split(body, size)


def test_list_of_custom_objects_without_metadata_raises() -> None:
    """Only the metadata marks it as a list, as such lists need no version."""
    widgets = Resource("example.com", "v1", "widgets", "Widget")
    names = {"kind": "WidgetList", "apiVersion": "example.com/v1"}

    for fields in ({}, {"metadata": None}):
        with pytest.raises(DecodeError, match="not a list: no metadata"):
            split(written({**names, **fields, "items": []}), 0, widgets)


def test_non_list_error_names_kind() -> None:
    with pytest.raises(DecodeError, match="not a list: Table"):
        split(written({"kind": "Table", "rows": []}))

    with pytest.raises(DecodeError, match="expected a list of v1 Pod, got v1 NodeList"):
        split(written(pod_list(kind="NodeList")))


@each_case("style", ["compact", "spaced", "pretty"])
@each_case("size", [100, 0])
def test_nested_items_field_is_not_split(style: str, size: int) -> None:
    inner = [{"metadata": {"name": "inner"}}]
    body = written(
        {
            "kind": "PodList",
            "metadata": {"resourceVersion": "7", "x": {"items": inner}},
            "other": [{"items": inner}],
            'a"items': inner,
            "items": pod_list()["items"],
        },
        style,
    )

    found, splitter = split(body, size)

    assert found == [pod("a"), pod("b"), pod("c")]
    assert splitter.resource_version == "7"


@pytest.mark.parametrize("size", [1000, 64 * 1024, 0])
def test_list_with_late_items_is_decoded_at_end(size: int) -> None:
    body = written({"note": "x" * 100_000, **pod_list()})

    found, splitter = split(body, size)

    assert found == [pod("a"), pod("b"), pod("c")]
    assert splitter.resource_version == "7"


def test_list_splitter_searches_items_in_first_bytes_only() -> None:
    """Each text that looks like the start of the items costs a decode."""

    def cost(decoys: int) -> int:
        body = written({"x": [{"items": [7]}] * decoys, **pod_list()})
        return calls_of(lambda: split(body, 64 * 1024))

    # 14 bytes each: 64 KiB of them, then a few calls for each chunk.
    assert cost(20_000) < cost(10_000) + 100


@pytest.mark.parametrize("size", [1, 0])
def test_lists_inside_a_list_are_skipped(size: int) -> None:
    items = [pod_list(), {**pod("a"), "items": [pod("inner")]}, pod_list()]

    found, splitter = split(written(pod_list(kind="List", items=items)), size)

    assert found == [{**pod("a"), "items": [pod("inner")]}]
    assert splitter.skipped == 2


def test_listed_object_does_not_keep_the_body_alive() -> None:
    splitter = ListSplitter(ObjectDecoder(PODS))
    body = written(pod_list())

    objects = splitter.feed(body) + splitter.finish()

    assert len(objects) == 3
    for obj in objects:
        assert type(obj.raw) is bytes
        assert len(obj.raw) < len(body) / 2
        assert orjson.loads(obj.raw) == obj.to_dict()


def test_unreadable_has_keys_of_requested_kind() -> None:
    bad = [
        {"metadata": {"name": "labels", "namespace": "shop", "labels": {"x": 1}}},
        {"metadata": {"name": "cluster-wide", "labels": 7}},
        {"kind": "Pod", "apiVersion": "v2", "metadata": {"name": "newer"}},
        {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "foreign"}},
    ]
    body = written(pod_list(items=[pod_list()["items"][0], *bad]))

    objects, splitter = split(body)

    assert objects == [pod("a")]
    assert splitter.skipped == 4
    assert splitter.unreadable == ["shop/labels", "cluster-wide", "newer"]
