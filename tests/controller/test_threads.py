"""`Context.run_in_thread`: threads are always waited for."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import Acts, config_map, controlled, elector_of, managed, named
from informer_helpers import settle
from leader_helpers import MemoryLease, hang

from aioinformer.errors import OptionsError
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer, FakeListerWatcher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer import ReconcileRequest
    from aioinformer.controller import Context

# Generous, so that only a hang fails.
PATIENCE_SECONDS = 60.0

WHO: ContextVar[str] = ContextVar("who", default="nobody")


class Gate:
    """Gate that blocks threads. Virtual time does not wait for them."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self.threads: list[threading.Thread] = []

    def pass_through(self, error: Exception | None = None) -> str:
        self.threads.append(threading.current_thread())
        assert self._open.wait(PATIENCE_SECONDS), "nobody opens the gate"
        if error is not None:
            raise error

        return "through"

    @property
    def working(self) -> int:
        return sum(it.is_alive() for it in self.threads)

    async def open(self) -> None:
        """Wait until the loop knows that all threads have ended."""
        self._open.set()
        while self.working:
            await asyncio.sleep(0)

        await settle()

    async def reached(self, count: int = 1) -> None:
        """Wait until this many threads have begun."""
        while len(self.threads) < count:
            await asyncio.sleep(0.001)  # without a timeout, as clocks differ


@contextmanager
def gated() -> Iterator[Gate]:
    gate = Gate()
    try:
        yield gate
    finally:
        gate._open.set()


def passing(gate: Gate) -> Acts:
    async def act(request: ReconcileRequest, ctx: Context) -> None:
        await ctx.run_in_thread(gate.pass_through)

    return Acts(act)


async def in_a_reconcile(act: Any) -> list[Any]:
    """Call a function in a reconcile, and return its result or exception."""
    outcomes: list[Any] = []

    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        try:
            outcomes.append(await act(ctx))
        except Exception as exc:  # noqa: BLE001 - looked at by the test
            outcomes.append(exc)

    async with controlled(Acts(reconcile), FakeListerWatcher(named("a"))):
        while not outcomes:
            await asyncio.sleep(0.001)

    return outcomes


# ---------------------------------------------------------------- the call


async def test_function_gets_arguments_in_other_thread() -> None:
    def add(left: int, *, right: int) -> tuple[int, str, int, bool]:
        thread = threading.current_thread()
        return left + right, WHO.get(), thread.ident or 0, thread.daemon

    async def act(ctx: Context) -> object:
        WHO.set("somebody")
        return await ctx.run_in_thread(add, 1, right=2)

    ((total, who, ident, daemon),) = await in_a_reconcile(act)

    assert (total, who, daemon) == (3, "somebody", True)
    assert ident != threading.get_ident()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        pytest.param(KeyError("x"), KeyError, id="usual"),
        pytest.param(StopIteration(), RuntimeError, id="stop-iteration"),
    ],
)
async def test_error_of_function_is_raised(
    error: Exception, kind: type[Exception]
) -> None:
    def fail() -> None:
        raise error

    (outcome,) = await in_a_reconcile(lambda ctx: ctx.run_in_thread(fail))

    assert type(outcome) is kind


async def test_coroutine_function_for_thread_is_refused() -> None:
    async def wait() -> None: ...

    (outcome,) = await in_a_reconcile(lambda ctx: ctx.run_in_thread(wait))

    assert isinstance(outcome, OptionsError)
    assert "must be a plain function" in str(outcome)


async def test_ninth_thread_waits_for_others() -> None:
    with gated() as gate:

        async def act(ctx: Context) -> int:
            async with asyncio.TaskGroup() as group:
                for _ in range(20):
                    group.create_task(ctx.run_in_thread(gate.pass_through))

                await gate.reached(8)
                await asyncio.sleep(10)
                before = len(gate.threads)
                await gate.open()

            return before

        assert await in_a_reconcile(act) == [8]
        assert len(gate.threads) == 20


# ---------------------------------------------------------------- G10


async def test_G10_key_is_not_reconciled_before_its_thread_has_ended() -> None:
    with gated() as gate:
        reconcile = passing(gate)
        source = FakeListerWatcher(named("a"))
        async with controlled(reconcile, source, timeout=5):
            await gate.reached()
            source.modify(named("a", labels={"x": "y"}))
            await asyncio.sleep(600)
            assert (len(gate.threads), gate.working) == (1, 1)

            await gate.open()
            await gate.reached(2)
            assert len(reconcile.names) == 2


