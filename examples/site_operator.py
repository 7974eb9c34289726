"""An operator: each Site has a Deployment, a record elsewhere, and a status.

Run:   kubectl apply -f examples/site.yaml          (the definition, and a site to try)
       python examples/site_operator.py             (the cluster of your kubeconfig)

Start it twice: one of them leads, and the other takes over when it ends. Then change the
site (`kubectl edit site blog`), its deployment, or delete them. Ctrl-C and SIGTERM end it:
reconciles under way are finished, and the lease is released.
"""

import asyncio
import sys
from typing import Any

from aioinformer import Client, Controller, KubeObject, LeaderElector, Manager, Resource
from aioinformer.controller import Context, LeaseLock, generation_changed, with_object
from aioinformer.errors import AioInformerError
from aioinformer.model.resources import DEPLOYMENTS

SITES = Resource("example.com", "v1", "sites", "Site")
FINALIZER = "example.com/record"


def deployment_of(site: KubeObject) -> dict[str, Any]:
    owner = {"apiVersion": SITES.api_version, "kind": SITES.kind, "controller": True}
    labels = {"site": site.name}
    container = {"name": "web", "image": site.at("spec.image")}
    return {
        "metadata": {
            "name": site.name,
            "ownerReferences": [owner | {"name": site.name, "uid": site.uid}],
        },
        "spec": {
            "replicas": site.at("spec.replicas", 1),
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container]},
            },
        },
    }


@with_object(KubeObject)
async def reconcile(site: KubeObject, ctx: Context) -> None:
    async def finalized_by(names: list[str]) -> None:
        # With the version it was read in, so that nobody else's finalizer is lost.
        metadata = {"resourceVersion": site.resource_version, "finalizers": names}
        await ctx.client.patch(SITES, site.name, {"metadata": metadata}, **place)

    place: Any = {"namespace": site.namespace}
    if site.deletion_timestamp is not None:
        if FINALIZER in site.finalizers:
            print(f"{site.key}: record removed", flush=True)  # no cluster does that
            await finalized_by([it for it in site.finalizers if it != FINALIZER])

        return

    if FINALIZER not in site.finalizers:
        await finalized_by([*site.finalizers, FINALIZER])  # before there is a record
        print(f"{site.key}: record made", flush=True)

    applied: Any = {"type": "apply", "field_manager": "site-operator", "force": True}
    deployment = await ctx.client.patch(
        DEPLOYMENTS, site.name, deployment_of(site), **place, **applied
    )
    ready = deployment.at("status.readyReplicas", 0)
    status = {"ready": ready, "observedGeneration": site.generation}
    if site.at("status") != status:
        await ctx.client.patch_status(SITES, site.name, {"status": status}, **place)
        print(f"{site.key}: {ready} ready", flush=True)


async def main(client: Client) -> None:
    elector = LeaderElector(LeaseLock(client, "site-operator"))
    async with Manager(client, elector=elector) as manager:
        sites, deployments = manager.informer(SITES), manager.informer(DEPLOYMENTS)
        changed = [generation_changed]  # not the status, which we write ourselves
        manager.add(
            Controller(
                "sites", reconcile, for_=sites, owns=[deployments], predicates=changed
            )
        )
        await manager.run(handle_signals=True)


if __name__ == "__main__":
    try:
        asyncio.run(main(Client.from_env()))
    except AioInformerError as exc:
        sys.exit(str(exc))
