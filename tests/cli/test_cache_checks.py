"""Checks of `aioinformer cache verify`, beside a program that writes."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

import pytest

from aioinformer import KubeObject
from aioinformer.cache.disk.contents import DiskContents
from aioinformer.cache.disk.environment import Environment
from aioinformer.cache.disk.indexes import entry_of
from aioinformer.cache.disk.records import Records
from aioinformer.cli.cache_checks import problems
from aioinformer.informer.cached.journal import Journal
from aioinformer.informer.notifications import Added

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COUNT = 450
CHUNK = Struct(">I")


def pod(number: int, node: int = 0) -> KubeObject:
    metadata = {
        "namespace": "shop",
        "name": f"web-{number:04}",
        "uid": f"u{number}",
        "resourceVersion": f"{number + 1}",
        "labels": {"app": f"web-{number % 7}"},
    }
    return KubeObject.of({"metadata": metadata, "spec": {"nodeName": f"node-{node}"}})


class Store:
    """Store with pods of three slices, in an index and a journal."""

    def __init__(self, path: Path) -> None:
        self.env = Environment.open(path)
        self.records = Records(self.env)
        self.journal = Journal(self.env, self.records)
        self.contents = DiskContents(
            self.env,
            self.records,
            {"node": lambda obj: [obj.at("spec.nodeName")]},
            lambda failure: None,
            writer=True,
        )
        self.generation = str(self.env.header.generation)
        with self.env.write(), self.contents.step():
            for number in range(COUNT):
                self.contents.put(f"shop/web-{number:04}", pod(number, number % 5))

            self.journal.append(Added(pod(number)) for number in range(COUNT))
            self.contents.resource_version = "1000"

    def problems(self) -> Iterator[str]:
        return problems(self.env, self.records)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    yield store
    store.env.close()


def test_store_of_several_slices_has_no_problem(store: Store) -> None:
    assert list(store.problems()) == []


def test_entry_without_its_object_is_a_problem(store: Store) -> None:
    entries = store.env.database(f"x{store.generation}", dupsort=True)
    (number, _) = store.env.header.indexes["node"]
    with store.env.write() as txn:
        txn.put(entry_of(number, "node-9"), b"shop/gone", db=entries)
        txn.put(entry_of(number, "node-9"), b"shop/web-0001", db=entries)
        txn.put(entry_of(number + 7, "node-1"), b"shop/web-0001", db=entries)

    assert list(store.problems()) == [
        "index node: shop/gone does not have a value of it",
        "index node: shop/web-0001 does not have a value of it",
    ]


def test_label_column_of_a_missing_object_is_a_problem(store: Store) -> None:
    columns = store.env.database(f"c{store.generation}")
    with store.env.write() as txn:
        txn.put(CHUNK.pack(900), b'{}\n"shop/gone"\t"shop/web-0001"', db=columns)

    assert list(store.problems()) == [
        "label columns: shop/gone is not stored",
        "label columns: shop/web-0001 is not stored",
    ]


def test_changes_between_two_slices_are_no_problem(store: Store) -> None:
    """No snapshot is kept between them, either: the file would grow."""
    key = "shop/web-0000"
    columns = store.env.database(f"c{store.generation}")
    with store.env.write() as txn:
        txn.put(CHUNK.pack(1), b"", db=columns)

    found = []
    for number, line in enumerate(store.problems()):
        assert store.env.snapshots() == {}
        found.append(line)
        with store.env.write(), store.contents.step():
            store.contents.put(key, pod(0, number))
            store.contents.remove(f"shop/web-{COUNT - 1 - number:04}")
            store.contents.put(f"shop/web-{COUNT + number:04}", pod(COUNT + number))
            store.contents.resource_version = str(2000 + number)

    assert {it.partition(": ")[2] for it in found} == {
        "its labels are not those in the label columns"
    }
    assert 90 < len(found) <= 100
