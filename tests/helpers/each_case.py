"""Tables of cases within one test, for tests whose setup costs more than their cases."""

from __future__ import annotations

import functools
import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Test = Callable[..., Any]

__all__ = ["each_case"]

_Param: Any = type(pytest.param())


def each_case(names: str, cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test once for all cases, with the same fixtures.

    Use it instead of `pytest.mark.parametrize` where cases do not affect each other, and
    a test or a server for each of them would take most of the time. A failure names its
    case.

    Args:
        names: Names of the arguments, separated by commas.
        cases: Values of the arguments: one value, a tuple, or a `pytest.param`.
    """
    arguments = [name.strip() for name in names.split(",")]
    table = [_values_of(case, len(arguments)) for case in cases]

    def decorate(test: Test) -> Test:
        run: Any

        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def run(**fixtures: Any) -> None:
                for case, values in table:
                    with _named(case):
                        await test(
                            **fixtures, **dict(zip(arguments, values, strict=True))
                        )

        else:

            @functools.wraps(test)
            def run(**fixtures: Any) -> None:
                for case, values in table:
                    with _named(case):
                        test(**fixtures, **dict(zip(arguments, values, strict=True)))

        signature = inspect.signature(test)
        kept = [
            it for name, it in signature.parameters.items() if name not in arguments
        ]
        run.__signature__ = signature.replace(parameters=kept)
        # pytest would look for the arguments of the wrapped test as fixtures.
        del run.__wrapped__
        return run  # type: ignore[no-any-return]

    return decorate


@contextmanager
def _named(case: str) -> Iterator[None]:
    """Add the name of a case to its failure."""
    try:
        yield
    except BaseException as exc:
        exc.add_note(f"Case: {case}")
        raise


def _values_of(case: Any, count: int) -> tuple[str, tuple[Any, ...]]:
    """Return the name and values of a case."""
    if isinstance(case, _Param):
        return str(case.id or case.values), tuple(case.values)

    values = (case,) if count == 1 else tuple(case)
    return repr(case), values
