"""`Handlers`, and calls that wait: run in the caller's task up to their first wait."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import TYPE_CHECKING, Any

import pytest
from fake_source import thing
from informer_helpers import keep_busy

from aioinformer.errors import OptionsError
from aioinformer.informer import Added, Deleted, Updated
from aioinformer.informer.handlers import Handlers, first_step

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator

    from aioinformer.model import KubeObject

OLD, NEW = thing("a", 1), thing("a", 2)
EVENTS = [Added(NEW), Updated(OLD, NEW), Deleted(NEW)]


def ignore(*_: object) -> None:
    """A handler that does nothing."""


# ---------------------------------------------------------------- which, and with what


def test_each_handler_is_called_with_what_it_takes() -> None:
    record: list[tuple[str, tuple[KubeObject, ...]]] = []
    calls = Handlers(
        on_add=lambda obj: record.append(("add", (obj,))),
        on_update=lambda old, new: record.append(("update", (old, new))),
        on_delete=lambda obj: record.append(("delete", (obj,))),
    ).calls()

    for event in EVENTS:
        calls[type(event)](event)

    assert record == [("add", (NEW,)), ("update", (OLD, NEW)), ("delete", (NEW,))]


def test_on_event_is_called_with_every_event() -> None:
    record: list[object] = []
    calls = Handlers(on_event=record.append).calls()

    for event in EVENTS:
        calls[type(event)](event)

    assert record == EVENTS


@pytest.mark.parametrize(
    ("handlers", "kind"),
    [
        (Handlers(on_add=ignore), Added),
        (Handlers(on_update=ignore), Updated),
        (Handlers(on_delete=ignore), Deleted),
    ],
    ids=["add", "update", "delete"],
)
def test_what_nobody_wants_is_not_called(handlers: Handlers, kind: type) -> None:
    assert list(handlers.calls()) == [kind]


async def stream(_: object) -> AsyncIterator[None]:
    yield


def generator(_: object) -> Generator[None]:
    yield


class Generating:
    def __call__(self, _: object) -> Generator[None]:
        yield


@pytest.mark.parametrize(
    ("handlers", "complaint"),
    [
        pytest.param({}, "give either", id="none"),
        pytest.param(
            {"on_event": ignore, "on_delete": ignore}, "give either", id="both"
        ),
        pytest.param({"on_add": "greet"}, "'greet' cannot be called", id="a-string"),
        pytest.param({"on_event": 3}, "3 cannot be called", id="a-number"),
        pytest.param({"on_add": stream}, "is a generator", id="async-generator"),
        pytest.param({"on_event": generator}, "is a generator", id="generator"),
        pytest.param({"on_event": Generating()}, "is a generator", id="generating"),
    ],
)
def test_handlers_that_cannot_work_are_refused(
    handlers: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(OptionsError, match=complaint):
        Handlers(**handlers)


class Greeter:
    def greet(self, *_: object) -> None:
        """A method."""

    def __call__(self, *_: object) -> None:
        """An object that can be called."""


@pytest.mark.parametrize(
    ("handlers", "name"),
    [
        (Handlers(on_add=ignore), "ignore"),
        (Handlers(on_add=ignore, on_update=Greeter().greet), "ignore+Greeter.greet"),
        (Handlers(on_add=ignore, on_delete=ignore), "ignore"),
        (Handlers(on_event=Greeter()), "Greeter"),
        (Handlers(on_event=functools.partial(ignore, 1)), "partial"),
    ],
    ids=["function", "two", "twice-the-same", "object", "partial"],
)
def test_describes_itself_by_the_names_of_its_functions(
    handlers: Handlers, name: str
) -> None:
    assert handlers.describe() == name


# ---------------------------------------------------------------- the first step


class Ready:
    """An awaitable that is no coroutine, and does not wait."""

    def __await__(self) -> Generator[None, None, int]:
        yield from ()
        return 5


class Waits:
    """An awaitable that is no coroutine, and waits for one turn."""

    def __await__(self) -> Generator[None]:
        yield


async def at_once() -> int:
    return 5


def resolved() -> asyncio.Future[int]:
    future = asyncio.get_running_loop().create_future()
    future.set_result(5)
    return future


@pytest.mark.parametrize(
    "outcome",
    [at_once, Ready, resolved, lambda: 5, lambda: "text", lambda: [1], object],
    ids=["coroutine", "awaitable", "future", "number", "text", "list", "object"],
)
async def test_what_does_not_wait_is_finished_after_its_first_step(
    outcome: Callable[[], Any],
) -> None:
    assert first_step(outcome()) is None


@pytest.mark.parametrize(
    "outcome",
    [
        lambda: asyncio.sleep(0),
        lambda: asyncio.sleep(5),
        Waits,
        lambda: asyncio.create_task(asyncio.sleep(1)),
    ],
    ids=["a-turn", "seconds", "awaitable", "task"],
)
async def test_the_rest_of_what_waits_can_be_awaited(
    outcome: Callable[[], Any],
) -> None:
    rest = first_step(outcome())

    assert rest is not None
    await rest


async def test_a_call_runs_in_one_piece_with_all_its_waits(
    looptime: float,
) -> None:
    record: list[object] = []

    async def handler() -> None:
        record.append("begun")
        for step in range(3):
            await asyncio.sleep(2)
            record.append(step)

    rest = first_step(handler())
    record.append("first step taken")
    assert rest is not None
    await rest

    assert record == ["begun", "first step taken", 0, 1, 2]
    assert looptime == 6


async def test_what_a_wait_answers_reaches_the_call() -> None:
    future = asyncio.get_running_loop().create_future()
    answers = []

    async def handler() -> None:
        answers.append(await future)

    rest = first_step(handler())
    future.set_result("answer")
    assert rest is not None
    await rest

    assert answers == ["answer"]


async def test_what_a_wait_raises_reaches_the_call() -> None:
    future = asyncio.get_running_loop().create_future()

    async def handler() -> None:
        with pytest.raises(KeyError, match="lost"):
            await future

        raise ValueError("found")

    rest = first_step(handler())
    future.set_exception(KeyError("lost"))
    assert rest is not None
    with pytest.raises(ValueError, match="found"):
        await rest


async def test_an_error_of_the_first_step_is_raised_at_once() -> None:
    async def handler() -> None:
        raise ValueError("at once")

    with pytest.raises(ValueError, match="at once"):
        first_step(handler())


async def test_a_timeout_inside_of_a_call_works(looptime: float) -> None:
    async def handler() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await asyncio.Event().wait()

        await asyncio.sleep(1)

    rest = first_step(handler())
    assert rest is not None
    await rest

    assert looptime == 4
    assert rest.own_cancels == 0


async def test_a_cancellation_reaches_the_call() -> None:
    record = []

    async def handler() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            record.append("cleaned up")

    async def deliver() -> None:
        rest = first_step(handler())
        assert rest is not None
        await rest

    task = asyncio.create_task(deliver())
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait({task})

    assert task.cancelled()
    assert record == ["cleaned up"]


async def test_closing_the_rest_closes_the_call() -> None:
    record = []

    async def handler() -> None:
        try:
            await asyncio.sleep(1)
        except GeneratorExit:
            record.append("closed")
            raise

    rest = first_step(handler())
    assert rest is not None
    rest.close()

    assert record == ["closed"]


# ---------------------------------------------------------------- what is watched


async def test_measures_the_longest_step_behind_the_first_wait() -> None:
    async def handler() -> None:
        keep_busy(0.05)  # the first step is its caller's to measure
        await asyncio.sleep(0)
        keep_busy(0.01)
        await asyncio.sleep(0)
        keep_busy(0.02)
        await asyncio.sleep(1)

    rest = first_step(handler())
    assert rest is not None
    before = rest.longest
    await rest

    assert before == 0.0
    assert 0.02 <= rest.longest < 0.05


async def test_counts_how_often_a_call_cancels_its_own_task() -> None:
    async def handler() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            task.cancel()

    rest = first_step(handler())
    assert rest is not None
    counts = [rest.own_cancels]
    await rest
    counts.append(rest.own_cancels)
    task = asyncio.current_task()
    assert task is not None
    while task.cancelling():
        task.uncancel()

    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)  # until Python 3.13 the second one arrives here

    assert counts == [1, 2]


async def test_does_not_count_what_others_cancel() -> None:
    counts = []

    async def handler() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            raise

    async def deliver() -> None:
        rest = first_step(handler())
        assert rest is not None
        try:
            await rest
        finally:
            counts.append(rest.own_cancels)

    task = asyncio.create_task(deliver())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})

    assert counts == [0]


async def test_the_rest_is_its_own_iterator() -> None:
    rest = first_step(Waits())

    assert rest is not None
    assert iter(rest) is rest
    assert list(rest) == [None]
