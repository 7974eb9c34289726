"""Requests without a network: the response stays in memory until the client reads it."""

from __future__ import annotations

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
        response = MemoryResponse(waker)
        run = partial(_respond, handler, request, response, waker)
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
    response: MemoryResponse,
    waker: Waker,
    ready: Callable[[], None],
) -> None:
    ready()
    try:
        await handler.respond(request, response, waker)
    finally:
        response.end()


class MemoryResponse(ResponseWriter):
    """Response in memory: one task writes it, another one reads it.

    Like a connection it buffers a bounded number of bytes, and then the writer waits.
    """

    def __init__(self, waker: Waker) -> None:
        super().__init__(waker)
        self._head: APIResponse | None = None
        self._buffer = bytearray()
        self._ended = False
        self._failure = ""
        self._closed = False
        self._readable = Waker()
        self._writable = Waker()

    # ---------------------------------------------------------------- for the client

    async def head(self) -> APIResponse:
        """Wait for the status and the headers.

        Raises:
            ConnectionError: If the connection broke before.

        Cancellation:
            Safe.
        """
        while self._head is None:
            self._check_connection()
            if self._ended:
                raise ConnectionResetError("closed the connection without a response")

            await self._readable.wait(math.inf)

        return self._head

    async def read(self) -> bytes:
        """Wait for the next bytes of the body; empty at its end.

        Raises:
            ConnectionError: If the connection broke, or was closed meanwhile.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        while True:
            if self._closed:
                raise ConnectionAbortedError("was closed during the request")

            if self._buffer:
                piece = bytes(self._buffer[:_PIECE_BYTES])
                del self._buffer[:_PIECE_BYTES]
                self._writable.wake()
                return piece

            self._check_connection()
            if self._ended:
                return b""

            await self._readable.wait(math.inf)

    def close(self) -> None:
        """Close the connection: reader and writer get a `ConnectionError`. Idempotent."""
        self._closed = True
        self._readable.wake()
        self._writable.wake()

    def _check_connection(self) -> None:
        if self._failure:
            raise ConnectionResetError(self._failure)

    # ---------------------------------------------------------------- for the server

    def end(self) -> None:
        """Mark the end of the response, clean unless the connection broke before."""
        self._ended = True
        self._readable.wake()

    async def _send_whole(self, response: APIResponse, body: bytes) -> None:
        await self._send_head(response, compress=False)
        await self._send_body(body)

    async def _send_head(self, response: APIResponse, *, compress: bool) -> None:
        del compress
        self._head = response
        self._readable.wake()

    async def _send_body(self, data: bytes) -> None:
        while len(self._buffer) >= _BUFFER_BYTES and not self._closed:
            await self._writable.wait(math.inf)

        if self._closed:
            raise ConnectionResetError("the client has disconnected")

        self._buffer += data
        self._readable.wake()

    async def _break_connection(self, *, reset: bool) -> None:
        self._failure = "broke the connection" if reset else "ended its response early"
        self._readable.wake()
