"""Calls of the user's functions: coroutines in the loop, plain functions in threads."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from aioinformer._tasks import Notifier, in_thread
from aioinformer._user_code import user_errors
from aioinformer.errors import OptionsError
from aioinformer.model.callables import check_ran, check_runs, is_coroutine_function

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LARGE_BYTES", "Calls", "check_function"]

T = TypeVar("T")

LARGE_BYTES = 2**18
"""Size of a review from which it is computed with in threads."""

MAX_THREADS = 32
"""Maximum number of plain functions that run at the same time."""


class Calls:
    """Caller of functions that knows its threads.

    A cancelled call returns at once, as the API server waits for the answer. The thread
    of a plain function runs on, and takes one of the `MAX_THREADS` places until it ends.
    """

    def __init__(self) -> None:
        self._threads = 0
        self._ended = Notifier()

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function, and return its result.

        Raises:
            Exception: Error of the function.
            OSError: If the operating system cannot start a thread.

        Cancellation:
            Safe. A coroutine is cancelled, a thread is left to itself.
        """
        if is_coroutine_function(function):
            return await function(*arguments)

        result = await self.in_thread(partial(function, *arguments))
        if inspect.isawaitable(result):  # of a lambda, for example
            return await result

        check_ran(result)
        return result

    async def compute(self, function: Callable[[], T], size: int) -> T:
        """Call a function whose duration depends on a size, perhaps in a thread."""
        if size <= LARGE_BYTES:
            return function()

        result: T = await self.in_thread(function)
        return result

    async def in_thread(self, function: Callable[[], Any]) -> Any:
        """Call a plain function in a thread: see `call`."""
        while self._threads >= MAX_THREADS:
            await self._ended.wait()

        loop = asyncio.get_running_loop()

        def tracked() -> tuple[Any, BaseException | None]:
            try:
                return function(), None
            except user_errors() as exc:
                return None, exc
            finally:
                with suppress(RuntimeError):  # the loop has been closed
                    loop.call_soon_threadsafe(self._end)

        self._threads += 1
        try:
            result, failure = await in_thread(tracked)
        except OSError:  # no thread was started
            self._end()
            raise

        try:
            if failure is not None:
                raise failure

            return result
        finally:
            del failure  # it refers to this frame

    async def ended(self) -> None:
        """Wait until all threads have ended. Cancellation: safe."""
        while self._threads:
            await self._ended.wait()

    def _end(self) -> None:
        self._threads -= 1
        self._ended.notify()


def check_function(function: object, arguments: tuple[str, ...], what: str) -> int:
    """Check a function of the user, and return the number of arguments that it takes.

    Args:
        function: Function that takes the first of these arguments, or all.
        arguments: Names of the arguments.
        what: Description for the error, such as `"a webhook"`.

    Raises:
        OptionsError: If it cannot be called so, or is a generator function.
    """
    if not callable(function) or isinstance(function, type):
        raise OptionsError(f"{what} must be a function, not {function!r}")

    check_runs(function, what)
    try:
        signature = inspect.signature(function)
    except ValueError:
        return 1

    for count in range(len(arguments), 0, -1):
        with suppress(TypeError):
            signature.bind(*arguments[:count])
            return count

    form = " or ".join(
        f"f({', '.join(arguments[:count])})" for count in range(1, len(arguments) + 1)
    )
    raise OptionsError(f"{what} must be callable as {form}: {function!r}{signature}")
