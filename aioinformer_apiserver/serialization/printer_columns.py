"""Tables of custom resources, with the printer columns of their definitions."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from aioinformer.tables.cells import moment, name, number, since, text
from aioinformer.tables.layout import NAME, Column, Layout
from aioinformer_apiserver.serialization.jsonpath import JSONPathError, json_path
from aioinformer_apiserver.storage.encoding import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

__all__ = ["custom_layout"]

# Columns of a resource whose definition has none.
_USUAL: tuple[Mapping[str, Any], ...] = (
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)

# Go's `%v` formats floats with these exponents without an exponent.
_EXPONENTS_IN_FULL = range(-4, 6)

# Result of Go's conversion of a float to an integer that is out of range.
_INT64_LEAST = -(2**63)
_INT64 = range(_INT64_LEAST, 2**63)


def custom_layout(columns: Sequence[Mapping[str, Any]]) -> Layout:
    """Make the layout of a custom resource.

    Args:
        columns: `additionalPrinterColumns` of the definition, which follow the name. If
            it has none, the age does.
    """
    definition = columns or _USUAL
    readers = [_reader(text(it, "jsonPath"), text(it, "type")) for it in definition]

    def cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
        return [name(body), *(read(body, now) for read in readers)]

    return Layout((NAME, *map(_column, definition)), cells)


def _column(definition: Mapping[str, Any]) -> Column:
    return Column(
        name=text(definition, "name"),
        type=text(definition, "type"),
        format=text(definition, "format"),
        description=text(definition, "description"),
        priority=number(definition, "priority"),
    )


def _reader(path: str, kind: str) -> Callable[[Mapping[str, Any], datetime], Any]:
    """Return a function that reads one cell; None for a missing or unsuitable value."""

    def read(body: Mapping[str, Any], now: datetime) -> Any:
        try:
            found = json_path(path)(body)
        except JSONPathError:
            return None

        return _cell(kind, found[0], now) if found else None

    return read


def _cell(kind: str, value: object, now: datetime) -> Any:
    match kind, _go_number(value):
        case "string", known:
            return _format(known)
        case "boolean", bool(known):
            return known
        case (("integer" | "number"), bool()):
            return None
        case "integer", (int() | float()) as known:
            return int(known) if int(known) in _INT64 else _INT64_LEAST
        case "number", (int() | float()) as known:
            return known
        case "date", str(known):
            return "<invalid>" if moment(known) is None else since(known, now)
        case _:
            return None


def _go_number(value: object) -> object:
    """Convert a number as the server does: to an integer if it fits into 64 bits."""
    if isinstance(value, float) and value.is_integer() and int(value) in _INT64:
        return int(value)

    if isinstance(value, int) and value not in _INT64:
        return float(value)

    return value


def _format(value: object) -> str:
    """Format a value as Go prints it."""
    match value:
        case None:
            return "<no value>"
        case str():
            return value
        case bool():
            return str(value).lower()
        case float():
            return _format_float(value)
        case dict() | list():
            return plain(value, sort=True).decode()
        case _:
            return str(value)


def _format_float(value: float) -> str:
    exact = Decimal(repr(value))
    if exact.adjusted() in _EXPONENTS_IN_FULL:
        return format(exact, "f")

    digits = len(exact.normalize().as_tuple().digits)
    return f"{value:.{digits - 1}e}"
