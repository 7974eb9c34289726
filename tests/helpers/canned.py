"""A web server with canned responses, and certificates for it."""

from __future__ import annotations

import asyncio
import subprocess
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web
from conftest import pod

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path
    from typing import Self, TypeAlias

    from aioinformer.watch import WatchEvent

    Answer: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Seen:
    """A received request."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class CannedServer:
    """A server that sends queued responses, one per request, and repeats the last."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.seen: list[Seen] = []
        self.gone = asyncio.Event()
        """Set when a client left before its response was complete."""
        self._answers: deque[Answer] = deque()
        self._context = context
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def url(self) -> str:
        scheme = "http" if self._context is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}"

    def answer(self, *answers: Answer) -> None:
        self._answers.extend(answers)

    def json(self, body: Any, status: int = 200, **headers: str) -> None:
        async def answer(_: web.Request) -> web.StreamResponse:
            return web.json_response(body, status=status, headers=headers)

        self.answer(answer)

    def text(self, body: str, status: int, kind: str, **headers: str) -> None:
        async def answer(_: web.Request) -> web.StreamResponse:
            return web.Response(
                text=body, status=status, content_type=kind, headers=headers
            )

        self.answer(answer)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._context)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.seen.append(
            Seen(request.method, request.path_qs, dict(request.headers), body)
        )
        answer = self._answers[0]
        if len(self._answers) > 1:
            self._answers.popleft()

        try:
            return await answer(request)
        except (asyncio.CancelledError, ConnectionError):
            self.gone.set()
            raise


@asynccontextmanager
async def bytes_server(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[str]:
    """Run a server below HTTP, perhaps with TLS, and yield its `host:port`."""
    writers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await talk(reader, writer)

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield "127.0.0.1:{1}".format(*listener.sockets[0].getsockname())
    finally:
        listener.close()
        for writer in writers:
            writer.transport.abort()


class Stream:
    """A response that the test writes in pieces."""

    def __init__(self, server: CannedServer) -> None:
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._transport: asyncio.Transport | None = None
        server.answer(self._answer)

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self._pieces.put_nowait(piece)

    def end(self) -> None:
        self._pieces.put_nowait(None)

    def break_off(self) -> None:
        """Close the connection without the end of the body."""
        assert self._transport is not None
        self._transport.close()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self._transport = request.transport
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while (piece := await self._pieces.get()) is not None:
            await response.write(piece)

        return response


def line(kind: str, name: str) -> bytes:
    return orjson.dumps({"type": kind, "object": pod(name)}) + b"\n"


def list_body(*names: str, token: str = "") -> bytes:
    items = [pod(name) for name in names]
    meta = {"resourceVersion": "7", "continue": token}
    head = {"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": items}
    return orjson.dumps(head)


def summaries(events: list[WatchEvent]) -> list[str]:
    return [f"{event.type} {event.object.name}" for event in events]


@dataclass
class Certificates:
    """Files of a CA and of the certificates it signed."""

    ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path
    locked_key: Path
    """The client's key, encrypted with a passphrase."""


def make_certificates(folder: Path) -> Certificates:
    """Sign for a server at 127.0.0.1, also known as api.test, and for a client."""

    def openssl(*arguments: str) -> None:
        subprocess.run(
            ["openssl", *arguments], cwd=folder, check=True, capture_output=True
        )

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:api.test\n")
    openssl(
        *("req", "-x509", *key, "-subj", "/CN=canned-ca", "-days", "2"),
        *("-keyout", "ca.key", "-out", "ca.crt"),
        *("-addext", "keyUsage=critical,keyCertSign"),
    )
    for name in ("server", "client"):
        openssl(
            *("req", *key, "-subj", f"/CN={name}"),
            *("-keyout", f"{name}.key", "-out", f"{name}.csr"),
        )
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-days", "2", "-extfile", "names"),
            *("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"),
            *("-out", f"{name}.crt"),
        )

    openssl(
        *("ec", "-in", "client.key", "-aes128", "-passout", "pass:sesame"),
        *("-out", "locked.key"),
    )
    return Certificates(
        ca=folder / "ca.crt",
        server=folder / "server.crt",
        server_key=folder / "server.key",
        client=folder / "client.crt",
        client_key=folder / "client.key",
        locked_key=folder / "locked.key",
    )
