"""`KubeObject`: a read-only mapping over JSON bytes."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import msgspec
import orjson
import pytest
from conftest import pod
from each_case import each_case
from json_helpers import nested, written
from kubernetes_asyncio.client import (
    V1Container,
    V1PodSpec,
)
from pydantic import BaseModel, Field

from aioinformer.errors import DecodeError, OptionsError
from aioinformer.model.objects import KubeObject, json_default
from aioinformer.model.resources import PODS
from aioinformer.model.views import (
    ObjectContext,
    ReadOnlyDict,
    ReadOnlyList,
    decode_json,
)
from aioinformer.watch.decoding import ObjectDecoder

# Text that must not be in any repr, log or error.
SECRET = "c2VjcmV0"


def sample() -> KubeObject:
    return KubeObject.of(pod("web-0", "shop", {"app": "web"}))


# ---------------------------------------------------------------- construction


def test_object_of_mapping() -> None:
    data = pod("web-0", "shop", {"app": "web"}, metadata={"resourceVersion": "7"})

    obj = KubeObject.of(data)

    assert (obj.key, obj.namespace, obj.name) == ("shop/web-0", "shop", "web-0")
    assert (obj.uid, obj.resource_version) == (data["metadata"]["uid"], "7")
    assert (obj.api_version, obj.kind) == ("v1", "Pod")
    assert obj.labels == {"app": "web"}
    assert obj.to_dict() == data


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_object_of_bytes_copies_them(buffer: Any) -> None:
    source = bytearray(written(pod("web-0")))

    obj = KubeObject.of(buffer(source))
    source[:] = b" " * len(source)

    assert obj.raw == written(pod("web-0"))


def test_object_of_object_is_the_same() -> None:
    obj = sample()

    assert KubeObject.of(obj) is obj


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(MappingProxyType({"metadata": {"name": "a"}}), id="proxy"),
        pytest.param({"metadata": MappingProxyType({"name": "a"})}, id="inner-proxy"),
        pytest.param(ReadOnlyDict({"metadata": {"name": "a"}}), id="view"),
        pytest.param({"metadata": ReadOnlyDict({"name": "a"})}, id="inner-view"),
    ],
)
def test_object_of_any_mapping_type(source: Mapping[str, Any]) -> None:
    assert KubeObject.of(source).to_dict() == {"metadata": {"name": "a"}}


def test_object_of_mapping_with_views() -> None:
    obj = sample()
    containers = obj["spec"]["containers"]

    made = KubeObject.of({"spec": obj["spec"], "pod": obj, "containers": containers})

    assert made.to_dict() == {
        "spec": obj.to_dict()["spec"],
        "pod": obj.to_dict(),
        "containers": obj.to_dict()["spec"]["containers"],
    }


@each_case(
    "source",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut-off"),
        pytest.param(b"[]", id="array"),
        pytest.param(b"null", id="null"),
        pytest.param(b'{"metadata":{},"spec":{},}', id="trailing-comma"),
        pytest.param(b'{"metadata":[]}', id="metadata-is-an-array"),
        pytest.param(b'{"metadata":{"name":7}}', id="name-is-a-number"),
        pytest.param(b'{"metadata":{"labels":{"a":1}}}', id="label-is-a-number"),
        pytest.param(b'{"a":"\xff"}', id="not-utf8"),
        pytest.param({"metadata": {"uid": 7}}, id="uid-is-a-number"),
    ],
)
def test_object_of_malformed_source_raises_decode_error(source: Any) -> None:
    with pytest.raises(DecodeError):
        KubeObject.of(source)


@pytest.mark.parametrize("text", [rb"\ud800", b"\xed\xa0\x80", b"\n"])
def test_object_of_malformed_bytes_says_what_is_wrong_and_where(text: bytes) -> None:
    body = b'{"a":"%b"}' % text
    with pytest.raises(DecodeError) as caught:
        KubeObject.of(body)

    with pytest.raises(DecodeError) as expected:
        decode_json(body, "a new object")

    assert str(caught.value) == str(expected.value)
    assert caught.value.offset == expected.value.offset


def test_object_of_bytes_with_a_too_large_number_fails_when_it_is_read() -> None:
    obj = KubeObject.of(b'{"a":1e999}')

    with pytest.raises(DecodeError):
        obj.to_dict()


@pytest.mark.parametrize(
    "value", [object(), {1}, KubeObject], ids=["any", "set", "type"]
)
def test_object_of_mapping_with_unsupported_value_raises_type_error(
    value: object,
) -> None:
    with pytest.raises(TypeError):
        KubeObject.of({"metadata": {"name": "a"}, "value": value})


def test_object_of_unknown_model_raises_type_error() -> None:
    """Its `to_dict()` uses Python's field names, which no server knows."""

    class Model:
        def to_dict(self) -> dict[str, Any]:
            raise AssertionError

    with pytest.raises(TypeError):
        KubeObject.of({"spec": Model()})


