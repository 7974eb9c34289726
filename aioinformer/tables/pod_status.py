"""Status of a pod, as kubectl shows it, and what is wrong with the pod.

The status of a pod is not a field. It is derived from the phase, from init containers
that block the pod, and from the last states of the other containers: the reason of the
first container takes precedence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from aioinformer.model.conditions import find_status_condition
from aioinformer.tables.cells import (
    at,
    is_true,
    mapping,
    maps,
    moment,
    number,
    since,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FINISHED_PHASES", "PodState", "Restarts", "pod_state", "pod_trouble"]

_NEVER = datetime.min.replace(tzinfo=UTC)


FINISHED_PHASES = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}
"""Descriptions of the phases of pods that have ended. They do not run again, so clients
may hide them."""


@dataclass(slots=True)
class Restarts:
    """Number of container restarts, and the end of the last run before one."""

    count: int = 0
    last: str = ""
    at: datetime = _NEVER

    def add(self, status: object) -> None:
        """Add the restarts of one container."""
        self.count += number(status, "restartCount")
        ended = at(status, "lastState", "terminated", "finishedAt")
        when = moment(ended)
        if when is not None and when > self.at:
            self.last, self.at = ended, when

    def format(self, now: datetime) -> str:
        """Format the number, with the time of the last restart if known."""
        if not self.count or not self.last:
            return str(self.count)

        return f"{self.count} ({since(self.last, now)} ago)"


@dataclass(slots=True)
class PodState:
    """State of a pod, derived from its containers."""

    status: str
    """Status as kubectl shows it, such as `Running` or `CrashLoopBackOff`."""
    restarts: Restarts
    ready: int = 0
    """Number of ready containers."""
    containers: int = 0
    """Number of containers that should run, with sidecars."""
    cause: Mapping[str, Any] | None = None
    """Entry of the container whose state is the status of the pod, or None."""


def pod_state(body: Mapping[str, Any]) -> PodState:
    """Derive the state of a pod, as kubectl does."""
    spec, status = mapping(body, "spec"), mapping(body, "status")
    sidecars = _sidecars(spec)
    pod, blocked = _initialized(spec, status, sidecars)
    if not blocked or is_true(maps(status, "conditions"), "Initialized"):
        _add_containers(pod, status, sidecars)

    pod.containers = len(maps(spec, "containers")) + len(sidecars)
    pod.status = _status_while_deleted(body, pod.status)
    return pod


# Statuses of pods that run, have succeeded, start, or are being deleted.
_FINE: Final = re.compile(
    r"|Running|Succeeded|Completed|Pending|ContainerCreating|PodInitializing|Terminating"
    r"|Init:\d+/\d+"
)


def pod_trouble(pod: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a pod in one line, or None if it is fine.

    The line starts with the status that kubectl shows. The reason follows::

        CrashLoopBackOff: container main ended with OOMKilled, exit code 137
        ImagePullBackOff: container main: Back-off pulling image "web:2"
        Pending: Unschedulable: 0/3 nodes are available: 3 Insufficient cpu.
        Evicted: The node was low on resource: memory.
        Completed: DeadlineExceeded: Pod was active longer than the deadline

    A pod that is starting or being deleted is fine, and so is one that runs without
    being ready: see `is_ready`.

    Args:
        pod: The pod, as a `KubeObject` or a dict.
    """
    body = dict(pod)
    status = mapping(body, "status")
    conditions = maps(status, "conditions")
    state = pod_state(body)
    scheduled = find_status_condition(conditions, "PodScheduled")
    if state.status == "Pending" and text(scheduled, "reason") == "Unschedulable":
        return _line("Pending: Unschedulable", text(scheduled, "message"))

    if _FINE.fullmatch(state.status):
        if text(status, "phase") != "Failed":
            return None

        # For example after its deadline, with containers that ended with exit code 0.
        reason = text(status, "reason") or "the pod failed"
        return _line(state.status, reason, text(status, "message"))

    if state.cause is not None:
        return _line(state.status, _container_reason(state.cause))

    if state.status == "SchedulingGated":
        return _line(state.status, text(scheduled, "message"))

    ready = find_status_condition(conditions, "Ready")
    reason = text(ready, "message") if state.status == "NotReady" else ""
    return _line(state.status, reason or text(status, "message"))


