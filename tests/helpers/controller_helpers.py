"""Controllers and managers, and reconciles that record their calls."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from informer_helpers import Even, running, settle
from leader_helpers import MemoryLease, MemoryLock, elector

from aioinformer import Controller, Manager, SharedInformer
from aioinformer.model.resources import CONFIG_MAPS, PODS
from aioinformer.testing import FakeListerWatcher
from aioinformer.watch import Watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aioinformer import (
        KubeObject,
        LeaderElector,
        ReconcileRequest,
        Resource,
        Result,
    )
    from aioinformer.controller import Context, PlainReconcile
    from aioinformer.testing import APIServer
    from aioinformer.watch import ListerWatcher, ListOptions, WatchEvent, WatchOptions

    Reconcile = Callable[[ReconcileRequest, Context], Awaitable[Result | None]]


def named(name: str, **metadata: Any) -> dict[str, Any]:
    """Make a small object in the namespace `default`."""
    return {"metadata": {"name": name, "namespace": "default", **metadata}}


def owned(name: str, by: str, kind: str = "Pod", **more: Any) -> dict[str, Any]:
    """Make an object with an owner in `v1`."""
    owner = {"apiVersion": "v1", "kind": kind, "name": by, "uid": by, **more}
    return named(name, ownerReferences=[owner])


class Notes:
    """A reconcile that records the names of its requests; subclasses do more."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.contexts: list[Context] = []
        self.now: set[str] = set()

    async def __call__(self, request: ReconcileRequest, ctx: Context) -> Result | None:
        assert request.key not in self.now, "one key twice at once"
        self.now.add(request.key)
        try:
            self.names.append(request.name)
            self.contexts.append(ctx)
            return await self.act(request, ctx)
        finally:
            self.now.discard(request.key)

    async def act(self, request: ReconcileRequest, ctx: Context) -> Result | None:
        return None


class Acts(Notes):
    """A reconcile that records its requests, then calls a function with each."""

    def __init__(self, act: Reconcile) -> None:
        super().__init__()
        self._act = act

    async def act(self, request: ReconcileRequest, ctx: Context) -> Result | None:
        return await self._act(request, ctx)


def informer_of(
    source: ListerWatcher, name: str = "pods", **options: Any
) -> SharedInformer:
    return SharedInformer(source, name=name, rng=Even(), **options)


@asynccontextmanager
async def informed(*informers: SharedInformer) -> AsyncIterator[None]:
    """Run informers, synced before the block starts."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(it.run()) for it in informers]
        for informer in informers:
            await informer.wait_synced(timeout=60)

        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


@asynccontextmanager
async def controlled(
    reconcile: Reconcile | PlainReconcile,
    source: FakeListerWatcher | None = None,
    **options: Any,
) -> AsyncIterator[tuple[FakeListerWatcher, Controller]]:
    """Run a controller of pods whose informer lists and watches a source."""
    source = FakeListerWatcher() if source is None else source
    pods = informer_of(source)
    controller = Controller("pods", reconcile, for_=pods, **options)
    async with informed(pods), running(controller.run()):
        await settle()
        yield source, controller


class Lagging:
    """A `ListerWatcher` whose watches deliver every event some seconds late."""

    resource: Resource = PODS

    def __init__(self, source: Any, seconds: float) -> None:
        self.resource = source.resource
        self.seconds = seconds
        self._source = source

    def selects(self, obj: KubeObject) -> bool:
        return bool(self._source.selects(obj))

    def list(self, options: ListOptions) -> Any:
        return self._source.list(options)

    @asynccontextmanager
    async def watch(self, options: WatchOptions) -> AsyncIterator[Watch]:
        async with (
            self._source.watch(options) as watch,
            _LaggingWatch(watch, self) as lagging,
        ):
            yield lagging


class _LaggingWatch(Watch):
    def __init__(self, watch: Watch, lagging: Lagging) -> None:
        super().__init__()
        self._watch = watch
        self._lagging = lagging
        self._held: list[WatchEvent] = []

    async def _fetch(self) -> list[WatchEvent]:
        if not self._held:
            self._held = await self._watch.next_batch()

        await asyncio.sleep(self._lagging.seconds)
        batch, self._held = self._held, []
        return batch

    def _close(self) -> None:
        self._watch.stop()


def config_map(name: str = "a") -> dict[str, Any]:
    return named(name)


def elector_of(lease: MemoryLease, identity: str, **options: Any) -> LeaderElector:
    return elector(MemoryLock(lease, identity), **options)


class Slow(Notes):
    """A reconcile that takes some seconds, and as many to end after cancellation."""

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
    """Make a manager with a controller of config maps, not started."""
    manager = Manager(server.client(), **options)
    maps = manager.informer(CONFIG_MAPS)
    manager.add(Controller("maps", reconcile, for_=maps), leader_only=leader_only)
    return manager
