"""The filter of a handler: what it is told of changes of which it wants only some."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioinformer._user_code import user_errors
from aioinformer.informer.notifications import Added, Deleted, Updated, object_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioinformer.informer.notifications import Notification
    from aioinformer.informer.reporting import Reporter
    from aioinformer.model.objects import KubeObject

__all__ = ["HandlerFilter"]


class HandlerFilter:
    """Turns notifications into those of one handler, when they are delivered.

    What it begins to accept is `Added`, what it ceases to accept `Deleted`. The filter
    is asked about the new state; what it said of the old one is remembered, as the keys
    that the handler knows. (client-go asks about both, and about the final state of a
    deletion. Where that differs from the state told last, or the filter has changed its
    mind, its handlers miss an end, or are told one of something unknown.)

    A filter that raises counts as passing, and is reported.

    Args:
        accepts: The user's function.
        name: The handler's.
        reporter: Who is told of its failures.
    """

    def __init__(
        self,
        accepts: Callable[[KubeObject], object],
        name: str,
        reporter: Reporter,
    ) -> None:
        self._accepts = accepts
        self._name = name
        self._reporter = reporter
        # Invariant: what the handler was told to be there, and not yet to be gone.
        self._known: set[str] = set()

    def passing(
        self, events: Iterator[Notification | None]
    ) -> Iterator[Notification | None]:
        """What is to be told of each event; None for nothing."""
        for event in events:
            yield None if event is None else self.told(event)

    def told(self, event: Notification) -> Notification | None:
        """What the handler is told of it; None if nothing."""
        key = object_of(event).key
        if isinstance(event, Deleted):
            return self._told_end(event, key)

        now = object_of(event)
        known = key in self._known
        if self._passes(now, event):
            self._known.add(key)
            return event if known or isinstance(event, Added) else Added(now)

        self._known.discard(key)
        return Deleted(event.old) if known and isinstance(event, Updated) else None

    def _told_end(self, event: Deleted, key: str) -> Deleted | None:
        if key not in self._known:
            return None

        self._known.discard(key)
        return event

    def _passes(self, obj: KubeObject, event: Notification) -> bool:
        try:
            return bool(self._accepts(obj))
        except user_errors() as exc:
            self._reporter.failed("filter", self._name, event, exc)
            return True
