"""Columns: what the table of a kind consists of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

__all__ = ["AGE", "NAME", "Cells", "Column", "Layout", "integers", "texts"]

Cells = Callable[[Mapping[str, Any], datetime], list[Any]]
"""What a row says of an object, given the time of day. The object may lack anything: a
bookmark is shown as a row too, of an empty one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column, as clients are told about it."""

    name: str
    type: str = "string"
    """`string`, `integer`, `number`, `boolean` or `date`."""

    format: str = ""
    """How to read the type; `name` marks what identifies an object."""

    description: str = ""
    """For people. Empty for the built-in kinds, where it would only repeat the API's
    reference."""

    priority: int = 0
    """0 is shown always, 1 only in wide tables."""

    def definition(self) -> dict[str, Any]:
        """Return what stands in `columnDefinitions`."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


@dataclass(frozen=True, slots=True)
class Layout:
    """How the table of one kind is made.

    Attributes:
        columns: Left to right.
        cells: Makes a row; as many values as there are columns.
        conditions: What is said of a row as a whole, such as that a pod is over.
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
    """Make columns of text; wide ones are shown on request only."""
    return tuple(Column(name=name, priority=int(wide)) for name in names)


def integers(*names: str) -> tuple[Column, ...]:
    """Make columns of numbers."""
    return tuple(Column(name=name, type="integer") for name in names)
