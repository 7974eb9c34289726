"""`aioinformer demo`: informers and a small controller on a server of their own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from aioinformer.cli.live_table import RateMeter
from aioinformer.cli.output import say
from aioinformer.cli.running import FAILED_CHECK, pause, raise_informer_failure
from aioinformer.cli.workload import NAMESPACES, Workload
from aioinformer.controller import Controller, Manager
from aioinformer.informer import SharedInformerFactory
from aioinformer.model.resources import CONFIG_MAPS, PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aioinformer.client import Client
    from aioinformer.controller import Context, ReconcileRequest
    from aioinformer.errors import HandlerError
    from aioinformer.informer import SharedInformer
    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject

__all__ = [
    "DemoOptions",
    "DemoState",
    "InformerRow",
    "PodCounter",
    "app_of",
    "demo",
    "differences",
    "draw_line",
    "draw_table",
    "draw_verdict",
]


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
        self._pod_meter = RateMeter()
        self._map_meter = RateMeter()
        self._reconcile_meter = RateMeter()

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
                    raise_informer_failure(self._counter.factory), name="vigil"
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

    def _frame(self) -> DemoState:
        counter, now = self._counter, self._seconds()
        return DemoState(
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


def _row(
    informer: SharedInformer, events: int, meter: RateMeter, now: float
) -> InformerRow:
    status = informer.status
    return InformerRow(
        name=informer.name,
        phase=status.phase,
        objects=len(informer.store),
        events=events,
        rate=meter.rate(now, events),
        age=status.age,
    )


def differences(
    held: Iterable[Mapping[str, Any]], cached: Iterable[KubeObject]
) -> list[str]:
    """Say what is missing in the cache, what is too much, and what is different.

    Args:
        held: The server's objects, complete.
        cached: The cache's.

    Returns:
        A phrase for each object that differs, by key; nothing if they are equal.
    """
    theirs = {_key(body): body for body in held}
    ours = {obj.key: obj for obj in cached}
    found = {key: f"{key} is missing" for key in theirs.keys() - ours.keys()}
    found |= {key: f"{key} is too much" for key in ours.keys() - theirs.keys()}
    found |= {
        key: f"{key} is different"
        for key in theirs.keys() & ours.keys()
        if ours[key].to_dict() != theirs[key]
    }
    return [found[key] for key in sorted(found)]


def _key(body: Mapping[str, Any]) -> str:
    metadata = body["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


# What is wrong in the end is named up to here; the rest is counted.
NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class InformerRow:
    """One informer, at one moment."""

    name: str
    phase: str
    objects: int
    events: int
    """Notifications delivered so far."""

    rate: float
    """Of them, in a second."""

    age: float | None
    """Seconds since the server was last heard of; None if it never was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoState:
    """Everything that is shown, at one moment."""

    seconds: float
    """Since the caches were synced."""

    rows: tuple[InformerRow, ...]
    changes: int
    """Made on the server by the workload."""

    depth: int
    """Keys that wait in the work queue."""

    reconciles: int
    reconcile_rate: float
    writes: int
    retries: int


def draw_line(frame: DemoState) -> str:
    """One line of plain text."""
    parts = [f"{frame.seconds:5.1f} s"]
    parts += [
        f"{row.name} {row.objects} ({row.rate:.0f} events/s, {row.phase}, "
        f"age {_age(row.age)})"
        for row in frame.rows
    ]
    parts.append(f"queue {frame.depth}")
    parts.append(f"reconciles {frame.reconciles} ({frame.reconcile_rate:.0f}/s)")
    parts.append(f"retries {frame.retries}")
    return "  ".join(parts)


def draw_table(frame: DemoState, *, width: int) -> Table:
    """A table for a terminal; where that is narrow, without the lesser columns.

    Args:
        frame: What to show.
        width: The columns of the terminal.
    """
    table = Table(
        title=f"aioinformer demo, {frame.seconds:.0f} s",
        title_justify="left",
        caption=(
            f"{frame.changes} changes on the server; queue {frame.depth}; "
            f"{frame.reconciles} reconciles ({frame.reconcile_rate:.0f}/s), "
            f"{frame.writes} writes, {frame.retries} retries. Ctrl-C ends it."
        ),
        caption_justify="left",
    )
    rows = [_cells(row) for row in frame.rows]
    shown = _fitting(rows, width)
    for name in shown:
        left = name in _LEFT
        table.add_column(
            name,
            justify="left" if left else "right",
            min_width=min(_WIDTHS[name], width),
            overflow="fold",
        )

    for row in rows:
        style = "green" if row["phase"] == "watching" else "yellow"
        styles = {"phase": style}
        table.add_row(*(Text(row[name], styles.get(name, "")) for name in shown))

    return table


