"""Columns and layout of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

__all__ = ["AGE", "NAME", "Cells", "Column", "Layout", "integers", "texts"]

Cells = Callable[[Mapping[str, Any], datetime], list[Any]]
"""Function that returns the cells of an object, given the current time. Any field may
be
missing: a bookmark is shown as the row of an empty object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column, as described to clients."""

    name: str
    type: str = "string"
    """`string`, `integer`, `number`, `boolean` or `date`."""

    format: str = ""
    """Interpretation of the type; `name` marks the column that identifies an object."""

    description: str = ""
    """Description for users. Empty for built-in kinds, as the API reference has it."""

    priority: int = 0
    """0 to show it always, 1 only in wide tables."""

    def definition(self) -> dict[str, Any]:
        """Return the entry in `columnDefinitions`."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of the table of one kind.

    Attributes:
        columns: Columns from left to right.
        cells: Function that returns the cells of a row, one for each column.
        conditions: Function that returns the conditions of a row, such as that a pod
            has completed; None for no conditions.
    """

    columns: tuple[Column, ...]
    cells: Cells
    conditions: Callable[[Mapping[str, Any]], list[dict[str, str]]] | None = None

    def definitions(self) -> list[dict[str, Any]]:
        """Return the `columnDefinitions`."""
        return [column.definition() for column in self.columns]


NAME = Column(name="Name", format="name")
AGE = Column(name="Age")


def texts(*names: str, wide: bool = False) -> tuple[Column, ...]:
    """Return columns of text. Wide ones are shown only on request."""
    return tuple(Column(name=name, priority=int(wide)) for name in names)


def integers(*names: str) -> tuple[Column, ...]:
    """Return columns of numbers."""
    return tuple(Column(name=name, type="integer") for name in names)
