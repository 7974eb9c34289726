"""Informers of config maps with a store on disk, and a handler that records events."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from informer_helpers import text_of

from aioinformer import SharedInformerFactory
from aioinformer.model.resources import CONFIG_MAPS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aioinformer import SharedInformer
    from aioinformer.informer.notifications import Notification
    from aioinformer.testing import APIServer

__all__ = [
    "INITIAL",
    "Log",
    "cached",
    "drop",
    "name_of",
    "names",
    "open_files",
    "put",
    "value_of",
    "verbs",
    "without_data",
]


def put(server: APIServer, name: str, value: str = "1") -> None:
    """Create or update a config map."""
    body = {"metadata": {"name": name}, "data": {"value": value}}
    if any(it["metadata"]["name"] == name for it in server.objects(CONFIG_MAPS)):
        server.patch(CONFIG_MAPS, name, body, namespace="default")
    else:
        server.create(CONFIG_MAPS, body)


def drop(server: APIServer, name: str) -> None:
    server.delete(CONFIG_MAPS, name, namespace="default")


def verbs(server: APIServer) -> list[str]:
    """Return the verbs of the requests for config maps, and forget them."""
    made = [it.verb for it in server.requests if it.resource == "configmaps"]
    server.requests.clear()
    return made


class Log:
    """Handler that records what it is told."""

    def __init__(self, informer: SharedInformer) -> None:
        self.informer = informer
        self.told: list[str] = []
        informer.add_event_handler(on_event=self)

    def __call__(self, event: Notification) -> None:
        self.told.append(text_of(event))

    def take(self) -> list[str]:
        told, self.told = sorted(self.told), []
        return told


@asynccontextmanager
async def cached(
    server: APIServer, path: Path, *, synced: bool = True, **options: Any
) -> AsyncIterator[tuple[SharedInformer, Log]]:
    """Run a factory with an informer of config maps in a directory."""
    factory = SharedInformerFactory(server.client(), cache_dir=path)
    maps = factory.informer("v1", "configmaps", namespace="default", **options)
    log = Log(maps)
    async with factory:
        if synced:
            await maps.wait_synced(timeout=30)
            await asyncio.sleep(0.1)

        yield maps, log


def names(informer: SharedInformer, **options: Any) -> list[str]:
    return sorted(obj.name for obj in informer.lister.list(**options))


INITIAL = ["initial a", "initial b", "initial c"]


def without_data(obj: Any) -> Any:
    """Return the object without its data."""
    content = obj.to_dict()
    content.pop("data", None)
    return type(obj).of(content)


def value_of(obj: Any) -> list[str]:
    return [obj.at("data.value")]


def name_of(obj: Any) -> list[str]:
    return [obj.name]


def open_files() -> int:
    """Return the number of open files in the cache, and its sockets."""
    count = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue

        count += ".mdb" in target or "store.lock" in target or "readers" in target

    return count
