"""`aioinformer demo`: informers and a small controller against a built-in server."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from aioinformer.cli.output import counted, print_text
from aioinformer.cli.running import FAILED_CHECK, pause, raise_informer_failure
from aioinformer.cli.table_frame import RateMeter
from aioinformer.cli.workload import NAMESPACES, Workload
from aioinformer.controller import Controller, Manager
from aioinformer.informer import SharedInformerFactory
from aioinformer.model.resources import CONFIG_MAPS, PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

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


# Maximum wait for the caches to catch up, which takes milliseconds on loopback.
SETTLE_SECONDS = 5.0


SETTLE_CHECKS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Options of the demo."""

    seconds: float | None = None
    """Seconds after the caches are synced. None for no end."""

    objects: int = 300
    changes_per_second: float = 50.0
    plain: bool = False
    """True for lines even on a terminal."""

    port: int | None = None
    """Port of the dashboard; 0 for any free one, None for no dashboard."""


async def demo(options: DemoOptions) -> int:
    """Run the demo. Return 0, or 1 if the caches finally differ from the server.

    Raises:
        NotSynced: If the caches are not synced within 30 s.
        InformerStopped: If an informer failed because of a bug, perhaps in a group.
        CommandError: If the port of the dashboard is in use.

    Cancellation:
        Stops it, and prints a summary without comparing the caches.
    """
    console = Console()
    async with APIServer(auto_namespaces=True) as server, server.client() as client:
        workload = Workload(
            server,
            objects=options.objects,
            changes_per_second=options.changes_per_second,
        )
        workload.populate()
        print_text(
            f"Built-in API server at {server.url}: {options.objects} objects in "
            f"{len(NAMESPACES)} namespaces, {options.changes_per_second:g} changes/s.",
        )
        counter = PodCounter(client)
        async with _dashboard(options.port, counter.manager), counter.factory:
            await counter.factory.wait_for_cache_sync(SYNC_SECONDS)
            run = _Demo(console, server, workload, counter)
            return await run.run(options)


def _dashboard(
    port: int | None, manager: Manager
) -> AbstractAsyncContextManager[object]:
    if port is None:
        return nullcontext()

    from aioinformer.cli.dashboard import serving  # loads aiohttp's server

    return serving(port, manager=manager, title="aioinformer demo")


class _Demo:
    """Workload, controller and output of one demo."""

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

    async def run(self, options: DemoOptions) -> int:
        live = self._console.is_terminal and not self._console.is_dumb_terminal
        show = self._show_table if live and not options.plain else self._show_lines
        try:
            async with asyncio.TaskGroup() as group:
                showing = group.create_task(show(), name="screen")
                changing = group.create_task(self._workload.run(), name="workload")
                working = group.create_task(
                    self._counter.manager.run(), name="controller"
                )
                failure = group.create_task(
                    raise_informer_failure(self._counter.factory), name="failure"
                )
                await pause(options.seconds)
                changing.cancel()
                await self._settle()
                # The controller is idle, or hangs, which the result shows.
                working.cancel()
                showing.cancel()
                failure.cancel()
        except asyncio.CancelledError:
            print_text(f"Interrupted after {self._done()}.")
            raise

        # The caches may not show the last writes yet.
        await self._settle()
        return self._compare()

    # ------------------------------------------------------------ showing

    async def _show_lines(self) -> None:
        while True:
            print_text(draw_line(self._frame()))
            await asyncio.sleep(LINE_SECONDS)

    async def _show_table(self) -> None:
        # Refreshed here: rich would start a thread.
        with Live(self._table(), console=self._console, auto_refresh=False) as live:
            while True:
                live.update(self._table(), refresh=True)
                await asyncio.sleep(FRAME_SECONDS)

    def _table(self) -> Table:
        # The terminal may have been resized.
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
        """Wait until the caches equal the server and all counts are right, with a limit."""
        for _ in range(SETTLE_CHECKS):
            if not self._differences():
                return

            await asyncio.sleep(SETTLE_SECONDS / SETTLE_CHECKS)

    def _differences(self) -> list[str]:
        counter = self._counter
        found = [f"{key} has a wrong count" for key in counter.wrong()]
        for resource, informer in ((PODS, counter.pods), (CONFIG_MAPS, counter.maps)):
            served = self._server.objects(resource)
            found += differences(served, informer.lister.list())

        return found

    def _compare(self) -> int:
        counter = self._counter
        found = self._differences()
        print_text(f"Ended after {self._done()}.")
        print_text(
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
    served: Iterable[Mapping[str, Any]], cached: Iterable[KubeObject]
) -> list[str]:
    """Compare a cache with the server.

    Args:
        served: Objects of the server.
        cached: Objects of the cache.

    Returns:
        Description of each difference, ordered by key.
    """
    on_server = {_key(body): body for body in served}
    in_cache = {obj.key: obj for obj in cached}
    found = {key: f"{key} is missing" for key in on_server.keys() - in_cache.keys()}
    found |= {key: f"{key} is extra" for key in in_cache.keys() - on_server.keys()}
    found |= {
        key: f"{key} is different"
        for key in on_server.keys() & in_cache.keys()
        if in_cache[key].to_dict() != on_server[key]
    }
    return [found[key] for key in sorted(found)]


