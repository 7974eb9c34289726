"""`BackgroundTask`: a task whose start and end are in different calls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aioinformer.errors import AioInformerError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["BackgroundTask"]


class BackgroundTask:
    """Task that runs from `start()` to `stop()`, which different tasks may call.

    Args:
        run: Coroutine function. It calls its argument when it is ready, and then runs
            until it is cancelled.
        name: Name for messages.
    """

    def __init__(
        self, run: Callable[[Callable[[], None]], Coroutine[Any, Any, None]], name: str
    ) -> None:
        self._run = run
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def running(self) -> bool:
        """True from `start()` until the task has ended."""
        return self._task is not None and not self._task.done()

    async def start(self) -> None:
        """Start the task, and wait until it is ready.

        Raises:
            AioInformerError: If the task ended before it was ready, as when `stop()` is
                called meanwhile.
            Exception: Failure of the task before it was ready.

        Cancellation:
            Stops the task.
        """
        ready = asyncio.get_running_loop().create_future()

        def set_ready() -> None:
            if not ready.done():
                ready.set_result(None)

        task = asyncio.create_task(self._run(set_ready), name=self._name)
        self._task, self._stopping = task, False
        try:
            await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError as exc:
            await self._end(task)
            if (failure := self._take_failure(task)) is not None:
                exc.add_note(f"{self._name} also failed: {failure!r}")

            raise
        finally:
            was_ready = not ready.cancel()

        if task.done():
            if (failure := self._take_failure(task)) is not None:
                raise failure

            if not was_ready:
                raise AioInformerError(f"{self._name} stopped before it was ready")

    async def stop(self) -> None:
        """Cancel the task, wait for its end, and raise its failure. Idempotent.

        Raises:
            Exception: Failure of the task, raised once.

        Cancellation:
            Deferred until the task has ended.
        """
        task = self._task
        if task is None:
            return

        interrupted = await self._end(task)
        if interrupted is not None:
            raise interrupted

        if (failure := self._take_failure(task)) is not None:
            raise failure

    async def _end(self, task: asyncio.Task[None]) -> asyncio.CancelledError | None:
        """Cancel the task and wait for it; return a cancellation of the caller."""
        if not self._stopping:
            # Once: a second cancellation would interrupt its clean-up.
            self._stopping = True
            task.cancel()

        interrupted: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError as exc:
                interrupted = exc

        return interrupted

    def _take_failure(self, task: asyncio.Task[None]) -> BaseException | None:
        """Return the failure of the task to the first caller."""
        if self._task is not task:
            return None

        self._task = None
        return None if task.cancelled() else task.exception()
