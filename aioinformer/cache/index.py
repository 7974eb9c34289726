"""Index functions, and an index: which objects have which value.

An index function is called once for each object, when it arrives. What it answered is
kept, so that it is never called for an old object again. (Nothing is kept for those by
namespace and by label: they find it in the key, and in the object, at no cost.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from operator import methodcaller
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import msgspec

from aioinformer._user_code import user_errors
from aioinformer.errors import OptionsError
from aioinformer.model.callables import check_plain
from aioinformer.model.paths import Path, path_reader

if TYPE_CHECKING:
    from aioinformer.model.objects import KubeObject

__all__ = [
    "NAMESPACE_INDEX",
    "Index",
    "IndexFunction",
    "check_index_function",
    "index_by",
    "index_by_label",
    "index_by_owner",
]

T = TypeVar("T")

IndexFunction = Callable[[T], Iterable[str]]
"""Answers the values under which an object is found: none, one or several strings.

It is called in the middle of a write, and must not change the store itself.
"""

NAMESPACE_INDEX = "namespace"
"""The name of the index by namespace, which every informer has."""


def index_by(path: Path) -> IndexFunction[KubeObject]:
    """An index function that reads one path, without decoding the rest of the object.

    Args:
        path: As for `KubeObject.at`, such as `"spec.nodeName"`. A string is one value,
            an array of strings several; numbers and booleans are written as in JSON.
            Absent, null, and objects are no value. A path leads to one array, not
            through its items: for these write a function, as below.

    Raises:
        OptionsError: It is not a path.

    Example::

        informer.add_indexers({"node": index_by("spec.nodeName")})
        informer.indexer.by_index("node", "node-7")

        def images(pod: KubeObject) -> list[str]:
            return [it["image"] for it in pod.at("spec.containers", ())]
    """
    return _ByPath(path)


def index_by_label(name: str) -> IndexFunction[KubeObject]:
    """An index function by the value of one label; objects without it have no value.

    Example::

        informer.add_indexers({"app": index_by_label("app.kubernetes.io/name")})
    """
    return _ByLabel(name)


def index_by_owner(*, controller: bool = False) -> IndexFunction[KubeObject]:
    """An index function by the uids of the owner references.

    Args:
        controller: Only that of the one owner that controls the object.

    Example::

        informer.add_indexers({"owner": index_by_owner()})
        informer.indexer.by_index("owner", replica_set.uid)
    """
    return _ByOwner(controller)


def check_index_function(name: object, function: object) -> None:
    """Refuse what cannot be an index, before any object is entered.

    Raises:
        OptionsError: The name is no string, or the function cannot be called or is a
            coroutine function or an async generator: objects are entered without
            waiting.
    """
    if not isinstance(name, str):
        raise OptionsError(f"the name of an index must be a string: {name!r}")

    check_plain(function, f"the function of index {name!r}", may_yield=True)


class _ByPath:
    """Equal to another one of the same path: both may be asked for as one index."""

    __slots__ = ("_path", "_read")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = path_reader(path)

    def __call__(self, obj: KubeObject) -> Iterable[str]:
        value = self._read(obj.raw)
        if type(value) is str:
            return (value,)

        return () if value is None else _texts(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByPath) and self._path == other._path

    def __hash__(self) -> int:
        return hash(self._path)

    def __repr__(self) -> str:
        return f"index_by({self._path!r})"


@dataclass(frozen=True, slots=True)
class _ByLabel:
    name: str

    recomputable: ClassVar = True
    """Cheaper to call again than to remember its answer."""

    def __call__(self, obj: KubeObject) -> Iterable[str]:
        value = obj.label_set.get(self.name)
        return () if value is None else (value,)


class _Owner(msgspec.Struct, gc=False):
    uid: str | None = None
    controller: bool | None = None


class _Owned(msgspec.Struct, gc=False, rename="camel"):
    owner_references: list[_Owner] | None = None


class _OwnedObject(msgspec.Struct, gc=False):
    metadata: _Owned | None = None


_owned = msgspec.json.Decoder(_OwnedObject)


@dataclass(frozen=True, slots=True)
class _ByOwner:
    controller: bool

    def __call__(self, obj: KubeObject) -> Iterable[str]:
        metadata = _owned.decode(obj.raw).metadata
        owners = (metadata and metadata.owner_references) or ()
        wanted = (it for it in owners if it.controller or not self.controller)
        return [it.uid for it in wanted if it.uid]


@dataclass(frozen=True, slots=True)
class _ByNamespace:
    recomputable: ClassVar = True
    """Cheaper to call again than to remember its answer."""

    @staticmethod
    def of_key(key: str) -> str:
        """The answer, which never changes while the key is there.

        Only for stores whose keys are `namespace/name`.
        """
        slash = key.find("/")
        return key[:slash] if slash > 0 else ""

    def __call__(self, obj: KubeObject) -> Iterable[str]:
        return (obj.namespace,)


by_namespace: IndexFunction[KubeObject] = _ByNamespace()


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]

    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]

    if isinstance(value, dict) or value is None:
        return []

    return [msgspec.json.encode(value).decode()]


Packed = str | bytes | None
"""The values of one object: none, one as itself, several as a sorted JSON array. Nothing
that the garbage collector tracks, as there is one for each object."""

_several = msgspec.json.Decoder(list[str])
_ITEMS = methodcaller("items")


class Index(Generic[T]):
    """The objects of a store by the values of one index function.

    Not tied to a store: the owner says what comes, changes and goes. Every method is
    synchronous, and raises what the index function raises before anything has changed.
    """

    __slots__ = ("_function", "_of_key", "_recompute", "_values", "buckets")

    def __init__(self, function: IndexFunction[T]) -> None:
        self._function = function
        self._recompute = getattr(function, "recomputable", False)
        # Makes the one value of a key, where that is enough to know.
        self._of_key: Callable[[str], str] | None = getattr(function, "of_key", None)

        # Invariant: key in buckets[v]  <=>  v is among the values of that object.
        # No bucket is empty.
        self.buckets: dict[str, dict[str, T]] = {}

        # The values of each object that has any; unused if they are recomputed.
        self._values: dict[str, str | bytes] = {}

    @property
    def function(self) -> IndexFunction[T]:
        """The index function."""
        return self._function

    def empty_copy(self) -> Index[T]:
        """Another index of the same function, without objects."""
        return Index(self._function)

    def put(self, key: str, obj: T, old: T | None, asked: T | None = None) -> None:
        """Enter `obj`, in the place of `old` if the key was there already.

        Args:
            key: Of the object.
            obj: What is entered.
            old: What was there.
            asked: What the index function is asked about: the same object, if that
                costs less to read.
        """
        of_key = self._of_key
        if of_key is not None:  # so that the old one has no other values
            self._enter(of_key(key), key, obj)
        else:
            values = self._function(obj if asked is None else asked)
            self.put_values(key, obj, _pack(values), old)

    def put_values(self, key: str, obj: T, packed: Packed, old: T | None) -> None:
        """Enter `obj` under values that are known already."""
        before = None if old is None else self.values_of(key, old)
        if type(packed) is str:
            self._enter(packed, key, obj)
        elif packed is not None:
            for value in _unpack(packed):
                self._enter(value, key, obj)

        if before is not None and before != packed:
            # Last, so that a reader in a thread misses it under no value that stays.
            self._leave(key, set(_unpack(before)).difference(_unpack(packed)))

        if not self._recompute:
            if packed is not None:
                self._values[key] = packed
            elif before is not None:
                del self._values[key]

    def remove(self, key: str, old: T) -> None:
        """Take the object out."""
        self._leave(key, _unpack(self.values_of(key, old)))
        self._values.pop(key, None)

    def values_of(self, key: str, obj: T) -> Packed:
        """The values of an object that was put in; None if its function failed then."""
        if self._of_key is not None:
            return self._of_key(key)

        if not self._recompute:
            return self._values.get(key)

        try:
            return _pack(self._function(obj))
        except user_errors():  # as it did then, when it was reported
            return None

    def find(self, obj: T) -> list[T]:
        """The objects that share a value with `obj`, each once."""
        buckets = filter(None, map(self.buckets.get, self.answers(obj)))

        # One call, so that a thread that reads sees no change between two buckets.
        found: dict[str, T] = dict(chain.from_iterable(map(_ITEMS, buckets)))
        return list(found.values())

    def answers(self, obj: T) -> Iterable[str]:
        """What the index function answers for an object, each value once, sorted."""
        return _unpack(_pack(self._function(obj)))

    def _enter(self, value: str, key: str, obj: T) -> None:
        bucket = self.buckets.get(value)
        if bucket is None:
            self.buckets[value] = {key: obj}
        else:
            bucket[key] = obj

    def _leave(self, key: str, values: Iterable[str]) -> None:
        for value in values:
            bucket = self.buckets.get(value)
            if bucket is not None:
                bucket.pop(key, None)
                if not bucket:
                    del self.buckets[value]


def _pack(values: Iterable[str]) -> Packed:
    """Sort, without repetitions; refuses what is not a string."""
    if isinstance(values, str):
        # A string is a sequence of strings too: without this, "abc" would be three.
        return values

    if type(values) is tuple and len(values) == 1 and isinstance(values[0], str):
        return values[0]

    unique = sorted(set(values))
    for value in unique:
        if not isinstance(value, str):
            raise TypeError(f"an index value must be a string, not {value!r}")

    if len(unique) > 1:
        return msgspec.json.encode(unique, enc_hook=str.__str__)  # of a subclass

    return unique[0] if unique else None


def _unpack(packed: Packed) -> Iterable[str]:
    if packed is None:
        return ()

    return _several.decode(packed) if isinstance(packed, bytes) else (packed,)
