"""Read-only views of decoded JSON, and the small cache of decoded bodies.

Cached objects are shared by all readers, so nothing can be changed through a view. A
view wraps the result of a decoder. Access to a nested dict or list creates another view.

Views are subclasses of `dict` and `list`, as the JSON encoders of web frameworks
expect. A view holds plain values and wraps each one when it returns it. So every method
of the two types that would return a held value as it is must be overridden here.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, ItemsView, KeysView, Mapping, ValuesView
from contextlib import suppress
from operator import itemgetter
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    NoReturn,
    SupportsIndex,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

import msgspec

from aioinformer import json_codec
from aioinformer.errors import DecodeError

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterable, Iterator

    from aioinformer.model.compression import Codec, DifferenceCodec
    from aioinformer.model.resource import Resource

__all__ = [
    "DECODED_BODIES_KEPT",
    "DECODED_BYTES_KEPT",
    "LARGEST_DECODED_KEPT",
    "READ_ONLY",
    "DecodedBodies",
    "DifferenceContext",
    "ObjectContext",
    "ReadOnlyDict",
    "ReadOnlyList",
    "Refusal",
    "decode_json",
    "read_only",
    "refuse",
]

T = TypeVar("T")

# A decoded pod is about 30 KB and 74 objects of the garbage collector; 128 of them are
# 4 MB. A larger cache makes scans no faster and every full collection slower.
DECODED_BODIES_KEPT = 128

# In bytes of JSON. The decoded form takes about five times as much.
DECODED_BYTES_KEPT = 2 * 1024 * 1024
LARGEST_DECODED_KEPT = 128 * 1024

READ_ONLY = (
    "cached objects are shared and read-only: change a copy from .to_dict(), "
    "and write that to the server"
)


def decode_json(raw: bytes, what: str) -> Any:
    """Decode a whole JSON text.

    Args:
        raw: JSON text.
        what: Name of the text in errors.

    Raises:
        DecodeError: If it is not JSON, or nested deeper than 1024 levels (about 900 without
            orjson).
    """
    try:
        return json_codec.loads(raw)
    except json_codec.JSONDecodeError as exc:
        raise DecodeError(f"{what}: {exc}", offset=exc.pos) from exc


class DecodedBodies:
    """Cache of the bodies decoded last.

    Bounded by their number and by their bytes of JSON. Large bodies are never cached:
    each field access decodes them.

    Usable from any thread, as each step is atomic. Concurrent changes can make the
    count of bytes inexact, so bytes are recounted before anything is dropped because of
    them.
    """

    __slots__ = ("_size", "bodies")

    def __init__(self) -> None:
        # By stored bodies, with the length of their JSON. A compressed body contains
        # the number of its dictionary and is never JSON, so equal bodies mean the same
        # in any context.
        self.bodies: OrderedDict[bytes, tuple[dict[str, Any], int]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self.bodies)

    def keep(self, body: bytes, value: dict[str, Any], size: int) -> None:
        """Cache a decoded body, unless it is too large. Older ones may be dropped.

        Args:
            body: Stored bytes.
            value: Decoded body.
            size: Length of its JSON.
        """
        if size > LARGEST_DECODED_KEPT:
            return

        bodies = self.bodies
        bodies[body] = value, size
        self._size += size
        while len(bodies) > DECODED_BODIES_KEPT:
            self._size -= self._drop_oldest()

        if self._size > DECODED_BYTES_KEPT:
            self._measure()
            while self._size > DECODED_BYTES_KEPT:
                self._size -= self._drop_oldest()

    def drop_unused(self) -> None:
        """Drop the bodies that no object refers to any more."""
        bodies = list(self.bodies)
        counts = list(map(sys.getrefcount, bodies))
        for body, count in zip(bodies, counts, strict=True):
            if count <= _REFERENCES_OF_CACHE:
                self.bodies.pop(body, None)

        if len(self.bodies) < len(bodies):
            self._measure()

    def _drop_oldest(self) -> int:
        """Drop the oldest body; return its size."""
        try:
            return self.bodies.popitem(last=False)[1][1]
        except KeyError:  # another thread has dropped it
            return self._size

    def _measure(self) -> None:
        self._size = sum(map(_SIZE, list(self.bodies.values())))


_SIZE = itemgetter(1)


def _references_of_cache() -> int:
    """Count the references to a body in `drop_unused` if only the cache holds it."""
    bodies = OrderedDict([(bytes(bytearray(b"any")), None)])
    return next(map(sys.getrefcount, list(bodies)))


_REFERENCES_OF_CACHE: Final = _references_of_cache()


class ObjectContext:
    """State shared by the objects of one informer: how to read bodies, and a cache.

    It never refers to the objects themselves, as the garbage collector could not find
    such a reference cycle: it does not look into objects. A copied or unpickled context
    has an empty cache.

    Args:
        codec: Codec of compressed bodies; None if bodies are JSON.
        plain: Context of the objects of the same informer whose bodies are JSON; both
            contexts share the cache.
        resource: Resource of metadata-only objects, which their bodies do not contain;
            None for whole objects. That of `plain`, if given.
        reads: Gets the key of each object whose compressed body is read.

    Attributes:
        codec: Same as the argument. Each object refers to its codec by its context.
        resource: Same as the argument.
        decoded_bodies: Cache of the bodies decoded last.
    """

    __slots__ = ("_plain", "_reads", "codec", "decoded_bodies", "resource")

    def __init__(
        self,
        codec: Codec | None = None,
        plain: ObjectContext | None = None,
        resource: Resource | None = None,
        reads: deque[str] | None = None,
    ) -> None:
        self.codec: Codec | None = codec
        self._reads = reads
        self._plain = plain
        self.decoded_bodies: DecodedBodies = (
            DecodedBodies() if plain is None else plain.decoded_bodies
        )
        self.resource: Resource | None = resource if plain is None else plain.resource

    @property
    def plain(self) -> ObjectContext:
        """Context for objects of the same informer whose bodies are JSON."""
        return self if self._plain is None else self._plain

    def note_read(self, key: str) -> None:
        """Note that a compressed body is read, if that is wanted."""
        if self._reads is not None:
            self._reads.append(key)

    def raw(self, body: bytes, key: str) -> bytes:
        """Return the JSON of the stored body of an object. Callable from any thread.

        Raises:
            InternalError: If the compressed body is damaged.
        """
        if self.codec is None:
            return body

        self.note_read(key)
        return self.codec.read(body, f"object {key!r}")

    def decoded(self, body: bytes, key: str) -> dict[str, Any]:
        """Return the decoded form of a stored body, which is shared: never change it.

        Callable from any thread.

        Raises:
            DecodeError: If it is not a JSON object.
            InternalError: If the compressed body is damaged.
        """
        return _decoded(self, body, key)

    def __reduce__(self) -> tuple[type[ObjectContext], tuple[Any, ...]]:
        return ObjectContext, (None, None, self.resource)


class DifferenceContext(msgspec.Struct, gc=False, frozen=True, eq=False):
    """Context of one object, whose body is a `DifferenceCodec`'s difference.

    Such an object keeps the body of the state before. As each one has a context of its
    own, the garbage collector does not track these, either.

    Attributes:
        base: Compressed body of the state before.
        shared: Context of that body.
    """

    base: bytes
    shared: ObjectContext

    def __repr__(self) -> str:
        return f"<DifferenceContext base={len(self.base)} bytes>"

    @property
    def codec(self) -> DifferenceCodec:
        """Codec of the body."""
        from aioinformer.model.compression import Codec, DifferenceCodec

        codec = self.shared.codec
        assert isinstance(codec, Codec), "the state before is compressed"
        return DifferenceCodec(self.base, codec)

    @property
    def decoded_bodies(self) -> DecodedBodies:
        """Cache of the bodies decoded last."""
        return self.shared.decoded_bodies

    @property
    def plain(self) -> ObjectContext:
        """Context for objects of the same informer whose bodies are JSON."""
        return self.shared.plain

    @property
    def resource(self) -> Resource | None:
        """Resource of metadata-only objects; None for whole ones."""
        return self.shared.resource

    def raw(self, body: bytes, key: str) -> bytes:
        """Return the JSON of the stored body, as `ObjectContext.raw` does.

        Raises:
            InternalError: If it is damaged.
        """
        self.shared.note_read(key)
        return self.codec.read(body, f"object {key!r}")

    def decoded(self, body: bytes, key: str) -> dict[str, Any]:
        """Return its decoded form, as `ObjectContext.decoded` does.

        Raises:
            DecodeError: If it is not a JSON object.
            InternalError: If the compressed body is damaged.
        """
        return _decoded(self, body, key)


def _decoded(
    context: ObjectContext | DifferenceContext, body: bytes, key: str
) -> dict[str, Any]:
    cache = context.decoded_bodies
    found = cache.bodies.get(body)
    if found is not None:
        with suppress(KeyError):  # another thread may have dropped it just now
            cache.bodies.move_to_end(body)

        return found[0]

    raw, what = context.raw(body, key), f"object {key!r}"
    value = decode_json(raw, what)
    if not isinstance(value, dict):
        raise DecodeError(f"{what}: not a JSON object", offset=0)

    cache.keep(body, value, len(raw))
    return value


def read_only(value: Any) -> Any:
    """Wrap a decoded dict or list in a view; return other values unchanged."""
    if isinstance(value, dict):
        return ReadOnlyDict(value)

    if isinstance(value, list):
        return ReadOnlyList(value)

    return value


Refusal: TypeAlias = Callable[..., NoReturn]
"""Method that refuses a change."""


def refuse(*_: object, **__: object) -> NoReturn:
    """Refuse a change. It replaces all methods that would change a view.

    Raises:
        TypeError: If it is called; the text names `to_dict()`.
    """
    raise TypeError(READ_ONLY)


def _copied(data: T) -> T:
    """Copy all nested dicts and lists, without recursion as they may nest deeply."""
    top: list[Any] = [data]
    waiting: list[Any] = [top]
    while waiting:
        copy = waiting.pop()
        for key, value in copy.items() if isinstance(copy, dict) else enumerate(copy):
            if isinstance(value, dict | list):
                copy[key] = value.copy()
                waiting.append(copy[key])

    return cast("T", top[0])


class _Keys(KeysView[str]):
    """Keys without values in the `repr`: printing the keys of a Secret is harmless."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"ReadOnlyDict.keys({list(self)!r})"


