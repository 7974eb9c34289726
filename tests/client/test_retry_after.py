"""Repetition of requests by the `Retry-After` of a refusal."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from canned import CannedServer, list_body
from metrics_helpers import PlainSink

from aioinformer.client import Client, ListWatch
from aioinformer.client.config import ClientConfig
from aioinformer.client.verbs import Request
from aioinformer.controller.client import ElectionClient, EventsClient
from aioinformer.errors import ApiError, ServerError, TooManyRequests, TransportError
from aioinformer.model.resources import PODS
from aioinformer.watch import ListOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

POD = {"metadata": {"name": "a", "namespace": "x"}}
VERBS = {
    "get": lambda it: it.get(PODS, "a", namespace="x"),
    "create": lambda it: it.create(PODS, POD),
    "update": lambda it: it.update(PODS, POD),
    "patch": lambda it: it.patch(PODS, "a", {}, namespace="x"),
    "delete": lambda it: it.delete(PODS, "a", namespace="x"),
    "delete_collection": lambda it: it.delete_collection(PODS, namespace="x"),
    "list": lambda it: it.list(PODS),
}


@asynccontextmanager
async def refusing(
    *statuses: int, wait: str | None = "2", **options: Any
) -> AsyncIterator[tuple[Client, CannedServer]]:
    """Provide a client of a server that refuses some requests, then serves all."""
    async with CannedServer() as server:
        headers = {} if wait is None else {"Retry-After": wait}
        for status in statuses:
            server.json({"kind": "Status", "code": status}, status, **headers)

        server.text(list_body().decode(), 200, "application/json")
        sink = options.pop("metrics", None)
        config = ClientConfig(server=server.url, **options)
        client = Client(config, **({"metrics": sink} if sink else {}))
        async with client:
            yield client, server


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("status", [429, 503])
async def test_each_verb_is_repeated_when_the_server_asks_for_it(
    verb: str, status: int
) -> None:
    call: Callable[[Client], Coroutine[Any, Any, object]] = VERBS[verb]
    async with refusing(status, status) as (client, server):
        started = asyncio.get_running_loop().time()
        await call(client)

    assert asyncio.get_running_loop().time() - started == pytest.approx(4, abs=0.5)
    assert len(server.seen) == 3
    assert len({(it.method, it.target, it.body) for it in server.seen}) == 1


@pytest.mark.parametrize(
    ("status", "wait"),
    [(429, None), (503, None), (409, "1"), (404, "1"), (503, "121"), (503, "soon")],
)
async def test_other_refusals_are_not_repeated(status: int, wait: str | None) -> None:
    async with refusing(status, wait=wait) as (client, server):
        with pytest.raises(ApiError):
            await client.get(PODS, "a", namespace="x")

    assert len(server.seen) == 1


@pytest.mark.parametrize("most", [10, 2, 0])
async def test_request_is_repeated_max_retries_times(most: int) -> None:
    async with refusing(*[503] * 12, max_retries=most) as (client, server):
        with pytest.raises(ServerError):
            await client.get(PODS, "a", namespace="x")

    assert len(server.seen) == most + 1


async def test_timeout_of_the_caller_ends_the_repetitions() -> None:
    async with refusing(*[503] * 12) as (client, server):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await client.get(PODS, "a", namespace="x")

    assert len(server.seen) == 3


async def test_closing_the_client_ends_the_wait() -> None:
    async with refusing(503, wait="60") as (client, server):
        waiting = asyncio.create_task(client.get(PODS, "a", namespace="x"))
        while not server.seen:
            await asyncio.sleep(0.01)

        await asyncio.sleep(1)
        started = asyncio.get_running_loop().time()
        await client.close()
        with pytest.raises(TransportError, match="closed during the request"):
            await waiting

    assert asyncio.get_running_loop().time() - started < 1


async def test_fence_is_called_before_each_repetition() -> None:
    calls: list[int] = []

    def fence() -> None:
        calls.append(len(calls))
        if len(calls) == 2:
            raise TransportError("no longer the leader")

    request = replace(Request("POST", "/x", body=b"{}"), fence=fence)
    async with refusing(503, 503) as (client, server):
        with pytest.raises(TransportError, match="no longer the leader"):
            await client._fetch(request)

    assert (calls, len(server.seen)) == ([0, 1], 1)


async def test_repetitions_are_counted() -> None:
    sink = PlainSink()
    async with refusing(429, 503, metrics=sink) as (client, _):
        await client.get(PODS, "a", namespace="x")

    name = "rest_client_request_retries_total"
    codes = {
        labels[1]: count for (it, labels), count in sink.counts.items() if it == name
    }
    assert codes == {"429": 1, "503": 1}


async def test_requests_with_an_own_backoff_are_not_repeated() -> None:
    async def informer(client: Client) -> None:
        async with ListWatch(client, PODS).list(ListOptions()):
            pass

    async def election(client: Client) -> None:
        await ElectionClient(client).get(PODS, "a", namespace="x")

    async def stream(client: Client) -> None:
        async with client.stream("GET", "/version"):
            pass

    async def events(client: Client) -> None:
        await EventsClient(client).patch(PODS, "a", {}, namespace="x")

    for send in (informer, election, events, stream):
        async with refusing(429) as (client, server):
            with pytest.raises(TooManyRequests):
                await send(client)

        assert len(server.seen) == 1


async def test_repetitions_wait_for_the_rate_limit() -> None:
    async with CannedServer() as server:
        server.json({"kind": "Status", "code": 429}, 429, **{"Retry-After": "0"})
        server.json(POD)
        async with Client.from_url(server.url, qps=0.1, burst=1) as client:
            started = asyncio.get_running_loop().time()
            await client.get(PODS, "a", namespace="x")

    assert asyncio.get_running_loop().time() - started == pytest.approx(10, abs=0.5)
