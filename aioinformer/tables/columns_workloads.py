"""Tables of pods, and of controllers that create them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer.model import resources
from aioinformer.model.times import human_duration
from aioinformer.tables.cells import (
    NONE,
    UNKNOWN,
    UNSET,
    age,
    at,
    images,
    is_true,
    labels_text,
    mapping,
    maps,
    moment,
    name,
    names,
    number,
    quantity,
    selector_cell,
    selector_text,
    shortened,
    since,
    text,
)
from aioinformer.tables.layout import AGE, NAME, Column, Layout, integers, texts
from aioinformer.tables.pod_status import FINISHED_PHASES, pod_state

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from aioinformer.model.resource import Resource

__all__ = ["WORKLOAD_LAYOUTS"]


def _pod_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    spec, status = mapping(body, "spec"), mapping(body, "status")
    pod = pod_state(body)
    return [
        name(body),
        f"{pod.ready}/{pod.containers}",
        pod.status,
        pod.restarts.format(now),
        age(body, now),
        _address(status),
        text(spec, "nodeName") or NONE,
        text(status, "nominatedNodeName") or NONE,
        _readiness_gates(spec, status),
    ]


def _address(status: object) -> str:
    addresses = [text(it, "ip") for it in maps(status, "podIPs")]
    return text(status, "podIP") or "".join(addresses[:1]) or NONE


def _readiness_gates(spec: object, status: object) -> str:
    gates = maps(spec, "readinessGates")
    if not gates:
        return NONE

    conditions = maps(status, "conditions")
    passed = sum(is_true(conditions, text(it, "conditionType")) for it in gates)
    return f"{passed}/{len(gates)}"


def _pod_conditions(body: Mapping[str, Any]) -> list[dict[str, str]]:
    phase = text(body, "status", "phase")
    if phase not in FINISHED_PHASES:
        return []

    return [
        {
            "type": "Completed",
            "status": "True",
            "reason": phase,
            "message": FINISHED_PHASES[phase],
        }
    ]


def _pod_template_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    del now
    containers = maps(body, "template", "spec", "containers")
    labels = mapping(body, "template", "metadata", "labels")
    return [name(body), names(containers), images(containers), labels_text(labels)]


# The first of these conditions that is true is the status of a job. Deletion takes
# precedence over those of unfinished jobs.
_ENDED = ("Complete", "Failed")


_NOT_ENDED = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


_POD_COLUMNS = texts("Containers", "Images", wide=True)


_SELECTOR = texts("Selector", wide=True)


def _deployment_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    return [
        name(body),
        _ready_of_wanted(body),
        number(body, "status", "updatedReplicas"),
        number(body, "status", "availableReplicas"),
        age(body, now),
        *_template_cells(body),
        selector_text(at(body, "spec", "selector")),
    ]


def _stateful_set_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    return [name(body), _ready_of_wanted(body), age(body, now), *_template_cells(body)]


def _replica_set_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    selector = selector_cell(at(body, "spec", "selector"))
    return [*_replicas_cells(body, now), *_template_cells(body), selector]


def _controller_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    selector = labels_text(mapping(body, "spec", "selector"))
    return [*_replicas_cells(body, now), *_template_cells(body), selector]


def _daemon_set_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    status = mapping(body, "status")
    return [
        name(body),
        number(status, "desiredNumberScheduled"),
        number(status, "currentNumberScheduled"),
        number(status, "numberReady"),
        number(status, "updatedNumberScheduled"),
        number(status, "numberAvailable"),
        labels_text(mapping(body, "spec", "template", "spec", "nodeSelector")),
        age(body, now),
        *_template_cells(body),
        selector_cell(at(body, "spec", "selector")),
    ]


def _job_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    return [
        name(body),
        _job_status(body),
        _completions(body),
        _job_duration(mapping(body, "status"), now),
        age(body, now),
        *_template_cells(body),
        selector_cell(at(body, "spec", "selector")),
    ]


def _cron_job_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    spec, suspend = mapping(body, "spec"), at(body, "spec", "suspend")
    job = mapping(spec, "jobTemplate")
    last = at(body, "status", "lastScheduleTime")
    return [
        name(body),
        text(spec, "schedule"),
        text(spec, "timeZone") or NONE,
        str(suspend) if isinstance(suspend, bool) else UNSET,
        len(maps(body, "status", "active")),
        since(last, now) if last else NONE,
        age(body, now),
        *_template_cells(job),
        selector_cell(at(job, "spec", "selector")),
    ]


def _template_cells(body: object) -> tuple[str, str]:
    """Return the container names and images of a pod template."""
    containers = maps(body, "spec", "template", "spec", "containers")
    return names(containers), images(containers)


def _wanted(body: object) -> int:
    """Return the desired number of replicas: 1 if unset, 0 without a spec."""
    return number(body, "spec", "replicas", missing=int(bool(at(body, "spec"))))


def _ready_of_wanted(body: object) -> str:
    return f"{number(body, 'status', 'readyReplicas')}/{_wanted(body)}"


def _replicas_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    current = number(body, "status", "replicas")
    ready = number(body, "status", "readyReplicas")
    return [name(body), _wanted(body), current, ready, age(body, now)]


def _job_status(body: object) -> str:
    conditions = maps(body, "status", "conditions")
    for kind in _ENDED:
        if is_true(conditions, kind):
            return kind

    if text(body, "metadata", "deletionTimestamp"):
        return "Terminating"

    found = (kind for kind in _NOT_ENDED if is_true(conditions, kind))
    return next(found, "Running")


def _completions(body: object) -> str:
    done, wanted = number(body, "status", "succeeded"), at(body, "spec", "completions")
    if isinstance(wanted, int):
        return f"{done}/{wanted}"

    parallel = number(body, "spec", "parallelism")
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _job_duration(status: object, now: datetime) -> str:
    begun = moment(at(status, "startTime"))
    if begun is None:
        return ""

    ended = moment(at(status, "completionTime")) or now
    return human_duration((ended - begun).total_seconds())


# Field that contains the metrics of each type.
_METRIC_FIELDS = {
    "External": "external",
    "Pods": "pods",
    "Object": "object",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
_OF_RESOURCES = frozenset({"Resource", "ContainerResource"})
_METRICS_SHOWN = 2


def _autoscaler_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    spec, status = mapping(body, "spec"), mapping(body, "status")
    targets = _metrics(maps(spec, "metrics"), maps(status, "currentMetrics"))
    return _autoscaler_row(body, targets, now)


def _autoscaler_v1_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    """Return the cells of an autoscaling/v1 autoscaler, whose only metric is the CPU.

    Other metrics, which its server keeps in annotations, are not shown.
    """
    wanted = at(body, "spec", "targetCPUUtilizationPercentage")
    current = {
        "averageUtilization": at(body, "status", "currentCPUUtilizationPercentage")
    }
    usage = _resource({"averageUtilization": wanted}, current)
    return _autoscaler_row(body, NONE if wanted is None else f"cpu: {usage}", now)


def _autoscaler_row(body: Mapping[str, Any], targets: str, now: datetime) -> list[Any]:
    spec, status = mapping(body, "spec"), mapping(body, "status")
    target = mapping(spec, "scaleTargetRef")
    least = at(spec, "minReplicas")
    return [
        name(body),
        f"{text(target, 'kind')}/{text(target, 'name')}",
        targets,
        UNSET if least is None else str(least),
        number(spec, "maxReplicas"),
        number(status, "currentReplicas"),
        age(body, now),
    ]


def _metrics(wanted: list[dict[str, Any]], found: list[dict[str, Any]]) -> str:
    """Format current and target values of all metrics; the lists correspond."""
    states = [*found, *({} for _ in wanted)]
    shown = [_metric(one, state) for one, state in zip(wanted, states, strict=False)]
    return shortened(shown, limit=_METRICS_SHOWN, separator=", ") or NONE


def _metric(wanted: object, found: object) -> str:
    kind = text(wanted, "type")
    part = _METRIC_FIELDS.get(kind)
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
    shown = quantity(current, key) if is_known else UNKNOWN
    return f"{shown}/{quantity(target, key)}"


def _resource(target: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    if "averageValue" in target:
        is_known = bool(current)
        return _pair(target, current, "averageValue", is_known=is_known)

    now = at(current, "averageUtilization")
    wanted = at(target, "averageUtilization")
    shown = UNKNOWN if now is None else f"{now}%"
    return f"{shown}/<auto>" if wanted is None else f"{shown}/{wanted}%"


_AUTOSCALER_COLUMNS = (
    NAME,
    *texts("Reference", "Targets", "MinPods", "MaxPods", "Replicas"),
    AGE,
)

WORKLOAD_LAYOUTS: dict[Resource, Layout] = {
    resources.PODS: Layout(
        (
            NAME,
            *texts("Ready", "Status", "Restarts"),
            AGE,
            *texts("IP", "Node", "Nominated Node", "Readiness Gates", wide=True),
        ),
        _pod_cells,
        _pod_conditions,
    ),
    resources.POD_TEMPLATES: Layout(
        (NAME, *texts("Containers", "Images", "Pod Labels")), _pod_template_cells
    ),
    resources.DEPLOYMENTS: Layout(
        (
            NAME,
            *texts("Ready", "Up-to-date", "Available"),
            AGE,
            *_POD_COLUMNS,
            *_SELECTOR,
        ),
        _deployment_cells,
    ),
    resources.STATEFUL_SETS: Layout(
        (NAME, *texts("Ready"), AGE, *_POD_COLUMNS), _stateful_set_cells
    ),
    resources.REPLICA_SETS: Layout(
        (
            NAME,
            *integers("Desired", "Current", "Ready"),
            AGE,
            *_POD_COLUMNS,
            *_SELECTOR,
        ),
        _replica_set_cells,
    ),
    resources.REPLICATION_CONTROLLERS: Layout(
        (
            NAME,
            *integers("Desired", "Current", "Ready"),
            AGE,
            *_POD_COLUMNS,
            *_SELECTOR,
        ),
        _controller_cells,
    ),
    resources.DAEMON_SETS: Layout(
        (
            NAME,
            *integers("Desired", "Current", "Ready", "Up-to-date", "Available"),
            *texts("Node Selector"),
            AGE,
            *_POD_COLUMNS,
            *_SELECTOR,
        ),
        _daemon_set_cells,
    ),
    resources.JOBS: Layout(
        (
            NAME,
            *texts("Status", "Completions", "Duration"),
            AGE,
            *_POD_COLUMNS,
            *_SELECTOR,
        ),
        _job_cells,
    ),
    resources.CRON_JOBS: Layout(
        (
            NAME,
            *texts("Schedule", "Timezone"),
            Column(name="Suspend", type="boolean"),
            *integers("Active"),
            *texts("Last Schedule"),
            AGE,
            *_POD_COLUMNS,
            *_SELECTOR,
        ),
        _cron_job_cells,
    ),
    resources.HORIZONTAL_POD_AUTOSCALERS: Layout(
        _AUTOSCALER_COLUMNS, _autoscaler_cells
    ),
    resources.HORIZONTAL_POD_AUTOSCALERS_V1: Layout(
        _AUTOSCALER_COLUMNS, _autoscaler_v1_cells
    ),
}
