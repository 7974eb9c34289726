"""Reads in threads while the store changes: each returns one snapshot."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from store_helpers import Thing, memory_of, reading_in_threads

from aioinformer.cache import Indexer, split_dict
from aioinformer.cache.index import NAMESPACE_INDEX, by_namespace
from aioinformer.cache.split_dict import SplitDict
from aioinformer.informer import Lister
from aioinformer.model import KubeObject
from aioinformer.model.views import ObjectContext

if TYPE_CHECKING:
    from collections.abc import Iterable

THREADS = 8
ROUNDS = 150
KEYS = 40
CONTEXT = ObjectContext()


def parity_of(obj: KubeObject) -> Iterable[str]:
    """Return two of three values, which differ between successive versions."""
    return ["abc"[int(obj.resource_version) % 3], "bca"[int(obj.resource_version) % 3]]


def state(name: int, version: int) -> KubeObject:
    metadata = f'"name":"p{name}","namespace":"n","resourceVersion":"{version}"'
    body = b'{"metadata":{' + metadata.encode() + b"}}"
    return KubeObject(body, f"n/p{name}", "", str(version), {}, CONTEXT)


def generation(version: int) -> list[KubeObject]:
    return [state(name, version) for name in range(KEYS)]


@pytest.fixture
def indexer() -> Indexer[KubeObject]:
    indexers = {NAMESPACE_INDEX: by_namespace, "parity": parity_of}
    made: Indexer[KubeObject] = Indexer(indexers, key_func=lambda obj: obj.key)
    made.replace(generation(0), "0")
    return made


@pytest.fixture
def divided(
    indexer: Indexer[KubeObject], monkeypatch: pytest.MonkeyPatch
) -> Indexer[KubeObject]:
    """Return an indexer whose maps are in parts."""
    monkeypatch.setattr(split_dict, "LARGE", 2)
    contents = memory_of(indexer)
    for name in range(KEYS):
        contents.divide(f"n/p{name}")

    assert type(contents.objects) is SplitDict
    for index in contents.indexes.values():
        assert {type(bucket) for bucket in index.buckets.values()} == {SplitDict}

    return indexer


@pytest.fixture(params=["indexer", "divided"])
def any_indexer(request: pytest.FixtureRequest) -> Indexer[KubeObject]:
    made: Indexer[KubeObject] = request.getfixturevalue(request.param)
    return made


def versions_of(objects: list[KubeObject]) -> list[int]:
    return [int(obj.resource_version) for obj in objects]


def check_prefix(objects: list[KubeObject]) -> None:
    """Check that the states are those after some number of writes.

    Each round writes p0, p1, ... in this order: at any time the first ones have the new
    version, and the others the version before.
    """
    versions = [version for _, version in sorted(numbered(objects))]
    assert len(versions) == KEYS
    assert versions == sorted(versions, reverse=True)
    assert versions[0] - versions[-1] <= 1


def numbered(objects: list[KubeObject]) -> list[tuple[int, int]]:
    return [(int(it.name[1:]), int(it.resource_version)) for it in objects]


def test_threads_read_a_state_between_two_writes(
    any_indexer: Indexer[KubeObject],
) -> None:
    indexer = any_indexer

    def read() -> None:
        check_prefix(indexer.list())
        check_prefix(indexer.by_index(NAMESPACE_INDEX, "n"))
        assert {*indexer.list_keys()} == {f"n/p{name}" for name in range(KEYS)}
        assert len(indexer.index_keys(NAMESPACE_INDEX, "n")) == KEYS
        assert len(indexer) == KEYS

    with reading_in_threads(read, THREADS):
        for version in range(1, ROUNDS):
            for obj in generation(version):
                indexer.update(obj)


def test_threads_find_updated_object_by_any_of_its_values(
    any_indexer: Indexer[KubeObject],
) -> None:
    """It shares a value with any object that has two of the three values."""
    indexer, wanted = any_indexer, state(0, 0)

    def read() -> None:
        found = indexer.index("parity", wanted)
        assert len(found) == KEYS
        assert len({obj.key for obj in found}) == KEYS

    with reading_in_threads(read, THREADS):
        for version in range(1, ROUNDS // 3):
            for obj in generation(version):
                indexer.update(obj)


def test_threads_read_old_or_new_contents(
    indexer: Indexer[KubeObject],
) -> None:
    def read() -> None:
        contents = indexer.contents
        for objects in (
            indexer.list(),
            indexer.by_index(NAMESPACE_INDEX, "n"),
            list(contents.objects.values()),
        ):
            versions = set(versions_of(objects))
            assert len(versions) == 1
            assert len(objects) == KEYS

        found = versions_of(list(contents.objects.values()))
        assert str(found[0]) == contents.resource_version

    with reading_in_threads(read, THREADS):
        for version in range(1, ROUNDS):
            indexer.replace(generation(version), str(version))


def test_threads_read_while_objects_are_added_and_deleted(
    any_indexer: Indexer[KubeObject],
) -> None:
    indexer = any_indexer

    def read() -> None:
        for objects in (indexer.list(), indexer.by_index(NAMESPACE_INDEX, "n")):
            names = [number for number, _ in sorted(numbered(objects))]
            assert names in (list(range(len(names))), list(range(KEYS)[-len(names) :]))

        indexer.get_by_key("n/p7")
        indexer.list_index_func_values("parity")
        for value in "abc":
            indexer.by_index("parity", value)
            indexer.index_keys("parity", value)

    with reading_in_threads(read, THREADS):
        for version in range(1, ROUNDS // 2):
            for obj in generation(version):
                indexer.delete(obj)

            for obj in generation(version):
                indexer.add(obj)


def test_threads_read_while_maps_are_divided(
    indexer: Indexer[KubeObject], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split_dict, "LARGE", KEYS)

    def read() -> None:
        check_prefix(indexer.list())
        check_prefix(indexer.by_index(NAMESPACE_INDEX, "n"))
        assert len(indexer.list_keys()) == len(indexer) == KEYS

    with reading_in_threads(read, THREADS):
        for version in range(1, ROUNDS):
            indexer.replace(generation(version), str(version))
            for obj in generation(version + 1):
                indexer.update(obj)
                memory_of(indexer).divide(obj.key)


def test_threads_read_while_indexes_are_added(indexer: Indexer[KubeObject]) -> None:
    def read() -> None:
        for name in indexer.indexers:
            if name.startswith("late"):
                assert len(indexer.by_index(name, "x")) == KEYS

    with reading_in_threads(read, THREADS):
        for number in range(100):
            indexer.add_indexers({f"late-{number}": lambda obj: ["x"]})
            indexer.update(state(number % KEYS, number))


def test_lister_json_is_one_state(indexer: Indexer[KubeObject]) -> None:
    lister = Lister(indexer, lambda *_, **__: None, lambda *_: None)

    def read() -> None:
        for narrowed in (lister, lister.namespace("n")):
            content = json.loads(narrowed.json())
            versions = {it["metadata"]["resourceVersion"] for it in content["items"]}
            assert len(content["items"]) == KEYS
            assert len(versions) == 1
            # A watch from the version of the list misses nothing.
            assert int(content["metadata"]["resourceVersion"]) <= int(versions.pop())

    with reading_in_threads(read, THREADS):
        for version in range(1, ROUNDS):
            indexer.replace(generation(version), str(version))


def test_assertion_in_a_reader_thread_fails_the_test() -> None:
    indexer = Indexer[Thing]()

    def read() -> None:
        assert len(indexer) == 0

    reading = reading_in_threads(read, 2)
    reading.__enter__()
    indexer.add(Thing("a"))
    with pytest.raises(AssertionError):
        reading.__exit__(None, None, None)
