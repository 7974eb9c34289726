"""`aioinformer demo`: informers and a small controller on a server of their own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from aioinformer.cli.compare import differences
from aioinformer.cli.counter import PodCounter
from aioinformer.cli.meter import Meter
from aioinformer.cli.output import say
from aioinformer.cli.running import FAILED_CHECK, pause
from aioinformer.cli.screen import (
    Frame,
    Row,
    draw_line,
    draw_table,
    draw_verdict,
)
from aioinformer.cli.vigil import keep_vigil
from aioinformer.cli.workload import NAMESPACES, Workload
from aioinformer.model.resources import CONFIG_MAPS, PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from rich.table import Table

    from aioinformer.informer import SharedInformer

__all__ = ["DemoOptions", "demo"]

SYNC_SECONDS = 30.0
LINE_SECONDS = 1.0
FRAME_SECONDS = 0.25

# How long the caches may take to catch up in the end: on loopback it is milliseconds.
SETTLE_SECONDS = 5.0
SETTLE_CHECKS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """How much of it, and for how long."""

    seconds: float | None = None
    """From when the caches are synced; None for ever."""

    objects: int = 300
    changes_per_second: float = 50.0
    plain: bool = False
    """Lines, also on a terminal."""


async def demo(options: DemoOptions) -> int:
    """Run the demo; returns 0, or 1 if the caches differ from the server in the end.

    Raises:
        NotSynced: The caches did not get their lists within 30 s.
        InformerStopped: An informer died of a bug; perhaps in a group.

    Cancellation:
        The way to stop it, where it has no end: it then tells what it has done, and
        compares nothing.
    """
    console = Console()
    async with APIServer(auto_namespaces=True) as server, server.client() as client:
        workload = Workload(
            server,
            objects=options.objects,
            changes_per_second=options.changes_per_second,
        )
        workload.populate()
        say(
            f"An API server of our own, {server.url}: {options.objects} objects in "
            f"{len(NAMESPACES)} namespaces, {options.changes_per_second:g} changes/s.",
        )
        counter = PodCounter(client)
        async with counter.factory:
            await counter.factory.wait_for_cache_sync(SYNC_SECONDS)
            stage = _Stage(console, server, workload, counter)
            return await stage.play(options)


class _Stage:
    """Workload, controller and screen, from the sync to the summary."""

    def __init__(
        self,
        console: Console,
        server: APIServer,
        workload: Workload,
        counter: PodCounter,
    ) -> None:
        self._console = console
        self._server = server
        self._workload = workload
        self._counter = counter
        self._start = asyncio.get_running_loop().time()
        self._pod_meter = Meter()
        self._map_meter = Meter()
        self._reconcile_meter = Meter()

    async def play(self, options: DemoOptions) -> int:
        live = self._console.is_terminal and not self._console.is_dumb_terminal
        show = self._show_table if live and not options.plain else self._show_lines
        try:
            async with asyncio.TaskGroup() as group:
                showing = group.create_task(show(), name="screen")
                changing = group.create_task(self._workload.run(), name="workload")
                working = group.create_task(
                    self._counter.manager.run(), name="controller"
                )
                vigil = group.create_task(
                    keep_vigil(self._counter.factory), name="vigil"
                )
                await pause(options.seconds)
                changing.cancel()
                await self._settle()
                # Nothing is to be done any more, or it hangs: then the verdict says so.
                working.cancel()
                showing.cancel()
                vigil.cancel()
        except asyncio.CancelledError:
            say(f"Interrupted after {self._done()}.")
            raise

        # What the last reconciles wrote is on its way to the caches.
        await self._settle()
        return self._judge()

    # ------------------------------------------------------------ showing

    async def _show_lines(self) -> None:
        while True:
            say(draw_line(self._frame()))
            await asyncio.sleep(LINE_SECONDS)

    async def _show_table(self) -> None:
        # Drawn by us: rich would start a thread for it.
        with Live(self._table(), console=self._console, auto_refresh=False) as live:
            while True:
                live.update(self._table(), refresh=True)
                await asyncio.sleep(FRAME_SECONDS)

    def _table(self) -> Table:
        # The terminal may have been resized since.
        return draw_table(self._frame(), width=self._console.width)

    def _frame(self) -> Frame:
        counter, now = self._counter, self._seconds()
        return Frame(
            seconds=now,
            rows=(
                _row(counter.pods, counter.pod_events, self._pod_meter, now),
                _row(counter.maps, counter.map_events, self._map_meter, now),
            ),
            changes=self._workload.changes,
            depth=len(counter.controller.queue),
            reconciles=counter.reconciles,
            reconcile_rate=self._reconcile_meter.rate(now, counter.reconciles),
            writes=counter.writes,
            retries=counter.retries,
        )

    def _seconds(self) -> float:
        return asyncio.get_running_loop().time() - self._start

    # ------------------------------------------------------------ the end

    async def _settle(self) -> None:
        """Wait until the caches are what the server is, and all counts; not for ever."""
        for _ in range(SETTLE_CHECKS):
            if not self._mistakes():
                return

            await asyncio.sleep(SETTLE_SECONDS / SETTLE_CHECKS)

    def _mistakes(self) -> list[str]:
        counter = self._counter
        found = [f"{key} has a wrong count" for key in counter.wrong()]
        for resource, informer in ((PODS, counter.pods), (CONFIG_MAPS, counter.maps)):
            held = self._server.objects(resource)
            found += differences(held, informer.lister.list())

        return found

    def _judge(self) -> int:
        counter = self._counter
        found = self._mistakes()
        say(f"Ended after {self._done()}.")
        say(
            draw_verdict(
                found, pods=len(counter.pods.store), apps=len(counter.maps.store)
            ),
        )
        return FAILED_CHECK if found else 0

    def _done(self) -> str:
        counter = self._counter
        return (
            f"{self._seconds():.1f} s: {self._workload.changes} changes, "
            f"{counter.pod_events + counter.map_events} events, "
            f"{counter.reconciles} reconciles, {counter.writes} writes, "
            f"{counter.retries} retries"
        )


def _row(informer: SharedInformer, events: int, meter: Meter, now: float) -> Row:
    status = informer.status
    return Row(
        name=informer.name,
        phase=status.phase,
        objects=len(informer.store),
        events=events,
        rate=meter.rate(now, events),
        age=status.age,
    )