def _container_reason(container: Mapping[str, Any]) -> str:
    """Return why a container does not run: its last end, or what it waits for."""
    named = f"container {text(container, 'name')}"
    now, before = mapping(container, "state"), mapping(container, "lastState")
    ended = mapping(now, "terminated")
    if ended:
        signal = number(ended, "signal")
        end = f"signal {signal}" if signal else f"exit code {number(ended, 'exitCode')}"
        return f"{named} ended with {end}"

    last = mapping(before, "terminated")
    if last:
        return (
            f"{named} ended with {_end_of(last)}, exit code {number(last, 'exitCode')}"
        )

    message = text(now, "waiting", "message")
    return f"{named}: {message}" if message else named


def _line(*parts: str) -> str:
    return " ".join(": ".join(it for it in parts if it).split())


def _sidecars(spec: object) -> set[str]:
    """Return the names of init containers that keep running beside the others."""
    return {
        text(container, "name")
        for container in maps(spec, "initContainers")
        if text(container, "restartPolicy") == "Always"
    }


def _initialized(
    spec: object, status: object, sidecars: set[str]
) -> tuple[PodState, bool]:
    """Read the init containers; the second result is True if one blocks the pod."""
    pod = PodState(_phase(status), Restarts())
    count = len(maps(spec, "initContainers"))
    for position, container in enumerate(maps(status, "initContainerStatuses")):
        pod.restarts.add(container)
        is_sidecar = text(container, "name") in sidecars
        if is_sidecar and _has_started(container):
            pod.ready += at(container, "ready") is True
        elif not _has_succeeded(container):
            pod.status = _blocking_reason(container) or f"Init:{position}/{count}"
            pod.cause = container
            return pod, True

    return pod, False


def _phase(status: object) -> str:
    gated = any(
        text(it, "type") == "PodScheduled" and text(it, "reason") == "SchedulingGated"
        for it in maps(status, "conditions")
    )
    if gated:
        return "SchedulingGated"

    return text(status, "reason") or text(status, "phase")


def _has_started(container: object) -> bool:
    return at(container, "started") is True and not _has_succeeded(container)


def _has_succeeded(container: object) -> bool:
    ended = at(container, "state", "terminated")
    return isinstance(ended, dict) and not number(ended, "exitCode")


def _blocking_reason(container: object) -> str:
    """Return the reason why an init container blocks the pod; empty if it just runs."""
    ended = at(container, "state", "terminated")
    if isinstance(ended, dict):
        return f"Init:{_end_of(ended)}"

    waiting = text(container, "state", "waiting", "reason")
    return f"Init:{waiting}" if waiting not in {"", "PodInitializing"} else ""


def _end_of(ended: object) -> str:
    reason, signal = text(ended, "reason"), number(ended, "signal")
    if reason:
        return reason

    return f"Signal:{signal}" if signal else f"ExitCode:{number(ended, 'exitCode')}"


def _add_containers(pod: PodState, status: object, sidecars: set[str]) -> None:
    """Add the other containers. The first container's reason takes precedence."""
    # Init containers that have ended no longer count as restarts of the pod.
    pod.restarts = Restarts()
    for container in maps(status, "initContainerStatuses"):
        if text(container, "name") in sidecars:
            pod.restarts.add(container)

    is_running = False
    for container in reversed(maps(status, "containerStatuses")):
        pod.restarts.add(container)
        ended = at(container, "state", "terminated")
        waiting = text(container, "state", "waiting", "reason")
        if waiting:
            pod.status, pod.cause = waiting, container
        elif isinstance(ended, dict):
            pod.status, pod.cause = _end_of(ended), container
        elif at(container, "ready") is True and _runs(container):
            is_running = True
            pod.ready += 1

    if pod.status == "Completed" and is_running:
        is_ready = is_true(maps(status, "conditions"), "Ready")
        pod.status, pod.cause = "Running" if is_ready else "NotReady", None


def _runs(container: object) -> bool:
    return isinstance(at(container, "state", "running"), dict)


def _status_while_deleted(body: object, reason: str) -> str:
    """Return `Terminating` for a pod that is being deleted and has not ended."""
    if not text(body, "metadata", "deletionTimestamp"):
        return reason

    if text(body, "status", "reason") == "NodeLost":
        return "Unknown"

    return reason if text(body, "status", "phase") in FINISHED_PHASES else "Terminating"
