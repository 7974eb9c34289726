"""What is started and stopped: `Entered`, and `Hosted`, in whichever way a host has."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

from aioinformer.errors import OptionsError
from aioinformer.model.times import timeout_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from aioinformer._tasks import Supervisor
    from aioinformer.model.times import Duration

__all__ = ["Entered", "Hosted"]


class Entered(ABC):
    """Started and stopped, or entered and left, which is the same."""

    @abstractmethod
    async def start(self) -> None:
        """Start it; returns when it runs."""

    @abstractmethod
    async def shutdown(self) -> None:
        """Stop it, and wait for that; idempotent."""

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
            error.add_note(f"{self._left_with_an_error()}: {failure!r}")

    def _left_with_an_error(self) -> str:
        return "it was left with an error, too"


class Hosted(Entered):
    """Started and stopped by its host, once; in one task, or in two of one loop.

    All other ways are `start()` and `shutdown()`.
    """

    _supervisor: Supervisor

    @property
    def running(self) -> bool:
        """True from `start()` until it has ended."""
        return self._supervisor.running

    @abstractmethod
    async def wait_for_cache_sync(
        self, timeout: Duration | None = None, *, fail_fast: bool = True
    ) -> None:
        """Wait until all of its caches are synced."""

    def lifespan(self, app: Any) -> AbstractAsyncContextManager[None]:
        """Run with an ASGI app that serves at once: `FastAPI(lifespan=factory.lifespan)`.

        Until the caches are synced, reads through listers raise `NotSynced`.

        Args:
            app: The host gives it; it is not looked at.
        """
        return self._lifespan(synced=False)

    def lifespan_synced(
        self, timeout: Duration | None = 60.0
    ) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """The same, but the app serves when the caches are synced.

        Args:
            timeout: Seconds, or a timedelta, after which starting fails with
                `NotSynced`; None waits as long as it takes.

        Raises:
            OptionsError: The timeout cannot be one, as when the host is given this one
                instead of what it returns.
        """
        try:
            timeout_of(timeout)
        except OptionsError as exc:
            raise OptionsError(
                f"{exc}; call it for the host: "
                "lifespan=factory.lifespan_synced(timeout=60)"
            ) from None

        return lambda app: self._lifespan(synced=True, timeout=timeout)

    async def cleanup_ctx(self, app: Any) -> AsyncIterator[None]:
        """Run with an aiohttp app: `app.cleanup_ctx.append(factory.cleanup_ctx)`.

        Args:
            app: The host gives it; it is not looked at.
        """
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
