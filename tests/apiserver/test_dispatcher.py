"""Dispatcher: rounds that call all watches, with a pause after a long one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aioinformer.model.resources import CONFIG_MAPS
from aioinformer_apiserver.storage.dispatcher import Dispatcher
from aioinformer_apiserver.storage.kinds import built_in_kinds
from aioinformer_apiserver.storage.storage import Storage

if TYPE_CHECKING:
    from aioinformer_apiserver.storage.storage import Collection

KIND = next(it for it in built_in_kinds() if it.resource == CONFIG_MAPS)


@pytest.fixture
def storage() -> Storage:
    return Storage()


@pytest.fixture
def maps(storage: Storage) -> Collection:
    return storage.serve(KIND)


def put(storage: Storage, maps: Collection, name: str = "a") -> None:
    storage.put(maps, {"metadata": {"name": name, "namespace": "default"}})


async def test_dispatcher_calls_watches_after_change(
    storage: Storage, maps: Collection
) -> None:
    rounds: list[float] = []
    loop = asyncio.get_running_loop()
    leave = Dispatcher(maps.subscribe).subscribe(lambda: rounds.append(loop.time()))

    put(storage, maps)
    put(storage, maps)
    before = list(rounds)
    await asyncio.sleep(0)

    assert (before, len(rounds)) == ([], 1)
    leave()


async def test_dispatcher_pauses_after_long_round(
    storage: Storage, maps: Collection
) -> None:
    """The pause is twice as long as the round, and at most 50 ms."""
    loop = asyncio.get_running_loop()
    starts: list[float] = []
    clock = [0.0]
    dispatcher = Dispatcher(maps.subscribe)

    def work() -> None:
        starts.append(clock[0])
        clock[0] += 0.010

    leave = dispatcher.subscribe(work)
    # The loop's clock does not advance during a callback, so the test advances it.
    loop.time = lambda: clock[0]  # type: ignore[method-assign]
    try:
        put(storage, maps)
        dispatcher._run()
        put(storage, maps)
        handle = dispatcher._round
        assert isinstance(handle, asyncio.TimerHandle)
        assert handle.when() == pytest.approx(0.030)
        clock[0] += 5
        dispatcher._paused_until = 0.0
        leave()
    finally:
        del loop.time

    assert starts == [0.0]


async def test_dispatcher_stops_calling_after_unsubscribe(
    storage: Storage, maps: Collection
) -> None:
    rounds: list[str] = []
    dispatcher = Dispatcher(maps.subscribe)
    first = dispatcher.subscribe(lambda: rounds.append("first"))
    second = dispatcher.subscribe(lambda: rounds.append("second"))

    put(storage, maps)
    first()
    await asyncio.sleep(0)
    put(storage, maps)
    second()
    second()
    await asyncio.sleep(0)

    assert rounds == ["second"]
    assert "watches=0" in repr(dispatcher)


def test_dispatcher_without_watches_needs_no_loop(
    storage: Storage, maps: Collection
) -> None:
    put(storage, maps)

    assert repr(maps) == "<Collection configmaps objects=1 history=1..2>"
