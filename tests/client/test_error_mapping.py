"""Mapping of HTTP and TLS failures to errors."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any, NoReturn

import aiohttp
import pytest
from aiohttp import web
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.http import HttpProcessingError
from canned import CannedServer, bytes_server
from each_case import each_case
from multidict import CIMultiDict

from aioinformer.client import Client
from aioinformer.client.error_mapping import (
    api_error,
    retry_after_seconds,
    transport_error,
)
from aioinformer.errors import (
    ApiError,
    DecodeError,
    Invalid,
    NotFound,
    ResourceExpired,
    ServerError,
    TooManyRequests,
    TransportError,
    Unauthorized,
)
from aioinformer.model.resources import PODS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

TOKEN = "s3cr3t-t0ken"
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "x"}}


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


# ---------------------------------------------------------------- refusals


def refusal(status: int, body: bytes, **headers: str) -> ApiError:
    return api_error(status, "Phrase", CIMultiDict(headers), body, "https://api")


@each_case(
    "status, kind",
    [
        (400, Invalid),
        (401, Unauthorized),
        (404, NotFound),
        (410, ResourceExpired),
        (418, ApiError),
        (429, TooManyRequests),
        (502, ServerError),
    ],
)
def test_error_without_status_object_has_class_of_its_code(
    status: int, kind: type[ApiError]
) -> None:
    error = refusal(status, b"")

    assert type(error) is kind
    assert error.status == status
    assert f"https://api answered {status} Phrase" in str(error)


def test_status_object_determines_error() -> None:
    body = b'{"kind":"Status","code":410,"reason":"Expired","message":"too old"}'

    error = refusal(400, body)

    assert type(error) is ResourceExpired
    assert error.message == "too old"


@pytest.mark.parametrize("request_", ["PATCH /api/v1/namespaces/a/secrets/s", ""])
def test_error_of_a_secret_quotes_no_values(request_: str) -> None:
    """A server quotes the whole object after a patch that does not fit its type."""
    quoted = json.dumps('{"data":{"a":"aHVudGVyMg==","b":["x"]},"kind":"Secret"}')
    why = "json: cannot unmarshal array into Go struct field Secret.data"
    cause = {"field": "patch", "message": f"Invalid value: {quoted}: {why}"}
    status = {
        "kind": "Status",
        "code": 422,
        "reason": "Invalid",
        "message": f'"" is invalid: patch: Invalid value: {quoted}: {why}',
        "details": {"causes": [cause]},
    }
    body = json.dumps(status).encode()
    whole = api_error(422, "", {}, body, "https://server", request_)
    part = api_error(422, "", {}, body[:-20], "https://server", request_)

    assert (
        str(whole) == f'422 Invalid: "" is invalid: patch: Invalid value: "...": {why}'
    )
    assert "aHVudGVyMg" not in str(whole.details)
    assert "aHVudGVyMg" not in str(part)


def test_error_of_an_applied_secret_quotes_no_values() -> None:
    text = "failed to create typed patch object (a/s; /v1, Kind=Secret): errors:\n"
    text += "  .stringData.a: expected string, got "
    status = {"kind": "Status", "code": 500, "reason": "InternalError"}
    quoted = '&value.valueUnstructured{Value:[]interface {}{"hunter\n2"}}'
    body = json.dumps(status | {"message": text + quoted}).encode()
    url = "PATCH /api/v1/namespaces/a/secrets/s"

    assert api_error(500, "", {}, body, "https://server", url).message == f"{text}..."


def test_error_quotes_web_page_without_markup() -> None:
    page = "<html><style>b {}</style><h1>502</h1>\n<p>Bad <b>gate</b></p>" + "x " * 999

    error = refusal(502, page.encode(), **{"content-type": "text/html; charset=x"})

    assert "with text/html and not a Kubernetes Status: '502 Bad gate x x" in str(error)
    assert "x x...'. Check for a proxy in between" in str(error)
    assert len(str(error)) < 500


STATUS = {"kind": "Status", "message": "could not find it", "reason": "NotFound"}
ADVICE = "If the resource is custom, does its CRD have `subresources: {status: {}}`?"
SITE = "/apis/example.com/v1/namespaces/shop/sites/blog"


@each_case(
    "request_line, code, details, message",
    [
        (f"GET {SITE}", 404, {}, f"could not find it: GET {SITE}"),
        (f"PUT {SITE}", 405, {}, f"could not find it: PUT {SITE}"),
        (f"GET {SITE}", 404, {"name": "blog", "kind": "sites"}, "could not find it"),
        (f"GET {SITE}", 409, {}, "could not find it"),
        (
            f"PATCH {SITE}/status",
            404,
            {},
            f"could not find it: PATCH {SITE}/status. {ADVICE}",
        ),
        (f"GET {SITE}/status", 404, {}, f"could not find it: GET {SITE}/status"),
    ],
)
def test_refusal_without_details_names_its_request(
    request_line: str, code: int, details: dict[str, str], message: str
) -> None:
    body = json.dumps(STATUS | {"code": code, "details": details}).encode()

    error = api_error(code, "Phrase", CIMultiDict(), body, "https://api", request_line)

    assert error.message == message


def test_plain_404_names_its_request() -> None:
    body = b"404 page not found\n"
    error = api_error(404, "", CIMultiDict(), body, "https://api", f"GET {SITE}")

    assert f"(404 page not found for GET {SITE})" in str(error)


def test_plain_404_is_reported_as_missing_resource() -> None:
    error = refusal(404, b"404 page not found\n")
    assert "https://api serves no such resource" in str(error)


@pytest.mark.parametrize("body", [b'{"kind":"Pod"}', b"[]", b"\xff\xfe", b'{"kind'])
def test_json_error_body_without_status_is_api_error(body: bytes) -> None:
    assert "not a Kubernetes Status" in str(refusal(500, body))


def test_redirect_error_names_its_target() -> None:
    error = refusal(302, b"", location="https://login.example")

    assert type(error) is ApiError
    assert "a redirect to https://login.example" in str(error)


@each_case(
    "value, seconds",
    [
        ("7", 7.0),
        (" 120 ", 120.0),
        ("", None),
        ("soon", None),
        ("-3", None),
        ("Mon, 01 Jan 2024 00:00:00 +99999999999999999999", None),
        ("Mon, 01 Jan 99999 00:00:00 GMT", None),
    ],
)
def test_retry_after_is_parsed_as_seconds(value: str, seconds: float | None) -> None:
    assert retry_after_seconds(value) == seconds


@pytest.mark.parametrize("usegmt", [True, False])
def test_retry_after_is_parsed_as_date(usegmt: bool) -> None:
    when = datetime.now(tz=UTC) + timedelta(seconds=90)

    seconds = retry_after_seconds(format_datetime(when, usegmt=usegmt))

    assert seconds is not None
    assert 60 < seconds <= 90


def test_past_retry_after_date_is_zero_seconds() -> None:
    assert retry_after_seconds("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert retry_after_seconds("Wed, 21 Oct 2015 07:28:00 -0000") == 0


async def test_refusal_has_note_with_request(server: CannedServer) -> None:
    body = {"kind": "Status", "code": 429, "reason": "TooManyRequests"}
    server.json(body, 429, **{"Retry-After": "3"})

    async with Client.from_url(server.url) as client:
        with pytest.raises(TooManyRequests) as caught:
            await client.get(PODS, "a", namespace="x")

    assert caught.value.retry_after == 3
    assert caught.value.__notes__ == ["in response to GET /api/v1/namespaces/x/pods/a"]


async def test_redirect_is_not_followed(server: CannedServer) -> None:
    server.text("", 302, "text/html", Location="/elsewhere")

    async with Client.from_url(server.url, token=TOKEN) as client:
        with pytest.raises(ApiError, match="redirect to /elsewhere"):
            await client.get(PODS, "a", namespace="x")

    assert len(server.seen) == 1


async def test_web_page_raises_decode_error(server: CannedServer) -> None:
    server.text("<h1>Please log in</h1>", 200, "text/html")

    async with Client.from_url(server.url) as client:
        with pytest.raises(DecodeError, match="answered with a web page"):
            await client.list(PODS)


async def pod_name_in(head: str, body: str) -> str:
    """Return the name of the pod in a response."""
    answer = f"HTTP/1.1 200 OK\r\n{head}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    async with (
        bytes_server(responding(answer.encode())) as address,
        Client.from_url(f"http://{address}") as client,
    ):
        return (await client.get(PODS, "a", namespace="x")).name


@pytest.mark.parametrize("kind", ["application/json; x*", "; charset*", 'a/b;c="'])
async def test_unusual_content_type_is_accepted(kind: str) -> None:
    assert (
        await pod_name_in(f"Content-Type: {kind}", '{"metadata":{"name":"a"}}') == "a"
    )


async def test_web_page_with_malformed_type_raises_decode_error() -> None:
    with pytest.raises(DecodeError, match="answered with a web page"):
        await pod_name_in("Content-Type: Text/HTML ; x*", "<h1>Please log in</h1>")


async def test_truncated_error_body_raises_api_error(
    server: CannedServer,
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=503, headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"upstream is aw")
        assert request.transport is not None
        request.transport.close()
        return response

    server.answer(answer)

    async with Client.from_url(server.url) as client:
        with pytest.raises(ServerError, match="503"):
            await client.get(PODS, "a", namespace="x")


# ---------------------------------------------------------------- the network


async def test_refused_connection_error_names_address() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound so that it stays free, but not listening
        port = taken.getsockname()[1]

        error_text = await failure(Client.from_url(f"http://127.0.0.1:{port}"))

    assert error_text.startswith(f"http://127.0.0.1:{port} refused the connection")
    assert "Check that the API server runs" in error_text


async def test_https_to_a_plain_port_suggests_http(server: CannedServer) -> None:
    url = server.url.replace("http://", "https://")
    error_text = await failure(Client.from_url(url))

    assert "failed the TLS handshake" in error_text
    assert error_text.endswith("speak plain HTTP: use http:// in its URL.")


KEY = ConnectionKey("api", 443, True, True, None, None, None)


@each_case(
    "exc, words",
    [
        pytest.param(
            aiohttp.ClientConnectorDNSError(KEY, OSError(-2, "Name not known")),
            "a name that cannot be looked up: [Errno -2] Name not known",
            id="dns",
        ),
        pytest.param(
            aiohttp.ClientConnectorError(KEY, OSError(113, "No route to host")),
            "cannot be reached: [Errno 113] No route to host",
            id="no-route",
        ),
        pytest.param(
            aiohttp.ClientProxyConnectionError(KEY, OSError(111, "refused")),
            "behind a proxy that failed",
            id="proxy",
        ),
        pytest.param(
            aiohttp.ClientConnectorSSLError(KEY, ssl.SSLError(1, "WRONG_VERSION")),
            "failed the TLS handshake",
            id="tls",
        ),
        pytest.param(
            aiohttp.ClientOSError(104, "Connection reset by peer"),
            "broke the connection: [Errno 104] Connection reset by peer",
            id="reset",
        ),
        pytest.param(
            aiohttp.ClientConnectionError(),
            "broke the connection: ClientConnectionError",
            id="without-words",
        ),
    ],
)
def test_transport_error_names_cause(exc: Exception, words: str) -> None:
    error_text = str(transport_error(exc, "https://api"))

    assert error_text.startswith("https://api ")
    assert words in error_text


EOF = ssl.SSLEOFError(8, "EOF occurred in violation of protocol")


@each_case(
    "exc",
    [
        pytest.param(
            aiohttp.ClientConnectorError(KEY, OSError(111, "refused")), id="refused"
        ),
        pytest.param(
            aiohttp.ClientConnectorError(KEY, OSError(113, "no route")), id="no-route"
        ),
        pytest.param(
            aiohttp.ClientConnectorDNSError(KEY, OSError(-2, "unknown")), id="no-name"
        ),
        pytest.param(
            aiohttp.ClientProxyConnectionError(KEY, OSError(111, "refused")), id="proxy"
        ),
        pytest.param(aiohttp.ClientOSError(104, "reset"), id="reset"),
        pytest.param(aiohttp.ServerDisconnectedError(), id="closed-without-an-answer"),
        pytest.param(aiohttp.ConnectionTimeoutError(), id="no-answer-to-connections"),
        pytest.param(EOF, id="closed-in-the-handshake"),
    ],
)
def test_failed_connection_is_unreachable_unless_response_began(
    exc: Exception,
) -> None:
    assert transport_error(exc, "https://api").unreachable
    assert not transport_error(exc, "https://api", answered=True).unreachable


@each_case(
    "exc",
    [
        pytest.param(
            aiohttp.ClientConnectorSSLError(KEY, ssl.SSLError(1, "WRONG_VERSION")),
            id="tls",
        ),
        pytest.param(ssl.SSLCertVerificationError(1, "expired"), id="certificate"),
        pytest.param(aiohttp.ClientPayloadError("incomplete"), id="cut-off"),
        pytest.param(HttpProcessingError(message="bad"), id="no-http"),
        pytest.param(UnicodeError("label too long"), id="no-possible-name"),
        pytest.param(RuntimeError("can't start new thread"), id="no-thread"),
    ],
)
def test_other_failures_are_not_marked_unreachable(exc: Exception) -> None:
    assert not transport_error(exc, "https://api").unreachable


async def test_unexpected_library_error_is_transport_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def look_up(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("no room")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    error_text = await failure(Client.from_url("http://api.invalid:1"))

    assert "request failed: RuntimeError: no room" in error_text
    assert "ERROR" in {it.levelname for it in caplog.records}


async def test_lookup_without_threads_reports_lack_of_resources(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(_: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    async with Client.from_url("http://api.invalid:1") as client:
        monkeypatch.setattr(threading.Thread, "start", start)
        with pytest.raises(TransportError, match="out of resources") as caught:
            await client.get(PODS, "a", namespace="x")

    assert "can't start new thread" in str(caught.value)


@pytest.mark.parametrize(
    ("exc", "words"),
    [
        pytest.param(
            aiohttp.ClientConnectorDNSError(KEY, OSError(-2, "Name not known")),
            "a proxy whose name cannot be looked up: [Errno -2] Name not known",
            id="dns",
        ),
        pytest.param(
            aiohttp.ConnectionTimeoutError(),
            "a proxy, and one of the two does not accept",
            id="silence",
        ),
    ],
)
def test_transport_error_names_proxy_that_failed(exc: Exception, words: str) -> None:
    error_text = str(transport_error(exc, "https://api", proxied=True))

    assert f"https://api is behind {words}" in error_text
    assert "proxy-url" in error_text


@pytest.mark.parametrize("host", ["xn--zzzz-\u00ff.example", "*.xn--\u00ff"])
async def test_unencodable_host_name_is_transport_error(host: str) -> None:
    error_text = await failure(Client.from_url(f"http://{host}:1"))

    assert "a name that cannot be looked up" in error_text


async def test_connecting_times_out_after_30_seconds() -> None:
    async def accept_silently(*_: object) -> None:
        """Accept connections without a TLS handshake."""

    async with bytes_server(accept_silently) as address:
        loop = asyncio.get_running_loop()
        before = loop.time()
        error_text = await failure(Client.from_url(f"https://{address}"))

    assert "does not accept connections" in error_text
    assert 30 <= loop.time() - before < 32  # aiohttp rounds up to whole seconds


async def test_response_head_times_out_after_30_seconds(
    server: CannedServer,
) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    server.answer(answer)
    loop = asyncio.get_running_loop()
    before = loop.time()

    error_text = await failure(Client.from_url(server.url))

    assert "did not respond for 30 s" in error_text
    assert loop.time() - before == pytest.approx(30, abs=0.5)


async def test_response_body_times_out_after_30_silent_seconds(
    server: CannedServer,
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(3):
            await response.write(b" ")
            await asyncio.sleep(20)  # slow, but never silent for long enough

        await asyncio.Event().wait()
        return response

    server.answer(answer)
    loop = asyncio.get_running_loop()
    before = loop.time()

    error_text = await failure(Client.from_url(server.url))

    assert "sent nothing for 30 s" in error_text
    assert loop.time() - before == pytest.approx(40 + 30, abs=0.5)


async def test_connection_closed_without_response_is_reported() -> None:
    async def hang_up(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async with bytes_server(hang_up) as address:
        error_text = await failure(Client.from_url(f"http://{address}"))

    assert "closed the connection without a response" in error_text


def responding(answer: bytes) -> Callable[[Any, Any], Awaitable[None]]:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    return talk


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(b"SSH-2.0-OpenSSH\r\n\r\n", "not HTTP", id="another-protocol"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
            "sent an incomplete response",
            id="shorter-than-promised",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
            "sent an incomplete response",
            id="last-chunk-missing",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
            "http://127.0.0.1",
            id="no-chunk",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
            "http://127.0.0.1",
            id="not-compressed",
        ),
    ],
)
async def test_broken_response_raises_transport_error(
    answer: bytes, words: str
) -> None:
    async with bytes_server(responding(answer)) as address:
        assert words in await failure(Client.from_url(f"http://{address}"))


async def test_errors_do_not_show_token() -> None:
    async with (
        bytes_server(responding(b"SSH-2.0-OpenSSH\r\n\r\n")) as address,
        Client.from_url(f"http://{address}", token=TOKEN) as client,
    ):
        with pytest.raises(TransportError) as caught:
            await client.get(PODS, "a", namespace="x")

    exc: BaseException | None = caught.value
    while exc is not None:
        assert TOKEN not in f"{exc} {exc!r} {exc.args} {vars(exc)}"
        exc = exc.__cause__ or exc.__context__


async def test_cancelled_request_closes_connection(server: CannedServer) -> None:
    requested = asyncio.Event()

    async def answer(_: web.Request) -> web.StreamResponse:
        requested.set()
        await asyncio.Event().wait()
        raise AssertionError

    server.answer(answer)

    async with Client.from_url(server.url) as client:
        request = asyncio.create_task(client.get(PODS, "a", namespace="x"))
        await requested.wait()
        request.cancel()

        with pytest.raises(asyncio.CancelledError):
            await request

        await server.gone.wait()


def test_secrets_in_proxy_page_are_redacted() -> None:
    page = (
        "<h1>Denied</h1> for https://me:pa55@sso.example/x, go to "
        "<a>https://sso.example/login?state=pa55</a> \x1b[31m {'token': 'pa55'}"
    )

    error_text = str(refusal(502, page.encode(), **{"content-type": "text/html"}))

    assert (
        "Denied for https://...@sso.example/x, go to https://sso.example/login?..."
        in error_text
    )
    assert "pa55" not in error_text
    assert "\x1b" not in error_text


def test_redirect_error_omits_user_and_query() -> None:
    for target in ("https://me:pa55@sso.example/login?state=pa55", "/login?state=pa55"):
        error_text = str(refusal(302, b"", Location=target))

        assert "/login?..." in error_text
        assert "pa55" not in error_text
