"""A user's handlers, plain or async, behind one call for each kind of notification."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import isasyncgenfunction, isgeneratorfunction
from time import perf_counter
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from aioinformer.errors import OptionsError
from aioinformer.informer.notifications import Added, Deleted, Notification, Updated

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from aioinformer.model.objects import KubeObject

__all__ = ["Handlers", "Outcome", "RestOfCall", "Steps", "first_step"]

Outcome: TypeAlias = Awaitable[Any] | None
Call: TypeAlias = Callable[[Any], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """What to call for which notification: either `on_event`, or some of the others."""

    on_add: Callable[[KubeObject], Outcome] | None = None
    """Called with the object."""

    on_update: Callable[[KubeObject, KubeObject], Outcome] | None = None
    """Called with the old and the new state."""

    on_delete: Callable[[KubeObject], Outcome] | None = None
    """Called with the last state."""

    on_event: Callable[[Notification], Outcome] | None = None
    """Called with the `Added`, `Updated` or `Deleted` itself, which has the flags."""

    def __post_init__(self) -> None:
        specific = (self.on_add, self.on_update, self.on_delete)
        if (self.on_event is None) == (specific == (None, None, None)):
            raise OptionsError(
                "give either on_event, or some of on_add, on_update and on_delete"
            )

        for call in (*specific, self.on_event):
            if call is not None and not callable(call):
                raise OptionsError(f"{call!r} cannot be called: not a handler")

            if call is not None and _is_generator(call):
                raise OptionsError(f"{call!r} is a generator: calling it does nothing")

    def functions(self) -> list[Callable[..., Outcome]]:
        """Those that were given."""
        given = (self.on_add, self.on_update, self.on_delete, self.on_event)
        return [function for function in given if function is not None]

    def describe(self) -> str:
        """A name for the log, made of the functions' own names."""
        names = [
            str(getattr(function, "__qualname__", type(function).__qualname__))
            for function in self.functions()
        ]
        return "+".join(dict.fromkeys(names))

    def calls(self) -> dict[type, Call]:
        """For each kind of notification that is wanted, what to call with it."""
        if self.on_event is not None:
            return dict.fromkeys((Added, Updated, Deleted), self.on_event)

        calls: dict[type, Call] = {}
        if (on_add := self.on_add) is not None:
            calls[Added] = lambda event: on_add(event.obj)

        if (on_update := self.on_update) is not None:
            calls[Updated] = lambda event: on_update(event.old, event.new)

        if (on_delete := self.on_delete) is not None:
            calls[Deleted] = lambda event: on_delete(event.obj)

        return calls


def _is_generator(call: object) -> bool:
    """True if calling it runs nothing of it; of an object, its `__call__` counts."""
    functions = (call, getattr(call, "__call__", None))  # noqa: B004 - not a test
    return any(isgeneratorfunction(it) or isasyncgenfunction(it) for it in functions)


def first_step(outcome: object) -> RestOfCall | None:
    """Run an async handler up to where it first has to wait.

    Most do not wait at all; then this is as cheap as a plain call, and nothing has been
    given away of the running slice of the loop.

    What cannot be awaited is the result of a plain handler, and means nothing.

    Returns:
        None if it is finished, else what is left: to be awaited at once, by the same
        task.
    """
    # Asked first, at a tenth of what it costs to look for the protocol.
    if isinstance(outcome, CoroutineType):
        coroutine: Coroutine[Any, Any, Any] = outcome
    elif isinstance(outcome, Awaitable):
        coroutine = _wait_for(outcome)
    else:
        return None

    try:
        waits_for = coroutine.send(None)
    except StopIteration:
        return None

    return RestOfCall(coroutine, waits_for)


def _coroutine_of(outcome: Awaitable[Any]) -> Coroutine[Any, Any, Any]:
    return outcome if isinstance(outcome, CoroutineType) else _wait_for(outcome)


async def _wait_for(outcome: Awaitable[Any]) -> Any:
    return await outcome


class Steps:
    """What a user's call has returned, to be awaited once; watches over its steps.

    Attributes:
        longest: Seconds of the longest time for which it kept the loop from turning.
        own_cancels: How often it has cancelled the task that it runs in: nobody else
            can while a step of it runs.
    """

    __slots__ = ("_coroutine", "longest", "own_cancels")

    def __init__(self, outcome: Awaitable[Any]) -> None:
        self._coroutine = _coroutine_of(outcome)
        self.longest = 0.0
        self.own_cancels = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        """Resume it."""
        return self._step(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        """Raise inside of it, as a cancellation does."""
        return self._step(self._coroutine.throw, *error)

    def close(self) -> None:
        """Give it up."""
        self._coroutine.close()

    def _step(self, step: Callable[..., Any], *arguments: Any) -> Any:
        cancels = _cancels()
        before = perf_counter()
        try:
            return step(*arguments)
        finally:
            self.longest = max(self.longest, perf_counter() - before)
            self.own_cancels = max(self.own_cancels + _cancels() - cancels, 0)


class RestOfCall(Steps):
    """The rest of a coroutine, behind its first wait."""

    __slots__ = ("_waits_for",)

    def __init__(self, coroutine: Coroutine[Any, Any, Any], waits_for: Any) -> None:
        super().__init__(coroutine)
        # What the first step yielded, for the task to wait for: in a tuple until it
        # has been handed on, because None is a possible value.
        self._waits_for: tuple[Any] | None = (waits_for,)
        self.own_cancels = _cancels()  # the first step's

    def send(self, value: Any) -> Any:
        """Resume it; the first time, hand on what it waits for already."""
        if self._waits_for is not None:
            (first,) = self._waits_for
            self._waits_for = None
            return first

        return super().send(value)


def _cancels() -> int:
    """How often the running task has been asked to end."""
    task = asyncio.current_task()
    assert task is not None  # handlers are called in tasks
    return task.cancelling()
