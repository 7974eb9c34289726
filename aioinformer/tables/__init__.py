"""Printing: what a server shows of each kind in a table, for people to read.

The columns and the texts in them are those of a real server. Pure: the time of day is
given, nothing is looked up.
"""

from aioinformer.tables.columns import Column, Layout
from aioinformer.tables.tables import layout_of

__all__ = ["Column", "Layout", "layout_of"]
