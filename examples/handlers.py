"""An informer with async handlers that print the changes of pods.

Run:   python examples/handlers.py                  (the cluster of your kubeconfig)
       python examples/handlers.py --server http://127.0.0.1:8001   (`kubectl proxy`)

It prints one line per pod, then "synced", then one line per change. Ctrl-C stops it, and
so does a closed pipe (`| head`).
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
        os._exit(0)  # the pipe is closed: stop


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

    seen = pods.add_event_handler(on_add=added, on_update=updated, on_delete=deleted)

    async with factory:  # starts here, stops on exit, and leaves nothing behind
        await factory.wait_for_cache_sync(timeout=30)
        await seen.wait_synced()
        show("synced:", len(pods.lister.list()), "pods")
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print the changes of pods.")
    parser.add_argument("--server", help="URL of an API server")
    server = parser.parse_args().server
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(main(Client.from_url(server) if server else Client.from_env()))
    except AioInformerError as exc:
        sys.exit(str(exc))  # its text says what is wrong, and what to do
