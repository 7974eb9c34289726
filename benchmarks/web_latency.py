"""Latency of a web app while informers work in its event loop.

A client sends a small request every 2 ms: while nothing else happens, while 100,000 pods
are listed, and while 2,000 changes per second arrive, each in a chunk of its own. The pods
are those of one informer, or of ten with a tenth each. In one case, the app serves its
dashboard to five pages, with the overview and a table of all pods each, and gets 1,000
changes per second.

App, client and API server are separate processes. The app has a core of its own; client and
server share the others, on two cores a single one. If the server delays the client there,
that counts as the app's latency, so the real latency is lower.

The app has been running for a while: the garbage collector has traversed all modules once.
That blocks any program of this size for some 20 ms at some moment of its first minutes,
with or without informers. It is reported separately.

    python benchmarks/web_latency.py [--quick] [--rounds N] [--json]
"""

from __future__ import annotations

import sys
import time
import urllib.request
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from bench.alone import companion, reserved_core
from bench.canned_server import Changes, canned_server
from bench.corpus import encoded_pods
from bench.digest import digest_of_server
from bench.figures import OURS, median, percentile
from bench.script import Options, run
from bench.web_app import run_app
from bench.web_client import Request, keep_reading, keep_requesting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from bench.figures import Figure

BENCHMARK = "web_latency"
EVERY_SECONDS = 0.002
WARM_UP_SECONDS = 0.5
CALM_SECONDS = 0.1
EVENTS_A_SECOND = 2_000.0
PERCENTILES = {"p50": 0.5, "p99": 0.99, "worst": 1.0}


@dataclass(frozen=True, kw_only=True)
class App:
    """Measured app.

    Attributes:
        server: Web server of the app.
        informers: Number of informers.
        frozen: True to call `gc.freeze()` before the informers start, so that the collector
            does not traverse the modules again.
        loop: Module of the event loop: "asyncio", "uvloop".
        pages: Number of pages that show its dashboard.
        rate: Changes per second.
    """

    server: str
    informers: int
    frozen: bool = False
    loop: str = "asyncio"
    pages: int = 0
    rate: float = EVENTS_A_SECOND

    @property
    def contestant(self) -> str:
        """Return the name of the contestant in the table."""
        if self.pages:
            return f"{OURS}, with its dashboard"

        return f"{OURS}, after gc.freeze()" if self.frozen else OURS

    def case(self, size: int, phase: str) -> str:
        """Return the name of the case in the table."""
        what = {
            "collected": "the first full garbage collection",
            "idle": "idle",
            "synced": f"{size:,} pods synced",
            "watched": f"{self.rate:,.0f} events/s",
        }[phase]
        many = f"{self.informers} informer{'s' if self.informers > 1 else ''}"
        shown = f", {self.pages} pages open" if self.pages else ""
        return f"{self.server}, {what}, {many}{shown}"


APPS = [
    App(server=server, informers=informers, frozen=frozen)
    for server in ("aiohttp", "uvicorn")
    for informers in (1, 10)
    for frozen in (False, True)
]
SHOWN = App(server="aiohttp", informers=1, pages=5, rate=1_000.0)
QUICK_APPS = [APPS[0], APPS[-1], SHOWN]
"""Every variant at least once."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Amount of work, over all informers.

    Attributes:
        pods: Number of listed pods.
        events: Number of changes.
        rest_seconds: Duration without work.
    """

    pods: int
    events: int
    rest_seconds: float


FULL = Sizes(pods=100_000, events=10_000, rest_seconds=3.0)
QUICK = Sizes(pods=2_000, events=500, rest_seconds=0.3)


