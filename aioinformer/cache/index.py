"""Index functions, and an index: the objects that have a value.

An index function is called once for each object, when it is stored. Its result is kept,
so the function is never called for an old object. (The indexes by namespace and by
label keep nothing, as reading the key and the labels costs nothing.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import msgspec

from aioinformer._user_code import user_errors
from aioinformer.cache.split_dict import divided, entries_of, parts_of
from aioinformer.errors import OptionsError
from aioinformer.model.callables import check_plain
from aioinformer.model.paths import Path, path_reader
from aioinformer.model.validation import shown

if TYPE_CHECKING:
    from aioinformer.model.objects import KubeObject

__all__ = [
    "NAMESPACE_INDEX",
    "Index",
    "IndexFunction",
    "Packed",
    "check_index_function",
    "index_by",
    "index_by_label",
    "index_by_owner",
    "pack_values",
    "unpack_values",
]

T = TypeVar("T")

IndexFunction = Callable[[T], Iterable[str]]
"""Function that returns the index values of an object: none, one or several strings.

It is called in the middle of a write, and must not change the store itself.
"""

NAMESPACE_INDEX = "namespace"
"""Name of the index by namespace, which every informer has."""


def index_by(path: Path) -> IndexFunction[KubeObject]:
    """Return an index function that reads one path, without decoding the whole object.

    Args:
        path: Path as in `KubeObject.at`, such as `"spec.nodeName"`. A string is one
            value, an array of strings several. Numbers and booleans are written as in
            JSON. Absent fields, nulls and objects have no value. A path cannot lead
            through the items of an array: write a function for that, as below.

    Raises:
        OptionsError: If the path is malformed.

    Example::

        informer.add_indexers({"node": index_by("spec.nodeName")})
        informer.indexer.by_index("node", "node-7")

        def images(pod: KubeObject) -> list[str]:
            return [it["image"] for it in pod.at("spec.containers", ())]
    """
    return _ByPath(path)


def index_by_label(name: str) -> IndexFunction[KubeObject]:
    """Return an index function by the value of one label, for objects that have it.

    Example::

        informer.add_indexers({"app": index_by_label("app.kubernetes.io/name")})
    """
    return _ByLabel(name)


def index_by_owner(*, controller: bool = False) -> IndexFunction[KubeObject]:
    """Return an index function by the uids of the owner references.

    Args:
        controller: True for the uid of the controlling owner only.

    Example::

        informer.add_indexers({"owner": index_by_owner()})
        informer.indexer.by_index("owner", replica_set.uid)
    """
    return _ByOwner(controller)


def check_index_function(name: object, function: object) -> None:
    """Check an index before any object is indexed.

    Raises:
        OptionsError: If the name is not a string, or the function is not callable, a
            coroutine function or an async generator: objects are indexed without
            waiting.
    """
    if not isinstance(name, str):
        raise OptionsError(f"index name must be a string, not {name!r}")

    if isinstance(function, str):
        raise OptionsError(
            f"the function of index {name!r} must not be a text: write "
            f"index_by({function!r})"
        )

    check_plain(function, f"the function of index {name!r}", may_yield=True)


class _ByPath:
    """Index function by a path. Two with the same path are equal: one index."""

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
    """True, because calling it again is cheaper than caching its result."""

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
    """True, because calling it again is cheaper than caching its result."""

    @staticmethod
    def of_key(key: str) -> str:
        """Return the value for a key, which never changes.

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
"""Index values of one object: none, one as itself, several as a sorted JSON array.

The garbage collector tracks none of these, and there is one for each object.
"""

_several = msgspec.json.Decoder(list[str])


