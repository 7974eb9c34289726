"""`SimulatedClient`: a client whose requests may be late, lost, refused, or the last ones."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from multidict import CIMultiDict

from aioinformer.client import Client
from aioinformer.client.config import ClientConfig
from aioinformer.client.error_mapping import api_error
from aioinformer.errors import ApiError, DecodeError, TransportError
from aioinformer.model.objects import KubeObject
from aioinformer.testing.simulation.loop import PROGRAM

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
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
    """What a client needs of the simulation."""

    def place(self, what: str, verb: str) -> Place:
        """Return the next place of a kind."""

    def exchange(
        self, request: Request, headers: dict[str, str]
    ) -> Coroutine[Any, Any, MemoryResponse]:
        """Send a request to the server, in the context of the cluster."""

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
        self._responses: set[_Response] = set()

    def __repr__(self) -> str:
        return f"<Client {_SERVER} {'' if self.entered else 'not '}entered>"

    def set_metrics(self, sink: MetricsSink) -> None:
        """Ignore a sink: requests take no real time."""

    async def start(self) -> None:
        """Enter."""
        self.entered = True

    async def close(self) -> None:
        """Leave, and end all responses."""
        self.entered = False
        for response in list(self._responses):
            response.close()

    async def send(self, request: Request, *, repeat: bool = False) -> _Response:
        """Send a request, and wait for the head of its response.

        Raises:
            ApiError: If the server refused, or a fault did.
            TransportError: If the program is cut off, or a fault says so.
        """
        del repeat
        network = self._network
        verb, what = _described(request)
        place = network.place(what, verb)
        rng, fault = place.rng, place.fault
        kind = "" if fault is None else fault.kind
        await asyncio.sleep(rng.expovariate(1 / 0.01))
        if kind == "partition" and fault is not None:
            network.partition(fault.seconds)

        if network.cut_off():
            await asyncio.sleep(min(network.cut_off(), self.config.head_seconds))
            raise TransportError(f"{_SERVER} did not respond: {what}")

        if kind == "kill before" and fault is not None:
            network.kill(fault.seconds)
            await _forever()

        if kind in {"delay", "lose request"} and fault is not None:
            await asyncio.sleep(fault.seconds)
            if kind == "lose request":
                raise TransportError(f"{_SERVER} closed the connection: {what}")

        if kind == "refuse" and fault is not None:
            refusable = request.method in {"PUT", "PATCH"} or fault.status != 409
            status = fault.status if refusable else 503
            raise ApiError.from_status({"message": "simulated fault"}, code=status)

        if request.fence is not None:
            request.fence()

        headers = {"Accept": request.accept or "application/json"}
        if request.body is not None:
            headers["Content-Type"] = request.content_type

        if request.etag:
            headers["If-None-Match"] = request.etag

        opened = await network.exchange(request, headers)
        response = _Response(self, opened, self._network, what)
        await response.open()
        network.note(f"{what} -> {response.status}")
        if kind == "kill after" and fault is not None:
            network.kill(fault.seconds)
            await _forever()

        if kind == "lose response" and fault is not None:
            response.close()
            await asyncio.sleep(fault.seconds)
            raise TransportError(f"{_SERVER} closed the connection: {what}")

        await asyncio.sleep(rng.expovariate(1 / 0.005))
        if not (200 <= response.status < 300 or response.status == 304):
            body = await response.read()
            error = api_error(
                response.status, "", CIMultiDict(response.headers), body, _SERVER
            )
            raise error

        self._responses.add(response)
        return response

    @asynccontextmanager
    async def stream(
        self, request: Request, *, repeat: bool = False
    ) -> AsyncIterator[_Response]:
        """Send a request for one block."""
        response = await self.send(request, repeat=repeat)
        try:
            yield response
        finally:
            self._responses.discard(response)
            response.close()

    def object_in(self, body: bytes, request: Request) -> KubeObject:
        """Return the object in the body of a response.

        Raises:
            DecodeError: If it is no object.
        """
        try:
            return KubeObject.of(body)
        except DecodeError as exc:
            raise DecodeError(f"invalid object for {request.path}: {exc}") from exc


class _Response:
    """Response of the simulated server, as `client.response.Response`."""

    def __init__(
        self, endpoint: _Endpoint, opened: MemoryResponse, network: Network, what: str
    ) -> None:
        self._endpoint = endpoint
        self._opened = opened
        self._network = network
        self._what = what
        self._closed = False
        self.status = 0
        self.headers: dict[str, str] = {}

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
        self.headers = {**head.headers, "Content-Type": head.content_type}

    async def read_some(self, limit: int = 0, *, patient: bool = False) -> bytes:
        """Wait for the next bytes; empty at the end.

        Raises:
            TransportError: If the connection broke, or a fault cut it.
        """
        del limit
        try:
            piece = await self._opened.read()
        except ConnectionError as exc:
            raise TransportError(f"{_SERVER} {exc}") from exc

        if patient and piece:
            await self._delayed()

        if self._closed:
            raise TransportError(f"{_SERVER} was closed during the request")

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
            self._opened.close()

    async def _delayed(self) -> None:
        """Let events arrive late, or not at all."""
        network = self._network
        place = network.place(f"events of {self._what}", "events")
        await asyncio.sleep(place.rng.expovariate(1 / 0.01))
        if network.cut_off():
            await asyncio.sleep(network.cut_off())
            raise TransportError(f"{_SERVER} closed the connection")

        fault = place.fault
        if fault is None:
            return

        if fault.kind == "cut":
            raise TransportError(f"{_SERVER} closed the connection")

        program = PROGRAM.get()
        if program is not None:
            program.late[self] = asyncio.get_running_loop().time()

        await asyncio.sleep(fault.seconds)
        if program is not None:
            program.late.pop(self, None)

        if fault.kind == "skip":
            network.forget_history()
            raise TransportError(f"{_SERVER} closed the connection")


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
        verb = {
            "POST": "create",
            "PUT": "update",
            "PATCH": "patch",
            "DELETE": "delete",
        }[request.method]

    full = f"{resource}/{sub}" if sub else resource
    return verb, f"{verb} {full} {namespace}{name}".rstrip()


async def _forever() -> None:
    await asyncio.get_running_loop().create_future()
