"""`DiskIndex`: the objects on disk that have a value."""

from __future__ import annotations

from hashlib import sha256
from itertools import islice, takewhile
from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol

from aioinformer._user_code import user_errors
from aioinformer.cache.disk.records import LONGEST_NAME, key_of, name_of
from aioinformer.cache.index import by_namespace, pack_values, unpack_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioinformer.cache.disk.contents import DiskContents
    from aioinformer.cache.index import Index, IndexFunction, Packed
    from aioinformer.model.objects import KubeObject

__all__ = [
    "DiskIndex",
    "Namespaces",
    "PrivateEntries",
    "StoredEntries",
    "entry_of",
    "number_of",
]

LONGEST_VALUE: Final = 400
"""Size of the longest value that is a key in LMDB as it is."""

_NUMBER: Final = Struct(">I")


def entry_of(number: int, value: str) -> bytes:
    """Return the key in LMDB of a value of an index."""
    text = value.encode()
    if len(text) > LONGEST_VALUE:
        text = text[:LONGEST_VALUE] + sha256(text).digest()

    return _NUMBER.pack(number) + text


def number_of(entry: bytes) -> int:
    """Return the number of the index that an entry belongs to."""
    (number,) = _NUMBER.unpack_from(entry)
    return int(number)


class Entries(Protocol):
    """Names in LMDB of objects, by the values of one index. Read in a transaction."""

    exact: bool
    """False if an object may have changed since it was indexed."""

    def names(self, value: str) -> list[bytes]:
        """Return the names of the objects that have a value."""

    def values(self) -> list[str]:
        """Return all values."""


class DiskIndex:
    """Index of a `DiskContents`. Fulfils the protocol `IndexReads`.

    Each read is a transaction of its own.

    Args:
        contents: Contents that it belongs to.
        function: Index function.
        entries: Function that returns its entries, called for each read.
        number: Number of the index whose values are in the records, or 0.
    """

    def __init__(
        self,
        contents: DiskContents,
        function: IndexFunction[KubeObject],
        entries: Callable[[], Entries],
        number: int = 0,
    ) -> None:
        self._contents = contents
        self._function = function
        self._entries = entries
        self._number = number

    @property
    def function(self) -> IndexFunction[KubeObject]:
        """Index function."""
        return self._function

    def values_of(self, key: str, obj: KubeObject) -> Packed:
        """Return the values of an indexed object; None if its index function failed."""
        if self._number:
            return self._contents.values_of(key).get(self._number)

        try:
            return pack_values(self._function(obj))
        except user_errors():  # reported when the object was indexed
            return None

    def find(self, obj: KubeObject) -> list[KubeObject]:
        """Return the objects that share a value with `obj`, each once."""
        values = unpack_values(pack_values(self._function(obj)))
        with self._contents.reading():
            found = {it.key: it for value in values for it in self.objects_of(value)}

        return list(found.values())

    def values(self) -> list[str]:
        """Return all values, in a new list."""
        with self._contents.reading():
            return self._entries().values()

    def keys_of(self, value: str) -> list[str]:
        """Return the keys of the objects that have a value, in a new list."""
        with self._contents.reading():
            entries = self._entries()
            if entries.exact:
                return self._contents.keys_of(entries.names(value))

        return [obj.key for obj in self.objects_of(value)]

    def objects_of(self, value: str, namespace: str | None = None) -> list[KubeObject]:
        """Return the objects that have a value, in a new list.

        Args:
            value: Value.
            namespace: Namespace of the objects; None for all.
        """
        prefix = prefix_of(namespace) if namespace else b""
        with self._contents.reading():
            entries = self._entries()
            names = entries.names(value)
            if prefix:
                names = [name for name in names if name.startswith(prefix)]

            found = [obj for _, obj in self._contents.of_names(names)]

        if not entries.exact:
            found = [obj for obj in found if self._has(obj, value)]

        if namespace is not None and not prefix:
            found = [obj for obj in found if obj.namespace == namespace]

        return found

    def _has(self, obj: KubeObject, value: str) -> bool:
        try:
            return value in unpack_values(pack_values(self._function(obj)))
        except user_errors():  # reported when the object was indexed
            return False


