"""`Controller.requeue()`, `forget()` and `waiting()`: what a person may do, and look at."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import Acts, Notes, Slow, config_map, controlled, named
from fleet_helpers import Fleet
from informer_helpers import settle

from aioinformer import PriorityQueue, ReconcileRequest, Result
from aioinformer.controller import Cause
from aioinformer.errors import OptionsError
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer
from aioinformer.workqueue import ItemExponentialFailureRateLimiter

if TYPE_CHECKING:
    from aioinformer.controller import Context

KEY = "default/a"
REQUEST = ReconcileRequest.of(KEY)


class Fails(Notes):
    """A reconcile that fails until it is repaired."""

    broken = True

    async def act(self, request: ReconcileRequest, ctx: Context) -> Result | None:
        if self.broken:
            raise ValueError("broken")

        return None


def retrying(first: float, last: float = 1000.0) -> PriorityQueue[ReconcileRequest]:
    limiter = ItemExponentialFailureRateLimiter(first, last)
    return PriorityQueue(rate_limiter=limiter)


def about(seconds: float) -> Any:
    return pytest.approx(seconds, abs=0.1)


def changes(context: Context) -> list[str]:
    return [it.change for it in context.causes]


# ------------------------------------------------------------ requeue


async def test_requeued_object_is_reconciled_at_once_with_the_cause() -> None:
    notes = Notes()
    async with controlled(notes) as (source, controller):
        source.add(named("a"))
        await settle()
        for request in (KEY, REQUEST, "default/absent"):
            assert controller.requeue(request)
            await settle()

    assert notes.names == ["a", "a", "a", "absent"]
    assert notes.contexts[1].causes == (Cause("manual", "", KEY),)


async def test_requeue_comes_before_a_delay_and_leaves_it() -> None:
    async def act(request: ReconcileRequest, ctx: Context) -> Result | None:
        return Result(requeue_after=30) if changes(ctx) == ["added"] else None

    acts = Acts(act)
    async with controlled(acts) as (source, controller):
        source.add(named("a"))
        await asyncio.sleep(10)
        assert controller.requeue(KEY)
        await settle()
        assert changes(acts.contexts[1]) == ["manual"]
        await asyncio.sleep(25)

    assert [changes(it) for it in acts.contexts[2:]] == [["requeue"]]


async def test_running_request_is_requeued_after_its_end() -> None:
    slow = Slow(5)
    async with controlled(slow) as (source, controller):
        source.add(named("a"))
        await settle()
        assert controller.requeue(KEY)
        await settle()
        assert slow.names == ["a"]
        await asyncio.sleep(6)
        assert slow.names == ["a", "a"]


async def test_stopped_controller_requeues_nothing() -> None:
    async with controlled(Notes()) as (_, controller):
        pass

    assert not controller.requeue(KEY)
    assert len(controller.queue) == 0


async def test_replica_requeues_only_objects_of_its_shards() -> None:
    done: list[tuple[str, str]] = []

    async def act(name: str, request: ReconcileRequest, ctx: Context) -> None:
        done.append((name, request.key))

    async with APIServer(auto_namespaces=True) as server:
        for number in range(10):
            server.create(CONFIG_MAPS, config_map(f"map-{number}"))

        fleet = Fleet(server, act)
        members = [await fleet.start("a"), await fleet.start("b")]
        await fleet.settled()
        await asyncio.sleep(1)
        done.clear()
        accepted = {
            (it.name, key)
            for it in members
            for key in (f"default/map-{number}" for number in range(10))
            if it.controller.requeue(key)
        }
        await asyncio.sleep(1)
        for member in members:
            await fleet.stop(member.name)

    assert sorted(done) == sorted(accepted)
    assert {key for _, key in done} == {f"default/map-{it}" for it in range(10)}


async def test_invalid_key_is_refused() -> None:
    async with controlled(Notes()) as (_, controller):
        for call in (controller.requeue, controller.forget):
            with pytest.raises(OptionsError):
                call("a/b/c")


# ------------------------------------------------------------ forget


async def test_forgotten_request_is_not_retried_and_starts_anew() -> None:
    fails = Fails()
    async with controlled(fails, queue=retrying(10)) as (source, controller):
        source.add(named("a"))
        await asyncio.sleep(15)
        (failing,) = controller.status().failing
        assert (failing.attempts, failing.retry_in) == (2, about(15))

        controller.forget(KEY)
        status = controller.status()
        assert (status.failing_total, status.failing, status.delayed) == (0, (), 0)
        await asyncio.sleep(1000)
        assert len(fails.names) == 2

        source.modify(named("a", labels={"x": "y"}))
        await settle()
        (failing,) = controller.status().failing

    assert (failing.attempts, failing.retry_in) == (1, about(10))
    assert changes(fails.contexts[2]) == ["updated"], "the retry left no cause"


async def test_forget_drops_a_requeue_with_its_cause() -> None:
    async def act(request: ReconcileRequest, ctx: Context) -> Result | None:
        return Result(requeue_after=30)

    acts = Acts(act)
    async with controlled(acts) as (source, controller):
        source.add(named("a"))
        await settle()
        controller.forget(KEY)
        await asyncio.sleep(100)
        controller.requeue(KEY)
        await settle()

    assert [changes(it) for it in acts.contexts] == [["added"], ["manual"]]


async def test_forget_leaves_queued_and_running_requests() -> None:
    slow = Slow(5)
    async with controlled(slow, concurrency=1) as (source, controller):
        source.add(named("a"))
        source.add(named("b"))
        await settle()
        for key in (KEY, "default/b"):
            controller.forget(key)

        await asyncio.sleep(11)

    assert slow.record == ["done", "done"]
    assert changes(slow.contexts[1]) == ["added"]


# ------------------------------------------------------------ waiting requests


async def test_waiting_requests_are_shown_in_their_order() -> None:
    async def act(request: ReconcileRequest, ctx: Context) -> Result | None:
        match request.name:
            case "failing":
                raise ValueError("no")
            case "later":
                return Result(requeue_after=30)
            case _:
                await asyncio.sleep(3600)
                return None

    queue = retrying(50)
    async with controlled(Acts(act), queue=queue, concurrency=1, drain_timeout=0) as (
        source,
        controller,
    ):
        assert controller.waiting().longest is None
        for name in ("failing", "later", "slow"):
            source.add(named(name))

        await settle()
        source.add(named("first"))
        await asyncio.sleep(4)
        source.add(named("second"))
        await asyncio.sleep(1)
        waiting = controller.waiting()
        assert controller.waiting(limit=1).queued == waiting.queued[:1]
        assert controller.waiting(limit=1).delayed == waiting.delayed[:1]
        shortest = controller.waiting(limit=0)

    assert [(it.request.name, it.seconds) for it in waiting.queued] == [
        ("first", about(5)),
        ("second", about(1)),
    ]
    assert [it.causes[0].change for it in waiting.queued] == ["added", "added"]
    assert [
        (it.request.name, it.seconds, [cause.change for cause in it.causes])
        for it in waiting.delayed
    ] == [
        ("later", about(25), ["requeue"]),
        ("failing", about(45), ["retry"]),
    ]
    assert waiting.longest == waiting.queued[0].seconds == shortest.longest
    assert (shortest.queued, shortest.delayed) == ((), ())


async def test_failing_request_has_the_time_of_its_first_failure() -> None:
    fails = Fails()
    async with controlled(fails, queue=retrying(10, 10)) as (source, controller):
        source.add(named("a"))
        await asyncio.sleep(25)
        (failing,) = controller.status().failing
        assert (failing.attempts, failing.seconds_ago) == (3, about(5))
        assert failing.failing_for == about(25)

        fails.broken = False
        await asyncio.sleep(10)
        fails.broken = True
        source.modify(named("a", labels={"x": "y"}))
        await settle()
        (failing,) = controller.status().failing
        assert failing.failing_for == about(0)
