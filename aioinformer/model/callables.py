"""Checks of callables that users pass in."""

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
    """Reject anything but a plain function.

    Args:
        function: Function, or any object with a plain `__call__`.
        what: Description for the error, such as `"a transform"`.
        may_yield: Also accept a generator function, whose values are iterated over.

    Raises:
        OptionsError: If it is not callable, or is a coroutine function, an async
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
    """Reject generator functions, whose call does not run their body.

    Args:
        function: Any callable. Of an object its `__call__` counts, of a partial the
            underlying function.
        what: Description for the error, such as `"a handler"`.
        may_yield: Accept generator functions that are not async.

    Raises:
        OptionsError: If it is a generator function.
    """
    for form in _forms(function):
        yields = inspect.isgeneratorfunction(form) and not may_yield
        if yields or inspect.isasyncgenfunction(form):
            raise OptionsError(
                f"{function!r} is a generator function, whose call does not run its body. "
                f"{what.capitalize()} must not yield."
            )


def check_ran(outcome: object) -> Literal[False]:
    """Reject the result of a call if it is a generator, whose body has not run.

    For cases that cannot be detected before the call, such as a lambda that calls a
    generator function.

    Returns:
        False: there is nothing to await, either.

    Raises:
        TypeError: If it is a generator.
    """
    if isinstance(outcome, GeneratorType | AsyncGeneratorType):
        raise TypeError(
            f"the call returned a generator, {outcome.__qualname__}, which has not run"
        )

    return False


def _forms(function: object) -> Iterator[object]:
    """Yield the functions that a call runs: itself or its `__call__`, inside partials."""
    while isinstance(function, functools.partial):
        function = function.func

    yield function
    if not isinstance(function, type):  # that of a class is for its instances
        yield getattr(function, "__call__", None)  # noqa: B004 - of an object, its method


def check_takes(function: Callable[..., object], what: str, form: str) -> None:
    """Reject a callable whose parameters do not fit its calls.

    Args:
        function: Any callable. It passes if its signature cannot be read, as of some
            functions written in C.
        what: Description for the error, such as `"a handler"`.
        form: Form of the call, such as `"on_update(old, new)"`.

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
        raise OptionsError(
            f"{what} must be callable as {form}: {function!r}: {exc}"
        ) from None


def is_coroutine_function(
    function: object,
) -> TypeGuard[Callable[..., Awaitable[Any]]]:
    """Return whether a call returns a coroutine, as far as known without calling it.

    True for coroutine functions, also decorated or partial ones, and for objects whose
    `__call__` is one.
    """
    if isinstance(function, type) or not callable(function):
        return False  # the `__call__` of a class is that of its instances

    call = getattr(function, "__call__", None)  # noqa: B004 - of an object, its method
    forms = function, inspect.unwrap(function), call
    return any(map(inspect.iscoroutinefunction, forms))
