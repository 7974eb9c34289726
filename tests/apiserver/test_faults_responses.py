"""Faults that replace responses, and faults of the connection."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from each_case import each_case

from aioinformer.errors import OptionsError
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import (
    Compact,
    Delay,
    End,
    Fault,
    Faults,
    Page,
    Refuse,
    Slow,
    Stall,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MAPS_PATH = "/api/v1/namespaces/default/configmaps"
WATCH_PATH = f"{MAPS_PATH}?watch=1"


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as running:
        for number in range(4):
            make(running, f"map-{number}")

        yield running


@pytest.fixture
async def http(server: APIServer) -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(server.url, timeout=timeout) as session:
        yield session


def make(server: APIServer, name: str) -> None:
    server.create(CONFIG_MAPS, {"metadata": {"name": name}})


async def whole_body(http: aiohttp.ClientSession, path: str) -> bytes:
    async with http.get(path) as answer:
        return await answer.read()


# -------------------------------------------------------------------- matching


@each_case(
    "fault, namespace, query, struck",
    [
        (Compact(namespace="a"), "a", {}, True),
        (Compact(namespace="a"), "b", {}, False),
        (Compact(namespace=""), "b", {}, False),
        (Compact(namespace=""), "", {}, True),
        (Compact(parameter="continue"), "", {"continue": "x"}, True),
        (Compact(parameter="continue"), "", {"continue": ""}, False),
        (Compact(parameter="continue"), "", {"limit": "1"}, False),
    ],
)
def test_fault_matches_namespace_or_parameter(
    fault: Fault, namespace: str, query: dict[str, str], *, struck: bool
) -> None:
    faults = Faults()
    faults.add(fault)

    taken = faults.take("list", "pods", namespace=namespace, query=query)

    assert (taken is not None) is struck


async def test_faults_record_strikes(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    fault = Refuse(status=503, verb="list", skip=1)
    server.faults.add(fault)

    await whole_body(http, MAPS_PATH)
    await whole_body(http, f"{MAPS_PATH}?limit=2")
    await whole_body(http, MAPS_PATH)

    (strike,) = server.faults.struck
    occasion = strike.occasion
    assert strike.fault is fault
    assert (occasion.verb, occasion.resource) == ("list", "configmaps")
    assert (occasion.namespace, occasion.path) == ("default", MAPS_PATH)
    assert occasion.query == {"limit": "2"}


# -------------------------------------------------------------------- responses


@pytest.mark.parametrize("status", [200, 502, 503])
@pytest.mark.parametrize("path", [MAPS_PATH, WATCH_PATH])
async def test_page_returns_html(
    server: APIServer, http: aiohttp.ClientSession, status: int, path: str
) -> None:
    server.faults.add(Page(status=status))

    async with http.get(path) as answer:
        assert (answer.status, answer.content_type) == (status, "text/html")
        assert f"<h1>{status} {answer.reason}</h1>" in await answer.text()


async def test_page_returns_given_html(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(Page(status=403, body="<p>log in</p>"))

    assert await whole_body(http, MAPS_PATH) == b"<p>log in</p>"


async def test_refuse_sends_retry_after_as_date(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(Refuse(status=429, retry_after=3600, retry_date=True))

    async with http.get(MAPS_PATH) as answer:
        when = parsedate_to_datetime(answer.headers["Retry-After"])
        assert (await answer.json())["details"] == {"retryAfterSeconds": 3600}

    wait = (when - datetime.now(tz=UTC)).total_seconds()
    assert 3500 < wait <= 3600


async def test_compact_expires_continue_token(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(Compact(parameter="continue"))

    page = json.loads(await whole_body(http, f"{MAPS_PATH}?limit=2"))
    make(server, "late")
    token = page["metadata"]["continue"]
    async with http.get(MAPS_PATH, params={"limit": "2", "continue": token}) as answer:
        status = await answer.json()

    assert (answer.status, status["reason"]) == (410, "Expired")


async def test_compact_expires_version_of_watch(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    version = server.resource_version
    make(server, "late")
    server.faults.add(Compact(verb="watch"))

    body = await whole_body(http, f"{WATCH_PATH}&resourceVersion={version}")

    assert json.loads(body)["object"]["code"] == 410


# -------------------------------------------------------------------- Delay, Stall and Slow


async def test_delayed_request_returns_state_after_delay(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    loop = asyncio.get_running_loop()
    server.faults.add(Delay(seconds=20), Stall(verb="list", head=False, seconds=20))
    start = loop.time()
    loop.call_later(5, make, server, "early")
    loop.call_later(25, make, server, "late")

    delayed = json.loads(await whole_body(http, MAPS_PATH))
    assert loop.time() - start == pytest.approx(20, abs=0.1)
    stalled = json.loads(await whole_body(http, MAPS_PATH))

    assert len(delayed["items"]) == 5
    # A stall holds back a response that was made before.
    assert len(stalled["items"]) == 5
    assert loop.time() - start == pytest.approx(40, abs=0.1)


async def test_slow_limits_rate_of_body(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    whole = await whole_body(http, MAPS_PATH)
    server.faults.add(Slow(verb="list", bytes_per_second=50))
    loop = asyncio.get_running_loop()
    start = loop.time()

    async with http.get(MAPS_PATH) as answer:
        first = await answer.content.readany()
        assert len(first) <= 10
        rest = await answer.read()

    assert first + rest == whole
    assert loop.time() - start == pytest.approx(len(whole) / 50, rel=0.05)


async def test_slow_watch_loses_no_events(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(Slow(bytes_per_second=100))
    before = server.resource_version

    async with http.get(f"{WATCH_PATH}&resourceVersion={before}") as watch:
        for number in range(5):
            make(server, f"late-{number}")
            await asyncio.sleep(0.5)

        lines = [json.loads(await watch.content.readline()) for _ in range(5)]

    names = [it["object"]["metadata"]["name"] for it in lines]
    assert names == [f"late-{number}" for number in range(5)]


@pytest.mark.parametrize(
    "fault",
    [Slow(verb="list", bytes_per_second=1), Delay(seconds=3600), Stall(verb="list")],
    ids=repr,
)
async def test_faults_do_not_block_stop(
    server: APIServer, http: aiohttp.ClientSession, fault: Fault
) -> None:
    server.faults.add(fault)
    loop = asyncio.get_running_loop()
    requested = asyncio.create_task(whole_body(http, MAPS_PATH))
    await asyncio.sleep(2)
    start = loop.time()

    await server.stop()

    assert loop.time() - start < 0.5
    await asyncio.wait({requested})
    # Only a delayed response may be complete.
    if not isinstance(fault, Delay):
        assert isinstance(requested.exception(), aiohttp.ClientError)


async def test_stall_continues_during_changes(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(Stall(after_bytes=5))

    async with http.get(WATCH_PATH) as watch:
        assert await watch.content.readexactly(5) == b'{"typ'
        make(server, "late")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(600):
                await watch.content.readany()


# -------------------------------------------------------------------- End


@pytest.mark.parametrize("path", [MAPS_PATH, f"{WATCH_PATH}&timeoutSeconds=2"])
async def test_end_truncates_response_cleanly(
    server: APIServer, http: aiohttp.ClientSession, path: str
) -> None:
    whole = await whole_body(http, path)

    for size in (0, 1, 100, len(whole) - 2):
        server.faults.add(End(verb="", after_bytes=size))
        # aiohttp raises if a response is incomplete.
        assert await whole_body(http, path) == whole[:size]


def test_fault_repr_shows_changed_options() -> None:
    script = Faults()
    script.add(Stall(), Refuse(status=429, verb="list", times=None))

    shown = "<Faults [Stall(), Refuse(verb='list', times=None, status=429)]>"
    assert repr(script) == shown


@each_case(
    "wrong",
    [
        pytest.param(lambda: Slow(bytes_per_second=0), id="slow"),
        pytest.param(lambda: Delay(seconds=-1), id="delay"),
        pytest.param(lambda: Stall(seconds=-1), id="stall"),
        pytest.param(lambda: Page(status=100), id="page"),
        pytest.param(lambda: Refuse(status=429, retry_after=-1), id="retry"),
        pytest.param(lambda: Refuse(status=429, retry_date=True), id="date"),
    ],
)
def test_invalid_response_faults_are_rejected(wrong: Any) -> None:
    with pytest.raises(OptionsError):
        wrong()
