"""`pod_trouble`: what is wrong with a pod, in one line."""

from __future__ import annotations

from typing import Any

import pytest

from aioinformer import KubeObject, pod_trouble

UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available:\n3 Insufficient cpu.",
}
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def ended(reason: str, code: int, **more: Any) -> dict[str, Any]:
    return {"terminated": {"reason": reason, "exitCode": code, **more}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def pod(
    phase: str = "Running",
    state: dict[str, Any] | None = None,
    *,
    last: dict[str, Any] | None = None,
    init: dict[str, Any] | None = None,
    deleted: bool = False,
    **status: Any,
) -> dict[str, Any]:
    main = {"name": "main", "state": state or {}, "lastState": last or {}}
    setup = {"name": "setup", "state": init or {}, "lastState": last or {}}
    metadata = {"name": "web", "namespace": "shop"}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    return {
        "metadata": metadata,
        "spec": {
            "containers": [{"name": "main"}],
            "initContainers": [{"name": "setup"}] if init else [],
        },
        "status": {
            "phase": phase,
            "containerStatuses": [main] if state else [],
            "initContainerStatuses": [setup] if init else [],
            **status,
        },
    }


OOM = ended("OOMKilled", 137)


@pytest.mark.parametrize(
    ("body", "trouble"),
    [
        (
            pod("Running", waiting("CrashLoopBackOff", "back-off 5m0s"), last=OOM),
            "CrashLoopBackOff: container main ended with OOMKilled, exit code 137",
        ),
        (
            pod("Pending", waiting("ImagePullBackOff", 'Back-off pulling "web:2"')),
            'ImagePullBackOff: container main: Back-off pulling "web:2"',
        ),
        (
            pod("Pending", waiting("CreateContainerError")),
            "CreateContainerError: container main",
        ),
        (
            pod("Failed", OOM),
            "OOMKilled: container main ended with exit code 137",
        ),
        (
            pod("Failed", ended("", 0, signal=9)),
            "Signal:9: container main ended with signal 9",
        ),
        (
            pod("Pending", init=ended("Error", 2)),
            "Init:Error: container setup ended with exit code 2",
        ),
        (
            pod("Pending", init=waiting("CrashLoopBackOff"), last=ended("Error", 2)),
            "Init:CrashLoopBackOff: container setup ended with Error, exit code 2",
        ),
        (
            pod("Pending", conditions=[UNSCHEDULABLE]),
            "Pending: Unschedulable: 0/3 nodes are available: 3 Insufficient cpu.",
        ),
        (
            pod(
                "Pending",
                conditions=[
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "SchedulingGated",
                        "message": "Scheduling is blocked",
                    }
                ],
            ),
            "SchedulingGated: Scheduling is blocked",
        ),
        (
            pod("Failed", reason="Evicted", message="The node was low on memory."),
            "Evicted: The node was low on memory.",
        ),
        (
            pod("Running", reason="NodeLost", message="No response", deleted=True),
            "Unknown: No response",
        ),
        (pod("Failed"), "Failed"),
        (
            pod(
                "Failed",
                ended("Completed", 0),
                reason="DeadlineExceeded",
                message="Pod was active longer than the deadline",
            ),
            "Completed: DeadlineExceeded: Pod was active longer than the deadline",
        ),
        (pod("Failed", ended("Completed", 0)), "Completed: the pod failed"),
    ],
    ids=lambda it: it.partition(" ")[0] if isinstance(it, str) else "",
)
def test_pod_trouble_is_status_with_reason(body: dict[str, Any], trouble: str) -> None:
    assert pod_trouble(body) == trouble
    assert pod_trouble(KubeObject.of(body)) == trouble


@pytest.mark.parametrize(
    "body",
    [
        pod("Running", RUNNING),
        pod("Succeeded", ended("Completed", 0)),
        pod("Succeeded"),
        pod("Pending"),
        pod("Pending", waiting("ContainerCreating")),
        pod("Pending", waiting("PodInitializing"), init=RUNNING),
        pod("Running", RUNNING, deleted=True),
        {"metadata": {"name": "created"}},
    ],
    ids=[
        "running",
        "completed",
        "succeeded",
        "pending",
        "creating",
        "initializing",
        "deleted",
        "empty",
    ],
)
def test_pod_without_trouble_is_none(body: dict[str, Any]) -> None:
    assert pod_trouble(body) is None
    assert pod_trouble(KubeObject.of(body)) is None


def test_pod_trouble_explains_pods_that_are_not_ready() -> None:
    ready = {"type": "Ready", "status": "False", "message": "unready: [main]"}
    body = pod("Running", ended("Completed", 0), conditions=[ready])
    other = {"name": "other", "state": RUNNING, "ready": True}
    body["status"]["containerStatuses"].append(other)

    assert pod_trouble(body) == "NotReady: unready: [main]"
