"""`LiveCopy`: the part of an informer that is read, asked how it is, and waited for."""

from __future__ import annotations

import asyncio
import contextlib
from operator import attrgetter
from typing import TYPE_CHECKING

from aioinformer.cache.index import NAMESPACE_INDEX, by_namespace
from aioinformer.cache.store import Indexer
from aioinformer.errors import HistoryReset, NotSynced, OptionsError
from aioinformer.informer.lister import Lister
from aioinformer.informer.liveness import Liveness
from aioinformer.informer.machine import version_number
from aioinformer.informer.pipeline import Pipeline
from aioinformer.informer.processor import Processor
from aioinformer.informer.reflector import Reflector, ReflectorOptions
from aioinformer.informer.reporting import Reporter
from aioinformer.informer.status import InformerStatus
from aioinformer.metrics import NULL_SINK
from aioinformer.model.durations import timeout_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from aioinformer.cache.index import IndexFunction
    from aioinformer.errors import HandlerError
    from aioinformer.metrics import MetricsSink
    from aioinformer.model.durations import Duration
    from aioinformer.model.objects import KubeObject
    from aioinformer.watch.interface import ListerWatcher

__all__ = ["LiveCopy"]

REFUSALS_TO_FAIL_FAST = 2
"""One refusal may be a role that is just being granted; two in a row are not."""


