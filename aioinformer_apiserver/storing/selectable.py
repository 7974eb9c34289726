"""Selectable fields: what field selectors may ask of each built-in kind. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer.model import resources

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.model.resource import Resource

__all__ = ["FIELDS", "FieldRule", "text_at"]

# A selectable field: where its value is, and what a missing one counts as.
FieldRule = tuple[tuple[str, ...], str]


def text_at(body: Mapping[str, Any], path: tuple[str, ...], default: str) -> str:
    """Return the value at a path as a selector compares it."""
    value: Any = body if path else None
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None

    if value is None:
        return default

    return str(value).lower() if isinstance(value, bool) else str(value)


def _fields(**defaults: str) -> dict[str, FieldRule]:
    """Make rules for `spec__nodeName=""`: a field whose name is its path."""
    paths = ((tuple(name.split("__")), default) for name, default in defaults.items())
    return {".".join(path): (path, default) for path, default in paths}


_REFERENCE_FIELDS = (
    "kind",
    "namespace",
    "name",
    "uid",
    "apiVersion",
    "resourceVersion",
    "fieldPath",
)
FIELDS: dict[Resource, dict[str, FieldRule]] = {
    resources.PODS: {
        **_fields(
            spec__nodeName="",
            spec__restartPolicy="Always",
            spec__schedulerName="default-scheduler",
            spec__serviceAccountName="",
            spec__hostNetwork="false",
            status__phase="",
            status__podIP="",
            status__nominatedNodeName="",
        ),
        # May be asked for, but has no value that a selector could find.
        "status.podIPs": ((), ""),
    },
    resources.EVENTS: {
        **_fields(
            **{f"involvedObject__{it}": "" for it in _REFERENCE_FIELDS},
            reason="",
            reportingComponent="",
            type="",
        ),
        "source": (("source", "component"), ""),
    },
    resources.EVENTS_V1: _fields(
        **{f"regarding__{it}": "" for it in _REFERENCE_FIELDS},
        reason="",
        reportingController="",
        type="",
    ),
    resources.NAMESPACES: _fields(status__phase=""),
    resources.NODES: _fields(spec__unschedulable="false"),
    resources.SECRETS: _fields(type="Opaque"),
    resources.SERVICES: _fields(spec__clusterIP="", spec__type="ClusterIP"),
    resources.JOBS: {"status.successful": (("status", "succeeded"), "0")},
    resources.REPLICATION_CONTROLLERS: _fields(status__replicas="0"),
}
