"""The guarantees of an informer of several namespaces, over real HTTP."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from informer_helpers import settle
from informers import plain
from pipeline_helpers import View

from aioinformer import SharedInformerFactory
from aioinformer.errors import Forbidden, NotSynced
from aioinformer.model import resources
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import Cut, ErrorEvent, Refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer import SharedInformer

NAMESPACES = ["shop", "web", "db"]


def body(namespace: str, name: str) -> dict[str, Any]:
    made = plain(name)
    made["metadata"]["namespace"] = namespace
    return made


@asynccontextmanager
async def served(
    *faults: Any,
) -> AsyncIterator[tuple[APIServer, SharedInformer]]:
    """Run a server with pods in four namespaces, and an informer of three of them."""
    async with APIServer() as server:
        server.faults.add(*faults)
        for namespace in [*NAMESPACES, "other"]:
            server.create(resources.NAMESPACES, {"metadata": {"name": namespace}})
            server.create(PODS, body(namespace, "a"))

        factory = SharedInformerFactory(server.client())
        informer = factory.informer("v1", "pods", namespace=NAMESPACES)
        async with factory:
            yield server, informer


def held(server: APIServer) -> dict[str, str]:
    """Return the objects of the server in the three namespaces."""
    metadata = [obj["metadata"] for obj in server.objects(PODS)]
    return {
        f"{it['namespace']}/{it['name']}": it["resourceVersion"]
        for it in metadata
        if it["namespace"] in NAMESPACES
    }


def stored(informer: SharedInformer) -> dict[str, str]:
    return {obj.key: obj.resource_version for obj in informer.lister.list()}


async def caught_up(server: APIServer, informer: SharedInformer) -> None:
    for namespace in NAMESPACES:
        newest = max(
            (
                int(version)
                for key, version in held(server).items()
                if key.startswith(f"{namespace}/")
            ),
            default=0,
        )
        await informer.wait_for_version(str(newest), 300, namespace=namespace)

    await settle()


async def test_G1_to_G6_hold_when_watches_of_some_namespaces_are_cut() -> None:
    rng = random.Random(7)
    async with served() as (server, informer):
        view = View()
        informer.add_event_handler(on_event=view)
        stale: list[str] = []

        @informer.on_add
        async def look(obj: Any) -> None:
            there = informer.store.get_by_key(obj.key)
            if there and int(there.resource_version) < int(obj.resource_version):
                stale.append(obj.key)

        await informer.wait_synced(timeout=30)
        late: list[View] = []
        for round_ in range(40):
            namespace = rng.choice(NAMESPACES)
            if round_ % 8 == 3:
                server.faults.add(
                    ErrorEvent(status=410, namespace=namespace),
                    Cut(verb="list", after_bytes=300, namespace=namespace),
                )
                await server.stop()  # the others resume, this one relists
                await server.start()

            for _ in range(5):
                name = f"p{rng.randrange(12)}"
                key = f"{namespace}/{name}"
                if key not in held(server):
                    server.create(PODS, body(namespace, name))
                elif rng.random() < 0.3:
                    server.delete(PODS, name, namespace=namespace)
                else:
                    labels = {"metadata": {"labels": {"n": str(round_)}}}
                    server.patch(PODS, name, labels, namespace=namespace)

            await asyncio.sleep(rng.choice([0, 0.1, 3]))
            if round_ % 10 == 5:
                late.append(View())
                informer.add_event_handler(on_event=late[-1])

        await asyncio.sleep(120)
        await caught_up(server, informer)
        status = informer.status

        assert stored(informer) == held(server)
        assert len(server.faults) == 0
        assert status.restarts >= 2 * 5
        for each in (view, *late):
            assert each.broken == []
            assert each.objects == held(server)

        assert stale == []
        assert "other/a" not in informer.store


async def test_G8_refusal_in_one_namespace_is_reported_and_retried() -> None:
    refused = Refuse(status=403, namespace="web", times=8)
    async with served(refused) as (server, informer):
        with pytest.raises(NotSynced, match=r"web: .*403") as caught:
            await informer.wait_synced(timeout=600)

        assert isinstance(caught.value.__cause__, Forbidden)
        server.create(PODS, body("shop", "b"))
        await informer.wait_until(lambda it: it is not None, "shop/b", timeout=5)
        with pytest.raises(NotSynced, match="web"):
            informer.lister.list()

        with pytest.raises(NotSynced, match="web"):
            informer.lister.get("web/a")

        assert len(informer.lister.namespace("shop").list()) == 2
        states = informer.status.namespaces
        assert {name: it.synced for name, it in states.items()} == {
            "shop": True,
            "web": False,
            "db": True,
        }
        assert states["web"].last_error_status == 403
        assert informer.status.last_error_status == 403

        await informer.wait_synced(timeout=600, fail_fast=False)
        assert stored(informer) == held(server)
        assert informer.status.last_error is None


async def test_G9_informer_of_several_namespaces_leaves_nothing() -> None:
    before = asyncio.all_tasks()
    async with served() as (server, informer):
        await informer.wait_synced(timeout=30)
        during = len(asyncio.all_tasks() - before)

    await asyncio.sleep(0.1)

    assert during > 6
    assert asyncio.all_tasks() == before
    assert informer.status.phase == "stopped"
    assert {it.phase for it in informer.status.namespaces.values()} == {"stopped"}
    assert server.objects(PODS)
