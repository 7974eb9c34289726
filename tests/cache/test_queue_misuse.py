"""Misuse of queues raises an error before anything has changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from each_case import each_case
from fifo_helpers import Fifo, Thing, deltas, listing, nothing, things
from queue_helpers import error_in_thread, settle

from aioinformer.cache import FIFO, DeltaFIFO, OrderedFIFO, Store
from aioinformer.errors import NoKey, OptionsError, WrongLoop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

each_queue = pytest.mark.parametrize("kind", [DeltaFIFO, OrderedFIFO, FIFO])
each_kind = pytest.mark.parametrize("kind", [DeltaFIFO, OrderedFIFO])


# ---------------------------------------------------------------- another loop


SHARED = [
    pytest.param(lambda fifo: fifo.add(Thing("b")), id="add"),
    pytest.param(lambda fifo: fifo.update(Thing("b")), id="update"),
    pytest.param(lambda fifo: fifo.delete(Thing("a")), id="delete"),
    pytest.param(lambda fifo: fifo.replace(things("b1")), id="replace"),
    pytest.param(lambda fifo: fifo.close(), id="close"),
    pytest.param(lambda fifo: asyncio.run(fifo.pop(nothing)), id="pop"),
]
ONLY_CHANGES = [
    pytest.param(lambda fifo: fifo.replace_all(listing(), "9"), id="replace_all"),
    pytest.param(lambda fifo: fifo.bookmark("9"), id="bookmark"),
    pytest.param(lambda fifo: fifo.resync(), id="resync"),
    pytest.param(lambda fifo: fifo.feed(deltas("b"), "9"), id="feed"),
    pytest.param(lambda fifo: asyncio.run(fifo.wait_filled()), id="wait_filled"),
]
CALLS = [
    *[(kind, call) for kind in (DeltaFIFO, OrderedFIFO, FIFO) for call in SHARED],
    *[(kind, call) for kind in (DeltaFIFO, OrderedFIFO) for call in ONLY_CHANGES],
]


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        pytest.param(kind, *call.values, id=f"{kind.__name__}-{call.id}")
        for kind, call in CALLS
    ],
)
async def test_queue_raises_wrong_loop_while_a_task_waits_in_another_loop(
    kind: Any, call: Any
) -> None:
    """Without the error the consumer would not be woken."""
    fifo = kind()
    consumer = asyncio.create_task(fifo.pop(nothing))
    await settle()

    error = error_in_thread(lambda: call(fifo))
    untouched = (len(fifo), fifo.closed, fifo.has_synced) == (0, False, False)
    fifo.add(Thing("a"))
    await consumer

    assert isinstance(error, WrongLoop)
    assert untouched


@each_queue
def test_queue_can_be_filled_before_its_loop_runs(kind: Any) -> None:
    fifo = kind()
    fifo.add(Thing("a"))

    asyncio.run(fifo.pop(nothing))
    fifo.add(Thing("b"))

    assert len(fifo) == 1


@each_queue
def test_queue_outlives_loop_of_cancelled_wait(kind: Any) -> None:
    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await fifo.pop(nothing)

    fifo = kind()
    asyncio.run(give_up())

    fifo.add(Thing("a"))
    asyncio.run(fifo.pop(nothing))

    assert len(fifo) == 0


# ---------------------------------------------------------------- waiting functions


async def consume(entry: object, initial: bool) -> None:
    raise AssertionError("must not be awaited")


async def stream(entry: object, initial: bool) -> AsyncIterator[None]:
    yield


def generate(entry: object, initial: bool) -> Iterator[None]:
    yield


@pytest.mark.parametrize("process", [consume, stream, generate])
@each_queue
async def test_pop_rejects_coroutine_function(kind: Any, process: Any) -> None:
    fifo = kind()
    fifo.add(Thing("a"))

    with pytest.raises(OptionsError, match="plain function"):
        await fifo.pop(process)

    assert len(fifo) == 1


@each_kind
async def test_pop_batch_rejects_coroutine_function(
    kind: Any,
) -> None:
    fifo: Fifo = kind()
    fifo.feed(deltas("a", "b"), "7")

    with pytest.raises(OptionsError, match="plain function"):
        await fifo.pop_batch(consume, nothing)

    assert (len(fifo), fifo.applied()) == (2, None)


@each_kind
def test_queue_rejects_coroutine_function_as_transformer(kind: Any) -> None:
    async def transform(thing: Thing) -> Thing:
        return thing

    with pytest.raises(OptionsError, match="transformer"):
        kind(transformer=transform)


# ---------------------------------------------------------------- keys that are none


@each_queue
@each_case("key", [None, 7, ("a", "b")], ids=["none", "number", "tuple"])
@each_case("method", ["add", "update", "delete", "replace"])
def test_queue_rejects_key_that_is_no_string(kind: Any, key: Any, method: str) -> None:
    """An entry without a key would be mistaken for a whole list."""
    fifo = kind(key_func=lambda thing: key)
    thing = Thing("a")

    with pytest.raises(NoKey, match="Thing has no key") as caught:
        getattr(fifo, method)([thing] if method == "replace" else thing)

    assert caught.value.obj is thing
    assert (len(fifo), fifo.has_synced) == (0, False)


@each_kind
async def test_feed_rejects_whole_batch_with_key_that_is_no_string(
    kind: Any,
) -> None:
    fifo: Fifo = kind(key_func=lambda thing: thing.key if thing.version else None)

    with pytest.raises(NoKey):
        fifo.feed([*deltas("a")], "7")

    assert (len(fifo), fifo.has_synced, fifo.applied()) == (0, False, None)


def test_no_key_error_has_cause() -> None:
    def key_func(thing: Thing) -> str:
        raise LookupError("no name")

    fifo = DeltaFIFO(key_func=key_func, known_objects=Store[Thing]())

    with pytest.raises(NoKey) as caught:
        fifo.delete(Thing("a"))

    assert isinstance(caught.value.__cause__, LookupError)
