"""Helpers for the tests of `Store` and `Indexer`."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from sys import getswitchinterval, setswitchinterval
from typing import TYPE_CHECKING, Any

from aioinformer.cache.memory import MemoryContents

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Iterable,
        Iterator,
    )

    from aioinformer.cache import Indexer


@dataclass(frozen=True)
class Thing:
    """An object with a key for `meta_namespace_key`."""

    key: str
    tags: tuple[str, ...] = ()
    version: int = 0


def by_tag(thing: Thing) -> Iterable[str]:
    """Index by tag; fail for the tag "bad"."""
    if "bad" in thing.tags:
        raise ZeroDivisionError(thing.key)

    return thing.tags


def by_version(thing: Thing) -> Iterable[str]:
    return [str(thing.version)]


def contents_of(indexer: Indexer[Thing], name: str = "tag") -> dict[str, set[str]]:
    values = indexer.list_index_func_values(name)
    return {value: set(indexer.index_keys(name, value)) for value in values}


def memory_of(indexer: Indexer[Any]) -> MemoryContents[Any]:
    """Return what an indexer holds, if it is in memory."""
    contents = indexer.contents
    assert isinstance(contents, MemoryContents)
    return contents


class ManualClock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def reading_in_threads(read: Callable[[], None], count: int) -> Iterator[None]:
    """Call `read` in threads during the block, and once after it.

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
