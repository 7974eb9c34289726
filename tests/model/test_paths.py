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
from aioinformer.model.paths import Path, path_reader, steps_of

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


def test_path_reader_is_compiled_once() -> None:
    assert path_reader("spec.nodeName") is path_reader("spec.nodeName")
