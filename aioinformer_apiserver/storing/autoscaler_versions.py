"""Autoscalers in their two versions. Pure.

autoscaling/v1 knows one metric, the CPU. All else that autoscaling/v2 says it carries in
annotations, as JSON of a form of its own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.schema.go_types import with_zero_values
from aioinformer_apiserver.storing import autoscaler_metrics as metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["to_first", "to_second"]

Object = dict[str, Any]

_DEFINITION = "io.k8s.api.autoscaling.{}.HorizontalPodAutoscaler"
_PREFIX = "autoscaling.alpha.kubernetes.io/"
_METRICS = f"{_PREFIX}metrics"
_BEHAVIOR = f"{_PREFIX}behavior"
_CURRENT = f"{_PREFIX}current-metrics"
_CONDITIONS = f"{_PREFIX}conditions"
_CARRIED = frozenset({_METRICS, _BEHAVIOR, _CURRENT, _CONDITIONS})
# Of which share of its CPU a pod makes use, if nobody asks for anything.
_USUAL_TARGET = 80
# How the names of fields are written in the annotation about behavior.
_BEHAVIOR_FIELDS = {
    "ScaleUp": "scaleUp",
    "ScaleDown": "scaleDown",
    "StabilizationWindowSeconds": "stabilizationWindowSeconds",
    "SelectPolicy": "selectPolicy",
    "Policies": "policies",
    "Type": "type",
    "Value": "value",
    "PeriodSeconds": "periodSeconds",
    "Tolerance": "tolerance",
}
_BEHAVIOR_LEVELS = (
    ("ScaleUp", "ScaleDown"),
    ("StabilizationWindowSeconds", "SelectPolicy", "Policies", "Tolerance"),
    ("Type", "Value", "PeriodSeconds"),
)


def to_first(body: Mapping[str, Any]) -> Object:
    """Say an autoscaling/v2 autoscaler as an autoscaling/v1 one."""
    spec, status = _object(body.get("spec")), _object(body.get("status"))
    targets = _list(spec.pop("metrics", None))
    current = _list(status.pop("currentMetrics", None))
    usage = [it for it in map(metrics.cpu_target, targets) if it is not None]
    if usage:
        spec["targetCPUUtilizationPercentage"] = usage[-1]

    used = [it for it in map(metrics.cpu_current, current) if it is not None]
    if used:
        status["currentCPUUtilizationPercentage"] = used[-1]

    others = [it for it in targets if metrics.cpu_target(it) is None]
    carried: dict[str, Any] = {
        _METRICS: [metrics.target_to_first(it) for it in others],
        _BEHAVIOR: _capitalized(spec.pop("behavior", None), _BEHAVIOR_LEVELS),
        _CURRENT: [metrics.current_to_first(it) for it in current],
        _CONDITIONS: _list(status.pop("conditions", None)),
    }
    texts = {key: _text(it) for key, it in carried.items() if it}
    return _with("v1", body, spec, status, texts)


def to_second(body: Mapping[str, Any]) -> Object:
    """Say an autoscaling/v1 autoscaler as an autoscaling/v2 one."""
    spec, status = _object(body.get("spec")), _object(body.get("status"))
    target = spec.pop("targetCPUUtilizationPercentage", None)
    current = status.pop("currentCPUUtilizationPercentage", None)
    annotations = _object(_object(body.get("metadata")).get("annotations"))
    wanted = [
        metrics.target_to_second(it) for it in _carried(annotations, _METRICS, list)
    ]
    if target is None and not wanted:
        target = _USUAL_TARGET

    spec["metrics"] = wanted if target is None else [*wanted, metrics.cpu_of(target)]
    behavior = _carried(annotations, _BEHAVIOR, dict)
    if behavior:
        spec["behavior"] = _uncapitalized(behavior)

    found = [
        metrics.current_to_second(it) for it in _carried(annotations, _CURRENT, list)
    ]
    if not found and current is not None:
        found = [metrics.cpu_used(current)]

    if found:
        status["currentMetrics"] = found

    conditions = _carried(annotations, _CONDITIONS, list)
    if conditions:
        status["conditions"] = conditions

    return _with("v2", body, spec, status, {})


def _with(
    version: str,
    body: Mapping[str, Any],
    spec: Object,
    status: Object,
    carried: dict[str, str],
) -> Object:
    """Put a body together again, with these annotations and no other ones of ours."""
    metadata = _object(body.get("metadata"))
    own = _object(metadata.pop("annotations", None))
    annotations = {k: v for k, v in own.items() if k not in _CARRIED} | carried
    if annotations:
        metadata["annotations"] = annotations

    parts = {"metadata": metadata, "spec": spec, "status": status}
    return with_zero_values(_DEFINITION.format(version), {**body, **parts})


def _carried(annotations: Object, key: str, kind: type[Any]) -> Any:
    """Read what an annotation carries; nothing, if that is not of its kind."""
    try:
        found = json.loads(annotations.get(key) or "null")
    except (TypeError, ValueError):
        return kind()

    if not isinstance(found, kind):
        return kind()

    is_fine = kind is dict or all(isinstance(it, dict) for it in found)
    return found if is_fine else kind()


def _capitalized(value: Any, levels: tuple[tuple[str, ...], ...]) -> Any:
    """Write what is said of behavior as the struct that Go has for it, with its nulls."""
    if isinstance(value, list):
        return [_capitalized(it, levels) for it in value]

    if not isinstance(value, dict) or not levels:
        return value

    first, *rest = levels
    return {
        it: _capitalized(value.get(_BEHAVIOR_FIELDS[it]), tuple(rest)) for it in first
    }


def _uncapitalized(value: Any) -> Any:
    if isinstance(value, list):
        return [_uncapitalized(it) for it in value]

    if not isinstance(value, dict):
        return value

    return {
        _BEHAVIOR_FIELDS.get(key, key): _uncapitalized(it)
        for key, it in value.items()
        if it is not None
    }


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _object(value: object) -> Object:
    """Return a copy of an object; an empty one of anything else."""
    return dict(value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Object]:
    """Return the objects in a list; none of anything else."""
    return (
        [it for it in value if isinstance(it, dict)] if isinstance(value, list) else []
    )
