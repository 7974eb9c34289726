"""Conversion of built-in kinds between API versions: autoscalers and events. Pure.

autoscaling/v1 has one metric, CPU. All other fields of autoscaling/v2 travel in
annotations, as JSON in a format of their own. A metric of autoscaling/v2 has one of
three value types. Metrics in the annotations have one field for each combination of
metric and value type, with different names for targets and current values.

Events of the core group and of events.k8s.io hold the same data under other names.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.schema.go_types import with_zero_values

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "autoscaler_to_v1",
    "autoscaler_to_v2",
    "event_to_core",
    "event_to_events_v1",
]

Object = dict[str, Any]
_DEFINITION = "io.k8s.api.autoscaling.{}.HorizontalPodAutoscaler"
_PREFIX = "autoscaling.alpha.kubernetes.io/"
_METRICS = f"{_PREFIX}metrics"
_BEHAVIOR = f"{_PREFIX}behavior"
_CURRENT = f"{_PREFIX}current-metrics"
_CONDITIONS = f"{_PREFIX}conditions"
_ANNOTATIONS = frozenset({_METRICS, _BEHAVIOR, _CURRENT, _CONDITIONS})
# Default target of the CPU utilization.
_USUAL_TARGET = 80

# Names of the fields of the behavior, by their names in the annotation.
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


def autoscaler_to_v1(body: Mapping[str, Any]) -> Object:
    """Convert an autoscaler from autoscaling/v2 to autoscaling/v1."""
    spec, status = _object(body.get("spec")), _object(body.get("status"))
    targets = _list(spec.pop("metrics", None))
    current = _list(status.pop("currentMetrics", None))
    usage = [it for it in map(_cpu_target, targets) if it is not None]
    if usage:
        spec["targetCPUUtilizationPercentage"] = usage[-1]

    used = [it for it in map(_cpu_current, current) if it is not None]
    if used:
        status["currentCPUUtilizationPercentage"] = used[-1]

    others = [it for it in targets if _cpu_target(it) is None]
    carried: dict[str, Any] = {
        _METRICS: [_target_to_v1(it) for it in others],
        _BEHAVIOR: _capitalize(spec.pop("behavior", None), _BEHAVIOR_LEVELS),
        _CURRENT: [_current_to_v1(it) for it in current],
        _CONDITIONS: _list(status.pop("conditions", None)),
    }
    texts = {key: _text(it) for key, it in carried.items() if it}
    return _with("v1", body, spec, status, texts)


def autoscaler_to_v2(body: Mapping[str, Any]) -> Object:
    """Convert an autoscaler from autoscaling/v1 to autoscaling/v2."""
    spec, status = _object(body.get("spec")), _object(body.get("status"))
    target = spec.pop("targetCPUUtilizationPercentage", None)
    current = status.pop("currentCPUUtilizationPercentage", None)
    annotations = _object(_object(body.get("metadata")).get("annotations"))
    metric_specs = [
        _target_to_v2(it) for it in _decode_annotation(annotations, _METRICS, list)
    ]
    if target is None and not metric_specs:
        target = _USUAL_TARGET

    spec["metrics"] = (
        metric_specs if target is None else [*metric_specs, _cpu_of(target)]
    )
    behavior = _decode_annotation(annotations, _BEHAVIOR, dict)
    if behavior:
        spec["behavior"] = _uncapitalize(behavior)

    found = [
        _current_to_v2(it) for it in _decode_annotation(annotations, _CURRENT, list)
    ]
    if not found and current is not None:
        found = [_cpu_used(current)]

    if found:
        status["currentMetrics"] = found

    conditions = _decode_annotation(annotations, _CONDITIONS, list)
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
    """Assemble a converted body, and replace the conversion annotations."""
    metadata = _object(body.get("metadata"))
    own = _object(metadata.pop("annotations", None))
    annotations = {k: v for k, v in own.items() if k not in _ANNOTATIONS} | carried
    if annotations:
        metadata["annotations"] = annotations

    parts = {"metadata": metadata, "spec": spec, "status": status}
    return with_zero_values(_DEFINITION.format(version), {**body, **parts})


def _decode_annotation(annotations: Object, key: str, kind: type[Any]) -> Any:
    """Decode an annotation; empty if it is missing or of another type."""
    try:
        found = json.loads(annotations.get(key) or "null")
    except (TypeError, ValueError):
        return kind()

    if not isinstance(found, kind):
        return kind()

    is_fine = kind is dict or all(isinstance(it, dict) for it in found)
    return found if is_fine else kind()


def _capitalize(value: Any, levels: tuple[tuple[str, ...], ...]) -> Any:
    """Convert a behavior to the JSON of its Go struct, with nulls for missing fields."""
    if isinstance(value, list):
        return [_capitalize(it, levels) for it in value]

    if not isinstance(value, dict) or not levels:
        return value

    first, *rest = levels
    return {
        it: _capitalize(value.get(_BEHAVIOR_FIELDS[it]), tuple(rest)) for it in first
    }


def _uncapitalize(value: Any) -> Any:
    if isinstance(value, list):
        return [_uncapitalize(it) for it in value]

    if not isinstance(value, dict):
        return value

    return {
        _BEHAVIOR_FIELDS.get(key, key): _uncapitalize(it)
        for key, it in value.items()
        if it is not None
    }


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _object(value: object) -> Object:
    """Return a copy of an object; empty for other values."""
    return dict(value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Object]:
    """Return the objects in a list; empty for other values."""
    return (
        [it for it in value if isinstance(it, dict)] if isinstance(value, list) else []
    )


# Field of a metric by its type.
_CONTENT_FIELDS = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}

# Names of the values in autoscaling/v1, by their names in autoscaling/v2.
_TARGET_NAMES: Mapping[str, Mapping[str, str]] = {
    "External": {"value": "targetValue", "averageValue": "targetAverageValue"},
    "Object": {"value": "targetValue", "averageValue": "averageValue"},
    "Pods": {"averageValue": "targetAverageValue"},
    "Resource": {
        "averageUtilization": "targetAverageUtilization",
        "averageValue": "targetAverageValue",
    },
}

_CURRENT_NAMES: Mapping[str, Mapping[str, str]] = {
    "External": {"value": "currentValue", "averageValue": "currentAverageValue"},
    "Object": {"value": "currentValue", "averageValue": "averageValue"},
    "Pods": {"averageValue": "currentAverageValue"},
    "Resource": {
        "averageUtilization": "currentAverageUtilization",
        "averageValue": "currentAverageValue",
    },
}

# Values that are required, so that missing ones are 0.
_ALWAYS_TARGETS = {"Object": "targetValue", "Pods": "targetAverageValue"}

_ALWAYS_CURRENT = {
    "External": "currentValue",
    "Object": "currentValue",
    "Pods": "currentAverageValue",
    "Resource": "currentAverageValue",
}

_TARGET_TYPES = {"averageUtilization": "Utilization", "averageValue": "AverageValue"}


def _cpu_of(percentage: int) -> Object:
    """Return a metric with a target of the CPU utilization."""
    target = {"type": "Utilization", "averageUtilization": percentage}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _cpu_used(percentage: int) -> Object:
    """Return a metric with the current CPU utilization."""
    current = {"averageUtilization": percentage}
    return {"type": "Resource", "resource": {"name": "cpu", "current": current}}


def _cpu_target(metric: Object) -> int | None:
    """Return the target of the CPU utilization; None for other metrics."""
    return _cpu(metric, "target")


def _cpu_current(metric: Object) -> int | None:
    """Return the current CPU utilization; None for other metrics."""
    return _cpu(metric, "current")


def _target_to_v1(metric: Object) -> Object:
    """Convert a target metric to autoscaling/v1."""
    return _to_v1(metric, "target", _TARGET_NAMES, _ALWAYS_TARGETS)


def _current_to_v1(metric: Object) -> Object:
    """Convert a current metric to autoscaling/v1."""
    return _to_v1(metric, "current", _CURRENT_NAMES, _ALWAYS_CURRENT)


def _target_to_v2(metric: Object) -> Object:
    """Convert a target metric to autoscaling/v2."""
    found = _to_v2(metric, "target", _TARGET_NAMES)
    target = _object_in(_content_of(found), "target")
    # An average takes precedence, because the other value is then a required 0.
    for value, type_ in _TARGET_TYPES.items():
        if value in target:
            kept = {"type": type_, value: target[value]}
            return _with_content(found, {**_content_of(found), "target": kept})

    return _with_content(
        found, {**_content_of(found), "target": {"type": "Value", **target}}
    )


def _current_to_v2(metric: Object) -> Object:
    """Convert a current metric to autoscaling/v2."""
    return _to_v2(metric, "current", _CURRENT_NAMES)


def _cpu(metric: Object, part: str) -> int | None:
    content = _content_of(metric)
    if metric.get("type") != "Resource" or content.get("name") != "cpu":
        return None

    found: int | None = _object_in(content, part).get("averageUtilization")
    return found


def _to_v1(
    metric: Object,
    part: str,
    fields: Mapping[str, Mapping[str, str]],
    always: Mapping[str, str],
) -> Object:
    content, type_ = _content_of(metric), _metric_type(metric)
    given = _object_in(content, part)
    named = fields.get(type_, {})
    values = {
        name: given[key]
        if given.get(key) is not None
        else "0"
        if always.get(type_) == name
        else None
        for key, name in named.items()
    }
    about = _object_in(content, "metric")
    selector = "metricSelector" if type_ == "External" else "selector"
    found = {
        "target": content.get("describedObject"),
        "name": content.get("name"),
        "metricName": about.get("name"),
        selector: about.get("selector"),
        **values,
        "container": content.get("container"),
    }
    if type_ in {"Object", "Pods"}:
        # The selector follows the first value in these Go structs.
        first = next(iter(values))
        order = ("target", "metricName", first, "selector", *values)
        found = {name: found[name] for name in dict.fromkeys(order)}

    kept = {name: it for name, it in found.items() if it is not None}
    return _with_content({"type": metric.get("type")}, kept)


def _to_v2(
    metric: Object, part: str, fields: Mapping[str, Mapping[str, str]]
) -> Object:
    content, type_ = _content_of(metric), _metric_type(metric)
    named = fields.get(type_, {})
    values = {key: content[name] for key, name in named.items() if name in content}
    selector = content.get("metricSelector" if type_ == "External" else "selector")
    about = {"name": content.get("metricName"), "selector": selector}
    found = {
        "describedObject": content.get("target"),
        "name": content.get("name"),
        "metric": {k: it for k, it in about.items() if it is not None},
        part: values,
        "container": content.get("container"),
    }
    kept = {name: it for name, it in found.items() if it}
    return _with_content({"type": metric.get("type")}, kept)


def _metric_type(metric: Object) -> str:
    """Return the type; metrics of containers have the fields of those of pods."""
    return str(metric.get("type")).removeprefix("Container")


def _content_of(metric: Object) -> Object:
    return _object_in(metric, _CONTENT_FIELDS.get(str(metric.get("type")), ""))


def _object_in(body: Object, name: str) -> Object:
    """Return an object in another one; empty if it is missing."""
    found = body.get(name)
    return found if isinstance(found, dict) else {}


def _with_content(metric: Object, content: Object) -> Object:
    content_field = _CONTENT_FIELDS.get(str(metric.get("type")))
    return {**metric, content_field: content} if content_field else metric


# ---------------------------------------------------------------- events

_CORE_EVENT = "io.k8s.api.core.v1.Event"
_NEW_EVENT = "io.k8s.api.events.v1.Event"

# Names of the fields in the core version, by their names in events.k8s.io.
_TO_CORE = {
    "deprecatedCount": "count",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedSource": "source",
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
}

_FROM_CORE = {core: new for new, core in _TO_CORE.items()}


def event_to_core(body: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an Event from events.k8s.io/v1 to the core group."""
    return with_zero_values(
        _CORE_EVENT, {_TO_CORE.get(name, name): it for name, it in body.items()}
    )


def event_to_events_v1(body: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an Event from the core group to events.k8s.io/v1."""
    return with_zero_values(
        _NEW_EVENT, {_FROM_CORE.get(name, name): it for name, it in body.items()}
    )
