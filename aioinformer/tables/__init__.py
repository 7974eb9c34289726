"""Tables: the columns that kubectl shows of each resource.

The layouts are those of a real server, and are shared by `aioinformer watch` and the test
server. They are pure: the current time is an argument.

To add a column, extend the resource's `Layout` in `columns_workloads.py` (pods and
everything that creates them) or `columns_cluster.py` (everything else), and append the
value to the list that its cell function returns.
"""

from aioinformer.tables.layout import Column, Layout
from aioinformer.tables.layouts import layout_of

__all__ = ["Column", "Layout", "layout_of"]
