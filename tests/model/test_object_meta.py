"""Decoding of metadata, and interned labels."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from conftest import pod
from each_case import each_case
from hypothesis import example, given, settings
from json_helpers import nested, styles, texts, values, written

from aioinformer.errors import DecodeError
from aioinformer.model.object_meta import LabelTable, read_identity, read_object_meta

FIELDS = {"name": "name", "namespace": "namespace", "uid": "uid"}
FIELDS["resourceVersion"] = "resource_version"


def facts(body: bytes, *, namespaced: bool = True) -> dict[str, Any]:
    """Return the metadata of `body` by JSON names, without absent fields."""
    head = read_object_meta(body, namespaced=namespaced)
    found = {name: getattr(head, attribute) for name, attribute in FIELDS.items()}
    found = {name: value for name, value in found.items() if value is not None}
    if bytes(head.labels):
        found["labels"] = json.loads(bytes(head.labels))

    return found


def facts_of_whole(body: bytes) -> dict[str, Any]:
    """Return the same metadata by decoding the whole body."""
    metadata = json.loads(body).get("metadata") or {}
    found = {name: metadata.get(name) for name in FIELDS}
    found = {name: value for name, value in found.items() if value is not None}
    return found | {name: metadata[name] for name in ("labels",) if name in metadata}


# ---------------------------------------------------------------- any object


def shuffled(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Generate objects with some of the fields, in any order."""
    return st.fixed_dictionaries({}, optional=fields).flatmap(
        lambda found: st.permutations(list(found.items())).map(dict)
    )


labels = st.none() | st.dictionaries(texts, texts, max_size=2)
metadata = shuffled(
    name=st.none() | texts,
    namespace=st.none() | texts,
    uid=st.none() | texts,
    resourceVersion=st.none() | texts,
    labels=labels,
    annotations=st.dictionaries(texts, texts, max_size=2),
    managedFields=st.lists(values, max_size=2),
    spec=values,
    data=values,
)
objects = shuffled(
    kind=texts,
    metadata=st.none() | metadata,
    spec=values,
    data=values,
    status=values,
    managedFields=values,
    a=shuffled(metadata=metadata, spec=values, managedFields=st.lists(values)),
)
# All fields that are needed for a cut to succeed.
full_metadata = st.tuples(
    metadata, st.permutations(["name", "namespace", "uid", "resourceVersion"]), labels
).map(lambda it: {**dict.fromkeys(it[1], "x"), **it[0], "labels": it[2]})
full_objects = st.tuples(objects, full_metadata).map(
    lambda it: {**it[0], "metadata": it[1]}
)


@given(obj=objects | full_objects, style=styles)
@settings(max_examples=100)
@example(
    obj={"a": {"b": 1, "managedFields": []}, "metadata": {"name": "x"}}, style="compact"
)
@example(obj={"a": {"b": {}, "spec": 1}, "metadata": {"name": "x"}}, style="compact")
def test_object_meta_equals_full_decode(obj: dict[str, Any], style: str) -> None:
    body = written(obj, style)

    assert facts(body) == facts_of_whole(body)


@given(obj=full_objects, style=styles)
@settings(max_examples=50)
def test_object_meta_of_cluster_scoped_object_equals_full_decode(
    obj: dict[str, Any], style: str
) -> None:
    obj["metadata"].pop("namespace", None)
    body = written(obj, style)

    assert facts(body, namespaced=False) == facts_of_whole(body)


# ---------------------------------------------------------------- known shapes

FRONT = (
    '{"metadata":{"name":"n","namespace":"s","uid":"u","resourceVersion":"7",'
    '"labels":{"a":"b"}'
)
SAID = {"name": "n", "namespace": "s", "uid": "u", "resourceVersion": "7"}
SAID_WITH_LABELS: dict[str, Any] = {**SAID, "labels": {"a": "b"}}


@pytest.mark.parametrize(
    "front",
    [
        pytest.param(FRONT + ',"managedFields":[', id="before-managed-fields"),
        pytest.param(FRONT + '},"spec":', id="before-spec"),
        pytest.param(FRONT + '},"data":', id="before-data"),
        pytest.param(
            FRONT + ',"annotations":{"x":"},\\"spec\\":"}},"spec":',
            id="mark-in-a-string",
        ),
    ],
)
def test_object_meta_does_not_read_after_cut(front: str) -> None:
    """The rest is not even JSON."""
    assert facts(f"{front} nonsense".encode()) == SAID_WITH_LABELS


@each_case("missing", [*SAID_WITH_LABELS])
def test_object_meta_reads_missing_fields_after_cut(missing: str) -> None:
    fields = {name: it for name, it in SAID_WITH_LABELS.items() if name != missing}
    late = {**fields, "managedFields": [{}], missing: SAID_WITH_LABELS[missing]}

    assert facts(written({"metadata": late, "spec": {}})) == SAID_WITH_LABELS
    assert facts(written({"metadata": {**fields, "managedFields": [{}]}})) == fields


def test_cluster_scoped_object_meta_does_not_search_namespace() -> None:
    fields = {name: it for name, it in SAID_WITH_LABELS.items() if name != "namespace"}
    front = written({"metadata": fields})[:-2] + b',"managedFields":['

    assert facts(front + b"nonsense", namespaced=False) == fields
    with pytest.raises(DecodeError):
        read_object_meta(front + b"nonsense")


