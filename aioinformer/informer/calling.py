"""Calling a handler: once for each notification, whatever it does to itself.

Most calls wait for nothing, and there may be a hundred thousand of them a second. So the
code that calls is the plainest there is, an `await` in a loop, and what has to be known
of a call that does wait, or does not come back, is watched from outside: by `Calls`,
through which the listener's task runs that loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aioinformer.informer.slowness import BLOCKING_SECONDS
from aioinformer.informer.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioinformer.budget import LoopBudget
    from aioinformer.informer.notifications import Notification
    from aioinformer.informer.slowness import Slowness

__all__ = ["Calls"]


class Calls(Steps):
    """The life of a task that calls a handler, watched from outside.

    Args:
        life: Makes the coroutine, which calls the handler, and sets `event`.
        slowness: Told of calls that block the loop, or do not return.
        budget: Given back when a call begins to wait.

    Attributes:
        event: What the handler is being called with; None between calls.
        waited: The call has waited for something: `finish()` is due behind it.
    """

    __slots__ = ("_budget", "_slowness", "event", "waited")

    def __init__(
        self,
        life: Callable[[Calls], Coroutine[Any, Any, None]],
        slowness: Slowness,
        budget: LoopBudget,
    ) -> None:
        super().__init__(life(self))
        self._slowness = slowness
        self._budget = budget
        self.event: Notification | None = None
        self.waited = False

    def is_cancelled_by(self, error: BaseException) -> bool:
        """True if a call was cancelled together with its task, and not by itself."""
        return (
            isinstance(error, asyncio.CancelledError)
            and self.task.cancelling() > self.own_cancels_so_far()
        )

    async def finish(self) -> None:
        """Go on behind a call that has waited, or has cancelled its own task.

        Raises:
            CancelledError: If somebody else has cancelled the task too, and the call
                kept that for itself.
        """
        task = self.task
        self._budget.end()
        self._slowness.call = None
        self.waited = False
        if not task.cancelling():
            return

        for _ in range(self.own_cancels_so_far()):
            task.uncancel()

        if task.cancelling():
            raise asyncio.CancelledError

        try:
            await asyncio.sleep(0)  # where its cancelling arrives, if it has not yet
        except asyncio.CancelledError:
            if task.cancelling():
                raise

    def _step(self, step: Callable[..., Any], *arguments: Any) -> Any:
        self.longest = 0.0
        try:
            waits_for = super()._step(step, *arguments)
        finally:
            if self.longest > BLOCKING_SECONDS:
                self._slowness.blocked(self.longest)

        if self.event is not None and not self.waited:
            self.waited = True
            self._budget.end()
            self._slowness.call_waits(self.event)

        return waits_for
