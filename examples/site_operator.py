"""An operator: each Site gets a Deployment, an external record, a status and events.

Run:   kubectl apply -f examples/site-crd.yaml
       kubectl apply -f examples/site.yaml          (a sample)
       python examples/site_operator.py             (the cluster of your kubeconfig)

Start it twice, with PORT=8081 for the second: one replica leads, and the other takes over
when it ends. Sites can only be deleted while it runs. It serves /livez, /readyz and
/metrics on the port. Requires aioinformer[metrics].
"""

import asyncio
import logging
import os
import sys
from functools import partial
from typing import Any

from aioinformer import (
    Client,
    Controller,
    EventRecorder,
    KubeObject,
    LeaderElector,
    Manager,
    Resource,
    SharedInformerFactory,
    is_ready,
)
from aioinformer.controller import (
    Context,
    LeaseLock,
    finalizer,
    generation_changed,
    set_status_condition,
    with_object,
)
from aioinformer.errors import AioInformerError
from aioinformer.metrics_prometheus import PrometheusSink
from aioinformer.model.resources import DEPLOYMENTS
from aioinformer.web.aiohttp import health_routes, metrics_routes, serve

NAME = "site-operator"
PORT = int(os.environ.get("PORT", "8080"))
SITES = Resource("example.com", "v1", "sites", "Site")
measured = PrometheusSink()
records: set[str] = set()  # stands for a system outside the cluster, such as DNS


def deployment_of(site: KubeObject) -> dict[str, Any]:
    owner = {**site.type_meta, "name": site.name, "uid": site.uid, "controller": True}
    labels = {"site": site.name}
    container = {"name": "web", "image": site.at("spec.image")}
    return {
        "metadata": {"name": site.name, "ownerReferences": [owner]},
        "spec": {
            "replicas": site.at("spec.replicas"),
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container]},
            },
        },
    }


def status_of(site: KubeObject, deployment: KubeObject) -> dict[str, Any]:
    counts = (
        deployment.at(f"status.{it}Replicas", 0) for it in ("updated", "available")
    )
    ready = min(counts)  # replicas of an old image do not count
    seen = deployment.at("status.observedGeneration", 0) == deployment.generation
    done = seen and ready >= site.at("spec.replicas")
    conditions = set_status_condition(
        site.at("status.conditions"),
        "Ready",
        done,
        reason="Deployed" if done else "Deploying",
        observed_generation=site.generation,
    )
    return {"ready": ready, "conditions": conditions}


@with_object(KubeObject)
async def remove_record(site: KubeObject, ctx: Context) -> None:
    records.discard(site.uid)  # may be missing: this may be called twice
    print(f"{site.key}: record removed", flush=True)


def make_manager(client: Client) -> Manager:
    recorder = EventRecorder(client, NAME)

    @finalizer(SITES, "example.com/record", cleanup=remove_record)
    @with_object(KubeObject)
    async def reconcile(site: KubeObject, ctx: Context) -> None:
        if site.uid not in records:
            records.add(site.uid)
            print(f"{site.key}: record created", flush=True)
        where, body = site.namespace, deployment_of(site)
        apply = partial(ctx.client.patch, type="apply", field_manager=NAME, force=True)
        deployment = await apply(DEPLOYMENTS, site.name, body, namespace=where)
        status = status_of(site, deployment)
        if site.at("status") == status:
            return
        new = await ctx.client.patch_status(
            SITES, site.name, {"status": status}, namespace=where
        )
        print(f"{site.key}: {status['ready']} ready", flush=True)
        if is_ready(new) != is_ready(site):
            reason = "Deployed" if is_ready(new) else "Deploying"
            recorder.event(
                site, "Normal", reason, f"{status['ready']} replicas are ready"
            )

    manager = Manager(
        client,
        factory=SharedInformerFactory(client, metrics=measured),
        elector=LeaderElector(LeaseLock(client, NAME), metrics=measured),
    )
    controller = Controller(
        "sites",
        reconcile,
        for_=manager.informer(SITES),
        owns=[manager.informer(DEPLOYMENTS)],
        predicates=[generation_changed],  # not the status, which this operator writes
        metrics=measured,
    )
    manager.add(controller)
    manager.add(recorder, leader_only=False)  # outlives the controllers
    return manager


async def main(client: Client) -> None:
    manager = make_manager(client)
    routes = health_routes(manager) + metrics_routes()
    manager.add(partial(serve, routes, port=PORT), leader_only=False, name="health")
    await manager.run(handle_signals=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    try:
        asyncio.run(main(Client.from_env(metrics=measured)))
    except (AioInformerError, OSError) as exc:
        sys.exit(str(exc))
