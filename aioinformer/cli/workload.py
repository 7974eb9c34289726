"""Something to watch: apps and their pods on an API server, always changing."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from aioinformer.errors import ApiError, NotFound
from aioinformer.model.resources import CONFIG_MAPS, NODES, PODS
from aioinformer.model.times import kube_time

if TYPE_CHECKING:
    from aioinformer.testing import APIServer

__all__ = ["NAMESPACES", "Workload", "objects_for"]

NAMESPACES = ("billing", "media", "search", "shop")

# Of the objects one in six is the config map of an app, the others are its pods.
OBJECTS_PER_APP = 6

# A node for so many pods; there is one at least.
PODS_PER_NODE = 10

# Nothing that is there in the beginning is older, and nodes are as old as that.
OLDEST = timedelta(days=30)

# Of all phases, how common each is.
PHASES = {"Running": 18, "Pending": 1, "Failed": 1}

# How often a pod that changes has been restarted.
RESTARTING = 0.05

# Changes come in bundles at this distance: finer than a screen can show.
TICK_SECONDS = 0.02

# At most so many in one bundle: what a slow machine does not manage is left out, and
# not made up for later.
BUNDLE = 200

# What a container is doing, in each phase of its pod.
_STATES: dict[str, dict[str, Any]] = {
    "Pending": {"waiting": {"reason": "ContainerCreating"}},
    "Running": {"running": {}},
    "Failed": {"terminated": {"exitCode": 1, "reason": "Error"}},
}
_KUBELET = "v1.36.0"

# The number of pods stays within this part of what it was in the beginning.
SWING = 0.1


def objects_for(*, pods: int) -> int:
    """Return how many objects a workload needs so that `pods` of them are pods.

    Example:
        >>> objects_for(pods=300)
        360
    """
    return pods + max(1, pods // (OBJECTS_PER_APP - 1))


class Workload:
    """Apps on a server: a config map for each, and pods that come, change and go.

    The pods are on nodes, which stay as they are.

    Args:
        server: Where; the `NAMESPACES` are there, or it creates them by itself.
        objects: How many objects there are in the beginning, besides the nodes.
        changes_per_second: How many of them change; 0 for none.
        seed: Of all randomness.
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

        self.changes = 0
        """Changes made so far, without the objects of the beginning."""

    def populate(self) -> None:
        """Create the objects of the beginning."""
        for number, name in enumerate(self._nodes):
            self._server.create(NODES, _node(name, number))

        for namespace, app in self._apps:
            body = {"metadata": {"name": app}, "data": {"colour": "green"}}
            self._server.create(CONFIG_MAPS, body, namespace=namespace)

        for _ in range(self._target):
            # Most are young: what is old has been replaced by now.
            self._create_pod(age=OLDEST * self._rng.random() ** 3)

    async def run(self) -> None:
        """Change things at the rate that was asked for, until cancelled.

        Cancellation:
            The way to stop it.
        """
        loop = asyncio.get_running_loop()
        last, owed = loop.time(), 0.0
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = loop.time()
            owed = min(owed + self._rate * (now - last), BUNDLE)
            last = now
            while owed >= 1:
                self.change()
                owed -= 1

    def change(self) -> None:
        """Make one change: a pod is created, changed or deleted, or an app is.

        What cannot be changed is left as it is: somebody else may have deleted it,
        taken its name, or deleted its namespace.
        """
        try:
            self._make_change()
        except ApiError:
            return

        self.changes += 1

    def _make_change(self) -> None:
        swing = max(1, round(self._target * SWING))
        dice = self._rng.random()
        if len(self._pods) <= self._target - swing:
            self._create_pod()
        elif len(self._pods) >= self._target + swing:
            self._delete_pod()
        elif dice < 0.15:
            self._create_pod()
        elif dice < 0.30:
            self._delete_pod()
        elif dice < 0.90:
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
            # Some have been restarted every other day, and most of them never.
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
        gone = self._pods.pop()
        del self._restarts[gone]
        return gone

    def _change_pod(self) -> None:
        number = self._rng.randrange(len(self._pods))
        namespace, name = self._pods[number]
        self._restarts[namespace, name] += self._rng.random() < RESTARTING
        restarts = self._restarts[namespace, name]
        patch = {
            # Else a pod that goes on as it was would not have changed.
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
    """What a kubelet would report, as far as tables show it."""
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
