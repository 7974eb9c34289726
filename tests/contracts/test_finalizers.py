"""`finalizer` and conditions, on our server and on a real kube-apiserver."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aioinformer import Client, Controller, KubeObject, Manager, SharedInformer
from aioinformer.controller import (
    Context,
    finalizer,
    is_status_condition_true,
    set_status_condition,
    with_object,
)
from aioinformer.model.resources import CONFIG_MAPS, PODS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from contract_servers import ServerUnderTest

OURS = "example.com/record"
THEIRS = "example.com/theirs"


class Records:
    """Resources that a controller keeps outside the cluster, and their calls."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.removed: list[str] = []
        self.unheld: list[str] = []

    def controller(self, maps: SharedInformer) -> Controller:
        @with_object(KubeObject)
        async def remove(held: KubeObject, ctx: Context) -> None:
            self.names.discard(held.name)
            self.removed.append(held.name)

        @finalizer(CONFIG_MAPS, OURS, cleanup=remove)
        @with_object(KubeObject)
        async def reconcile(held: KubeObject, ctx: Context) -> None:
            self.names.add(held.name)
            if OURS not in held.finalizers:
                self.unheld.append(held.name)

        return Controller("records", reconcile, for_=maps, concurrency=4)


@asynccontextmanager
async def recorded(
    target: ServerUnderTest,
) -> AsyncIterator[tuple[Client, SharedInformer, Records]]:
    records = Records()
    async with target.client() as client, Manager(client) as manager:
        maps = manager.informer(CONFIG_MAPS, namespace=target.namespace)
        manager.add(records.controller(maps))
        await maps.wait_synced(timeout=30)
        yield client, maps, records


async def test_deletion_waits_for_all_finalizers(
    target: ServerUnderTest,
) -> None:
    place: Any = {"namespace": target.namespace}
    key = f"{target.namespace}/web"
    async with recorded(target) as (client, maps, records):
        body = {"metadata": {"name": "web", "finalizers": [THEIRS]}}
        await client.create(CONFIG_MAPS, body, **place)
        await maps.wait_until(
            lambda it: it is not None and it.finalizers == [THEIRS, OURS], key=key
        )
        await until(lambda: records.names == {"web"})

        await client.delete(CONFIG_MAPS, "web", **place)
        await maps.wait_until(
            lambda it: it is not None and it.finalizers == [THEIRS], key=key
        )
        assert (records.names, records.removed) == (set(), ["web"])

        nothing: dict[str, Any] = {"metadata": {"finalizers": None}}
        await client.patch(CONFIG_MAPS, "web", nothing, **place)
        await maps.wait_until(lambda it: it is None, key=key)
        assert (records.unheld, records.removed) == ([], ["web"])


async def test_finalizer_is_added_and_removed_despite_concurrent_writes(
    target: ServerUnderTest,
) -> None:
    place: Any = {"namespace": target.namespace}
    names = [f"map-{number}" for number in range(12)]

    async def live(name: str) -> None:
        await client.create(CONFIG_MAPS, {"metadata": {"name": name}}, **place)
        for number in range(10):
            data = {"data": {"number": str(number)}}
            await client.patch(CONFIG_MAPS, name, data, **place)

        await until(lambda: name in records.names)
        await client.delete(CONFIG_MAPS, name, **place)

    async with recorded(target) as (client, maps, records):
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(live(name))

        for name in names:
            await maps.wait_until(
                lambda it: it is None, key=f"{target.namespace}/{name}"
            )

        assert sorted(records.removed) == sorted(names)
        assert (records.names, records.unheld) == (set(), [])


async def test_conditions_are_accepted_by_the_server(target: ServerUnderTest) -> None:
    container = {"name": "c", "image": "i"}
    body = {"metadata": {"name": "web"}, "spec": {"containers": [container]}}
    async with target.client() as client:
        pod = await client.create(PODS, body, namespace=target.namespace)
        conditions = set_status_condition(
            pod.at("status.conditions"),
            "example.com/Paid",
            True,
            reason="Invoice",
            message="by card",
        )
        pod = await client.patch_status(
            PODS,
            "web",
            {"status": {"conditions": conditions}},
            namespace=target.namespace,
        )

    received = pod.at("status.conditions")
    assert is_status_condition_true(received, "example.com/Paid")
    again = set_status_condition(
        received, "example.com/Paid", True, reason="Invoice", message="by card"
    )
    assert again == received


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)