@each_case(
    "metadata, key, namespace, name",
    [
        pytest.param({"name": "n"}, "n", "", "n", id="cluster-scoped"),
        pytest.param({"name": "n", "namespace": None}, "n", "", "n", id="null"),
        pytest.param({"name": "n", "namespace": ""}, "n", "", "n", id="empty"),
        pytest.param({"name": "n", "namespace": "s"}, "s/n", "s", "n", id="namespaced"),
        pytest.param({"namespace": "s"}, "s/", "s", "", id="no-name-yet"),
        pytest.param({"generateName": "n-"}, "", "", "", id="neither"),
        pytest.param(None, "", "", "", id="no-metadata"),
    ],
)
def test_object_key_is_derived_from_metadata(
    metadata: Any, key: str, namespace: str, name: str
) -> None:
    obj = KubeObject.of({"metadata": metadata})

    assert (obj.key, obj.namespace, obj.name) == (key, namespace, name)


# ---------------------------------------------------------------- the mapping


def test_object_is_a_mapping() -> None:
    data = pod("web-0", "shop")
    obj = KubeObject.of(data)

    assert isinstance(obj, Mapping)
    assert list(obj) == list(data)
    assert len(obj) == len(data)
    assert dict(obj) == data
    assert {**obj} == data
    assert obj["spec"]["nodeName"] == "node-1"
    assert obj.get("spec", {})["nodeName"] == "node-1"
    assert obj.get("other", 7) == 7
    assert list(obj.items()) == list(data.items())
    assert "spec" in obj
    assert "other" not in obj
    with pytest.raises(KeyError, match="other"):
        obj["other"]


def test_object_matches_mapping_pattern() -> None:
    match sample():
        case {"kind": "Pod", "spec": {"containers": [{"image": image}]}}:
            assert image == "registry.example/app:1"
        case _:
            pytest.fail("not matched")


@each_case(
    "change",
    [
        pytest.param(lambda it: it.__setitem__("spec", {}), id="assign"),
        pytest.param(lambda it: it.__delitem__("spec"), id="delete"),
        pytest.param(lambda it: it.__ior__({}), id="merge"),
        pytest.param(lambda it: it.update(spec={}), id="update"),
        pytest.param(lambda it: it.setdefault("spec", {}), id="setdefault"),
        pytest.param(lambda it: it.pop("spec", None), id="pop"),
        pytest.param(lambda it: it.popitem(), id="popitem"),
        pytest.param(lambda it: it.clear(), id="clear"),
        pytest.param(lambda it: it["spec"].__setitem__("nodeName", "x"), id="nested"),
        pytest.param(lambda it: it.at("spec").pop("nodeName"), id="at"),
        pytest.param(lambda it: it.labels.__setitem__("app", "x"), id="labels"),
        pytest.param(lambda it: it.annotations.__setitem__("a", "x"), id="annotations"),
        pytest.param(lambda it: it["spec"]["containers"].append({}), id="array"),
        pytest.param(
            lambda it: it["spec"]["containers"][0].update(image="x"), id="in-array"
        ),
    ],
)
def test_object_rejects_changes_with_hint(change: Any) -> None:
    obj = sample()
    before = obj.to_dict()

    with pytest.raises(TypeError, match=r"\.to_dict\(\)"):
        change(obj)

    assert obj.to_dict() == before
    assert obj == before


@pytest.mark.parametrize("field", ["key", "body", "name", "other"])
def test_object_fields_are_frozen(field: str) -> None:
    with pytest.raises(AttributeError):
        setattr(sample(), field, "x")


