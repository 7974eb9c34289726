"""A program with a dashboard: informers and controllers of a shop that keeps changing."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from aiohttp import web
from web_hosts import by_aiohttp

from aioinformer import Conflict, Controller, Manager, Result
from aioinformer.model.resources import (
    DEPLOYMENTS,
    EVENTS,
    NODES,
    PODS,
    REPLICA_SETS,
    SECRETS,
)
from aioinformer.model.times import kube_time
from aioinformer.testing import APIServer
from aioinformer.web.aiohttp import dashboard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from aioinformer import ReconcileRequest, Resource
    from aioinformer.controller import Context

__all__ = ["CRASHING", "Shop", "shop"]

APPS = ("cart", "checkout", "mailer", "search", "web")
REPLICAS = 12
CRASHING = "mailer-5d8c-2q7xk"
"""Name of a pod that restarts again and again, and of which there are events."""

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class Shop:
    """API server, manager and dashboard of a shop.

    Attributes:
        url: Address of the page.
        server: API server.
        manager: Manager of the controllers.
    """

    def __init__(self, server: APIServer) -> None:
        self.url = ""
        self.server = server
        self.manager = Manager(server.client())
        self._rng = random.Random(28)
        self._crashes = 4
        for name in APPS:
            self._add_app(name)

        for number in range(6):
            self._create(NODES, f"node-{number}", days=40)

        self._create(SECRETS, "tls", data={"tls.key": "aHVudGVyMg=="}, days=3)
        for resource in (PODS, DEPLOYMENTS, REPLICA_SETS, NODES, EVENTS, SECRETS):
            self.manager.informer(resource)

        deployments = self.manager.informer(DEPLOYMENTS)
        pods = self.manager.informer(PODS)
        rollouts = Controller("rollouts", self._roll_out, for_=deployments, owns=())
        probes = Controller("probes", self._probe, for_=pods)
        for controller in (rollouts, probes):
            self.manager.add(controller)

    def change(self, name: str = "") -> None:
        """Change a pod: that of a name, or any."""
        names = [it["metadata"]["name"] for it in self.server.objects(PODS)]
        chosen = name or self._rng.choice([it for it in names if it != CRASHING])
        restarts = self._rng.randint(0, 3)
        self.server.patch(
            PODS,
            chosen,
            {
                "metadata": {"annotations": {"shop.example/load": f"{restarts}0 %"}},
                "status": _status(ready=restarts != 1, restarts=restarts),
            },
            namespace="shop",
        )

    def crash(self) -> None:
        """Let the crashing pod restart once more, with an event."""
        self._crashes += 1
        status = _status(ready=False, restarts=self._crashes, crashing=True)
        self.server.patch(PODS, CRASHING, {"status": status}, namespace="shop")

    async def keep_changing(self, each: float = 0.05) -> None:
        """Change pods until cancelled."""
        for number in range(10**9):
            self.change()
            if number % 40 == 0:
                self.crash()

            await asyncio.sleep(each)

    # ------------------------------------------------------------ controllers

    async def _roll_out(self, request: ReconcileRequest, ctx: Context) -> Result | None:
        await asyncio.sleep(self._rng.uniform(0.001, 0.02))
        return Result(requeue_after=30 + self._rng.random() * 30)

    async def _probe(self, request: ReconcileRequest, ctx: Context) -> Result | None:
        await asyncio.sleep(self._rng.uniform(0.001, 0.01))
        if request.name == CRASHING:
            raise Conflict(
                f'Operation cannot be fulfilled on pods "{CRASHING}": the object has '
                "been modified",
                status=409,
            )

        return None

    # ------------------------------------------------------------ objects

    def _add_app(self, name: str) -> None:
        deployment = self._create(
            DEPLOYMENTS,
            name,
            spec=_template(name) | {"replicas": REPLICAS},
            status={"replicas": REPLICAS, "readyReplicas": REPLICAS - 1},
            days=40,
        )
        replica_set = self._create(
            REPLICA_SETS,
            f"{name}-5d8c",
            owner=deployment,
            spec=_template(name) | {"replicas": REPLICAS},
            status={"replicas": REPLICAS},
            days=3,
        )
        for pod in self._pod_names(name):
            crashing = pod == CRASHING
            created = self._create(
                PODS,
                pod,
                owner=replica_set,
                labels={"app": name},
                spec={"nodeName": f"node-{self._rng.randrange(6)}", **_containers()},
                status=_status(ready=not crashing, restarts=4 * crashing),
                days=self._rng.random() * 3,
            )
            if crashing:
                self._create_event(created)

    def _pod_names(self, app: str) -> Iterator[str]:
        for number in range(REPLICAS):
            ending = "".join(self._rng.choices(_LETTERS, k=5))
            crashing = app == CRASHING.partition("-")[0] and not number
            yield CRASHING if crashing else f"{app}-5d8c-{ending}"

    def _create_event(self, pod: dict[str, Any]) -> None:
        about = {it: pod["metadata"][it] for it in ("name", "namespace", "uid")}
        self.server.create(
            EVENTS,
            {
                "metadata": {"name": f"{CRASHING}.1", "namespace": "shop"},
                "involvedObject": {"kind": "Pod", "apiVersion": "v1", **about},
                "type": "Warning",
                "reason": "BackOff",
                "message": "Back-off restarting failed container main",
                "count": 7,
                "lastTimestamp": kube_time(datetime.now(UTC)),
                "source": {"component": "kubelet"},
            },
        )

    def _create(
        self,
        resource: Resource,
        name: str,
        *,
        owner: dict[str, Any] | None = None,
        labels: dict[str, str] | None = None,
        days: float = 0.0,
        **fields: Any,
    ) -> dict[str, Any]:
        born = datetime.now(UTC) - timedelta(days=days)
        metadata: dict[str, Any] = {
            "name": name,
            "labels": labels or {},
            "creationTimestamp": kube_time(born),
        }
        if resource.namespaced:
            metadata["namespace"] = "shop"

        if owner is not None:
            metadata["ownerReferences"] = [
                {
                    "apiVersion": owner["apiVersion"],
                    "kind": owner["kind"],
                    "name": owner["metadata"]["name"],
                    "uid": owner["metadata"]["uid"],
                    "controller": True,
                }
            ]

        return self.server.create(resource, {"metadata": metadata, **fields})


@asynccontextmanager
async def shop(*, actions: bool = False) -> AsyncIterator[Shop]:
    """Run a shop whose caches are synced, and serve its dashboard.

    Args:
        actions: True to let the page requeue and forget requests.
    """
    async with APIServer(auto_namespaces=True) as server:
        shown = Shop(server)
        page = dashboard(manager=shown.manager, title="shop-operator", actions=actions)
        app = web.Application()
        app.add_subapp("/debug", page)
        async with by_aiohttp(app) as url, shown.manager:
            shown.url = f"{url}/debug/"
            await shown.manager.wait_for_cache_sync(timeout=30)
            yield shown


def _template(name: str) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": _containers()},
    }


def _containers() -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": "registry.example/shop:1.8"}]}


def _status(*, ready: bool, restarts: int, crashing: bool = False) -> dict[str, Any]:
    state: dict[str, Any] = {"running": {}}
    if crashing:
        state = {"waiting": {"reason": "CrashLoopBackOff"}}

    container = {
        "name": "main",
        "image": "registry.example/shop:1.8",
        "imageID": "",
        "ready": ready,
        "restartCount": restarts,
        "state": state,
    }
    condition = {"type": "Ready", "status": str(ready)}
    return {
        "phase": "Running",
        "conditions": [condition],
        "containerStatuses": [container],
    }
