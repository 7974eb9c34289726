"""Network failures: silent servers, and a proxy that cuts connections.

Everything consists of protocols without tasks, except for the proxy's connects.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = [
    "Cutting",
    "Proxy",
    "SilentServer",
    "proxying",
    "silent_server",
    "unaccepting_server",
]

HOST = "127.0.0.1"

Cutting: TypeAlias = Literal["end", "fin", "reset"]
"""Kind of cut of a watch: as HTTP ends a response, as TCP does, or as a crash."""


class _Side(asyncio.Protocol):
    """One end of a connection; subclasses handle its events."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport


# ---------------------------------------------------------------- silent servers


class SilentServer:
    """A server that accepts connections, then closes them at once or stays silent.

    Attributes:
        url: Address.
        accepted: Number of accepted connections.
        open: Connections that the client has not closed.
    """

    def __init__(self, *, closes: bool) -> None:
        self.url = ""
        self.accepted = 0
        self.open: set[asyncio.Transport] = set()
        self._closes = closes

    def protocol(self) -> asyncio.Protocol:
        return _Ear(self)

    def connected(self, transport: asyncio.Transport) -> None:
        self.accepted += 1
        self.open.add(transport)
        if self._closes:
            transport.close()


class _Ear(_Side):
    def __init__(self, owner: SilentServer) -> None:
        self._owner = owner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._owner.connected(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.open.discard(self.transport)


@asynccontextmanager
async def silent_server(*, closes: bool = False) -> AsyncIterator[SilentServer]:
    """Run a server that accepts connections and requests, but never responds."""
    owner = SilentServer(closes=closes)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(owner.protocol, HOST, 0)
    owner.url = f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
    try:
        yield owner
    finally:
        server.close()
        for transport in tuple(owner.open):
            transport.abort()

        await server.wait_closed()


@asynccontextmanager
async def unaccepting_server() -> AsyncIterator[str]:
    """Yield the URL of a port on which connecting blocks forever."""
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        listening.listen(0)
        address = listening.getsockname()
        # Until no more connections are accepted: the backlog of a listener holds one or
        # two.
        waiting = [socket.socket() for _ in range(4)]
        try:
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(address)

            yield f"http://{HOST}:{address[1]}"
        finally:
            for one in waiting:
                one.close()


# ---------------------------------------------------------------- proxies


@dataclass
class ProxiedWatch:
    """A watch through the proxy, in seconds of the loop's clock."""

    answered: float
    ended: float | None = None


class Proxy:
    """A proxy that passes bytes on, cuts, refuses, limits the rate, or stalls.

    It parses only plain HTTP. With a TLS server it sees no watches.

    Attributes:
        url: Address.
        watches: Watches with a response, oldest first.
        refusing: True to reset new connections.
        silent: True to accept new connections, and pass nothing on.
        refused: Times of the connections reset so far.
        bytes_per_second: Rate of each response; None for no limit.
        passed: Number of response bytes so far.
    """

    def __init__(self, port: int, *, how: Cutting, seconds: float | None) -> None:
        self.url = ""
        self.watches: list[ProxiedWatch] = []
        self.refusing = False
        self.silent = False
        self.refused: list[float] = []
        self.bytes_per_second: float | None = None
        self.passed = 0
        self.links: set[_Link] = set()
        self._port = port
        self._how = how
        self._seconds = seconds

    def protocol(self) -> asyncio.Protocol:
        return _Link(self)

    def swallow(self) -> None:
        """Stop passing bytes on, for the current connections."""
        for link in self.links:
            link.mute = True

    def cut(self, how: Cutting) -> None:
        """Cut the current connections."""
        for link in tuple(self.links):
            link.cut(how)

    def swallow_watches(self) -> None:
        """Stop passing on the bytes of the current watches."""
        for link in self.links:
            link.mute = link.mute or link.is_watch

    def silence(self) -> None:
        """Stop passing bytes on, also for new connections, until `mend()`."""
        self.silent = True
        self.swallow()

    def mend(self) -> None:
        """Pass on bytes of new connections again."""
        self.refusing = self.silent = False

    def break_off(self) -> None:
        """Cut the current connections, and refuse new ones until further notice."""
        self.refusing = True
        self.cut("reset")

    def connected_seconds(self, since: float) -> float:
        """Return the seconds with an open watch since then."""
        now = asyncio.get_running_loop().time()
        return sum(
            (now if one.ended is None else one.ended) - max(one.answered, since)
            for one in self.watches
            if one.ended is None or one.ended > since
        )

    async def connect(self, link: _Link) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: _Far(link), HOST, self._port)
        except OSError:
            link.cut("reset")  # the server is down

    def begin_watch(self, link: _Link) -> ProxiedWatch:
        loop = asyncio.get_running_loop()
        watch = ProxiedWatch(loop.time())
        self.watches.append(watch)
        if self._seconds is not None:
            link.timer = loop.call_later(self._seconds, link.cut, self._how)

        return watch


