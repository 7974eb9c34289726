"""Helpers of the tests of `Store` and `Indexer`."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from sys import getswitchinterval, setswitchinterval
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Callable,
        Coroutine,
        Iterable,
        Iterator,
    )

    from aioinformer.cache import Indexer


@dataclass(frozen=True)
class Thing:
    """An object with a key, as `meta_namespace_key` takes it."""

    key: str
    tags: tuple[str, ...] = ()
    version: int = 0


def by_tag(thing: Thing) -> Iterable[str]:
    """Fails for what is tagged "bad"."""
    if "bad" in thing.tags:
        raise ZeroDivisionError(thing.key)

    return thing.tags


def by_version(thing: Thing) -> Iterable[str]:
    return [str(thing.version)]


def contents_of(indexer: Indexer[Thing], name: str = "tag") -> dict[str, set[str]]:
    values = indexer.list_index_func_values(name)
    return {value: set(indexer.index_keys(name, value)) for value in values}


class ManualClock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def beside(life: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run something beside the block, and cancel it behind it."""
    task = asyncio.create_task(life)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


@contextmanager
def reading_in_threads(read: Callable[[], None], count: int) -> Iterator[None]:
    """Call `read` in threads as long as the block runs, and once behind it.

    The threads take turns as often as they can. Raises the first error of one.
    """
    errors: list[Exception] = []
    done = threading.Event()

    def run() -> None:
        try:
            while not done.is_set():
                read()

            read()
        except Exception as exc:  # noqa: BLE001 - raised below
            errors.append(exc)

    threads = [threading.Thread(target=run) for _ in range(count)]
    interval = getswitchinterval()
    setswitchinterval(1e-5)
    for thread in threads:
        thread.start()

    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()

        setswitchinterval(interval)

    if errors:
        raise errors[0]
