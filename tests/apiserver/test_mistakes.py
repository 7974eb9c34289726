"""Mistakes: what cannot be applied, in the words of a real server."""

from __future__ import annotations

from typing import Any

import pytest
from patching_helpers import DEPLOYS, GADGETS, deployment, gadget

from aioinformer_apiserver.patches.ownership import schema_of_object
from aioinformer_apiserver.patches.structured_merge_diff import apply_errors
from aioinformer_apiserver.schema import Schema


def test_finds_nothing_wrong_with_a_sound_body() -> None:
    body = gadget(
        ports=[{"port": 1}, {"port": 1, "protocol": "UDP"}],
        tags=["a"],
        list=["x"],
        labels={"l": "1"},
        parts={"p": {"x": 1}},
        whole=None,
        size=None,
        on=True,
        free={"a": [1, {"b": None}]},
        any=[1, "x"],
        template={"kind": "Pod", "metadata": {"name": "x"}, "more": 1},
    )

    assert apply_errors(GADGETS, body) == []


@pytest.mark.parametrize(
    ("spec", "mistake"),
    [
        pytest.param({"x": 1}, ".x: field not declared in schema", id="unknown"),
        pytest.param({"whole": 5}, ".whole: expected map, got &{5}", id="map"),
        pytest.param(
            {"labels": ["x"]}, ".labels: expected map, got &{[x]}", id="labels"
        ),
        pytest.param(
            {"tags": {"x": 1}}, ".tags: expected list, got &{map[x:1]}", id="list"
        ),
        pytest.param(
            {"size": "x"},
            ".size: expected numeric (int or float), got string",
            id="number",
        ),
        pytest.param(
            {"size": True},
            ".size: expected numeric (int or float), got bool",
            id="bool",
        ),
        pytest.param({"on": "x"}, ".on: expected boolean, got &{x}", id="truth"),
        pytest.param(
            {"labels": {"a": 1}},
            ".labels.a: expected string, got &value.valueUnstructured{Value:1}",
            id="text",
        ),
        pytest.param(
            {"labels": {"a": [1, None, {"b": "c"}]}},
            ".labels.a: expected string, got &value.valueUnstructured{Value:"
            "[]interface {}{1, interface {}(nil), "
            'map[string]interface {}{"b":"c"}}}',
            id="no text at all",
        ),
        pytest.param(
            {"list": ["a", 1]},
            ".list[1]: expected string, got &value.valueUnstructured{Value:1}",
            id="text in a list",
        ),
        pytest.param(
            {"tags": ["a", "a"]},
            '.tags: duplicate entries for key [="a"]',
            id="value twice",
        ),
        pytest.param(
            {"ports": [{"port": 1}, {"port": 1, "protocol": "TCP"}]},
            '.ports: duplicate entries for key [port=1,protocol="TCP"]',
            id="item twice",
        ),
        pytest.param(
            {"ports": [{"port": 1, "name": 5}]},
            '.ports[port=1,protocol="TCP"].name: '
            "expected string, got &value.valueUnstructured{Value:5}",
            id="within an item",
        ),
        pytest.param(
            {"tags": [None]},
            ".tags: element 0: associative list without keys has an element that's an "
            "explicit null",
            id="null in a set",
        ),
        pytest.param(
            {"template": {"metadata": {"finalizers": "x"}}},
            ".template.metadata.finalizers: expected list, got &{x}",
            id="metadata of an embedded object",
        ),
    ],
)
def test_tells_what_is_wrong(spec: dict[str, Any], mistake: str) -> None:
    assert apply_errors(GADGETS, gadget(**spec)) == [".spec" + mistake]


def test_tells_all_types_that_are_wrong_up_to_an_unknown_field() -> None:
    body = gadget(on="x", list="y", rust=1, size="z")

    assert apply_errors(GADGETS, {**body, "status": 5}) == [
        ".spec.list: expected list, got &{y}",
        ".spec.on: expected boolean, got &{x}",
        ".spec.rust: field not declared in schema",
        ".status: expected map, got &{5}",
    ]


def test_duplicates_within_an_item_come_before_that_of_the_item() -> None:
    ports = [{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP"}]
    web = {"name": "web", "ports": ports}

    path, key = ".spec.template.spec.containers", '[containerPort=80,protocol="TCP"]'
    assert apply_errors(DEPLOYS, deployment(web, web))[:2] == [
        f'{path}[name="web"].ports: duplicate entries for key {key}',
        f'{path}: duplicate entries for key [name="web"]',
    ]


def test_quantities_and_ports_may_be_numbers_or_texts() -> None:
    web = {
        "name": "web",
        "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
        "readinessProbe": {"httpGet": {"port": "http"}},
        "livenessProbe": {"httpGet": {"port": 80}},
    }

    assert apply_errors(DEPLOYS, deployment(web)) == []


def test_unknown_fields_may_stand_anywhere_below_where_they_are_preserved() -> None:
    schema = schema_of_object(
        Schema(
            {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "properties": {
                    "spec": {"type": "object", "properties": {"a": {"type": "string"}}},
                    "more": {
                        "type": "object",
                        "properties": {"a": {"type": "string"}},
                        "additionalProperties": True,
                    },
                    "at": {"type": "string", "format": "date-time"},
                },
            }
        )
    )

    body = {"spec": {"a": "x", "b": 1}, "more": {"b": 1}, "x": 1, "at": 5}
    assert apply_errors(schema, body) == []
    assert apply_errors(schema, {"at": {"b": 1}}) == [
        ".at: expected any scalar, got &{map[b:1]}"
    ]
