"""`Records`: objects as bytes, and bytes as objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.cache.disk.environment import Environment
    from aioinformer.cache.index import Packed
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource

__all__ = ["Records"]


class Records:
    """Encoder and decoder of the records of one environment.

    A record has the uid, version, labels, index values and stored body of an object, and
    the number of the dictionary that its body was compressed with. It copies what it
    reads: nothing refers to LMDB's memory after the transaction.

    Args:
        env: Environment; its database `dict` holds the dictionaries by number.
        resource: Resource of metadata-only objects, or None.
    """

    def __init__(self, env: Environment, resource: Resource | None = None) -> None:
        raise NotImplementedError

    def encode(
        self, obj: KubeObject, values: Mapping[str, Packed] | None = None
    ) -> bytes:
        """Return the record of an object; store its dictionary if that is new.

        In a write transaction.
        """
        raise NotImplementedError

    def decode(self, key: str, record: bytes | memoryview) -> KubeObject:
        """Return the object of a record, in a transaction.

        Raises:
            CacheError: If the record is damaged or names an unknown dictionary.
        """
        raise NotImplementedError

    def values(self, record: bytes | memoryview) -> dict[str, Packed]:
        """Return the index values in a record."""
        raise NotImplementedError

    def newest_dictionary(self) -> bytes:
        """Return the dictionary that was stored last; empty if there is none."""
        raise NotImplementedError
