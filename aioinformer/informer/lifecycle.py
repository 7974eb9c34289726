"""What is started and stopped: `Lifecycle`, and `HostedLifecycle`, in whichever way a host has."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

from aioinformer._tasks import Notifier
from aioinformer.errors import InformerStopped, OptionsError, WrongLoop
from aioinformer.model.times import timeout_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from aioinformer._tasks import Supervisor
    from aioinformer.model.times import Duration

__all__ = ["HostedLifecycle", "Lifecycle", "RunState", "running_loop"]


class Lifecycle(ABC):
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


class HostedLifecycle(Lifecycle):
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


class RunState:
    """The state of one informer's life: it begins once, and ends once.

    Attributes:
        loop: The loop it lives in; None before it has begun.
        stopping: Nothing new comes any more; handlers may still be at work.
        stopped: It has ended, or will never begin.
        over: And its handlers have, too.
        failure: What it died of, if it did.
        followers: Called when any of these has changed; they must neither wait nor
            raise.
        on_death: Called with what it died of, once, when it does; nor must it.
        why_ending: Returns what it dies of when it is cancelled; None if it was stopped.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.loop: asyncio.AbstractEventLoop | None = None
        self.stopping = False
        self.stopped = False
        self.over = False
        self.failure: BaseException | None = None
        self.followers: list[Callable[[], None]] = []
        self.on_death: Callable[[BaseException], None] | None = None
        self.why_ending: Callable[[], BaseException | None] = lambda: None
        self._changed = Notifier()

    def __repr__(self) -> str:
        begun = "idle" if self.loop is None else "running"
        return f"<RunState {self._name} {'stopped' if self.stopped else begun}>"

    def begin(self) -> None:
        """It begins, in the running loop.

        Raises:
            OptionsError: If it has begun already.
            InformerStopped: If it has been given up before.
        """
        if self.loop is not None:
            raise OptionsError(f"{self._name} has been run already")

        self.check_not_stopped()
        self.loop = asyncio.get_running_loop()

    def wind_down(self, *, cancelled: bool = False) -> None:
        """Nothing new comes from here on, perhaps as it was cancelled. Idempotent."""
        self.stopping = True
        failure = self.why_ending() if cancelled and not self.stopped else None
        if failure is not None:
            self.die(failure)
        else:
            self._tell_followers()

    def die(self, failure: BaseException) -> None:
        """It is dead, though its handlers may go on for a while."""
        self.stopped = True
        self._note(failure)
        self._tell_followers()

    def end(self, failure: BaseException | None = None) -> None:
        """It has ended, perhaps by a failure; whoever waits is told. Idempotent."""
        self.stopped = True
        self.over = True
        if failure is not None:
            self._note(failure)

        self._tell_followers()

    def tell(self) -> None:
        """Wake everybody who waits for a change."""
        self._changed.notify()

    async def wait_for_change(self) -> None:
        """Wait until something has changed since this was called. Cancellation: safe."""
        await self._changed.wait()

    def check_not_stopped(self) -> None:
        """Raise `InformerStopped`, caused by the failure, if it has ended."""
        if self.stopped:
            raise InformerStopped(f"{self._name} has ended") from self.failure

    def check_not_stopping(self) -> None:
        """Raise `InformerStopped`, caused by the failure, if nothing new will come."""
        self.check_not_stopped()
        if self.stopping:
            raise InformerStopped(f"{self._name} is ending")

    def check_loop(self) -> None:
        """Raise `WrongLoop` unless this is the loop it lives in, or it has none yet."""
        if self.loop is not None and self.loop is not running_loop():
            raise WrongLoop(f"{self._name} belongs to another event loop")

    def check_open(self) -> None:
        """Raise unless it has not ended, and this is its loop, or it has none yet."""
        self.check_not_stopped()
        self.check_loop()

    def _note(self, failure: BaseException) -> None:
        if self.failure is None:
            self.failure = failure
            if self.on_death is not None:
                self.on_death(failure)

    def _tell_followers(self) -> None:
        self.tell()
        for follower in list(self.followers):
            follower()


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop of the calling thread; None if none runs there."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
