"""Bodies of responses, whoever reads them: `ChunkedBody`, aiohttp, or one after the other."""

from __future__ import annotations

import asyncio
import gzip
import random
import ssl
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
import uvloop
from aiohttp.client_proto import ResponseHandler
from canned import bytes_server
from credential_helpers import Authority
from hypothesis import given, settings
from hypothesis import strategies as st
from json_helpers import chunks_of, pieces_of

from aioinformer.client import Client, ClientConfig, TLSOptions
from aioinformer.client.chunked_body import ChunkedBody, has_plain_chunks
from aioinformer.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from pathlib import Path

    from aioinformer.client.response import Response

    Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

KIB: Final = 1024
OK: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED: Final = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes, more: bytes = b"") -> bytes:
    return b"%x%b\r\n%b\r\n" % (len(data), more, data)


def in_chunks(body: bytes) -> bytes:
    """As kube-apiserver writes a list: pairs of chunks, the first of 2 KiB."""
    parts = [
        part for it in pieces_of(body, 9000) for part in (it[:2048], it[2048:]) if part
    ]
    return CHUNKED + b"".join(map(chunk, parts)) + b"0\r\n\r\n"


def with_extension(body: bytes) -> bytes:
    """Chunks of which one in the middle is for aiohttp, and so all after it."""
    parts = [
        chunk(it, b";x=1" if n == 3 else b"")
        for n, it in enumerate(pieces_of(body, 5000))
    ]
    return CHUNKED + b"".join(parts) + b"0\r\n\r\n"


def with_trailer(body: bytes) -> bytes:
    return in_chunks(body)[:-2] + b"Checksum: 1\r\n\r\n"


def compressed(body: bytes) -> bytes:
    head = CHUNKED[:-2] + b"Content-Encoding: gzip\r\n\r\n"
    parts = map(chunk, pieces_of(gzip.compress(body, 1), 5000))
    return head + b"".join(parts) + b"0\r\n\r\n"


def with_length(body: bytes) -> bytes:
    return OK + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def after_hints(body: bytes) -> bytes:
    return b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + in_chunks(body)


FORMS: Final = [
    in_chunks,
    with_extension,
    with_trailer,
    compressed,
    with_length,
    after_hints,
]


def body_of(size: int) -> bytes:
    """Bytes that look like the borders of chunks."""
    drawn = random.Random(size)
    return b"".join(drawn.choices([b"\r\n", b"5", b"0\r\n", b"\r", b"abcdefg"], k=size))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def signed(authority: Authority) -> tuple[Path, Path]:
    return authority.sign("server")


class Server:
    """A server that writes the same pieces for each request, then reads the next one."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.connections = 0
        self._pieces = list(pieces)

    async def talk(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.connections += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                for piece in self._pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Connect as a proxy does for CONNECT."""
    line = await reader.readuntil(b"\r\n\r\n")
    host, _, port = line.split()[1].decode().partition(":")
    upstream_reader, upstream = await asyncio.open_connection(host, int(port))
    writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")

    async def pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(64 * KIB):
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            pass
        finally:
            sink.close()

    await asyncio.gather(pipe(reader, upstream), pipe(upstream_reader, writer))


@asynccontextmanager
async def opened(
    way: str, talk: Talk, authority: Authority, signed: tuple[Path, Path]
) -> AsyncIterator[Client]:
    """Serve, and open a client that is connected in one of the ways."""
    context = None
    if "tls" in way:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*signed)

    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(bytes_server(talk, context))
        tls = TLSOptions(ca=authority.file)
        if way == "proxy":
            config = ClientConfig(
                server="http://api.example", proxy=f"http://{address}"
            )
        elif way == "tls through proxy":
            proxy = await stack.enter_async_context(bytes_server(tunnel))
            config = ClientConfig(
                server=f"https://{address}", tls=tls, proxy=f"http://{proxy}"
            )
        elif way == "tls":
            config = ClientConfig(server=f"https://{address}", tls=tls)
        else:
            config = ClientConfig(server=f"http://{address}")

        yield await stack.enter_async_context(Client(config))


WAYS: Final = ["plain", "tls", "proxy", "tls through proxy"]


# ---------------------------------------------------------------- whole bodies


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", FORMS)
async def test_body_is_read_and_connection_reused(
    form: Callable[[bytes], bytes],
    way: str,
    authority: Authority,
    signed: tuple[Path, Path],
) -> None:
    body = body_of(200_000)
    server = Server(pieces_of(form(body), 30_011))
    async with opened(way, server.talk, authority, signed) as client:
        for _ in range(3):
            async with client.stream("GET", "/api", gzip=True) as response:
                assert await response.read() == body

        # New memory for each response would take longer than a short one.
        assert len(client._endpoint.transport()._spare) in {1, 2}

    assert server.connections == 1


@pytest.mark.parametrize("way", ["plain", "tls"])
def test_body_is_read_on_uvloop(
    way: str, authority: Authority, signed: tuple[Path, Path]
) -> None:
    body = body_of(200_000)
    server = Server([in_chunks(body)])

    async def main() -> None:
        async with opened(way, server.talk, authority, signed) as client:
            for _ in range(3):
                async with client.stream("GET", "/api") as response:
                    await asyncio.sleep(0.05)  # the connection is paused meanwhile
                    assert await response.read() == body

    uvloop.run(main())
    assert server.connections == 1


