"""`Measures`: what one reflector tells its metrics sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioinformer.metrics import NULL_SINK, GuardedSink
from aioinformer.model.keys import version_number

if TYPE_CHECKING:
    from aioinformer.metrics import MetricsSink

__all__ = ["SHORT_WATCH_SECONDS", "Measures"]

SHORT_WATCH_SECONDS = 1.0
"""A watch that ended within that time without an event is a very short one, as in
client-go: something between us and the server closes it."""


class Measures:
    """What one reflector tells its metrics sink; a sink that fails ends nothing.

    Names and meanings are those that client-go gave its reflector's metrics, with the
    label `name`:

    * `reflector_lists_total`: lists that were begun, in pages or as a stream;
    * `reflector_list_duration_seconds`, `reflector_items_per_list`: of complete lists;
    * `reflector_watches_total`: watches that the server accepted, and streams of which
      the list is complete;
    * `reflector_short_watches_total`: of them, those that ended within a second without
      an event;
    * `reflector_watch_duration_seconds`, `reflector_items_per_watch`: when one ends;
    * `reflector_last_resource_version`: where it is a decimal number.

    Ours is `aioinformer_reflector_failures_total`, whose label `reason` is the class of
    the error.

    Args:
        name: The reflector's.
        sink: Where they go.
    """

    def __init__(self, name: str, sink: MetricsSink = NULL_SINK) -> None:
        self._sink = GuardedSink(sink, name, name=name)

    def list_began(self) -> None:
        """A list was asked for."""
        self._sink.count("reflector_lists_total")

    def list_completed(self, seconds: float, items: int) -> None:
        """A list is complete, after so many seconds."""
        self._sink.observe("reflector_list_duration_seconds", seconds)
        self._sink.observe("reflector_items_per_list", items)

    def watch_began(self) -> None:
        """The server has accepted a watch."""
        self._sink.count("reflector_watches_total")

    def watch_ended(self, seconds: float, items: int) -> None:
        """A watch is over, after so many seconds and events."""
        self._sink.observe("reflector_watch_duration_seconds", seconds)
        self._sink.observe("reflector_items_per_watch", items)
        if seconds < SHORT_WATCH_SECONDS and not items:
            self._sink.count("reflector_short_watches_total")

    def reached(self, version: str) -> None:
        """Everything up to a version is known."""
        if self._sink.enabled and (number := version_number(version)) >= 0:
            self._sink.gauge("reflector_last_resource_version", number)

    def failed(self, error: Exception) -> None:
        """A list or a watch failed."""
        reason = type(error).__name__
        name = "aioinformer_reflector_failures_total"
        self._sink.count(name, reason=reason)