# How wide the columns are at least, so that they do not jump; in the order of display.
_WIDTHS = {
    "informer": 10,
    "phase": 11,
    "objects": 8,
    "events": 8,
    "events/s": 8,
    "age": 8,
}


_LEFT = {"informer", "phase"}


# Which of them go first where there is no room: the last.
_IMPORTANCE = ("informer", "objects", "phase", "age", "events/s", "events")


# A border and a blank on each side; and one more border.
_FRAME_OF_COLUMN = 3


def _cells(row: InformerRow) -> dict[str, str]:
    return {
        "informer": row.name,
        "phase": row.phase,
        "objects": str(row.objects),
        "events": str(row.events),
        "events/s": f"{row.rate:.0f}",
        "age": _age(row.age),
    }


def _fitting(rows: list[dict[str, str]], width: int) -> list[str]:
    """The columns there is room for, in the order of display; one at least."""
    room = width - 1
    fitting: list[str] = []
    for name in _IMPORTANCE:
        longest = max(len(row[name]) for row in rows)
        room -= max(_WIDTHS[name], longest) + _FRAME_OF_COLUMN
        if fitting and room < 0:
            break

        fitting.append(name)

    return [name for name in _WIDTHS if name in fitting]


def draw_verdict(found: list[str], *, pods: int, apps: int) -> str:
    """The last line: whether all is as it should be.

    Args:
        found: What is not: a phrase for each.
        pods: How many are in the cache.
        apps: How many config maps are.
    """
    if not found:
        return (
            f"The caches equal the server's state: {pods} pods, {apps} config maps; "
            "every count is right."
        )

    more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f"Not as it should be: {'; '.join(found[:NAMED])}{more}."


def _age(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f} s"


class PodCounter:
    """Keeps `data.running` of each app's config map at the number of its running pods.

    `factory` and `manager` run it; who has entered the factory may look at the caches when
    the manager has ended.

    Args:
        client: Reads and writes.
    """

    def __init__(self, client: Client) -> None:
        self.factory = SharedInformerFactory(client)
        self.manager = Manager(client, factory=self.factory)
        self.pods = self.manager.informer(PODS, indexers={"app": app_of})
        self.maps = self.manager.informer(CONFIG_MAPS)
        self.controller = Controller(
            "apps",
            self.reconcile,
            for_=self.maps,
            watches=[(self.pods, app_of)],
            on_error=self._failed,
        )
        self.manager.add(self.controller)
        self.pod_events = 0
        self.map_events = 0
        self.reconciles = 0
        self.writes = 0
        self.retries = 0
        self.pods.on_event(self._pod_changed)
        self.maps.on_event(self._map_changed)

    async def reconcile(self, request: ReconcileRequest, ctx: Context) -> None:
        """Make one config map say what it should.

        Args:
            request: The name of the config map, which is that of the app.
            ctx: Writes.

        Raises:
            ApiError: The server refused the write.
            TransportError: The network failed.
        """
        config = self.maps.lister.get(request.key)
        if config is not None:
            running = self._running(request.key)
            if config.at("data.running") != running:
                await ctx.client.patch(
                    CONFIG_MAPS,
                    config.name,
                    {"data": {"running": running}},
                    namespace=config.namespace,
                )
                self.writes += 1

        self.reconciles += 1

    def wrong(self) -> list[str]:
        """The keys of the config maps that do not say what they should, sorted."""
        maps = self.maps.lister.list()
        wrong = (it for it in maps if it.at("data.running") != self._running(it.key))
        return sorted(config.key for config in wrong)

    def _running(self, key: str) -> str:
        pods = self.pods.lister.by_index("app", key)
        return str(sum(pod.at("status.phase") == "Running" for pod in pods))

    def _failed(self, failure: HandlerError) -> None:
        self.retries += 1

    def _pod_changed(self, event: Notification) -> None:
        self.pod_events += 1

    def _map_changed(self, event: Notification) -> None:
        self.map_events += 1


def app_of(pod: KubeObject) -> Iterable[str]:
    """Index function, and mapping: the key of the app that a pod belongs to."""
    app = pod.labels.get("app")
    return () if app is None else (f"{pod.namespace}/{app}",)
