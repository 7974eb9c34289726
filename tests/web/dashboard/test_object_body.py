"""Bodies that pages show, and paths that differ."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aioinformer import KubeObject
from aioinformer.model.resources import CONFIG_MAPS, PODS, SECRETS
from aioinformer.web.dashboard.object_body import (
    MAX_COMPARED,
    MAX_VALUES,
    changed_paths,
    details_of,
    shown_body,
)
from aioinformer.web.responses import redacted

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@pytest.mark.parametrize(
    ("old", "new", "paths"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 2, "c": 2}}, ["a.b"]),
        ({"a": {"b": 1}}, {"a": {}}, ["a.b"]),
        ({}, {"a": {"b": 1}}, ["a"]),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}, 4]}, ["a[1].b", "a[2]"]),
        ({"a": [1, 2]}, {"a": []}, ["a[0]", "a[1]"]),
        ({"a": {}}, {"a": []}, ["a"]),
        ({"a": 1}, {"a": True}, ["a"]),
        ({"a": None}, {}, ["a"]),
        ({"a-b": 1, "_c": 1}, {}, ["a-b", "_c"]),
        ({"x.y": 1}, {}, ['["x.y"]']),
        (
            {"metadata": {"labels": {"app.kubernetes.io/name": "a"}}},
            {"metadata": {"labels": {"app.kubernetes.io/name": "b"}}},
            ['metadata.labels["app.kubernetes.io/name"]'],
        ),
        ({"a": {'"]\n\x00': 1}}, {"a": {}}, ['a["\\"]\\n\\u0000"]']),
        ({"a": {"": 1, "9": 1}}, {"a": {}}, ['a[""]', 'a["9"]']),
        ({"__proto__": {"x": 1}}, {"__proto__": {"x": 2}}, ["__proto__.x"]),
        (
            {
                "metadata": {
                    "resourceVersion": "1",
                    "generation": 1,
                    "managedFields": [],
                }
            },
            {"metadata": {"resourceVersion": "2", "generation": 2}},
            [],
        ),
        ({"spec": {"generation": 1}}, {"spec": {"generation": 2}}, ["spec.generation"]),
    ],
)
def test_changed_paths(old: dict[str, Any], new: dict[str, Any], paths: Any) -> None:
    assert changed_paths(old, new) == (paths, 0)


def test_further_paths_are_counted() -> None:
    old, new = ({"a": {f"k{n}": n + more for n in range(20)}} for more in (0, 1))
    assert changed_paths(old, new, limit=3) == (["a.k0", "a.k1", "a.k2"], 17)
    assert len(changed_paths(old, new)[0]) == 12


@pytest.mark.parametrize("value", [1, [], {}])
def test_many_values_are_compared_in_part(value: Any) -> None:
    many = [value] * MAX_VALUES
    assert changed_paths({"a": many, "b": 1}, {"a": many, "b": 2}) == ([], -1)
    few = many[:-2]
    assert changed_paths({"a": few, "b": 1}, {"a": few, "b": 2}) == (["b"], 0)


def test_path_of_long_or_deep_names_is_cut() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = {"name": deep}

    (path,), _ = changed_paths({"x" * 1_000_000: 1}, {})
    assert len(path) < 400
    (path,), _ = changed_paths({"a": deep}, {"a": 1})
    assert path == "a"
    other: Any = 2
    for _ in range(5000):
        other = {"name": other}

    (path,), _ = changed_paths({"a": deep}, {"a": other})
    assert path.startswith("a.name.name")
    assert len(path) < 400


def secret(value: str, **more: Any) -> KubeObject:
    annotations = {LAST_APPLIED: f'{{"data":"{value}"}}', "other": "kept"}
    return KubeObject.of(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": "tls",
                "namespace": "shop",
                "uid": "u1",
                "annotations": annotations,
                "managedFields": [{"manager": "kubectl"}],
            },
            "data": {"secret-key-name": value},
            "stringData": {"b": value},
            "type": "Opaque",
            **more,
        }
    )


def test_secret_is_shown_without_its_data() -> None:
    body, hidden = shown_body(secret("hunter2"), SECRETS)
    assert "hunter2" not in json.dumps(body)
    assert body["metadata"]["annotations"] == {"other": "kept"}
    assert body["type"] == "Opaque"
    assert hidden == [
        "data",
        "stringData",
        f'metadata.annotations["{LAST_APPLIED}"]',
        "metadata.managedFields",
    ]


def test_paths_of_secret_tell_that_data_changed_but_not_which() -> None:
    old, new = secret("hunter2"), secret("hunter3", type="other")
    details = details_of(new, old, SECRETS)
    assert sorted(details.paths) == ["data", "stringData", "type"]
    assert details.more == 0
    assert details.size == len(new.raw)


def test_other_kinds_keep_their_data() -> None:
    body = {"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}
    assert shown_body(KubeObject.of(body), CONFIG_MAPS) == (body, [])


@pytest.mark.parametrize("annotations", ["text", [1], 7])
def test_secret_with_malformed_annotations_is_redacted(annotations: Any) -> None:
    obj = secret("hunter2", metadata={"name": "a", "annotations": annotations})
    assert b"hunter2" not in redacted(obj, SECRETS)
    body, hidden = shown_body(obj, SECRETS)
    assert body["metadata"]["annotations"] == annotations
    assert hidden == ["data", "stringData"]


@pytest.mark.parametrize("kind", ["Pod", "Secret"])
@pytest.mark.parametrize("levels", [260, 900, 2000])
def test_deep_body_is_shown_in_part(kind: str, levels: int) -> None:
    head = f'{{"kind":"{kind}","metadata":{{"name":"a"}},"data":'.encode()
    obj = stored(head + b"[" * levels + b'"hunter2"' + b"]" * levels + b"}")
    body, hidden = shown_body(obj, PODS)
    assert body["metadata"]["name"] == "a"
    assert hidden
    assert "hunter2" not in json.dumps(body)
    assert details_of(obj, obj, PODS).paths == []


@pytest.mark.parametrize("body", [b'{"metadata":{"name":"a"},"x":"\\ud800"}', b"{"])
def test_unreadable_body_is_reduced_to_its_identity(body: bytes) -> None:
    shown, hidden = shown_body(stored(body), PODS)
    assert shown["metadata"] == {
        "name": "a",
        "namespace": "shop",
        "uid": "u1",
        "resourceVersion": "1",
    }
    assert hidden == ["all but the identity, as it is unreadable"]


def test_large_bodies_are_not_compared() -> None:
    small, large = (stored(b'{"x":"%b"}' % (b"x" * n)) for n in (1, MAX_COMPARED))
    assert details_of(large, small, PODS) == (len(large.raw), [], -1)
    assert details_of(small, small, PODS) == (len(small.raw), [], 0)


def test_states_of_different_objects_are_not_compared() -> None:
    old = KubeObject.of({"metadata": {"name": "a", "uid": "1"}, "x": 1})
    new = KubeObject.of({"metadata": {"name": "a", "uid": "2"}, "x": 2})
    assert details_of(new, old, PODS).paths == []
    assert details_of(new, None, PODS).paths == []


def stored(body: bytes) -> KubeObject:
    """Make an object as an informer stores it, whatever its body is."""
    like = KubeObject.of({"metadata": {"name": "a", "namespace": "shop"}})
    return KubeObject(body, like.key, "u1", "1", {}, like.context)
