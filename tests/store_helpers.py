"""What the tests of `Store` and `Indexer` share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

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
