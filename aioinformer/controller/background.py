"""`Background`: functions that run beside the reconciles of a controller until it stops.

They are the daemons of objects and the readers of outside events. Each call has a task
of its own, so that cancelling itself does not affect others. One synchronous step at
the end of that task decides about the next call.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from typing import TYPE_CHECKING, TypeAlias

from aioinformer._user_code import user_errors
from aioinformer.backoff import Backoff, Failure
from aioinformer.errors import TerminalError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Background", "BackgroundFunction"]

Ending: TypeAlias = tuple[float | None, BaseException | None]
"""Seconds until the next call or None, and the failure or None."""


class Background:
    """Background functions of one run of a controller.

    Args:
        work: Task group of the calls. It must outlive them.
    """

    def __init__(self, work: asyncio.TaskGroup) -> None:
        self.closed: bool = False
        """True once no function is called any more."""
        self.tasks: set[asyncio.Task[Ending]] = set()
        """Tasks of the running calls."""
        self.rng: random.Random = random.Random()
        """Source of the jitter of delays. One for each function would be slow."""
        self._work = work
        # Calls inherit it, and not that of an informer's handler.
        self._context = contextvars.copy_context()
        self._functions: set[BackgroundFunction] = set()

    def run(
        self,
        name: str,
        call: Callable[[int], Awaitable[float | None]],
        failed: Callable[[BaseException], None],
        ended: Callable[[], None] = lambda: None,
    ) -> BackgroundFunction:
        """Call a function in a task, and again with backoff when it raises.

        Or when it returns 0 seconds or less.

        The delays are 0.8 s to 60 s, and start over after a call of 2 minutes. After a
        `TerminalError` it is not called again.

        Args:
            name: Name of the tasks.
            call: Coroutine function of the number of attempts since the last success.
                It returns the seconds until the next call, or None for no other one.
            failed: Callback for each failure.
            ended: Callback for the end, when no task or timer is left.
        """
        function = BackgroundFunction(self, name, call, failed, ended)
        self._functions.add(function)
        function.begin()
        return function

    def close(self) -> None:
        """Cancel all functions. Their tasks may take a while to end."""
        self.closed = True
        for function in tuple(self._functions):
            function.cancel()

    def start_task(self, function: BackgroundFunction) -> asyncio.Task[Ending]:
        """Start the task of one call."""
        task = self._work.create_task(
            function.guarded(), name=function.name, context=self._context.copy()
        )
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def forget(self, function: BackgroundFunction) -> None:
        """Forget a function that has ended."""
        self._functions.discard(function)


class BackgroundFunction:
    """Function that `Background.run()` calls: see there."""

    __slots__ = (
        "_attempt",
        "_background",
        "_backoff",
        "_call",
        "_cancelled",
        "_ended",
        "_failed",
        "_task",
        "_timer",
        "name",
    )

    def __init__(
        self,
        background: Background,
        name: str,
        call: Callable[[int], Awaitable[float | None]],
        failed: Callable[[BaseException], None],
        ended: Callable[[], None],
    ) -> None:
        self.name: str = name
        """Name of the tasks."""
        self._background = background
        self._call = call
        self._failed = failed
        self._ended = ended
        self._backoff = Backoff(background.rng)
        self._attempt = 0
        # Invariant: until the end, either a task runs or a timer is set.
        self._task: asyncio.Task[Ending] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cancelled = False

    def begin(self) -> None:
        """Start a call."""
        self._timer = None
        self._attempt += 1
        self._backoff.begin(asyncio.get_running_loop().time())
        self._task = self._background.start_task(self)
        self._task.add_done_callback(self._conclude)

    def cancel(self) -> None:
        """Cancel the call, or the wait for the next one. Idempotent."""
        if self._cancelled:
            return

        self._cancelled = True
        if self._timer is not None:
            self._timer.cancel()
            self._end()
        elif self._task is not None:
            self._task.cancel()

    async def guarded(self) -> Ending:
        """Call the function, and return its failure instead of raising it."""
        try:
            return await self._call(self._attempt), None
        except asyncio.CancelledError:
            raise
        except user_errors() as exc:  # reported at the end of the task
            return None, exc

    def _conclude(self, task: asyncio.Task[Ending]) -> None:
        """Report the failure of a call, and set the timer of the next one."""
        self._task = None
        after: float | None = None
        failure: BaseException | None
        if not task.cancelled():
            if task.exception() is not None:
                return self._end()  # SystemExit, which ends the task group, too

            after, failure = task.result()
        elif self._cancelled:
            failure = None
        else:
            failure = asyncio.CancelledError("cancelled itself")

        if failure is not None:
            self._failed(failure)
            if not isinstance(failure, TerminalError):
                after = self._back_off()
        elif after is not None and after <= 0:
            after = self._back_off()  # as it may be a loop
        elif after is not None:
            self._attempt, self._backoff = 0, Backoff(self._background.rng)

        if after is None or self._cancelled:
            return self._end()

        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(after, self.begin)
        return None

    def _back_off(self) -> float:
        """Return the delay of the next call. A call of 2 minutes counts as a success."""
        now = asyncio.get_running_loop().time()
        return self._backoff.end(now, Failure.OTHER, accepted=True, relists=True)

    def _end(self) -> None:
        self._background.forget(self)
        self._ended()
