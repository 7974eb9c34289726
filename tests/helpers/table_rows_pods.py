"""Pods in the states that a table distinguishes, and their rows."""

from __future__ import annotations

from typing import Any

from table_helpers import (
    AGE,
    FINALIZERS,
    RUNNING,
    Row,
    condition,
    container,
    ended,
    now,
    template,
    waiting,
)

from aioinformer.model.resources import POD_TEMPLATES, PODS

_NONE = "<none>"
_COMPLETED = ended(0, "Completed")
_INITIALIZING = [now("a", waiting("PodInitializing"))]
_SIDECAR = [container("s", restartPolicy="Always")]


def pod(
    name: str,
    shown: str,
    phase: str = "Running",
    *states: dict[str, Any],
    init: list[dict[str, Any]] | None = None,
    inits: list[dict[str, Any]] | None = None,
    wide: dict[int, str] | None = None,
    spec: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    deleted: bool = False,
    **status: Any,
) -> Row:
    """Make a pod with a container for each state, at least one.

    Args:
        name: Name of the pod.
        shown: Cells ready, status and restarts.
        phase: Phase; empty to leave the pod as created.
        *states: Statuses of its containers.
        init: Init containers.
        inits: Statuses of the init containers.
        wide: Filled wide columns: 0 for the IP and so on.
        spec: Further fields of the spec.
        metadata: Further fields of the metadata.
        deleted: True if it was deleted.
        **status: Further fields of the status.
    """
    containers = [container(state["name"]) for state in states] or [container("a")]
    body: dict[str, Any] = {"containers": containers, **(spec or {})}
    if init:
        body["initContainers"] = init

    ready, reason, restarts = shown.split(" ", 2)
    wide_cells = [(wide or {}).get(number, _NONE) for number in range(4)]
    given = {"phase": phase, "containerStatuses": list(states), **status}
    if inits:
        given["initContainerStatuses"] = inits

    return Row(
        PODS,
        name,
        [ready, reason, restarts, AGE, *wide_cells],
        {"spec": body},
        given if phase else None,
        metadata or {},
        deleted,
        [phase] if phase in {"Succeeded", "Failed"} else [],
    )


def _held(name: str, shown: str, phase: str, *states: Any, **more: Any) -> Row:
    """Make a deleted pod that waits for a finalizer."""
    return pod(
        name,
        shown,
        phase,
        *states,
        metadata=FINALIZERS,
        deleted=True,
        spec={"nodeName": "n1"},
        wide={1: "n1"},
        **more,
    )


PLAIN = [
    pod("new", "0/1 Pending 0", "Pending"),
    pod(
        "running",
        "1/1 Running 0",
        "Running",
        now("a", RUNNING, ready=True),
        podIP="10.0.0.7",
        podIPs=[{"ip": "10.0.0.7"}],
        wide={0: "10.0.0.7"},
    ),
    pod(
        "crashing",
        "1/2 CrashLoopBackOff 2 (3d1h ago)",
        "Running",
        now("a", RUNNING, ready=True),
        now("b", waiting("CrashLoopBackOff"), restarts=2, last=True),
        spec={"nodeName": "n1"},
        wide={1: "n1"},
    ),
    pod(
        "restarted",
        "1/1 Running 3 (3d1h ago)",
        "Running",
        now("a", RUNNING, ready=True, restarts=3, last=True),
    ),
    pod(
        "restarted-some-time",
        "1/1 Running 3",
        "Running",
        now("a", RUNNING, ready=True, restarts=3),
    ),
    pod(
        "nominated", "0/1 Pending 0", "Pending", nominatedNodeName="n2", wide={2: "n2"}
    ),
    pod(
        "gates",
        "0/1 Running 0",
        spec={
            "readinessGates": [
                {"conditionType": "x.y/a"},
                {"conditionType": "x.y/b"},
            ]
        },
        conditions=[condition("x.y/a"), condition("x.y/b", "False")],
        wide={3: "1/2"},
    ),
    pod("unknown", "0/1 Unknown 0", "Unknown"),
    pod("waiting", "0/1 Pending 0", "Pending", now("a", waiting())),
    pod("pulling", "0/1 ErrImagePull 0", "Pending", now("a", waiting("ErrImagePull"))),
    pod(
        "gated",
        "0/1 SchedulingGated 0",
        "Pending",
        spec={"schedulingGates": [{"name": "x.y/z"}]},
        conditions=[condition("PodScheduled", "False", reason="SchedulingGated")],
    ),
]

