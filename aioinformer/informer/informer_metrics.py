"""`InformerMetrics`: gauges of one informer, computed when metrics are read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from aioinformer.budget import LoopBudget
from aioinformer.metrics import GuardedSink, ScopedSink
from aioinformer.model.object_meta import version_number

if TYPE_CHECKING:
    from aioinformer.cache.store import Indexer
    from aioinformer.informer.handlers.processor import Processor
    from aioinformer.informer.lifecycle import RunState
    from aioinformer.informer.memory_budget import MemoryStatus
    from aioinformer.informer.namespace_sources import NamespaceSources
    from aioinformer.informer.status import CacheStatus
    from aioinformer.informer.store.memory_limiter import MemoryLimiter
    from aioinformer.model.objects import KubeObject

__all__ = ["InformerMetrics"]

_VERSION_DIGITS = 15
"""Last digits of a version that a float can hold, as in client-go."""

_DEPTH = "aioinformer_handler_queued_items"


class InformerMetrics:
    """Gauges of one informer, with the label `name`, and of its handlers.

    A `CollectingSink` calls `report` before each read, so they cost nothing in between.
    Other sinks do not get them. They end with the informer, unless it has failed.

    Args:
        name: Name of the informer.
        sources: Sources of the informer.
        indexer: Store of the informer.
        processor: Processor of its handlers.
        run_state: State of its run.
        sink: Sink of the informer.
        limiter: Limiter of the memory of the factory, or None.
    """

    def __init__(
        self,
        name: str,
        sources: NamespaceSources,
        indexer: Indexer[KubeObject],
        processor: Processor,
        run_state: RunState,
        sink: ScopedSink,
        limiter: MemoryLimiter | None = None,
    ) -> None:
        self._sources = sources
        self._indexer = indexer
        self._processor = processor
        self._run_state = run_state
        self._limiter = limiter
        # Gauges end with the run. Counters stay until the series of the informer end.
        self._scope = ScopedSink(sink, name)
        self._sink = GuardedSink(self._scope, name, name=name)
        self._unnamed_sink = GuardedSink(self._scope, name)
        # Handlers that had a gauge at the last read.
        self._handlers: set[str] = set()
        run_state.followers.append(self._run_changed)
        # Last, as the sink may call it at once.
        sink.before_reads(self.report)

    def report(self) -> None:
        """Set the gauges, until they have ended. May be called from any thread."""
        if not self._scope.enabled:
            return

        status, gauge = self._sources.status(), self._sink.gauge
        gauge("aioinformer_informer_synced", status.synced)
        gauge("aioinformer_informer_objects", len(self._indexer))
        age = math.inf if status.age is None else status.age
        gauge("aioinformer_informer_age_seconds", age)
        number = max(version_number(status.resource_version), 0)
        gauge("informer_store_resource_version", number % 10**_VERSION_DIGITS)
        self._report_bytes()
        self._report_handlers()
        if status.cache is not None:
            self._report_cache(status.cache)

        self._report_loop()
        if self._limiter is not None:
            self._report_memory(self._limiter.status())

    def _run_changed(self) -> None:
        # If the informer has failed, its age grows, and alerts show it.
        if self._run_state.over and self._run_state.failure is None:
            self._scope.end()

    def _report_bytes(self) -> None:
        """Set the bytes in memory, unless some of the objects are not counted yet."""
        pipelines = self._sources.pipelines_in_memory
        known = [it.bytes for it in pipelines]
        counts = [it for it in known if it is not None and it.counted]
        complete = len(counts) == len(pipelines) or not len(self._indexer)
        if not (pipelines and complete):
            return

        gauge = self._sink.gauge
        gauge("aioinformer_informer_held_bytes", sum(it.held for it in counts))
        gauge("aioinformer_informer_json_bytes", sum(it.json for it in counts))

    def _report_handlers(self) -> None:
        depths = self._processor.depths()
        for handler, depth in depths.items():
            self._unnamed_sink.gauge(_DEPTH, depth, handler=handler)

        for handler in self._handlers - depths.keys():
            self._scope.forget(_DEPTH, handler=handler)

        self._handlers = set(depths)

    def _report_cache(self, cache: CacheStatus) -> None:
        gauge = self._sink.gauge
        silent = math.inf if cache.heartbeat_age is None else cache.heartbeat_age
        gauge("aioinformer_cache_writer", cache.role == "writer")
        gauge("aioinformer_cache_in_memory", cache.role == "memory")
        gauge("aioinformer_cache_heartbeat_seconds", silent)
        gauge("aioinformer_cache_lag_entries", cache.behind)
        gauge("aioinformer_cache_readers", cache.readers)
        gauge("aioinformer_cache_stalled_readers", len(cache.stalled_readers))
        gauge("aioinformer_cache_takeovers", max(0, cache.writers_so_far - 1))
        gauge("aioinformer_cache_journal_entries", cache.journal_entries)
        gauge("aioinformer_cache_bytes", cache.size)

    def _report_memory(self, memory: MemoryStatus) -> None:
        """Set the gauges of the memory budget, which all informers of a factory share."""
        gauge = self._unnamed_sink.gauge
        gauge("aioinformer_memory_budget_bytes", memory.limit)
        gauge("aioinformer_memory_held_bytes", memory.held)
        gauge("aioinformer_memory_over_budget", memory.over)
        gauge("aioinformer_memory_objects", memory.objects)
        gauge("aioinformer_memory_compressed_objects", memory.compressed)

    def _report_loop(self) -> None:
        """Set the gauges of the event loop, which all its informers share."""
        loop = self._run_state.loop
        if loop is None:
            return

        statistics = LoopBudget.statistics_of(loop)
        gauge = self._unnamed_sink.gauge
        gauge("aioinformer_loop_slices", statistics.slices)
        gauge("aioinformer_loop_stalls", statistics.stalls)
        gauge("aioinformer_loop_longest_slice_seconds", statistics.longest)
        gauge("aioinformer_loop_waiting_tasks", statistics.waiting)