class ReadOnlyDict(dict[str, Any]):
    """JSON object inside a cached Kubernetes object. Assignments raise `TypeError`."""

    __slots__ = ()

    def __getitem__(self, key: str) -> Any:
        return read_only(super().__getitem__(key))

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or `default` if it is absent."""
        return read_only(super().get(key, default))

    def __iter__(self) -> Iterator[str]:
        # An overridden `__iter__` makes dict(), | and ** call `__getitem__` for each
        # value.
        return super().__iter__()

    def keys(self) -> KeysView[str]:  # type: ignore[override]  # of any mapping
        """Return the keys, in a view that does not show values."""
        return _Keys(self)

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        """Return the values; objects and arrays as views."""
        return ValuesView(self)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        """Return the keys with their values; objects and arrays as views."""
        return ItemsView(self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Mapping):
            return super().__eq__(other if isinstance(other, dict) else dict(other))

        return NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __or__(self, other: Any) -> Any:
        return {**self, **other} if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Any) -> Any:
        return {**other, **self} if isinstance(other, Mapping) else NotImplemented

    def copy(self) -> dict[str, Any]:
        """Return a dict of the same values. Nested values stay read-only."""
        return dict(self)

    def __reduce__(self) -> tuple[type[ReadOnlyDict], tuple[dict[str, Any]]]:
        return ReadOnlyDict, (super().copy(),)

    def __repr__(self) -> str:
        return f"ReadOnlyDict({super().__repr__()})"

    def to_dict(self) -> dict[str, Any]:
        """Return a deep copy that may be changed."""
        return _copied(super().copy())

    __setitem__: Refusal = refuse
    __delitem__: Refusal = refuse
    __ior__: Refusal = refuse
    clear: Refusal = refuse
    pop: Refusal = refuse
    popitem: Refusal = refuse
    setdefault: Refusal = refuse
    update: Refusal = refuse


class ReadOnlyList(list[Any]):
    """JSON array inside a cached Kubernetes object. Assignments raise `TypeError`."""

    __slots__ = ()

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> ReadOnlyList: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        return read_only(super().__getitem__(index))

    def __iter__(self) -> Iterator[Any]:
        return map(read_only, super().__iter__())

    def __reversed__(self) -> Iterator[Any]:
        return map(read_only, super().__reversed__())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list | tuple):
            return super().__eq__(other if isinstance(other, list) else list(other))

        return NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __add__(self, other: Iterable[Any]) -> list[Any]:
        return [*self, *other] if isinstance(other, list) else NotImplemented

    def __radd__(self, other: Iterable[Any]) -> list[Any]:
        return [*other, *self] if isinstance(other, list) else NotImplemented

    def __mul__(self, times: SupportsIndex) -> list[Any]:
        return [*self] * times

    def __rmul__(self, times: SupportsIndex) -> list[Any]:
        return self * times

    def copy(self) -> list[Any]:
        """Return a list of the same values. Nested values stay read-only."""
        return [*self]

    def __reduce__(self) -> tuple[type[ReadOnlyList], tuple[list[Any]]]:
        return ReadOnlyList, (super().copy(),)

    def __repr__(self) -> str:
        return f"ReadOnlyList({super().__repr__()})"

    def to_list(self) -> list[Any]:
        """Return a deep copy that may be changed."""
        return _copied(super().copy())

    __setitem__: Refusal = refuse
    __delitem__: Refusal = refuse
    __iadd__: Refusal = refuse
    __imul__: Refusal = refuse
    append: Refusal = refuse
    clear: Refusal = refuse
    extend: Refusal = refuse
    insert: Refusal = refuse
    pop: Refusal = refuse
    remove: Refusal = refuse
    reverse: Refusal = refuse
    sort: Refusal = refuse
