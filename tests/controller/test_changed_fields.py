"""Changed fields of objects, and their managers."""

from __future__ import annotations

from typing import Any

import pytest

from aioinformer.controller.changed_fields import (
    MAX_FIELDS,
    changed_fields,
    field_manager,
    shown_field,
    writes_field,
)
from aioinformer.model.objects import KubeObject


def obj(**body: Any) -> KubeObject:
    metadata = {"name": "a", "resourceVersion": "1", **body.pop("metadata", {})}
    return KubeObject.of({"metadata": metadata, **body})


def conditions(**states: str) -> dict[str, Any]:
    return {"conditions": [{"type": it, "status": states[it]} for it in states]}


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        ({}, {}, []),
        ({"spec": {"a": 1}}, {"spec": {"a": 1}}, []),
        ({"spec": {"a": 1}}, {"spec": {"a": 2}}, ["spec.a"]),
        ({"spec": {"a": 1, "b": 1}}, {"spec": {"b": 2}}, ["spec.a", "spec.b"]),
        ({}, {"status": {"seen": 1}}, ["status.seen"]),
        ({"status": {"seen": 1}}, {}, ["status.seen"]),
        ({}, {"status": {}}, ["status"]),
        ({"spec": None}, {"spec": {"a": 1}}, ["spec.a"]),
        ({"spec": {"l": [1, 2]}}, {"spec": {"l": [2, 1]}}, ["spec.l"]),
        ({"spec": {"a": 1}}, {"spec": {"a": {"b": 1}}}, ["spec.a"]),
        (
            {"status": conditions(Ready="False", Synced="True")},
            {"status": conditions(Synced="True", Ready="True")},
            ["status.conditions[Ready].status"],
        ),
        (
            {"status": conditions(Ready="True")},
            {"status": conditions(Ready="True", Synced="True")},
            ["status.conditions[Synced].status", "status.conditions[Synced].type"],
        ),
        (
            {"metadata": {"resourceVersion": "1", "generation": 1}},
            {
                "metadata": {
                    "resourceVersion": "2",
                    "generation": 2,
                    "labels": {"a": ""},
                }
            },
            ["metadata.labels.a"],
        ),
    ],
)
def test_changed_fields_are_found(
    old: dict[str, Any], new: dict[str, Any], fields: list[str]
) -> None:
    assert sorted(map(shown_field, changed_fields(obj(**old), obj(**new)))) == fields


def test_changed_fields_are_bounded() -> None:
    new = obj(data={f"key-{number}": "" for number in range(1000)})

    assert len(changed_fields(obj(), new)) == MAX_FIELDS


def test_deep_values_count_as_one_field() -> None:
    def nested(leaf: int) -> Any:
        value: Any = leaf
        for _ in range(80):
            value = {"x": value}

        return value

    (path,) = changed_fields(obj(spec=nested(1)), obj(spec=nested(2)))

    assert len(path) == 12


def entry(manager: str, time: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"manager": manager, "time": time, "fieldsV1": fields}


FIELDS = [
    entry("kubectl", "2026-01-01T00:00:00Z", {"f:spec": {"f:a": {}, "f:whole": {}}}),
    entry("operator", "2026-01-01T00:00:02Z", {"f:spec": {".": {}, "f:b": {}}}),
    entry(
        "kubelet",
        "2026-01-01T00:00:01Z",
        {"f:status": {"f:conditions": {'k:{"type":"Ready"}': {"f:status": {}}}}},
    ),
]


@pytest.mark.parametrize(
    ("path", "manager"),
    [
        (("spec", "a"), "kubectl"),
        (("spec", "whole", "x"), "kubectl"),
        (("spec", "b"), "operator"),
        (("spec", "c"), ""),
        (("status", "conditions", ("type", "Ready"), "status"), "kubelet"),
        (("status", "conditions", ("type", "Synced"), "status"), ""),
        (("status", "conditions", ("name", "Ready"), "status"), ""),
        ((), ""),
    ],
)
def test_field_manager_is_found(path: Any, manager: str) -> None:
    assert field_manager(obj(metadata={"managedFields": FIELDS}), path) == manager


def test_last_writer_is_the_manager() -> None:
    fields = [
        entry("late", "2026-01-01T00:00:02Z", {"f:spec": {"f:a": {}}}),
        entry("early", "2026-01-01T00:00:01Z", {"f:spec": {"f:a": {}}}),
    ]

    both = obj(metadata={"managedFields": fields})
    assert field_manager(both, ("spec", "a")) == "late"


def test_field_without_managed_fields_has_no_manager() -> None:
    assert field_manager(obj(), ("spec", "a")) == ""


@pytest.mark.parametrize(
    "fields",
    [None, "x", {"f:spec": "x"}, {"f:spec": {"k:nonsense": {}}}, {"f:spec": 1}],
)
def test_malformed_managed_fields_have_no_manager(fields: Any) -> None:
    one = obj(metadata={"managedFields": [entry("odd", "", fields)]})

    assert field_manager(one, ("spec", ("type", "x"))) == ""


@pytest.mark.parametrize(
    ("body", "path", "expected"),
    [
        ({"spec": {"a": 1}}, ("spec", "a"), True),
        ({"spec": {"a": 1}}, ("spec", "b"), False),
        ({"spec": {"a": {"b": 1}}}, ("spec", "a"), True),
        ({"spec": None}, ("spec", "a"), True),
        ({"spec": {"l": [{"type": "x"}]}}, ("spec", "l", ("type", "x"), "a"), True),
        ({}, ("spec",), False),
        ([{"op": "replace", "path": "/spec/a", "value": 1}], ("spec", "a"), True),
        ([{"op": "replace", "path": "/spec/b", "value": 1}], ("spec", "a"), False),
        ([{"op": "add", "path": "/spec", "value": {}}], ("spec", "a"), True),
        ([{"op": "add", "path": "/spec/l/0/a"}], ("spec", "l", ("type", "x")), True),
        ([{"op": "add", "path": "/data/a~1b~0"}], ("data", "a/b~"), True),
        ([], ("spec", "a"), False),
    ],
)
def test_fields_of_patches_are_found(
    body: Any,
    path: Any,
    expected: bool,
) -> None:
    assert writes_field(body, path) is expected
