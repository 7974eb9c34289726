"""`InformerStatus`: how an informer is doing, at one moment."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["InformerStatus"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InformerStatus:
    """How an informer is doing, at one moment. Times are seconds of the loop's clock."""

    phase: str
    """`"idle"`, `"listing"`, `"watching"`, `"backing off"`, `"stopping"` (handlers go on
    with what waits for them) or `"stopped"`."""

    synced: bool
    """The first complete list is in the store. Never becomes False again."""

    last_contact: float | None
    """When the server last kept us up to date, by an answer or by news; a refusal or a
    failure is none."""

    last_event: float | None
    """When the last change came."""

    age: float | None
    """Seconds since the last contact."""

    resource_version: str
    """The version up to which everything is in the store; empty before the list."""

    restarts: int
    """How often a list or a watch had to be begun again after an error."""

    duplicates: int
    """Events that repeated what was known already."""

    history_resets: int
    """How often the server's versions went backwards."""

    degraded: int
    """Objects and events that were left out because they cannot be read."""

    not_served: bool
    """The server says that it has no such resource."""

    last_error: BaseException | None
    """The last failure of a list or watch, until the next success; of an informer that
    died, what it died of."""

    failures: int
    """How many attempts have failed in a row."""
