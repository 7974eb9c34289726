"""The tables of what runs pods: the workload kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer.model import resources
from aioinformer.model.times import human_duration
from aioinformer.tables.cells import (
    NONE,
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
    selector_cell,
    selector_text,
    since,
    text,
)
from aioinformer.tables.columns import (
    AGE,
    NAME,
    Column,
    Layout,
    integers,
    texts,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from aioinformer.model.resource import Resource

__all__ = ["APPS_LAYOUTS"]

# The first of these conditions that is true is the status of a job. Being deleted comes
# between what has ended and what has not.
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
        *_pod_cells(body),
        selector_text(at(body, "spec", "selector")),
    ]


def _stateful_set_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    return [name(body), _ready_of_wanted(body), age(body, now), *_pod_cells(body)]


def _replica_set_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    selector = selector_cell(at(body, "spec", "selector"))
    return [*_replicas_cells(body, now), *_pod_cells(body), selector]


def _controller_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    selector = labels_text(mapping(body, "spec", "selector"))
    return [*_replicas_cells(body, now), *_pod_cells(body), selector]


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
        *_pod_cells(body),
        selector_cell(at(body, "spec", "selector")),
    ]


def _job_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    return [
        name(body),
        _job_status(body),
        _completions(body),
        _job_duration(mapping(body, "status"), now),
        age(body, now),
        *_pod_cells(body),
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
        *_pod_cells(job),
        selector_cell(at(job, "spec", "selector")),
    ]


def _pod_cells(body: object) -> tuple[str, str]:
    """Tell what the pods of a workload consist of."""
    containers = maps(body, "spec", "template", "spec", "containers")
    return names(containers), images(containers)


def _wanted(body: object) -> int:
    """How many replicas are wanted; 1 if nobody has said, but 0 of nothing."""
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


APPS_LAYOUTS: dict[Resource, Layout] = {
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
}
