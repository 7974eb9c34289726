"""Direct: requests to the server without a network, and its answers in memory.

Everything but the socket is as over HTTP: tokens and permissions, faults, what is
remembered of requests, the decoding, and the errors that a client would raise.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from multidict import CIMultiDict

from aioinformer._tasks import Supervisor
from aioinformer.client.config import ClientConfig
from aioinformer.client.error_mapping import api_error, refuse_web_page
from aioinformer.errors import TransportError
from aioinformer_apiserver.http.outlet import Outlet
from aioinformer_apiserver.requests.request import Call
from aioinformer_apiserver.storage.waker import EARLY_SECONDS, Bell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from aioinformer_apiserver.http.handlers import Handlers
    from aioinformer_apiserver.serialization.answers import Answer

__all__ = ["DirectEndpoint", "MemoryOutlet"]

_NAME = "the API server in memory"
# About what the two buffers of a connection hold before its writer has to wait.
_BUFFER_BYTES = 256 * 1024
_PIECE_BYTES = 64 * 1024
_ERROR_BODY_BYTES = 64 * 1024
_PHRASES = {int(it): it.phrase for it in HTTPStatus}
# A client's patience, so that a stall ends in the same way.
_CLIENT = ClientConfig(server="http://in-memory")


class DirectEndpoint:
    """Sends requests to a server in this process.

    Implements `aioinformer.client.list_watch.Requester`. The server need not have been
    started; once it has been stopped, requests fail until it is started again.

    Args:
        handlers: Answer the requests.
        token: What requests bear; None for nothing.
    """

    def __init__(self, handlers: Handlers, *, token: str | None = None) -> None:
        self._handlers = handlers
        self._headers = {"Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        gzip: bool | None = None,
        accept: str = "",
    ) -> AsyncIterator[MemoryOutlet]:
        """Send a request and read its answer as it is made.

        The server works on it in a task of its own, which ends with the context.

        Args:
            method: Of HTTP.
            path: Beginning with `/`, escaped, without a query.
            params: The query; those that are empty are left out.
            gzip: Without effect: nothing is compressed in memory.
            accept: The media types to accept; empty for JSON.

        Raises:
            ApiError: If the server refused.
            TransportError: If a fault broke the connection, or the server is stopped.
            DecodeError: If the answer is a web page.

        Cancellation:
            Safe: the server is told that the client has left.
        """
        del gzip
        if self._handlers.stopping:
            raise TransportError(f"{_NAME} is stopped")

        query = {key: text for key, text in (params or {}).items() if text}
        headers = CIMultiDict(self._headers)
        if accept:
            headers["Accept"] = accept

        call = Call(method=method, path=path, query=query, headers=headers)
        with self._handlers.bell() as bell:
            outlet = MemoryOutlet(bell)
            life = partial(self._respond, call, outlet, bell)
            server = Supervisor(life, f"answer to {method} {path}")
            await server.start()
            try:
                await _accept(outlet, call)
                yield outlet
            finally:
                outlet.close()
                await server.stop()

    async def _respond(
        self,
        call: Call,
        outlet: MemoryOutlet,
        bell: Bell,
        ready: Callable[[], None],
    ) -> None:
        ready()
        try:
            await self._handlers.respond(call, outlet, bell)
        finally:
            outlet.end()


class MemoryOutlet(Outlet):
    """Keeps an answer in memory until it is read.

    One task writes and one reads, as at the two ends of a connection; like one it holds
    a bounded number of bytes, for which the writer waits.
    """

    def __init__(self, bell: Bell) -> None:
        super().__init__(bell)
        self._answer: Answer | None = None
        self._buffer = bytearray()
        self._ended = False
        self._failure = ""
        self._closed = False
        self._arrived = Bell()
        self._room = Bell()

    # ---------------------------------------------------------------- the reader's end

    async def head(self) -> Answer:
        """Wait for the status and the headers.

        Raises:
            TransportError: If the connection broke before, or they did not come in time.

        Cancellation:
            Safe.
        """
        until = asyncio.get_running_loop().time() + _CLIENT.head_seconds
        while self._answer is None:
            self._check_whole()
            if self._ended:
                raise TransportError(f"{_NAME} closed the connection without an answer")

            await self._wait(until, "took the request and did not answer")

        return self._answer

    async def read_some(self, *, patient: bool = False) -> bytes:
        """Wait for the next bytes of the body; none are its end.

        Args:
            patient: True to wait for ever.

        Raises:
            TransportError: If the connection broke, or nothing came for too long.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        now = asyncio.get_running_loop().time()
        until = math.inf if patient else now + _CLIENT.read_seconds
        while True:
            if self._closed:
                raise TransportError(f"the connection to {_NAME} was closed meanwhile")

            if self._buffer:
                piece = bytes(self._buffer[:_PIECE_BYTES])
                del self._buffer[:_PIECE_BYTES]
                self._room.ring()
                return piece

            self._check_whole()
            if self._ended:
                return b""

            await self._wait(until, "sent nothing in the middle of an answer")

    def close(self) -> None:
        """Leave: the reader gets a `TransportError` and the writer a `ConnectionError`.

        Idempotent.
        """
        self._closed = True
        self._arrived.ring()
        self._room.ring()

    def _check_whole(self) -> None:
        if self._failure:
            raise TransportError(f"{_NAME} {self._failure}. Trying again may help.")

    async def _wait(self, until: float, what: str) -> None:
        if asyncio.get_running_loop().time() + EARLY_SECONDS >= until:
            raise TransportError(f"{_NAME} {what} for too long")

        await self._arrived.wait(until)

    # ---------------------------------------------------------------- the writer's end

    def end(self) -> None:
        """Say that nothing more will come: a clean end, unless it broke before."""
        self._ended = True
        self._arrived.ring()

    async def _whole(self, answer: Answer, body: bytes) -> None:
        await self._start(answer, compress=False)
        await self._put(body)

    async def _start(self, answer: Answer, *, compress: bool) -> None:
        del compress
        self._answer = answer
        self._arrived.ring()

    async def _put(self, data: bytes) -> None:
        while len(self._buffer) >= _BUFFER_BYTES and not self._closed:
            await self._room.wait(math.inf)

        if self._closed:
            raise ConnectionResetError("the client has left")

        self._buffer += data
        self._arrived.ring()

    async def _break(self, *, reset: bool) -> None:
        self._failure = "broke the connection" if reset else "ended its answer early"
        self._arrived.ring()


async def _accept(outlet: MemoryOutlet, call: Call) -> None:
    """Wait for the head of an answer, and raise what it says if that is an error.

    Raises:
        ApiError: If the server refused.
        TransportError: If the connection broke.
        DecodeError: If the answer is a web page.
    """
    answer = await outlet.head()
    headers = CIMultiDict(answer.headers)
    headers["Content-Type"] = answer.content_type
    if answer.status < 300:
        refuse_web_page(headers, _NAME)
        return

    body = b""
    try:
        while len(body) < _ERROR_BODY_BYTES and (more := await outlet.read_some()):
            body += more
    except TransportError:
        pass  # What has arrived of the body is enough, as for a client.

    phrase = _PHRASES.get(answer.status, "")
    error = api_error(answer.status, phrase, headers, body, _NAME)
    error.add_note(f"in answer to {call.method} {call.path}")
    raise error
