"""`MutationCache` in threads: no read returns a state before a write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import pytest
from store_helpers import ManualClock, reading_in_threads

from aioinformer.cache import Indexer, MutationCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")


@dataclass(frozen=True)
class Item:
    """Version of an object: a small `KubeObject`."""

    key: str
    resource_version: str
    uid: str = "A"


def by_tag(obj: Item) -> Iterable[str]:
    return ["x"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class CatchingUp(Indexer[Item]):
    """Store that changes between a look-up and its return."""

    then: Callable[[], None] | None = None

    def get_by_key(self, key: str) -> Item | None:
        return self._meanwhile(super().get_by_key(key))

    def by_index(self, name: str, value: str) -> list[Item]:
        return self._meanwhile(super().by_index(name, value))

    def _meanwhile(self, answer: T) -> T:
        then, self.then = self.then, None
        if then is not None:
            then()

        return answer


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda it: it.get_by_key("a"), id="get_by_key"),
        pytest.param(lambda it: it.by_index("tag", "x")[0], id="by_index"),
    ],
)
def test_write_that_reaches_store_during_read_is_returned(
    read: Callable[[MutationCache[Item]], Item], clock: ManualClock
) -> None:
    """Another thread drops the write, because the store has it now."""
    indexer = CatchingUp({"tag": by_tag})
    cache = MutationCache(indexer, clock=clock)
    indexer.add(Item("a", "5"))
    written = Item("a", "6")
    cache.mutation(written)

    def catch_up() -> None:
        indexer.update(written)
        cache.on_add_or_update(written)

    indexer.then = catch_up

    assert read(cache) is written


def test_mutation_cache_may_be_used_from_any_thread(clock: ManualClock) -> None:
    indexer = Indexer[Item]({"tag": by_tag})
    cache = MutationCache(indexer, include_adds=True, max_size=5, clock=clock)

    def read() -> None:
        for name in "abcdefgh":
            found = cache.get_by_key(name)
            assert found is None or found.key == name

        cache.by_index("tag", "x")

    with reading_in_threads(read, 4):
        for version in range(1, 2000):
            obj = Item("abcdefgh"[version % 8], str(version))
            (cache.mutation, cache.on_add_or_update, cache.on_delete)[version % 3](obj)

    assert len(cache) <= 5


def test_write_made_during_read_is_kept(clock: ManualClock) -> None:
    """Another thread writes again while a read finds the first write in the store."""
    indexer = CatchingUp({"tag": by_tag})
    cache = MutationCache(indexer, clock=clock)
    indexer.add(Item("a", "5"))
    cache.mutation(Item("a", "6"))
    indexer.update(Item("a", "6"))
    indexer.then = lambda: cache.mutation(Item("a", "7"))

    assert cache.get_by_key("a") == Item("a", "6")
    assert cache.get_by_key("a") == Item("a", "7")
