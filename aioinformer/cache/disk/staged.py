"""`StagedObjects`: the objects of a list that are not written yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from aioinformer.cache.disk.records import name_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.cache.disk.generation import Generation, Transaction
    from aioinformer.cache.index import Packed
    from aioinformer.model.objects import KubeObject

__all__ = ["BATCH", "BATCH_BYTES", "Staged", "StagedObjects"]

BATCH: Final = 64
"""Objects of a list that are written in one transaction: it takes about a millisecond,
and other tasks run between two of them."""

BATCH_BYTES: Final = 2**20
"""Size of stored bodies from which a transaction has fewer objects."""


class Staged(NamedTuple):
    """Object of a list that is not written yet, and its index values."""

    obj: KubeObject
    values: Mapping[int, Packed]


class StagedObjects:
    """Objects of a list that wait until they are written, a batch at a time.

    Lists are sorted by key as a rule, so that a batch is appended to the ones before.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, Staged] = {}
        """Objects that are not written yet, by key."""
        self.version: str = ""
        """Version of the list."""
        self._bytes = 0
        # The highest name that is written.
        self._last = b""

    @property
    def full(self) -> bool:
        """True if it is time to write them."""
        return len(self.waiting) >= BATCH or self._bytes >= BATCH_BYTES

    def put(self, key: str, obj: KubeObject, values: Mapping[int, Packed]) -> None:
        """Add or replace one object."""
        self.waiting[key] = Staged(obj, values)
        self._bytes += len(obj.body)

    def is_unwritten(self, name: bytes) -> bool:
        """Return True if no object of a name can be written: asks for no read."""
        return name > self._last

    def write(self, txn: Transaction, generation: Generation) -> None:
        """Write the objects that wait; call `written()` after the transaction."""
        batch = sorted((name_of(key), key) for key in self.waiting)
        if self.is_unwritten(batch[0][0]):
            generation.append(txn, [(name, *self.waiting[key]) for name, key in batch])
        else:
            for _, key in batch:
                generation.write(txn, key, *self.waiting[key])

    def written(self) -> None:
        """Record that the objects that wait are written."""
        self._last = max(self._last, *map(name_of, self.waiting))
        self.waiting.clear()
        self._bytes = 0
