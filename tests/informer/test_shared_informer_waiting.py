"""`SharedInformer.wait_synced` and `wait_for_version`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fake_source import (
    Page,
    Silence,
    Stream,
    added,
    bookmark,
    states_of,
    thing,
)
from informer_helpers import pods_of, running, settle

from aioinformer.errors import (
    Forbidden,
    HistoryReset,
    InformerStopped,
    NotSynced,
    OptionsError,
    ServerError,
)

BUSY = ServerError("busy", status=503)
REFUSED = Forbidden("no", status=403)

# ---------------------------------------------------------------- wait_synced


async def test_wait_synced_returns_when_the_first_list_is_stored(
    looptime: float,
) -> None:
    pods = pods_of(Page([thing("a")], version=5, seconds=3))
    before = pods.has_synced

    async with running(pods.run()):
        await pods.wait_synced(timeout=10)

        assert (before, pods.has_synced, pods.why_not_synced()) == (
            *(False, True),
            "synced",
        )
        assert looptime == 3
        assert states_of(pods.lister.list()) == ["a@1"]


async def test_wait_synced_can_start_before_the_run() -> None:
    pods = pods_of()
    waiter = asyncio.create_task(pods.wait_synced())
    await settle()

    async with running(pods.run()):
        await waiter


async def test_wait_synced_times_out(looptime: float) -> None:
    pods = pods_of(Silence())

    async with running(pods.run()):
        with pytest.raises(NotSynced) as raised:
            await pods.wait_synced(timeout=7)

    assert looptime == 7
    assert str(raised.value) == "pods is not synced: listing, no error so far"
    assert raised.value.results == {"pods": "listing, no error so far"}
    assert raised.value.__cause__ is None


async def test_wait_synced_timeout_names_the_last_error() -> None:
    pods = pods_of(BUSY)

    async with running(pods.run()):
        with pytest.raises(NotSynced) as raised:
            await pods.wait_synced(timeout=0.5)

    assert str(raised.value) == (
        "pods is not synced: backing off, 1 attempt failed: 503: busy"
    )
    assert raised.value.__cause__ is BUSY


async def test_wait_synced_fails_after_two_refusals(looptime: float) -> None:
    pods = pods_of(REFUSED)

    async with running(pods.run()):
        with pytest.raises(NotSynced, match="backing off, 2 attempts failed: 403: no"):
            await pods.wait_synced(timeout=1000)

        refused_at = float(looptime)
        with pytest.raises(NotSynced):
            await pods.wait_synced()

        assert looptime == refused_at, "at once"
        assert 0.8 <= refused_at < 1.6


async def test_informer_retries_although_a_wait_failed() -> None:
    pods = pods_of(REFUSED, REFUSED, REFUSED, Page([thing("a")], version=5))

    async with running(pods.run()):
        with pytest.raises(NotSynced):
            await pods.wait_synced()

        await pods.wait_synced(fail_fast=False)


async def test_only_consecutive_refusals_fail_the_wait() -> None:
    pods = pods_of(REFUSED, BUSY, REFUSED, BUSY, Page(version=5))

    async with running(pods.run()):
        await pods.wait_synced()


async def test_busy_server_does_not_fail_the_wait(looptime: float) -> None:
    pods = pods_of(BUSY)

    async with running(pods.run()):
        with pytest.raises(NotSynced):
            await pods.wait_synced(timeout=600)

    assert looptime == 600


async def test_wait_synced_raises_when_the_informer_ends() -> None:
    pods = pods_of(Silence())
    waiter = asyncio.create_task(pods.wait_synced())

    async with running(pods.run()):
        await settle()

    with pytest.raises(InformerStopped, match="pods is shutting down"):
        await waiter

    with pytest.raises(InformerStopped):
        await pods.wait_synced()


async def test_wait_synced_of_a_dead_informer_raises_although_it_was_synced() -> None:
    pods = pods_of()
    async with running(pods.run()):
        await pods.wait_synced()
        await pods.wait_synced()
        await pods.wait_for_version("1")

    with pytest.raises(InformerStopped):
        await pods.wait_synced()

    with pytest.raises(InformerStopped):
        await pods.wait_for_version("1")


# ---------------------------------------------------------------- wait_for_version


async def test_wait_for_version_returns_when_the_store_has_the_version(
    looptime: float,
) -> None:
    pods = pods_of(watches=(Stream(2.0, [added(thing("c", 9))], 2.0, [bookmark(12)]),))

    async with running(pods.run()):
        await pods.wait_for_version("5")
        await pods.wait_for_version("9", timeout=5)
        stored = states_of(pods.store.list())
        await pods.wait_for_version("11")

    assert stored == ["a@1", "b@1", "c@9"]
    assert looptime == 4


async def test_wait_for_version_times_out() -> None:
    pods = pods_of()

    async with running(pods.run()):
        with pytest.raises(
            TimeoutError, match="pods did not reach version 6 within 3 s"
        ):
            await pods.wait_for_version("6", timeout=3)


async def test_wait_for_version_raises_history_reset() -> None:
    pods = pods_of(
        Page(version=50),
        Page(version=7),
        watches=(Stream(2.0, [added(thing("c", 6))]),),
    )

    async with running(pods.run()):
        with pytest.raises(HistoryReset, match="version 51 may never be reached"):
            await pods.wait_for_version("51")


async def test_wait_for_version_raises_when_the_informer_ends() -> None:
    pods = pods_of()
    waiter = asyncio.create_task(pods.wait_for_version("6"))

    async with running(pods.run()):
        await settle()

    with pytest.raises(InformerStopped):
        await waiter


@pytest.mark.parametrize("version", ["", "abc", "-1", "1.5", 5, None])
async def test_nondecimal_version_cannot_be_waited_for(version: Any) -> None:
    with pytest.raises(OptionsError, match="cannot compare resource version"):
        await pods_of().wait_for_version(version)


async def test_version_cannot_be_waited_for_if_the_server_has_nondecimal_ones() -> None:
    pods = pods_of(Page(version="abc"))

    async with running(pods.run()):
        with pytest.raises(OptionsError, match="cannot compare resource version 'abc'"):
            await pods.wait_for_version("5")
