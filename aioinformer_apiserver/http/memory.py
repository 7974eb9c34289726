"""Requests without a network: the response stays in memory until the client reads it."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from aioinformer_apiserver.http.background import BackgroundTask
from aioinformer_apiserver.http.response import ResponseWriter
from aioinformer_apiserver.storage.dispatcher import Waker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aioinformer_apiserver.http.handler import RequestHandler
    from aioinformer_apiserver.requests.request import APIRequest
    from aioinformer_apiserver.serialization.responses import APIResponse

__all__ = ["MemoryResponse", "exchange"]

# About the size of the two socket buffers of a connection, before a writer must wait.
_BUFFER_BYTES = 256 * 1024
_PIECE_BYTES = 64 * 1024


@asynccontextmanager
async def exchange(
    handler: RequestHandler, request: APIRequest
) -> AsyncIterator[MemoryResponse]:
    """Send a request, and read its response while the server makes it.

    The server handles the request in a task of its own, which ends with the context.

    Raises:
        ConnectionError: If the server is stopped.

    Cancellation:
        Safe: the server sees that the client has disconnected.
    """
    if handler.stopping:
        raise ConnectionRefusedError("is stopped")

    with handler.waker() as waker:
        writer = _Writer(waker)
        response = MemoryResponse(writer)
        run = partial(_respond, handler, request, writer, waker)
        task = BackgroundTask(run, f"response to {request.method} {request.path}")
        await task.start()
        try:
            yield response
        finally:
            response.close()
            await task.stop()


async def _respond(
    handler: RequestHandler,
    request: APIRequest,
    writer: _Writer,
    waker: Waker,
    ready: Callable[[], None],
) -> None:
    ready()
    try:
        await handler.respond(request, writer, waker)
    finally:
        writer.end()


class MemoryResponse:
    """Response in memory, for the client that reads it."""

    def __init__(self, writer: _Writer) -> None:
        self._writer = writer

    async def head(self) -> APIResponse:
        """Wait for the status and the headers.

        Raises:
            ConnectionError: If the connection broke before.

        Cancellation:
            Safe.
        """
        writer = self._writer
        while writer.response is None:
            writer.check_connection()
            if writer.ended:
                raise ConnectionResetError("closed the connection without a response")

            await writer.readable.wait(math.inf)

        return writer.response

    async def read(self) -> bytes:
        """Wait for the next bytes of the body; empty at its end.

        Raises:
            ConnectionError: If the connection broke, or was closed meanwhile.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        writer = self._writer
        while True:
            if writer.closed:
                raise ConnectionAbortedError("was closed during the request")

            if writer.buffer:
                piece = bytes(writer.buffer[:_PIECE_BYTES])
                del writer.buffer[:_PIECE_BYTES]
                writer.writable.wake()
                return piece

            writer.check_connection()
            if writer.ended:
                return b""

            await writer.readable.wait(math.inf)

    async def wait_closed(self) -> None:
        """Wait until the client has closed the connection. Cancellation: safe."""
        await self._writer.closing.wait()

    def close(self) -> None:
        """Close the connection: reader and writer get a `ConnectionError`. Idempotent."""
        self._writer.closed = True
        self._writer.closing.set()
        self._writer.readable.wake()
        self._writer.writable.wake()


class _Writer(ResponseWriter):
    """Writer of a response in memory, which one task writes and another one reads.

    Like a connection it buffers a bounded number of bytes, and then it waits.
    """

    def __init__(self, waker: Waker) -> None:
        super().__init__(waker)
        self.response: APIResponse | None = None
        self.buffer: bytearray = bytearray()
        self.ended: bool = False
        self.failure: str = ""
        self.closed: bool = False
        self.closing: asyncio.Event = asyncio.Event()
        self.readable: Waker = Waker()
        self.writable: Waker = Waker()

    def check_connection(self) -> None:
        """Raise a `ConnectionError` if the connection broke."""
        if self.failure:
            raise ConnectionResetError(self.failure)

    def end(self) -> None:
        """Mark the end of the response, clean unless the connection broke before."""
        self.ended = True
        self.readable.wake()

    async def _send_whole(self, response: APIResponse, body: bytes) -> None:
        await self._send_head(response, compress=False)
        await self._send_body(body)

    async def _send_head(self, response: APIResponse, *, compress: bool) -> None:
        del compress
        self.response = response
        self.readable.wake()

    async def _send_body(self, data: bytes) -> None:
        while len(self.buffer) >= _BUFFER_BYTES and not self.closed:
            await self.writable.wait(math.inf)

        if self.closed:
            raise ConnectionResetError("the client has disconnected")

        self.buffer += data
        self.readable.wake()

    async def _break_connection(self, *, reset: bool) -> None:
        self.failure = "broke the connection" if reset else "ended its response early"
        self.readable.wake()
