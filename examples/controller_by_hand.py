"""A controller made of an informer and a work queue: it counts pods per namespace.

Run:   python examples/controller_by_hand.py        (the cluster of your kubeconfig)
`aioinformer.Controller` does this and more in fewer lines. Ctrl-C stops it.
"""

import asyncio
import contextlib
import sys

from aioinformer import (
    AioInformerError,
    ApiError,
    Client,
    KubeObject,
    RateLimitingQueue,
    SharedInformerFactory,
    TransportError,
)
from aioinformer.model.resources import NAMESPACES, PODS

NAME = "example.com/running-pods"


async def main(client: Client) -> None:
    factory = SharedInformerFactory(client)
    pods, namespaces = factory.informer(PODS), factory.informer(NAMESPACES)
    queue = RateLimitingQueue[str]("namespaces")  # holds each name at most once

    def pod_changed(pod: KubeObject) -> None:
        queue.add(pod.namespace)

    pods.add_event_handler(pod_changed, lambda _, new: pod_changed(new), pod_changed)
    namespaces.on_add(lambda namespace: queue.add(namespace.name))

    async def reconcile(name: str) -> None:
        here = pods.lister.namespace(name).list()  # from memory
        running = str(sum(pod.at("status.phase") == "Running" for pod in here))
        namespace = namespaces.lister.get(name)
        if namespace is not None and namespace.annotations.get(NAME) != running:
            body = {"metadata": {"annotations": {NAME: running}}}
            await client.patch(NAMESPACES, name, body)
            print(f"{name}: {running}", flush=True)

    async def work() -> None:
        async for name in queue:  # no other worker gets it before the next step
            try:
                await reconcile(name)
                queue.forget(name)
            except (ApiError, TransportError) as exc:
                print(f"{name}: {exc}", file=sys.stderr)
                queue.add_rate_limited(name)  # retries after 5 ms, 10 ms, 20 ms, ...

    async with client, factory:
        await factory.wait_for_cache_sync(timeout=30)
        async with asyncio.TaskGroup() as workers:
            workers.create_task(work())
            workers.create_task(work())


if __name__ == "__main__":
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(main(Client.from_env()))
    except AioInformerError as exc:
        sys.exit(str(exc))