def test_to_dict_result_can_be_changed() -> None:
    obj = sample()

    mine = obj.to_dict()
    mine["spec"]["nodeName"] = "node-2"
    mine["metadata"]["labels"].clear()

    assert obj.at("spec.nodeName") == "node-1"
    assert obj["spec"]["nodeName"] == "node-1"
    assert obj.labels == {"app": "web"}
    assert obj.to_dict() is not obj.to_dict()


# ---------------------------------------------------------------- equality


def test_objects_with_equal_json_are_equal() -> None:
    data = pod("web-0")
    obj = KubeObject.of(data)

    for other in (
        KubeObject.of(written(data, "pretty")),
        KubeObject.of(dict(reversed(data.items()))),
        data,
        MappingProxyType(data),
        ReadOnlyDict(data),
        dict(obj),
    ):
        assert operator.eq(obj, other) is operator.eq(other, obj) is True
        assert operator.ne(obj, other) is operator.ne(other, obj) is False


@each_case("other", [pod("web-1"), {}, None, 7, "default/web-0", []])
def test_objects_with_different_json_differ(other: object) -> None:
    obj = KubeObject.of(pod("web-0"))

    others = [other, KubeObject.of(other)] if isinstance(other, dict) else [other]
    for it in others:
        assert operator.eq(obj, it) is operator.eq(it, obj) is False
        assert operator.ne(obj, it) is operator.ne(it, obj) is True


def test_objects_of_equal_bytes_are_compared_without_decoding() -> None:
    one, other = sample(), sample()

    assert one == other
    assert len(one.context.decoded_bodies) == 0


def test_object_is_not_hashable() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(sample())


# ---------------------------------------------------------------- broken bodies


def broken() -> KubeObject:
    """Return an object with readable metadata and a malformed rest."""
    raw = written(pod("web-0", "shop", {"app": "web"}))
    return ObjectDecoder(PODS).decode(raw.replace(b'"status":{', b'"status":{{'))


@each_case(
    "look",
    [
        pytest.param(lambda it: it["spec"], id="item"),
        pytest.param(len, id="len"),
        pytest.param(list, id="iterate"),
        pytest.param(lambda it: it.at("spec.nodeName"), id="at"),
        pytest.param(lambda it: it.to_dict(), id="to_dict"),
        pytest.param(lambda it: it == {}, id="equal"),
        pytest.param(lambda it: it.into(dict), id="into"),
    ],
)
def test_malformed_body_raises_decode_error_on_access(look: Any) -> None:
    obj = broken()

    assert obj.key == "shop/web-0"
    assert obj.labels == {"app": "web"}
    with pytest.raises(DecodeError):
        look(obj)


def test_deeply_nested_body_raises_decode_error_on_access() -> None:
    raw = written(pod("web-0", "shop", {"app": "web"}))
    obj = ObjectDecoder(PODS).decode(raw[:-1] + b',"x":' + nested(1_000_000) + b"}")

    for look in (obj.to_dict, lambda: obj.at("kind"), lambda: obj.into(dict)):
        with pytest.raises(DecodeError):
            look()


def test_malformed_object_equals_only_same_bytes() -> None:
    body = written(pod("web-0", "shop"))[:-1] + b',"x":' + nested() + b"}"
    obj, same, other = (
        ObjectDecoder(PODS).decode(it) for it in (body, body, body[:-1] + b" }")
    )

    assert obj == same
    assert obj != other
    assert obj != sample()


def test_deep_objects_with_other_bytes_are_not_equal() -> None:
    one, other = (
        KubeObject.of(b'{"metadata":{"name":"a"},"x":%b}' % (nested(depth)))
        for depth in (1000, 1001)
    )

    assert one != other
    assert one == one.__copy__()


# ---------------------------------------------------------------- copies, printing


def test_copy_of_object_is_the_object() -> None:
    obj = sample()

    assert copy.copy(obj) is obj
    assert copy.deepcopy(obj) is obj
    assert copy.deepcopy({"it": obj})["it"] is obj


def test_pickled_object_has_no_cached_bodies() -> None:
    decoder = ObjectDecoder(PODS)
    objects = [decoder.decode(written(pod(f"web-{n}"))) for n in range(20)]
    alone = pickle.dumps(objects[0])
    for obj in objects:
        assert obj["kind"] == "Pod"

    first, second = pickle.loads(pickle.dumps(objects[:2]))

    assert first == objects[0]
    assert first.key == "default/web-0"
    assert first.context is second.context
    assert pickle.dumps(objects[0]) == alone


