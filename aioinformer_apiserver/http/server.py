"""`HTTPServer`: the server on top of aiohttp."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web
from multidict import CIMultiDict

from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.http.response import HTTPResponseWriter
from aioinformer_apiserver.requests.request import APIRequest, query_of
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
# Maximum size of a body, as in a real server.
_BODY_BYTES = 3 * 1024 * 1024
# Maximum size of each line of a head; selectors may be long.
_HEAD_BYTES = 1024 * 1024
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# Maximum time to send responses when the server stops: a client that does not read
# would block the stop forever.
_STOP_SECONDS = 1.0


class HTTPServer:
    """HTTP server on the loopback interface.

    Args:
        handler: Handler of the requests.
        port: Port to listen on; 0 for any free port.

    Attributes:
        port: Port of the server; 0 before its first start, if any free port is allowed.
    """

    def __init__(self, handler: RequestHandler, *, port: int) -> None:
        self.port: int = port
        self._handler = handler
        # Keys are identities: aiohttp's requests are mappings without a hash.
        self._busy: dict[int, web.BaseRequest] = {}
        self._idle: asyncio.Event | None = None

    @property
    def url(self) -> str:
        """URL of the server."""
        return f"http://{_HOST}:{self.port}"

    async def run(self, ready: Callable[[], None]) -> None:
        """Listen until cancelled, on the same port each time.

        Args:
            ready: Called when the server accepts requests.

        Raises:
            OSError: If the port is in use.

        Cancellation:
            Ends all watches cleanly and closes all connections within two seconds.
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
        """Stop in an order in which aiohttp need not wait for anything."""
        for site in list(runner.sites):
            await site.stop()

        self._handler.stop()
        await self._wait_idle()
        for incoming in tuple(self._busy.values()):
            if incoming.transport is not None:
                incoming.transport.abort()

        await runner.cleanup()
        # Transports close and connection tasks end in the next turns of the loop.
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


async def _request_of(incoming: web.BaseRequest) -> APIRequest:
    headers: CIMultiDict[str] = CIMultiDict()
    for name, value in incoming.headers.items():
        # Repeated headers are equivalent to one with a list.
        headers[name] = f"{headers[name]}, {value}" if name in headers else value

    body = b""
    if incoming.can_read_body:
        if headers.get("Expect", "").lower() == "100-continue":
            await incoming.writer.write(_CONTINUE)
            incoming.writer.output_size = 0  # This is not part of the response.

        body = await incoming.read()

    return APIRequest(
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
