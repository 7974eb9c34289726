"""The metrics of autoscalers, as each version writes them. Pure.

A metric of autoscaling/v2 says what is measured, and as which of three values. That of
autoscaling/v1 has a field for each of both, named otherwise for targets and for what is
measured now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "cpu_current",
    "cpu_of",
    "cpu_target",
    "cpu_used",
    "current_to_first",
    "current_to_second",
    "target_to_first",
    "target_to_second",
]

Object = dict[str, Any]

# By the type of a metric: the field that holds it.
_HOLDERS = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
# How the first version calls the values, by what it calls them in the second.
_TARGETS: Mapping[str, Mapping[str, str]] = {
    "External": {"value": "targetValue", "averageValue": "targetAverageValue"},
    "Object": {"value": "targetValue", "averageValue": "averageValue"},
    "Pods": {"averageValue": "targetAverageValue"},
    "Resource": {
        "averageUtilization": "targetAverageUtilization",
        "averageValue": "targetAverageValue",
    },
}
_CURRENT: Mapping[str, Mapping[str, str]] = {
    "External": {"value": "currentValue", "averageValue": "currentAverageValue"},
    "Object": {"value": "currentValue", "averageValue": "averageValue"},
    "Pods": {"averageValue": "currentAverageValue"},
    "Resource": {
        "averageUtilization": "currentAverageUtilization",
        "averageValue": "currentAverageValue",
    },
}
# The values that are always told, if only as 0.
_ALWAYS_TARGETS = {"Object": "targetValue", "Pods": "targetAverageValue"}
_ALWAYS_CURRENT = {
    "External": "currentValue",
    "Object": "currentValue",
    "Pods": "currentAverageValue",
    "Resource": "currentAverageValue",
}
_TARGET_TYPES = {"averageUtilization": "Utilization", "averageValue": "AverageValue"}


def cpu_of(percentage: int) -> Object:
    """Return the metric that is a target for the use of CPU."""
    target = {"type": "Utilization", "averageUtilization": percentage}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def cpu_used(percentage: int) -> Object:
    """Return what is measured of the use of CPU."""
    current = {"averageUtilization": percentage}
    return {"type": "Resource", "resource": {"name": "cpu", "current": current}}


def cpu_target(metric: Object) -> int | None:
    """Return which use of CPU a metric aims at; None if it is another one."""
    return _cpu(metric, "target")


def cpu_current(metric: Object) -> int | None:
    """Return which use of CPU was measured; None if it is another metric."""
    return _cpu(metric, "current")


def target_to_first(metric: Object) -> Object:
    """Write a metric that is aimed at as autoscaling/v1 does."""
    return _to_first(metric, "target", _TARGETS, _ALWAYS_TARGETS)


def current_to_first(metric: Object) -> Object:
    """Write a metric that was measured as autoscaling/v1 does."""
    return _to_first(metric, "current", _CURRENT, _ALWAYS_CURRENT)


def target_to_second(metric: Object) -> Object:
    """Read a metric that is aimed at as autoscaling/v1 writes it."""
    found = _to_second(metric, "target", _TARGETS)
    target = _object_in(_held(found), "target")
    # An average was meant where there is one: the other value is only told as 0.
    for value, type_ in _TARGET_TYPES.items():
        if value in target:
            kept = {"type": type_, value: target[value]}
            return _with_held(found, {**_held(found), "target": kept})

    return _with_held(found, {**_held(found), "target": {"type": "Value", **target}})


def current_to_second(metric: Object) -> Object:
    """Read a metric that was measured as autoscaling/v1 writes it."""
    return _to_second(metric, "current", _CURRENT)


def _cpu(metric: Object, part: str) -> int | None:
    held = _held(metric)
    if metric.get("type") != "Resource" or held.get("name") != "cpu":
        return None

    found: int | None = _object_in(held, part).get("averageUtilization")
    return found


def _to_first(
    metric: Object,
    part: str,
    fields: Mapping[str, Mapping[str, str]],
    always: Mapping[str, str],
) -> Object:
    held, form = _held(metric), _form(metric)
    given = _object_in(held, part)
    named = fields.get(form, {})
    values = {
        name: given[key]
        if given.get(key) is not None
        else "0"
        if always.get(form) == name
        else None
        for key, name in named.items()
    }
    about = _object_in(held, "metric")
    selector = "metricSelector" if form == "External" else "selector"
    found = {
        "target": held.get("describedObject"),
        "name": held.get("name"),
        "metricName": about.get("name"),
        selector: about.get("selector"),
        **values,
        "container": held.get("container"),
    }
    if form in {"Object", "Pods"}:
        # There the selector stands behind the first value.
        first = next(iter(values))
        order = ("target", "metricName", first, "selector", *values)
        found = {name: found[name] for name in dict.fromkeys(order)}

    kept = {name: it for name, it in found.items() if it is not None}
    return _with_held({"type": metric.get("type")}, kept)


def _to_second(
    metric: Object, part: str, fields: Mapping[str, Mapping[str, str]]
) -> Object:
    held, form = _held(metric), _form(metric)
    named = fields.get(form, {})
    values = {key: held[name] for key, name in named.items() if name in held}
    selector = held.get("metricSelector" if form == "External" else "selector")
    about = {"name": held.get("metricName"), "selector": selector}
    found = {
        "describedObject": held.get("target"),
        "name": held.get("name"),
        "metric": {k: it for k, it in about.items() if it is not None},
        part: values,
        "container": held.get("container"),
    }
    kept = {name: it for name, it in found.items() if it}
    return _with_held({"type": metric.get("type")}, kept)


def _form(metric: Object) -> str:
    """Return the type; that of containers is written as that of whole pods."""
    return str(metric.get("type")).removeprefix("Container")


def _held(metric: Object) -> Object:
    return _object_in(metric, _HOLDERS.get(str(metric.get("type")), ""))


def _object_in(body: Object, name: str) -> Object:
    """Return an object in another one; an empty one if there is none."""
    found = body.get(name)
    return found if isinstance(found, dict) else {}


def _with_held(metric: Object, held: Object) -> Object:
    holder = _HOLDERS.get(str(metric.get("type")))
    return {**metric, holder: held} if holder else metric