def test_view_can_be_copied_and_pickled() -> None:
    view = sample()["spec"]

    for copied in (copy.deepcopy(view), pickle.loads(pickle.dumps(view))):
        assert copied == view
        with pytest.raises(TypeError, match="to_dict"):
            copied["nodeName"] = "x"


def test_repr_shows_no_data() -> None:
    obj = KubeObject.of(
        {
            "metadata": {"name": "key", "namespace": "shop", "resourceVersion": "7"},
            "data": {"password": SECRET},
        }
    )
    assert obj["data"]["password"] == SECRET

    assert repr(obj) == str(obj) == "<KubeObject 'shop/key' rv='7'>"
    assert obj.__rich_repr__() == [("key", "shop/key"), ("rv", "7")]
    assert SECRET not in repr(obj.context)


def test_json_default_encodes_object() -> None:
    obj = sample()

    text = orjson.dumps({"pod": obj}, default=lambda it: it.to_dict())

    assert orjson.loads(text) == {"pod": obj.to_dict()}


def test_truth_of_object_decodes_nothing() -> None:
    assert KubeObject(b"{broken", "shop/a", "", "", {}, ObjectContext())
    assert not KubeObject.of({})


META = {"name": "a", "labels": {"b": "c"}, "finalizers": ["d"]}


OBJECT = KubeObject.of({"metadata": META})


class Named(msgspec.Struct, rename={"of": "name"}):
    of: str


class Model(BaseModel):
    node_name: str = Field(alias="nodeName")
    phase: str | None = None


CONTAINER = V1Container(name="c", image="i", image_pull_policy="Always")


@each_case(
    "value, written",
    [
        pytest.param(OBJECT, {"metadata": META}, id="object"),
        pytest.param(OBJECT["metadata"], META, id="view"),
        pytest.param(OBJECT.at("metadata.finalizers"), ["d"], id="view-of-a-list"),
        pytest.param(Named("a"), {"name": "a"}, id="struct"),
        pytest.param(Model(nodeName="n"), {"nodeName": "n"}, id="pydantic"),
        pytest.param(
            V1PodSpec(node_name="n", containers=[CONTAINER]),
            {
                "nodeName": "n",
                "containers": [
                    {"name": "c", "image": "i", "imagePullPolicy": "Always"}
                ],
            },
            id="kubernetes-asyncio",
        ),
    ],
)
def test_json_default_encodes_nested_models(value: object, written: Any) -> None:
    body = {"one": value, "many": [{"more": value}]}

    text = orjson.dumps(body, default=json_default)

    assert orjson.loads(text) == {"one": written, "many": [{"more": written}]}


@pytest.mark.parametrize("value", [{1, 2}, object(), b"bytes", 1j])
def test_json_default_rejects_other_types(value: object) -> None:
    with pytest.raises(TypeError, match=f"not JSON: {type(value).__name__}"):
        json_default(value)


# ---------------------------------------------------------------- properties


def test_properties_of_absent_fields_are_empty() -> None:
    obj = KubeObject.of(b"{}")

    assert (obj.key, obj.uid, obj.resource_version) == ("", "", "")
    assert (obj.api_version, obj.kind, obj.generation) == ("", "", 0)
    assert (obj.labels, obj.annotations) == ({}, {})
    assert (obj.owner_references, obj.finalizers) == ([], [])
    assert obj.creation_timestamp is None
    assert obj.deletion_timestamp is None


def test_null_reads_as_absent() -> None:
    fields = [
        *("name", "namespace", "uid", "resourceVersion", "labels", "annotations"),
        *("ownerReferences", "finalizers", "generation"),
        *("creationTimestamp", "deletionTimestamp"),
    ]
    obj = KubeObject.of(
        {"apiVersion": None, "kind": None, "metadata": dict.fromkeys(fields)}
    )

    assert (obj.key, obj.uid, obj.resource_version) == ("", "", "")
    assert (obj.api_version, obj.kind, obj.generation) == ("", "", 0)
    assert (obj.labels, obj.annotations) == ({}, {})
    assert (obj.owner_references, obj.finalizers) == ([], [])
    assert obj.creation_timestamp is None
    assert obj.deletion_timestamp is None
    assert obj.at("metadata.labels", "absent") == "absent"


