"""`SharedInformer`: one live copy of one collection, for any number of users."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from aioinformer._tasks import leaf_of
from aioinformer.cache.index import NAMESPACE_INDEX, by_namespace
from aioinformer.cache.store import Indexer
from aioinformer.errors import HistoryReset, NotSynced, OptionsError
from aioinformer.informer.handlers import Handlers
from aioinformer.informer.lister import Lister
from aioinformer.informer.liveness import Liveness
from aioinformer.informer.machine import version_number
from aioinformer.informer.pipeline import Pipeline
from aioinformer.informer.processor import Listener, Processor, Snapshot
from aioinformer.informer.reflector import Reflector, ReflectorOptions
from aioinformer.informer.registration import Registration
from aioinformer.informer.reporting import Reporter
from aioinformer.informer.status import InformerStatus
from aioinformer.metrics import NULL_SINK

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from aioinformer.cache.index import IndexFunction
    from aioinformer.errors import HandlerError
    from aioinformer.informer.handlers import Outcome
    from aioinformer.informer.notifications import Notification
    from aioinformer.metrics import MetricsSink
    from aioinformer.model.objects import KubeObject
    from aioinformer.watch.interface import ListerWatcher

__all__ = ["SharedInformer"]

F = TypeVar("F", bound="Callable[..., Any]")

DRAIN_SECONDS = 5.0
"""How long handlers may go on with what waits for them when the informer is stopped."""

REFUSALS_TO_FAIL_FAST = 2
"""One refusal may be a role that is just being granted; two in a row are not."""


class SharedInformer:
    """A local, eventually consistent copy of one collection, with change handlers.

    Usually made by `SharedInformerFactory.informer`, which also runs it.

    Guarantees (each has a test of its name in tests/contracts/):
        G1: For one object (one uid) a handler is given states that the server reported,
            in the order in which this informer learnt them, each at most once. While
            handler and informer live, the last state follows the last change. States
            may be skipped.
        G2: No order is promised between different objects.
        G3: When a handler runs, the store shows the notified state or a later one.
        G4: One handler is never called concurrently with itself. One that waits or
            fails delays no other, nor the store. One that blocks the event loop delays
            everything: calls over 50 ms are counted and logged.
        G5: A handler added late first gets every stored object as
            `Added(initial=True)`, then every later change: no gap, nothing twice.
        G6: An object that was gone while the connection was down gives
            `Deleted(final_state_unknown=True)` with its last known state; another uid
            under a known key gives that, then `Added`. `Deleted` means "no longer in
            this informer's selection".
        G7: Every end of a watch or list leads to another attempt; attempts that fail
            start at least 0.8 s apart, doubling up to 30 s, each with jitter.
        G8: A dead informer is never mistaken for a live one: `status`, every waiter and
            every read through its lister say so.
        G9: When `run()` has ended, no task, timer or connection of its own is left.
        G12: An exception in a handler or index function is logged once, counted, passed
            to `on_error`, and stops nothing else.

    Lifetime:
        `run()` may be called once. It owns 3 tasks and one for each handler.

    Args:
        source: What to list and watch.
        name: Names it in log, metrics and errors.
        indexers: Index functions by name; there is one by namespace already.
        options: How to list and watch.
        on_error: Told of each exception in a user's code.
        metrics: Where measurements go.
        rng: Where the jitter of its attempts comes from.

    Raises:
        OptionsError: If an indexer is named like the index by namespace.
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
            key_func=lambda obj: obj.key,
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

    # ------------------------------------------------------------ handlers

    def add_event_handler(
        self,
        on_add: Callable[[KubeObject], Outcome] | None = None,
        on_update: Callable[[KubeObject, KubeObject], Outcome] | None = None,
        on_delete: Callable[[KubeObject], Outcome] | None = None,
        on_event: Callable[[Notification], Outcome] | None = None,
        *,
        name: str = "",
    ) -> Registration:
        """Add handlers, plain or async; they share one queue and are called in order.

        May be called at any time: a late one first gets every stored object.

        Args:
            on_add: Called with each object that comes into the selection.
            on_update: Called with its old and new state when it changes.
            on_delete: Called with its last state when it leaves the selection.
            on_event: Instead of the other three, called with the `Added`, `Updated` or
                `Deleted`, which has the flags.
            name: In log and metrics; made of the functions' names if left out.

        Returns:
            The hold on it: how it is doing, and its removal.

        Raises:
            OptionsError: No handler was given, or `on_event` together with others.
            InformerStopped: The informer has ended.
            WrongLoop: Called from another event loop or thread.
        """
        self._check_open()
        handlers = Handlers(
            on_add=on_add, on_update=on_update, on_delete=on_delete, on_event=on_event
        )
        listener = Listener(
            f"{self.name}/{name or handlers.describe()}",
            handlers,
            self._reporter,
            metrics=self._metrics,
        )

        # Atomic: the snapshot is queued and changes follow from here on, no await
        # between them.
        if len(self._indexer):
            snapshot = Snapshot(self._indexer.list())
            listener.put(snapshot, asyncio.get_running_loop().time())

        self._processor.add(listener)
        if self._pipeline.synced:
            listener.mark_synced()

        return Registration(listener, self._processor.remove, self._live.check_loop)

    def on_add(self, handler: F) -> F:
        """Decorate a function to be called with each object that comes in."""
        self.add_event_handler(on_add=handler)
        return handler

    def on_update(self, handler: F) -> F:
        """Decorate a function to be called with old and new state of a change."""
        self.add_event_handler(on_update=handler)
        return handler

    def on_delete(self, handler: F) -> F:
        """Decorate a function to be called with the last state of what leaves."""
        self.add_event_handler(on_delete=handler)
        return handler

    def on_event(self, handler: F) -> F:
        """Decorate a function to be called with every `Added | Updated | Deleted`."""
        self.add_event_handler(on_event=handler)
        return handler

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
            duplicates=reflector.duplicates,
            history_resets=reflector.history_resets,
            degraded=reflector.skipped,
            not_served=reflector.not_served,
            last_error=reflector.last_error,
            failures=reflector.failures,
        )

    async def wait_synced(
        self, timeout: float | None = None, *, fail_fast: bool = True
    ) -> None:
        """Wait until the first complete list is in the store.

        Says nothing about handlers; for these use `Registration.wait_synced`.

        Args:
            timeout: Seconds; None waits as long as it takes.
            fail_fast: Give up when two attempts in a row ended in a refusal that no
                patience mends: 400, 401, 403, 404, 405 or 422. The informer itself
                keeps trying.

        Raises:
            NotSynced: The time is over, or two attempts were refused; the text and
                `results` say the phase and the last error.
            InformerStopped: The informer ended before it was synced.
            WrongLoop: Called from another event loop or thread.

        Cancellation:
            Safe.
        """
        self._live.check_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not self.has_synced:
                    self._live.check_not_stopped()
                    refusals = self._reflector.refusals
                    if fail_fast and refusals >= REFUSALS_TO_FAIL_FAST:
                        break

                    await self._live.wait_for_change()

        if not self.has_synced:
            raise self._not_synced()

    async def wait_for_version(
        self, resource_version: str, timeout: float | None = None
    ) -> None:
        """Wait until the store shows everything up to a version.

        With the version that a write answered, a read behind it sees that write.

        Args:
            resource_version: As the server gave it; it must be a decimal number.
            timeout: Seconds; None waits as long as it takes.

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
        wanted = _decimal(resource_version)
        resets = self._reflector.history_resets
        try:
            async with asyncio.timeout(timeout):
                while _decimal(self._indexer.resource_version or "0") < wanted:
                    self._live.check_not_stopped()
                    if self._reflector.history_resets > resets:
                        raise HistoryReset(f"version {wanted} may never come")

                    await self._live.wait_for_change()
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

    # ------------------------------------------------------------ its life

    async def run(self) -> None:
        """Keep the copy alive until cancelled.

        When it is stopped, the connection is closed first; then handlers may go on for
        up to 5 s with what waits for them; a second cancellation ends them at once.

        Raises:
            InternalError: A second call.
            InformerStopped: It was abandoned before.
            Exception: A bug of ours; errors of the server and of handlers never end it.

        Cancellation:
            The way to stop it. Afterwards nothing of it is left but the data.
        """
        self._live.begin()
        failure = None
        try:
            await self._run()
        except BaseExceptionGroup as group:
            failure = leaf_of(group)
        finally:
            self._processor.end()
            self._live.end(failure)

        if failure is not None:  # pragma: no branch - `_run()` never ends by itself
            raise failure

    def abandon(self) -> None:
        """Say that it is not going to be run any more, so that nobody waits for it.

        For those who run informers: a task that is cancelled before its first step has
        not called `run()`. One that has ended is ended already.
        """
        self._processor.end()
        self._live.end()

    async def _run(self) -> None:
        """Two nested groups: what feeds the handlers dies first, then they drain."""
        async with asyncio.TaskGroup() as downstream:  # pragma: no branch - see above
            processor = downstream.create_task(
                self._processor.run(), name=f"{self.name} processor"
            )
            try:
                async with asyncio.TaskGroup() as upstream:
                    upstream.create_task(
                        self._pipeline.run(), name=f"{self.name} pipeline"
                    )
                    upstream.create_task(
                        self._reflector.run(), name=f"{self.name} reflector"
                    )
            finally:
                if not processor.done():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(DRAIN_SECONDS):
                            await self._processor.drained()

                processor.cancel()

    # ------------------------------------------------------------ inside

    @property
    def _phase(self) -> str:
        if self._live.stopped:
            return "stopped"

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
