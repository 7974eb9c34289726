"""`SimulatedClient`: a client whose requests may be late, lost, refused, or the last ones."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from multidict import CIMultiDict

from aioinformer.client import Client
from aioinformer.client.config import ClientConfig
from aioinformer.client.error_mapping import api_error
from aioinformer.errors import ApiError, OptionsError, TransportError
from aioinformer.testing.simulation.loop import PROGRAM

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from random import Random

    from aioinformer.client.verbs import Request
    from aioinformer.metrics import MetricsSink
    from aioinformer.testing.simulation.schedule import Fault
    from aioinformer_apiserver import MemoryResponse

__all__ = ["Network", "Place", "SimulatedClient"]

_SERVER = "http://simulated"


class Place(Protocol):
    """Place of a request or of events, at which a fault may strike."""

    text: str
    rng: Random
    fault: Fault | None


class Network(Protocol):
    """Part of the simulation that a client needs."""

    def place(self, what: str, verb: str) -> Place:
        """Return the next place of a kind."""

    def exchange(
        self, request: Request, headers: dict[str, str]
    ) -> Coroutine[Any, Any, MemoryResponse]:
        """Send a request to the server, in the context of the cluster."""

    async def pause(self, seconds: float) -> None:
        """Wait, but not into the quiet phase."""

    @property
    def quiet(self) -> bool:
        """True once no faults may strike any more."""

    def on_quiet(self, call: Callable[[], None]) -> None:
        """Call a function when the quiet phase begins."""

    def spawn(self, request: Request, headers: dict[str, str], delay: float) -> None:
        """Send a request whose response nobody waits for, after a delay."""

    def kill(self, seconds: float) -> None:
        """Kill the program that runs, and start it again later."""

    def partition(self, seconds: float) -> None:
        """Cut the program that runs off."""

    def cut_off(self) -> float:
        """Return the seconds for which the program that runs stays cut off."""

    def forget_history(self) -> None:
        """Make the server answer 410 to watches of earlier versions."""

    def note(self, text: str) -> None:
        """Add a line to the history."""


class SimulatedClient(Client):
    """Client of the simulated cluster.

    Args:
        network: The simulation.
        namespace: Namespace of the program.
    """

    def __init__(self, network: Network, namespace: str = "default") -> None:
        config = ClientConfig(server=_SERVER, namespace=namespace)
        super().__init__(config)
        self._endpoint: Any = _Endpoint(network, config)


class _Endpoint:
    """Endpoint of a `SimulatedClient`, in the place of `client.endpoint.Endpoint`."""

    def __init__(self, network: Network, config: ClientConfig) -> None:
        self._network = network
        self.config = config
        self.entered = False
        # A dictionary, as the order of a set is not that of the seed.
        self._responses: dict[_Response, None] = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"<Client {_SERVER} {'' if self.entered else 'not '}entered>"

    def set_metrics(self, sink: MetricsSink) -> None:
        """Ignore a sink: requests take no real time."""

    async def start(self) -> None:
        """Enter."""
        self.entered, self._closed = True, False

    async def close(self) -> None:
        """Leave, and end all responses."""
        self.entered, self._closed = False, True
        for response in list(self._responses):
            response.close()

    async def send(self, request: Request, *, repeat: bool = False) -> _Response:
        """Send a request, and wait for the head of its response.

        Raises:
            ApiError: If the server refused, or a fault did.
            TransportError: If the program is cut off, or a fault says so.
        """
        del repeat
        if self._closed:
            raise TransportError(f"the client of {_SERVER} was closed: enter it again")

        if not self.entered:
            raise OptionsError("this client is not entered: use `async with client:`")

        network = self._network
        verb, what = _described(request)
        place = network.place(what, verb)
        rng, fault = place.rng, place.fault
        kind, seconds = ("", 0.0) if fault is None else (fault.kind, fault.seconds)
        await asyncio.sleep(rng.expovariate(1 / 0.01))
        if kind == "partition":
            network.partition(seconds)

        await self._check_cut_off(what)
        if kind == "kill before":
            network.kill(seconds)
            await _forever()

        if kind in {"delay", "lose request"}:
            await network.pause(seconds)
            await self._check_cut_off(what)
            if kind == "lose request":
                raise TransportError(f"{_SERVER} closed the connection: {what}")

        if kind == "refuse" and fault is not None:
            message = {"message": "simulated fault"}
            raise ApiError.from_status(message, code=fault.status)

        if request.fence is not None:
            request.fence()

        headers = {"Accept": request.accept or "application/json"}
        if request.body is not None:
            headers["Content-Type"] = request.content_type

        if request.etag:
            headers["If-None-Match"] = request.etag

        if kind == "late":
            # A fenced request is dropped if it is under way for longer.
            after = rng.uniform(0.1, 1.9) + (0.0 if request.fence else seconds)
            network.spawn(request, headers, after)
            await network.pause(seconds)
            raise TransportError(f"{_SERVER} closed the connection: {what}")

        opened = await network.exchange(request, headers)
        response = _Response(opened, self._network, what)
        await response.open()
        network.note(f"{what} -> {response.status}")
        if kind == "kill after":
            network.kill(seconds)
            await _forever()

        try:
            if kind == "lose response":
                await network.pause(seconds)
                raise TransportError(f"{_SERVER} closed the connection: {what}")

            await self._check_cut_off(what)
            await asyncio.sleep(rng.expovariate(1 / 0.005))
            if not (200 <= response.status < 300 or response.status == 304):
                body = await response.read()
                raise api_error(
                    response.status, "", CIMultiDict(response.headers), body, _SERVER
                )
        except BaseException:
            response.close()
            raise

        self._responses[response] = None
        return response

    async def _check_cut_off(self, what: str) -> None:
        """Raise `TransportError` if the program is cut off, after a while."""
        if seconds := self._network.cut_off():
            await self._network.pause(min(seconds, self.config.head_seconds))
            raise TransportError(f"{_SERVER} did not respond: {what}")

    @asynccontextmanager
    async def stream(
        self, request: Request, *, repeat: bool = False
    ) -> AsyncIterator[_Response]:
        """Send a request for one block."""
        response = await self.send(request, repeat=repeat)
        try:
            yield response
        finally:
            self._responses.pop(response, None)
            response.close()


class _Response:
    """Response of the simulated server, as `client.response.Response`."""

    def __init__(self, opened: MemoryResponse, network: Network, what: str) -> None:
        self._opened = opened
        self._network = network
        self._what = what
        self._closed = False
        # Events that have arrived, the time at which they are handed out, and the error
        # in their place. A cancelled read must not lose them.
        self._pending: tuple[bytes, float, str] | None = None
        # Events that have arrived, too, and are handed out after those.
        self._rest = b""
        # Set if what is pending has to be handed out at once.
        self._hurry = asyncio.Event()
        self.status = 0
        self.headers: CIMultiDict[str] = CIMultiDict()

    async def open(self) -> None:
        """Wait for the head.

        Raises:
            TransportError: If the connection broke.
        """
        try:
            head = await self._opened.head()
        except ConnectionError as exc:
            raise TransportError(f"{_SERVER} {exc}") from exc

        self.status = head.status
        self.headers = CIMultiDict(head.headers)
        self.headers["Content-Type"] = head.content_type

    async def read_some(self, limit: int = 0, *, patient: bool = False) -> bytes:
        """Wait for the next bytes; empty at the end.

        Raises:
            TransportError: If the connection broke, or a fault cut it.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        del limit
        if self._pending is None:
            piece, self._rest = self._rest, b""
            try:
                piece = piece or await self._opened.read()
            except ConnectionError as exc:
                raise TransportError(f"{_SERVER} {exc}") from exc

            if not piece:
                return b""

            if patient:
                self._pending = self._events(piece)
            else:
                self._pending = (piece, *self._cut_off())

        piece, due, error = self._pending
        await self._until(due)
        if self._closed:
            raise TransportError(f"{_SERVER} was closed during the request")

        self._pending = None
        if error and not self._network.quiet:
            if error == "skip":
                self._network.forget_history()

            raise TransportError(f"{_SERVER} closed the connection")

        return piece

    async def read_view(self) -> memoryview:
        """Read like `read_some()`."""
        return memoryview(await self.read_some())

    async def read(self, *, discard: bool = False) -> bytes:
        """Read to the end. Raises `TransportError` like `read_some()`."""
        pieces = []
        while piece := await self.read_some():
            pieces.append(b"" if discard else piece)

        return b"".join(pieces)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if not self._closed:
            self._closed = True
            self._hurry.set()
            self._opened.close()

    def _cut_off(self) -> tuple[float, str]:
        now, seconds = asyncio.get_running_loop().time(), self._network.cut_off()
        return (now + seconds, "cut") if seconds else (now, "")

    def _events(self, piece: bytes) -> tuple[bytes, float, str]:
        """Return the events to hand out, the time for that, and the error in their place.

        Of several that have arrived, some may stay behind: the program sees a state, and
        not the one after it.
        """
        place = self._network.place(f"events of {self._what}", "events")
        due, error = self._cut_off()
        due += place.rng.expovariate(1 / 0.01)
        fault = place.fault
        if fault is not None and not error:
            if fault.kind != "cut":
                due += fault.seconds

            error = "" if fault.kind == "stale" else fault.kind

        lines = piece.split(b"\n")  # the last one is the rest of an event, or empty
        if len(lines) > 2 and not self._network.quiet:
            first = place.rng.randint(1, len(lines) - 1)
            piece = b"\n".join([*lines[:first], b""])
            self._rest = b"\n".join(lines[first:])

        return piece, due, error

    async def _until(self, due: float) -> None:
        """Wait until a time, the close of the connection, or the quiet phase."""
        loop, program = asyncio.get_running_loop(), PROGRAM.get()
        if due <= loop.time():
            return

        if program is not None:
            program.late.setdefault(self, loop.time())

        self._network.on_quiet(self._hurry.set)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await self._hurry.wait()

        if program is not None:
            program.late.pop(self, None)


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def _described(request: Request) -> tuple[str, str]:
    """Return the verb of a request, and what it is about."""
    parts = request.path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if len(parts) >= 3 and parts[0] == "namespaces":
        namespace, parts = f"{parts[1]}/", parts[2:]

    resource, name = (*parts, "", "")[:2]
    sub = "/".join(parts[2:])
    if request.method == "GET":
        verb = "get" if name else "list"
        if request.params.get("watch"):
            verb = "watch"
    else:
        verb = _VERBS.get(request.method, request.method.lower())

    full = f"{resource}/{sub}" if sub else resource
    return verb, f"{verb} {full} {namespace}{name}".rstrip()


async def _forever() -> None:
    await asyncio.get_running_loop().create_future()
