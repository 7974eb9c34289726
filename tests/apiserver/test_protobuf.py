"""Protocol Buffers: messages written by hand, field by field."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest
from each_case import each_case

from aioinformer_apiserver.protobuf.decoding import (
    _NUMBERS,
    _READERS,
    UnknownKindError,
    decode_object,
    fields,
    to_signed,
    varints,
)

# Body of `kubectl create namespace x1`.
NAMESPACE = bytes.fromhex(
    "6b3873000a0f0a02763112094e616d657370616365121a0a120a02783112001a"
    "0022002a00320038004200"
    "12001a020a001a002200"
)


def varint(value: int) -> bytes:
    value %= 2**64
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7

    return bytes([*parts, value])


def message(*parts: tuple[int, int | str | bytes]) -> bytes:
    """Encode fields, each a number and a value."""
    raw = b""
    for number, value in parts:
        if isinstance(value, int):
            raw += varint(number << 3) + varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            raw += varint(number << 3 | 2) + varint(len(data)) + data

    return raw


def enveloped(api_version: str, kind: str, body: bytes) -> bytes:
    head = message((1, api_version), (2, kind))
    return b"k8s\0" + message((1, head), (2, body), (3, ""), (4, ""))


def read(api_version: str, kind: str, *parts: tuple[int, int | str | bytes]) -> Any:
    """Decode an object with these fields, without those that Go always writes."""
    body = decode_object(enveloped(api_version, kind, message(*parts)))
    assert (body.pop("apiVersion"), body.pop("kind")) == (api_version, kind)
    return body


def test_protobuf_decodes_objects_of_kubectl() -> None:
    assert decode_object(NAMESPACE) == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "x1"},
        "spec": {},
        "status": {},
    }


def test_protobuf_decodes_maps() -> None:
    entries = [
        (2, message((1, key), (2, value))) for key, value in (("a", "1"), ("b", ""))
    ]

    assert read("v1", "ConfigMap", *entries) == {"data": {"a": "1", "b": ""}}


def test_protobuf_decodes_map_entry_without_value() -> None:
    assert read("v1", "ConfigMap", (2, message((1, "a")))) == {"data": {"a": ""}}


def test_protobuf_decodes_bytes_to_base64() -> None:
    entry = message((1, "a"), (2, b"\x00\xff"))

    assert read("v1", "Secret", (2, entry)) == {"data": {"a": "AP8="}}


def test_protobuf_decodes_negative_numbers() -> None:
    spec = read("apps/v1", "Deployment", (2, message((1, -2))))["spec"]

    assert spec == {"replicas": -2}


def test_protobuf_keeps_explicit_empty_value() -> None:
    # In Go, replicas is a pointer, and minReadySeconds is not.
    spec = read("apps/v1", "Deployment", (2, message((1, 0), (5, 0))))["spec"]

    assert spec == {"replicas": 0}


def test_protobuf_inlines_fields() -> None:
    directory = message((2, message((1, "Memory"))))
    volume = message((1, "cache"), (2, directory))
    spec = read("v1", "Pod", (2, message((1, volume))))["spec"]

    assert spec["volumes"] == [{"name": "cache", "emptyDir": {"medium": "Memory"}}]


def test_protobuf_writes_null_for_nil_list() -> None:
    assert read("v1", "Pod", (2, b""))["spec"] == {"containers": None}


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        pytest.param(message((1, 0), (2, 80), (3, "")), 80, id="number"),
        pytest.param(message((1, 1), (2, 0), (3, "http")), "http", id="text"),
        pytest.param(b"", 0, id="nothing"),
    ],
)
def test_protobuf_decodes_int_or_string(raw: bytes, value: int | str) -> None:
    port = message((3, 80), (4, raw))
    spec = read("v1", "Service", (2, message((1, port))))["spec"]

    assert spec["ports"] == [{"port": 80, "targetPort": value}]


def test_protobuf_decodes_quantities() -> None:
    limits = message((1, message((1, "cpu"), (2, message((1, "500m"))))))
    container = message((1, "main"), (8, limits))
    spec = read("v1", "Pod", (2, message((2, container))))["spec"]

    assert spec["containers"] == [
        {"name": "main", "resources": {"limits": {"cpu": "500m"}}}
    ]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        pytest.param(message((1, 1735689600)), "2025-01-01T00:00:00Z", id="seconds"),
        pytest.param(message((1, -1)), "1969-12-31T23:59:59Z", id="before-1970"),
    ],
)
def test_protobuf_decodes_times(raw: bytes, text: str) -> None:
    metadata = read("v1", "Pod", (1, message((1, "a"), (8, raw))))["metadata"]

    assert metadata == {"name": "a", "creationTimestamp": text}


def test_protobuf_decodes_micro_times() -> None:
    time = message((1, 1735689600), (2, 1_234_567))
    spec = read("coordination.k8s.io/v1", "Lease", (2, message((4, time))))["spec"]

    assert spec == {"renewTime": "2025-01-01T00:00:00.001234Z"}


def test_protobuf_rejects_time_out_of_range() -> None:
    metadata = message((8, message((1, 2**62))))

    with pytest.raises(ValueError, match="timestamp out of range"):
        read("v1", "Pod", (1, metadata))


def test_protobuf_decodes_embedded_json() -> None:
    entry = message((6, "FieldsV1"), (7, message((1, '{"f:data":{}}'))))
    metadata = read("v1", "Pod", (1, message((17, entry))))["metadata"]

    assert metadata["managedFields"] == [
        {"fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}}
    ]


def test_protobuf_decodes_lists_that_are_messages() -> None:
    extra = message((1, "scopes"), (2, message((1, "a"), (1, "b"))))
    spec = message((3, "alice"), (5, extra))
    review = read("authorization.k8s.io/v1", "SubjectAccessReview", (2, spec))

    assert review["spec"] == {"user": "alice", "extra": {"scopes": ["a", "b"]}}


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param([(4, 1), (4, 2)], id="one-by-one"),
        pytest.param([(4, b"\x01\x02")], id="packed"),
    ],
)
def test_protobuf_decodes_lists_of_numbers(
    groups: list[tuple[int, int | bytes]],
) -> None:
    spec = read("v1", "Pod", (2, message((14, message(*groups)))))["spec"]

    assert spec["securityContext"] == {"supplementalGroups": [1, 2]}


def test_protobuf_decodes_options_of_any_group() -> None:
    options = read("apps/v1", "DeleteOptions", (1, 0), (4, "Orphan"))

    assert options == {"gracePeriodSeconds": 0, "propagationPolicy": "Orphan"}


def test_protobuf_skips_unknown_fields() -> None:
    assert read("v1", "ConfigMap", (99, "new"), (98, 7)) == {}


# ---------------------------------------------------------------- errors


@each_case(
    "raw, words",
    [
        pytest.param(b"", "empty data", id="nothing"),
        pytest.param(b"k8s\0", "empty body", id="only-the-prefix"),
        pytest.param(b"{}", r"expected prefix \[107 56 115 0\]", id="json"),
        pytest.param(b"k8s\0garbage", "illegal wireType 7", id="wire-type"),
        pytest.param(NAMESPACE[:-1], "unexpected EOF", id="cut-off"),
        pytest.param(b"k8s\0\x0a", "unexpected EOF", id="no-length"),
        pytest.param(b"k8s\0\x00\x00", "illegal tag 0", id="tag"),
        pytest.param(b"k8s\0\x08" + b"\xff" * 11, "integer overflow", id="overflow"),
    ],
)
def test_protobuf_rejects_malformed_message(raw: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        decode_object(raw)


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([(1, 5)], id="number-for-an-object"),
        pytest.param([(1, message((1, 5)))], id="number-for-a-text"),
        pytest.param([(2, message((4, "x")))], id="text-for-a-number"),
    ],
)
def test_protobuf_rejects_wrong_wire_type(parts: list[tuple[int, int | bytes]]) -> None:
    with pytest.raises(ValueError, match="wrong wireType"):
        read("v1", "Pod", *parts)


def test_protobuf_rejects_invalid_int_or_string() -> None:
    port = message((4, message((2, "x"))))

    with pytest.raises(ValueError, match="wrong wireType"):
        read("v1", "Service", (2, message((1, port))))


@pytest.mark.parametrize("kind", ["Gadget", "PodList"])
def test_protobuf_rejects_unknown_kind(kind: str) -> None:
    with pytest.raises(UnknownKindError):
        read("v1", kind)


def test_protobuf_skips_fixed_length_numbers() -> None:
    raw = b"\x09" + bytes(8) + b"\x15" + bytes(4) + message((3, "x"))

    assert list(fields(raw)) == [(1, bytes(8)), (2, bytes(4)), (3, b"x")]


def test_protobuf_decodes_packed_numbers() -> None:
    assert [to_signed(it) for it in varints(varint(300) + varint(-1))] == [300, -1]


# ---------------------------------------------------------------- fields.json


def test_protobuf_decodes_every_type_of_fields_json() -> None:
    text = files("aioinformer_apiserver.protobuf").joinpath("fields.json").read_text()
    messages = json.loads(text)["messages"]
    for fields_of_one in filter(None, messages.values()):
        for field in fields_of_one.split(", "):
            kind = field.split(" ")[2].rpartition(":")[2]
            assert kind in messages or kind in _NUMBERS or kind in _READERS, field