class StoredEntries:
    """Entries of an index that the writer keeps.

    Args:
        contents: Contents of the index.
        number: Number of the index.
    """

    exact = True

    def __init__(self, contents: DiskContents, number: int) -> None:
        self._contents = contents
        self._number = number

    def names(self, value: str) -> list[bytes]:
        """Return the names of the objects that have a value."""
        with self._contents.generation.entries() as cursor:
            if not cursor.set_key(_entry(self._number, value)):
                return []

            return list(cursor.iternext_dup())

    def count(self, value: str) -> int:
        """Return their number."""
        with self._contents.generation.entries() as cursor:
            found = cursor.set_key(_entry(self._number, value))
            return cursor.count() if found else 0

    def values(self) -> list[str]:
        """Return all values."""
        prefix = _NUMBER.pack(self._number)
        with self._contents.generation.entries() as cursor:
            if not cursor.set_range(prefix):
                return []

            found = takewhile(
                lambda it: it[0].startswith(prefix), cursor.iternext_nodup(values=True)
            )
            return [self._value(*it) for it in found]

    def _value(self, entry: bytes, name: bytes) -> str:
        if len(entry) <= _NUMBER.size + LONGEST_VALUE:
            return str(entry[_NUMBER.size :], "utf-8")

        # Of a long value, the entry has only the beginning.
        values = self._contents.generation.values(name).get(self._number)
        for value in unpack_values(values):
            if _entry(self._number, value) == entry:
                return value

        why = f"object {name!r} does not have the value"
        raise self._contents.damaged("index", why)


def _entry(number: int, value: str) -> bytes:
    try:
        return entry_of(number, value)
    except UnicodeEncodeError:  # no stored value is like this
        return _NUMBER.pack(0)


class Namespaces:
    """Entries of the index by namespace: ranges of keys, nothing is stored.

    Args:
        contents: Contents of the index.
    """

    exact = True

    def __init__(self, contents: DiskContents) -> None:
        self._contents = contents

    def names(self, value: str, limit: int | None = None) -> list[bytes]:
        """Return the names of the objects in a namespace, or the first of them."""
        return list(islice(self._iterate(value), limit))

    def _iterate(self, value: str) -> Iterator[bytes]:
        with self._contents.generation.names() as cursor:
            prefix = prefix_of(value)
            if prefix:
                if cursor.set_range(prefix):
                    yield from takewhile(
                        lambda it: it.startswith(prefix), cursor.iternext(values=False)
                    )
            elif cursor.first():
                for name, record in cursor.iternext():
                    if _NAMESPACE(key_of(name, record)) == value:
                        yield name

    def values(self) -> list[str]:
        """Return all namespaces."""
        found: dict[str, None] = {}
        with self._contents.generation.names() as cursor:
            more = cursor.first()
            while more:
                name = cursor.key()
                namespace = _NAMESPACE(key_of(name, cursor.value()))
                found[namespace] = None
                prefix = prefix_of(namespace)
                if prefix and name.startswith(prefix):
                    more = cursor.set_range(prefix[:-1] + b"0")  # the byte after "/"
                else:
                    more = cursor.next()

        return list(found)


_NAMESPACE: Final[Callable[[str], str]] = by_namespace.of_key  # type: ignore[attr-defined]


def prefix_of(namespace: str) -> bytes:
    """Return the prefix of all names in a namespace; empty if they have none."""
    prefix = f"{namespace}/".encode("utf-8", "surrogatepass") if namespace else b""
    return prefix if len(prefix) <= LONGEST_NAME else b""


class PrivateEntries:
    """Entries of an index that one process keeps in memory, as keys only.

    Args:
        index: Index whose objects are the keys.
    """

    exact = False

    def __init__(self, index: Index[str]) -> None:
        self._index = index

    def names(self, value: str) -> list[bytes]:
        """Return the names of the objects that have a value."""
        return list(map(name_of, self._index.keys_of(value)))

    def values(self) -> list[str]:
        """Return all values."""
        return self._index.values()
