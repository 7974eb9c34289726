"""Transforms: removed fields, and unchanged rest."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from conftest import pod
from each_case import each_case
from hypothesis import example, given, settings
from hypothesis import strategies as st
from json_helpers import STYLES, nested, styles, texts, values
from json_helpers import written as bytes_of

from aioinformer.errors import DecodeError, OptionsError
from aioinformer.model import KubeObject, drop, strip_managed_fields, transform_dict
from aioinformer.model import transforms as module

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.model.transforms import Transform

FIELDS = [{"manager": "kubelet", "fieldsV1": {'f:a[]{},"': {'k:{"ip":"::1]"}': {}}}}]


def managed(**more: Any) -> dict[str, Any]:
    return pod("a", metadata={"managedFields": FIELDS}, **more)


def written(content: dict[str, Any], style: str = "compact") -> KubeObject:
    return KubeObject.of(bytes_of(content, style))


def without_managed_fields(body: bytes) -> dict[str, Any]:
    """Return the body after removal from a dict."""
    content: dict[str, Any] = orjson.loads(body)
    if isinstance(content.get("metadata"), dict):
        content["metadata"].pop("managedFields", None)

    return content


# ---------------------------------------------------------------- managed fields


def test_strip_managed_fields_cuts_bytes() -> None:
    obj = written(managed())

    result = strip_managed_fields(obj)

    assert result == pod("a")
    assert result.raw == written(pod("a")).raw, "the rest is the same, byte for byte"
    assert (result.key, result.uid, result.resource_version) == (
        *(obj.key, obj.uid, obj.resource_version),
    )
    assert result.context is obj.context
    assert result.label_set is obj.label_set


def test_strip_returns_same_object_without_managed_fields() -> None:
    obj = written(pod("a"))

    assert strip_managed_fields(obj) is obj


LOOKALIKE = 'x,"managedFields":[{"a":1}],"spec":{'
ODD: dict[str, dict[str, Any]] = {
    "first-field": {"metadata": {"managedFields": FIELDS, "name": "a"}},
    "only-field": {"metadata": {"managedFields": FIELDS}},
    "alphabetical": {
        "metadata": {"labels": {}, "managedFields": FIELDS, "name": "a"},
        "spec": {},
    },
    "last-field": {"spec": {}, "metadata": {"name": "a", "managedFields": FIELDS}},
    "null": {"metadata": {"name": "a", "managedFields": None}},
    "empty": {"metadata": {"name": "a", "managedFields": []}},
    "no-array": {"metadata": {"name": "a", "managedFields": {"a": []}}},
    "elsewhere": {"metadata": {"name": "a"}, "spec": {"b": 1, "managedFields": [1]}},
    "at-the-top": {"metadata": {"name": "a"}, "managedFields": [1], "x": 1},
    "deeper": {"metadata": {"name": "a", "x": {"y": 1, "managedFields": [1]}}},
    "in-both": {
        "metadata": {"name": "a", "x": {"y": 1, "managedFields": [1]}}
        | {"managedFields": FIELDS},
        "spec": {"b": 1, "managedFields": [1]},
    },
    "in-a-string": {
        "metadata": {
            "name": "a",
            "annotations": {"a": LOOKALIKE},
            "managedFields": FIELDS,
        },
        "spec": {"text": LOOKALIKE},
    },
    "in-a-string-alone": {"metadata": {"name": "a", "annotations": {"a": LOOKALIKE}}},
    "as-a-value": {"metadata": {"name": "managedFields", "x": ["managedFields"]}},
    "no-metadata": {"spec": {"b": 1, "managedFields": [1]}},
    "no-map": {"metadata": None, "spec": {"b": 1, "managedFields": [1]}},
    "mark": {"metadata": {"~": 1}, "spec": {"b": 1, "managedFields": [1]}},
    "many-brackets": {
        "metadata": {"name": "a", "managedFields": [{"x": [[1], [2], [3], [4], [5]]}]}
    },
}


@each_case("style", STYLES)
@each_case("content", ODD.values(), ids=ODD)
def test_strip_equals_removal_from_dict(content: dict[str, Any], style: str) -> None:
    obj = written(content, style)

    result = strip_managed_fields(obj)

    assert orjson.loads(result.raw) == without_managed_fields(obj.raw)


@pytest.mark.parametrize(
    "body",
    [
        b'{"metadata":{"a":1,"managedFields":[1]},"metadata":{"managedFields":[2]}}',
        b'{"metadata":{"a":1,"managedFields":[1],"managedFields":[2]},"spec":{}}',
        b'{"metadata":{"a":1},"metadata":{"b":1,"managedFields":[1]}}',
    ],
    ids=["metadata-twice", "field-twice", "in-the-second-metadata"],
)
def test_strip_removes_repeated_fields(body: bytes) -> None:
    result = strip_managed_fields(KubeObject.of(body))

    assert orjson.loads(result.raw) == without_managed_fields(body)


contents = st.fixed_dictionaries(
    {},
    optional={
        "apiVersion": texts,
        "spec": values,
        "metadata": st.one_of(
            st.none(),
            st.fixed_dictionaries(
                {},
                optional={
                    "annotations": values,
                    "managedFields": values,
                    "finalizers": st.lists(texts),
                },
            ),
        ),
        "status": values,
        "managedFields": values,
    },
)


@given(content=contents, style=styles, order=st.randoms(use_true_random=False))
@example(content=managed(), style="compact", order=None)
@settings(max_examples=60)
def test_strip_of_any_content_equals_removal_from_dict(
    content: dict[str, Any], order: Any, style: str
) -> None:
    fields = list(content.items())
    if order is not None:
        order.shuffle(fields)

    obj = written(dict(fields), style)

    assert orjson.loads(strip_managed_fields(obj).raw) == without_managed_fields(
        obj.raw
    )


def test_strip_of_usual_body_needs_no_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def general(obj: KubeObject) -> KubeObject:
        raise AssertionError(obj)

    monkeypatch.setattr(module, "_STRIP", general)
    behind_spec = {"spec": {"nodeName": "n"}, "status": {"conditions": [{"type": "x"}]}}

    for content in (
        {"metadata": {"name": "a", "managedFields": FIELDS}, **behind_spec},
        {"metadata": {"labels": {}, "managedFields": FIELDS, "name": "a"}},
    ):
        assert b"kubelet" not in strip_managed_fields(written(content)).raw


@pytest.mark.parametrize(
    "cut", [(b'"fieldsV1":', b'"fieldsV1"'), (b"]", b"")], ids=["typo", "no-end"]
)
def test_strip_of_malformed_body_raises_decode_error(cut: tuple[bytes, bytes]) -> None:
    obj = written(managed())
    broken = KubeObject(obj.body.replace(*cut), *_head(obj))

    with pytest.raises(DecodeError, match="default/a"):
        strip_managed_fields(broken)


def test_drop_from_deeply_nested_body_raises_decode_error() -> None:
    obj = written(managed())
    deep = KubeObject(
        obj.body.replace(b'"fieldsV1":', b'"x":%s,"fieldsV1":' % nested(1_000_000)),
        *_head(obj),
    )

    with pytest.raises(DecodeError, match="default/a"):
        strip_managed_fields(deep)


def _head(obj: KubeObject) -> tuple[Any, ...]:
    return obj.key, obj.uid, obj.resource_version, obj.label_set, obj.context


# ---------------------------------------------------------------- drop

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "n",
        "labels": {"zone": "a", "example.com/x": "y"},
        "annotations": {"example.com/blob": "x" * 10, "keep": "me", 'q"<é': "odd"},
    },
    "spec": {"taints": [{"key": "a", "value": "b"}, {"key": "c"}, {"key": "d"}]},
    "status": {"images": [{"names": ["a"]}], "phase": None, "12": {"3": 4}},
}


def node(**changed: Any) -> dict[str, Any]:
    return {**NODE, **changed}


@each_case(
    "paths, left",
    [
        pytest.param(
            ["status.images"],
            node(status={"phase": None, "12": {"3": 4}}),
            id="a-field",
        ),
        pytest.param(
            ["status.images", "status.12.3", "spec"],
            {
                key: value
                for key, value in node(status={"phase": None, "12": {}}).items()
                if key != "spec"
            },
            id="several",
        ),
        pytest.param(
            [("metadata", "annotations", "example.com/blob")],
            node(
                metadata={
                    **NODE["metadata"],  # type: ignore[dict-item]
                    "annotations": {"keep": "me", 'q"<é': "odd"},
                }
            ),
            id="a-key-with-dots",
        ),
        pytest.param(
            [("metadata", "annotations", 'q"<é')],
            node(
                metadata={
                    **NODE["metadata"],  # type: ignore[dict-item]
                    "annotations": {"example.com/blob": "x" * 10, "keep": "me"},
                }
            ),
            id="a-key-that-is-escaped",
        ),
        pytest.param(
            ["spec.taints.0.value", "spec.taints.1", "spec.taints.7"],
            node(spec={"taints": [{"key": "a"}, {"key": "d"}]}),
            id="elements",
        ),
        pytest.param(
            ["status.phase"],
            node(status={"images": [{"names": ["a"]}], "12": {"3": 4}}),
            id="null",
        ),
        pytest.param(
            ["status.images", "status.images.0"],
            node(status={"phase": None, "12": {"3": 4}}),
            id="below-what-goes",
        ),
        pytest.param(
            ["status.images.0.names", "status.images"],
            node(status={"phase": None, "12": {"3": 4}}),
            id="above-what-goes",
        ),
        pytest.param(
            ["status.x", "kind.x", "status.phase.x", "metadata.labels.zone.x"],
            NODE,
            id="absent",
        ),
    ],
)
def test_drop_removes_values_at_paths(
    paths: list[str | tuple[str, ...]], left: dict[str, Any]
) -> None:
    obj = written(NODE)

    result = drop(*paths)(obj)

    assert result is not None
    assert result.to_dict() == left
    assert result.key == "n"
    assert (result is obj) == (left == NODE)


def test_dropped_labels_do_not_match_selectors() -> None:
    for path, left in (
        ("metadata.labels", {}),
        (("metadata", "labels", "example.com/x"), {"zone": "a"}),
    ):
        result = drop(path)(written(NODE))

        assert result is not None
        assert result.labels == left


@each_case(
    "paths",
    [
        [],
        [""],
        ["a..b"],
        ["metadata"],
        ["status", "metadata.name"],
        ["metadata.namespace"],
        ["metadata.uid"],
        [("metadata", "resourceVersion")],
    ],
)
def test_drop_rejects_invalid_paths(paths: list[str | tuple[str, ...]]) -> None:
    with pytest.raises(OptionsError):
        drop(*paths)


def test_drop_from_malformed_body_raises_decode_error() -> None:
    obj = written(NODE)
    broken = KubeObject(obj.body[:-3], *_head(obj))

    with pytest.raises(DecodeError, match="'n' cannot be read"):
        drop("status.images")(broken)


@given(content=contents, style=styles)
@settings(max_examples=60)
def test_drop_equals_removal_from_dict(content: dict[str, Any], style: str) -> None:
    obj = written(content, style)
    expected: dict[str, Any] = obj.to_dict()
    for top, below in (("spec", "name"), ("status", "é"), ("spec", 'a"b')):
        inner = expected.get(top)
        if isinstance(inner, dict):
            inner.pop(below, None)

    result = drop("spec.name", ("status", "é"), ("spec", 'a"b'))(obj)

    assert result is not None
    assert orjson.loads(result.raw) == expected


# ---------------------------------------------------------------- dicts


def test_transform_dict_keeps_what_the_function_returns() -> None:
    def shrink(content: dict[str, Any]) -> dict[str, Any]:
        del content["spec"]
        return content

    result = transform_dict(shrink)(written(NODE))

    assert result is not None
    assert "spec" not in result
    assert result["status"] == NODE["status"]


def test_transform_dict_leaves_out_object_for_none() -> None:
    assert transform_dict(lambda _: None)(written(NODE)) is None


def test_transform_dict_rejects_result_that_is_no_dict() -> None:
    wrong: Callable[[dict[str, Any]], Any] = str

    with pytest.raises(TypeError, match=r"transform_dict\(str\) returned str"):
        transform_dict(wrong)(written(NODE))


def test_transform_dict_rejects_coroutine_functions() -> None:
    with pytest.raises(OptionsError, match="plain function"):
        transform_dict(asyncio.sleep)  # type: ignore[arg-type]


# ---------------------------------------------------------------- equality


def shrink(content: dict[str, Any]) -> dict[str, Any]:
    return content


SAME: list[tuple[Callable[[], Transform], str]] = [
    (lambda: drop("a.b", ("c", "d.e")), "drop('a.b', ('c', 'd.e'))"),
    (lambda: transform_dict(shrink), "transform_dict(shrink)"),
    (lambda: strip_managed_fields, ""),
]


@pytest.mark.parametrize(("make", "text"), SAME)
def test_transforms_with_equal_arguments_are_equal(
    make: Callable[[], Transform], text: str
) -> None:
    assert make() == make()
    assert make() != drop("x")
    if text:
        assert repr(make()) == text
        assert hash(make()) == hash(make())