@pytest.mark.parametrize("form", FORMS)
async def test_pieces_are_not_larger_than_requested(
    form: Callable[[bytes], bytes],
) -> None:
    body = body_of(2000)
    async with (
        bytes_server(Server([form(body)]).talk) as address,
        Client.from_url(f"http://{address}") as client,
        client.stream("GET", "/api", gzip=True) as response,
    ):
        read = b""
        while piece := await response.read_some(limit=7, patient=True):
            assert len(piece) <= 7
            read += piece

    assert read == body


# ---------------------------------------------------------------- streams


class Stream:
    """A response in plain chunks, or with extensions of each, that the test writes."""

    def __init__(self, extension: bytes) -> None:
        self._extension = extension
        self._connected = asyncio.Event()
        self.writer: asyncio.StreamWriter

    async def talk(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.writer = writer
        writer.write(CHUNKED)

    def send(self, data: bytes) -> None:
        self.writer.write(chunk(data, self._extension))


@pytest.fixture(params=[b"", b";x=1"], ids=["plain", "extension"])
async def streaming(
    request: pytest.FixtureRequest,
) -> AsyncIterator[tuple[Stream, Response]]:
    stream = Stream(request.param)
    async with bytes_server(stream.talk) as address:
        config = ClientConfig(server=f"http://{address}", read_seconds=0.3)
        async with Client(config) as client, client.stream("GET", "/x") as response:
            yield stream, response


Streaming = tuple["Stream", "Response"]


async def test_data_arrives_at_once(streaming: Streaming) -> None:
    stream, response = streaming
    for data in (b"a", b"bc", b"def"):
        stream.send(data)
        assert await response.read_some(patient=True) == data


async def test_cancelled_read_loses_nothing(streaming: Streaming) -> None:
    stream, response = streaming
    for data in (b"a", b"bc"):
        reading = asyncio.create_task(response.read_some(patient=True))
        await asyncio.sleep(0)
        stream.send(data)
        reading.cancel()
        await asyncio.wait({reading})
        assert await response.read_some(patient=True) == data


async def test_read_that_is_cancelled_while_data_arrives_loses_nothing(
    streaming: Streaming,
) -> None:
    """The future of the reader is done, and its task is cancelled before it runs."""
    stream, response = streaming
    total = b""
    for number in range(50):
        reading = asyncio.create_task(response.read_some(patient=True))
        stream.send(b"%d," % number)
        for _ in range(number % 9):
            await asyncio.sleep(0)

        reading.cancel()
        await asyncio.wait({reading})
        if not reading.cancelled():
            total += reading.result()

    expected = b"".join(b"%d," % number for number in range(50))
    while len(total) < len(expected):
        total += await response.read_some(patient=True)

    assert total == expected


async def test_silence_within_body_is_an_error(streaming: Streaming) -> None:
    stream, response = streaming
    stream.send(b"a")
    assert await response.read_some() == b"a"
    with pytest.raises(TransportError, match=r"sent nothing for 0\.3 s"):
        await response.read_some()


async def test_closing_wakes_the_reader(streaming: Streaming) -> None:
    stream, response = streaming
    stream.send(b"a")
    await response.read_some()
    reading = asyncio.create_task(response.read_some(patient=True))
    await asyncio.sleep(0)

    response.close()

    with pytest.raises(TransportError):
        await reading

    with pytest.raises(TransportError):
        await response.read_some()


async def test_data_that_was_read_stays_after_closing() -> None:
    """Its reader may still wait for its turn, while others use the client."""
    stream = Stream(b"")
    async with (
        bytes_server(stream.talk) as address,
        Client.from_url(f"http://{address}") as client,
    ):
        async with client.stream("GET", "/x") as response:
            stream.send(b"abc")
            data = await response.read_view()

        async with client.stream("GET", "/x") as response:
            stream.send(b"xyz")
            assert await response.read_some() == b"xyz"

        assert bytes(data) == b"abc"


async def test_second_reader_is_refused(streaming: Streaming) -> None:
    stream, response = streaming
    reading = asyncio.create_task(response.read_some(patient=True))
    await asyncio.sleep(0.01)
    with pytest.raises(TransportError):
        await response.read_some(patient=True)

    stream.send(b"a")
    assert await reading == b"a"


@pytest.mark.parametrize(
    "end", [b"", b"5\r\nab", b"5\r\nhello", b"5", b"\r\n", b"zz\r\n", b"-1\r\n"]
)
async def test_body_that_breaks_off_is_an_error(
    streaming: Streaming, end: bytes
) -> None:
    """Also within a chunk, within the size of one, and where it is not a size."""
    stream, response = streaming
    stream.send(b"complete")
    assert await response.read_some() == b"complete"
    stream.writer.write(end)
    stream.writer.close()

    with pytest.raises(TransportError):
        await response.read()


async def test_slow_reader_stops_the_server(streaming: Streaming) -> None:
    stream, response = streaming
    size, sent = 64 * KIB, 0
    data = body_of(size)[:size]

    async def send() -> None:
        nonlocal sent
        for _ in range(1000):
            stream.send(data)
            await stream.writer.drain()
            sent += 1

    sending = asyncio.create_task(send())
    before = -1
    while sent > before:
        before = sent
        await asyncio.sleep(0.1)

    assert sent < 500  # of 1,000; the kernel has most of them
    read = 0
    while read < 1000 * size:
        read += len(await response.read_some())

    await sending


# ---------------------------------------------------------------- compared with aiohttp


class MemoryTransport(asyncio.Transport):
    """Connection that records what happens to it."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: asyncio.BaseProtocol = asyncio.Protocol()
        self.closed = False
        self.paused = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def feed(self, data: bytes) -> None:
        """Pass bytes to the protocol, as asyncio does."""
        while data and not self.closed:
            if isinstance(self.protocol, asyncio.BufferedProtocol):
                buffer = memoryview(self.protocol.get_buffer(-1))
                taken = min(len(buffer), len(data))
                buffer[:taken] = data[:taken]
                self.protocol.buffer_updated(taken)
                data = data[taken:]
            else:
                assert isinstance(self.protocol, asyncio.Protocol)
                self.protocol.data_received(data)
                data = b""


async def outcome(pieces: Iterable[bytes], *, in_front: bool) -> tuple[Any, ...]:
    """Return status, body, whether it is complete, and whether the connection is reusable."""
    transport = MemoryTransport()
    handler = ResponseHandler(asyncio.get_running_loop())
    transport.set_protocol(handler)
    handler.connection_made(transport)
    handler.set_response_params(read_until_eof=True, read_bufsize=2**20)
    front = ChunkedBody(transport, []) if in_front else None
    body = b""
    for piece in pieces:
        transport.feed(piece)
        if front is not None and front._pieces:
            body += await front.read(2**20)

    reusable = transport.protocol is handler and not handler.should_close
    transport.protocol.connection_lost(None)
    try:
        message, payload = await handler.read()
        if front is not None:
            body += await front.read(2**20)

        body += await payload.read()
    except Exception:  # noqa: BLE001 - of whatever kind: one has met it before the other
        return "error", reusable

    return message.code, body, reusable


LINES: Final = st.sampled_from(
    [
        *(b"Transfer-Encoding: chunked", b"transfer-encoding:CHUNKED ", b"A: b"),
        *(b"Content-Length: 5", b"Content-Encoding: identity", b"Connection: close"),
        *(b"Upgrade: x", b" folded", b"Transfer-Encoding: gzip, chunked", b"X"),
    ]
)
CHUNKS: Final = st.sampled_from(
    [
        *(
            chunk(b"hello"),
            chunk(b"\r\n" * 9),
            chunk(bytes(300)),
            b"00A\r\n0123456789\r\n",
        ),
        *(
            chunk(b"x", b";a=b"),
            chunk(b"y", b" "),
            b"2\nab\n",
            b"3\r\nabcX\r\n",
            b"1\r\na",
        ),
        *(b"g\r\n", b"\r\n", b"000000001\r\nz\r\n", b"-1\r\n", b"0x1\r\na\r\n"),
    ]
)
ENDS: Final = st.sampled_from(
    [
        *(b"0\r\n\r\n", b"00\r\n\r\n", b"0\r\nA: b\r\n\r\n", b"", b"0;x\r\n\r\n"),
        *(b"0\r\n", b"0\r\n\r\nX\r\n\r\n", b"0\r\n\r\n\r\n"),
    ]
)


@given(
    status=st.sampled_from(
        [b"200 OK", b"200 ", b"200", b"404 No", b"204 No", b"103 X"]
    ),
    lines=st.lists(LINES, max_size=2),
    chunked=st.booleans(),
    chunks=st.lists(CHUNKS, max_size=4),
    end=ENDS,
    cuts=st.lists(st.integers(0, 2000), max_size=6),
)
@settings(max_examples=300, deadline=None)
def test_responses_are_read_as_by_aiohttp_alone(
    status: bytes,
    lines: list[bytes],
    chunked: bool,
    chunks: list[bytes],
    end: bytes,
    cuts: list[int],
) -> None:
    """Valid or not, split anywhere."""
    headers = [b"HTTP/1.1 " + status, *lines]
    if chunked:
        headers.append(b"Transfer-Encoding: chunked")

    data = b"".join((*(b"%b\r\n" % it for it in headers), b"\r\n", *chunks, end))
    pieces = chunks_of(data, cuts)

    async def both() -> list[tuple[Any, ...]]:
        return [await outcome(pieces, in_front=it) for it in (False, True)]

    alone, in_front = asyncio.run(both())
    assert in_front == alone


def test_plain_chunks_are_not_left_to_aiohttp() -> None:
    """Else the comparison would compare aiohttp with itself."""
    assert has_plain_chunks(CHUNKED)
    assert has_plain_chunks(b"HTTP/1.1 200 OK\r\ntransfer-encoding:Chunked\r\n\r\n")
    assert not has_plain_chunks(OK + b"\r\n")
