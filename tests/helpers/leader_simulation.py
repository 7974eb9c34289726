"""A simulated cluster for leader election: processes with clocks, a network, a server.

Each process has its own event loop, so that it can be frozen as by SIGSTOP: time passes for
the others, and its requests travel on. When it continues, its timers are due and its
responses are there. Everything above the requests is real: the electors, their locks,
asyncio.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
import selectors
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from aioinformer import KubeObject
from aioinformer.errors import AlreadyExists, Conflict, NotFound, ServerError
from aioinformer.model.times import micro_time

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioinformer import Resource

T = TypeVar("T")

_NEVER = 1e9
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class _Idle(selectors.SelectSelector):
    """A selector that never waits: it stops the loop, and returns the next deadline."""

    def __init__(self) -> None:
        super().__init__()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.idle = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None or timeout > 0:
            assert self.loop is not None
            self.idle = _NEVER if timeout is None else timeout
            self.loop.stop()

        return []


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, world: World, offset: float) -> None:
        self._world = world
        self._offset = offset
        self.selector = _Idle()
        super().__init__(self.selector)
        self.selector.loop = self

    def time(self) -> float:
        return self._world.now + self._offset


class Process:
    """One replica: a loop with its own clock, and a wrong time of day."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.skew = world.rng.uniform(-1e6, 1e6)
        self.loop = _Loop(world, world.rng.uniform(0, 1e5))
        self.wakes = 0.0
        self.frozen_until = 0.0
        self.cut_until = 0.0
        self.slow_until = 0.0
        self.leads: Callable[[], bool] = lambda: False
        self._main: asyncio.Task[None] | None = None

    @property
    def due(self) -> float:
        return max(self.wakes, self.frozen_until)

    def start(self, life: Coroutine[Any, Any, None]) -> None:
        self._main = self.loop.create_task(life)

    def run(self) -> None:
        """Run until it waits for something."""
        self.loop.selector.idle = 0.0
        self.loop.run_forever()
        self.wakes = self.world.now + self.loop.selector.idle
        assert self._main is not None
        if self._main.done():
            self._main.result()

    def freeze(self, seconds: float) -> None:
        """Freeze it, from now on, or from the end of the current step on."""
        self.frozen_until = max(self.frozen_until, self.world.now + seconds)
        self.loop.stop()

    def post(self, call: Callable[[], None]) -> None:
        """Deliver network data, which is seen when the process is not frozen."""
        self.loop.call_soon(call)
        self.wakes = self.world.now

    def end(self) -> None:
        assert self._main is not None
        self._main.cancel()
        everything = asyncio.all_tasks(self.loop)
        for _ in range(50):
            for task in everything:
                task.cancel()

            self.loop.run_forever()

        self.loop.close()


@dataclass
class Weather:
    """The failures of a day, and their extent."""

    pause: tuple[float, float]
    """Minimum and maximum pause of a process, in seconds."""
    calm: float
    """Average seconds between two pauses of a process."""
    behind_check: float
    """Share of writes right before which the process is frozen."""
    latency: float
    """Maximum seconds for a request to arrive, or for its response to come back."""
    lost: float = 0.02
    """Share of lost requests, and of lost responses."""
    refused: float = 0.02
    """Share of requests that the server refuses."""
    outage: tuple[float, float] = (0.0, 300.0)
    """Seconds of an outage of the server, about once an hour."""
    cut: tuple[float, float] = (0.0, 400.0)
    """Seconds without responses about the Lease to one process, about once an hour."""
    slow: tuple[float, float] = (0.0, 0.0)
    """Additional seconds of requests about the Lease, for a while, in one direction."""
    spell: float = 1800.0
    """Maximum seconds of slow requests of one process, about once an hour."""


@dataclass
class Report:
    """Statistics of a day."""

    pauses: list[float] = field(default_factory=list)
    # Holders and times of acquisitions. For expired leases, the time since the arrival
    # of the last write of the previous holder.
    acquired: list[tuple[float, str]] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    # Maximum number of writes in a row that renewed a Lease for a holder that did not
    # lead.
    unled: int = 0
    # Of writes: time, author, and whether another one had acquired before the arrival.
    arrived: list[tuple[float, str, bool]] = field(default_factory=list)
    # Seconds to its own deadline when each write passed the guard.
    passed: list[float] = field(default_factory=list)
    refused: int = 0
    lost: int = 0
    requests: int = 0

    @property
    def overtaken(self) -> int:
        return sum(late for _, _, late in self.arrived)


