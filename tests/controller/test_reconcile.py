"""What may be a reconcile, and what is refused before it fails for each object."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import pytest

from aioinformer.controller.context import with_object
from aioinformer.controller.reconcile import check_reconcile
from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.controller import Context


async def reconcile(request: object, ctx: Context) -> None: ...


class Callee:
    async def __call__(self, request: object, ctx: Context) -> None: ...

    async def method(self, request: object, ctx: Context) -> None: ...

    def plain(self, request: object, ctx: Context) -> None: ...


async def with_more(factory: object, request: object, ctx: Context) -> None: ...


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator as libraries have them: it hands on what it does not await."""

    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(reconcile, id="function"),
        pytest.param(Callee(), id="object"),
        pytest.param(Callee().method, id="method"),
        pytest.param(functools.partial(with_more, None), id="partial"),
        pytest.param(timed(reconcile), id="decorated"),
        pytest.param(with_object(dict)(reconcile), id="with-object"),
        pytest.param(AsyncMock(), id="mock"),
    ],
)
def test_coroutine_functions_are_accepted(function: object) -> None:
    check_reconcile(function)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        pytest.param(None, "async def", id="nothing"),
        pytest.param(Callee().plain, "async def", id="plain"),
        pytest.param(timed(Callee().plain), "async def", id="plain-decorated"),
        pytest.param(Callee, "async def", id="class"),
        pytest.param(with_object(reconcile), "async def", id="no-kind"),  # type: ignore[arg-type]
        pytest.param(with_more, r"reconcile\(request, ctx\)", id="three"),
        pytest.param(
            with_object(dict)(with_more),  # type: ignore[arg-type]
            "missing a required argument: 'ctx'",
            id="three-with-object",
        ),
    ],
)
def test_what_cannot_work_is_refused(function: object, text: str) -> None:
    with pytest.raises(OptionsError, match=text):
        check_reconcile(function)
