"""Workloads in the states that a table distinguishes, and their rows."""

from __future__ import annotations

from typing import Any

from table_helpers import (
    AGE,
    DAYS_AGO,
    FINALIZERS,
    SELECTOR,
    Row,
    ago,
    condition,
    template,
)

from aioinformer.model.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    JOBS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
)

_PODS = ["a,b", "img-a:1,img-b:1"]
_ONE_POD = ["a", "img-a:1"]


def _spec(**more: Any) -> dict[str, Any]:
    return {"spec": {"selector": SELECTOR, "template": template("a", "b"), **more}}


_EXPRESSIONS = [
    {"key": "app", "operator": "In", "values": ["x", "a"]},
    {"key": "zz", "operator": "DoesNotExist"},
    {"key": "app", "operator": "Exists"},
    {"key": "bb", "operator": "NotIn", "values": ["2", "1"]},
]

SETS = [
    Row(DEPLOYMENTS, "new", ["0/1", 0, 0, AGE, *_PODS, "app=x"], _spec()),
    Row(
        DEPLOYMENTS,
        "three",
        ["2/3", 3, 1, AGE, *_PODS, "app=x,app in (a,x),app,bb notin (1,2),!zz"],
        _spec(replicas=3, selector={**SELECTOR, "matchExpressions": _EXPRESSIONS}),
        {
            "replicas": 3,
            "readyReplicas": 2,
            "updatedReplicas": 3,
            "availableReplicas": 1,
        },
    ),
    Row(REPLICA_SETS, "new", [1, 0, 0, AGE, *_PODS, "app=x"], _spec()),
    Row(
        REPLICA_SETS,
        "two",
        [2, 2, 1, AGE, *_PODS, "app=x"],
        _spec(replicas=2),
        {"replicas": 2, "readyReplicas": 1},
    ),
    Row(
        REPLICATION_CONTROLLERS,
        "two",
        [2, 1, 1, AGE, *_PODS, "app=x"],
        _spec(replicas=2, selector={"app": "x"}),
        {"replicas": 1, "readyReplicas": 1},
    ),
    Row(
        STATEFUL_SETS,
        "four",
        ["3/4", AGE, *_PODS],
        _spec(replicas=4, serviceName="x"),
        {"replicas": 4, "readyReplicas": 3},
    ),
    Row(DAEMON_SETS, "new", [0, 0, 0, 0, 0, "<none>", AGE, *_PODS, "app=x"], _spec()),
    Row(
        DAEMON_SETS,
        "five",
        [5, 4, 3, 2, 1, "a=1,b=2", AGE, *_PODS, "app=x"],
        _spec(template=template("a", "b", nodeSelector={"b": "2", "a": "1"})),
        {
            "desiredNumberScheduled": 5,
            "currentNumberScheduled": 4,
            "numberReady": 3,
            "updatedNumberScheduled": 2,
            "numberAvailable": 1,
            "numberMisscheduled": 0,
        },
    ),
]


def _job(
    name: str, shown: list[str], *conditions: str, deleted: bool = False, **fields: Any
) -> Row:
    """Make a job; fields of its spec begin with `spec_`, those of its status do not."""
    spec: dict[str, Any] = {
        "manualSelector": True,
        "selector": SELECTOR,
        "template": template("a", restartPolicy="Never"),
    }
    status: dict[str, Any] = {}
    for key, value in fields.items():
        part = spec if key.startswith("spec_") else status
        part[key.removeprefix("spec_")] = value

    if conditions:
        when = ago(hours=2)
        status["conditions"] = [
            condition(kind, lastTransitionTime=when) for kind in conditions
        ]

    return Row(
        JOBS,
        name,
        [*shown, AGE, *_ONE_POD, "app=x"],
        {"spec": spec},
        status or None,
        FINALIZERS if deleted else {},
        deleted,
    )


_BEGUN: dict[str, Any] = {"startTime": DAYS_AGO}

