"""Order of the keys of built-in objects."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aioinformer_apiserver.schema.field_order import StructOrder, order_of

POD = "io.k8s.api.core.v1.Pod"


def written(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def test_fields_have_order_of_struct() -> None:
    pod = {
        "status": {"phase": "Running", "conditions": [{"status": "True", "type": "A"}]},
        "spec": {
            "nodeName": "n",
            "containers": [{"image": "i", "env": [{"value": "1", "name": "A"}]}],
            "nodeSelector": {"b": "1", "a": "2"},
        },
        "metadata": {"labels": {"b": "1", "a": "2"}, "name": "web"},
        "apiVersion": "v1",
        "kind": "Pod",
    }

    assert written(order_of(POD)(pod)) == (
        '{"kind":"Pod","apiVersion":"v1",'
        '"metadata":{"name":"web","labels":{"a":"2","b":"1"}},'
        '"spec":{"containers":[{"image":"i","env":[{"name":"A","value":"1"}]}],'
        '"nodeSelector":{"a":"2","b":"1"},"nodeName":"n"},'
        '"status":{"phase":"Running","conditions":[{"type":"A","status":"True"}]}}'
    )


def test_unknown_fields_come_last() -> None:
    pod = {"zzz": {"b": 1, "a": 2}, "spec": {"x": 1, "hostNetwork": True}, "aaa": 1}

    assert written(order_of(POD)(pod)) == (
        '{"spec":{"hostNetwork":true,"x":1},"zzz":{"b":1,"a":2},"aaa":1}'
    )


def test_values_of_other_types_are_unchanged() -> None:
    pod = {"spec": [1], "metadata": {"labels": "none", "ownerReferences": {"a": 1}}}

    assert order_of(POD)(pod) == pod


def test_maps_of_structs_are_sorted_at_all_levels() -> None:
    schema = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
    text = {"properties": {"b": {"type": "string", "description": "d"}, "a": {}}}

    assert written(order_of(schema)(text)) == (
        '{"properties":{"a":{},"b":{"description":"d","type":"string"}}}'
    )


def test_cache_of_shapes_is_bounded() -> None:
    order = StructOrder(POD)

    for number in range(1000):
        assert order({f"field-{number}": 1, "kind": "Pod"}) == {
            "kind": "Pod",
            f"field-{number}": 1,
        }

    assert len(order._known) == 200


KEYS = ["kind", "apiVersion", "metadata", "spec", "status", "other"]


@given(st.permutations(KEYS))
def test_field_order_is_independent_of_key_order(keys: list[str]) -> None:
    body: dict[str, Any] = {key: {} for key in keys}

    assert list(order_of(POD)(body)) == KEYS
    assert list(body) == keys
