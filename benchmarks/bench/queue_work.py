"""Work for queues, to be timed or counted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioinformer.metrics import NullSink

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["PlainSink", "ReadSink", "add_and_work", "keys_of"]


class PlainSink(NullSink):
    """Sink that ignores all measurements."""

    enabled = True


class ReadSink(PlainSink):
    """Sink that collects, and is never read."""

    def register(self, notify: Callable[[], None], /) -> None:
        """Never read the measurements."""

    def observe(self, name: str, /, *values: float, **labels: str) -> None:
        """Ignore the measurements."""


def keys_of(number: int) -> list[str]:
    """Return distinct keys in 40 namespaces."""
    return [f"namespace-{it % 40}/pod-{it:06}" for it in range(number)]


async def add_and_work(
    keys: list[str],
    add: Callable[[str], object],
    work: Callable[[], Awaitable[None]],
    *,
    adds_a_turn: int,
) -> None:
    """Add all keys, some in each turn of the loop, while a worker takes them.

    Args:
        keys: Keys to add.
        add: Function that adds a key.
        work: Coroutine function that returns when all keys are done.
        adds_a_turn: Keys to add in each turn of the loop.
    """

    async def produce() -> None:
        for start in range(0, len(keys), adds_a_turn):
            for key in keys[start : start + adds_a_turn]:
                add(key)

            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        producer = group.create_task(produce())
        await work()
        await producer
