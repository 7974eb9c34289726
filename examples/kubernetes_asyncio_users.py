"""An informer for a program that already has a client of kubernetes_asyncio.

Run:   python examples/kubernetes_asyncio_users.py shop    (the cluster of your kubeconfig)

Requests use that client with its credentials, proxy and connections. The rest of the
program stays as it is, and uses its models. Ctrl-C stops it.
"""

import argparse
import asyncio
import contextlib
import sys

from kubernetes_asyncio import config
from kubernetes_asyncio.client import ApiClient, CoreV1Api, V1Pod

from aioinformer import AioInformerError, KubeObject, ListWatch, SharedInformer


def moved(old: KubeObject, new: KubeObject) -> None:
    if old.at("status.phase") != new.at("status.phase"):
        pod = new.into(V1Pod)  # decoded now; unread objects never are
        print(pod.metadata.name, "is", pod.status.phase, flush=True)


async def main(namespace: str) -> None:
    await config.load_kube_config()
    async with ApiClient() as api:
        core = CoreV1Api(api)
        # Instead of: await core.list_namespaced_pod(namespace)
        source = ListWatch.from_kubernetes_asyncio(
            core.list_namespaced_pod, namespace=namespace
        )
        pods = SharedInformer(source, name="pods")
        pods.on_update(moved)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(pods.run())
            try:
                await pods.wait_synced(timeout=30)
                models = pods.lister.into(V1Pod).list("app=web")  # from memory
                print(len(models), "pods of app=web", flush=True)
                await asyncio.Event().wait()
            finally:
                running.cancel()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print the phase changes of pods.")
    parser.add_argument("namespace")
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(main(parser.parse_args().namespace))
    except* (AioInformerError, config.ConfigException) as group:
        sys.exit("\n".join(str(error) for error in group.exceptions))
