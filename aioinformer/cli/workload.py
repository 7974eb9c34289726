"""`Workload`: apps and their pods on an API server, which keep changing."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from aioinformer.errors import ApiError, NotFound
from aioinformer.model.resources import CONFIG_MAPS, NODES, PODS
from aioinformer.model.times import kube_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer.testing import APIServer

__all__ = ["NAMESPACES", "Workload", "objects_for"]

NAMESPACES = ("billing", "media", "search", "shop")

# One config map and five pods for each app.
OBJECTS_PER_APP = 6

# At least one node.
PODS_PER_NODE = 10

# Age of the nodes, and maximum age of the initial pods.
OLDEST = timedelta(days=30)

# Phases, with their weights.
PHASES = {"Running": 18, "Pending": 1, "Failed": 1}

# Probability that a changed pod has restarted.
RESTARTING = 0.05

# Interval between bundles of changes. Shorter than a frame.
TICK_SECONDS = 0.02

# Maximum number of changes at once. If the machine is too slow, the others are dropped.
BUNDLE = 200

# State of a container, by the phase of its pod.
_STATES: dict[str, dict[str, Any]] = {
    "Pending": {"waiting": {"reason": "ContainerCreating"}},
    "Running": {"running": {}},
    "Failed": {"terminated": {"exitCode": 1, "reason": "Error"}},
}
_KUBELET = "v1.36.0"

# Maximum relative change of the number of pods.
SWING = 0.1


def objects_for(*, pods: int) -> int:
    """Return the number of objects of a workload with this many pods.

    Example:
        >>> objects_for(pods=300)
        360
    """
    return pods + max(1, pods // (OBJECTS_PER_APP - 1))


class Workload:
    """Apps on a server: a config map for each, and pods that keep changing.

    The pods are on nodes, which do not change.

    Args:
        server: API server with the `NAMESPACES`, or one that creates them by itself.
        objects: Initial number of objects besides the nodes.
        changes_per_second: Changes per second, 0 for none.
        seed: Seed of the random numbers.
    """

    def __init__(
        self,
        server: APIServer,
        *,
        objects: int,
        changes_per_second: float,
        seed: int = 1,
    ) -> None:
        self._server = server
        self._rate = changes_per_second
        self._rng = random.Random(seed)
        app_count = max(1, objects // OBJECTS_PER_APP)
        self._apps = [
            (NAMESPACES[number % len(NAMESPACES)], f"app-{number:03}")
            for number in range(app_count)
        ]
        self._target = objects - app_count
        self._nodes = [
            f"node-{number + 1}"
            for number in range(max(1, self._target // PODS_PER_NODE))
        ]
        self._pods: list[tuple[str, str]] = []
        self._restarts: dict[tuple[str, str], int] = {}
        self._made = 0

        self.changes: int = 0
        """Changes made so far, without the initial objects."""

    def populate(self) -> None:
        """Create the initial objects."""
        for _ in self.creating():
            pass

    def creating(self) -> Iterator[None]:
        """Create the initial objects, and yield after each."""
        for number, name in enumerate(self._nodes):
            self._server.create(NODES, _node(name, number))
            yield

        for namespace, app in self._apps:
            body = {"metadata": {"name": app}, "data": {"colour": "green"}}
            self._server.create(CONFIG_MAPS, body, namespace=namespace)
            yield

        for _ in range(self._target):
            # Most pods are young, as old ones have been replaced.
            self._create_pod(age=OLDEST * self._rng.random() ** 3)
            yield

    async def run(self) -> None:
        """Make changes at the given rate, until cancelled.

        Cancellation:
            Stops it.
        """
        loop = asyncio.get_running_loop()
        last, due = loop.time(), 0.0
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = loop.time()
            due = min(due + self._rate * (now - last), BUNDLE)
            last = now
            while due >= 1:
                self.change()
                due -= 1

    def change(self) -> None:
        """Create, change or delete a pod, or change an app.

        Refused changes are ignored: a user may have deleted the object or its
        namespace, or taken its name.
        """
        try:
            self._make_change()
        except ApiError:
            return

        self.changes += 1

    def _make_change(self) -> None:
        swing = max(1, round(self._target * SWING))
        number = self._rng.random()
        if len(self._pods) <= self._target - swing:
            self._create_pod()
        elif len(self._pods) >= self._target + swing:
            self._delete_pod()
        elif number < 0.15:
            self._create_pod()
        elif number < 0.30:
            self._delete_pod()
        elif number < 0.90:
            self._change_pod()
        else:
            self._change_app()

    def _create_pod(self, *, age: timedelta | None = None) -> None:
        namespace, app = self._rng.choice(self._apps)
        self._made += 1
        name = f"{app}-{self._made:05}"
        body = _pod(name, app, self._rng.choice(self._nodes))
        restarts = 0
        if age is not None:
            # A fifth of the pods restarts every other day, the others never.
            often = self._rng.random() < 0.2
            restarts = self._rng.randrange(age.days // 2 + 1) if often else 0
            body["metadata"]["creationTimestamp"] = _before(age)
            body["status"] = _status(app, self._phase(), restarts=restarts)

        self._server.create(PODS, body, namespace=namespace)
        self._pods.append((namespace, name))
        self._restarts[namespace, name] = restarts

    def _phase(self) -> str:
        return self._rng.choices(list(PHASES), list(PHASES.values()))[0]

    def _delete_pod(self) -> None:
        namespace, name = self._forget(self._rng.randrange(len(self._pods)))
        self._server.delete(PODS, name, namespace=namespace)

    def _forget(self, number: int) -> tuple[str, str]:
        self._pods[number], self._pods[-1] = self._pods[-1], self._pods[number]
        pod = self._pods.pop()
        del self._restarts[pod]
        return pod

    def _change_pod(self) -> None:
        number = self._rng.randrange(len(self._pods))
        namespace, name = self._pods[number]
        self._restarts[namespace, name] += self._rng.random() < RESTARTING
        restarts = self._restarts[namespace, name]
        patch = {
            # Otherwise a pod with the same status would not have changed.
            "metadata": {"annotations": {"example.com/change": str(self.changes)}},
            "status": _status(_app_of(name), self._phase(), restarts=restarts),
        }
        try:
            self._server.patch(PODS, name, patch, namespace=namespace)
        except NotFound:
            self._forget(number)
            raise

    def _change_app(self) -> None:
        namespace, app = self._rng.choice(self._apps)
        colour = self._rng.choice(("green", "blue", "red"))
        patch = {"data": {"colour": colour}}
        self._server.patch(CONFIG_MAPS, app, patch, namespace=namespace)


def _before(age: timedelta) -> str:
    return kube_time(datetime.now(UTC) - age)


def _node(name: str, number: int) -> dict[str, Any]:
    address = f"10.0.{number // 250}.{number % 250 + 1}"
    return {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name},
            "creationTimestamp": _before(OLDEST),
        },
        "spec": {},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": _KUBELET},
        },
    }


def _pod(name: str, app: str, node: str) -> dict[str, Any]:
    container = {"name": "main", "image": _image(app)}
    return {
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"containers": [container], "nodeName": node},
        "status": _status(app, "Pending", restarts=0),
    }


def _app_of(pod: str) -> str:
    return pod.rpartition("-")[0]


def _image(app: str) -> str:
    return f"example.com/{app}:1"


def _status(app: str, phase: str, *, restarts: int) -> dict[str, Any]:
    """Return the status from a kubelet, with the fields that tables show."""
    ready = phase == "Running"
    container = {
        "name": "main",
        "image": _image(app),
        "ready": ready,
        "restartCount": restarts,
        "state": _STATES[phase],
    }
    return {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "containerStatuses": [container],
    }
