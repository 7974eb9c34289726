"""`StoreMetrics`: delays and bytes of the changes that a pipeline applies.

Nothing is measured unless the sink is enabled when the pipeline starts to run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING

from aioinformer.budget import LoopBudget
from aioinformer.informer.notifications import Added, Updated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.informer.notifications import Notification
    from aioinformer.metrics import MetricsSink
    from aioinformer.model.objects import KubeObject

__all__ = ["StoreMetrics"]


class StoreMetrics:
    """Delays and bytes of one pipeline.

    * `informer_processing_latency_seconds`: seconds from taking a part of the queue, or
      a list, until it is applied, as in client-go;
    * `aioinformer_informer_latency_seconds`: seconds from the arrival of a batch of
      events, decoded, until all of them are in the store. There is one observation for
      each batch.

    Bytes are counted as objects change. A list is counted anew, in slices, after it is
    applied. Those of a store on disk are never counted.

    Args:
        sink: Sink of the measurements.
    """

    def __init__(self, sink: MetricsSink) -> None:
        self._sink = sink
        # Batches in the queue: the number of entries to pop until all of their changes
        # are applied, and the time of their arrival.
        self._arrivals: deque[tuple[int, float]] = deque()
        self._popped = 0
        self.counted: bool = False
        """True once the bytes of a list are counted."""
        self.held_bytes: int = 0
        """Bytes of the stored bodies, perhaps compressed."""
        self.json_bytes: int = 0
        """Bytes of their JSON."""

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

    def applied(self, popped: int, notifications: list[Notification]) -> None:
        """Record that entries were popped, and that their changes are in the store."""
        self._popped += popped
        arrivals = self._arrivals
        if arrivals and arrivals[0][0] <= self._popped:
            now = asyncio.get_running_loop().time()
            while arrivals and arrivals[0][0] <= self._popped:
                _, arrival = arrivals.popleft()
                name = "aioinformer_informer_latency_seconds"
                self._sink.observe(name, now - arrival)

        if self.counted:
            for event in notifications:
                if isinstance(event, Updated):
                    self.removed(event.old)
                    self._added(event.new)
                elif isinstance(event, Added):
                    self._added(event.obj)

    def removed(self, obj: KubeObject) -> None:
        """Subtract the bytes of an object that was stored.

        `applied` does so for updates. It cannot for deletions: their notification may
        have another state than the store had.
        """
        if self.counted:
            self.held_bytes -= len(obj.body)
            self.json_bytes -= _json_bytes_of(obj)

    async def listed(self, objects: Mapping[str, KubeObject]) -> None:
        """Count the objects of a list that was applied, in slices.

        No change may be applied meanwhile.

        Cancellation:
            Leaves the bytes as they were before the list.
        """
        held = json = 0
        budget = LoopBudget.current()
        await budget.start()
        for obj in objects.values():
            held += len(obj.body)
            json += _json_bytes_of(obj)
            if budget.over():
                await budget.start()

        budget.end()
        self.held_bytes, self.json_bytes = held, json
        self.counted = True

    def took(self, began: float) -> None:
        """Record that a part of the queue, taken at `began`, is applied."""
        name = "informer_processing_latency_seconds"
        self._sink.observe(name, perf_counter() - began)

    def _added(self, obj: KubeObject) -> None:
        self.held_bytes += len(obj.body)
        self.json_bytes += _json_bytes_of(obj)


def _json_bytes_of(obj: KubeObject) -> int:
    codec = obj.context.codec
    return len(obj.body) if codec is None else codec.size_of(obj.body)
