"""Calling a handler: once for each notification, whatever it does to itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aioinformer._tasks import USER_ERRORS
from aioinformer.informer.handlers import first_step
from aioinformer.informer.slowness import BLOCKING_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.informer.handlers import Outcome, RestOfCall
    from aioinformer.informer.notifications import Notification
    from aioinformer.informer.reporting import Reporter
    from aioinformer.informer.slowness import Slowness

__all__ = ["Caller"]


class Caller:
    """Calls the functions of one handler in its task; what they raise is reported.

    Args:
        name: The handler's.
        reporter: Who is told of failures.
        slowness: Who is told of calls that block the loop, or do not return.
    """

    def __init__(self, name: str, reporter: Reporter, slowness: Slowness) -> None:
        self._name = name
        self._reporter = reporter
        self._slowness = slowness

    def begin(
        self, call: Callable[[Any], Outcome], event: Notification
    ) -> RestOfCall | None:
        """Call it; returns what is left of the call, if it waits for something."""
        try:
            outcome = call(event)
            return None if outcome is None else first_step(outcome)
        except USER_ERRORS as exc:
            self.failed(event, exc)
            return None

    async def finish(
        self, event: Notification, rest: RestOfCall | None, task: asyncio.Task[Any]
    ) -> None:
        """Finish a call that waits for something, or has cancelled its task.

        Cancellation:
            Passed on to the call, and raised when that has ended.
        """
        if rest is not None:
            self._slowness.call_waits(event)
            try:
                await rest
            except asyncio.CancelledError as exc:
                if task.cancelling() > rest.own_cancels:
                    raise  # we are being stopped; else the handler cancelled itself

                self.failed(event, exc)
            except Exception as exc:  # noqa: BLE001 - the user's code, reported
                self.failed(event, exc)
            finally:
                self._slowness.call = None

            if rest.longest > BLOCKING_SECONDS:
                self._slowness.blocked(rest.longest)

        if task.cancelling():
            # Without a wait nobody but the handler can have done that.
            own = task.cancelling() if rest is None else rest.own_cancels
            await _undo_cancelling(task, own)

    def failed(self, event: Notification, cause: BaseException) -> None:
        """A call has failed."""
        self._reporter.failed("handler", self._name, event, cause)


async def _undo_cancelling(task: asyncio.Task[Any], own: int) -> None:
    """Go on after a handler that has cancelled its task, `own` times by itself.

    Raises:
        CancelledError: If somebody else has cancelled it too, and the handler kept
            that for itself.
    """
    for _ in range(own):
        task.uncancel()

    if task.cancelling():
        raise asyncio.CancelledError

    try:
        await asyncio.sleep(0)  # where its cancelling arrives, if it has not yet
    except asyncio.CancelledError:
        if task.cancelling():
            raise
