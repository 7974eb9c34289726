"""What a table shows of each resource: the columns of kubectl, without asking a server.

They are computed from the cached object, by the rules of a real server, which the API
server of `aioinformer.testing` has, too. Pure: the time of day is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioinformer.cli.fitting import printable
from aioinformer.tables import layout_of

if TYPE_CHECKING:
    from datetime import datetime

    from aioinformer.model import KubeObject
    from aioinformer.model.resource import Resource

__all__ = ["Columns"]


class Columns:
    """The columns of one resource. Custom resources have a name and an age.

    A Secret or ConfigMap shows how many keys it has, and nothing of what they hold.

    Args:
        resource: Whose objects are shown.
        wide: With the columns that kubectl shows for `-o wide` only.
        namespaces: With the namespace in front.
    """

    def __init__(self, resource: Resource, *, wide: bool, namespaces: bool) -> None:
        layout = layout_of(resource)
        self._cells = layout.cells
        self._namespaces = namespaces
        self._shown = [
            number
            for number, column in enumerate(layout.columns)
            if wide or not column.priority
        ]
        names = [layout.columns[number].name.upper() for number in self._shown]
        self.head = ["NAMESPACE", *names] if namespaces else names
        """The names of the columns, left to right."""

    def cells(self, obj: KubeObject, now: datetime) -> list[str]:
        """Return the row of an object: as many texts as there are columns.

        Nothing in them commands a terminal, and none has more than one line.
        """
        values = self._cells(obj.to_dict(), now)
        found = [values[number] for number in self._shown]
        if self._namespaces:
            found.insert(0, obj.namespace)

        return ["" if it is None else printable(str(it)) for it in found]
