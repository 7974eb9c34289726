"""Open but silent connections are detected in time, and replaced at once."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from fault_rows import A_RELIST, on_list, on_page, on_stream
from fault_runs import attempts_of, running_pods
from informer_helpers import running
from informers import plain
from ledger import Ledger
from wire import proxying, silent_server

from aioinformer.client import Client, ClientConfig, ListWatch
from aioinformer.informer import ReflectorOptions, SharedInformer
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import Fault, Stall

ANSWER_SECONDS = 30.0
"""Timeout for the head of a response, and for each further chunk of a list."""

BOOKMARK_SECONDS = 59.0
"""Just before a silent new watch would be checked by a request."""

SILENCE_SECONDS = 2.5 * BOOKMARK_SECONDS
"""Timeout for a watch with bookmarks."""

GRACE_SECONDS = 10.0
"""Timeout for a watch, after the end that was requested from the server."""

LATE_SECONDS = 0.1


@pytest.mark.parametrize(
    ("script", "options"),
    [
        pytest.param([on_list(head=False)], {}, id="list-without-a-head"),
        pytest.param([on_list()], {}, id="list-without-a-body"),
        pytest.param([on_list(after_bytes=900)], {}, id="list-in-the-middle"),
        pytest.param([*A_RELIST, on_page(head=False)], {}, id="page"),
        pytest.param([*A_RELIST, on_page(after_bytes=900)], {}, id="half-a-page"),
        pytest.param([Stall(head=False)], {}, id="watch-without-a-head"),
        pytest.param(
            [on_stream(head=False)],
            {"streaming_list": True},
            id="stream-without-a-head",
        ),
        pytest.param(
            [on_stream()], {"streaming_list": True}, id="stream-without-an-event"
        ),
        pytest.param(
            [on_stream(after_bytes=900)],
            {"streaming_list": True},
            id="stream-in-the-middle",
        ),
    ],
)
async def test_stalled_response_times_out_after_30_s(
    script: list[Fault], options: dict[str, Any]
) -> None:
    async with APIServer() as server:
        ledger = Ledger(server, random.Random(1))
        server.faults.add(*script)
        async with running_pods(server, ledger, page_size=3, **options) as run:
            await ledger.keep_writing(200, seconds=0.5)
            await run.settled()

        struck = server.faults.struck[-1].occasion
        at = next(it.time for it in server.requests if it.query == dict(struck.query))
        again = attempts_of(server, behind=dict(struck.query))[0]

    # A failure is followed by the first gap, but a stream is replaced by pages at once.
    replaced = bool(options.get("streaming_list")) and again.kind.startswith("list")
    least, most = (0.0, 0.0) if replaced else (0.8, 1.6)
    waited = again.time - at - ANSWER_SECONDS
    assert least - LATE_SECONDS <= waited <= most + LATE_SECONDS
    assert run.verdict() == []


@pytest.mark.parametrize("after_bytes", [0, 1500])
async def test_watch_without_bookmarks_times_out_after_its_requested_end(
    after_bytes: int,
) -> None:
    async with APIServer(bookmark_seconds=10_000) as server:
        ledger = Ledger(server, random.Random(1))
        server.faults.add(Stall(after_bytes=after_bytes))
        async with running_pods(server, ledger, watch_seconds=300) as run:
            await ledger.keep_writing(400, seconds=2)
            await run.settled()

        _, stalled, again, *_ = attempts_of(server)

    length = int(stalled.query["timeoutSeconds"])
    assert 300 <= length <= 600
    waited = again.time - stalled.time
    assert waited == pytest.approx(length + GRACE_SECONDS, abs=LATE_SECONDS)
    assert again.kind == "watch"
    assert run.verdict() == []


async def test_watch_with_bookmarks_times_out_after_two_and_a_half_gaps() -> None:
    async with (
        APIServer(bookmark_seconds=BOOKMARK_SECONDS) as server,
        proxying(server.url) as proxy,
    ):
        ledger = Ledger(server, random.Random(1))
        async with running_pods(
            server, ledger, url=proxy.url, watch_seconds=3000
        ) as run:
            await run.informer.wait_synced(timeout=10)
            await asyncio.sleep(3 * BOOKMARK_SECONDS + 1)
            proxy.swallow()
            await ledger.keep_writing(200, seconds=1)
            await run.settled()

        _, watch, again, *_ = attempts_of(server)

    silent = watch.time + 3 * BOOKMARK_SECONDS
    assert again.kind == "watch"
    assert again.time - silent == pytest.approx(SILENCE_SECONDS, abs=LATE_SECONDS)
    assert run.verdict() == []


async def test_server_that_accepts_but_never_responds_times_out_after_30_s() -> None:
    async with silent_server() as server, Client.from_url(server.url) as client:
        informer = SharedInformer(ListWatch(client, PODS))
        async with running(informer.run()):
            await asyncio.sleep(ANSWER_SECONDS - 1)
            assert informer.status.failures == 0

            await asyncio.sleep(3)
            assert informer.status.failures == 1
            assert server.accepted == 2, "after the first gap"


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_stalled_list_is_replaced_in_real_time() -> None:
    async with APIServer() as server:
        server.create(PODS, plain("web"))
        server.faults.add(on_list())
        config = ClientConfig(server=server.url, head_seconds=0.2, read_seconds=0.2)
        async with Client(config) as client:
            informer = SharedInformer(ListWatch(client, PODS))
            async with running(informer.run()):
                await informer.wait_synced(timeout=20)
                assert [obj.name for obj in informer.lister.list()] == ["web"]

        assert informer.status.restarts == 1


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_stalled_watch_is_replaced_in_real_time() -> None:
    async with APIServer() as server, server.client() as client:
        ledger = Ledger(server, random.Random(1))
        server.faults.add(Stall())
        informer = SharedInformer(
            ListWatch(client, PODS),
            options=ReflectorOptions(watch_seconds=1, watch_grace_seconds=0.2),
        )
        async with running(informer.run()):
            await informer.wait_synced(timeout=20)
            ledger.write()
            await informer.wait_for_version(server.resource_version, timeout=20)

        assert [one.kind for one in attempts_of(server)][:3] == [
            *("list any", "watch", "watch")
        ]
