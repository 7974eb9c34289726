"""Plain handlers that are called in a thread, because they block."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.informer.notifications import Notification

__all__ = ["ThreadCalls"]

logger = logging.getLogger(__name__)


class ThreadCalls:
    """One thread for one handler, begun with its first call.

    Of its own, and not one of the loop's: a handler that never returns would take one of
    those from the program that embeds us.

    Args:
        name: The handler's.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._executor: ThreadPoolExecutor | None = None

    def wrap(self, call: Callable[[Any], object]) -> Callable[[Any], Awaitable[None]]:
        """The same call, made in the thread and awaited in the loop."""

        def in_thread(event: Notification) -> Awaitable[None]:
            return self._call(call, event)

        return in_thread

    def close(self) -> None:
        """End the thread when its call has ended. Waits for nothing; idempotent."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)

    async def _call(self, call: Callable[[Any], object], event: Notification) -> None:
        """Call it, with the context variables of the loop's side.

        Cancellation:
            Not of the call: nobody can end a thread. It goes on unattended, and is
            warned of.
        """
        if self._executor is None:
            self._executor = ThreadPoolExecutor(
                1, thread_name_prefix=f"handler {self._name}"
            )

        context = contextvars.copy_context()
        running = self._executor.submit(context.run, _failure_of, call, event)
        try:
            failure = await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if not running.cancel() and not running.done():
                logger.warning(
                    "handler %s is left alone in its thread: it has not returned from "
                    "%r in time",
                    self._name,
                    event,
                )

            raise

        if failure is not None:
            raise failure


def _failure_of(call: Callable[[Any], object], event: Notification) -> Exception | None:
    """Call it; what it raised is returned, as a future cannot raise a StopIteration."""
    try:
        outcome = call(event)
    except Exception as exc:  # noqa: BLE001 - the user's code, raised by who waits
        return exc

    if not isinstance(outcome, Awaitable):
        return None

    close = getattr(outcome, "close", None)
    if close is not None:
        close()  # or it would be complained of once more, as never awaited

    return TypeError("a handler with thread=True must be plain, not async")