def test_properties_return_metadata() -> None:
    owner = {"kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    obj = KubeObject.of(
        pod(
            "web-0",
            metadata={
                "annotations": {"example.com/note": "x"},
                "ownerReferences": [owner],
                "finalizers": ["example.com/a", "example.com/b"],
                "generation": 3,
            },
        )
    )

    assert obj.annotations == {"example.com/note": "x"}
    assert obj.owner_references == [owner]
    assert obj.finalizers == ["example.com/a", "example.com/b"]
    assert obj.generation == 3
    with pytest.raises(TypeError, match="to_dict"):
        obj.owner_references[0]["name"] = "x"  # type: ignore[index]


@each_case(
    "text, time",
    [
        pytest.param("2025-03-04T05:06:07Z", (2025, 3, 4, 5, 6, 7), id="seconds"),
        pytest.param(
            "2025-03-04T05:06:07.000008Z", (2025, 3, 4, 5, 6, 7, 8), id="microseconds"
        ),
        pytest.param(
            "2025-03-04T05:06:07.000008999Z", (2025, 3, 4, 5, 6, 7, 8), id="nanoseconds"
        ),
        pytest.param("2025-03-04T01:06:07+02:00", (2025, 3, 3, 23, 6, 7), id="offset"),
        pytest.param("2025-03-04T05:06:07", (2025, 3, 4, 5, 6, 7), id="no-zone"),
    ],
)
def test_timestamps_are_aware_in_utc(text: str, time: tuple[int, ...]) -> None:
    metadata = {"creationTimestamp": text, "deletionTimestamp": text}
    obj = KubeObject.of(pod("web-0", metadata=metadata))
    expected = datetime(*time, tzinfo=UTC)  # type: ignore[arg-type,misc]

    assert obj.creation_timestamp == expected
    assert obj.deletion_timestamp == expected
    assert obj.deletion_timestamp.tzinfo is UTC


@pytest.mark.parametrize("value", ["yesterday", "", 7, {}])
def test_malformed_timestamp_raises_decode_error(value: object) -> None:
    obj = KubeObject.of(pod("web-0", metadata={"creationTimestamp": value}))

    with pytest.raises(DecodeError, match=r"default/web-0.*creationTimestamp"):
        _ = obj.creation_timestamp


# ---------------------------------------------------------------- one path


def test_at_returns_read_only_views() -> None:
    obj = sample()

    assert isinstance(obj.at("spec"), ReadOnlyDict)
    assert isinstance(obj.at("spec.containers"), ReadOnlyList)
    assert obj.at("spec.containers.0.image") == "registry.example/app:1"
    assert obj.at(("spec", "containers", "0", "name")) == "main"


def test_at_does_not_fill_cache() -> None:
    obj = sample()

    obj.at("spec.nodeName")
    obj.at("spec.nodeName.too.far")

    assert len(obj.context.decoded_bodies) == 0


@pytest.mark.parametrize("default", [None, 0, "x", []])
def test_at_of_absent_path_returns_default(default: object) -> None:
    assert sample().at("spec.other.more", default) is default


@pytest.mark.parametrize("value", [False, 0, "", 0.0])
def test_at_of_empty_value_returns_it(value: object) -> None:
    assert KubeObject.of({"a": {"b": value}}).at("a.b", "default") == value


def test_at_of_a_list_says_what_to_write() -> None:
    path: Any = ["spec", "nodeName"]

    with pytest.raises(
        OptionsError, match=r"Write 'spec\.nodeName', or a tuple of keys"
    ):
        sample().at(path)


def test_unknown_attribute_says_how_to_read_json() -> None:
    obj: Any = sample()

    with pytest.raises(AttributeError, match=r"obj\['spec'\], or by a path") as caught:
        _ = obj.spec

    assert caught.value.name == "spec"
    assert not hasattr(obj, "metadata")


@pytest.mark.parametrize("path", ["", (), "a..b", ("a", "")])
def test_at_rejects_empty_step(path: Any) -> None:
    with pytest.raises(OptionsError, match="not a path"):
        sample().at(path)
