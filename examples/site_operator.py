"""An operator: each Site gets a Deployment, a Service, an external record, a status, events."""

import asyncio
import logging
import os
import sys
from typing import Any

from aioinformer import (
    AioInformerError,
    Client,
    Context,
    Controller,
    KubeObject,
    LeaderElector,
    LeaseLock,
    Manager,
    Resource,
    finalizer,
    rolled_out,
    with_object,
)
from aioinformer.model.resources import DEPLOYMENTS, SERVICES
from aioinformer.webhooks import Denied, WebhookServer, validating

NAME = "site-operator"
SITES = Resource("example.com", "v1", "sites", "Site")
records: set[str] = set()  # stands for a system outside the cluster, such as DNS


@validating(SITES)
def check_image(site: KubeObject) -> None:
    if not {":", "@"} & set(site.at("spec.image").rpartition("/")[2]):
        raise Denied("the image needs a tag or a digest", field="spec.image")


def deployment_of(site: KubeObject) -> dict[str, Any]:
    labels = {"site": site.name}
    container = {"name": "web", "image": site.at("spec.image")}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": site.at("spec.replicas"), "template": template}
    spec["selector"] = {"matchLabels": labels}
    return {"metadata": {"name": site.name}, "spec": spec}


def service_of(site: KubeObject) -> dict[str, Any]:
    spec = {"selector": {"site": site.name}, "ports": [{"port": 80}]}
    return {"metadata": {"name": site.name}, "spec": spec}


@with_object(KubeObject)
async def remove_record(site: KubeObject, ctx: Context) -> None:
    records.discard(site.uid)  # may be missing: this may be called twice


@finalizer(SITES, "example.com/record", cleanup=remove_record)
@with_object(KubeObject)
async def reconcile(site: KubeObject, ctx: Context) -> None:
    records.add(site.uid)
    deployment = await ctx.apply(deployment_of(site), resource=DEPLOYMENTS)
    await ctx.apply(service_of(site), resource=SERVICES)
    ready, done = deployment.at("status.availableReplicas", 0), rolled_out(deployment)
    reason = "Deployed" if done else "Deploying"
    ctx.set_status(ready=ready)
    if ctx.set_condition("Ready", done, reason=reason):
        ctx.event(site, "Normal", reason, f"{ready} replicas are available")


def make_manager(client: Client) -> Manager:
    manager = Manager(client, elector=LeaderElector(LeaseLock(client, NAME)))
    sites, *owned = map(manager.informer, (SITES, DEPLOYMENTS, SERVICES))
    manager.add(Controller(NAME, reconcile, for_=sites, owns=owned))
    return manager


async def main() -> None:
    manager = make_manager(Client.from_env())
    hooks = WebhookServer(check_image, cert_dir=os.environ.get("CERTS"))
    manager.add(hooks, leader_only=False)
    manager.serve(port=8080, checks={"webhooks": hooks.why_not_serving})
    await manager.run(handle_signals=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    try:
        asyncio.run(main())
    except (AioInformerError, OSError) as exc:
        sys.exit(str(exc))
