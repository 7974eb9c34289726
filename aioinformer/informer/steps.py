"""`Steps`: a coroutine that is watched from outside, step by step, while it is awaited.

What lies between two waits of a coroutine is one step, in which the event loop does not
turn. Whoever watches the steps learns how long the loop stood still, and who has
cancelled the task, at no cost for the code that runs within a step.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator

__all__ = ["Steps"]


class Steps:
    """An awaitable, to be awaited once, by the task that makes it; watches its steps.

    Attributes:
        task: The one that awaits it.
        longest: Seconds of the longest time for which it kept the loop from turning.
        own_cancels: How often it has cancelled the task that it runs in, up to its last
            wait: nobody else can while a step of it runs. What it has taken back of
            others' cancelling is taken off.
    """

    __slots__ = ("_cancels_before", "_coroutine", "longest", "own_cancels", "task")

    def __init__(self, awaitable: Awaitable[Any]) -> None:
        task = asyncio.current_task()
        assert task is not None  # only a task can await it
        self.task: asyncio.Task[Any] = task
        self._coroutine = _coroutine_of(awaitable)
        self._cancels_before = 0
        self.longest = 0.0
        self.own_cancels = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return self._step(self._coroutine.send, None)

    def send(self, value: Any) -> Any:
        """Resume it."""
        return self._step(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        """Raise inside of it, as a cancellation does."""
        return self._step(self._coroutine.throw, *error)

    def close(self) -> None:
        """Give it up."""
        self._coroutine.close()

    def forget_cancels(self) -> None:
        """Count anew from here on; asked by itself, within a step."""
        self.own_cancels = 0
        self._cancels_before = self.task.cancelling()

    def own_cancels_so_far(self) -> int:
        """The same as `own_cancels`, asked by itself: the running step's are in it."""
        cancels = self.task.cancelling() - self._cancels_before
        return max(self.own_cancels + cancels, 0)

    def _step(self, step: Callable[..., Any], *arguments: Any) -> Any:
        self._cancels_before = self.task.cancelling()
        before = perf_counter()
        try:
            return step(*arguments)
        finally:
            self.longest = max(self.longest, perf_counter() - before)
            self.own_cancels = self.own_cancels_so_far()


def _coroutine_of(awaitable: Awaitable[Any]) -> Coroutine[Any, Any, Any]:
    return awaitable if isinstance(awaitable, CoroutineType) else _wait_for(awaitable)


async def _wait_for(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
