"""`Controller(sources=)`: requests for changes outside of the cluster."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import Notes, controlled, informed, informer_of, named
from informer_helpers import running, settle

from aioinformer import Controller, ReconcileRequest
from aioinformer.controller import Cause, Context
from aioinformer.errors import HandlerError, OptionsError
from aioinformer.testing import FakeListerWatcher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


class Billing:
    """Source that yields what a test puts into it, and records how it is opened."""

    def __init__(self) -> None:
        self.items: asyncio.Queue[Any] = asyncio.Queue()
        self.opened: list[float] = []
        self.closed = 0

    async def __call__(self) -> AsyncIterator[Any]:
        self.opened.append(asyncio.get_running_loop().time())
        try:
            while True:
                item = await self.items.get()
                if isinstance(item, BaseException):
                    raise item

                if item is None:
                    return

                yield item
        finally:
            self.closed += 1

    async def put(self, *items: Any) -> None:
        for item in items:
            self.items.put_nowait(item)

        await settle()


async def test_source_yields_keys_and_requests() -> None:
    billing, notes = Billing(), Notes()
    async with controlled(notes, sources={"billing": billing}):
        await billing.put("shop/web", ReconcileRequest("shop", "db"))

    assert notes.names == ["web", "db"]
    assert notes.contexts[0].causes == (Cause("source", "billing", "shop/web"),)
    assert billing.closed == 1, "it is closed at the end"


async def test_source_is_opened_after_caches_are_synced() -> None:
    pods = informer_of(FakeListerWatcher(named("a")))
    synced: list[bool] = []

    async def events() -> AsyncIterator[str]:
        synced.append(pods.has_synced)
        yield "default/a"
        await asyncio.Event().wait()

    controller = Controller("pods", Notes(), for_=pods, sources={"it": events})
    async with running(controller.run()):
        await asyncio.sleep(1)
        assert synced == []
        async with running(pods.run()):
            await settle()
            await controller.shutdown()

    assert synced == [True]


@pytest.mark.parametrize("end", [ValueError("boom"), None, asyncio.CancelledError()])
async def test_source_that_ends_is_reported_and_opened_again_with_backoff(
    end: BaseException | None,
) -> None:
    failures: list[HandlerError] = []
    billing, other, notes = Billing(), Billing(), Notes()
    sources = {"billing": billing, "other": other}
    async with controlled(notes, sources=sources, on_error=failures.append):
        for _ in range(12):
            await billing.put(end)
            await asyncio.sleep(60)

        await billing.put("shop/web")
        await other.put("shop/db")

    gaps = [b - a for a, b in pairwise(billing.opened)]
    assert notes.names == ["web", "db"], "neither ends the other"
    assert (len(billing.opened), len(other.opened)) == (13, 1)
    assert 0.8 <= gaps[0] < 62
    assert [str(it) for it in failures] == ["source billing failed"] * 12


async def test_backoff_of_failing_source_grows_to_a_minute() -> None:
    opened: list[float] = []

    async def broken() -> AsyncIterator[str]:
        opened.append(asyncio.get_running_loop().time())
        if opened:
            raise ValueError("boom")

        yield ""

    async with controlled(Notes(), sources={"broken": broken}):
        await asyncio.sleep(1000)

    gaps = [b - a for a, b in pairwise(opened)]
    assert 0.8 <= gaps[0] < 1.6
    assert all(30 <= gap < 60 for gap in gaps[-5:])


async def test_source_is_opened_at_once_after_two_good_minutes() -> None:
    billing = Billing()
    async with controlled(Notes(), sources={"billing": billing}):
        await asyncio.sleep(200)
        await billing.put(ValueError("boom"))
        await asyncio.sleep(0.1)

    assert len(billing.opened) == 2


async def test_invalid_item_of_source_is_reported_and_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR)
    billing, notes = Billing(), Notes()
    async with controlled(notes, sources={"billing": billing}):
        await billing.put("a/b/c", 7, "shop/web")

    assert notes.names == ["web"]
    assert len(billing.opened) == 1
    assert caplog.text.count("source billing failed") >= 2
    assert "a source must yield requests or keys, not a int" in caplog.text


async def test_source_that_never_waits_does_not_block_the_loop() -> None:
    async def busy() -> AsyncIterator[str]:
        while True:
            yield "shop/web"

    notes = Notes()
    async with controlled(notes, sources={"busy": busy}):
        for _ in range(100):
            await asyncio.sleep(0)

    assert notes.names


async def test_async_iterable_is_a_source() -> None:
    class Events:
        def __init__(self) -> None:
            self.opened = 0

        async def __aiter__(self) -> AsyncIterator[str]:
            self.opened += 1
            yield f"shop/{self.opened}"

    events, notes = Events(), Notes()
    async with controlled(notes, sources={"events": events}):
        await asyncio.sleep(2)

    assert notes.names[:2] == ["1", "2"]


async def test_async_iterator_without_aclose_is_a_source() -> None:
    class Events:
        def __init__(self) -> None:
            self.keys = ["shop/a", "shop/b"]

        def __aiter__(self) -> Events:
            return self

        async def __anext__(self) -> str:
            if not self.keys:
                await asyncio.Event().wait()

            return self.keys.pop(0)

    notes = Notes()
    async with controlled(notes, sources={"events": Events()}):
        pass

    assert notes.names == ["a", "b"]


async def test_source_cannot_delay_the_end_of_reconciles() -> None:
    async def stubborn() -> AsyncIterator[str]:
        try:
            yield "shop/web"
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(5)

    ended: list[float] = []
    loop = asyncio.get_running_loop()

    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(loop.time() - stopped)

    async with controlled(reconcile, sources={"it": stubborn}, drain_timeout=2):
        await settle()
        stopped = loop.time()

    # At the end of `drain_timeout`, which also cancels the clean-up of the source.
    assert ended == [pytest.approx(2)]
    assert loop.time() - stopped == pytest.approx(2)


async def coroutine() -> str:
    return "shop/web"


async def generator() -> AsyncIterator[str]:
    yield "shop/web"


def plain() -> Iterator[str]:
    yield "shop/web"


@pytest.mark.parametrize(
    ("sources", "text"),
    [
        ([generator], "takes a dict"),
        ({"": generator}, "must be a text"),
        ({"it": coroutine}, "async generator function"),
        ({"it": 7}, "async generator function"),
        ({"it": plain}, "async generator function"),
        ({"it": lambda name: generator()}, r"callable as it\(\)"),
    ],
    ids=["list", "no-name", "coroutine", "number", "plain", "arguments"],
)
def test_invalid_source_is_refused(sources: Any, text: str) -> None:
    pods = informer_of(FakeListerWatcher())

    with pytest.raises(OptionsError, match=text):
        Controller("pods", Notes(), for_=pods, sources=sources)


def test_async_generator_as_source_is_refused() -> None:
    pods = informer_of(FakeListerWatcher())

    with pytest.raises(OptionsError, match="pass the function generator, without"):
        Controller("pods", Notes(), for_=pods, sources={"it": generator()})


async def test_sources_are_opened_by_controllers_of_synced_informers() -> None:
    pods = informer_of(FakeListerWatcher(named("a")))
    billing, notes = Billing(), Notes()
    controller = Controller("pods", notes, for_=pods, sources={"billing": billing})
    async with informed(pods), controller:
        await settle()
        await billing.put("shop/web")

    assert notes.names == ["a", "web"]
