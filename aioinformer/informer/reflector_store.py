"""`ReflectorStore`: where a reflector puts what it learns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aioinformer.errors import InternalError

if TYPE_CHECKING:
    from types import TracebackType

    from aioinformer.cache.deltas import Delta
    from aioinformer.model.objects import KubeObject

__all__ = ["ReflectorStore", "store_calls", "store_failed"]


class ReflectorStore(Protocol):
    """Where a reflector puts what it learns. A relist is bracketed: stage, commit."""

    def known(self, key: str) -> KubeObject | None:
        """The newest state that this store was given for `key`; None if it is gone."""

    async def stage(self, objects: list[KubeObject], *, anew: bool = False) -> None:
        """Take some objects of the list under way, in the place of what is staged.

        Args:
            objects: As the server gave them.
            anew: Versions known before mean nothing: the same one may be another state.
        """

    async def stage_deleted(self, keys: list[str]) -> None:
        """Of the list under way, objects that were deleted while it streamed in."""

    async def stage_unreadable(self, keys: list[str]) -> None:
        """Of the list under way, objects that are there but cannot be read."""

    async def discard(self) -> None:
        """The list under way failed: forget what was staged."""

    async def commit(self, resource_version: str) -> None:
        """The list is complete: what was staged is everything there is."""

    async def vacate(self) -> None:
        """The server has the resource no more: nothing is there, until a list says so."""

    async def feed(
        self, deltas: list[Delta[KubeObject]], resource_version: str
    ) -> None:
        """Take changes, and the version up to which they bring everything."""


def store_failed(error: Exception) -> InternalError:
    """Return what ends the reflector after an error of its store."""
    return InternalError(f"the store failed: {error!r}")


class _StoreCalls:
    """Tells what a store raises from what a source raises; reusable and reentrant."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, InternalError):
            raise store_failed(error) from error


store_calls = _StoreCalls()
"""Enter it around calls of a store: what they raise ends the reflector."""
