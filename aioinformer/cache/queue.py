"""What the parts around a queue of changes ask of it, and what it asks of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.cache.deltas import Delta, Replacement, ResyncAll
    from aioinformer.cache.store import Contents

__all__ = ["KnownObjects", "Queue"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class KnownObjects(Protocol[T_co]):
    """What the consumer of a queue has; a `Store` is one."""

    def list_keys(self) -> list[str]:
        """The keys of all objects."""

    def get_by_key(self, key: str) -> T_co | None:
        """The object with this key, or None."""


class Queue(Protocol[T]):
    """Changes and lists, between one reflector and one store.

    `DeltaFIFO` and `OrderedFIFO` are two. Both take whatever comes, without a bound: a
    reflector that waited for room would not read its watch, which the server then ends,
    and a list of everything would follow. The consumer is in the same loop and takes
    its share of it, so that the line grows no longer than a burst.
    """

    def __len__(self) -> int:
        """How many entries can be taken."""

    async def feed(self, batch: Iterable[Delta[T]], resource_version: str = "") -> None:
        """Queue changes in their order, and up to which version they bring everything."""

    async def feed_replacement(
        self, contents: Contents[T], resource_version: str
    ) -> None:
        """Queue a complete list as one entry."""

    def newest(self, key: str) -> Delta[T] | None:
        """The newest change that waits for `key`, if it came behind any whole list."""

    async def wait_filled(self) -> None:
        """Wait until there is an entry to take, or a version to apply."""

    def take(self) -> Delta[T] | Replacement[T] | ResyncAll:
        """Take the next entry; the changes of one key come as the newest of them."""

    def applied(self) -> str | None:
        """The newest version all of whose entries were taken, if that is news."""

    @property
    def has_synced(self) -> bool:
        """True once all of the first list was taken."""

    async def close(self) -> None:
        """Let nobody wait any longer."""
