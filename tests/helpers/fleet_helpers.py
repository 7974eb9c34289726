"""Replicas of sharded controllers on one server, and which of them works on each object."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from wire import proxying

from aioinformer import Client, Controller, KubeObject, Manager, Shards
from aioinformer.errors import AioInformerError
from aioinformer.model.resources import CONFIG_MAPS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from wire import Proxy

    from aioinformer import ReconcileRequest, SharedInformer
    from aioinformer.controller import Context
    from aioinformer.testing import APIServer

    Act = Callable[[str, ReconcileRequest, Context], Awaitable[Any]]

__all__ = ["RANGES", "Fleet", "Member"]

RANGES = 16


@dataclass
class Member:
    """One replica, behind a proxy."""

    name: str
    manager: Manager
    shards: Shards
    link: Proxy
    maps: SharedInformer
    controller: Controller
    dead: bool = False
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    def keys(self) -> set[str]:
        return set(self.maps.store.list_keys())


class Fleet:
    """Replicas of a controller of ConfigMaps, and their work on each object."""

    def __init__(self, server: APIServer, act: Act, **options: Any) -> None:
        self.server = server
        self.act = act
        self.options = options
        self.members: dict[str, Member] = {}
        self.working: dict[tuple[str, str], str] = {}
        self.problems: list[str] = []

    @asynccontextmanager
    async def at_work(self, name: str, kind: str, ctx: Context) -> AsyncIterator[None]:
        """Record work on an object, which nobody else may work on."""
        obj, key = ctx.lister.get(ctx.request.key), ctx.request.key
        work = (kind, obj.uid if obj is not None else f"absent {key}")
        other = self.working.get(work)
        if other is not None:
            self.problems.append(f"{name} and {other} at once: {work} {key}")

        self.working[work] = name
        try:
            yield
        finally:
            if self.working.get(work) == name:
                del self.working[work]

    async def start(self, name: str, **more: Any) -> Member:
        """Start a replica."""
        stack = AsyncExitStack()
        link = await stack.enter_async_context(proxying(self.server.url))
        client = Client.from_url(link.url)
        manager = Manager(client)
        options = self.options | more
        group = options.pop("group", {})
        shards = Shards(
            "maps", client, ranges=RANGES, namespace="ops", identity=name, **group
        )

        async def reconcile(request: ReconcileRequest, ctx: Context) -> Any:
            if member.dead:
                return await asyncio.sleep(1e9)

            async with self.at_work(name, "reconcile", ctx):
                return await self.act(name, request, ctx)

        maps = manager.informer(CONFIG_MAPS, **options.pop("selection", {}))
        owns = [manager.informer(it) for it in options.pop("owns", ())]
        controller = Controller(
            "maps", reconcile, for_=maps, owns=owns, shards=shards, **options
        )
        manager.add(controller)
        member = Member(name, manager, shards, link, maps, controller, stack=stack)
        self.members[name] = member
        await stack.enter_async_context(_running(manager))
        return member

    async def stop(self, name: str) -> None:
        await self.members.pop(name).stack.aclose()

    def kill(self, name: str) -> Member:
        """End all work of a replica at once, and all its requests."""
        member = self.members.pop(name)
        member.dead = True
        member.link.break_off()
        for work, by in tuple(self.working.items()):
            if by == name:
                del self.working[work]

        return member

    async def settled(self, seconds: float = 90.0) -> None:
        """Wait until each range has an owner, whose informer has its objects."""
        try:
            async with asyncio.timeout(seconds):
                while not self.is_settled():
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"not settled: {self.states()}") from None

    def states(self) -> dict[str, Any]:
        """Return what each replica has, for a message."""
        found = {
            name: (it.shards.status().state, sorted(it.shards.held), len(it.keys()))
            for name, it in self.members.items()
        }
        return found | {"server": len(self.server.objects(CONFIG_MAPS))}

    def is_settled(self) -> bool:
        held = [it.shards.held for it in self.members.values()]
        uids = [
            {obj.uid for obj in it.maps.store.list()} for it in self.members.values()
        ]
        there = {it["metadata"]["uid"] for it in self.server.objects(CONFIG_MAPS)}
        return (
            all(held)
            and sum(map(len, held)) == RANGES
            and sum(map(len, uids)) == len(there)
            and set[str]().union(*uids) == there
        )

    def owner(self, obj: KubeObject | dict[str, Any]) -> Member:
        """Return the replica that owns an object."""
        known = obj if isinstance(obj, KubeObject) else KubeObject.of(obj)
        (owner,) = [
            it
            for it in self.members.values()
            if it.shards.range_of(known) in it.shards.held
        ]
        return owner


@asynccontextmanager
async def _running(manager: Manager) -> AsyncIterator[None]:
    task = asyncio.create_task(manager.run())
    try:
        yield
    finally:
        try:
            await manager.shutdown()
        finally:
            with suppress(AioInformerError):  # ended before it was ready
                await task
