"""Advice in the `TypeError` of a call whose arguments do not fit.

Python's message says what does not fit. The advice says what to write instead, for
those who know client-go, kubernetes_asyncio, kr8s or lightkube.
"""

from __future__ import annotations

import functools
import inspect
from contextlib import AbstractAsyncContextManager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

from aioinformer.model.resource import Resource
from aioinformer.model.resources import spelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

__all__ = ["ToBeEntered", "keyword_advice", "methods_with_advice", "with_advice"]

F = TypeVar("F", bound="Callable[..., Any]")
C = TypeVar("C", bound=type)
T = TypeVar("T")

_MEANT: Final = {
    "AddFunc": "on_add",
    "UpdateFunc": "on_update",
    "DeleteFunc": "on_delete",
    "allow_watch_bookmarks": "bookmarks",
    "fields": "field_selector",
    "grace_period": "grace_seconds",
    "grace_period_seconds": "grace_seconds",
    "kind": "resource",
    "labels": "label_selector",
    "manifest": "body",
    "namespaces": "namespace",
    "ns": "namespace",
    "obj": "body",
    "patch_type": "type",
    "plural": "resource",
    "propagation_policy": "propagation",
    "resync": "resync_period",
    "resync_seconds": "resync_period",
    "selector": "label_selector",
}
"""Parameters of other clients, and of this one by guess, with their names here."""


def with_advice(function: F) -> F:
    """Decorate a method: say what to write if the arguments of a call do not fit."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            try:
                return await function(*args, **kwargs)
            except TypeError as exc:
                _advise(exc, function, args, kwargs)
                raise

        return cast("F", call_async)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as exc:
            _advise(exc, function, args, kwargs)
            raise

    return cast("F", call)


def methods_with_advice(kind: C) -> C:
    """Decorate all public methods of a class by `with_advice`."""
    for name, method in list(vars(kind).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(kind, name, with_advice(method))

    return kind


class ToBeEntered(AbstractAsyncContextManager[T]):
    """Context manager whose iteration fails with the advice to enter it first.

    Args:
        inner: Context manager that it stands for.
        call: Call that returned it, for the error.
    """

    __slots__ = ("_call", "_inner")

    def __init__(self, inner: AbstractAsyncContextManager[T], call: str) -> None:
        self._inner = inner
        self._call = call

    async def __aenter__(self) -> T:
        return await self._inner.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)

    def __aiter__(self) -> NoReturn:
        raise TypeError(
            f"{self._call} must be entered before an iteration: "
            f"`async with {self._call} as stream:`, then `async for event in stream:`"
        )


def keyword_advice(unknown: Iterable[str], known: Iterable[str]) -> str:
    """Return advice for unknown keyword arguments; empty if there is none.

    Example:
        >>> keyword_advice(["selector"], ["label_selector", "namespace"])
        'Write label_selector= instead of selector=.'
    """
    names = list(known)
    found = []
    for name in unknown:
        meant = _MEANT.get(name, name)
        close = [meant] if meant in names else get_close_matches(name, names, 1)
        found += [f"Write {it}= instead of {name}=." for it in close]

    return " ".join(found)


def _advise(
    error: TypeError,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> None:
    """Add advice to the error of a call, unless the function itself raised it."""
    trace = error.__traceback__
    if trace is None or trace.tb_next is not None:
        return

    parameters = list(inspect.signature(function).parameters)
    unknown = [name for name in kwargs if name not in parameters]
    advice = keyword_advice(unknown, parameters) or _position_advice(
        function.__name__, parameters, args[1:]
    )
    if advice:
        error.args = (f"{error}. {advice}",)


def _position_advice(name: str, parameters: list[str], given: Sequence[Any]) -> str:
    """Return advice for arguments in wrong positions; empty if there is none."""
    names = [it for it in given if isinstance(it, str)]
    match parameters[1:2]:
        case ["api_version"] if len(names) == len(given) == 3 and _is_version(names[1]):
            version = f"{names[0]}/{names[1]}".lstrip("/")
            return f"Write {name}({version!r}, {names[2]!r})."
        case ["api_version"] if len(names) == len(given) == 3:
            return f"Pass further arguments by name, such as namespace={names[2]!r}."
        case ["resource"] if given and not isinstance(given[0], Resource):
            return (
                f"The first argument of {name}() is a Resource: {spelled(*names[:2])}."
            )
        case ["resource"] if len(given) > 1:
            return "Pass further arguments by name, such as namespace=."
        case _:
            return ""


def _is_version(text: str) -> bool:
    return text[:1] == "v" and text[1:2].isdigit()
