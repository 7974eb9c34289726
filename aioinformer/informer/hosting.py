"""`Hosted`: what a host starts and stops, in whichever way that host has."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from aioinformer.model.durations import Duration

__all__ = ["Hosted"]


class Hosted(ABC):
    """Started and stopped by its host, once; in one task, or in two of one loop.

    All other ways are `start()` and `shutdown()`.
    """

    @abstractmethod
    async def start(self) -> None:
        """Start it; returns when it runs."""

    @abstractmethod
    async def shutdown(self) -> None:
        """Stop it, and wait for that; idempotent."""

    @abstractmethod
    async def wait_for_cache_sync(
        self, timeout: Duration | None = None, *, fail_fast: bool = True
    ) -> None:
        """Wait until all of its caches are synced."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.shutdown()
        except Exception as failure:
            if error is None:
                raise

            # The reason for leaving is more than what was found on the way out.
            error.add_note(f"an informer had died, too: {failure!r}")

    def lifespan(self, app: Any = None) -> AbstractAsyncContextManager[None]:
        """Run with an ASGI app that serves at once: `FastAPI(lifespan=factory.lifespan)`.

        Until the caches are synced, reads through listers raise `NotSynced`.
        """
        return self._lifespan(synced=False)

    def lifespan_synced(
        self, timeout: Duration | None = 60.0
    ) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """The same, but the app serves when the caches are synced.

        Args:
            timeout: Seconds after which starting fails with `NotSynced`.
        """
        return lambda app: self._lifespan(synced=True, timeout=timeout)

    async def cleanup_ctx(self, app: Any = None) -> AsyncIterator[None]:
        """Run with an aiohttp app: `app.cleanup_ctx.append(factory.cleanup_ctx)`."""
        await self.start()
        try:
            yield
        finally:
            await self.shutdown()

    @contextlib.asynccontextmanager
    async def _lifespan(
        self, *, synced: bool, timeout: Duration | None = None
    ) -> AsyncIterator[None]:
        async with self:
            if synced:
                await self.wait_for_cache_sync(timeout)

            yield
