"""The tables of custom resources: columns as their definition states them."""

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

# What is shown of a resource whose definition states no columns.
_USUAL: tuple[Mapping[str, Any], ...] = (
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)

# Go's `%v` writes a float in full if the exponent of its first digit is one of these.
_EXPONENTS_IN_FULL = range(-4, 6)

# What Go's conversion of a float to an integer gives where there is no such integer.
_INT64_LEAST = -(2**63)
_INT64 = range(_INT64_LEAST, 2**63)


def custom_layout(columns: Sequence[Mapping[str, Any]]) -> Layout:
    """Make the layout of a custom resource.

    Args:
        columns: Its `additionalPrinterColumns`; the name stands before them. None of
            them: the age.
    """
    stated = columns or _USUAL
    readers = [_reader(text(it, "jsonPath"), text(it, "type")) for it in stated]

    def cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
        return [name(body), *(read(body, now) for read in readers)]

    return Layout((NAME, *map(_column, stated)), cells)


def _column(stated: Mapping[str, Any]) -> Column:
    return Column(
        name=text(stated, "name"),
        type=text(stated, "type"),
        format=text(stated, "format"),
        description=text(stated, "description"),
        priority=number(stated, "priority"),
    )


def _reader(path: str, kind: str) -> Callable[[Mapping[str, Any], datetime], Any]:
    """Return what reads one cell. What cannot be found, or shown as `kind`, is None."""

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
            return _printed(known)
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
    """Read a number as the server does: an integer where it is one of 64 bits."""
    if isinstance(value, float) and value.is_integer() and int(value) in _INT64:
        return int(value)

    if isinstance(value, int) and value not in _INT64:
        return float(value)

    return value


def _printed(value: object) -> str:
    """Write a value as text, as Go prints it."""
    match value:
        case None:
            return "<no value>"
        case str():
            return value
        case bool():
            return str(value).lower()
        case float():
            return _printed_float(value)
        case dict() | list():
            return plain(value, sort=True).decode()
        case _:
            return str(value)


def _printed_float(value: float) -> str:
    exact = Decimal(repr(value))
    if exact.adjusted() in _EXPONENTS_IN_FULL:
        return format(exact, "f")

    digits = len(exact.normalize().as_tuple().digits)
    return f"{value:.{digits - 1}e}"
