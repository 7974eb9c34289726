"""Informer statuses for tests of the command."""

from __future__ import annotations

from aioinformer.informer import InformerStatus

__all__ = ["status"]


def status(error: Exception | None) -> InformerStatus:
    return InformerStatus(
        phase="watching",
        synced=True,
        last_contact=1.0,
        last_event=None,
        age=0.0,
        resource_version="7",
        restarts=0,
        duplicates=0,
        history_resets=0,
        degraded=0,
        not_served=False,
        last_error=error,
        failures=0 if error is None else 1,
    )
