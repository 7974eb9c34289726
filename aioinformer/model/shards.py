"""Shard selectors: parts of a collection, by a hash of each object's uid or namespace.

The hash and the syntax are those of the API server (KEP-5866), so a selector has the same
meaning here and there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.model.objects import KubeObject

__all__ = ["HASHES", "HashRange", "ShardField", "ShardSelector", "hash_of", "ranges_of"]

HASHES: Final = 1 << 64
"""Number of hashes; upper end of the last range."""

ShardField: TypeAlias = Literal["uid", "namespace"]
"""Field of an object's metadata that is hashed."""

_BASIS: Final = 0xCBF29CE484222325
_PRIME: Final = 0x100000001B3
_MASK: Final = HASHES - 1


# One event asks for the hash of its uid several times, and each takes 4 us.
@lru_cache(maxsize=1024)
def hash_of(text: str) -> int:
    """Return the FNV-1a hash of a text, with 64 bits."""
    value = _BASIS
    for byte in text.encode():
        value = ((value ^ byte) * _PRIME) & _MASK

    return value


class HashRange(NamedTuple):
    """Range of hashes.

    Attributes:
        start: First hash.
        end: First hash after the range; at most `HASHES`.
    """

    start: int
    end: int


def ranges_of(number: int) -> tuple[HashRange, ...]:
    """Return all hashes in this number of ranges of equal size, a power of two."""
    size = HASHES // number
    return tuple(HashRange(i * size, (i + 1) * size) for i in range(number))


@dataclass(frozen=True, slots=True)
class ShardSelector:
    """Selector of objects whose hash is in one of several ranges.

    Attributes:
        ranges: Ranges, ascending and without overlap; neighbours are merged. Without any,
            nothing is selected.
        field: Field of the metadata that is hashed.

    Raises:
        OptionsError: If a range is empty or out of bounds, or the field is unknown.

    Example:
        >>> half = ShardSelector((HashRange(0, HASHES // 2),))
        >>> str(half)
        "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
    """

    ranges: tuple[HashRange, ...]
    field: ShardField = "uid"

    def __post_init__(self) -> None:
        if self.field not in ("uid", "namespace"):
            raise OptionsError(
                f"shards are by 'uid' or by 'namespace', not {self.field!r}"
            )

        object.__setattr__(self, "ranges", _merged(self.ranges))

    def __str__(self) -> str:
        """Return the value of `shardSelector` in a request.

        Servers know no selector of nothing: without ranges, it is that of one hash.
        """
        return " || ".join(
            f"shardRange(object.metadata.{self.field}, '{start:#018x}', '{end:#018x}')"
            for start, end in self.ranges or (HashRange(0, 1),)
        )

    @property
    def whole(self) -> bool:
        """True if all objects are selected."""
        return self.ranges == ranges_of(1)

    def has_range(self, hashes: HashRange) -> bool:
        """Return True if all hashes of a range are selected."""
        start, end = hashes
        return any(its.start <= start and end <= its.end for its in self.ranges)

    def has_hash(self, value: int) -> bool:
        """Return True if a hash is in one of the ranges."""
        return any(start <= value < end for start, end in self.ranges)

    def selects(self, obj: KubeObject) -> bool:
        """Return True if the object's hash is in one of the ranges."""
        return self.has_hash(hash_of(obj.uid if self.field == "uid" else obj.namespace))

    def without(self, other: ShardSelector) -> ShardSelector:
        """Return the selector of what this one selects and another one does not.

        Both select by the same field.
        """
        rest: list[HashRange] = []
        for start, end in self.ranges:
            for theirs in other.ranges:
                if start < theirs.start < end:
                    rest.append(HashRange(start, theirs.start))

                if theirs.start < end:
                    start = max(start, theirs.end)

            if start < end:
                rest.append(HashRange(start, end))

        return ShardSelector(tuple(rest), self.field)


def _merged(ranges: Iterable[HashRange]) -> tuple[HashRange, ...]:
    """Return ranges in ascending order, neighbours and overlaps as one."""
    merged: list[HashRange] = []
    for start, end in sorted(ranges):
        if not 0 <= start < end <= HASHES:
            raise OptionsError(
                f"a range of hashes is within 0 and 2**64, and not empty: {start}, {end}"
            )

        if merged and start <= merged[-1].end:
            merged[-1] = HashRange(merged[-1].start, max(end, merged[-1].end))
        else:
            merged.append(HashRange(start, end))

    return tuple(merged)