@dataclass(kw_only=True)
class Outcome:
    """Results of one app, by phase."""

    latencies: dict[str, list[list[float]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    pods_a_second: list[float] = field(default_factory=list)
    first_collections: list[float] = field(default_factory=list)


def measure(options: Options) -> Iterator[Figure]:
    apps, sizes = (QUICK_APPS, QUICK) if options.quick else ([*APPS, SHOWN], FULL)
    yield from measured(apps, sizes, options.rounds)


def measured(apps: list[App], sizes: Sizes, rounds: int) -> Iterator[Figure]:
    """Yield the figures of apps, which take turns."""
    pods = encoded_pods(sizes.pods)
    outcomes = {app: Outcome() for app in apps}
    with reserved_core() as (core, note):
        for number in range(rounds):
            for app, outcome in outcomes.items():
                print(f"{app}, run {number + 1}", file=sys.stderr)
                _run(app, pods[:: app.informers], sizes, core, outcome)

    for app, outcome in outcomes.items():
        for figure in _figures(app, sizes, outcome):
            yield msgspec.structs.replace(figure, note=note)


def _figures(app: App, sizes: Sizes, outcome: Outcome) -> Iterator[Figure]:
    contestant = app.contestant
    case = app.case(sizes.pods, "collected")
    yield median(BENCHMARK, case, contestant, "ms", outcome.first_collections)
    for phase, runs in outcome.latencies.items():
        case = app.case(sizes.pods, phase)
        for name, share in PERCENTILES.items():
            values = [percentile(it, share) for it in runs]
            yield median(BENCHMARK, f"{case}: {name}", contestant, "ms", values)

    # The rate meanwhile, because an idle app has the best latency.
    case = app.case(sizes.pods, "synced")
    yield median(
        BENCHMARK, f"{case}: rate", contestant, "pods/s", outcome.pods_a_second
    )


# ---------------------------------------------------------------- one run


def _run(
    app: App, pods: list[bytes], sizes: Sizes, core: int | None, outcome: Outcome
) -> None:
    """Measure an app once.

    Raises:
        RuntimeError: The final state of an informer differs from the server.
    """
    changes = Changes(
        count=sizes.events // app.informers,
        rate=app.rate / app.informers,
        a_chunk=1,
    )
    with (
        canned_server(pods, changes) as url,
        companion(
            run_app, app.server, app.loop, url, app.informers, core, app.pages > 0
        ) as web,
        ExitStack() as clients,
    ):
        port = web.recv()
        if app.pages:
            clients.enter_context(companion(keep_reading, port, app.pages)).recv()

        client = clients.enter_context(companion(keep_requesting, port, EVERY_SECONDS))
        client.recv()  # its first response
        phases = _phases(app, sizes, url, web)
        client.send("end")
        requests: list[Request] = client.recv()
        web.send("digests")
        if set(web.recv()) != {digest_of_server(url)}:
            raise RuntimeError(f"{app} has another state than the server")

    for phase in ("idle", "synced", "watched"):
        begun, ended = phases[phase]
        outcome.latencies[phase].append(
            [
                it.seconds * 1000
                for it in requests
                if it.sent < ended and it.sent + it.seconds > begun
            ]
        )

    begun, ended = phases["collected"]
    outcome.first_collections.append((ended - begun) * 1000)
    begun, ended = phases["synced"]
    outcome.pods_a_second.append(len(pods) * app.informers / (ended - begun))


Span = tuple[float, float]


def _phases(app: App, sizes: Sizes, url: str, web: Connection) -> dict[str, Span]:
    """Return the time span of each phase."""
    _command(web, f"rest {WARM_UP_SECONDS}")
    phases = {"collected": _command(web, "freeze" if app.frozen else "collect")}
    _command(web, f"rest {CALM_SECONDS}")  # until delayed requests have their responses
    phases["idle"] = _command(web, f"rest {sizes.rest_seconds}")
    phases["synced"] = _command(web, "sync")
    web.send(f"watch {sizes.events}")
    began = time.monotonic()
    with urllib.request.urlopen(f"{url}/bench/go?watches={app.informers}"):
        pass

    _, ended = web.recv()
    phases["watched"] = (began, ended)
    return phases


def _command(web: Connection, command: str) -> Span:
    web.send(command)
    span: Span = web.recv()
    return span


if __name__ == "__main__":
    sys.exit(run(measure))
