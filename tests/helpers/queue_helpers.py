"""Helpers for the tests of work queues."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.workqueue import WorkQueue


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


def take_all(queue: WorkQueue[str]) -> list[str]:
    taken = []
    while len(queue):
        taken.append(queue.get_nowait())
        queue.done(taken[-1])

    return taken


def error_in_thread(call: Callable[[], object]) -> BaseException | None:
    """Run `call` in another thread, and return its error, or None."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except Exception as exc:  # noqa: BLE001 - handed to the test
            errors.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return errors[0] if errors else None


class CountedTime(float):
    """A time that counts comparisons."""

    comparisons = 0

    def __add__(self, other: float) -> CountedTime:
        return CountedTime(float(self) + other)

    def __lt__(self, other: float) -> bool:
        CountedTime.comparisons += 1
        return float(self) < float(other)

    def __eq__(self, other: object) -> bool:
        CountedTime.comparisons += 1
        return float(self) == other

    __hash__ = float.__hash__


class Sink:
    """A metrics sink that records values by name and label."""

    enabled = True

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.gauges: dict[tuple[str, str], float] = {}

    def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
        self.counts[name, labels["name"]] += int(amount)

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        self.gauges[name, labels["name"]] = value

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        raise AssertionError("nothing here is a histogram")


class DisabledSink(Sink):
    """A disabled sink, which must never be called."""

    enabled = False
