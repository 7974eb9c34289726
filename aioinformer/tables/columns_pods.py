"""The tables of pods, and of what pods are made from.

The status of a pod is no field: it is told from the phase, from what holds the init
containers up, and from the last state of the others, the first container weighing most.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aioinformer.model import resources
from aioinformer.tables.cells import (
    NONE,
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
    since,
    text,
)
from aioinformer.tables.columns import AGE, NAME, Layout, texts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.model.resource import Resource

__all__ = ["POD_LAYOUTS"]

_NEVER = datetime.min.replace(tzinfo=UTC)

# Pods that have ended will not run again, so clients may leave them out.
_OVER = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}


@dataclass(slots=True)
class _Restarts:
    """How often containers began anew, and when the last of them ended."""

    count: int = 0
    last: str = ""
    at: datetime = _NEVER

    def add(self, status: object) -> None:
        """Count those of one more container."""
        self.count += number(status, "restartCount")
        ended = at(status, "lastState", "terminated", "finishedAt")
        when = moment(ended)
        if when is not None and when > self.at:
            self.last, self.at = ended, when

    def told(self, now: datetime) -> str:
        """Tell them, with the time of the last one if it is known."""
        if not self.count or not self.last:
            return str(self.count)

        return f"{self.count} ({since(self.last, now)} ago)"


@dataclass(slots=True)
class _Account:
    """What is told of a pod, as far as its containers have been looked at."""

    reason: str
    restarts: _Restarts
    ready: int = 0


def _pod_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    spec, status = mapping(body, "spec"), mapping(body, "status")
    sidecars = _sidecars(spec)
    account, held_up = _initialized(spec, status, sidecars)
    if not held_up or is_true(maps(status, "conditions"), "Initialized"):
        _add_containers(account, status, sidecars)

    total = len(maps(spec, "containers")) + len(sidecars)
    return [
        name(body),
        f"{account.ready}/{total}",
        _at_end(body, account.reason),
        account.restarts.told(now),
        age(body, now),
        _address(status),
        text(spec, "nodeName") or NONE,
        text(status, "nominatedNodeName") or NONE,
        _readiness_gates(spec, status),
    ]


def _sidecars(spec: object) -> set[str]:
    """Name the init containers that go on running beside the others."""
    return {
        text(container, "name")
        for container in maps(spec, "initContainers")
        if text(container, "restartPolicy") == "Always"
    }


def _initialized(
    spec: object, status: object, sidecars: set[str]
) -> tuple[_Account, bool]:
    """Look at the init containers; true if one of them holds the pod up."""
    account = _Account(_phase(status), _Restarts())
    count = len(maps(spec, "initContainers"))
    for position, container in enumerate(maps(status, "initContainerStatuses")):
        account.restarts.add(container)
        is_sidecar = text(container, "name") in sidecars
        if is_sidecar and _has_started(container):
            account.ready += at(container, "ready") is True
        elif not _has_succeeded(container):
            account.reason = _hold_up(container) or f"Init:{position}/{count}"
            return account, True

    return account, False


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


def _hold_up(container: object) -> str:
    """Tell why an init container holds the pod up; empty if it just runs."""
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


def _add_containers(account: _Account, status: object, sidecars: set[str]) -> None:
    """Look at the other containers: of their reasons the first one's counts."""
    # Init containers that are over do not count as restarts of the pod any more.
    account.restarts = _Restarts()
    for container in maps(status, "initContainerStatuses"):
        if text(container, "name") in sidecars:
            account.restarts.add(container)

    is_running = False
    for container in reversed(maps(status, "containerStatuses")):
        account.restarts.add(container)
        ended = at(container, "state", "terminated")
        waiting = text(container, "state", "waiting", "reason")
        if waiting:
            account.reason = waiting
        elif isinstance(ended, dict):
            account.reason = _end_of(ended)
        elif at(container, "ready") is True and _runs(container):
            is_running = True
            account.ready += 1

    if account.reason == "Completed" and is_running:
        is_ready = is_true(maps(status, "conditions"), "Ready")
        account.reason = "Running" if is_ready else "NotReady"


def _runs(container: object) -> bool:
    return isinstance(at(container, "state", "running"), dict)


def _at_end(body: object, reason: str) -> str:
    """Tell of a pod that is being deleted that it is, unless it is over anyway."""
    if not text(body, "metadata", "deletionTimestamp"):
        return reason

    if text(body, "status", "reason") == "NodeLost":
        return "Unknown"

    return reason if text(body, "status", "phase") in _OVER else "Terminating"


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
    if phase not in _OVER:
        return []

    return [
        {
            "type": "Completed",
            "status": "True",
            "reason": phase,
            "message": _OVER[phase],
        }
    ]


def _pod_template_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    del now
    containers = maps(body, "template", "spec", "containers")
    labels = mapping(body, "template", "metadata", "labels")
    return [name(body), names(containers), images(containers), labels_text(labels)]


POD_LAYOUTS: dict[Resource, Layout] = {
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
}
