"""Decoded bodies: an informer keeps none of objects that left its store."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from informer_helpers import running

from aioinformer.client import ListWatch
from aioinformer.informer import Deleted, SharedInformer, Updated
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import Drop, Fault, Gone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.informer.notifications import Notification

NAMES = ["a", "b", "c"]


def config_map(name: str, text: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"text": text * 1000}}


def read_all(event: Notification) -> None:
    match event:
        case Updated(old=old, new=new):
            assert old["data"] != new["data"]
        case Deleted(obj=obj):
            assert obj["data"] is not None
        case _:
            assert event.obj["data"] is not None


async def read_late(event: Notification) -> None:
    await asyncio.sleep(0.5)
    read_all(event)


HANDLERS: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "one": [{"on_event": read_all}],
    "coalescing": [{"on_event": read_late, "coalesce": True}],
    "several": [{"on_event": read_all}, {"on_event": read_late}],
}


@asynccontextmanager
async def informed(
    handlers: list[dict[str, Any]], *faults: Fault, **options: Any
) -> AsyncIterator[tuple[APIServer, SharedInformer]]:
    async with APIServer() as server, server.client() as client:
        server.faults.add(*faults)
        for name in NAMES:
            server.create(CONFIG_MAPS, config_map(name, "x"))

        informer = SharedInformer(ListWatch(client, CONFIG_MAPS), **options)
        for it in handlers:
            informer.add_event_handler(**it)

        async with running(informer.run()):
            await settled(server, informer)
            yield server, informer


async def settled(server: APIServer, informer: SharedInformer) -> None:
    await informer.wait_for_version(server.resource_version, timeout=30)
    await asyncio.sleep(1)
    await informer._processor.drained()
    await asyncio.sleep(1)


def decoded(informer: SharedInformer) -> list[str]:
    """Return the names in the decoded bodies."""
    obj = informer.lister.list()[0]
    bodies = obj.context.decoded_bodies.bodies.values()
    return sorted(
        f"{it['metadata']['name']}{it['data']['text'][:1]}" for it, _ in bodies
    )


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("handlers", HANDLERS.values(), ids=HANDLERS)
async def test_object_that_left_the_store_leaves_no_decoded_body(
    handlers: list[dict[str, Any]], compression: str | None
) -> None:
    async with informed(handlers, compression=compression) as (server, informer):
        for obj in informer.lister.list():
            assert obj["data"]["text"]

        del obj
        assert decoded(informer) == ["ax", "bx", "cx"]

        server.update(CONFIG_MAPS, config_map("a", "y"))
        server.delete(CONFIG_MAPS, "b")
        await settled(server, informer)

        expected = ["ay", "cx"] if handlers else ["cx"]
        assert decoded(informer) == expected


async def test_relist_drops_decoded_bodies_of_replaced_objects() -> None:
    faults = Drop(after_events=0), Gone()
    async with informed([{"on_event": read_all}], *faults) as (server, informer):
        assert decoded(informer) == ["ax", "bx", "cx"]

        server.update(CONFIG_MAPS, config_map("a", "y"))
        server.delete(CONFIG_MAPS, "b")
        await asyncio.sleep(1000)
        await settled(server, informer)

        assert decoded(informer) == ["ay", "cx"]


async def test_object_with_a_reference_keeps_its_decoded_body() -> None:
    async with informed([]) as (server, informer):
        old = informer.lister.get("default/a")
        assert old is not None
        data = old["data"]
        server.delete(CONFIG_MAPS, "a")
        await settled(server, informer)

        assert old["data"] == data
        assert decoded(informer) == ["ax"]


async def test_large_decoded_bodies_are_not_cached() -> None:
    async with informed([]) as (server, informer):
        for number in range(5):
            server.create(CONFIG_MAPS, config_map(f"large-{number}", "x" * 500))

        await settled(server, informer)
        for obj in informer.lister.list():
            assert obj["data"]["text"]

        assert decoded(informer) == ["ax", "bx", "cx"]
