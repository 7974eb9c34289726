"""Validation of built-in kinds, for rules that no recorded write breaks."""

from __future__ import annotations

from typing import Any

import pytest
from each_case import each_case

from aioinformer.model.resources import EVENTS, PODS, RESOURCE_QUOTAS
from aioinformer_apiserver.schema.builtin_validation import validate_create
from aioinformer_apiserver.schema.decoding import decode
from aioinformer_apiserver.schema.defaults import with_defaults
from aioinformer_apiserver.schema.openapi_schema import schema_of

NEW_EVENT: dict[str, Any] = {
    "metadata": {"name": "a", "namespace": "default"},
    "involvedObject": {"kind": "Pod", "namespace": "default"},
    "eventTime": "2026-01-01T00:00:00.000000Z",
    "reportingComponent": "example.com/a",
    "reportingInstance": "a",
    "action": "Do",
    "reason": "Done",
}


def pod_on_nodes(**requirement: Any) -> dict[str, Any]:
    """Return a pod with one requirement of its nodes."""
    term = {"matchExpressions": [{"key": "zone", **requirement}]}
    required = {"nodeSelectorTerms": [term]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    spec = {
        "containers": [{"name": "a", "image": "a"}],
        "affinity": {"nodeAffinity": affinity},
    }
    return {"metadata": {"name": "a"}, "spec": spec}


TERM = (
    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution."
    "nodeSelectorTerms[0].matchExpressions[0]"
)


@each_case(
    "resource, body, field, message",
    [
        pytest.param(
            EVENTS,
            {**NEW_EVENT, "reason": "x" * 129},
            "reason",
            'Invalid value: "": can have at most 128 characters',
            id="event-text-too-long",
        ),
        pytest.param(
            RESOURCE_QUOTAS,
            {"metadata": {"name": "a"}, "spec": {"hard": {"-a": "1"}}},
            "spec.hard[-a]",
            'Invalid value: "-a": name part must consist of alphanumeric characters',
            id="quota-name-malformed",
        ),
        pytest.param(
            PODS,
            pod_on_nodes(operator="In"),
            f"{TERM}.values",
            "Required value: must be specified when `operator` is 'In' or 'NotIn'",
            id="affinity-without-values",
        ),
        pytest.param(
            PODS,
            pod_on_nodes(operator="Exists", values=["a"]),
            f"{TERM}.values",
            "Forbidden: may not be specified when `operator` is 'Exists' or "
            "'DoesNotExist'",
            id="affinity-with-useless-values",
        ),
        pytest.param(
            PODS,
            pod_on_nodes(operator="Gt", values=["1", "2"]),
            f"{TERM}.values",
            "Required value: must be specified single value when `operator` is 'Lt' or "
            "'Gt'",
            id="affinity-with-two-bounds",
        ),
    ],
)
def test_invalid_object_has_only_the_expected_error(
    resource: Any, body: dict[str, Any], field: str, message: str
) -> None:
    schema = schema_of(resource)
    assert schema is not None
    whole = with_defaults(schema, decode(schema, body).body)

    found = validate_create(resource, whole)

    assert {it.field for it in found} == {field}
    assert found[0].message.startswith(message)


@pytest.mark.parametrize(
    ("resource", "body"),
    [
        pytest.param(EVENTS, {**NEW_EVENT, "reason": "x" * 128}, id="event"),
        pytest.param(PODS, pod_on_nodes(operator="In", values=["a"]), id="in"),
        pytest.param(PODS, pod_on_nodes(operator="Exists"), id="exists"),
        pytest.param(PODS, pod_on_nodes(operator="Gt", values=["1"]), id="greater"),
    ],
)
def test_valid_object_has_no_errors(resource: Any, body: dict[str, Any]) -> None:
    schema = schema_of(resource)
    assert schema is not None
    whole = with_defaults(schema, decode(schema, body).body)

    assert validate_create(resource, whole) == []
