"""An informer with async handlers: print what happens to pods.

Run:   python examples/handlers.py                  (the cluster of your kubeconfig)
       python examples/handlers.py --server http://127.0.0.1:8001   (`kubectl proxy`)

You will see one line for each pod that is there, then "synced", then one line for each
change. Ctrl-C ends it.
"""

import argparse
import asyncio
import contextlib

from aioinformer import Client, KubeObject, SharedInformerFactory


async def main(client: Client) -> None:
    factory = SharedInformerFactory(client)
    pods = factory.informer("v1", "pods")

    async def added(pod: KubeObject) -> None:
        print("added", pod.key, pod.at("status.phase"), flush=True)

    async def updated(old: KubeObject, new: KubeObject) -> None:
        before, after = old.at("status.phase"), new.at("status.phase")
        if before != after:
            # A handler may wait: it delays neither the cache nor other handlers.
            await asyncio.sleep(0.01)
            print("updated", new.key, before, "->", after, flush=True)

    async def deleted(pod: KubeObject) -> None:
        print("deleted", pod.key, flush=True)

    handlers = pods.add_event_handler(
        on_add=added, on_update=updated, on_delete=deleted
    )

    async with factory:  # starts; on exit it stops, and leaves nothing behind
        await factory.wait_for_cache_sync(timeout=30)
        await handlers.wait_synced()
        print("synced:", len(pods.lister.list()), "pods", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print what happens to pods.")
    parser.add_argument("--server", help="the URL of an API server")
    server = parser.parse_args().server

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(Client.from_url(server) if server else Client.from_env()))