def test_mark_in_nested_object_is_not_the_cut() -> None:
    body = (
        FRONT[:13]
        + '"other":{"x":{},"spec":1,"managedFields":[]},'
        + FRONT[13:]
        + '},"template":{"metadata":{"name":"inner"},"spec":{}}}'
    )

    assert facts(body.encode()) == SAID_WITH_LABELS


@each_case(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"7", id="number"),
        pytest.param(b"[]", id="array"),
        pytest.param(b'{"metadata":7}', id="metadata-is-a-number"),
        pytest.param(b'{"metadata":{"name":{}}}', id="name-is-an-object"),
        pytest.param(b'{"metadata":{"name":"\xff"}}', id="not-utf8"),
        pytest.param(b'{"metadata":{"name":"n"}', id="cut-off"),
        pytest.param(b'{"metadata":{"name":"n"}}}', id="too-long"),
        pytest.param(
            b'{"a":' + nested() + b'},"spec":{}}', id="too-deep-before-the-cut"
        ),
        pytest.param(b'{"a":' + nested() + b',"metadata":7}', id="too-deep-in-front"),
        pytest.param(nested()[:-1], id="too-deep-cut-off"),
    ],
)
def test_malformed_object_raises_decode_error(body: bytes) -> None:
    with pytest.raises(DecodeError, match="cannot read an object"):
        read_object_meta(body)


@pytest.mark.parametrize("depth", [1100, 30_000])
@pytest.mark.parametrize(
    "place",
    [
        pytest.param(b'{"a":%b,"metadata":{%b}}', id="in-front"),
        pytest.param(b'{"metadata":{"managedFields":[%b],%b}}', id="in-the-metadata"),
    ],
)
def test_object_meta_of_deeply_nested_object_is_read(place: bytes, depth: int) -> None:
    fields = b'"name":"n","namespace":"s","uid":"u","resourceVersion":"7",'
    body = place % (nested(depth), fields + b'"labels":{"a":"b"}')

    assert facts(body) == {
        "name": "n",
        "namespace": "s",
        "uid": "u",
        "resourceVersion": "7",
        "labels": {"a": "b"},
    }
    assert read_identity(body).name == "n"


@each_case(
    "metadata, expected",
    [
        ({"name": "n", "labels": 7}, ("n", None, None, None)),
        ({"name": "n", "namespace": "s", "uid": 7}, ("n", "s", None, None)),
        ({"name": "n", "uid": "u", "resourceVersion": 7}, ("n", None, "u", None)),
        ({"name": "n", "namespace": 7}, None),
        ({"name": 7}, None),
        ({"name": ""}, None),
        ({}, None),
        (None, None),
        (7, None),
    ],
)
def test_read_identity_requires_only_name(metadata: Any, expected: Any) -> None:
    body = written({"metadata": metadata})

    if expected is None:
        with pytest.raises(DecodeError):
            read_identity(body)

        return

    found = read_identity(body)
    assert (found.name, found.namespace, found.uid, found.resource_version) == expected


def test_truncated_object_is_read_correctly_or_rejected() -> None:
    body = written(pod("web-0", "shop", {"app": "web"}))
    whole = facts(body)
    read = []

    for end in range(len(body)):
        try:
            read.append(facts(body[:end]))
        except DecodeError:
            continue

    assert read
    assert all(it == whole for it in read)


# ---------------------------------------------------------------- labels


def test_equal_label_sets_share_one_dict() -> None:
    table = LabelTable()

    first = table.get(msgspec.Raw(b'{"a":"b"}'))

    assert first == {"a": "b"}
    assert table.get(msgspec.Raw(b'{"a":"b"}')) is first


def test_equal_label_strings_are_shared() -> None:
    table = LabelTable()
    name, value = "example.com/name", "some-value"
    labels = {name: value, "n": "1"}, {name: value, "n": "2"}

    found = [table.get(msgspec.Raw(written(it))) for it in labels]

    assert tuple(found) == labels
    (first_key, *_), (second_key, *_) = found
    assert first_key is second_key
    assert found[0][name] is found[1][name]


@each_case(
    "text, labels",
    [
        pytest.param(b"", {}, id="absent"),
        pytest.param(b"null", {}, id="null"),
        pytest.param(b"{}", {}, id="none"),
        pytest.param(b'{"a":null,"b":"c"}', {"b": "c"}, id="null-value"),
        pytest.param(b'{"a":""}', {"a": ""}, id="empty-value"),
    ],
)
def test_label_table_decodes_labels(text: bytes, labels: dict[str, str]) -> None:
    assert LabelTable().get(msgspec.Raw(text)) == labels


@each_case("text", [b"7", b"[]", b'{"a":1}', b'{"a":"\xff"}', b'{"a"'])
def test_label_table_rejects_malformed_labels(text: bytes) -> None:
    table = LabelTable()

    for _ in range(2):
        with pytest.raises(DecodeError, match="cannot read labels"):
            table.get(msgspec.Raw(text))


def test_label_table_is_bounded() -> None:
    table = LabelTable(limit=3)
    first = table.get(msgspec.Raw(b'{"n":"0"}'))
    sizes = []

    for number in range(1, 20):
        table.get(msgspec.Raw(written({"n": str(number)})))
        sizes.append((len(table._sets), len(table._strings)))

    assert max(sizes) == (3, 4)  # three sets: one name, three values
    again = table.get(msgspec.Raw(b'{"n":"0"}'))
    assert again == first == {"n": "0"}
    assert again is not first
