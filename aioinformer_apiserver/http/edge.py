"""The edge: where HTTP ends. Requests come in as calls, answers go out as bytes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web
from multidict import CIMultiDict

from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.http.outlet import HTTPOutlet
from aioinformer_apiserver.requests.request import Call, query_of
from aioinformer_apiserver.serialization.answers import refusal

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Callable

    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http_parser import RawRequestMessage
    from aiohttp.streams import StreamReader
    from aiohttp.web_protocol import RequestHandler

    from aioinformer_apiserver.http.handlers import Handlers

__all__ = ["HTTPEdge"]

_HOST = "127.0.0.1"
# What a real server accepts at most as the body of one request.
_BODY_BYTES = 3 * 1024 * 1024
# And in each line of a head: a selector may be long.
_HEAD_BYTES = 1024 * 1024
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# How long answers may take to leave when the server stops; a client that does not read
# would otherwise hold it up for ever.
_STOP_SECONDS = 1.0


class HTTPEdge:
    """Listens on the loopback interface, and lets `handlers` answer.

    Args:
        handlers: Answer the requests.
        port: Where to listen; 0 for any free port.

    Attributes:
        port: Where it listens; 0 before it has ever done so.
    """

    def __init__(self, handlers: Handlers, *, port: int) -> None:
        self.port = port
        self._handlers = handlers
        # By identity, because requests are mappings and so have no hash.
        self._busy: dict[int, web.BaseRequest] = {}
        self._idle: asyncio.Event | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{_HOST}:{self.port}"

    async def run(self, ready: Callable[[], None]) -> None:
        """Listen until cancelled, on the same port as the last time.

        Args:
            ready: Is called when requests are answered.

        Raises:
            OSError: If the port is taken.

        Cancellation:
            Ends all watches cleanly and closes all connections, in a second or two.
        """
        self._handlers.open()
        server = web.Server(
            self._serve,
            request_factory=_request_of,
            handler_cancellation=True,
            access_log=None,
            max_line_size=_HEAD_BYTES,
            max_field_size=_HEAD_BYTES,
        )
        runner = web.ServerRunner(server, shutdown_timeout=_STOP_SECONDS)
        await runner.setup()
        try:
            site = web.TCPSite(runner, _HOST, self.port)
            await site.start()
            self.port = runner.addresses[0][1]
            ready()
            await asyncio.get_running_loop().create_future()
        finally:
            await self._end(runner)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self._busy[id(request)] = request
        try:
            return await self._respond(request)
        finally:
            del self._busy[id(request)]
            if not self._busy and self._idle is not None:
                self._idle.set()

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        with self._handlers.bell() as bell:
            outlet = HTTPOutlet(request, bell)
            try:
                call = await _call_of(request)
            except web.HTTPRequestEntityTooLarge:
                await outlet.send(refusal(statuses.of_code(413)))
            except web.RequestPayloadError as exc:
                await outlet.send(refusal(statuses.bad_request(str(exc))))
            else:
                await self._handlers.respond(call, outlet, bell)

            return outlet.response

    async def _end(self, runner: web.ServerRunner) -> None:
        """Stop in an order that leaves nothing for aiohttp to wait for."""
        for site in list(runner.sites):
            await site.stop()

        self._handlers.stop()
        await self._wait_idle()
        for request in tuple(self._busy.values()):
            if request.transport is not None:
                request.transport.abort()

        await runner.cleanup()
        # Transports close, and connection tasks end, in the turns that follow.
        for _ in range(3):
            await asyncio.sleep(0)

    async def _wait_idle(self) -> None:
        if not self._busy:
            return

        self._idle = asyncio.Event()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._idle.wait()
        except TimeoutError:
            return


async def _call_of(request: web.BaseRequest) -> Call:
    headers: CIMultiDict[str] = CIMultiDict()
    for name, value in request.headers.items():
        # Of HTTP's ways to write a list, only one remains.
        headers[name] = f"{headers[name]}, {value}" if name in headers else value

    body = b""
    if request.can_read_body:
        if headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(_CONTINUE)
            request.writer.output_size = 0  # It is no part of the answer.

        body = await request.read()

    return Call(
        method=request.method,
        path=request.rel_url.raw_path,
        query=query_of(request.raw_path.partition("?")[2]),
        headers=headers,
        body=body,
    )


def _request_of(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: Task[None],
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=_BODY_BYTES
    )
