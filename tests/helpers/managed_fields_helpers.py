"""Schemas and short notations for tests of managed fields."""

from __future__ import annotations

from typing import Any

from aioinformer.model.resources import CONFIG_MAPS, DEPLOYMENTS
from aioinformer_apiserver.patches.field_sets import FieldSet
from aioinformer_apiserver.patches.managed_fields import update_managed_fields
from aioinformer_apiserver.patches.ownership import schema_of_object
from aioinformer_apiserver.patches.server_side_apply import apply
from aioinformer_apiserver.schema import Schema
from aioinformer_apiserver.schema.openapi_schema import schema_of

NOW = "2026-01-01T00:00:00Z"
LATER = "2026-01-02T00:00:00Z"

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}

# Custom kind with lists and maps of all types.
GADGET_SPEC: dict[str, Any] = {
    "type": "object",
    "properties": {
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {
                "type": "object",
                "required": ["port"],
                "properties": {
                    "port": NUMBER,
                    "protocol": {"type": "string", "default": "TCP"},
                    "name": TEXT,
                },
            },
        },
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
        "list": {"type": "array", "items": TEXT},
        "labels": {"type": "object", "additionalProperties": TEXT},
        "parts": {
            "type": "object",
            "additionalProperties": {"type": "object", "properties": {"x": NUMBER}},
        },
        "whole": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "properties": {"a": TEXT, "b": TEXT},
        },
        "size": NUMBER,
        "on": {"type": "boolean"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "any": {"x-kubernetes-preserve-unknown-fields": True},
        "template": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
    },
}
GADGET_SCHEMA = {
    "type": "object",
    "properties": {
        "spec": GADGET_SPEC,
        "status": {"type": "object", "properties": {"phase": TEXT}},
    },
}
GADGETS = schema_of_object(Schema(GADGET_SCHEMA))


def _built_in(resource: Any) -> Schema:
    found = schema_of(resource)
    assert found is not None
    return found


MAPS = _built_in(CONFIG_MAPS)
DEPLOYS = _built_in(DEPLOYMENTS)


_SCHEMAS = {"ConfigMap": MAPS, "Deployment": DEPLOYS, "Gadget": GADGETS}


def fields(*paths: str) -> FieldSet:
    """Make a field set from paths such as `"spec/ports/k:{...}/port"`."""
    return FieldSet.of(*(tuple(map(_element, path.split("/"))) for path in paths))


def _element(step: str) -> str:
    return step if step[1:2] == ":" else f"f:{step}"


def gadget(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Gadget",
        "metadata": {"name": "a"},
        "spec": spec,
    }


def config_map(**data: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a"},
        "data": data,
    }


def deployment(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    labels = {"app": "web"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": list(containers)},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a"},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **spec},
    }


def entry(
    manager: str,
    owned: dict[str, Any],
    *,
    operation: str = "Update",
    version: str = "v1",
    time: str = NOW,
    subresource: str = "",
) -> dict[str, Any]:
    """Return an encoded entry of managed fields."""
    found = {
        "manager": manager,
        "operation": operation,
        "apiVersion": version,
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": owned,
        "subresource": subresource,
    }
    return {key: it for key, it in found.items() if it or key == "fieldsV1"}


def owned_by(body: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of each manager; appliers are marked as `name!`."""
    return {
        it["manager"] + ("!" if it["operation"] == "Apply" else ""): it["fieldsV1"]
        for it in body["metadata"].get("managedFields", ())
    }


def written(
    old: dict[str, Any] | None,
    new: dict[str, Any],
    manager: str = "me",
    *,
    now: str = NOW,
    **options: Any,
) -> dict[str, Any]:
    """Write a ConfigMap or Deployment, and return it with its managed fields."""
    resource = CONFIG_MAPS if new["kind"] == "ConfigMap" else DEPLOYMENTS
    found = update_managed_fields(
        schema_of(resource),
        old,
        new,
        manager=manager,
        api_version=resource.api_version,
        now=now,
        **options,
    )
    return {**new, "metadata": {**new["metadata"], "managedFields": found}}


def applied(
    live: dict[str, Any] | None,
    body: dict[str, Any],
    manager: str = "one",
    *,
    force: bool = False,
    now: str = NOW,
    **options: Any,
) -> dict[str, Any]:
    return apply(
        _SCHEMAS[body["kind"]],
        live,
        body,
        manager=manager,
        force=force,
        api_version=options.pop("version", body["apiVersion"]),
        now=now,
        **options,
    )
