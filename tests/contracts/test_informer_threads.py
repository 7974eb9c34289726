"""Blocking handlers, which are called in a thread (`thread=True`)."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import pytest
from fake_source import thing

from aioinformer.errors import HandlerError, OptionsError
from aioinformer.informer import SharedInformer
from aioinformer.testing import FakeListerWatcher

if TYPE_CHECKING:
    from aioinformer.model import KubeObject

WHO: ContextVar[str] = ContextVar("who", default="nobody")


def a_source(*names: str) -> FakeListerWatcher:
    return FakeListerWatcher(*({"metadata": {"name": name}} for name in names))


async def received_by(informer: SharedInformer, **options: Any) -> None:
    """Run an informer until its handler has processed everything."""
    registration = informer.add_event_handler(thread=True, **options)
    life = asyncio.create_task(informer.run())
    try:
        await registration.wait_synced()
    finally:
        life.cancel()
        await asyncio.wait({life})


async def test_G4_thread_handler_is_called_in_a_thread_and_one_at_a_time() -> None:
    threads: list[int] = []
    together = 0
    most = 0

    def handle(obj: KubeObject) -> None:
        nonlocal together, most
        together += 1
        most = max(most, together)
        threads.append(threading.get_ident())
        together -= 1

    await received_by(SharedInformer(a_source("a", "b", "c")), on_add=handle)

    assert len(threads) == 3
    assert threading.get_ident() not in threads
    assert len(set(threads)) == 1, "one thread for one handler"
    assert most == 1


async def test_thread_handler_gets_events_in_order_with_context_variables() -> None:
    received: list[tuple[str, str]] = []
    WHO.set("somebody")

    await received_by(
        SharedInformer(a_source("a", "b", "c")),
        on_add=lambda obj: received.append((obj.name, WHO.get())),
    )

    assert received == [(name, "somebody") for name in "abc"]


@pytest.mark.parametrize("error", [ValueError("no"), TimeoutError("late")])
async def test_G12_failing_thread_handler_is_reported_and_gets_the_next_event(
    error: Exception,
) -> None:
    failures: list[HandlerError] = []
    received: list[str] = []

    def handle(obj: KubeObject) -> None:
        received.append(obj.name)
        if obj.name == "a":
            raise error

    informer = SharedInformer(a_source("a", "b"), on_error=failures.append)
    await received_by(informer, on_add=handle)

    assert received == ["a", "b"]
    assert [failure.__cause__ for failure in failures] == [error]


async def test_handler_thread_ends_with_the_informer() -> None:
    seen: list[threading.Thread] = []

    await received_by(
        SharedInformer(a_source("a")),
        on_add=lambda _: seen.append(threading.current_thread()),
    )
    seen[0].join(timeout=10)

    assert not seen[0].is_alive()


def test_async_handler_with_thread_option_is_refused() -> None:
    async def handle(obj: KubeObject) -> None:
        raise AssertionError(obj)

    with pytest.raises(OptionsError, match="thread"):
        SharedInformer(a_source()).add_event_handler(on_add=handle, thread=True)


async def test_thread_handler_that_returns_a_coroutine_is_reported() -> None:
    async def later(obj: KubeObject) -> None:
        raise AssertionError(obj)

    failures: list[HandlerError] = []
    informer = SharedInformer(a_source("a"), on_error=failures.append)
    await received_by(informer, on_add=lambda obj: later(thing(obj.name)))

    assert "plain" in str(failures[0].__cause__)
