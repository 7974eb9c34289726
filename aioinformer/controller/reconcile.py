"""`Reconcile`: the coroutine function that a user writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from aioinformer.controller.context import Context
from aioinformer.controller.request import ReconcileRequest
from aioinformer.controller.result import Result
from aioinformer.errors import OptionsError
from aioinformer.model.callables import check_runs, check_takes, is_coroutine_function

__all__ = ["Reconcile", "check_reconcile"]

Reconcile: TypeAlias = Callable[[ReconcileRequest, Context], Awaitable[Result | None]]
"""Brings an object to its desired state; see `Controller` for what becomes of that."""


def check_reconcile(reconcile: object) -> None:
    """Refuse what no reconcile can be, before it fails for each object.

    Raises:
        OptionsError: If it is no coroutine function, nor an object whose `__call__` is
            one, nor a decorated one; if it is a generator; or if it does not take two
            arguments.
    """
    if not is_coroutine_function(reconcile):
        raise OptionsError(
            f"a reconcile is a coroutine function, `async def`, not {reconcile!r}"
        )

    check_runs(reconcile, "a reconcile")
    check_takes(reconcile, "a reconcile", "reconcile(request, ctx)")