class Index(Generic[T]):
    """Objects of a store by the values of one index function.

    The store that owns it reports each change. Every method is synchronous, and raises
    errors of the index function before anything has changed.
    """

    __slots__ = ("_function", "_of_key", "_recompute", "_values", "buckets")

    def __init__(self, function: IndexFunction[T]) -> None:
        self._function = function
        self._recompute = getattr(function, "recomputable", False)
        # Returns the value for a key, if the key determines it.
        self._of_key: Callable[[str], str] | None = getattr(function, "of_key", None)

        # Invariant: key in buckets[v]  <=>  v is among the values of that object.
        # No bucket is empty.
        self.buckets: MutableMapping[str, MutableMapping[str, T]] = {}

        # The values of each object that has any; unused if they are recomputed.
        self._values: MutableMapping[str, str | bytes] = {}

    @property
    def function(self) -> IndexFunction[T]:
        """Index function."""
        return self._function

    def empty_copy(self) -> Index[T]:
        """Return an index of the same function, without objects."""
        return Index(self._function)

    def put(self, key: str, obj: T, old: T | None, equal: T | None = None) -> None:
        """Index an object, in place of an old one with the same key.

        Args:
            key: Key of the object.
            obj: Object to index.
            old: Object that was indexed under the key, or None.
            equal: Equal object that is cheaper to read, for the index function; None
                for `obj`.
        """
        of_key = self._of_key
        if of_key is not None:  # the old object has the same value
            value = of_key(key)
            bucket = self.buckets.get(value)
            if bucket is None:
                self.buckets[value] = {key: obj}
            else:
                bucket[key] = obj
        else:
            values = self._function(obj if equal is None else equal)
            self.put_values(key, obj, pack_values(values), old)

    def put_values(self, key: str, obj: T, packed: Packed, old: T | None) -> None:
        """Index an object under known values."""
        before = None if old is None else self.values_of(key, old)
        if type(packed) is str:
            self._enter(packed, key, obj)
        elif packed is not None:
            for value in unpack_values(packed):
                self._enter(value, key, obj)

        if before is not None and before != packed:
            # Last: a reader in another thread must find it under each value that stays.
            self._leave(
                key, set(unpack_values(before)).difference(unpack_values(packed))
            )

        if not self._recompute:
            if packed is not None:
                self._values[key] = packed
            elif before is not None:
                del self._values[key]

    def remove(self, key: str, old: T) -> None:
        """Remove an object."""
        self._leave(key, unpack_values(self.values_of(key, old)))
        self._values.pop(key, None)

    def values_of(self, key: str, obj: T) -> Packed:
        """Return the values of an indexed object; None if its index function failed."""
        if self._of_key is not None:
            return self._of_key(key)

        if not self._recompute:
            return self._values.get(key)

        try:
            return pack_values(self._function(obj))
        except user_errors():  # reported when the object was indexed
            return None

    def values(self) -> list[str]:
        """Return all values, in a new list."""
        return list(self.buckets)

    def keys_of(self, value: str) -> list[str]:
        """Return the keys of the objects that have a value, in a new list."""
        return list(self.buckets.get(value, ()))

    def objects_of(self, value: str) -> list[T]:
        """Return the objects that have a value, in a new list."""
        bucket = self.buckets.get(value)
        return [] if bucket is None else list(bucket.values())

    def find(self, obj: T) -> list[T]:
        """Return the objects that share a value with `obj`, each once."""
        values = unpack_values(pack_values(self._function(obj)))
        return list(entries_of(self.buckets, values).values())

    def divide(self, key: str, obj: T) -> bool:
        """Divide one map that has become large, see `SplitDict`; return False if none has.

        Args:
            key: Key of an object. Of the buckets, only those of its values are looked at.
            obj: The object.
        """
        buckets, values = self.buckets, self._values
        self.buckets = divided(buckets)
        if self.buckets is not buckets:
            return True

        self._values = divided(values)
        if self._values is not values:
            return True

        for value in unpack_values(self.values_of(key, obj)):
            bucket = buckets.get(value)
            if bucket is not None and (parts := divided(bucket)) is not bucket:
                buckets[value] = parts
                return True

        return False

    def maps(self) -> list[MutableMapping[str, Any]]:
        """Return the maps of the index, in a new list; those in parts as their parts."""
        return [*parts_of(self.buckets), *parts_of(self._values)]

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


def pack_values(values: Iterable[str]) -> Packed:
    """Sort values and remove repetitions.

    Raises:
        TypeError: If a value is not a string.
    """
    if isinstance(values, str):
        # A string is a sequence of strings, too: "abc" would be three values.
        return values

    if type(values) is tuple and len(values) == 1 and isinstance(values[0], str):
        return values[0]

    unique = sorted(set(values))
    for value in unique:
        if not isinstance(value, str):
            raise TypeError(f"an index value must be a string, not {shown(value)}")

    if len(unique) > 1:
        return msgspec.json.encode(unique, enc_hook=str.__str__)  # subclasses of str

    return unique[0] if unique else None


def unpack_values(packed: Packed) -> Iterable[str]:
    """Return the index values of one object, sorted."""
    if packed is None:
        return ()

    return _several.decode(packed) if isinstance(packed, bytes) else (packed,)
