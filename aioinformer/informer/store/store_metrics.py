"""`StoreMetrics`: delays and bytes of the changes that a pipeline applies."""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING

from aioinformer.budget import LoopBudget

if TYPE_CHECKING:
    from collections.abc import Collection

    from aioinformer.metrics import MetricsSink
    from aioinformer.model.objects import KubeObject

__all__ = ["StoreMetrics"]


class StoreMetrics:
    """Delays and bytes of one pipeline.

    * `informer_processing_latency_seconds`: seconds to apply a part of the queue, or a
      list, with the wait for a slice of the event loop. Versions alone do not count;
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
        self._began = 0.0
        self.counted: bool = False
        """True once the bytes of all stored objects are counted."""
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

    def changed(self, old: KubeObject | None, new: KubeObject | None) -> None:
        """Count the bytes of a change of one stored object.

        Args:
            old: State that was stored; None if there was none.
            new: State that is stored now; None if it was removed.
        """
        if not self.counted:
            return

        if new is not None:
            self.held_bytes += len(new.body)
            self.json_bytes += _json_bytes_of(new)

        if old is not None:
            self.held_bytes -= len(old.body)
            self.json_bytes -= _json_bytes_of(old)

    async def listed(self, objects: Collection[KubeObject]) -> None:
        """Count all stored objects, in slices.

        No change may be applied meanwhile.

        Cancellation:
            Leaves the bytes as they were before.
        """
        held = json = 0
        budget = LoopBudget.current()
        await budget.start()
        for obj in objects:
            held += len(obj.body)
            json += _json_bytes_of(obj)
            if budget.over():
                await budget.start()

        budget.end()
        self.held_bytes, self.json_bytes = held, json
        self.counted = True


def _json_bytes_of(obj: KubeObject) -> int:
    codec = obj.context.codec
    return len(obj.body) if codec is None else codec.size_of(obj.body)
