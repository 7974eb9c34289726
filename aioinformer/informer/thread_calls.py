"""Plain handlers that are called in a thread, because they block."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

from aioinformer._user_code import guarded_logger, user_errors
from aioinformer.model.callables import check_ran

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.informer.notifications import Notification

__all__ = ["ThreadCalls"]

logger = guarded_logger(__name__)

Work: TypeAlias = "tuple[Future[BaseException | None], Callable[[], object]]"


class ThreadCalls:
    """One thread for one handler, begun with its first call.

    Of its own, and not one of the loop's: a handler that never returns would take one of
    those from the program that embeds us. And a daemon, as a call that never returns
    would keep the process from ending.

    Args:
        name: The handler's.
        failed: Told of what a call raises, with what it was called with.
    """

    def __init__(
        self, name: str, failed: Callable[[Notification, BaseException], None]
    ) -> None:
        self._name = name
        self._failed = failed
        # What the thread is to do; None in it ends the thread.
        self._works: SimpleQueue[Work | None] | None = None

    def wrap(self, call: Callable[[Any], object]) -> Callable[[Any], Awaitable[None]]:
        """The same call, made in the thread and awaited in the loop."""

        def in_thread(event: Notification) -> Awaitable[None]:
            return self._call(call, event)

        return in_thread

    def close(self) -> None:
        """End the thread when its call has ended. Waits for nothing; idempotent."""
        works, self._works = self._works, None
        if works is not None:
            works.put(None)

    async def _call(self, call: Callable[[Any], object], event: Notification) -> None:
        """Call it, with the context variables of the loop's side.

        Cancellation:
            Not of the call: nobody can end a thread. It goes on unattended, and is
            warned of.
        """
        if self._works is None:
            self._works = _begin_thread(f"handler {self._name}")

        context = contextvars.copy_context()
        outcome: Future[BaseException | None] = Future()
        self._works.put((outcome, lambda: context.run(_call_plain, call, event)))
        try:
            failure = await asyncio.wrap_future(outcome)
        except asyncio.CancelledError:
            if not outcome.cancel() and not outcome.done():
                logger.warning(
                    "handler %s is left alone in its thread: it has not returned from "
                    "%r in time",
                    self._name,
                    event,
                )

            raise

        if failure is not None:
            # Not raised: a coroutine cannot raise a StopIteration.
            self._failed(event, failure)


def _begin_thread(name: str) -> SimpleQueue[Work | None]:
    works: SimpleQueue[Work | None] = SimpleQueue()
    threading.Thread(target=_do, args=(works,), name=name, daemon=True).start()
    return works


def _do(works: SimpleQueue[Work | None]) -> None:
    """The thread: what is asked for, one after the other, until it is None."""
    while (work := works.get()) is not None:
        outcome, call = work
        del work
        failure = None
        running = outcome.set_running_or_notify_cancel()
        if running:
            try:
                failure = _failure_of(call)
            except BaseException as exc:  # it ends the program, from the loop's side
                outcome.set_exception(exc)
                raise

        # Once the loop's side goes on, and while it waits for more, it keeps nothing.
        del call
        if running:
            outcome.set_result(failure)

        del outcome, failure


def _failure_of(call: Callable[[], object]) -> BaseException | None:
    try:
        call()
    except user_errors() as exc:
        return exc

    return None


def _call_plain(call: Callable[[Any], object], event: Notification) -> None:
    """Call it.

    Raises:
        TypeError: The handler returned an awaitable or a generator.
        BaseException: What it raised.
    """
    outcome = call(event)
    if not isinstance(outcome, Awaitable):
        check_ran(outcome)
        return

    close = getattr(outcome, "close", None)
    if close is not None:
        close()  # or it would be complained of once more, as never awaited

    raise TypeError("a handler with thread=True must be plain, not async")
