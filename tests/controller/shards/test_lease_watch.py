"""`LeaseWatch`: what its reader is told, and when."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wire import proxying

from aioinformer import Client
from aioinformer.controller.client import ElectionClient
from aioinformer.controller.shards.lease import Role, blank_lease, fence_name
from aioinformer.controller.shards.lease_watch import LeaseWatch
from aioinformer.model.resources import LEASES
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.controller.shards.lease import ShardLease


class Reader:
    """Reader that records what it is told, and where a turn of the loop ends."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def lease_seen(self, lease: ShardLease) -> None:
        self._note(f"seen {lease.name}")

    def lease_gone(self, name: str, *, missed: bool) -> None:
        self._note(f"{'missed' if missed else 'gone'} {name}")

    def leases_synced(self) -> None:
        self._note("synced")

    def _note(self, text: str) -> None:
        if not self.told or self.told[-1] == "turn":
            asyncio.get_running_loop().call_soon(self.told.append, "turn")

        self.told.append(text)


def fence(index: int, renewed: str = "") -> dict[str, Any]:
    """Return a free fence."""
    lease = replace(
        blank_lease("sites", 4, "uid"),
        role=Role.FENCE,
        name=fence_name("sites", index),
        index=index,
        renewed=renewed,
    )
    body = lease.body()
    body["metadata"]["namespace"] = "ops"
    return body


@asynccontextmanager
async def following(url: str) -> AsyncIterator[Reader]:
    """Run a watch of the group, whose reader relies on things for 11 s."""
    reader = Reader()
    async with Client.from_url(url) as client:
        watch = LeaseWatch(ElectionClient(client), "sites", "ops", reader, 11)
        running = asyncio.create_task(watch.run())
        try:
            yield reader
        finally:
            running.cancel()
            await asyncio.wait({running})


async def test_list_after_an_expired_watch_is_passed_on_in_one_step() -> None:
    """Of a part of it, a member would conclude that it has seen everything before."""
    async with APIServer(auto_namespaces=True) as server, proxying(server.url) as link:
        for index in range(3):
            server.create(LEASES, fence(index))

        async with following(link.url) as reader:
            await asyncio.sleep(1)
            server.update(LEASES, fence(0, "2030-01-01T00:00:01.000000Z"))
            await asyncio.sleep(1)
            before = len(reader.told)
            link.break_off()
            server.delete(LEASES, "sites-range-01", namespace="ops")
            server.update(LEASES, fence(2, "2030-01-01T00:00:02.000000Z"))
            server.create(LEASES, fence(3))
            server.compact()
            await asyncio.sleep(3)
            link.mend()
            await asyncio.sleep(5)
            server.update(LEASES, fence(0, "2030-01-01T00:00:03.000000Z"))
            await asyncio.sleep(1)

    names = [f"sites-range-0{index}" for index in range(4)]
    first = [f"seen {it}" for it in names[:3]]
    assert reader.told[:before] == [*first, "synced", "turn", first[0], "turn"]
    assert reader.told[before:] == [
        f"missed {names[1]}",
        f"seen {names[2]}",
        f"seen {names[3]}",
        "synced",
        "turn",
        first[0],
        "turn",
    ]


async def test_older_list_is_passed_on_once_nobody_relies_on_what_was_shown() -> None:
    async with APIServer(auto_namespaces=True) as server:
        server.create(LEASES, fence(0))
        backup = server.snapshot()
        async with following(server.url) as reader:
            await asyncio.sleep(1)
            server.create(LEASES, fence(1))
            await asyncio.sleep(1)
            before = len(reader.told)
            await server.restart(snapshot=backup)
            await asyncio.sleep(10)
            assert reader.told[before:] == []
            await asyncio.sleep(10)
            assert reader.told[before : before + 2] == [
                "missed sites-range-01",
                "synced",
            ]
