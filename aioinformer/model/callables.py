"""What a user hands in to be called: whether it can be, as it is going to be."""

from __future__ import annotations

import functools
import inspect
from types import AsyncGeneratorType, GeneratorType
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

__all__ = [
    "check_plain",
    "check_ran",
    "check_runs",
    "check_takes",
    "is_coroutine_function",
]


def check_plain(function: object, what: str, *, may_yield: bool = False) -> None:
    """Refuse what cannot be called, what would have to be awaited, and what yields.

    Args:
        function: What was given: any object with a plain `__call__` will do.
        what: Names it in the error, such as `"a transform"`.
        may_yield: Take a generator function, too: its values are iterated over.

    Raises:
        OptionsError: If it cannot be called, or is a coroutine function, an async
            generator function, or a generator function.
    """
    if not callable(function) or any(
        map(inspect.iscoroutinefunction, _forms(function))
    ):
        raise OptionsError(f"{what} must be a plain function, not {function!r}")

    check_runs(function, what, may_yield=may_yield)


def check_runs(
    function: Callable[..., object], what: str, *, may_yield: bool = False
) -> None:
    """Refuse generator functions: calling one makes a generator, and runs nothing of it.

    Args:
        function: Any callable; of an object its `__call__` counts, and of a partial
            what it is of.
        what: Names it in the error, such as `"a handler"`.
        may_yield: Take a generator function that is not async.

    Raises:
        OptionsError: If it is one.
    """
    for form in _forms(function):
        yields = inspect.isgeneratorfunction(form) and not may_yield
        if yields or inspect.isasyncgenfunction(form):
            raise OptionsError(
                f"{function!r} is a generator: calling it runs nothing of it. "
                f"{what.capitalize()} must not yield."
            )


def check_ran(outcome: object) -> Literal[False]:
    """Refuse what a call returned if it is a generator: nothing of that has run.

    For what could not be seen before the call, such as a lambda that calls a generator
    function.

    Returns:
        False: there is nothing to await, either.

    Raises:
        TypeError: If it is one.
    """
    if isinstance(outcome, GeneratorType | AsyncGeneratorType):
        raise TypeError(
            f"the call returned a generator, {outcome.__qualname__}: nothing of it has run"
        )

    return False


def _forms(function: object) -> Iterator[object]:
    """The functions that a call runs: itself or its `__call__`, inside all partials."""
    while isinstance(function, functools.partial):
        function = function.func

    yield function
    if not isinstance(function, type):  # that of a class is for its instances
        yield getattr(function, "__call__", None)  # noqa: B004 - of an object, its method


def check_takes(function: Callable[..., object], what: str, form: str) -> None:
    """Refuse what would fail at each call, because of its parameters.

    Args:
        function: What was given. If its signature cannot be read, as of some functions
            that are written in C, it passes.
        what: Names it in the error, such as `"a handler"`.
        form: How it is called, such as `"on_update(old, new)"`.

    Raises:
        OptionsError: If it cannot be called like that.
    """
    try:
        signature = inspect.signature(function)
    except ValueError:
        return

    try:
        signature.bind(*[None] * (0 if form.endswith("()") else form.count(",") + 1))
    except TypeError as exc:
        raise OptionsError(f"{what} is called as {form}: {function!r}: {exc}") from None


def is_coroutine_function(
    function: object,
) -> TypeGuard[Callable[..., Awaitable[Any]]]:
    """Whether a call gives a coroutine, as far as can be seen without calling it.

    True of a coroutine function, also a decorated or partial one, and of an object whose
    `__call__` is one.
    """
    if isinstance(function, type) or not callable(function):
        return False  # the `__call__` of a class is that of its instances

    call = getattr(function, "__call__", None)  # noqa: B004 - of an object, its method
    forms = function, inspect.unwrap(function), call
    return any(map(inspect.iscoroutinefunction, forms))
