"""Event sources: requests for changes outside of the cluster.

A source is an async generator function that yields keys or requests:

    async def poll_billing() -> AsyncIterator[str]:
        while True:
            for account in await changed_accounts():
                yield f"shop/{account}"

            await asyncio.sleep(30)

    Controller("sites", reconcile, for_=sites, sources={"billing": poll_billing})
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from aioinformer._user_code import user_errors
from aioinformer.controller.reconcile import ReconcileRequest
from aioinformer.controller.source import request_of
from aioinformer.errors import AioInformerError, OptionsError
from aioinformer.model.callables import check_takes, is_coroutine_function

if TYPE_CHECKING:
    from aioinformer.informer.handlers.error_reporter import ErrorReporter

__all__ = ["EventSource", "event_sources_of", "read_events"]

EventSource: TypeAlias = (
    AsyncIterable[ReconcileRequest | str]
    | Callable[[], AsyncIterable[ReconcileRequest | str]]
)
"""Async iterable of requests or keys, or a function that returns one."""

ITEMS_PER_TURN = 64
"""Number of items after which other tasks run, even if the source never waits."""


def event_sources_of(given: Mapping[str, EventSource]) -> dict[str, EventSource]:
    """Return the option `Controller(sources=)`.

    Raises:
        OptionsError: If the option is invalid.
    """
    if not isinstance(given, Mapping):
        raise OptionsError(
            "sources= takes a dict of names and async generator functions, not "
            f"{given!r}"
        )

    for name, source in given.items():
        _check(name, source)

    return dict(given)


def _check(name: object, source: object) -> None:
    if not isinstance(name, str) or not name:
        raise OptionsError(f"a name in sources= must be a text, not {name!r}")

    if inspect.isasyncgen(source):
        raise OptionsError(
            f"source {name} is an async generator, which can be read only once: pass the "
            f"function {source.__name__}, without calling it"
        )

    if isinstance(source, AsyncIterable):
        return

    wrong = is_coroutine_function(source) or inspect.isgeneratorfunction(source)
    if not callable(source) or wrong:
        raise OptionsError(
            f"source {name} must be an async generator function (`async def` with "
            f"`yield`), or an async iterable, not {source!r}"
        )

    check_takes(source, f"source {name}", f"{name}()")


async def read_events(
    name: str,
    source: EventSource,
    add: Callable[[ReconcileRequest], None],
    reporter: ErrorReporter,
) -> None:
    """Read a source until it ends or raises.

    Args:
        name: Name of the source.
        source: Source to open and read.
        add: Function called with each request.
        reporter: Reporter of invalid items, which are dropped.

    Raises:
        AioInformerError: If the source has ended.
        BaseException: Exception of the source.

    Cancellation:
        The source is closed.
    """
    iterator = aiter(source() if callable(source) else source)
    number = 0
    try:
        async for item in iterator:
            try:
                request = request_of(item, "a source must yield")
            except user_errors() as exc:
                reporter.failed("source", name, item, exc)
            else:
                add(request)

            number += 1
            if not number % ITEMS_PER_TURN:
                await asyncio.sleep(0)
    finally:
        close = getattr(iterator, "aclose", None)
        if close is not None:
            await close()

    raise AioInformerError(
        f"source {name} has ended: it is opened again, but should yield until it is "
        "cancelled"
    )
