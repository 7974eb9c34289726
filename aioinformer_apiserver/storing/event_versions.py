"""Events in their two versions: that of the core group, and that of events.k8s.io. Pure.

They say the same in other words. What only the older one knows, how often and when
something happened, the newer one calls deprecated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.schema.go_types import with_zero_values

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["from_core", "to_core"]

_CORE = "io.k8s.api.core.v1.Event"
_NEW = "io.k8s.api.events.v1.Event"

# How the core version calls what the newer one calls otherwise.
_TO_CORE = {
    "deprecatedCount": "count",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedSource": "source",
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
}
_FROM_CORE = {core: new for new, core in _TO_CORE.items()}


def to_core(body: Mapping[str, Any]) -> dict[str, Any]:
    """Say an events.k8s.io/v1 Event as one of the core group."""
    return with_zero_values(
        _CORE, {_TO_CORE.get(name, name): it for name, it in body.items()}
    )


def from_core(body: Mapping[str, Any]) -> dict[str, Any]:
    """Say an Event of the core group as an events.k8s.io/v1 one."""
    return with_zero_values(
        _NEW, {_FROM_CORE.get(name, name): it for name, it in body.items()}
    )
