"""Schemas of built-in kinds."""

from __future__ import annotations

import re
import subprocess
import sys

import msgspec
from each_case import each_case

from aioinformer.model import resources
from aioinformer.model.resource import Resource
from aioinformer_apiserver.schema import Schema
from aioinformer_apiserver.schema.openapi_schema import (
    definition,
    definitions,
    go_fields,
    schema_of,
)

POD_SPEC = "io.k8s.api.core.v1.PodSpec"
BUILT_IN = [getattr(resources, it) for it in resources.__all__ if it.isupper()]


@each_case("resource", BUILT_IN)
def test_every_builtin_kind_has_schema(resource: Resource) -> None:
    schema = schema_of(resource)

    assert schema is not None
    assert {"apiVersion", "kind", "metadata"} <= {*schema.fields}


def test_custom_kind_has_no_builtin_schema() -> None:
    assert schema_of(Resource("example.com", "v1", "widgets", "Widget")) is None


def test_every_reference_resolves() -> None:
    text = msgspec.json.encode(definitions()).decode()

    referred = set(re.findall(r'"#/components/schemas/([^"]+)"', text))

    assert referred
    assert referred <= definitions().keys()


def test_definitions_have_no_descriptions() -> None:
    texts = [it for it in definitions().values() if "description" in it]

    assert texts == []


def test_schema_has_merge_strategies() -> None:
    spec = definition(POD_SPEC)
    containers = spec.field("containers")

    assert containers is not None
    assert containers.list_type == "map"
    assert containers.list_keys == ("name",)
    assert containers.patch_key == "name"
    assert containers.patch_strategies == {"merge"}


def test_schema_has_name_of_definition() -> None:
    pods = schema_of(resources.PODS)
    assert pods is not None
    spec = pods.field("spec")

    assert spec is not None
    assert spec.name == POD_SPEC
    assert Schema({"type": "object"}).name == ""


def test_go_fields_complement_openapi() -> None:
    fields = go_fields(POD_SPEC)

    assert fields["containers"] == "[]v1.Container!"
    assert fields["securityContext"] == "*v1.PodSecurityContext"
    assert fields["restartPolicy"] == "v1.RestartPolicy"
    assert go_fields("io.k8s.api.core.v1.Nothing") == {}


def test_keywords_beside_reference_are_kept() -> None:
    schema = Schema(
        {"default": "x", "allOf": [{"$ref": "#/a/name"}]}, {"name": {"type": "string"}}
    )

    assert (schema.type, schema.default) == ("string", "x")
    assert Schema({}).default is msgspec.UNSET


def test_schema_may_contain_itself() -> None:
    text = {"properties": {"inner": {"$ref": "#/a/name"}}}
    schema: Schema | None = Schema({"$ref": "#/a/name"}, {"name": text})

    for _ in range(5):
        assert schema is not None
        schema = schema.field("inner")

    assert schema is not None
    assert schema.fields == ("inner",)


def test_schemas_are_read_on_first_use() -> None:
    code = """
import aioinformer.testing
from aioinformer_apiserver.schema import openapi_schema as builtin
assert builtin._tables.cache_info().currsize == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True)
