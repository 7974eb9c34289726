"""Tables: the columns that kubectl shows of each resource.

The layouts are those of a real server, and are shared by `aioinformer watch` and the
test server. They are pure: the current time is an argument.

`pod_trouble` says in a line what is wrong with a pod. `columns.py` makes texts of the
cells, and `rows.py` has the order, filter and marks of a live table.

To add a column, extend the resource's `Layout` in `columns_workloads.py` (pods and
everything that creates them) or `columns_cluster.py` (everything else), and append the
value to the list that its cell function returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer.model import resources
from aioinformer.tables.cells import age, name, text
from aioinformer.tables.columns_cluster import CLUSTER_LAYOUTS
from aioinformer.tables.columns_workloads import WORKLOAD_LAYOUTS
from aioinformer.tables.layout import AGE, NAME, Column, Layout
from aioinformer.tables.pod_status import pod_trouble

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from aioinformer.model.resource import Resource

__all__ = ["Column", "Layout", "layout_of", "pod_trouble"]

_LAYOUTS = WORKLOAD_LAYOUTS | CLUSTER_LAYOUTS
_BUILT_IN = frozenset(resources.built_in_resources())
_ZERO_TIME = "0001-01-01T00:00:00Z"


def layout_of(resource: Resource) -> Layout:
    """Return the table layout of a resource.

    Returns:
        Columns of kubectl for a built-in resource; name and age for a custom one.
    """
    other = _BUILT_IN_LAYOUT if resource in _BUILT_IN else _CUSTOM_LAYOUT
    return _LAYOUTS.get(resource, other)


def _built_in_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    del now
    return [name(body), text(body, "metadata", "creationTimestamp") or _ZERO_TIME]


def _custom_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    return [name(body), age(body, now)]


# For built-in resources without columns of their own.
_BUILT_IN_LAYOUT = Layout(
    (NAME, Column(name="Created At", type="date")), _built_in_cells
)
_CUSTOM_LAYOUT = Layout((NAME, AGE), _custom_cells)
