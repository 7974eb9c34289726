"""Decoding and defaults of built-in objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from each_case import each_case

from aioinformer.errors import ApiError
from aioinformer.model import resources
from aioinformer_apiserver.schema.decoding import (
    DecodedObject,
    decode,
    strict_decoding_error,
)
from aioinformer_apiserver.schema.defaults import pull_policy, with_defaults
from aioinformer_apiserver.schema.openapi_schema import schema_of

if TYPE_CHECKING:
    from aioinformer.model.resource import Resource


def conformed(resource: Resource, **body: Any) -> DecodedObject:
    schema = schema_of(resource)
    assert schema is not None
    return decode(schema, {"metadata": {"name": "a"}, **body})


def test_decode_and_defaults_do_not_change_input() -> None:
    spec = {"containers": [{"name": "a", "foo": 1, "env": []}], "volumes": []}
    before = {"containers": [{"name": "a", "foo": 1, "env": []}], "volumes": []}
    schema = schema_of(resources.PODS)
    assert schema is not None

    with_defaults(schema, conformed(resources.PODS, spec=spec).body)

    assert spec == before


def test_defaults_are_idempotent() -> None:
    schema = schema_of(resources.PODS)
    assert schema is not None
    spec = {"containers": [{"name": "a", "livenessProbe": {"httpGet": {"port": 1}}}]}
    once = with_defaults(schema, conformed(resources.PODS, spec=spec).body)

    assert with_defaults(schema, once) == once


def test_mutable_defaults_are_not_shared() -> None:
    schema = schema_of(resources.PODS)
    assert schema is not None
    first, second = (
        with_defaults(schema, conformed(resources.PODS).body) for _ in range(2)
    )

    first["spec"]["securityContext"]["runAsUser"] = 1

    assert second["spec"]["securityContext"] == {}


def test_nulls_count_as_missing() -> None:
    found = conformed(resources.CONFIG_MAPS, data=None, immutable=None)

    assert found == DecodedObject({"metadata": {"name": "a"}}, ())


def test_null_in_map_is_zero_value() -> None:
    found = conformed(resources.CONFIG_MAPS, data={"a": None})

    assert found.body["data"] == {"a": ""}


def test_pointers_keep_empty_values() -> None:
    found = conformed(resources.DEPLOYMENTS, spec={"replicas": 0, "paused": False})

    assert found.body["spec"]["replicas"] == 0
    assert "paused" not in found.body["spec"]


def test_unknown_fields_are_reported_in_order() -> None:
    found = conformed(
        resources.PODS, foo=1, spec={"containers": [{"bar": 1}], "baz": 2}
    )

    assert found.errors == (
        'unknown field "foo"',
        'unknown field "spec.containers[0].bar"',
        'unknown field "spec.baz"',
    )


def test_first_type_mismatch_is_reported() -> None:
    with pytest.raises(ApiError) as caught:
        conformed(resources.DEPLOYMENTS, spec={"replicas": "3", "paused": "x"})

    assert caught.value.status == 400
    assert caught.value.message == (
        'Deployment in version "v1" cannot be handled as a Deployment: '
        "json: cannot unmarshal string into Go struct field "
        "DeploymentSpec.spec.replicas of type int32"
    )


def test_strict_error_names_kind_of_schema() -> None:
    schema = schema_of(resources.PODS)
    assert schema is not None

    refused = strict_decoding_error(schema, {}, ('unknown field "foo"',))

    assert refused is not None
    assert refused.message.startswith(
        'Pod in version "v1" cannot be handled as a Pod: '
    )


def test_nested_json_schemas_are_decoded_leniently() -> None:
    inner = {"type": "string", "colour": "red", "nullable": False}
    props = {"type": "array", "items": inner, "additionalProperties": True}
    version = {"name": "v1", "schema": {"openAPIV3Schema": props}}

    found = conformed(
        resources.CUSTOM_RESOURCE_DEFINITIONS, spec={"versions": [version]}
    )

    schema = found.body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert schema["items"] == {"type": "string"}
    assert schema["additionalProperties"] is True
    assert found.errors == ()


def test_deprecated_and_new_fields_are_mirrored() -> None:
    schema = schema_of(resources.NODES)
    assert schema is not None
    one, many = (
        with_defaults(schema, conformed(resources.NODES, spec=spec).body)["spec"]
        for spec in ({"podCIDR": "10.1.0.0/24"}, {"podCIDRs": ["10.1.0.0/24"]})
    )

    assert one == many == {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]}


@each_case(
    "image, policy",
    [
        ("app", "Always"),
        ("app:latest", "Always"),
        ("app:1", "IfNotPresent"),
        ("localhost:5000/app", "Always"),
        ("localhost:5000/app:1", "IfNotPresent"),
        (f"app@sha256:{'a' * 64}", "IfNotPresent"),
        (f"app:latest@sha256:{'a' * 64}", "Always"),
        ("App", "IfNotPresent"),
    ],
)
def test_pull_policy_depends_on_tag(image: str, policy: str) -> None:
    assert pull_policy(image) == policy
