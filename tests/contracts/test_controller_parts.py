"""G9, G10 and G12 of daemons, timers and sources of a controller."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import Notes, informed, informer_of, named
from informer_helpers import running, settle

from aioinformer import Controller, ReconcileRequest, Result
from aioinformer.controller import Context, Every
from aioinformer.testing import FakeListerWatcher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class RandomDaemon:
    """Daemon that waits, returns, raises, cancels itself, and ends late."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.good = False
        self.running: dict[str, str] = {}
        self.calls = 0

    async def __call__(self, request: ReconcileRequest, ctx: Context) -> Result | None:
        pod = ctx.lister.get(request.key)
        assert request.name not in self.running, "one key twice at once"
        self.running[request.name] = "" if pod is None else pod.uid
        self.calls += 1
        try:
            if self.good:
                await asyncio.Event().wait()

            return await self._misbehave(self.rng.randrange(6))
        finally:
            try:
                if not self.good:
                    await asyncio.sleep(self.rng.choice([0, 0.01, 2]))
            finally:
                del self.running[request.name]

    async def _misbehave(self, number: int) -> Result | None:
        await asyncio.sleep(self.rng.choice([0, 0.01, 1, 60]))
        if number == 0:
            raise ValueError("boom")

        if number == 1:
            raise asyncio.CancelledError

        if number == 2:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

        if number == 3:
            await asyncio.sleep(3600)

        return Result(requeue_after=1)


@pytest.mark.parametrize("seed", range(2))
async def test_G10_each_object_has_one_running_daemon_at_most(seed: int) -> None:
    rng = random.Random(seed)
    daemon, source = RandomDaemon(rng), FakeListerWatcher()
    pods = informer_of(source)
    options: Any = {"daemons": [daemon], "every": 7, "drain_timeout": 5}
    controller = Controller("pods", Notes(), for_=pods, **options)
    uids: dict[str, str] = {}
    async with informed(pods):
        async with running(controller.run()):
            for step in range(200):
                name = f"pod-{rng.randrange(5)}"
                if name not in uids:
                    uids[name] = f"uid-{step}"
                    source.add(named(name, uid=uids[name]))
                elif rng.random() < 0.5:
                    del uids[name]
                    source.delete(named(name))
                else:
                    labels = {"n": str(step)}
                    source.modify(named(name, uid=uids[name], labels=labels))

                await asyncio.sleep(rng.choice([0, 0.001, 0.5, 5]))

            daemon.good = True
            await asyncio.sleep(3800)
            assert daemon.running == uids, "each for the newest object of its name"

        assert daemon.running == {}
        assert daemon.calls > 20


async def test_G12_failures_of_all_parts_stop_nothing_else() -> None:
    async def daemon(request: ReconcileRequest, ctx: Context) -> None:
        raise ValueError("daemon")

    async def events() -> AsyncIterator[str]:
        yield "default/event"
        raise ValueError("source")

    def since(pod: object) -> str:
        raise ValueError("since")

    failures: set[str] = set()
    source, notes = FakeListerWatcher(named("a", uid="1")), Notes()
    pods = informer_of(source)
    controller = Controller(
        "pods",
        notes,
        for_=pods,
        daemons=[daemon],
        sources={"events": events},
        every=Every(60, since=since),
        on_error=lambda failure: failures.add(failure.where),
    )
    async with informed(pods), running(controller.run()):
        await asyncio.sleep(600)
        source.add(named("b", uid="2"))
        await settle()
        source.modify(named("a", uid="1", labels={"a": "b"}))
        await settle()

    assert failures == {"daemon", "source", "since"}
    assert notes.names[-2:] == ["b", "a"]
    changes = {cause.change for ctx in notes.contexts for cause in ctx.causes}
    assert {"initial", "timer", "source", "added", "updated"} <= changes