class World:
    """Time, the network, and the server with its one Lease."""

    def __init__(self, seed: int, weather: Weather) -> None:
        self.rng = random.Random(seed)
        self.weather = weather
        self.report = Report()
        self.now = 0.0
        self.processes: list[Process] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._away_until = 0.0
        self.lease: dict[str, Any] | None = None
        self._version = 0
        self._last_write: dict[str, float] = {}
        # Time of the last write of the Lease, and number of useless ones in a row.
        self._renewed = -1e9
        self._unled = 0

    def at(self, time: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), call))

    def run(self, seconds: float) -> None:
        self._later(3600, self._outage)
        for process in self.processes:
            self._later(self.weather.calm, partial(self._pause, process))
            self._later(3600, partial(self._cut, process))
            if self.weather.slow[1]:
                self._later(3600, partial(self._slow, process))

        while True:
            first = min(self.processes, key=lambda it: it.due)
            event = self._events[0][0] if self._events else seconds
            self.now = max(self.now, min(first.due, event, seconds))
            if self.now >= seconds:
                return

            if event <= self.now:
                heapq.heappop(self._events)[2]()
            else:
                first.run()

    # ------------------------------------------------------------ what goes wrong

    def _later(self, mean: float, call: Callable[[], None]) -> None:
        self.at(self.now + self.rng.expovariate(1 / mean), call)

    def _pause(self, process: Process) -> None:
        process.freeze(self.draw_pause())
        self._later(self.weather.calm, partial(self._pause, process))

    def draw_pause(self) -> float:
        seconds = self.rng.uniform(*self.weather.pause)
        self.report.pauses.append(seconds)
        return seconds

    def _outage(self) -> None:
        self._away_until = self.now + self.rng.uniform(*self.weather.outage)
        self._later(3600, self._outage)

    def _cut(self, process: Process) -> None:
        process.cut_until = self.now + self.rng.uniform(*self.weather.cut)
        self._later(3600, partial(self._cut, process))

    def _slow(self, process: Process) -> None:
        process.slow_until = self.now + self.rng.uniform(0, self.weather.spell)
        self._later(3600, partial(self._slow, process))

    # ------------------------------------------------------------ the network

    async def request(
        self,
        process: Process,
        act: Callable[[], T],
        *,
        held: float = 0.0,
        late: float = 0.0,
    ) -> T:
        """Send a request, `held` seconds from now; it may hang forever.

        The response is sent `late` seconds after the arrival of the request.
        """
        answer = process.loop.create_future()
        self.report.requests += 1
        draw = self.rng.random
        weather = self.weather

        def arrive() -> None:
            result: Any = None
            error: Exception | None = None
            if self.now < self._away_until or draw() < weather.refused:
                error = ServerError("away", status=503)
            else:
                try:
                    result = act()
                except (Conflict, NotFound) as exc:
                    error = exc

            if draw() >= weather.lost:
                back = self.now + late + draw() * weather.latency
                self.at(back, lambda: process.post(lambda: tell(result, error)))

        def tell(result: Any, error: Exception | None) -> None:
            if answer.done():
                return

            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)

        if draw() >= weather.lost:
            self.at(self.now + held + draw() * weather.latency, arrive)

        return await answer  # type: ignore[no-any-return]

    # ------------------------------------------------------------ the server

    def put_lease(self, body: dict[str, Any] | None, spec: dict[str, Any]) -> bytes:
        """Create the Lease, or replace the version in the body."""
        before = self.lease
        if body is None and before is not None:
            raise AlreadyExists("it is there", status=409)

        if body is not None:
            assert before is not None  # nothing deletes it
            version = before["metadata"]["resourceVersion"]
            if body["metadata"]["resourceVersion"] != version:
                raise Conflict("it was changed", status=409)

        self._version += 1
        metadata = {
            "name": "day",
            "namespace": "default",
            "uid": "u",
            "resourceVersion": str(self._version),
        }
        self.lease = {"metadata": metadata, "spec": spec}
        last = before["spec"]["holderIdentity"] if before else ""
        self._note_holder(last, spec)
        self._note_unled(last, spec)
        return self.read_lease()

    def read_lease(self) -> bytes:
        if self.lease is None:
            raise NotFound("there is none", status=404)

        return orjson.dumps(self.lease)

    def _note_holder(self, before: str, spec: dict[str, Any]) -> None:
        holder = spec["holderIdentity"]
        if holder in {"", before}:
            return

        others = [at for who, at in self._last_write.items() if who != holder]
        if before and others:
            self.report.margins.append(self.now - max(others))

        self.report.acquired.append((self.now, holder))

    def _note_unled(self, before: str, spec: dict[str, Any]) -> None:
        """Count the writes that keep a Lease from others while nobody leads."""
        holder = spec["holderIdentity"]
        alive = self.now - self._renewed < spec["leaseDurationSeconds"]
        leads = any(it.leads() for it in self.processes if it.name == holder)
        again = holder == before and alive and not leads
        self._unled = self._unled + 1 if again else 0
        self._renewed = self.now
        self.report.unled = max(self.report.unled, self._unled)

    def write(self, author: str) -> None:
        """Record the arrival of a leader's write."""
        late = self.report.acquired[-1][1] != author
        self.report.arrived.append((self.now, author, late))
        self._last_write[author] = self.now


class SimulatedClient:
    """The client of a `LeaseLock`, through the network of a world."""

    namespace = "default"

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world
        # The time at which the last successful claim was sent.
        self.renewed = -1e9

    async def get(
        self, resource: Resource, name: str, *, namespace: str | None = None
    ) -> KubeObject:
        return KubeObject.of(await self._ask(self._world.read_lease))

    async def create(
        self, resource: Resource, body: Any, *, namespace: str | None = None
    ) -> KubeObject:
        return await self._put(None, body["spec"])

    async def update(
        self, resource: Resource, body: Any, *, namespace: str | None = None
    ) -> KubeObject:
        return await self._put(body, body["spec"])

    async def _put(self, body: Any, spec: dict[str, Any]) -> KubeObject:
        world, sent = self._world, self._world.now
        # The time of day of this machine.
        wall = EPOCH + timedelta(seconds=sent + self._process.skew)
        spec = spec | {"renewTime": micro_time(wall)}
        answer = await self._ask(lambda: world.put_lease(body, spec))
        if spec["holderIdentity"]:
            self.renewed = sent

        return KubeObject.of(answer)

    async def _ask(self, act: Callable[[], bytes]) -> bytes:
        if self._world.now < self._process.cut_until:
            await asyncio.Event().wait()

        world, held, late = self._world, 0.0, 0.0
        if world.now < self._process.slow_until:
            held = world.rng.uniform(*world.weather.slow)
            if world.rng.random() < 0.5:
                held, late = 0.0, held

        return await world.request(self._process, act, held=held, late=late)
