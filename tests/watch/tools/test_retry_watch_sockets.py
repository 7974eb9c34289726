"""`RetryWatch` over sockets, with faults of server and network."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest
from informer_helpers import Even

from aioinformer.client import Client, ListWatch
from aioinformer.errors import OptionsError
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer
from aioinformer.watch import RetryWatch
from aioinformer_apiserver.faults import (
    Cut,
    Delay,
    Duplicate,
    End,
    ErrorEvent,
    Garble,
    Gone,
    Page,
    Refuse,
    Slow,
    Stall,
    StepBack,
    UnknownType,
    Unreadable,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aioinformer_apiserver.faults import Fault


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer(auto_namespaces=True) as server:
        yield server


@pytest.fixture
async def client(server: APIServer) -> AsyncIterator[Client]:
    async with server.client() as client:
        yield client


def watch_of(server: APIServer, client: Client) -> RetryWatch:
    """Return a watch of objects written from now on."""
    source = ListWatch(client, CONFIG_MAPS)
    return RetryWatch(source, server.resource_version, rng=Even())


def write(server: APIServer, *names: str) -> None:
    for name in names:
        server.create(CONFIG_MAPS, {"metadata": {"name": name}})


async def names_of(watch: RetryWatch, number: int) -> str:
    return "".join([(await anext(watch)).object.name for _ in range(number)])


TROUBLES: dict[str, list[Fault]] = {
    "none": [],
    "cut-before-the-head": [Cut(head=False)],
    "cut-after-the-head": [Cut(after_bytes=0)],
    "cut-in-a-line": [Cut(after_bytes=700)],
    "cut-by-a-reset": [Cut(after_bytes=700, reset=True)],
    "ended-cleanly": [
        End(after_events=2),
        End(after_events=0),
        End(after_events=1),
    ],
    "ended-in-a-line": [End(after_bytes=700)],
    "refused-for-now": [Refuse(verb="watch", status=503), Refuse(status=429)],
    "refused-with-a-wish": [Refuse(verb="watch", status=503, retry_after=30)],
    "a-web-page": [Page(verb="watch", status=502), Page(verb="watch", status=200)],
    "error-event-500": [ErrorEvent(status=500, after_events=2)],
    "error-event-504": [ErrorEvent(status=504, after_events=0)],
    "no-json": [Garble(after_events=2), Garble(after_events=0)],
    "twice": [Duplicate(after_events=1, copies=2)],
    "silence-before-the-head": [Stall(head=False)],
    "silence-in-a-line": [Stall(after_bytes=700)],
    "late": [Delay(verb="watch", seconds=20)],
    "slow": [Slow(bytes_per_second=100)],
}


@pytest.mark.parametrize("faults", TROUBLES.values(), ids=TROUBLES)
async def test_retry_watch_returns_every_change_once_and_in_order(
    server: APIServer, client: Client, faults: list[Fault]
) -> None:
    watch = watch_of(server, client)
    server.faults.add(*faults)
    write(server, *"abc")

    async with watch:
        assert await names_of(watch, 3) == "abc"
        write(server, *"def")
        assert await names_of(watch, 3) == "def"

        server.faults.check()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2000):
                await watch.next_batch()


# Faults of a network; `n` differs between faults.
ANY: list[Callable[[int], Fault]] = [
    lambda n: Cut(after_bytes=n * 50),
    lambda n: Cut(after_bytes=n * 50, reset=True),
    lambda n: End(after_bytes=n * 50),
    lambda n: End(after_events=n % 5),
    lambda n: Stall(after_bytes=n * 50, seconds=n),
    lambda n: Delay(verb="watch", seconds=n),
    lambda n: Refuse(verb="watch", status=503),
    lambda n: ErrorEvent(status=500, after_events=n % 5),
    lambda n: Garble(after_events=n % 5),
    lambda n: Duplicate(after_events=n % 5, copies=n % 3 + 1),
]


@pytest.mark.parametrize("seed", range(8))
async def test_retry_watch_returns_changes_after_random_faults(
    server: APIServer, client: Client, seed: int
) -> None:
    watch = watch_of(server, client)
    rng = random.Random(seed)
    faults = [rng.choice(ANY)(rng.randrange(1, 40)) for _ in range(30)]
    server.faults.add(*faults)

    async with watch:
        for start in range(0, 100, 5):
            names = [f"{number:02}" for number in range(start, start + 5)]
            write(server, *names)
            assert await names_of(watch, 5) == "".join(names), faults
            await asyncio.sleep(500)  # longer than one watch

    assert len(server.faults.struck) > 10


async def test_unreadable_event_is_counted_and_skipped(
    server: APIServer, client: Client
) -> None:
    watch = watch_of(server, client)
    server.faults.add(Unreadable(after_events=1), UnknownType(after_events=0))
    server.faults.add(End(after_events=1))
    write(server, *"abc")

    async with watch:
        assert await names_of(watch, 2) == "ac"
        assert watch.skipped == 1


async def test_retry_watch_ignores_event_with_older_version(
    server: APIServer, client: Client
) -> None:
    write(server, *"xyz")
    watch = watch_of(server, client)
    server.faults.add(StepBack(after_events=1))
    write(server, *"abc")

    async with watch:
        assert await names_of(watch, 2) == "ac"
        assert watch.duplicates == 1


@pytest.mark.parametrize("as_event", [True, False], ids=["event", "status"])
async def test_expired_version_ends_retry_watch_with_error_event(
    server: APIServer, client: Client, as_event: bool
) -> None:
    watch = watch_of(server, client)
    if as_event:
        server.faults.add(Gone(after_events=2))
    else:
        server.faults.add(End(after_events=2), Refuse(verb="watch", status=410))

    write(server, *"abc")
    async with watch:
        events = [event async for event in watch]

    assert [event.type for event in events] == ["ADDED", "ADDED", "ERROR"]
    assert events[-1].error().status == 410


async def test_compacted_history_ends_retry_watch(
    server: APIServer, client: Client
) -> None:
    watch = watch_of(server, client)
    write(server, *"abc")
    server.compact()

    async with watch:
        (event,) = [event async for event in watch]

    assert event.error().status == 410


@pytest.mark.parametrize("status", [401, 403])
async def test_final_refusal_ends_retry_watch_with_error_event(
    server: APIServer, client: Client, status: int
) -> None:
    watch = watch_of(server, client)
    server.faults.add(Refuse(verb="watch", status=status), Refuse(status=status))

    async with watch:
        (event,) = [event async for event in watch]

    assert event.error().status == status


async def test_retry_watch_survives_restart_of_server(
    server: APIServer, client: Client
) -> None:
    watch = watch_of(server, client)
    write(server, "a")

    async with watch:
        assert await names_of(watch, 1) == "a"
        await server.restart()
        write(server, *"bc")
        assert await names_of(watch, 2) == "bc"


async def test_stop_ends_retry_watch_awaiting_response(
    server: APIServer, client: Client
) -> None:
    watch = watch_of(server, client)
    server.faults.add(Stall(head=False))
    loop = asyncio.get_running_loop()

    async with watch:
        reading = asyncio.create_task(watch.next_batch())
        await server.until(lambda: list(server.requests))
        watch.stop()
        before = loop.time()
        assert await reading == []
        assert loop.time() - before < 0.1


async def test_retry_watch_of_unentered_client_raises_options_error(
    server: APIServer,
) -> None:
    async with watch_of(server, server.client()) as watch:
        with pytest.raises(OptionsError, match="not entered"):
            await watch.next_batch()
