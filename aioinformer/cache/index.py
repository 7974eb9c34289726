"""Index functions, and an index: which objects have which value.

An index function is called once for each object, when it arrives. What it answered is
kept, so that it is never called for an old object again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from aioinformer.model.paths import Path, path_reader

if TYPE_CHECKING:
    from aioinformer.model.objects import KubeObject

__all__ = ["NAMESPACE_INDEX", "Index", "IndexFunction", "index_by", "index_by_label"]

T = TypeVar("T")

IndexFunction = Callable[[T], Iterable[str]]
"""Answers the values under which an object is found: none, one or several strings."""

NAMESPACE_INDEX = "namespace"
"""The name of the index by namespace, which every informer has."""


def index_by(path: Path) -> IndexFunction[KubeObject]:
    """An index function that reads one path, without decoding the rest of the object.

    Args:
        path: As for `KubeObject.at`, such as `"spec.nodeName"`. A string is one value,
            an array of strings several; numbers and booleans are written as in JSON.
            Absent, null, and objects are no value.

    Raises:
        OptionsError: It is not a path.

    Example::

        informer.add_indexers({"node": index_by("spec.nodeName")})
        informer.indexer.by_index("node", "node-7")
    """
    read = path_reader(path)

    def values(obj: KubeObject) -> Iterable[str]:
        value = read(obj.raw)
        if type(value) is str:
            return (value,)

        return [] if value is None else _texts(value)

    return values


def index_by_label(name: str) -> IndexFunction[KubeObject]:
    """An index function by the value of one label; objects without it have no value.

    Example::

        informer.add_indexers({"app": index_by_label("app.kubernetes.io/name")})
    """
    return _recomputable(lambda obj: _label(obj, name))


def _label(obj: KubeObject, name: str) -> Iterable[str]:
    value = obj.label_set.get(name)
    return () if value is None else (value,)


def _recomputable(function: IndexFunction[KubeObject]) -> IndexFunction[KubeObject]:
    """Mark an index function as cheaper to call again than to remember its answer."""
    function.recomputable = True  # type: ignore[attr-defined]
    return function


by_namespace: IndexFunction[KubeObject] = _recomputable(lambda obj: (obj.namespace,))


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]

    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]

    if isinstance(value, dict) or value is None:
        return []

    return [msgspec.json.encode(value).decode()]


class _More(msgspec.Struct, gc=False, frozen=True):
    """Several values of one object, as a chain the garbage collector does not track."""

    value: str
    next: str | _More


class Index(Generic[T]):
    """The objects of a store by the values of one index function.

    Not tied to a store: the owner says what comes, changes and goes. Every method is
    synchronous, and raises what the index function raises before anything has changed.
    """

    __slots__ = ("_function", "_recompute", "_values", "buckets")

    def __init__(self, function: IndexFunction[T]) -> None:
        self._function = function
        self._recompute = getattr(function, "recomputable", False)

        # Invariant: key in buckets[v]  <=>  v is among the values of that object.
        # No bucket is empty.
        self.buckets: dict[str, dict[str, T]] = {}

        # The values of each object that has any; unused if they are recomputed.
        self._values: dict[str, str | _More] = {}

    @property
    def function(self) -> IndexFunction[T]:
        """The index function."""
        return self._function

    def empty_copy(self) -> Index[T]:
        """Another index of the same function, without objects."""
        return Index(self._function)

    def put(self, key: str, obj: T, old: T | None) -> None:
        """Enter `obj`, in the place of `old` if the key was there already."""
        self.put_values(key, obj, _pack(self._function(obj)), old)

    def put_values(
        self, key: str, obj: T, packed: str | _More | None, old: T | None
    ) -> None:
        """Enter `obj` under values that are known already."""
        if old is not None:
            before = self.values_of(key, old)
            if before != packed:
                self._leave(key, before)

        if type(packed) is str:
            self._enter(packed, key, obj)
        elif packed is not None:
            for value in _unpack(packed):
                self._enter(value, key, obj)

        if not self._recompute:
            if packed is not None:
                self._values[key] = packed
            elif old is not None:
                self._values.pop(key, None)

    def remove(self, key: str, old: T) -> None:
        """Take the object out."""
        self._leave(key, self.values_of(key, old))
        self._values.pop(key, None)

    def values_of(self, key: str, obj: T) -> str | _More | None:
        """The values of an object that is in the index, packed."""
        return _pack(self._function(obj)) if self._recompute else self._values.get(key)

    def _enter(self, value: str, key: str, obj: T) -> None:
        bucket = self.buckets.get(value)
        if bucket is None:
            self.buckets[value] = {key: obj}
        else:
            bucket[key] = obj

    def _leave(self, key: str, packed: str | _More | None) -> None:
        for value in _unpack(packed):
            bucket = self.buckets[value]
            del bucket[key]
            if not bucket:
                del self.buckets[value]


def _pack(values: Iterable[str]) -> str | _More | None:
    """One value as itself, several as a sorted chain without repetitions."""
    if isinstance(values, str):
        # A string is a sequence of strings too: without this, "abc" would be three.
        return values

    if type(values) is tuple and len(values) == 1:
        only: str = values[0]
        return only

    chain: str | _More | None = None
    for value in sorted(set(values), reverse=True):
        chain = value if chain is None else _More(value, chain)

    return chain


def _unpack(packed: str | _More | None) -> Iterable[str]:
    while isinstance(packed, _More):
        yield packed.value
        packed = packed.next

    if packed is not None:
        yield packed
