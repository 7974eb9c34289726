"""`StoreMetrics`: delays of the changes that a pipeline applies."""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioinformer.metrics import MetricsSink

__all__ = ["StoreMetrics"]


class StoreMetrics:
    """Delays of one pipeline.

    * `informer_processing_latency_seconds`: seconds to apply a part of the queue, or a
      list, with the wait for a slice of the event loop. Versions alone do not count;
    * `aioinformer_informer_latency_seconds`: seconds from the arrival of a batch of
      events, decoded, until all of them are in the store. There is one observation for
      each batch.

    Args:
        sink: Sink of the measurements.
    """

    def __init__(self, sink: MetricsSink) -> None:
        self._sink = sink
        # Batches in the queue: the number of entries to pop until all of their changes
        # are applied, and the time of their arrival.
        self._arrivals: deque[tuple[int, float]] = deque()
        self._popped = 0
        self._began = 0.0

    @property
    def oldest(self) -> float | None:
        """Time of the oldest arrival that is not applied, on the loop's clock."""
        return self._arrivals[0][1] if self._arrivals else None

    def arrived(self, arrival: float, waiting: int) -> None:
        """Record that a batch was queued.

        Args:
            arrival: Time of its arrival, on the loop's clock.
            waiting: Number of entries in the queue after it. The changes of a key are
                one entry, so some of the batch may be in earlier ones.
        """
        self._arrivals.append((self._popped + waiting, arrival))

    def applied(self, popped: int) -> None:
        """Record that entries were popped, and that their changes are in the store."""
        self._popped += popped
        arrivals = self._arrivals
        if arrivals and arrivals[0][0] <= self._popped:
            now = asyncio.get_running_loop().time()
            while arrivals and arrivals[0][0] <= self._popped:
                _, arrival = arrivals.popleft()
                name = "aioinformer_informer_latency_seconds"
                self._sink.observe(name, now - arrival)

    def begin(self) -> None:
        """Record that a part of the queue, or a list, is about to be applied."""
        self._began = perf_counter()

    def took(self) -> None:
        """Record that it is applied."""
        name = "informer_processing_latency_seconds"
        self._sink.observe(name, perf_counter() - self._began)
