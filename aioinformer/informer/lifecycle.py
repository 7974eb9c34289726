"""Start and shutdown of informers, factories, controllers and managers."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol, Self

from aioinformer._tasks import Notifier, fail_when_any_ends, unwrap_group
from aioinformer._user_code import text_of
from aioinformer.errors import InformerStopped, OptionsError, WrongLoop
from aioinformer.model.times import timeout_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType
    from typing import NoReturn

    from aioinformer.informer.handlers.processor import Processor
    from aioinformer.model.times import Duration

__all__ = ["Lifecycle", "RunState", "WebLifespan", "run_tasks", "running_loop"]

DRAIN_SECONDS = 5.0
"""Seconds that handlers may take to process queued notifications after a stop."""


class Lifecycle(ABC):
    """Component that is started and shut down, also as an async context manager."""

    @abstractmethod
    async def start(self) -> None:
        """Start it; returns when it runs."""

    @abstractmethod
    async def shutdown(self) -> None:
        """Stop it, and wait for its end; idempotent."""

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

            # The error that ended the block is more important than that of the
            # shutdown.
            error.add_note(f"{self._shutdown_note()}: {text_of(failure, repr)}")

    def _shutdown_note(self) -> str:
        """Return the beginning of the note on a block's error that a shutdown adds."""
        return "shutdown also failed"


class WebLifespan:
    """Methods that let a web app start and stop a factory or a manager."""

    def lifespan(self: Hosted, app: Any) -> AbstractAsyncContextManager[None]:
        """Run with an ASGI app: `FastAPI(lifespan=factory.lifespan)`.

        Until the caches are synced, reads through listers raise `NotSynced`.

        Args:
            app: Argument that the host passes; ignored.
        """
        return _lifespan(self, synced=False)

    def lifespan_synced(
        self: Hosted, timeout: Duration | None = 60.0
    ) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """Run with an ASGI app that serves once the caches are synced.

        Args:
            timeout: Seconds, or a timedelta, after which starting fails with
                `NotSynced`; None for no limit.

        Raises:
            OptionsError: If the timeout is invalid, for example if this method is
                passed to the host without calling it.
        """
        try:
            timeout_of(timeout)
        except OptionsError as exc:
            raise OptionsError(
                f"{exc}. Pass the result of a call to the framework: "
                "lifespan=factory.lifespan_synced(timeout=60)"
            ) from None

        return lambda app: _lifespan(self, synced=True, timeout=timeout)

    async def cleanup_ctx(self: Hosted, app: Any) -> AsyncIterator[None]:
        """Run with an aiohttp app: `app.cleanup_ctx.append(factory.cleanup_ctx)`.

        Args:
            app: Argument that the host passes; ignored.
        """
        await self.start()
        try:
            yield
        finally:
            await self.shutdown()


