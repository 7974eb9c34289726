"""G9: a stopped informer ends at once, whatever it was waiting for."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from fault_rows import A_RELIST, on_list, on_page, on_stream
from informer_helpers import settle
from ledger import Ledger
from wire import silent_server, unaccepting_server

from aioinformer.client import Client, ListWatch
from aioinformer.informer import ReflectorOptions, SharedInformer
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import Fault, Refuse, Slow, Stall

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

TURN_SECONDS = 0.001
"""Practically no time, on a clock that only moves when nothing is left to do."""


@dataclass(frozen=True)
class Moment:
    """A state of an informer when it is stopped.

    Attributes:
        faults: Faults that hold it in the state.
        phase: Phase of its status.
        seconds: Time until it has reached the state.
        requested: Requests that are open on the server then.
        options: Options of the reflector.
    """

    faults: list[Fault]
    phase: str
    seconds: float = 5.0
    requested: int = 1
    options: dict[str, Any] = field(default_factory=dict)


IN_PAGES = {"page_size": 3}
AS_STREAM = {"streaming_list": True}

MOMENTS = {
    "list-without-a-head": Moment([on_list(head=False)], "listing"),
    "list-in-the-middle": Moment([on_list(after_bytes=900)], "listing"),
    "page-without-a-head": Moment(
        [*A_RELIST, on_page(head=False)], "listing", options=IN_PAGES
    ),
    "page-in-the-middle": Moment(
        [*A_RELIST, on_page(after_bytes=900)], "listing", options=IN_PAGES
    ),
    "page-ahead": Moment(
        [
            *A_RELIST,
            on_list(after_bytes=900, skip=1),
            on_page(after_bytes=900),
        ],
        "listing",
        requested=2,
        options=IN_PAGES,
    ),
    "stream-without-a-head": Moment(
        [on_stream(head=False)], "listing", options=AS_STREAM
    ),
    "stream-in-the-middle": Moment(
        [on_stream(after_bytes=900)], "listing", options=AS_STREAM
    ),
    "watch-without-a-head": Moment([Stall(head=False)], "watching"),
    "watch": Moment([], "watching"),
    "watch-trickling": Moment([Slow(bytes_per_second=100)], "watching"),
    "backing-off": Moment(
        [Refuse(status=503, times=None)], "backing off", seconds=100, requested=0
    ),
    "waiting-as-asked": Moment(
        [Refuse(status=429, retry_after=100)], "backing off", requested=0
    ),
    "silence-check": Moment(
        [on_list(head=False, skip=1)], "watching", seconds=75, requested=2
    ),
}


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
async def test_informer_stops_at_once_whatever_it_waits_for(moment: Moment) -> None:
    async with APIServer(bookmark_seconds=1000) as server, server.client() as client:
        ledger = Ledger(server, random.Random(1))
        server.faults.add(*moment.faults)
        before = asyncio.all_tasks()
        informer, task = started(client, **moment.options)
        for _ in range(10):
            if moment.seconds < 60:
                ledger.write()

            await asyncio.sleep(moment.seconds / 10)

        assert informer.status.phase == moment.phase
        assert open_requests(server) == moment.requested

        await stopped_at_once(task)

        assert open_requests(server) == 0
        assert asyncio.all_tasks() - before <= serving()
        assert timers() == []


@asynccontextmanager
async def silent() -> AsyncIterator[str]:
    async with silent_server() as server:
        yield server.url


@pytest.mark.parametrize(
    "way", [{}, IN_PAGES, AS_STREAM], ids=["list", "page", "stream"]
)
@pytest.mark.parametrize("where", [silent, unaccepting_server])
async def test_informer_stops_at_once_while_the_server_is_silent(
    where: Callable[[], AbstractAsyncContextManager[str]], way: dict[str, Any]
) -> None:
    async with where() as url, Client.from_url(url) as client:
        before = asyncio.all_tasks()
        for seconds in (0.0, 1.0, 45.0):
            informer, task = started(client, **way)
            await asyncio.sleep(seconds)

            await stopped_at_once(task)

            assert asyncio.all_tasks() <= before
            assert timers() == []
            assert informer.status.phase == "stopped"


def started(
    client: Client, **options: Any
) -> tuple[SharedInformer, asyncio.Task[None]]:
    informer = SharedInformer(
        ListWatch(client, PODS),
        options=ReflectorOptions(**options),
        rng=random.Random(1),
    )
    return informer, asyncio.create_task(informer.run())


async def stopped_at_once(task: asyncio.Task[None]) -> None:
    """Stop an informer, then let the server notice it."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    task.cancel()
    await asyncio.wait({task})

    assert task.cancelled()
    assert loop.time() - began < TURN_SECONDS
    await settle()


def open_requests(server: APIServer) -> int:
    return len(server._http_server._busy)


def serving() -> set[asyncio.Task[Any]]:
    """Return the tasks of the server, one per kept-alive connection."""
    return {
        task
        for task in asyncio.all_tasks()
        if "RequestHandler.start" in repr(task.get_coro())
    }


def timers() -> list[str]:
    """Return the timers that are left."""
    loop: Any = asyncio.get_running_loop()
    return [
        repr(timer)
        for timer in loop._scheduled
        if not timer.cancelled()
        and "aioinformer/" in repr(timer)
        and "aioinformer/testing" not in repr(timer)
    ]
