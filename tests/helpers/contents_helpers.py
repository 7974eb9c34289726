"""Stores in memory and on disk, for tests of what both promise."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from aioinformer.cache import NAMESPACE_INDEX, Indexer, index_by, index_by_label
from aioinformer.cache.disk.contents import DiskContents
from aioinformer.cache.disk.directory import safe_directory
from aioinformer.cache.disk.environment import Environment
from aioinformer.cache.disk.records import Records
from aioinformer.cache.index import by_namespace
from aioinformer.model import KubeObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from aioinformer.cache import IndexFunction
    from aioinformer.errors import HandlerError

Kind = Literal["memory", "disk"]

KINDS: tuple[Kind, ...] = ("memory", "disk")


def made(
    key: str, version: int | str = 1, *, node: str = "", **labels: str
) -> KubeObject:
    """Make an object; its uid follows from its key."""
    namespace, slash, name = key.rpartition("/")
    metadata: dict[str, Any] = {"name": name, "uid": f"uid of {key}"}
    metadata |= {"resourceVersion": str(version), "labels": labels}
    if slash:
        metadata["namespace"] = namespace

    return KubeObject.of({"metadata": metadata, "spec": {"nodeName": node}})


def by_owner(obj: KubeObject) -> Iterable[str]:
    """Index by a label of several names; fail for the owner "bad"."""
    owners = obj.labels.get("owner", "").split(".")
    if "bad" in owners:
        raise ZeroDivisionError(obj.key)

    return owners


INDEXES: Mapping[str, IndexFunction[KubeObject]] = {
    NAMESPACE_INDEX: by_namespace,
    "node": index_by("spec.nodeName"),
    "app": index_by_label("app"),
    "owner": by_owner,
}


def stored_in(
    env: Environment | None,
    indexes: Mapping[str, IndexFunction[KubeObject]] = INDEXES,
    on_error: Callable[[HandlerError], None] | None = None,
) -> Indexer[KubeObject]:
    """Make an indexer of a store on disk, or in memory for None."""
    indexer = Indexer(indexes, key_func=attrgetter("key"), on_error=on_error)
    if env is not None:
        use_disk(indexer, env)

    return indexer


def use_disk(indexer: Indexer[KubeObject], env: Environment) -> None:
    """Make an indexer read and write a store on disk."""
    indexer.use(
        DiskContents(env, Records(env), indexer.indexers, indexer.report, writer=True)
    )


def opened(kind: Kind, root: Path) -> Environment | None:
    """Open the environment of a store on disk; None for one in memory."""
    return Environment.open(safe_directory(root, "store")) if kind == "disk" else None


def index_of(indexer: Indexer[KubeObject], name: str) -> dict[str, set[str]]:
    """Return the keys in an index by value."""
    values = indexer.list_index_func_values(name)
    return {value: set(indexer.index_keys(name, value)) for value in values}
