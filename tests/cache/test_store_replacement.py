"""Replacement of the contents, built beside the old ones and swapped in."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest
from store_helpers import Thing, by_tag, by_version, contents_of

from aioinformer.cache import Indexer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def indexer() -> Indexer[Thing]:
    return Indexer({"tag": by_tag, "version": by_version})


def test_replace_replaces_all_objects(
    indexer: Indexer[Thing],
) -> None:
    indexer.add(Thing("a", ("x",)))
    indexer.add(Thing("b", ("x", "y")))

    indexer.replace([Thing("c", ("y",)), Thing("b", ("z",))], "12")

    assert indexer.list_keys() == ["c", "b"]
    assert contents_of(indexer) == {"y": {"c"}, "z": {"b"}}
    assert indexer.resource_version == "12"


def test_last_of_several_listed_objects_with_one_key_wins(
    indexer: Indexer[Thing],
) -> None:
    indexer.replace([Thing("a", ("x",), 1), Thing("b"), Thing("a", ("y",), 2)])

    assert len(indexer) == 2
    assert indexer.get_by_key("a") == Thing("a", ("y",), 2)
    assert contents_of(indexer) == {"y": {"a"}}


def test_readers_see_old_contents_until_replacement_is_complete(
    indexer: Indexer[Thing],
) -> None:
    indexer.replace([Thing("a", ("x",)), Thing("b", ("x",))], "1")
    seen: list[object] = []

    def listing() -> Iterator[Thing]:
        for number in range(3):
            seen.append((indexer.list_keys(), contents_of(indexer)))
            seen.append(indexer.resource_version)
            yield Thing(f"new-{number}", ("y",))

    indexer.replace(listing(), "2")

    assert seen == [(["a", "b"], {"x": {"a", "b"}}), "1"] * 3
    assert contents_of(indexer) == {"y": {"new-0", "new-1", "new-2"}}


def test_readers_in_a_thread_see_all_of_a_replacement_or_nothing() -> None:
    indexer = Indexer[Thing]({"tag": by_tag})
    contents = [
        [Thing(f"small-{n}", ("x",)) for n in range(50)],
        [Thing(f"large-{n}", ("x",)) for n in range(200)],
    ]
    indexer.replace(contents[0])
    seen: set[tuple[int, frozenset[str]]] = set()
    done = threading.Event()
    errors: list[Exception] = []

    def read() -> None:
        try:
            while not done.is_set():
                for things in (indexer.list(), indexer.by_index("tag", "x")):
                    kinds = frozenset(thing.key.split("-")[0] for thing in things)
                    seen.add((len(things), kinds))
        except Exception as exc:  # noqa: BLE001 - asserted on below
            errors.append(exc)

    reader = threading.Thread(target=read)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    reader.start()
    try:
        for number in range(5000):
            indexer.replace(contents[number % 2])
            if number > 100 and len(seen) > 1:
                break
    finally:
        done.set()
        reader.join()
        sys.setswitchinterval(interval)

    assert errors == []
    assert seen == {(50, frozenset({"small"})), (200, frozenset({"large"}))}


def test_swap_returns_the_old_contents(indexer: Indexer[Thing]) -> None:
    indexer.add(Thing("a", ("x",)))
    before = indexer.contents
    replacement = indexer.replacement()

    old = indexer.swap(replacement, "5")

    assert old is before
    assert old.objects == {"a": Thing("a", ("x",))}
    assert indexer.contents is replacement
    assert len(indexer) == 0
    assert indexer.resource_version == "5"


def test_replacement_is_built_beside_the_contents(indexer: Indexer[Thing]) -> None:
    indexer.add(Thing("a", ("x",)))

    replacement = indexer.replacement()
    replacement.put("b", Thing("b", ("x",)))

    assert indexer.list_keys() == ["a"]
    assert contents_of(indexer) == {"x": {"a"}}


def test_index_added_during_replacement_has_all_objects(
    indexer: Indexer[Thing],
) -> None:
    indexer.add(Thing("a", ("x",)))
    replacement = indexer.replacement()
    replacement.put("a", Thing("a", ("y",)))

    indexer.add_indexers({"late": by_tag})
    before = contents_of(indexer, "late")
    replacement.put("b", Thing("b", ("y",)))
    indexer.swap(replacement)
    indexer.add(Thing("c", ("y",)))

    assert before == {"x": {"a"}}
    assert contents_of(indexer, "late") == contents_of(indexer)
    assert contents_of(indexer, "late") == {"y": {"a", "b", "c"}}


def test_kept_object_listed_twice_has_no_old_index_value(
    indexer: Indexer[Thing],
) -> None:
    """A list in pages may have a key twice, the second time in an older state."""
    old, new = Thing("a", ("x",), 1), Thing("a", ("y", "z"), 2)
    indexer.add(old)
    replacement = indexer.replacement()

    replacement.put("a", new)
    replacement.keep("a", old, indexer.contents)
    indexer.swap(replacement)

    assert contents_of(indexer) == {"x": {"a"}}
    assert contents_of(indexer, "version") == {"1": {"a"}}


def test_remove_returns_the_removed_object(indexer: Indexer[Thing]) -> None:
    indexer.add(Thing("a", ("x",)))

    first = indexer.contents.remove("a")
    second = indexer.contents.remove("a")

    assert (first, second) == (Thing("a", ("x",)), None)
