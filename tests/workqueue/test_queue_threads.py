"""`WorkQueue`: its event loop, and calls from other threads."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from aioinformer._condition import _NeverOwned
from aioinformer.errors import WrongLoop
from aioinformer.workqueue import WorkQueue
from aioinformer.workqueue.queue import ADDED_PER_TURN

if TYPE_CHECKING:
    from collections.abc import Callable

from queue_helpers import error_in_thread, settle, take_all

CALLS: dict[str, Callable[[WorkQueue[str]], object]] = {
    "add": lambda queue: queue.add("x"),
    "get": lambda queue: asyncio.run(queue.get()),
    "get_nowait": lambda queue: queue.get_nowait(),
    "done": lambda queue: queue.done("a"),
    "item": lambda queue: asyncio.run(queue.item().__aenter__()),
    "shut_down": lambda queue: queue.shut_down(),
    "drain": lambda queue: asyncio.run(queue.shut_down_with_drain()),
}


@pytest.mark.parametrize("filled", [False, True], ids=["empty", "filled"])
@pytest.mark.parametrize("name", CALLS)
async def test_other_thread_gets_wrong_loop(name: str, filled: bool) -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    if not filled:
        queue.done(queue.get_nowait())

    before = repr(queue)

    error = error_in_thread(lambda: CALLS[name](queue))

    assert isinstance(error, WrongLoop)
    assert repr(queue) == before


@pytest.mark.parametrize("name", CALLS)
async def test_other_thread_gets_wrong_loop_after_shut_down(name: str) -> None:
    queue = WorkQueue[str]()
    queue.shut_down()

    error = error_in_thread(lambda: CALLS[name](queue))

    assert isinstance(error, WrongLoop)


async def test_loop_thread_holds_its_lock_until_shut_down() -> None:
    """Without the check everything works at half the speed."""
    queue = WorkQueue[str]()
    seen = [queue._loop_thread._is_owned()]

    queue.add("a")
    seen.append(queue._loop_thread._is_owned())
    queue.shut_down()
    seen.append(queue._loop_thread._is_owned())

    assert seen == [False, True, False]


async def test_queue_works_without_lock_ownership_check() -> None:
    queue = WorkQueue[str]()
    queue._loop_thread = _NeverOwned()

    queue.add("a")
    queue.done(await queue.get())
    queue.shut_down()

    assert error_in_thread(lambda: queue.add("b")) is not None
    assert len(queue) == 0


@pytest.mark.parametrize("name", ["add", "get", "drain"])
def test_second_loop_of_thread_gets_wrong_loop(name: str) -> None:
    queue = WorkQueue[str]()

    async def use() -> None:
        queue.add("a")
        queue.done(await queue.get())

    async def call() -> None:
        match name:
            case "add":
                queue.add("b")
            case "get":
                await queue.get()
            case _:
                await queue.shut_down_with_drain()

    asyncio.run(use())

    with pytest.raises(WrongLoop):
        asyncio.run(call())


def test_second_loop_gets_wrong_loop_after_waiting_workers_were_cancelled() -> None:
    queue = WorkQueue[str]()

    async def cancel_workers() -> None:
        workers = [asyncio.create_task(queue.get()) for _ in range(2)]
        await settle()
        for worker in workers:
            worker.cancel()

        await asyncio.wait(workers)

    async def add() -> None:
        queue.add("a")

    asyncio.run(cancel_workers())

    with pytest.raises(WrongLoop):
        asyncio.run(add())


def test_queue_can_be_filled_before_loop_runs() -> None:
    queue = WorkQueue[str]()
    queue.add("a")

    async def use() -> str:
        return await queue.get()

    assert asyncio.run(use()) == "a"


def test_drain_needs_running_loop() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    drain = queue.shut_down_with_drain()

    with pytest.raises(WrongLoop):
        drain.send(None)


async def test_status_is_readable_in_other_thread() -> None:
    queue = WorkQueue[str]("pods")
    queue.add("a")
    seen: list[object] = []

    error = error_in_thread(
        lambda: seen.extend([len(queue), queue.shutting_down, repr(queue)])
    )

    assert error is None
    assert seen == [1, False, "<WorkQueue pods open queued=1 working=0 delayed=0>"]


async def test_add_threadsafe_wakes_a_waiting_worker() -> None:
    queue = WorkQueue[str]()
    getter = asyncio.create_task(queue.get())
    await settle()

    error = error_in_thread(lambda: queue.add_threadsafe("a"))

    assert error is None
    assert await getter == "a"


async def test_add_threadsafe_keeps_order_of_thread() -> None:
    queue = WorkQueue[str]()
    queue.add("first")

    def add_all() -> None:
        for item in "abcab":
            queue.add_threadsafe(item)

    error = error_in_thread(add_all)
    await settle()

    assert error is None
    assert take_all(queue) == ["first", "a", "b", "c"]


@pytest.mark.parametrize("used", [False, True], ids=["before its use", "in use"])
async def test_many_items_of_threads_are_added_over_several_turns(
    used: bool,
) -> None:
    queue = WorkQueue[int]()
    number = 2 * ADDED_PER_TURN + 1
    if used:
        queue.done(-1)

    def add_all() -> None:
        for item in range(number):
            queue.add_threadsafe(item)

    error = error_in_thread(add_all)
    queue.done(-1)
    lengths = [0, len(queue)]
    for _ in range(5):
        await asyncio.sleep(0)
        lengths.append(len(queue))

    assert error is None
    assert max(b - a for a, b in pairwise(lengths)) == ADDED_PER_TURN
    assert [queue.get_nowait() for _ in range(number)] == list(range(number))


async def test_items_of_threads_schedule_one_callback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = WorkQueue[int]()
    queue.done(-1)
    loop, calls = asyncio.get_running_loop(), []

    def add_all() -> None:
        for item in range(10):
            queue.add_threadsafe(item)

    with monkeypatch.context() as patched:
        summon = loop.call_soon_threadsafe
        patched.setattr(
            loop, "call_soon_threadsafe", lambda *it: calls.append(summon(*it))
        )
        for _ in range(2):
            error_in_thread(add_all)
            await settle()
            take_all(queue)  # type: ignore[arg-type]

    assert len(calls) == 2


async def test_failing_add_does_not_block_other_items_of_threads() -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise ZeroDivisionError

        def __hash__(self) -> int:
            return hash("a")

    queue = WorkQueue[object]()
    queue.add("a")
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, about: reported.append(about["exception"]))

    queue.add_threadsafe(Odd())
    queue.add_threadsafe("b")
    await settle()

    assert [type(error) for error in reported] == [ZeroDivisionError]
    assert [queue.get_nowait(), queue.get_nowait()] == ["a", "b"]


async def test_add_threadsafe_before_first_use_is_kept() -> None:
    queue = WorkQueue[str]()

    error_in_thread(lambda: queue.add_threadsafe("a"))

    assert await queue.get() == "a"


async def test_add_threadsafe_in_loop_adds_item() -> None:
    queue = WorkQueue[str]()
    getter = asyncio.create_task(queue.get())
    await settle()

    queue.add_threadsafe("a")

    assert await getter == "a"


async def test_drain_includes_items_added_by_threads() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    error_in_thread(lambda: queue.add_threadsafe("b"))

    left = await queue.shut_down_with_drain(0)

    assert left == {"a", "b"}


async def test_shut_down_includes_items_added_by_threads() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    error_in_thread(lambda: queue.add_threadsafe("b"))

    queue.shut_down()

    assert take_all(queue) == ["a", "b"]


async def test_add_threadsafe_refuses_an_unhashable_item_in_its_thread() -> None:
    queue: WorkQueue[Any] = WorkQueue()

    error = error_in_thread(lambda: queue.add_threadsafe([]))

    assert isinstance(error, TypeError)


@pytest.mark.parametrize("left", [False, True], ids=["all taken in", "one left"])
@pytest.mark.parametrize("shut", [False, True], ids=["open", "shut"])
def test_add_threadsafe_raises_wrong_loop_after_the_loop_closed(
    shut: bool, left: bool
) -> None:
    queue = WorkQueue[str]()

    async def use() -> None:
        queue.add("a")
        if shut:
            queue.shut_down()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(use())
    if left:
        queue.add_threadsafe("never taken in")

    loop.close()
    error = error_in_thread(lambda: queue.add_threadsafe("b"))

    assert isinstance(error, WrongLoop) is not shut