RUNS = [
    _job("new", ["Running", "0/1", ""]),
    _job("queue", ["Running", "0/1 of 3", ""], spec_parallelism=3),
    _job(
        "many",
        ["Running", "2/5", "3d1h"],
        spec_completions=5,
        spec_parallelism=2,
        succeeded=2,
        active=1,
        **_BEGUN,
    ),
    _job(
        "complete",
        ["Complete", "1/1", "30m"],
        "SuccessCriteriaMet",
        "Complete",
        startTime=ago(hours=3),
        completionTime=ago(hours=2, minutes=30),
        succeeded=1,
    ),
    _job("failed", ["Failed", "0/1", "3d1h"], "FailureTarget", "Failed", **_BEGUN),
    _job("suspended", ["Suspended", "0/1", ""], "Suspended", spec_suspend=True),
    _job("failing", ["FailureTarget", "0/1", "3d1h"], "FailureTarget", **_BEGUN),
    _job(
        "held-up",
        ["Suspended", "0/1", ""],
        "Suspended",
        "FailureTarget",
        spec_suspend=True,
    ),
    _job(
        "enough",
        ["SuccessCriteriaMet", "1/1", "3d1h"],
        "SuccessCriteriaMet",
        succeeded=1,
        **_BEGUN,
    ),
    _job("deleted", ["Terminating", "0/1", "3d1h"], deleted=True, **_BEGUN),
    Row(
        CRON_JOBS,
        "new",
        ["* * * * *", "<none>", "False", 0, "<none>", AGE, *_ONE_POD, "<none>"],
        {
            "spec": {
                "schedule": "* * * * *",
                "suspend": False,
                "jobTemplate": {
                    "spec": {"template": template("a", restartPolicy="Never")}
                },
            }
        },
    ),
    Row(
        CRON_JOBS,
        "zone",
        ["@daily", "Etc/UTC", "True", 1, "3d1h", AGE, *_ONE_POD, "<none>"],
        {
            "spec": {
                "schedule": "@daily",
                "timeZone": "Etc/UTC",
                "suspend": True,
                "jobTemplate": {
                    "spec": {"template": template("a", restartPolicy="Never")}
                },
            }
        },
        {"active": [{"name": "j"}], "lastScheduleTime": DAYS_AGO},
    ),
]


# ---------------------------------------------------------------- autoscalers


def _metric(
    kind: str, about: dict[str, Any], target: dict[str, Any], current: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make the spec and the status of a metric."""
    part = kind[0].lower() + kind[1:]
    wanted = {"type": kind, part: {**about, "target": target}}
    return wanted, {"type": kind, part: {**about, "current": current}}


_M = {"metric": {"name": "m"}}
_OBJECT = {**_M, "describedObject": {"kind": "Service", "name": "s"}}
_PERCENT = {"type": "Utilization", "averageUtilization": 80}


def _average(value: str) -> dict[str, Any]:
    return {"type": "AverageValue", "averageValue": value}


# Cells of a known metric, and of an unknown one.
_METRICS = {
    "cpu: 40%/80%": _metric(
        "Resource",
        {"name": "cpu"},
        _PERCENT,
        {"averageUtilization": 40, "averageValue": "10m"},
    ),
    "memory: 50Mi/100Mi": _metric(
        "Resource", {"name": "memory"}, _average("100Mi"), {"averageValue": "50Mi"}
    ),
    "500/1k": _metric("Pods", _M, _average("1k"), {"averageValue": "500"}),
    "3/10": _metric(
        "Object", _OBJECT, {"type": "Value", "value": "10"}, {"value": "3"}
    ),
    "2/7 (avg)": _metric(
        "Object", _OBJECT, _average("7"), {"value": "3", "averageValue": "2"}
    ),
    "31/30": _metric("External", _M, {"type": "Value", "value": "30"}, {"value": "31"}),
    "4/5 (avg)": _metric(
        "External", _M, _average("5"), {"value": "31", "averageValue": "4"}
    ),
    "cpu: 33%/80%": _metric(
        "ContainerResource",
        {"name": "cpu", "container": "a"},
        _PERCENT,
        {"averageUtilization": 33, "averageValue": "10m"},
    ),
}


def _scaler(name: str, shown: str, wanted: list[Any], found: list[Any]) -> Row:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return Row(
        HORIZONTAL_POD_AUTOSCALERS,
        name,
        ["Deployment/web", shown, "1", 5, 2, AGE],
        {
            "spec": {
                "scaleTargetRef": target,
                "minReplicas": 1,
                "maxReplicas": 5,
                "metrics": wanted,
            }
        },
        {
            "currentReplicas": 2,
            "desiredReplicas": 2,
            "currentMetrics": found,
            "conditions": [],
        },
    )


def _unknown(shown: str) -> str:
    """Return the cell of a metric that is not known yet."""
    about, _, value = shown.rpartition(": ")
    target = f"<unknown>/{value.partition('/')[2]}"
    return f"{about}: {target}" if about else target


_TOLD = list(_METRICS)
_WANTED = [wanted for wanted, _ in _METRICS.values()]
_FOUND = [found for _, found in _METRICS.values()]

SCALERS = [
    *(
        _scaler(f"known-{number}", shown, [wanted], [found])
        for number, (shown, (wanted, found)) in enumerate(_METRICS.items())
    ),
    *(
        _scaler(f"unknown-{number}", _unknown(shown), [wanted], [])
        for number, (shown, (wanted, _)) in enumerate(_METRICS.items())
    ),
    _scaler("two", f"{_TOLD[0]}, {_unknown(_TOLD[1])}", _WANTED[:2], _FOUND[:1]),
    _scaler("five", f"{_TOLD[0]}, {_TOLD[1]} + 3 more...", _WANTED[:5], _FOUND[:5]),
]

APPS_ROWS = [*SETS, *RUNS, *SCALERS]