class _Link(_Side):
    """A client's connection, with one to the server."""

    def __init__(self, proxy: Proxy) -> None:
        self.mute = proxy.silent
        self.timer: asyncio.TimerHandle | None = None
        self.far: asyncio.Transport | None = None
        self._proxy = proxy
        self._waiting = b""
        self._resting: asyncio.TimerHandle | None = None
        self.is_watch = False
        self._watch: ProxiedWatch | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._proxy.links.add(self)
        self._connecting = asyncio.create_task(self._proxy.connect(self))
        if self._proxy.refusing:
            self._proxy.refused.append(asyncio.get_running_loop().time())
            self.cut("reset")

    def data_received(self, data: bytes) -> None:
        self.is_watch = b"watch=true" in data
        if self.far is None:
            self._waiting += data
        elif not self.mute:
            self.far.write(data)

    def connected(self, far: asyncio.Transport) -> None:
        self.far = far
        far.write(self._waiting)

    def answered(self, data: bytes) -> None:
        """Pass on data of the server."""
        if self.mute:
            return

        self.transport.write(data)
        self._proxy.passed += len(data)
        if self._proxy.bytes_per_second:
            self._rest(len(data) / self._proxy.bytes_per_second)

        if self.is_watch and self._watch is None:
            self._watch = self._proxy.begin_watch(self)

    def _rest(self, seconds: float) -> None:
        """Read nothing from the server for a while."""
        assert self.far is not None
        self.far.pause_reading()
        self._resting = asyncio.get_running_loop().call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        if self.far is not None and not self.far.is_closing():
            self.far.resume_reading()

    def cut(self, how: Cutting) -> None:
        if how == "end":
            self.transport.write(b"0\r\n\r\n")
            self.transport.close()
        elif how == "fin":
            self.transport.close()
        else:
            raw = self.transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()

        self._over()

    def connection_lost(self, exc: Exception | None) -> None:
        self._over()

    def _over(self) -> None:
        """Handle the end of the client's connection."""
        self._proxy.links.discard(self)
        self._connecting.cancel()
        for timer in (self.timer, self._resting):
            if timer is not None:
                timer.cancel()

        if self._watch is not None and self._watch.ended is None:
            self._watch.ended = asyncio.get_running_loop().time()

        if self.far is not None:
            self.far.abort()


class _Far(_Side):
    """The proxy's connection to the server."""

    def __init__(self, link: _Link) -> None:
        self._link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._link.connected(self.transport)

    def data_received(self, data: bytes) -> None:
        self._link.answered(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._link.mute:
            self._link.transport.close()


@asynccontextmanager
async def proxying(
    url: str, *, how: Cutting = "fin", seconds: float | None = None
) -> AsyncIterator[Proxy]:
    """Run a proxy in front of a server.

    Args:
        url: Address of the server.
        how: Way to cut watches.
        seconds: Age at which watches are cut; None for never.
    """
    scheme, _, port = url.split(":")
    proxy = Proxy(int(port), how=how, seconds=seconds)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(proxy.protocol, HOST, 0)
    proxy.url = f"{scheme}://{HOST}:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        for link in tuple(proxy.links):
            link.cut("reset")

        await server.wait_closed()