async def test_G10_key_stays_in_work_while_thread_outlives_reconcile() -> None:
    """The reconcile does not await its tasks, as after the timeout of `asyncio.wait()`."""
    left: list[asyncio.Task[str]] = []
    with gated() as gate:

        async def act(request: ReconcileRequest, ctx: Context) -> None:
            left.append(asyncio.create_task(ctx.run_in_thread(gate.pass_through)))
            await asyncio.wait(left, timeout=1)

        reconcile = Acts(act)
        source = FakeListerWatcher(named("a"))
        async with controlled(reconcile, source):
            await gate.reached()
            source.modify(named("a", labels={"x": "y"}))
            await asyncio.sleep(600)
            assert (len(reconcile.names), gate.working) == (1, 1)

            await gate.open()
            await gate.reached(2)
            assert len(reconcile.names) == 2


async def test_ended_reconcile_starts_no_thread() -> None:
    with gated() as gate:
        left: list[asyncio.Task[str]] = []

        async def act(ctx: Context) -> None:
            left.append(asyncio.create_task(ctx.run_in_thread(gate.pass_through)))

        await in_a_reconcile(act)
        with pytest.raises(OptionsError, match="its reconcile has ended"):
            await left[0]

        assert not gate.threads


async def test_thread_that_outlives_cancellation_is_logged_sparsely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with gated() as gate:
        source = FakeListerWatcher(named("a"))
        async with controlled(passing(gate), source, timeout=5):
            await gate.reached()
            await asyncio.sleep(14)
            assert "has not ended" not in caplog.text

            await asyncio.sleep(120)  # at 15 s, and 75 s
            warnings = [it.message for it in caplog.records if "thread" in it.message]
            assert len(warnings) == 2
            assert "default/a" in warnings[0]
            assert "Gate.pass_through" in warnings[0]
            assert "10 s" in warnings[0]
            await gate.open()


async def test_cancellation_precedes_error_of_thread() -> None:
    with gated() as gate:
        caught: list[BaseException] = []

        async def act(request: ReconcileRequest, ctx: Context) -> None:
            try:
                await ctx.run_in_thread(gate.pass_through, KeyError("x"))
            except BaseException as exc:
                caught.append(exc)
                raise

        async with controlled(Acts(act), FakeListerWatcher(named("a")), timeout=5):
            await gate.reached()
            await asyncio.sleep(6)
            await gate.open()

        assert isinstance(caught[0], asyncio.CancelledError)
        assert "KeyError('x')" in caught[0].__notes__[0]


async def test_reconcile_that_waits_for_a_free_thread_is_cancelled_at_once() -> None:
    with gated() as gate:

        async def act(ctx: Context) -> int:
            async with asyncio.TaskGroup() as group:
                for _ in range(8):
                    group.create_task(ctx.run_in_thread(gate.pass_through))

                await gate.reached(8)
                with suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        await ctx.run_in_thread(gate.pass_through)

                before = gate.working
                await gate.open()

            return before

        assert await in_a_reconcile(act) == [8]
        assert len(gate.threads) == 8


# ---------------------------------------------------------------- G11


async def test_G11_lease_is_held_until_threads_have_ended() -> None:
    lease = MemoryLease()
    async with APIServer() as server:
        server.create(CONFIG_MAPS, config_map())
        with gated() as gate:
            manager = managed(server, passing(gate), elector=elector_of(lease, "a"))
            await manager.start()
            await gate.reached()
            ending = asyncio.create_task(manager.shutdown())
            await asyncio.sleep(100)
            ending.cancel()  # a second cancellation
            await asyncio.sleep(100)
            ending.cancel()
            await asyncio.sleep(100)

            assert not ending.done()
            assert lease.holders == ["a"]
            renewed, _ = lease.writes[-1]
            assert asyncio.get_running_loop().time() - renewed <= 2

            await gate.open()
            with pytest.raises(asyncio.CancelledError):
                await ending

    assert lease.holders == ["a", ""]


async def test_G11_lost_lease_is_not_written_before_threads_have_ended() -> None:
    lease = MemoryLease()
    elector = elector_of(lease, "a")
    async with APIServer() as server:
        server.create(CONFIG_MAPS, config_map())
        with gated() as gate:
            manager = managed(server, passing(gate), elector=elector)
            await manager.start()
            await gate.reached()
            elector._lock.fault = hang  # type: ignore[attr-defined]
            await asyncio.sleep(15)
            elector._lock.fault = None  # type: ignore[attr-defined]
            before = len(lease.writes)
            await asyncio.sleep(100)

            assert len(lease.writes) == before
            assert not elector.healthy(20)
            assert "after its lease expired" in manager.why_dead()

            await gate.open()
            await manager.shutdown()

    assert lease.holders == ["a"]
