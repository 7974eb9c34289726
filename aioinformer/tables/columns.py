"""Columns of resources, as in kubectl, and the texts of their cells. Pure.

Cells are computed from cached objects. Columns that kubectl has are in the layouts of this
package, others are added here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer.errors import DecodeError
from aioinformer.tables import layout_of
from aioinformer.tables.cells import age

if TYPE_CHECKING:
    from datetime import datetime

    from aioinformer.model import KubeObject
    from aioinformer.model.resource import Resource

__all__ = ["ELLIPSIS", "Columns", "harmless", "printable"]

ELLIPSIS = "…"
"""End of a text that is cut."""

_METADATA_ONLY = "PartialObjectMetadata"


class Columns:
    """Columns of one resource. Custom resources have a name and an age.

    A Secret or ConfigMap shows the number of its keys, and no data. Objects of which only
    the metadata is known, or that cannot be decoded, show what is known.

    Args:
        resource: Resource of the objects.
        wide: True to include the columns of `kubectl -o wide`.
        namespaces: True to start with a namespace column.
        longest: Maximum number of characters of a cell; None for no limit.
    """

    def __init__(
        self,
        resource: Resource,
        *,
        wide: bool,
        namespaces: bool,
        longest: int | None = None,
    ) -> None:
        layout = layout_of(resource)
        self._longest = longest
        self._cells = layout.cells
        self._namespaces = namespaces
        self._shown = [
            number
            for number, column in enumerate(layout.columns)
            if wide or not column.priority
        ]
        self._names = [layout.columns[number].name.upper() for number in self._shown]
        self.head: list[str] = [*(["NAMESPACE"] if namespaces else []), *self._names]
        """Names of the columns, left to right."""

    def cells(self, obj: KubeObject, now: datetime) -> list[str]:
        """Return the row of an object, one text for each column.

        Texts have one line, and no control characters.
        """
        body = _body_of(obj)
        found: list[Any]
        if body.get("kind") == _METADATA_ONLY:
            known = {"NAME": obj.name, "AGE": age(body, now)}
            found = [known.get(name) for name in self._names]
        else:
            values = self._cells(body, now)
            found = [values[number] for number in self._shown]

        if self._namespaces:
            found.insert(0, obj.namespace)

        longest = self._longest
        return ["" if it is None else printable(str(it), longest) for it in found]


def _body_of(obj: KubeObject) -> dict[str, Any]:
    """Return the body of an object, or what is known without it."""
    try:
        return obj.to_dict()
    except DecodeError:
        return {"kind": _METADATA_ONLY}


def printable(text: str, longest: int | None = None) -> str:
    """Return the first line of a text, without control characters.

    The author of an event must not be able to move the user's cursor.

    Args:
        text: Text to show.
        longest: Maximum number of characters; None for no limit.
    """
    first, _, rest = text.partition("\n")
    first = first.rstrip("\r")
    if longest is not None and len(first) + bool(rest) > longest:
        first, rest = first[: longest - 1], ELLIPSIS

    first = harmless(first)
    return f"{first}{ELLIPSIS}" if rest else first


def harmless(text: str) -> str:
    """Replace characters that control a terminal by U+FFFD. Line ends are kept.

    These are all that are not `str.isprintable()`: control characters of both sets
    (ESC, BEL, CSI), directional marks, separators, surrogates, and unassigned
    characters.
    """
    if text.replace("\n", "").isprintable():
        return text

    return "".join(
        it if it.isprintable() or it == "\n" else "\N{REPLACEMENT CHARACTER}"
        for it in text
    )
