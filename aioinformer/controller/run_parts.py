"""`RunParts`: timers, daemons and event sources in one run of a controller."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from aioinformer.controller.background import Background
from aioinformer.controller.daemons import Daemon, DaemonRuns, daemons_of
from aioinformer.controller.event_sources import event_sources_of, read_events
from aioinformer.controller.reconcile import Cause, ReconcileRequest
from aioinformer.controller.timers import Every, Timers, every_of
from aioinformer.workqueue.priority import LOW_PRIORITY

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Mapping

    from aioinformer.controller.context import Reconcile
    from aioinformer.controller.event_sources import EventSource
    from aioinformer.controller.workers import Workers
    from aioinformer.informer.handlers.error_reporter import ErrorReporter
    from aioinformer.informer.notifications import Notification
    from aioinformer.model.times import Duration

__all__ = ["PartOptions", "RunParts"]


@dataclass(frozen=True, slots=True)
class PartOptions:
    """Checked options of `Controller`."""

    every: Every | None
    daemons: list[Daemon]
    sources: dict[str, EventSource]

    @classmethod
    def of(
        cls,
        every: Duration | Every | None,
        daemons: Iterable[Reconcile | Daemon],
        sources: Mapping[str, EventSource],
    ) -> PartOptions:
        """Check the options.

        Raises:
            OptionsError: If an option is invalid.
        """
        return cls(every_of(every), daemons_of(daemons), event_sources_of(sources))

    @property
    def follow_objects(self) -> bool:
        """True if changes of objects matter to the parts."""
        return self.every is not None or bool(self.daemons)


class RunParts:
    """Parts of one run of a controller beside its reconciles.

    Args:
        options: Options of the controller.
        workers: Workers of this run.
        work: Task group of this run.
        reporter: Reporter of failures.
    """

    def __init__(
        self,
        options: PartOptions,
        workers: Workers,
        work: asyncio.TaskGroup,
        reporter: ErrorReporter,
    ) -> None:
        self.background: Background = Background(work)
        """Running daemons and sources."""
        self._options = options
        self._workers = workers
        self._reporter = reporter
        self._timers = (
            None
            if options.every is None
            else Timers(options.every, self._timer_due, reporter)
        )
        call = partial(workers.call_daemon, work)
        self._daemons = [
            DaemonRuns(daemon, self.background, call, reporter)
            for daemon in options.daemons
        ]

    def changed(self, event: Notification) -> None:
        """Note a change of an object of `for_`."""
        if self._timers is not None:
            self._timers.changed(event)

        for daemon in self._daemons:
            daemon.changed(event)

    async def start(self) -> None:
        """Open the sources, and start the daemons."""
        for name, source in self._options.sources.items():
            self._open(name, source)

        for daemon in self._daemons:
            await daemon.start()

    def close(self) -> None:
        """Cancel all. The tasks in `background` may take a while to end."""
        self.background.close()
        if self._timers is not None:
            self._timers.close()

    def _open(self, name: str, source: EventSource) -> None:
        def add(request: ReconcileRequest) -> None:
            self._workers.add(request, Cause("source", name, request.key), 0)

        async def read(attempt: int) -> None:
            await read_events(name, source, add, self._reporter)

        self.background.run(
            f"source {name}", read, partial(self._reporter.failed, "source", name, name)
        )

    def _timer_due(self, key: str) -> None:
        self._workers.add(
            ReconcileRequest.of(key), Cause("timer", "", key), LOW_PRIORITY
        )