def _key(body: Mapping[str, Any]) -> str:
    metadata = body["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


# Number of differences that are listed. Others are counted.
LISTED_DIFFERENCES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class InformerRow:
    """State of one informer."""

    name: str
    phase: str
    objects: int
    events: int
    """Notifications so far."""

    rate: float
    """Notifications per second."""

    age: float | None
    """Seconds since the last contact with the server. None if there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoState:
    """State of the demo."""

    seconds: float
    """Seconds since the caches were synced."""

    rows: tuple[InformerRow, ...]
    changes: int
    """Changes made by the workload."""

    depth: int
    """Requests in the work queue."""

    reconciles: int
    reconcile_rate: float
    writes: int
    retries: int


def draw_line(frame: DemoState) -> str:
    """Return the state as one line."""
    parts = [f"{frame.seconds:5.1f} s"]
    parts += [
        f"{row.name} {row.objects} ({counted(round(row.rate), 'event')}/s, {row.phase}, "
        f"age {_age(row.age)})"
        for row in frame.rows
    ]
    parts.append(f"queue {frame.depth}")
    parts.append(f"reconciles {frame.reconciles} ({frame.reconcile_rate:.0f}/s)")
    parts.append(f"retries {frame.retries}")
    return "  ".join(parts)


def draw_table(frame: DemoState, *, width: int) -> Table:
    """Return the state as a table, without less important columns on narrow terminals.

    Args:
        frame: State to show.
        width: Width of the terminal, in cells.
    """
    table = Table(
        title=f"aioinformer demo, {frame.seconds:.0f} s",
        title_justify="left",
        caption=(
            f"{frame.changes} changes on the server, queue {frame.depth}, "
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


# Minimum widths of the columns, so that they do not jump, in display order.
_WIDTHS = {
    "informer": 10,
    "phase": 11,
    "objects": 8,
    "events": 8,
    "events/s": 8,
    "age": 8,
}


_LEFT = {"informer", "phase"}


# Columns by importance. On a narrow terminal the last ones are left out.
_IMPORTANCE = ("informer", "objects", "phase", "age", "events/s", "events")


# A blank on each side, and a border.
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
    """Return the columns that fit, at least one, in order of display."""
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
    """Return the result of the final comparison as one line.

    Args:
        found: Descriptions of differences.
        pods: Number of pods in the cache.
        apps: Number of config maps in the cache.
    """
    if not found:
        return (
            f"The caches equal the server: {pods} pods, {apps} config maps, all counts "
            "correct."
        )

    more = (
        f" and {len(found) - LISTED_DIFFERENCES} more"
        if len(found) > LISTED_DIFFERENCES
        else ""
    )
    return f"Differences: {', '.join(found[:LISTED_DIFFERENCES])}{more}."


def _age(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f} s"


class PodCounter:
    """Controller that writes the number of an app's running pods to its config map.

    `factory` and `manager` run it. If the factory is entered first, its caches can be
    read after the manager has ended.

    Args:
        client: Client that reads and writes.
    """

    def __init__(self, client: Client) -> None:
        self.factory: SharedInformerFactory = SharedInformerFactory(client)
        self.manager: Manager = Manager(client, factory=self.factory)
        self.pods: SharedInformer = self.manager.informer(
            PODS, indexers={"app": app_of}
        )
        self.maps: SharedInformer = self.manager.informer(CONFIG_MAPS)
        self.controller: Controller = Controller(
            "apps",
            self.reconcile,
            for_=self.maps,
            watches=[(self.pods, app_of)],
            on_error=self._failed,
        )
        self.manager.add(self.controller)
        self.pod_events: int = 0
        self.map_events: int = 0
        self.reconciles: int = 0
        self.writes: int = 0
        self.retries: int = 0
        self.pods.on_event(self._pod_changed)
        self.maps.on_event(self._map_changed)

    async def reconcile(self, request: ReconcileRequest, ctx: Context) -> None:
        """Write the number of running pods to one config map, if it differs.

        Args:
            request: Name of the config map and app.
            ctx: Context of the reconcile.

        Raises:
            ApiError: If the server refused the write.
            TransportError: If the network failed.
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
        """Return the keys of config maps with a wrong count, sorted."""
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
    """Return the key of a pod's app. Used as index function and mapping."""
    app = pod.labels.get("app")
    return () if app is None else (f"{pod.namespace}/{app}",)