ENDED = [
    pod("completed", "0/1 Completed 0", "Succeeded", now("a", _COMPLETED)),
    pod("error", "0/1 Error 0", "Failed", now("a", ended(1, "Error"))),
    pod("oom", "0/1 OOMKilled 0", "Running", now("a", ended(137, "OOMKilled"))),
    pod("exit", "0/1 ExitCode:3 0", "Failed", now("a", ended(3))),
    pod("signal", "0/1 Signal:9 0", "Failed", now("a", ended(3, signal=9))),
    pod("evicted", "0/1 Evicted 0", "Failed", reason="Evicted"),
    pod(
        "half-ready",
        "1/2 Running 0",
        "Running",
        now("a", _COMPLETED),
        now("b", RUNNING, ready=True),
        conditions=[condition("Ready")],
    ),
    pod(
        "half",
        "1/2 NotReady 0",
        "Running",
        now("a", _COMPLETED),
        now("b", RUNNING, ready=True),
    ),
    pod(
        "half-unready",
        "0/2 Completed 0",
        "Running",
        now("a", _COMPLETED),
        now("b", RUNNING),
    ),
    pod(
        "first-counts",
        "0/2 ContainerCreating 0",
        "Running",
        now("a", waiting("ContainerCreating")),
        now("b", ended(1, "Error")),
    ),
    _held("deleted", "1/1 Terminating 0", "Running", now("a", RUNNING, ready=True)),
    _held("lost", "0/1 Unknown 0", "Running", reason="NodeLost"),
    _held("over", "0/1 Completed 0", "Succeeded", now("a", _COMPLETED)),
]


def initialized(name: str, shown: str, *inits: Any, **more: Any) -> Row:
    """Make a pod with init containers in these states."""
    init = [container(state["name"]) for state in inits]
    return pod(
        name, shown, "Pending", *_INITIALIZING, init=init, inits=[*inits], **more
    )


def beside(name: str, shown: str, sidecar: dict[str, Any], *states: Any) -> Row:
    """Make a pod with a sidecar in this state."""
    return pod(name, shown, "Running", *states, init=_SIDECAR, inits=[sidecar])


_UP = now("a", RUNNING, ready=True)

INITIALIZED = [
    initialized("first", "0/1 Init:0/2 0", now("i", RUNNING), now("j", waiting())),
    initialized(
        "second",
        "0/1 Init:1/2 3 (3d1h ago)",
        now("i", ended(), ready=True, restarts=1),
        now("j", RUNNING, restarts=2, last=True),
    ),
    initialized(
        "init-crashing",
        "0/1 Init:CrashLoopBackOff 4",
        now("i", waiting("CrashLoopBackOff"), restarts=4),
    ),
    initialized("init-error", "0/1 Init:Error 0", now("i", ended(1, "Error"))),
    initialized("init-exit", "0/1 Init:ExitCode:2 0", now("i", ended(2))),
    initialized("init-signal", "0/1 Init:Signal:15 0", now("i", ended(2, signal=15))),
    pod(
        "init-done",
        "1/1 Running 1",
        "Running",
        now("a", RUNNING, ready=True, restarts=1),
        init=[container("i")],
        inits=[now("i", _COMPLETED, ready=True, restarts=5, last=True)],
    ),
    pod(
        "init-condition",
        "1/1 Init:0/1 0",
        "Running",
        _UP,
        init=[container("i")],
        inits=[now("i", RUNNING, restarts=1)],
        conditions=[condition("Initialized")],
    ),
    beside(
        "sidecar",
        "2/2 Running 3 (3d1h ago)",
        now("s", RUNNING, ready=True, restarts=2, last=True, started=True),
        now("a", RUNNING, ready=True, restarts=1),
    ),
    beside("side-unready", "1/2 Running 0", now("s", RUNNING, started=True), _UP),
    beside("side-starting", "0/2 Init:0/1 0", now("s", RUNNING, started=False), _UP),
    beside(
        "side-crashing",
        "0/2 Init:CrashLoopBackOff 1",
        now("s", waiting("CrashLoopBackOff"), restarts=1, started=False),
        _UP,
    ),
    beside(
        "side-ended",
        "0/2 Completed 1",
        now("s", _COMPLETED, ready=True, restarts=1, started=True),
        now("a", _COMPLETED),
    ),
]

TEMPLATES = [
    Row(
        POD_TEMPLATES,
        "two",
        ["a,b", "img-a:1,img-b:1", "app=x"],
        {"template": template("a", "b")},
    )
]

POD_ROWS = [*PLAIN, *ENDED, *INITIALIZED, *TEMPLATES]
