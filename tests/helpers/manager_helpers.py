"""What the tests of managers share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from controller_helpers import Notes, named
from leader_helpers import MemoryLease, MemoryLock, elector

from aioinformer import Controller, Manager
from aioinformer.model.resources import CONFIG_MAPS

if TYPE_CHECKING:
    from aioinformer import LeaderElector, ReconcileRequest, Result
    from aioinformer.controller import Context
    from aioinformer.testing import APIServer


def config_map(name: str = "a") -> dict[str, Any]:
    return named(name)


def elector_of(lease: MemoryLease, identity: str, **options: Any) -> LeaderElector:
    return elector(MemoryLock(lease, identity), **options)


class Slow(Notes):
    """A reconcile that takes some seconds, and as many to end when it is cancelled."""

    def __init__(self, seconds: float = 3600.0, *, end: float = 0.0) -> None:
        super().__init__()
        self.seconds = seconds
        self.end = end
        self.record: list[str] = []
        self.begun = asyncio.Event()

    async def act(self, request: ReconcileRequest, ctx: Context) -> Result | None:
        self.begun.set()
        try:
            await asyncio.sleep(self.seconds)
            self.record.append("done")
        except asyncio.CancelledError:
            self.record.append("cancelled")
            await asyncio.sleep(self.end)
            raise

        return None


def managed(
    server: APIServer, reconcile: Any, *, leader_only: bool = True, **options: Any
) -> Manager:
    """A manager that nobody has started, with a controller of config maps."""
    manager = Manager(server.client(), **options)
    maps = manager.informer(CONFIG_MAPS)
    manager.add(Controller("maps", reconcile, for_=maps), leader_only=leader_only)
    return manager
