"""Reading one path out of a body."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import pytest
from conftest import pod
from each_case import each_case
from hypothesis import given, settings
from json_helpers import keys, nested, styles, values, written

from aioinformer.errors import DecodeError, OptionsError
from aioinformer.model import paths
from aioinformer.model.paths import Path, path_reader, steps_of
from aioinformer_apiserver.schema.openapi_schema import definitions

BODY = {
    "kind": "Pod",
    "metadata": {
        "annotations": {"example.com/owner": "me", "": "empty", "1": "one"},
        "labels": None,
    },
    "spec": {
        "containers": [{"image": "a"}, None, {"image": "c", "args": [["x", "y"]]}],
        "replicas": 0,
        "paused": False,
        'odd"key': 1,
        "back\\slash": 2,
        "new\nline": 3,
        "ключ": 4,
        "a b": 5,
    },
}


@each_case(
    "path, value",
    [
        pytest.param("kind", "Pod", id="top"),
        pytest.param("spec.replicas", 0, id="zero"),
        pytest.param("spec.paused", False, id="false"),
        pytest.param("spec.containers.0.image", "a", id="index"),
        pytest.param("spec.containers.2.args.0.1", "y", id="index-of-index"),
        pytest.param("spec.containers", BODY["spec"]["containers"], id="array"),  # type: ignore[index]
        pytest.param(
            "spec.containers.2", {"image": "c", "args": [["x", "y"]]}, id="object"
        ),
        pytest.param(("metadata", "annotations", "example.com/owner"), "me", id="dots"),
        pytest.param("metadata.annotations.1", "one", id="digits-as-a-key"),
        pytest.param(("spec", 'odd"key'), 1, id="quote"),
        pytest.param(("spec", "back\\slash"), 2, id="backslash"),
        pytest.param(("spec", "new\nline"), 3, id="newline"),
        pytest.param(("spec", "ключ"), 4, id="unicode"),
        pytest.param(("spec", "a b"), 5, id="blank"),
    ],
)
def test_path_reader_returns_value(path: Path, value: object) -> None:
    assert path_reader(path)(written(BODY)) == value


@each_case(
    "path",
    [
        pytest.param("other", id="top"),
        pytest.param("metadata.other", id="inner"),
        pytest.param("other.more.0.x", id="far"),
        pytest.param("metadata.labels", id="null"),
        pytest.param("metadata.labels.app", id="after-null"),
        pytest.param("spec.containers.1", id="null-in-an-array"),
        pytest.param("spec.containers.1.image", id="after-null-in-an-array"),
        pytest.param("spec.containers.3", id="after-the-end"),
        pytest.param("spec.containers.3.image", id="far-after-the-end"),
        pytest.param("spec.containers.-1", id="negative-index"),
        pytest.param("spec.containers.image", id="key-of-an-array"),
        pytest.param("spec.containers.0.1", id="index-of-an-object"),
        pytest.param("kind.more", id="after-a-string"),
        pytest.param("kind.0", id="index-of-a-string"),
        pytest.param("spec.replicas.more", id="after-a-number"),
        pytest.param("spec.paused.more", id="after-false"),
        pytest.param("metadata.annotations.1.2", id="after-digits-as-a-key"),
        pytest.param(("spec", "\ud800"), id="no-unicode"),
    ],
)
def test_path_reader_returns_none_for_absent_value(path: Path) -> None:
    assert path_reader(path)(written(BODY)) is None


def walked(value: Any, steps: tuple[str, ...]) -> Any:
    """Return the value by stepwise access to the decoded JSON."""
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal():
            value = dict(enumerate(value)).get(int(step))
        else:
            return None

    return value


# Long enough to make a cut worthwhile, and text that must not be mistaken for the cut.
PADDING = "x" * 600
fronts = st.sampled_from(
    [
        {},
        {"pad": PADDING},
        {"pad": PADDING, "inner": {"a": 1, "spec": {"name": 1}, "status": {}}},
        {"pad": PADDING, "inner": [{"a": 1, "spec": 2}]},
        {"pad": PADDING, "inner": {"spec": {"name": 1}, "status": {"name": 2}}},
        {"pad": PADDING, "inner": [{"a": {}, "status": {"status": {}}}], "note": "},"},
        {"pad": PADDING + '{},"status":{"name":1}}', "status": {"a": {}, "status": {}}},
        {"pad": PADDING + ',"spec":{"name":1}}'},
        {"pad": PADDING, "a": ',"spec":', ",": ":"},
    ]
)

steps = keys.filter(bool) | st.integers(0, 3).map(str)


@given(
    body=st.dictionaries(steps, values, max_size=4),
    path=st.lists(steps, min_size=1, max_size=4).map(tuple),
    style=styles,
    front=fronts,
)
@settings(max_examples=150)
def test_path_reader_equals_stepwise_access(
    body: Any, path: tuple[str, ...], style: str, front: dict[str, Any]
) -> None:
    raw = written({**front, **body}, style)

    assert path_reader(path)(raw) == walked(json.loads(raw), path)


@given(
    data=st.data(),
    body=st.dictionaries(steps, values, min_size=1, max_size=4),
    front=fronts,
)
@settings(max_examples=150)
def test_path_reader_finds_every_path_of_body(
    data: st.DataObject, body: Any, front: dict[str, Any]
) -> None:
    value: Any = body
    path: list[str] = []
    while isinstance(value, dict | list) and value:
        inner = list(value.items() if isinstance(value, dict) else enumerate(value))
        step, value = data.draw(st.sampled_from(inner))
        if not str(step):
            return  # not a path

        path.append(str(step))

    raw = written({**front, **body})
    assert path_reader(tuple(path))(raw) == value


@each_case(
    "path",
    [
        pytest.param("", id="empty"),
        pytest.param((), id="no-steps"),
        pytest.param("a..b", id="two-dots"),
        pytest.param("spec.containers[0].name", id="brackets"),
        pytest.param(".a", id="dot-in-front"),
        pytest.param("a.", id="trailing-dot"),
        pytest.param(("a", ""), id="empty-step"),
        pytest.param(("a", 1), id="number"),
        pytest.param(("a", None), id="none"),
    ],
)
def test_path_reader_rejects_malformed_path(path: Any) -> None:
    with pytest.raises(OptionsError, match="not a path"):
        path_reader(path)


@each_case(
    "path, advice",
    [
        (".spec.nodeName", "Write 'spec.nodeName'"),
        ("/spec/nodeName", "Write 'spec.nodeName'"),
        ("$.spec.nodeName", "Write 'spec.nodeName'"),
        ("{.spec.nodeName}", "Write 'spec.nodeName'"),
        ("spec.containers[0].image", "Write 'spec.containers.0.image'"),
        ("metadata.labels['example.com/tier']", "Write a tuple of keys"),
        ("spec.containers[*].image", "Write keys and indexes with dots"),
        (["spec", "nodeName"], "Write 'spec.nodeName', or a tuple of keys"),
        (7, "Write 'spec.nodeName', or a tuple of keys"),
    ],
)
def test_path_of_another_language_is_translated(path: Any, advice: str) -> None:
    with pytest.raises(OptionsError) as caught:
        steps_of(path)

    assert f"not a path: {path!r}. {advice}" in str(caught.value)


@each_case(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"a":{"b":1}', id="cut-off"),
        pytest.param(b'{"a":{"b":"\xff"}}', id="not-utf8"),
        pytest.param(b'{"a":{"b":1},"c":' + nested(1_000_000) + b"}", id="too-deep"),
    ],
)
@each_case("path", ["a.b", "a.b.c", ("a", 'b"')])
def test_path_reader_raises_decode_error_for_malformed_body(
    body: bytes, path: Path
) -> None:
    with pytest.raises(DecodeError, match=r"^reading a\.b"):
        path_reader(path)(body)


def test_path_reader_does_not_decode_other_fields() -> None:
    """An invalid UTF-8 byte would fail where it is decoded."""
    raw = written(pod("web-0")).replace(b"Running", b"\xff")

    assert path_reader("spec.nodeName")(raw) == "node-1"
    with pytest.raises(DecodeError):
        path_reader("status.phase")(raw)


def test_path_reader_skips_text_before_path() -> None:
    """Skipped text is not checked."""
    body = {"metadata": {"note": "x" * 600, "odd": "?"}, "status": {"phase": "Failed"}}
    raw = written(body).replace(b"?", b"\xff")

    assert path_reader("status.phase")(raw) == "Failed"
    with pytest.raises(DecodeError):
        path_reader("metadata.odd")(raw)


# ---------------------------------------------------------------- the end of a spec

# Text of a body from the spec to the status. Servers do not write all of it: keys are
# repeated at other levels, and the status is absent, null, or not the last field.
LOOK_ALIKE = ',"nodeName":"forged"},"status":{"phase":"forged"}}'
INNER = {"a": {}, "nodeName": "inner", "status": {"phase": "inner"}, "z": {}}
inner_fields: dict[str, st.SearchStrategy[Any]] = {
    "nodeName": st.sampled_from(["n", 'n","nodeName":"x', None, INNER, ["n"], 1]),
    "phase": st.sampled_from(["Running", LOOK_ALIKE, None, INNER]),
    "status": st.sampled_from([INNER, {}, "True", None]),
    "spec": st.sampled_from([INNER, {"spec": INNER}, {}]),
    "text": st.sampled_from([LOOK_ALIKE, 'a\\"', "\\", '{"nodeName":', "x" * 2_500]),
    "items": st.sampled_from([[INNER], [INNER, {"nodeName": "n"}], [], [[{}]]]),
    "last": st.sampled_from([INNER, {}]),
}
metadata_of_pods = st.fixed_dictionaries(
    {"name": st.just("web-0")},
    optional={
        "annotations": st.dictionaries(
            st.sampled_from(["nodeName", "status", "a"]),
            st.sampled_from([LOOK_ALIKE, "x" * 600, "{", "}}"]),
        ),
        "managedFields": st.just(
            [{"fieldsV1": {"f:spec": {"f:nodeName": {}, 'k:{"nodeName":"a"}': {}}}}]
        ),
        "ownerReferences": st.just([{"nodeName": "n", "status": {"phase": "x"}}]),
    },
)


@st.composite
def parts_of_pods(draw: st.DrawFn) -> dict[str, Any]:
    """Return some of these fields, in any order."""
    names = draw(st.lists(st.sampled_from(sorted(inner_fields)), unique=True))
    return {name: draw(inner_fields[name]) for name in names}


@given(data=st.data(), style=styles)
@settings(max_examples=400)
def test_path_reader_reads_end_of_spec_like_whole_body(
    data: st.DataObject, style: str
) -> None:
    part = parts_of_pods() | st.none()
    order = data.draw(st.permutations(["metadata", "spec", "status", "other"]))
    if data.draw(st.booleans()):
        order = ["metadata", "spec", "status"]

    body: dict[str, Any] = {
        "apiVersion": data.draw(st.sampled_from(["v1", "example.com/v1"])),
        "kind": "Pod",
    }
    for field in order:
        if field == "metadata":
            body[field] = data.draw(metadata_of_pods)
        elif data.draw(st.integers(0, 4)):
            body[field] = data.draw(part)

    if body["apiVersion"] == "v1":
        body.pop("other", None)  # no Pod has it

    raw = written(body, style)
    for path in (
        "spec.nodeName",
        "spec.nodeName.nodeName",
        "spec.items.1.nodeName",
        "spec.status.phase",
        "spec.spec.nodeName",
        "spec.last",
        "spec.text",
        "status.phase",
        "status.nodeName",
        "status.last.status",
    ):
        assert path_reader(path)(raw) == walked(json.loads(raw), steps_of(path))


def test_path_reader_ignores_key_that_ends_like_path() -> None:
    """Such a key has an escaped quote in front of the name."""
    spec = {"a": 1, 'k"nodeName': "other"}
    metadata = {"note": "x" * 600}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    assert path_reader("spec.nodeName")(written({**body, "status": {}})) is None


@pytest.mark.parametrize("kind", ["Pod", "Unknown"])
def test_path_reader_decodes_only_end_of_body_of_known_kind(kind: str) -> None:
    """Skipped text is not checked."""
    odd = {"metadata": {"note": "x" * 600}, "spec": {"odd": "?", "nodeName": "a"}}
    raw = written({"apiVersion": "v1", "kind": kind, **odd, "status": {"phase": "b"}})
    raw = raw.replace(b'"?"', b"?")

    if kind == "Pod":
        assert path_reader("spec.nodeName")(raw) == "a"
    else:
        with pytest.raises(DecodeError):
            path_reader("spec.nodeName")(raw)


def test_kinds_with_spec_and_status_have_no_other_fields() -> None:
    """Checked against the schemas of a real server."""
    schemas = {
        (f"{it['group']}/".lstrip("/") + it["version"], it["kind"]): schema
        for schema in definitions().values()
        for it in schema.get("x-kubernetes-group-version-kind", ())
    }
    known = {
        (version, kind)
        for version, kinds in paths._SPEC_AND_STATUS.items()
        for kind in kinds.split()
    }
    fields = {"apiVersion", "kind", "metadata", "spec", "status"}

    assert [it for it in known if set(schemas[it]["properties"]) != fields] == []
    assert set(definitions()[METADATA]["properties"]) == paths._FIELDS_OF_METADATA


METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def test_path_reader_is_compiled_once() -> None:
    assert path_reader("spec.nodeName") is path_reader("spec.nodeName")
