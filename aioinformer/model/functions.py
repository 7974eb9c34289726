"""What a user hands in to be called: whether it can be, as it is going to be."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypeGuard

from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["check_plain", "check_takes", "is_coroutine_function"]


def check_plain(function: object, what: str) -> None:
    """Refuse what cannot be called, and what would have to be awaited.

    Args:
        function: What was given: any object with a plain `__call__` will do.
        what: Names it in the error, such as `"a transform"`.

    Raises:
        OptionsError: If it cannot be called, or is a coroutine function.
    """
    call = getattr(function, "__call__", None)  # noqa: B004 - of an object, its method
    if not callable(function) or any(
        map(inspect.iscoroutinefunction, (function, call))
    ):
        raise OptionsError(f"{what} must be a plain function, not {function!r}")


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
