"""`Supervisor`: start, readiness, stop and failure of the supervised coroutine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from task_helpers import cancelled, failing, slow_to_end

from aioinformer._tasks import Supervisor
from aioinformer.errors import AioInformerError, OptionsError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Life = Callable[[Callable[[], None]], Coroutine[Any, Any, None]]

ONE, TWO = ZeroDivisionError("one"), ZeroDivisionError("two")
PAIR = ExceptionGroup("pair", [ONE, TWO])


@pytest.fixture
def record() -> list[str]:
    return []


def life_of(record: list[str], *, ready_after: float = 0.0) -> Life:
    """Make a life that gets ready, runs, and takes 1 s to end."""

    async def life(ready: Callable[[], None]) -> None:
        record.append("started")
        try:
            await asyncio.sleep(ready_after)
            ready()
            record.append("ready")
            await asyncio.Event().wait()
        finally:
            record.append("ending")
            await asyncio.sleep(1)
            record.append("ended")

    return life


def failing_life(
    error: BaseException, *, ready: bool = False, when_stopped: bool = False
) -> Life:
    async def life(tell: Callable[[], None]) -> None:
        if ready:
            tell()

        if when_stopped:
            try:
                await asyncio.Event().wait()
            finally:
                raise error

        await asyncio.sleep(1)
        raise error

    return life


async def test_start_returns_when_the_life_is_ready(record: list[str]) -> None:
    supervisor = Supervisor(life_of(record, ready_after=3), "demo")
    before = supervisor.running

    await supervisor.start()

    assert not before
    assert supervisor.running
    assert record == ["started", "ready"]
    assert asyncio.get_running_loop().time() == pytest.approx(3)
    await supervisor.stop()


async def test_life_task_has_the_name_of_its_supervisor(record: list[str]) -> None:
    supervisor = Supervisor(life_of(record), "demo")
    await supervisor.start()

    names = [task.get_name() for task in asyncio.all_tasks()]
    await supervisor.stop()

    assert "demo" in names


async def test_stop_waits_for_the_end_of_the_life(record: list[str]) -> None:
    supervisor = Supervisor(life_of(record), "demo")
    await supervisor.start()

    await supervisor.stop()

    assert record == ["started", "ready", "ending", "ended"]
    assert not supervisor.running


async def test_supervisor_can_be_started_and_stopped_in_different_tasks(
    record: list[str],
) -> None:
    supervisor = Supervisor(life_of(record), "demo")

    await asyncio.create_task(supervisor.start())
    running = supervisor.running
    await asyncio.create_task(supervisor.stop())

    assert running
    assert record[-1] == "ended"


async def test_stop_without_start_does_nothing(record: list[str]) -> None:
    await Supervisor(life_of(record), "demo").stop()

    assert record == []


async def test_stop_can_be_called_again(record: list[str]) -> None:
    supervisor = Supervisor(life_of(record), "demo")
    await supervisor.start()
    await supervisor.stop()

    await supervisor.stop()

    assert record.count("ended") == 1


async def test_supervisor_can_be_started_again_after_its_end(record: list[str]) -> None:
    supervisor = Supervisor(life_of(record), "demo")

    for _ in range(2):
        await supervisor.start()
        await supervisor.stop()

    assert record == ["started", "ready", "ending", "ended"] * 2


async def test_supervisor_runs_until_its_life_has_ended(record: list[str]) -> None:
    supervisor = Supervisor(life_of(record), "demo")
    await supervisor.start()
    stopper = asyncio.create_task(supervisor.stop())

    await asyncio.sleep(0.5)
    while_ending = supervisor.running
    await stopper

    assert while_ending
    assert not supervisor.running


async def test_second_stop_waits_without_hurrying_the_first(
    record: list[str],
) -> None:
    supervisor = Supervisor(life_of(record), "demo")
    await supervisor.start()
    first = asyncio.create_task(supervisor.stop())
    await asyncio.sleep(0.5)

    await supervisor.stop()

    assert record[-1] == "ended"
    assert asyncio.get_running_loop().time() == pytest.approx(1)
    await first


async def test_second_start_is_refused_while_running(record: list[str]) -> None:
    supervisor = Supervisor(life_of(record), "demo")
    await supervisor.start()

    with pytest.raises(OptionsError, match="the demo is already running"):
        await supervisor.start()

    await supervisor.stop()
    assert record.count("started") == record.count("ended") == 1


async def test_readiness_can_be_reported_twice(record: list[str]) -> None:
    async def life(ready: Callable[[], None]) -> None:
        ready()
        ready()

    supervisor = Supervisor(life, "demo")
    await supervisor.start()
    await supervisor.stop()

    assert not supervisor.running


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        pytest.param(ONE, ONE, id="error"),
        pytest.param(ExceptionGroup("", [ONE]), ONE, id="group-of-one"),
        pytest.param(PAIR, PAIR, id="group-of-two"),
    ],
)
async def test_start_raises_the_failure_before_readiness(
    error: Exception, raised: Exception
) -> None:
    supervisor = Supervisor(failing_life(error), "demo")

    with pytest.raises(type(raised)) as caught:
        await supervisor.start()

    assert caught.value is raised
    assert not supervisor.running
    await supervisor.stop()  # does not raise it again


async def test_start_fails_if_the_life_ends_before_readiness(
    record: list[str],
) -> None:
    async def life(ready: Callable[[], None]) -> None:
        record.append("ended")

    with pytest.raises(AioInformerError, match="demo ended before it was ready"):
        await Supervisor(life, "demo").start()

    assert record == ["ended"]


async def test_start_raises_if_it_is_stopped_meanwhile(record: list[str]) -> None:
    supervisor = Supervisor(life_of(record, ready_after=5), "demo")
    starter = asyncio.create_task(supervisor.start())
    await asyncio.sleep(1)

    await supervisor.stop()

    with pytest.raises(AioInformerError, match="demo ended before it was ready"):
        await starter

    assert record == ["started", "ending", "ended"]


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        pytest.param(ONE, ONE, id="error"),
        pytest.param(ExceptionGroup("", [ONE]), ONE, id="group-of-one"),
        pytest.param(PAIR, PAIR, id="group-of-two"),
    ],
)
@pytest.mark.parametrize("when_stopped", [False, True], ids=["before", "at-stop"])
async def test_stop_raises_the_failure_of_the_life_once(
    error: Exception, raised: Exception, when_stopped: bool
) -> None:
    life = failing_life(error, ready=True, when_stopped=when_stopped)
    supervisor = Supervisor(life, "demo")
    await supervisor.start()
    await asyncio.sleep(2)
    running = supervisor.running

    with pytest.raises(type(raised)) as caught:
        await supervisor.stop()

    assert running == when_stopped
    assert caught.value is raised
    await supervisor.stop()


async def test_only_one_of_two_stops_raises_the_failure() -> None:
    life = failing_life(ONE, ready=True, when_stopped=True)
    supervisor = Supervisor(life, "demo")
    await supervisor.start()
    stops = [asyncio.create_task(supervisor.stop()) for _ in range(2)]

    await asyncio.wait(stops)

    assert [stop.exception() for stop in stops] == [ONE, None]


async def test_failure_in_the_turn_of_readiness_fails_the_start() -> None:
    async def life(ready: Callable[[], None]) -> None:
        ready()
        raise ONE

    with pytest.raises(ZeroDivisionError):
        await Supervisor(life, "demo").start()


async def test_life_that_cancels_itself_has_not_failed() -> None:
    async def life(ready: Callable[[], None]) -> None:
        ready()
        await asyncio.sleep(1)
        raise asyncio.CancelledError

    supervisor = Supervisor(life, "demo")
    await supervisor.start()
    await asyncio.sleep(2)

    assert not supervisor.running
    await supervisor.stop()


# ---------------------------------------------------------------- cancellation


@pytest.mark.parametrize("times", [1, 2])
async def test_cancelled_start_ends_the_life(record: list[str], times: int) -> None:
    supervisor = Supervisor(life_of(record, ready_after=5), "demo")
    starter = asyncio.create_task(supervisor.start())

    await cancelled(starter, after=1, times=times)

    assert starter.cancelled()
    assert record == ["started", "ending", "ended"]
    assert not supervisor.running


async def test_start_cancelled_before_the_life_began_leaves_nothing(
    record: list[str],
) -> None:
    supervisor = Supervisor(life_of(record), "demo")
    starter = asyncio.create_task(supervisor.start())
    await asyncio.sleep(0)  # the task exists, but has not run

    starter.cancel()
    await asyncio.wait({starter})

    assert starter.cancelled()
    assert not supervisor.running
    await supervisor.start()
    await supervisor.stop()


async def test_start_cancelled_in_the_turn_of_readiness_ends_the_life(
    record: list[str],
) -> None:
    supervisor: Supervisor

    async def life(ready: Callable[[], None]) -> None:
        ready()
        starter.cancel()
        await slow_to_end(record)

    supervisor = Supervisor(life, "demo")
    starter = asyncio.create_task(supervisor.start())
    await asyncio.wait({starter})

    assert starter.cancelled()
    assert record == ["ending", "ended"]


async def test_failure_during_a_cancelled_start_is_noted() -> None:
    life = failing_life(ONE, when_stopped=True)
    supervisor = Supervisor(life, "demo")
    starter = asyncio.create_task(supervisor.start())
    await cancelled(starter, after=1)

    with pytest.raises(asyncio.CancelledError) as raised:
        await starter

    assert raised.value.__notes__ == [f"the demo also failed: {ONE!r}"]
    await supervisor.stop()  # it was notified


@pytest.mark.parametrize("times", [1, 2])
async def test_cancelled_stop_waits_for_the_end_of_the_life(
    record: list[str], times: int
) -> None:
    supervisor = Supervisor(life_of(record), "demo")
    await supervisor.start()
    stopper = asyncio.create_task(supervisor.stop())

    await cancelled(stopper, after=0.3, times=times)

    assert stopper.cancelled()
    assert record[-1] == "ended"
    assert not supervisor.running


async def test_cancelled_stop_leaves_the_failure_to_the_next_stop() -> None:
    async def life(ready: Callable[[], None]) -> None:
        ready()
        try:
            await asyncio.Event().wait()
        finally:
            await failing()

    supervisor = Supervisor(life, "demo")
    await supervisor.start()
    stopper = asyncio.create_task(supervisor.stop())
    await cancelled(stopper, after=0.3)

    with pytest.raises(ZeroDivisionError):
        await supervisor.stop()

    assert stopper.cancelled()
