"""Tables of cases within one test, for tests whose set-up costs more than their cases."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["each_case"]

T = TypeVar("T", bound="Callable[..., Any]")

_Param: Any = type(pytest.param())


def each_case(
    names: str, cases: Iterable[Any], ids: Iterable[Any] | None = None
) -> Callable[[T], T]:
    """Run a test, plain or async, for all cases with the same fixtures.

    Use it instead of `pytest.mark.parametrize` where cases do not affect each other, and
    setting up a test for each of them would take most of the time. All cases run. Each
    failure names its case.

    Args:
        names: Names of the arguments, separated by commas.
        cases: Values of the arguments: one value, a tuple, or a `pytest.param`.
        ids: Names of the cases; None for those of `pytest.param`, or the values.
    """
    arguments = [name.strip() for name in names.split(",")]
    table = [_values_of(case, len(arguments)) for case in cases]
    if ids is not None:
        table = [(str(it), row[1]) for it, row in zip(ids, table, strict=True)]

    rows = [(case, dict(zip(arguments, values, strict=True))) for case, values in table]

    def decorate(test: T) -> T:
        @functools.wraps(test)
        async def run_async(**fixtures: Any) -> None:
            failures: list[BaseException] = []
            for case, values in rows:
                try:
                    await test(**fixtures, **values)
                except _FAILURES as exc:
                    exc.add_note(f"Case: {case}")
                    failures.append(exc)

            _raise(failures)

        @functools.wraps(test)
        def run_plain(**fixtures: Any) -> None:
            failures: list[BaseException] = []
            for case, values in rows:
                try:
                    test(**fixtures, **values)
                except _FAILURES as exc:
                    exc.add_note(f"Case: {case}")
                    failures.append(exc)

            _raise(failures)

        run: Any = run_async if inspect.iscoroutinefunction(test) else run_plain
        signature = inspect.signature(test)
        kept = [
            it for name, it in signature.parameters.items() if name not in arguments
        ]
        run.__signature__ = signature.replace(parameters=kept)
        # pytest would look for the arguments of the wrapped test as fixtures.
        del run.__wrapped__
        return run  # type: ignore[no-any-return]

    return decorate


# `pytest.fail()` raises an exception that is not an `Exception`.
_FAILURES = (Exception, pytest.fail.Exception)


def _raise(failures: list[BaseException]) -> None:
    if len(failures) == 1:
        raise failures[0]

    if failures:
        raise BaseExceptionGroup(f"{len(failures)} cases failed", failures)


def _values_of(case: Any, count: int) -> tuple[str, tuple[Any, ...]]:
    """Return the name and values of a case."""
    if isinstance(case, _Param):
        return str(case.id or case.values), tuple(case.values)

    values = (case,) if count == 1 else tuple(case)
    return repr(case), values
