"""Faults: the requests that they strike, and the exact bytes that arrive."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from each_case import each_case

from aioinformer.errors import OptionsError
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import Cut, Fault, Faults, Gone, Refuse, Stall

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PODS_PATH = "/api/v1/namespaces/default/pods"
WATCH_PATH = f"{PODS_PATH}?watch=1"


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as running:
        for number in range(4):
            running.create(PODS, {"metadata": {"name": f"web-{number}"}})

        yield running


@pytest.fixture
async def http(server: APIServer) -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(server.url, timeout=timeout) as session:
        yield session


async def raw_answer(server: APIServer, path: str) -> tuple[bytes, bytes, bool]:
    """Send a request over a plain socket.

    Returns:
        Head, body without chunk framing, and whether the response is complete.
    """
    host, _, port = server.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
    )
    try:
        everything = await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()

    head, _, rest = everything.partition(b"\r\n\r\n")
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        if not int(size, 16):
            return head, body, True

        body += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]

    return head, body, False


async def whole_body(http: aiohttp.ClientSession, path: str) -> bytes:
    async with http.get(path) as answer:
        return await answer.read()


async def status_of(
    http: aiohttp.ClientSession, path: str, method: str = "GET"
) -> tuple[int, dict[str, Any]]:
    async with http.request(method, path) as answer:
        return answer.status, await answer.json()


def taken(faults: Faults, verb: str, resource: str) -> Fault | None:
    strike = faults.take(verb, resource)
    return strike.fault if strike else None


# -------------------------------------------------------------------- matching


@each_case(
    "fault, verb, resource, struck",
    [
        (Refuse(status=500), "list", "pods", True),
        (Refuse(status=500, verb="list"), "watch", "pods", False),
        (Refuse(status=500, verb="watch"), "watch", "pods", True),
        (Refuse(status=500, resource="pods"), "list", "nodes", False),
        (Refuse(status=500, resource="nodes"), "list", "nodes", True),
        (Cut(after_bytes=1), "list", "pods", False),
        (Cut(after_bytes=1, verb="list"), "list", "pods", True),
        (Gone(), "watch", "pods", True),
        (Stall(), "list", "pods", False),
    ],
)
def test_fault_strikes_matching_requests(
    fault: Fault, verb: str, resource: str, struck: bool
) -> None:
    faults = Faults()
    faults.add(fault)

    assert (taken(faults, verb, resource) is fault) is struck
    assert len(faults) == (0 if struck else 1)


def test_fault_strikes_given_number_of_times() -> None:
    faults = Faults()
    faults.add(Refuse(status=500, times=2, skip=1))

    struck = [faults.take("list", "pods") is not None for _ in range(5)]

    assert struck == [False, True, True, False, False]


def test_fault_without_limit_strikes_until_cleared() -> None:
    faults = Faults()
    faults.add(Refuse(status=500, times=None))

    assert all(faults.take("list", "pods") for _ in range(50))
    faults.clear()
    assert faults.take("list", "pods") is None


def test_first_matching_fault_strikes() -> None:
    first, second = Refuse(status=500), Refuse(status=503)
    faults = Faults()
    faults.add(Refuse(status=404, verb="watch"), first, second)

    assert taken(faults, "list", "pods") is first
    assert taken(faults, "list", "pods") is second
    assert len(list(faults)) == 1


@each_case(
    "make",
    [
        pytest.param(lambda: Cut(after_bytes=-1), id="cut"),
        pytest.param(lambda: Stall(after_bytes=-1), id="stall"),
        pytest.param(lambda: Gone(after_events=-1), id="gone"),
        pytest.param(lambda: Refuse(status=200), id="refuse"),
        pytest.param(lambda: Refuse(status=500, times=0), id="times"),
        pytest.param(lambda: Gone(skip=-1), id="skip"),
        pytest.param(lambda: Stall(seconds=float("nan")), id="nan"),
    ],
)
def test_invalid_faults_are_rejected(make: Any) -> None:
    with pytest.raises(OptionsError):
        make()


# -------------------------------------------------------------------- Cut


async def test_cut_list_delivers_exact_bytes(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    whole = await whole_body(http, PODS_PATH)

    for size in (0, 1, 100, len(whole) - 1, len(whole)):
        server.faults.add(Cut(after_bytes=size, verb="list"))
        head, body, complete = await raw_answer(server, PODS_PATH)

        assert head.startswith(b"HTTP/1.1 200")
        assert (body, complete) == (whole[:size], False)


async def test_cut_watch_delivers_exact_bytes(server: APIServer) -> None:
    path = f"{WATCH_PATH}&timeoutSeconds=1"
    _, whole, complete = await raw_answer(server, path)
    assert complete
    first_line = whole.index(b"\n") + 1

    # After the head, within a line, between two lines, within the last line.
    for size in (0, 17, first_line, first_line + 1, len(whole) - 5):
        server.faults.add(Cut(after_bytes=size))
        _, body, complete = await raw_answer(server, path)

        assert (body, complete) == (whole[:size], False)


async def test_cut_counts_bytes_of_later_events(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    version = server.resource_version
    server.faults.add(Cut(after_bytes=800))

    async with http.get(WATCH_PATH, params={"resourceVersion": version}) as watch:
        server.create(PODS, {"metadata": {"name": "first"}})
        first = await watch.content.readline()
        server.create(PODS, {"metadata": {"name": "second"}})
        rest = await watch.content.readany()
        with pytest.raises(aiohttp.ClientPayloadError):
            await watch.content.readany()

    assert json.loads(first)["object"]["metadata"]["name"] == "first"
    assert len(first + rest) == 800


async def test_cut_keeps_shorter_response(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    whole = await whole_body(http, PODS_PATH)
    server.faults.add(Cut(after_bytes=len(whole) + 1, verb="list"))

    assert await whole_body(http, PODS_PATH) == whole
    assert len(server.faults) == 0


async def test_cut_before_head_closes_connection(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    # Strike each request, because aiohttp retries a GET once.
    server.faults.add(Cut(head=False, verb="list", times=None))

    assert await raw_answer(server, PODS_PATH) == (b"", b"", False)
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await http.get(PODS_PATH)


async def test_cut_can_reset_connection(server: APIServer) -> None:
    server.faults.add(Cut(after_bytes=100, reset=True))

    with pytest.raises(ConnectionResetError):
        await raw_answer(server, WATCH_PATH)


async def test_cut_strikes_single_object(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(Cut(after_bytes=10, verb="get"))

    with pytest.raises(aiohttp.ClientPayloadError):
        await whole_body(http, f"{PODS_PATH}/web-0")


# -------------------------------------------------------------------- Stall


async def test_stall_lasts_given_time(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    whole = await whole_body(http, PODS_PATH)
    server.faults.add(Stall(after_bytes=10, seconds=90, verb="list"))
    loop = asyncio.get_running_loop()
    start = loop.time()

    async with http.get(PODS_PATH) as answer:
        first = await answer.content.readany()
        assert loop.time() - start < 0.1
        rest = await answer.read()

    assert loop.time() - start == pytest.approx(90, abs=0.1)
    assert (first, first + rest) == (whole[:10], whole)


async def test_stall_before_head_delays_head(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(Stall(head=False, seconds=30, verb="list"))
    loop = asyncio.get_running_loop()
    start = loop.time()

    async with http.get(PODS_PATH) as answer:
        assert loop.time() - start == pytest.approx(30, abs=0.1)
        assert len((await answer.json())["items"]) == 4


async def test_stalled_watch_keeps_connection_open(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(Stall(after_bytes=5))

    async with http.get(f"{WATCH_PATH}&timeoutSeconds=10") as watch:
        assert await watch.content.readexactly(5) == b'{"typ'
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await watch.content.readany()


async def test_stall_does_not_block_stop(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(Stall())
    loop = asyncio.get_running_loop()

    async with http.get(WATCH_PATH) as watch:
        start = loop.time()
        await server.stop()
        assert loop.time() - start < 0.5
        with pytest.raises(aiohttp.ClientError):
            await watch.content.readany()


# -------------------------------------------------------------------- Gone and Refuse


async def test_gone_ends_watch_with_error_event(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(Gone(after_events=3))

    lines = (await whole_body(http, WATCH_PATH)).splitlines()

    events = [json.loads(line) for line in lines]
    assert [it["type"] for it in events] == ["ADDED", "ADDED", "ADDED", "ERROR"]
    assert events[3]["object"]["code"] == 410
    assert events[3]["object"]["reason"] == "Expired"


async def test_gone_counts_later_events(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(Gone(after_events=5))

    async with http.get(WATCH_PATH) as watch:
        for _ in range(4):
            await watch.content.readline()

        server.create(PODS, {"metadata": {"name": "late"}})
        lines = (await watch.content.read()).splitlines()

    assert [json.loads(line)["type"] for line in lines] == ["ADDED", "ERROR"]


async def test_gone_without_events_returns_http_status(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(Gone(), Gone(verb="list", after_events=2))

    assert (await status_of(http, WATCH_PATH))[0] == 410
    code, status = await status_of(http, PODS_PATH)
    assert (code, status["code"], status["reason"]) == (410, 410, "Expired")
    assert (await status_of(http, PODS_PATH))[0] == 200


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (401, "Unauthorized"),
        (403, "Forbidden"),
        (404, "NotFound"),
        (409, "Conflict"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
        (504, "Timeout"),
    ],
)
async def test_refuse_returns_status(
    server: APIServer, http: aiohttp.ClientSession, code: int, reason: str
) -> None:
    server.faults.add(Refuse(status=code, times=2))

    for _ in range(2):
        answered, status = await status_of(http, PODS_PATH)
        assert (answered, status["code"], status["reason"]) == (code, code, reason)

    assert (await status_of(http, PODS_PATH))[0] == 200


async def test_refuse_sends_retry_after(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(Refuse(status=429, retry_after=7, message="later", reason="Busy"))

    async with http.get(PODS_PATH) as answer:
        status = await answer.json()

    assert answer.headers["Retry-After"] == "7"
    assert status["details"] == {"retryAfterSeconds": 7}
    assert (status["message"], status["reason"]) == ("later", "Busy")


async def test_refuse_strikes_review(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(Refuse(status=503, resource="selfsubjectaccessreviews"))
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

    assert (await status_of(http, path, "POST"))[0] == 503


async def test_write_struck_by_refuse_changes_nothing(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    version = server.resource_version
    server.faults.add(Refuse(status=500, verb="delete"))

    code, _ = await status_of(http, f"{PODS_PATH}/web-0", "DELETE")

    assert (code, server.resource_version) == (500, version)
