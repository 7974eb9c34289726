"""`ReflectorOptions`: how one reflector lists and watches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from aioinformer.errors import InternalError, OptionsError
from aioinformer.model.times import Duration, seconds_of

if TYPE_CHECKING:
    from types import TracebackType

    from aioinformer.cache.deltas import Delta
    from aioinformer.model.objects import KubeObject

__all__ = [
    "INTERNAL_ERROR_SECONDS",
    "WATCH_GRACE_SECONDS",
    "WATCH_SECONDS",
    "ReflectorOptions",
    "ReflectorStore",
    "store_calls",
    "store_failed",
]


WATCH_SECONDS = 300.0

WATCH_GRACE_SECONDS = 10.0


INTERNAL_ERROR_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectorOptions:
    """How one reflector lists and watches."""

    page_size: int | None = None
    """Objects in a page; None for 500 where pages make sense. A server with a watch
    cache answers the first list whole, whatever this says. No effect on streams, nor on
    the list that is asked for whole after one whose further pages could not be had."""

    watch_seconds: Duration = WATCH_SECONDS
    """How long the server should keep one watch open: drawn from [w, 2w) for each,
    so that many informers do not come back together. At least 1 s; whole seconds."""

    watch_grace_seconds: Duration = WATCH_GRACE_SECONDS
    """Seconds after which the client ends a watch that the server should have ended."""

    streaming_list: bool = False
    """Ask for lists as streams: a watch that begins with the current objects and goes
    on. It spares an older server's memory, and takes longer. A server that does not do
    it is asked for pages instead, from then on."""

    internal_error_seconds: Duration = INTERNAL_ERROR_SECONDS
    """For how long watches that end in an internal error of the server (500), one after
    the other and without news, are resumed; then a list gets over what the server
    perhaps cannot read any more. 0 lists again at once, as client-go does."""

    def __post_init__(self) -> None:
        if self.page_size is not None and self.page_size < 1:
            raise OptionsError(f"page_size must be at least 1, not {self.page_size}")

        if seconds_of(self.watch_seconds) < 1:
            raise OptionsError(
                f"watch_seconds must be at least 1, not {self.watch_seconds}"
            )

        if seconds_of(self.watch_grace_seconds) < 0:
            raise OptionsError(
                "watch_grace_seconds must not be negative, as "
                f"{self.watch_grace_seconds}"
            )

        if seconds_of(self.internal_error_seconds) < 0:
            raise OptionsError(
                "internal_error_seconds must not be negative, as "
                f"{self.internal_error_seconds}"
            )


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