class LiveCopy:
    """The base of `SharedInformer`: its parts, its content, its state, its waiters.

    Args: those of `SharedInformer`.
    """

    def __init__(
        self,
        source: ListerWatcher,
        *,
        name: str = "informer",
        indexers: Mapping[str, IndexFunction[KubeObject]] | None = None,
        options: ReflectorOptions | None = None,
        on_error: Callable[[HandlerError], None] | None = None,
        metrics: MetricsSink = NULL_SINK,
        rng: random.Random | None = None,
    ) -> None:
        self.name = name
        self.options = options or ReflectorOptions()
        self._metrics = metrics
        self._reporter = Reporter(name, on_error, metrics)
        self._indexer: Indexer[KubeObject] = Indexer(
            {NAMESPACE_INDEX: by_namespace},
            key_func=attrgetter("key"),
            on_error=self._reporter.report,
        )
        self._indexer.add_indexers(indexers or {})
        self._live = Liveness(name)
        self._processor = Processor()
        self._pipeline = Pipeline(self._indexer, self._processor, self._live.tell)
        self._reflector = Reflector(
            source,
            self._pipeline,
            name=name,
            options=self.options,
            on_change=self._live.tell,
            rng=rng,
        )
        self._lister = Lister(self._indexer, self._check_live)

    def __repr__(self) -> str:
        return (
            f"<SharedInformer {self.name} {self._phase} {len(self._indexer)} objects>"
        )

    # ------------------------------------------------------------ what it holds

    @property
    def indexer(self) -> Indexer[KubeObject]:
        """The cache, a bare container: it never complains about the informer's state."""
        return self._indexer

    @property
    def store(self) -> Indexer[KubeObject]:
        """The same as `indexer`."""
        return self._indexer

    @property
    def lister(self) -> Lister:
        """Reads that refuse to answer from a cache that is not complete, or dead."""
        return self._lister

    def add_indexers(self, indexers: Mapping[str, IndexFunction[KubeObject]]) -> None:
        """Add indexes; objects that are there are entered before this returns.

        Raises:
            OptionsError: A name is taken by another function; nothing was added.
            InformerStopped: The informer has ended.
            WrongLoop: Called from another event loop or thread.
        """
        self._check_open()
        self._indexer.add_indexers(indexers)

    # ------------------------------------------------------------ how it is doing

    @property
    def has_synced(self) -> bool:
        """True once the first complete list is in the store and in the handlers' queues.

        Never becomes False again: freshness is in `status`.
        """
        return self._pipeline.synced

    @property
    def status(self) -> InformerStatus:
        """How it is doing now. May be read from any thread."""
        reflector = self._reflector
        loop, contact = self._live.loop, reflector.last_contact
        return InformerStatus(
            phase=self._phase,
            synced=self.has_synced,
            last_contact=contact,
            last_event=reflector.last_event,
            age=None if loop is None or contact is None else loop.time() - contact,
            resource_version=self._indexer.resource_version,
            restarts=reflector.restarts,
            duplicates=reflector.duplicates + self._pipeline.duplicates,
            history_resets=reflector.history_resets,
            degraded=reflector.skipped,
            not_served=reflector.not_served,
            last_error=self._live.failure or reflector.last_error,
            failures=reflector.failures,
        )

    async def wait_synced(
        self, timeout: Duration | None = None, *, fail_fast: bool = True
    ) -> None:
        """Wait until the first complete list is in the store.

        Says nothing about handlers; for these use `Registration.wait_synced`.

        Args:
            timeout: Seconds, or a timedelta; None waits as long as it takes.
            fail_fast: Give up when two attempts in a row ended in a refusal that no
                patience mends: 400, 401, 403, 404, 405 or 422. The informer itself
                keeps trying.

        Raises:
            NotSynced: The time is over, or two attempts were refused; the text and
                `results` say the phase and the last error.
            InformerStopped: The informer has ended, synced or not.
            WrongLoop: Called from another event loop or thread.

        Cancellation:
            Safe.
        """
        self._live.check_loop()
        self._live.check_not_stopped()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_of(timeout)):
                while not self.has_synced:
                    refusals = self._reflector.refusals
                    if fail_fast and refusals >= REFUSALS_TO_FAIL_FAST:
                        break

                    await self._live.wait_for_change()
                    self._live.check_not_stopped()

        if not self.has_synced:
            raise self._not_synced()

    async def wait_for_version(
        self, resource_version: str, timeout: Duration | None = None
    ) -> None:
        """Wait until the store shows everything up to a version.

        With the version that a write answered, a read behind it sees that write.

        Args:
            resource_version: As the server gave it; it must be a decimal number.
            timeout: Seconds, or a timedelta; None waits as long as it takes.

        Raises:
            TimeoutError: The time is over; the text says how far the store is.
            HistoryReset: The server's versions went backwards meanwhile, so that this
                one may never come.
            OptionsError: Not a decimal version, or those of the server are not: such
                cannot be compared.
            InformerStopped: The informer has ended.
            WrongLoop: Called from another event loop or thread.

        Cancellation:
            Safe.
        """
        self._live.check_loop()
        self._live.check_not_stopped()
        wanted = _decimal(resource_version)
        resets = self._reflector.history_resets
        try:
            async with asyncio.timeout(timeout_of(timeout)):
                while _decimal(self._indexer.resource_version or "0") < wanted:
                    if self._reflector.history_resets > resets:
                        raise HistoryReset(f"version {wanted} may never come")

                    await self._live.wait_for_change()
                    self._live.check_not_stopped()
        except TimeoutError:
            raise TimeoutError(
                f"{self.name} is at version {self._indexer.resource_version or 'none'}, "
                f"not at {wanted}, after {timeout} s: {self._phase}"
            ) from None

    def why_not_synced(self) -> str:
        """`"synced"`, or the phase and last error: what a person wants to know."""
        if self.has_synced:
            return "synced"

        error = self._reflector.last_error
        if error is None:
            return f"{self._phase}, no error so far"

        failures = self._reflector.failures
        attempts = "1 attempt" if failures == 1 else f"{failures} attempts"
        return f"{self._phase}, {attempts} failed: {error}"

    # ------------------------------------------------------------ inside

    @property
    def _phase(self) -> str:
        if self._live.stopped:
            return "stopped"

        if self._live.stopping:
            return "stopping"

        return "idle" if self._live.loop is None else self._reflector.phase

    def _not_synced(self) -> NotSynced:
        reason = self.why_not_synced()
        error = NotSynced(
            f"{self.name} is not synced: {reason}", results={self.name: reason}
        )
        error.__cause__ = self._reflector.last_error
        return error

    def _check_live(self) -> None:
        self._live.check_not_stopped()
        if not self.has_synced:
            raise self._not_synced()

    def _check_open(self) -> None:
        self._live.check_not_stopped()
        self._live.check_loop()


def _decimal(version: str) -> int:
    number = version_number(version)
    if number < 0:
        raise OptionsError(f"versions are not comparable here: {version!r}")

    return number
