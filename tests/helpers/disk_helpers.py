"""Stores on disk for tests: objects, index functions and what a store must hold."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aioinformer import json_codec
from aioinformer.cache.disk.contents import DiskContents
from aioinformer.cache.disk.environment import Environment
from aioinformer.cache.disk.records import Records
from aioinformer.cache.index import NAMESPACE_INDEX, by_namespace, index_by_label
from aioinformer.model import KubeObject, LabelSelector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from aioinformer.cache.index import IndexFunction
    from aioinformer.errors import HandlerError

    Functions = Mapping[str, IndexFunction[KubeObject]]


def thing(
    key: str,
    version: int = 1,
    labels: Mapping[str, str] | None = None,
    tags: Iterable[str] = (),
    **more: Any,
) -> KubeObject:
    """Make an object; `tags` are index values."""
    namespace, _, name = key.rpartition("/")
    metadata: dict[str, Any] = {
        "name": name,
        "uid": f"uid-of-{name}",
        "resourceVersion": str(version),
        "labels": dict(labels or {}),
    }
    if namespace:
        metadata["namespace"] = namespace

    return KubeObject.of(
        json_codec.dumps({"metadata": metadata, "tags": list(tags), **more})
    )


def by_tag(obj: KubeObject) -> Iterable[str]:
    """Index by tag; fail for the tag "bad"."""
    tags = obj.at("tags", ())
    if "bad" in tags:
        raise ZeroDivisionError(obj.key)

    return tuple(tags)


def by_version(obj: KubeObject) -> Iterable[str]:
    return [obj.resource_version]


FUNCTIONS: Functions = {
    NAMESPACE_INDEX: by_namespace,
    "tag": by_tag,
    "app": index_by_label("app"),
}


class Disk:
    """A store in a directory, with all that was opened of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(mode=0o700, exist_ok=True)
        self.env = Environment.open(path)
        self.records = Records(self.env)
        self.errors: list[HandlerError] = []

    def writer(self, functions: Functions = FUNCTIONS) -> DiskContents:
        return DiskContents(
            self.env, self.records, functions, self.errors.append, writer=True
        )

    def reader(self, functions: Functions = FUNCTIONS) -> DiskContents:
        """Return contents as another process has them, with records of its own."""
        return DiskContents(self.env, Records(self.env), functions, self.errors.append)

    def close(self) -> None:
        self.env.close()


@contextmanager
def a_disk(path: Path) -> Iterator[Disk]:
    disk = Disk(path)
    try:
        yield disk
    finally:
        disk.close()


def listed(
    writer: DiskContents, objects: Iterable[KubeObject], version: str = "1"
) -> DiskContents:
    """Replace all objects by a list."""
    replacement = writer.replacement()
    for obj in objects:
        replacement.put(obj.key, obj)

    with writer.step():
        return writer.replace_with(replacement, version)


def state(contents: DiskContents) -> dict[str, tuple[str, str, bytes, dict[str, str]]]:
    """Return everything that is known of each object, by key."""
    return {
        key: (obj.uid, obj.resource_version, obj.raw, obj.label_set)
        for key, obj in contents.objects.items()
    }


def states(objects: Iterable[KubeObject]) -> dict[str, Any]:
    """Return the same of objects in memory."""
    return {
        obj.key: (obj.uid, obj.resource_version, obj.raw, obj.label_set)
        for obj in objects
    }


def build_indexes(contents: DiskContents, functions: Mapping[str, Any]) -> None:
    """Build indexes at once."""
    building = contents.build(functions)
    for _ in building.steps():
        pass

    building.publish()
    building.close()


def buckets(contents: DiskContents, name: str) -> dict[str, set[str]]:
    """Return the keys by value of an index, read in several ways."""
    index = contents.indexes[name]
    found = {value: set(index.keys_of(value)) for value in index.values()}
    for value, keys in found.items():
        assert {obj.key for obj in index.objects_of(value)} == keys

    return found


def expected_buckets(
    objects: Iterable[KubeObject], function: Callable[[KubeObject], Iterable[str]]
) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for obj in objects:
        try:
            values = list(function(obj))
        except ZeroDivisionError:
            continue

        for value in values:
            found.setdefault(value, set()).add(obj.key)

    return found


def selected(
    contents: DiskContents, selector: str, namespace: str | None = None
) -> set[str]:
    found = contents.select(LabelSelector.parse(selector), namespace, None)
    keys = {obj.key for obj in found}
    assert len(keys) == len(found)
    return keys
