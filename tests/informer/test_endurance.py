"""Informers over sockets for long: few requests to a failing server, few gaps."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from fault_runs import attempts_of, running_pods
from informer_helpers import running
from ledger import Ledger
from wire import Cutting, proxying, silent_server, unaccepting_server

from aioinformer.client import Client, ListWatch
from aioinformer.informer import ReflectorOptions, SharedInformer
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import (
    Cut,
    End,
    ErrorEvent,
    Fault,
    Garble,
    Gone,
    Refuse,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MOST_REQUESTS = 9
"""Limit of the first two seconds: attempts start at least 0.8 s apart, and a list with
its watch is one attempt."""

ONE_MORE_LIST = 4
"""Requests of the list in pages and its watch that follow the first 410 at once."""

WAYS: dict[str, dict[str, Any]] = {
    "pages": {"page_size": 3},
    "stream": {"streaming_list": True},
}

TROUBLE: dict[str, list[Fault]] = {
    "everything-503": [Refuse(status=503, times=None)],
    "everything-403": [Refuse(status=403, times=None)],
    "everything-401": [Refuse(status=401, times=None)],
    "everything-404": [Refuse(status=404, times=None)],
    "everything-410": [Refuse(status=410, times=None)],
    "everything-429-without-a-time": [Refuse(status=429, times=None)],
    "everything-closed": [Cut(verb="", head=False, times=None)],
    "everything-reset": [Cut(verb="", head=False, reset=True, times=None)],
    "everything-garbled": [Garble(verb="", times=None)],
    "watches-503": [Refuse(verb="watch", status=503, times=None)],
    "watches-403": [Refuse(verb="watch", status=403, times=None)],
    "watches-404": [Refuse(verb="watch", status=404, times=None)],
    "watches-closed": [Cut(head=False, times=None)],
    "watches-closed-behind-the-head": [Cut(after_bytes=0, times=None)],
    "watches-clean-and-empty": [End(after_events=0, times=None)],
    "watches-gone": [Gone(times=None)],
    "watches-gone-by-an-event": [ErrorEvent(status=410, times=None)],
    "watches-in-error": [ErrorEvent(status=500, times=None)],
    "watches-end-with-each-event": [End(after_events=1, times=None)],
}


@asynccontextmanager
async def informed(
    url: str, token: str = "", **options: Any
) -> AsyncIterator[SharedInformer]:
    """Run an informer of the pods of a server."""
    async with Client.from_url(url, token=token or None) as client:
        informer = SharedInformer(
            ListWatch(client, PODS),
            options=ReflectorOptions(**options),
            rng=random.Random(1),
        )
        async with running(informer.run()):
            yield informer


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("trouble", TROUBLE.values(), ids=TROUBLE)
async def test_failing_server_gets_few_requests(
    trouble: list[Fault], way: dict[str, Any]
) -> None:
    async with APIServer() as server:
        ledger = Ledger(server, random.Random(1))
        server.faults.add(*trouble)
        async with informed(server.url, **way):
            await ledger.keep_writing(20, seconds=0.1)

        most = MOST_REQUESTS
        if any(
            isinstance(it, Gone) or getattr(it, "status", 0) == 410 for it in trouble
        ):
            most += ONE_MORE_LIST

        assert 1 < len(server.requests) <= most
        assert server.faults.struck


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("closes", [True, False], ids=["closes", "says-nothing"])
async def test_server_that_accepts_but_never_responds_gets_few_requests(
    way: dict[str, Any], *, closes: bool
) -> None:
    async with (
        silent_server(closes=closes) as server,
        informed(server.url, **way) as informer,
    ):
        await asyncio.sleep(2)

        assert 1 <= server.accepted <= MOST_REQUESTS
        assert (informer.status.failures > 0) == closes


async def test_server_that_does_not_accept_is_retried_every_30_s() -> None:
    async with unaccepting_server() as url, informed(url) as informer:
        await asyncio.sleep(29)
        assert informer.status.failures == 0

        await asyncio.sleep(100)
        assert informer.status.failures == 4


@pytest.mark.parametrize("how", ["end", "fin", "reset"])
async def test_proxy_that_cuts_every_minute_leaves_no_gaps(how: Cutting) -> None:
    async with (
        APIServer() as server,
        proxying(server.url, how=how, seconds=60) as proxy,
    ):
        ledger = Ledger(server, random.Random(how))
        async with running_pods(server, ledger, url=proxy.url) as run:
            await run.informer.wait_synced(timeout=10)
            began = asyncio.get_running_loop().time()
            await ledger.keep_writing(60, seconds=20)

            seconds = asyncio.get_running_loop().time() - began
            assert proxy.connected_seconds(began) > 0.97 * seconds
            await run.settled()

        kinds = [one.kind for one in attempts_of(server)]

    assert run.verdict() == []
    assert kinds[0] == "list any"
    assert set(kinds[1:]) == {"watch"}, "no relist"
    assert len(kinds) == pytest.approx(21, abs=2)
