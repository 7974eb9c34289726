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
        event: What the handler is, or was last, called with: set while a call runs, or
            ends all of this, and None in all our own waits.
        waited: That call has waited for something, and its slice was given back:
            `finish()` is due behind it.
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

    def is_from_outside(self, error: BaseException) -> bool:
        """True if what a call raises is a cancellation of its task, and not its own."""
        return (
            isinstance(error, asyncio.CancelledError)
            and self.task.cancelling() > self.own_cancels_so_far()
        )

    async def finish(self) -> None:
        """Go on behind a call that has waited, or has left its task asked to end.

        It may have asked for that itself; or a TaskGroup in it, which up to Python 3.12
        does not always take that back; or somebody else, and the call has kept that for
        itself. Whoever may end the listener has closed it as well.

        Cancellation:
            What arrives here is not the call's.
        """
        self._budget.end()
        self._slowness.call = None
        self.waited = False
        task = self.task
        if task.cancelling():
            while task.uncancel():
                pass

            try:
                # Here its cancelling arrives, if it has not yet.
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                if task.cancelling():
                    raise

        self.forget_cancels()

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
