"""An informer with async handlers: print what happens to pods.

Run:   python examples/handlers.py                  (the cluster of your kubeconfig)
       python examples/handlers.py --server http://127.0.0.1:8001   (`kubectl proxy`)

You will see one line for each pod that is there, then "synced", then one line for each
change. Ctrl-C ends it, and so does a reader that has seen enough (`| head`).
"""

import argparse
import asyncio
import contextlib
import os
import sys

from aioinformer import AioInformerError, Client, KubeObject, SharedInformerFactory


def show(*words: object) -> None:
    try:
        print(*words, flush=True)
    except BrokenPipeError:
        os._exit(0)  # nobody reads any more: there is nothing left to do


async def main(client: Client) -> None:
    factory = SharedInformerFactory(client)
    pods = factory.informer("v1", "pods")

    async def added(pod: KubeObject) -> None:
        show("added", pod.key, pod.at("status.phase"))

    async def updated(old: KubeObject, new: KubeObject) -> None:
        before, after = old.at("status.phase"), new.at("status.phase")
        if before != after:
            await asyncio.sleep(0.01)  # delays neither the cache nor other handlers
            show("updated", new.key, before, "->", after)

    async def deleted(pod: KubeObject) -> None:
        show("deleted", pod.key)

    told = pods.add_event_handler(on_add=added, on_update=updated, on_delete=deleted)

    async with factory:  # starts; on exit it stops, and leaves nothing behind
        await factory.wait_for_cache_sync(timeout=30)
        await told.wait_synced()
        show("synced:", len(pods.lister.list()), "pods")
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print what happens to pods.")
    parser.add_argument("--server", help="the URL of an API server")
    server = parser.parse_args().server
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(main(Client.from_url(server) if server else Client.from_env()))
    except AioInformerError as exc:
        sys.exit(str(exc))  # it says what is wrong, and what to do about it
