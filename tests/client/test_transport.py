"""HTTP session of a client: headers, connections, TLS, and refused tokens."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import shutil
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from aiohttp import web
from canned import CannedServer, Certificates, bytes_server, make_certificates
from yarl import URL

from aioinformer.client import Client, ClientConfig, Credentials, TLSOptions
from aioinformer.errors import (
    ApiError,
    TransportError,
    Unauthorized,
)
from aioinformer.model.resources import CONFIG_MAPS, PODS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TOKEN = "s3cr3t-t0ken"
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "x"}}


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")

    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def server() -> AsyncIterator[CannedServer]:
    async with CannedServer() as server:
        yield server


async def failure(client: Client) -> str:
    async with client:
        with pytest.raises(TransportError) as caught:
            await client.get(PODS, "a", namespace="x")

    assert caught.value.__cause__ is not None
    return str(caught.value)


# ---------------------------------------------------------------- the session


async def test_transport_requests_uncompressed_json(server: CannedServer) -> None:
    server.json(POD)

    async with Client.from_url(server.url, token=TOKEN) as client:
        await client.get(PODS, "a", namespace="x")

    headers = server.seen[0].headers
    assert headers["Accept"] == "application/json"
    assert headers["Accept-Encoding"] == "identity"
    assert headers["Authorization"] == f"Bearer {TOKEN}"
    assert headers["User-Agent"].startswith("aioinformer/")
    assert "Content-Type" not in headers


async def test_transport_reads_compressed_responses_on_request(
    server: CannedServer,
) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        response = web.json_response(POD | {"spec": {"padding": "x" * 10_000}})
        response.enable_compression(web.ContentCoding.gzip)
        return response

    server.answer(answer)

    async with Client.from_url(server.url, gzip=True) as client:
        pod = await client.get(PODS, "a", namespace="x")

    assert server.seen[0].headers["Accept-Encoding"] == "gzip"
    assert len(pod.at("spec.padding")) == 10_000


async def test_transport_ignores_proxy_variables_and_netrc(
    server: CannedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "netrc").write_text("default login me password pw\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    server.json(POD)

    config = ClientConfig(server=server.url, credentials=Credentials(token=TOKEN))
    async with Client(config) as client:
        await client.get(PODS, "a", namespace="x")

    assert server.seen[0].headers["Authorization"] == f"Bearer {TOKEN}"


async def test_transport_uses_configured_proxy(server: CannedServer) -> None:
    server.json(POD)
    config = ClientConfig(server="http://api.example", proxy=server.url)

    async with Client(config) as client:
        assert (await client.get(PODS, "a", namespace="x")).name == "a"

    assert server.seen[0].headers["Host"] == "api.example"


PASSWORD = "s3cr3t-of-pr0xy"
PAIR = "Basic " + base64.b64encode(f"me:{PASSWORD}/@".encode()).decode()


async def test_transport_sends_user_agent_to_proxy(server: CannedServer) -> None:
    server.json(POD)
    proxy = server.url.replace("//", f"//me:{PASSWORD}%2F%40@")

    async with Client(ClientConfig(server="http://api.test", proxy=proxy)) as client:
        await client.get(PODS, "a", namespace="x")

    assert server.seen[0].headers["Proxy-Authorization"] == PAIR


@pytest.mark.parametrize("target", ["http", "https"])
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(
            "HTTP/1.1 407 Who are you?\r\nContent-Length: 0\r\n\r\n", id="407"
        ),
        pytest.param("garbage\r\n\r\n", id="garbage"),
    ],
)
async def test_errors_do_not_show_proxy_password(target: str, answer: str) -> None:
    heads: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer.encode())
        writer.close()

    async with bytes_server(talk) as address:
        proxy = f"http://me:{PASSWORD}%2F%40@{address}"
        config = ClientConfig(server=f"{target}://api.test", proxy=proxy)
        async with Client(config) as client:
            with pytest.raises((TransportError, ApiError)) as caught:
                await client.get(PODS, "a", namespace="x")

    assert f"Proxy-Authorization: {PAIR}".encode() in heads[0]
    exc: BaseException | None = caught.value
    while exc is not None:
        shown = f"{exc} {exc!r} {exc.args} {vars(exc)}"
        assert PASSWORD not in shown
        assert PAIR not in shown
        exc = exc.__cause__ or exc.__context__


async def test_unknown_proxy_name_is_reported() -> None:
    proxy = "http://nobody.invalid:1"

    error_text = await failure(
        Client(ClientConfig(server="http://api.test", proxy=proxy))
    )

    assert (
        "http://api.test is behind a proxy whose name cannot be looked up" in error_text
    )


async def test_connections_use_tcp_keepalive(server: CannedServer) -> None:
    server.json(POD)

    async with Client.from_url(server.url) as client:
        await client.get(PODS, "a", namespace="x")
        (opened,) = client._endpoint.transport()._sockets
        tcp = socket.IPPROTO_TCP

        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert opened.getsockopt(tcp, socket.TCP_KEEPIDLE) == 30

        assert opened.getsockopt(tcp, socket.TCP_KEEPINTVL) == 10
        assert opened.getsockopt(tcp, socket.TCP_KEEPCNT) == 3


async def test_connections_are_reused(server: CannedServer) -> None:
    peers = set()

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.json_response(POD)

    server.answer(answer)

    async with Client.from_url(server.url) as client:
        for _ in range(5):
            await client.get(PODS, "a", namespace="x")

    assert len(peers) == 1


async def test_idle_connections_are_not_used_after_one_has_died_silently() -> None:
    body = json.dumps(POD).encode()
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
    together, forgotten, connections = asyncio.Barrier(3), False, 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        old = connections <= 3
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                if old and forgotten:  # as by a load balancer that has failed over
                    continue

                if old:
                    await together.wait()

                writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)

    async with bytes_server(talk) as address:
        config = ClientConfig(server=f"http://{address}", head_seconds=2)
        async with Client(config) as client:
            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(client.get(PODS, "a", namespace="x"))

            forgotten = True
            with pytest.raises(TransportError, match="did not respond for 2 s"):
                await client.get(PODS, "a", namespace="x")

            pod = await client.get(PODS, "a", namespace="x")

    assert pod.key == "x/a"
    assert connections == 4


async def test_transport_sends_large_bodies(server: CannedServer) -> None:
    body = {"metadata": {"name": "a", "namespace": "x"}, "data": {"a": "b" * 1_400_000}}
    server.json(body)

    async with Client.from_url(server.url) as client:
        await client.create(CONFIG_MAPS, body)

    assert len(server.seen[0].body) > 1_400_000


# ---------------------------------------------------------------- TLS


@asynccontextmanager
async def tls_server(
    certificates: Certificates, *, ask_for_client: bool = False
) -> AsyncIterator[CannedServer]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.server, certificates.server_key)
    if ask_for_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates.ca)

    async with CannedServer(context) as server:
        yield server


async def test_tls_works_with_private_authority(certificates: Certificates) -> None:
    async with tls_server(certificates) as server:
        server.json(POD)
        async with Client.from_url(server.url, ca_file=certificates.ca) as client:
            assert (await client.get(PODS, "a", namespace="x")).name == "a"


async def test_unverifiable_certificate_is_reported(
    certificates: Certificates,
) -> None:
    async with tls_server(certificates) as server:
        error_text = await failure(Client.from_url(server.url))

    assert "has a certificate that cannot be verified" in error_text
    assert "ca_file" in error_text


async def test_configured_server_name_is_verified(certificates: Certificates) -> None:
    tls = TLSOptions(ca=certificates.ca, server_name="api.test")

    async with tls_server(certificates) as server:
        server.json(POD)
        config = ClientConfig(server=server.url, tls=tls)
        async with Client(config) as client:
            await client.get(PODS, "a", namespace="x")

        other = replace(config, tls=replace(tls, server_name="other.test"))
        assert "tls-server-name" in await failure(Client(other))


async def test_client_certificate_is_presented(certificates: Certificates) -> None:
    tls = TLSOptions(
        ca=certificates.ca, certificate=certificates.client, key=certificates.client_key
    )

    async with tls_server(certificates, ask_for_client=True) as server:
        server.json(POD)
        async with Client(ClientConfig(server=server.url, tls=tls)) as client:
            await client.get(PODS, "a", namespace="x")

        assert server.url in await failure(
            Client.from_url(server.url, ca_file=certificates.ca)
        )


async def test_disabled_verification_is_logged(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async with tls_server(certificates) as server:
        server.json(POD)
        async with Client.from_url(server.url, verify=False, token=TOKEN) as client:
            await client.get(PODS, "a", namespace="x")

    assert "TLS verification" in caplog.text
    assert TOKEN not in caplog.text


async def test_close_with_tls_leaves_no_socket_open(certificates: Certificates) -> None:
    """When close() returns, all sockets are closed: that of the kept-alive connection,
    that of a stream just left, and that of a stream in use."""
    unaccepting_server: list[Any] = []
    async with tls_server(certificates) as server:

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"{}")
            if "endless" in request.path:
                # Does not answer the TLS close_notify.
                assert request.transport is not None
                request.transport.pause_reading()
                unaccepting_server.append(request.transport)
                await asyncio.Event().wait()

            return response

        server.answer(answer)
        loop = asyncio.get_running_loop()
        before = loop.time()
        client = Client.from_url(server.url, ca_file=certificates.ca)
        await client.start()
        sockets = client._endpoint.transport()._sockets
        async with client.stream("GET", "/short") as response:
            await response.read()

        async with client.stream("GET", "/endless") as response:
            await response.read_some()

        async with client.stream("GET", "/endless") as response:
            await response.read_some()
            opened = list(sockets)
            await client.close()

            assert opened
            assert {each.fileno() for each in opened} == {-1}
            with pytest.raises(TransportError):
                await response.read_some()

        assert loop.time() - before < 1
        for transport in unaccepting_server:
            transport.abort()

    gc.collect()  # anything left open would warn, which is an error


async def test_close_waits_for_end_of_tls_connections(
    certificates: Certificates,
) -> None:
    async with tls_server(certificates) as server:
        server.json(POD, Connection="close")
        client = Client.from_url(server.url, ca_file=certificates.ca)
        await client.start()
        await client.get(PODS, "a", namespace="x")
        opened = list(client._endpoint.transport()._sockets)

        await client.close()

        assert [each.fileno() for each in opened] == [-1]


async def test_concurrent_401s_renew_token_once(
    server: CannedServer, tmp_path: Any
) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    everybody = asyncio.Barrier(5)

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.headers["Authorization"] == "Bearer old":
            await everybody.wait()
            file.write_text("new")
            return web.json_response({"kind": "Status", "code": 401}, status=401)

        return web.json_response(POD)

    server.answer(answer)
    config = ClientConfig(server=server.url, credentials=Credentials(token_file=file))

    async with Client(config) as client, asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(client.get(PODS, "a", namespace="x"))

    assert len(server.seen) == 10


@pytest.mark.parametrize("where", ["current", "renew"])
async def test_unexpected_credential_error_is_transport_error(
    server: CannedServer,
    where: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(*_: object) -> NoReturn:
        raise KeyError("no https://user:s3cr3t@vault")

    server.json({"kind": "Status", "code": 401, "reason": "Unauthorized"}, 401)
    async with Client.from_url(server.url, token="old") as client:
        monkeypatch.setattr(client._endpoint.transport()._authenticator, where, fail)
        with pytest.raises(
            TransportError, match=r"cannot authenticate to .*: KeyError"
        ) as caught:
            await client.get(PODS, "a", namespace="x")

    assert "s3cr3t" not in f"{caught.value} {caplog.text}"
    assert {it.levelname for it in caplog.records} == {"ERROR"}


@pytest.mark.parametrize("source", ["token", "token_file"])
async def test_unchanged_refused_token_raises_unauthorized(
    server: CannedServer, tmp_path: Any, source: str
) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    server.json({"kind": "Status", "code": 401, "reason": "Unauthorized"}, 401)
    token = {"token": "old"} if source == "token" else {"token_file": file}

    async with Client.from_url(server.url, **token) as client:
        with pytest.raises(Unauthorized):
            await client.get(PODS, "a", namespace="x")

    assert len(server.seen) == 1


async def test_renewed_but_refused_token_raises_unauthorized(
    server: CannedServer, tmp_path: Any
) -> None:
    file = tmp_path / "token"
    file.write_text("0")

    async def answer(_: web.Request) -> web.StreamResponse:
        file.write_text(f"{len(server.seen)}")
        return web.json_response({"kind": "Status", "code": 401}, status=401)

    server.answer(answer)

    async with Client.from_url(server.url, token_file=file) as client:
        with pytest.raises(Unauthorized):
            await client.get(PODS, "a", namespace="x")

    assert [seen.headers["Authorization"] for seen in server.seen] == [
        "Bearer 0",
        "Bearer 1",
    ]


async def test_name_lookup_works_while_default_executor_is_busy(
    server: CannedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(host: str, port: int, **_: object) -> list[Any]:
        assert host == "api.example"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    server.json(POD)
    busy, pool = threading.Event(), ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(pool)
    pool.submit(busy.wait)
    try:
        url = f"http://api.example:{URL(server.url).port}"
        async with Client.from_url(url) as client:
            pod = await client.get(PODS, "a", namespace="x")
    finally:
        busy.set()

    assert pod.name == "a"
