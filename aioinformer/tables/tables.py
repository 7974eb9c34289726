"""Tables: how a kind is shown to people, row by row.

A server makes the table, so that a client can show kinds that it knows nothing about.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioinformer.tables.cells import name, text
from aioinformer.tables.columns import NAME, Column, Layout
from aioinformer.tables.columns_apps import APPS_LAYOUTS
from aioinformer.tables.columns_core import CORE_LAYOUTS
from aioinformer.tables.columns_more import MORE_LAYOUTS
from aioinformer.tables.columns_pods import POD_LAYOUTS
from aioinformer.tables.columns_scaling import SCALING_LAYOUTS
from aioinformer.tables.columns_storage import STORAGE_LAYOUTS
from aioinformer.tables.custom import custom_layout

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from aioinformer.model.resource import Resource
    from aioinformer_apiserver.storage.kinds import Kind

__all__ = ["layout_of"]

_LAYOUTS: dict[Resource, Layout] = {
    **POD_LAYOUTS,
    **CORE_LAYOUTS,
    **APPS_LAYOUTS,
    **MORE_LAYOUTS,
    **SCALING_LAYOUTS,
    **STORAGE_LAYOUTS,
}

_ZERO_TIME = "0001-01-01T00:00:00Z"


def layout_of(kind: Kind) -> Layout:
    """Return how the table of a kind is made."""
    if not kind.typed:
        return custom_layout(kind.columns)

    layout = _LAYOUTS.get(kind.stored, _PLAIN)
    if kind.stored_as is None:
        return layout

    return replace(layout, cells=lambda it, now: layout.cells(_kept(kind, it), now))


def _kept(kind: Kind, body: Mapping[str, Any]) -> dict[str, Any]:
    return kind.to_storage(dict(body))


def _plain_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    del now
    return [name(body), text(body, "metadata", "creationTimestamp") or _ZERO_TIME]


# For kinds of which nobody has said what people want to know.
_PLAIN = Layout((NAME, Column(name="Created At", type="date")), _plain_cells)
