"""The table of horizontal pod autoscalers: each kind of metric is told in its own way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer.model import resources
from aioinformer.tables.cells import (
    NONE,
    UNKNOWN,
    UNSET,
    age,
    at,
    mapping,
    maps,
    name,
    number,
    quantity,
    shortened,
    text,
)
from aioinformer.tables.columns import AGE, NAME, Layout, texts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from aioinformer.model.resource import Resource

__all__ = ["SCALING_LAYOUTS"]

# Where each type of metric keeps itself.
_PARTS = {
    "External": "external",
    "Pods": "pods",
    "Object": "object",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
_OF_RESOURCES = frozenset({"Resource", "ContainerResource"})
_METRICS_TOLD = 2


def _autoscaler_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    spec, status = mapping(body, "spec"), mapping(body, "status")
    target = mapping(spec, "scaleTargetRef")
    least = at(spec, "minReplicas")
    return [
        name(body),
        f"{text(target, 'kind')}/{text(target, 'name')}",
        _metrics(maps(spec, "metrics"), maps(status, "currentMetrics")),
        UNSET if least is None else str(least),
        number(spec, "maxReplicas"),
        number(status, "currentReplicas"),
        age(body, now),
    ]


def _metrics(wanted: list[dict[str, Any]], found: list[dict[str, Any]]) -> str:
    """Tell what each metric is, and should be; the two lists go in step."""
    states = [*found, *({} for _ in wanted)]
    told = [_metric(one, state) for one, state in zip(wanted, states, strict=False)]
    return shortened(told, limit=_METRICS_TOLD, separator=", ") or NONE


def _metric(wanted: object, found: object) -> str:
    kind = text(wanted, "type")
    part = _PARTS.get(kind)
    if part is None:
        return "<unknown type>"

    target, state = mapping(wanted, part, "target"), mapping(found, part)
    current = mapping(state, "current")
    if kind in _OF_RESOURCES:
        return f"{text(wanted, part, 'name')}: {_resource(target, current)}"

    if kind == "Pods":
        is_known = bool(state)
        return _pair(target, current, "averageValue", is_known=is_known)

    if "averageValue" in target:
        is_known = "averageValue" in current
        return _pair(target, current, "averageValue", is_known=is_known) + " (avg)"

    return _pair(target, current, "value", is_known=bool(state))


def _pair(target: object, current: object, key: str, *, is_known: bool) -> str:
    told = quantity(current, key) if is_known else UNKNOWN
    return f"{told}/{quantity(target, key)}"


def _resource(target: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    if "averageValue" in target:
        is_known = bool(current)
        return _pair(target, current, "averageValue", is_known=is_known)

    now = at(current, "averageUtilization")
    wanted = at(target, "averageUtilization")
    told = UNKNOWN if now is None else f"{now}%"
    return f"{told}/<auto>" if wanted is None else f"{told}/{wanted}%"


SCALING_LAYOUTS: dict[Resource, Layout] = {
    resources.HORIZONTAL_POD_AUTOSCALERS: Layout(
        (
            NAME,
            *texts("Reference", "Targets", "MinPods", "MaxPods", "Replicas"),
            AGE,
        ),
        _autoscaler_cells,
    ),
}
