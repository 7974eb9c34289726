"""`MutationCache`: own writes are returned until the store has them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from each_case import each_case
from store_helpers import ManualClock

from aioinformer.cache import (
    DeletedFinalStateUnknown,
    Indexer,
    MutationCache,
    Store,
)
from aioinformer.errors import NoKey, OptionsError

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class Item:
    """Version of an object: a small `KubeObject`."""

    key: str
    resource_version: str
    uid: str = "A"
    tags: tuple[str, ...] = ()


def item(version: object, uid: str = "A", tags: tuple[str, ...] = ()) -> Item:
    return Item("shop/web", str(version), uid, tags)


def by_tag(obj: Item) -> Iterable[str]:
    if "bad" in obj.tags:
        raise ZeroDivisionError

    return obj.tags


KEY = "shop/web"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def indexer() -> Indexer[Item]:
    return Indexer({"tag": by_tag})


@pytest.fixture
def cache(indexer: Indexer[Item], clock: ManualClock) -> MutationCache[Item]:
    return MutationCache(indexer, include_adds=True, clock=clock)


# ---------------------------------------------------------------- get_by_key


@pytest.mark.parametrize(
    ("stored", "written", "read", "kept"),
    [
        pytest.param(item(5), item(6), item(6), 1, id="write-is-newer"),
        pytest.param(item(9), item(10), item(10), 1, id="compared-as-numbers"),
        pytest.param(item(""), item(1), item(1), 1, id="no-version-is-the-oldest"),
        pytest.param(
            item(2**63), item(2**64 - 1), item(2**64 - 1), 1, id="64-bits-unsigned"
        ),
        pytest.param(
            item(7, "B"), item(6, "A"), item(7, "B"), 0, id="another-one-is-there-now"
        ),
        pytest.param(item("abc"), item(6), item("abc"), 0, id="not-comparable"),
    ],
)
def test_newer_of_stored_and_written_object_is_read(
    indexer: Indexer[Item],
    cache: MutationCache[Item],
    stored: Item,
    written: Item,
    read: Item,
    kept: int,
) -> None:
    indexer.add(stored)

    cache.mutation(written)

    assert cache.get_by_key(KEY) == read
    assert len(cache) == kept


@pytest.mark.parametrize("version", [6, 7])
def test_write_is_dropped_when_the_store_has_caught_up(
    indexer: Indexer[Item], cache: MutationCache[Item], version: int
) -> None:
    indexer.add(item(5))
    cache.mutation(item(6))
    caught_up = item(version, tags=("stored",))
    indexer.update(caught_up)

    assert cache.get_by_key(KEY) is caught_up
    assert len(cache) == 0


@pytest.mark.parametrize("include_adds", [True, False])
def test_include_adds_shows_objects_the_store_does_not_have(
    indexer: Indexer[Item], clock: ManualClock, include_adds: bool
) -> None:
    cache = MutationCache(indexer, include_adds=include_adds, clock=clock)
    cache.mutation(item(6, tags=("x",)))

    found = [item(6, tags=("x",))] if include_adds else []
    assert cache.get_by_key(KEY) == (found[0] if found else None)
    assert cache.by_index("tag", "x") == found
    assert cache.get_by_key("shop/none") is None


# ---------------------------------------------------------------- mutation


def test_newest_write_of_a_key_is_kept(cache: MutationCache[Item]) -> None:
    cache.mutation(item(6, tags=("first",)))
    cache.mutation(item(6, tags=("second",)))
    equal_overwrites = cache.get_by_key(KEY)
    cache.mutation(item(5))

    assert equal_overwrites == item(6, tags=("second",))
    assert cache.get_by_key(KEY) == equal_overwrites


def test_mutation_rejects_version_that_is_not_decimal(
    cache: MutationCache[Item],
) -> None:
    with pytest.raises(OptionsError, match="'v1'"):
        cache.mutation(item("v1"))

    assert len(cache) == 0


def test_mutation_rejects_object_without_key(clock: ManualClock) -> None:
    cache = MutationCache[Any](Store[Any](), clock=clock)

    for step in (cache.mutation, cache.on_add_or_update, cache.on_delete):
        with pytest.raises(NoKey):
            step(object())


def test_least_recently_used_write_is_dropped_first(clock: ManualClock) -> None:
    cache = MutationCache[Item](Store(), include_adds=True, max_size=2, clock=clock)
    for name in ("a", "b"):
        cache.mutation(Item(name, "1"))

    cache.get_by_key("a")
    cache.mutation(Item("c", "1"))

    found = {name for name in "abc" if cache.get_by_key(name)}
    assert found == {"a", "c"}
    assert len(cache) == 2


@pytest.mark.parametrize("ttl", [300, timedelta(minutes=5), None])
def test_write_is_kept_for_ttl(clock: ManualClock, ttl: Any) -> None:
    options = {} if ttl is None else {"ttl": ttl}
    cache = MutationCache[Item](Store(), include_adds=True, clock=clock, **options)
    cache.mutation(item(6))

    clock.now += 300
    in_time = cache.get_by_key(KEY)
    clock.now += 0.1

    assert in_time == item(6)
    assert cache.get_by_key(KEY) is None
    assert len(cache) == 0


async def test_default_clock_is_that_of_the_loop() -> None:
    cache = MutationCache[Item](Store(), ttl=5, include_adds=True)
    cache.mutation(item(6))

    await asyncio.sleep(5)
    in_time = cache.get_by_key(KEY)
    await asyncio.sleep(0.1)

    assert (in_time, cache.get_by_key(KEY)) == (item(6), None)


@each_case("options", [{"ttl": 0}, {"ttl": -1}, {"ttl": float("inf")}, {"max_size": 0}])
def test_mutation_cache_rejects_invalid_options(options: Any) -> None:
    with pytest.raises(OptionsError):
        MutationCache[Item](Store(), **options)


# ---------------------------------------------------------------- the store's changes


@pytest.mark.parametrize(
    ("version", "kept"),
    [
        pytest.param(5, 1, id="older-keeps-it"),
        pytest.param(6, 0, id="equal-clears-it"),
        pytest.param(7, 0, id="newer-clears-it"),
        pytest.param("abc", 0, id="not-comparable-clears-it"),
    ],
)
def test_on_add_or_update_drops_outdated_write(
    cache: MutationCache[Item], version: object, kept: int
) -> None:
    cache.mutation(item(6))

    cache.on_add_or_update(item(version))

    assert len(cache) == kept


def test_on_add_or_update_as_update_handler_uses_new_state(
    cache: MutationCache[Item],
) -> None:
    cache.mutation(item(6))

    cache.on_add_or_update(item(4), item(5))
    older = len(cache)
    cache.on_add_or_update(item(5), item(6))

    assert (older, len(cache)) == (1, 0)


@pytest.mark.parametrize(
    ("deleted", "read"),
    [
        pytest.param(item(4, "A"), None, id="same-uid-older"),
        pytest.param(item(7, "B"), None, id="other-uid-newer"),
        pytest.param(item(4, "B"), item(6, "A"), id="other-uid-older"),
        pytest.param(
            DeletedFinalStateUnknown(KEY, item(4, "A")), None, id="tombstone-same-uid"
        ),
        pytest.param(
            DeletedFinalStateUnknown(KEY, item(4, "B")),
            item(6, "A"),
            id="tombstone-other-uid",
        ),
        pytest.param(
            DeletedFinalStateUnknown(KEY, None), None, id="tombstone-without-state"
        ),
    ],
)
def test_on_delete_drops_write_to_deleted_object(
    cache: MutationCache[Item], deleted: Any, read: Item | None
) -> None:
    cache.mutation(item(6, "A"))

    cache.on_delete(deleted)

    assert cache.get_by_key(KEY) == read


def test_unknown_uids_are_not_equal(cache: MutationCache[Item]) -> None:
    cache.mutation(item(6, ""))
    cache.on_delete(item(5, ""))
    newer_is_kept = cache.get_by_key(KEY)
    cache.on_delete(item(7, ""))
    cache.mutation(item(8, ""))

    assert newer_is_kept == item(6, "")
    assert cache.get_by_key(KEY) == item(8, "")


@pytest.mark.parametrize(
    ("late", "read"),
    [
        pytest.param(item(6, "A"), None, id="before-the-deletion"),
        pytest.param(item(8, "A"), None, id="same-uid-though-newer"),
        pytest.param(item(7, "B"), None, id="other-uid-of-its-version"),
        pytest.param(item(8, "B"), item(8, "B"), id="created-again"),
    ],
)
def test_late_response_of_a_deleted_object_is_ignored(
    indexer: Indexer[Item],
    cache: MutationCache[Item],
    clock: ManualClock,
    late: Item,
    read: Item | None,
) -> None:
    indexer.add(item(5, "A"))
    indexer.delete(item(5, "A"))
    cache.on_delete(item(7, "A"))

    cache.mutation(late)

    assert cache.get_by_key(KEY) == read
    clock.now += 301
    assert (cache.get_by_key(KEY), len(cache)) == (None, 0)


def test_tombstone_does_not_hide_a_stored_object(
    indexer: Indexer[Item], cache: MutationCache[Item]
) -> None:
    cache.on_delete(item(7, "A"))
    indexer.add(item(8, "B", ("x",)))

    assert cache.get_by_key(KEY) == item(8, "B", ("x",))
    assert cache.by_index("tag", "x") == [item(8, "B", ("x",))]


def test_late_response_is_ignored_for_a_recreated_object(
    indexer: Indexer[Item], cache: MutationCache[Item]
) -> None:
    indexer.add(item(5, "A"))
    cache.on_delete(item(7, "A"))
    again = item(8, "B")
    indexer.update(again)
    cache.on_add_or_update(again)

    cache.mutation(item(6, "A"))

    assert len(cache) == 0
    assert cache.get_by_key(KEY) is again


# ---------------------------------------------------------------- by_index


def test_by_index_returns_the_newer_objects(
    indexer: Indexer[Item], cache: MutationCache[Item]
) -> None:
    indexer.replace([Item("a", "5", tags=("x",)), Item("b", "5", tags=("x",))])
    cache.mutation(Item("a", "6", tags=("x",)))
    cache.mutation(Item("c", "6", tags=("x", "y")))

    found = cache.by_index("tag", "x")

    assert found == [
        Item("a", "6", tags=("x",)),
        Item("b", "5", tags=("x",)),
        Item("c", "6", tags=("x", "y")),
    ]
    assert cache.by_index("tag", "y") == [Item("c", "6", tags=("x", "y"))]


def test_by_index_finds_written_object_by_its_new_values(
    indexer: Indexer[Item], clock: ManualClock
) -> None:
    cache = MutationCache(indexer, clock=clock)
    indexer.add(item(5, tags=("x",)))
    cache.mutation(item(6, tags=("y",)))

    assert cache.by_index("tag", "x") == []
    assert cache.by_index("tag", "y") == [item(6, tags=("y",))]


def test_by_index_omits_written_object_whose_index_function_fails(
    indexer: Indexer[Item], cache: MutationCache[Item]
) -> None:
    indexer.add(item(5, tags=("x",)))
    cache.mutation(item(6, tags=("x", "bad")))
    cache.mutation(Item("new", "6", tags=("x", "bad")))

    assert cache.by_index("tag", "x") == []
    assert cache.get_by_key(KEY) == item(6, tags=("x", "bad"))


def test_by_index_omits_deleted_object(cache: MutationCache[Item]) -> None:
    cache.mutation(item(6, tags=("x",)))
    before = cache.by_index("tag", "x")
    cache.on_delete(item(6))

    assert before == [item(6, tags=("x",))]
    assert cache.by_index("tag", "x") == []


def test_by_index_rejects_unknown_index(
    cache: MutationCache[Item], clock: ManualClock
) -> None:
    with pytest.raises(OptionsError, match="'node'"):
        cache.by_index("node", "x")

    with pytest.raises(OptionsError, match="has no indexes"):
        MutationCache[Item](Store(), clock=clock).by_index("tag", "x")


def test_repr_of_a_mutation_cache_names_its_store(cache: MutationCache[Item]) -> None:
    cache.mutation(item(6))

    assert repr(cache) == "<MutationCache of 1 over <Indexer 0 objects>>"
