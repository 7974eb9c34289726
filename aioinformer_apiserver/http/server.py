"""The edge: where HTTP ends. Requests come in as calls, answers go out as bytes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web
from multidict import CIMultiDict

from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.http.response import HTTPResponseWriter
from aioinformer_apiserver.requests.request import Request, query_of
from aioinformer_apiserver.serialization.responses import error_response

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Callable

    from aiohttp import web_protocol
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http_parser import RawRequestMessage
    from aiohttp.streams import StreamReader

    from aioinformer_apiserver.http.handler import RequestHandler

__all__ = ["HTTPServer"]

_HOST = "127.0.0.1"
# What a real server accepts at most as the body of one request.
_BODY_BYTES = 3 * 1024 * 1024
# And in each line of a head: a selector may be long.
_HEAD_BYTES = 1024 * 1024
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# How long answers may take to leave when the server stops; a client that does not read
# would otherwise hold it up for ever.
_STOP_SECONDS = 1.0


class HTTPServer:
    """Listens on the loopback interface, and lets `handlers` answer.

    Args:
        handlers: Answer the requests.
        port: Where to listen; 0 for any free port.

    Attributes:
        port: Where it listens; 0 before it has ever done so.
    """

    def __init__(self, handler: RequestHandler, *, port: int) -> None:
        self.port = port
        self._handler = handler
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
        self._handler.open()
        server = web.Server(
            self._serve,
            request_factory=_aiohttp_request,
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

    async def _serve(self, incoming: web.BaseRequest) -> web.StreamResponse:
        self._busy[id(incoming)] = incoming
        try:
            return await self._respond(incoming)
        finally:
            del self._busy[id(incoming)]
            if not self._busy and self._idle is not None:
                self._idle.set()

    async def _respond(self, incoming: web.BaseRequest) -> web.StreamResponse:
        with self._handler.waker() as waker:
            writer = HTTPResponseWriter(incoming, waker)
            try:
                request = await _request_of(incoming)
            except web.HTTPRequestEntityTooLarge:
                await writer.send(error_response(statuses.of_code(413)))
            except web.RequestPayloadError as exc:
                await writer.send(error_response(statuses.bad_request(str(exc))))
            else:
                await self._handler.respond(request, writer, waker)

            return writer.response

    async def _end(self, runner: web.ServerRunner) -> None:
        """Stop in an order that leaves nothing for aiohttp to wait for."""
        for site in list(runner.sites):
            await site.stop()

        self._handler.stop()
        await self._wait_idle()
        for incoming in tuple(self._busy.values()):
            if incoming.transport is not None:
                incoming.transport.abort()

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


async def _request_of(incoming: web.BaseRequest) -> Request:
    headers: CIMultiDict[str] = CIMultiDict()
    for name, value in incoming.headers.items():
        # Of HTTP's ways to write a list, only one remains.
        headers[name] = f"{headers[name]}, {value}" if name in headers else value

    body = b""
    if incoming.can_read_body:
        if headers.get("Expect", "").lower() == "100-continue":
            await incoming.writer.write(_CONTINUE)
            incoming.writer.output_size = 0  # It is no part of the answer.

        body = await incoming.read()

    return Request(
        method=incoming.method,
        path=incoming.rel_url.raw_path,
        query=query_of(incoming.raw_path.partition("?")[2]),
        headers=headers,
        body=body,
    )


def _aiohttp_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web_protocol.RequestHandler,
    writer: AbstractStreamWriter,
    task: Task[None],
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=_BODY_BYTES
    )
