"""A controller on several replicas: each Site, and all work on it, belongs to one of them.

Run:   kubectl apply -f examples/site-crd.yaml -f examples/site.yaml
       PORT=8081 python examples/sharded_controller.py    (in several terminals: other ports)
       aioinformer shards status                          (who owns what)
       curl localhost:8081/readyz                         (whether it does its part)
Start and stop replicas, also by kill -9: their Sites move to others.

Without a cluster, set KUBECONFIG=/tmp/kube everywhere, and start the test server in examples/:
       aioinformer apiserver --kubeconfig /tmp/kube --load site-crd.yaml --load site.yaml
"""

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
    Manager,
    Resource,
    Shards,
    with_object,
)
from aioinformer.model.resources import DEPLOYMENTS

NAME = "sites"
SITES = Resource("example.com", "v1", "sites", "Site")
log = logging.getLogger(NAME)


def deployment_of(site: KubeObject) -> dict[str, Any]:
    labels = {"site": site.name}
    container = {"name": "web", "image": site.at("spec.image")}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": site.at("spec.replicas"), "template": template}
    spec["selector"] = {"matchLabels": labels}
    return {"metadata": {"name": site.name}, "spec": spec}


@with_object(KubeObject)
async def reconcile(site: KubeObject, ctx: Context) -> None:
    # A write of a replica that has lost the Site raises LeadershipLost.
    deployment = await ctx.apply(deployment_of(site), resource=DEPLOYMENTS)
    ctx.set_status(ready=deployment.at("status.availableReplicas", 0))
    log.info("reconciled %s", site.key)


def make_manager(client: Client) -> Manager:
    shards = Shards(NAME, client)
    manager = Manager(client)
    sites = manager.informer(SITES)  # holds the Sites of this replica
    deployments = manager.informer(DEPLOYMENTS, label_selector="site")  # holds all
    manager.add(
        Controller(NAME, reconcile, for_=sites, owns=[deployments], shards=shards)
    )
    return manager


async def main() -> None:
    manager = make_manager(Client.from_env())
    manager.serve(port=int(os.environ.get("PORT", "8080")))
    await manager.run(handle_signals=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    try:
        asyncio.run(main())
    except (AioInformerError, OSError) as exc:
        sys.exit(str(exc))
