"""What a user hands in to be called: a plain function, which nobody waits for."""

from __future__ import annotations

from inspect import iscoroutinefunction

from aioinformer.errors import OptionsError

__all__ = ["check_plain"]


def check_plain(function: object, what: str) -> None:
    """Refuse what cannot be called, and what would have to be awaited.

    Args:
        function: What was given: any object with a plain `__call__` will do.
        what: Names it in the error, such as `"a transform"`.

    Raises:
        OptionsError: If it cannot be called, or is a coroutine function.
    """
    call = getattr(function, "__call__", None)  # noqa: B004 - of an object, its method
    if not callable(function) or any(map(iscoroutinefunction, (function, call))):
        raise OptionsError(f"{what} must be a plain function, not {function!r}")
