"""`Controller`: ends without a drain."""

from __future__ import annotations

import asyncio

import pytest
from controller_helpers import Slow, controlled, named
from leader_helpers import MemoryLease, MemoryLock, elector, hang, now

from aioinformer.errors import LeadershipLost
from aioinformer.testing import FakeListerWatcher


async def test_reconciles_are_cancelled_at_once_when_leadership_is_lost() -> None:
    slow, lock = Slow(), MemoryLock(MemoryLease(), "me")
    one, source = elector(lock), FakeListerWatcher(named("a"))
    start = now()

    async def leading() -> None:
        async with one.leading(), controlled(slow, source, elector=one):
            await slow.begun.wait()
            lock.fault = hang
            await asyncio.Event().wait()

    with pytest.raises(LeadershipLost):
        await leading()

    assert slow.record == ["cancelled"]
    assert now() - start == pytest.approx(10, abs=0.1), "the deadline, and no drain"


async def test_reconciles_are_drained_while_it_leads() -> None:
    slow, one = Slow(5.0), elector(MemoryLock(MemoryLease(), "me"))
    source = FakeListerWatcher(named("a"))
    async with one.leading(), controlled(slow, source, elector=one):
        await slow.begun.wait()

    assert slow.record == ["done"]


async def test_hurry_ends_running_drain() -> None:
    slow, source = Slow(), FakeListerWatcher(named("a"))
    start = now()
    async with controlled(slow, source, drain_timeout=60) as (_, controller):
        await slow.begun.wait()
        asyncio.get_running_loop().call_later(3, controller.hurry)

    assert slow.record == ["cancelled"]
    assert now() - start == pytest.approx(3, abs=0.1)


async def test_hurry_skips_later_drain_and_stops_nothing() -> None:
    slow, source = Slow(), FakeListerWatcher(named("a"))
    async with controlled(slow, source, drain_timeout=60) as (_, controller):
        await slow.begun.wait()
        controller.hurry()
        await asyncio.sleep(30)
        assert slow.record == []
        start = now()

    assert slow.record == ["cancelled"]
    assert now() - start < 0.1
