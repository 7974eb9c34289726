"""`wait_for_cache_sync`: warnings, and a sync at the moment of the timeout."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from factory_helpers import FakeClient

from aioinformer.errors import NotSynced
from aioinformer.informer import SharedInformerFactory, wait_for_cache_sync


@pytest.fixture
def factory() -> SharedInformerFactory:
    """Make a factory whose server never responds."""
    return SharedInformerFactory(FakeClient())


async def test_wait_for_cache_sync_warns_if_the_factory_is_not_started(
    factory: SharedInformerFactory, caplog: pytest.LogCaptureFixture
) -> None:
    factory.informer("v1", "pods")

    with pytest.raises(NotSynced, match="pods: idle, not started yet"):
        await factory.wait_for_cache_sync(timeout=1)

    async with factory:
        with pytest.raises(NotSynced, match="pods: listing, no error so far"):
            await factory.wait_for_cache_sync(timeout=1)

    (warning,) = [it.getMessage() for it in caplog.records]
    assert warning == "waiting for the caches of a factory that has not been started"


async def test_wait_synced_warns_after_10_s_if_the_informer_does_not_run(
    factory: SharedInformerFactory, caplog: pytest.LogCaptureFixture
) -> None:
    pods = factory.informer("v1", "pods")

    with pytest.raises(NotSynced):
        await pods.wait_synced(timeout=9)

    early = len(caplog.records)
    with pytest.raises(NotSynced):
        await pods.wait_synced(timeout=30)

    async with factory:
        with pytest.raises(NotSynced):
            await pods.wait_synced(timeout=30)

    assert early == 0
    (warning,) = [it.getMessage() for it in caplog.records]
    assert warning == (
        "pods has had waiters for 10 s but is not running: enter its factory, or await its "
        "run()"
    )


class SyncedAtTimeout:
    """An informer that is synced at the moment of the timeout."""

    name = "pods"
    synced = False

    async def wait_synced(self, timeout: float, *, fail_fast: bool) -> None:
        await asyncio.sleep(timeout)
        asyncio.get_running_loop().call_soon(self.sync)
        raise NotSynced("the time is over", results={})

    def sync(self) -> None:
        self.synced = True

    def why_not_synced(self) -> str:
        return "synced" if self.synced else "listing"


async def test_sync_at_the_moment_of_the_timeout_counts() -> None:
    late: Any = SyncedAtTimeout()

    await wait_for_cache_sync(late, timeout=1)

    assert late.synced
