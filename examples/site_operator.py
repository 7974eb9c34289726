"""An operator: each Site gets a Deployment, an external record, and a status.

Run:   kubectl apply -f examples/site-crd.yaml
       kubectl apply -f examples/site.yaml          (a sample)
       python examples/site_operator.py             (the cluster of your kubeconfig)

Start it twice, with PORT=8081 for the second: one replica leads, and the other takes over
when it ends. Change the site (`kubectl edit site blog`) or its deployment. Sites can only
be deleted while it runs. It serves /livez, /readyz and /metrics on the port.
docs/deploying.md deploys it. Requires aioinformer[metrics].
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
    KubeObject,
    LeaderElector,
    Manager,
    Resource,
    SharedInformerFactory,
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

PORT = int(os.environ.get("PORT", "8080"))
SITES = Resource("example.com", "v1", "sites", "Site")
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


@with_object(KubeObject)
async def remove_record(site: KubeObject, ctx: Context) -> None:
    records.discard(site.uid)  # may be missing: this may be called twice
    print(f"{site.key}: record removed", flush=True)


@finalizer(SITES, "example.com/record", cleanup=remove_record)
@with_object(KubeObject)
async def reconcile(site: KubeObject, ctx: Context) -> None:
    if site.uid not in records:
        print(f"{site.key}: record created", flush=True)
        records.add(site.uid)
    deployment = await ctx.client.patch(
        DEPLOYMENTS,
        site.name,
        deployment_of(site),
        namespace=site.namespace,
        type="apply",
        field_manager="site-operator",
        force=True,
    )
    ready = deployment.at("status.readyReplicas", 0)
    done = ready >= site.at("spec.replicas")
    conditions = set_status_condition(
        site.at("status.conditions"),
        "Ready",
        done,
        reason="Deployed" if done else "Deploying",
        observed_generation=site.generation,
    )
    status = {"ready": ready, "conditions": conditions}
    if site.at("status") != status:
        await ctx.client.patch_status(
            SITES, site.name, {"status": status}, namespace=site.namespace
        )
        print(f"{site.key}: {ready} ready", flush=True)


async def main(client: Client) -> None:
    measured = PrometheusSink()
    manager = Manager(
        client,
        factory=SharedInformerFactory(client, metrics=measured),
        elector=LeaderElector(LeaseLock(client, "site-operator"), metrics=measured),
    )
    sites, deployments = manager.informer(SITES), manager.informer(DEPLOYMENTS)
    controller = Controller(
        "sites",
        reconcile,
        for_=sites,
        owns=[deployments],
        predicates=[generation_changed],  # not the status, which this operator writes
        metrics=measured,
    )
    manager.add(controller)
    routes = health_routes(manager) + metrics_routes()
    manager.add(partial(serve, routes, port=PORT), leader_only=False, name="health")
    await manager.run(handle_signals=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    try:
        asyncio.run(main(Client.from_env()))
    except (AioInformerError, OSError) as exc:
        sys.exit(str(exc))