class Hosted(Protocol):
    """Component that a web app can start, wait for and stop."""

    async def start(self) -> None:
        """Start it; returns when it runs."""

    async def shutdown(self) -> None:
        """Stop it, and wait for its end."""

    async def wait_for_cache_sync(self, timeout: Duration | None = None) -> None:
        """Wait until all of its caches are synced."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


@contextlib.asynccontextmanager
async def _lifespan(
    component: Hosted, *, synced: bool, timeout: Duration | None = None
) -> AsyncIterator[None]:
    async with component:
        if synced:
            await component.wait_for_cache_sync(timeout)

        yield


class RunState:
    """State of one informer's run, which begins once and ends once.

    Attributes:
        loop: Loop of the informer; None before the run.
        stopping: True once no more changes are accepted; handlers may still be running.
        stopped: True once the informer has ended, or will never run.
        over: True once its handlers have ended as well.
        failure: Error that ended it, or None.
        followers: Functions called when one of these attributes has changed. They must
            neither wait nor raise.
        on_death: Function called once, with an error at the moment it ends the
            informer. It must neither wait nor raise.
        why_ending: Function that returns the cause of a cancellation; None if the
            informer was stopped.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.loop: asyncio.AbstractEventLoop | None = None
        self.stopping: bool = False
        self.stopped: bool = False
        self.over: bool = False
        self.failure: BaseException | None = None
        self.followers: list[Callable[[], None]] = []
        self.on_death: Callable[[BaseException], None] | None = None
        self.why_ending: Callable[[], BaseException | None] = lambda: None
        self._changed = Notifier()

    def __repr__(self) -> str:
        begun = "idle" if self.loop is None else "running"
        return f"<RunState {self._name} {'stopped' if self.stopped else begun}>"

    def begin(self) -> None:
        """Begin, in the running loop.

        Raises:
            OptionsError: If it has begun before.
            InformerStopped: If it was abandoned before.
        """
        if self.loop is not None:
            raise OptionsError(f"{self._name} runs only once")

        self.check_not_stopped()
        self.loop = asyncio.get_running_loop()

    def wind_down(self, *, cancelled: bool = False) -> None:
        """Record that no more changes are accepted. Idempotent.

        Args:
            cancelled: True if the run was cancelled, perhaps because of a failure.
        """
        self.stopping = True
        failure = self.why_ending() if cancelled and not self.stopped else None
        if failure is not None:
            self.die(failure)
        else:
            self._notify_all()

    def die(self, failure: BaseException) -> None:
        """Record a failure. Handlers may still be running."""
        self.stopped = True
        self._record(failure)
        self._notify_all()

    def end(self, failure: BaseException | None = None) -> None:
        """Record the end, perhaps by a failure, and wake all waiters. Idempotent."""
        self.stopped = True
        self.over = True
        if failure is not None:
            self._record(failure)

        self._notify_all()

    def notify(self) -> None:
        """Wake all tasks that wait for a change."""
        self._changed.notify()

    async def wait_for_change(self) -> None:
        """Wait for the next change. Cancellation: safe."""
        await self._changed.wait()

    def check_not_stopped(self) -> None:
        """Raise `InformerStopped`, caused by the failure, if the informer has ended."""
        if self.stopped:
            raise InformerStopped(f"{self._name} has ended") from self.failure

    def check_not_stopping(self) -> None:
        """Raise `InformerStopped`, caused by the failure, unless changes may follow."""
        self.check_not_stopped()
        if self.stopping:
            raise InformerStopped(f"{self._name} is shutting down")

    def check_loop(self) -> None:
        """Raise `WrongLoop` if the informer has another loop than the running one."""
        if self.loop is not None and self.loop is not running_loop():
            raise WrongLoop(f"{self._name} belongs to another event loop")

    def check_open(self) -> None:
        """Raise if the informer has ended, or has another loop than the running one."""
        self.check_not_stopped()
        self.check_loop()

    def _record(self, failure: BaseException) -> None:
        if self.failure is None:
            self.failure = failure
            if self.on_death is not None:
                self.on_death(failure)

    def _notify_all(self) -> None:
        self.notify()
        for follower in list(self.followers):
            follower()


async def run_tasks(
    name: str,
    state: RunState,
    processor: Processor,
    sources: Mapping[str, Callable[[], Coroutine[Any, Any, NoReturn]]],
) -> NoReturn:
    """Run the tasks of one informer until cancelled.

    Two nested task groups: the tasks of its sources end first, then handlers drain.

    Args:
        name: Name of the informer.
        state: State of the run; records failures and the shutdown.
        processor: Processor of the informer.
        sources: Tasks of the sources of the informer, by name.

    Raises:
        BaseExceptionGroup: If a task has failed.

    Cancellation:
        Ends the tasks. A second cancellation ends handlers that are still draining.
    """
    async with asyncio.TaskGroup() as downstream:  # pragma: no branch - never returns
        handlers = downstream.create_task(processor.run(), name=f"{name} processor")
        try:
            async with asyncio.TaskGroup() as upstream:
                tasks = [handlers]
                for label, run in sources.items():
                    tasks.append(upstream.create_task(run(), name=label))

                await fail_when_any_ends(tasks)
        except BaseExceptionGroup as group:
            # From here on the informer is dead, although handlers may still run.
            state.die(unwrap_group(group))
            raise
        finally:
            # If the processor has failed, that is why this task was cancelled.
            state.wind_down(cancelled=not handlers.done())
            if not handlers.done():
                try:
                    async with asyncio.timeout(DRAIN_SECONDS):
                        await processor.drained()
                except TimeoutError:
                    processor.warn_undelivered(DRAIN_SECONDS)

            handlers.cancel()


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the running loop of this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
