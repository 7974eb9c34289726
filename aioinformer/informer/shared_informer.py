"""`SharedInformer`: one live copy of one collection, for any number of users."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from aioinformer._tasks import leaf_of
from aioinformer.informer.handlers import Handlers
from aioinformer.informer.live_copy import LiveCopy
from aioinformer.informer.processor import Listener, Snapshot
from aioinformer.informer.registration import Registration

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.informer.handlers import Outcome
    from aioinformer.informer.notifications import Notification
    from aioinformer.model.objects import KubeObject

__all__ = ["SharedInformer"]

F = TypeVar("F", bound="Callable[..., Any]")

DRAIN_SECONDS = 5.0
"""How long handlers may go on with what waits for them when the informer is stopped."""


class SharedInformer(LiveCopy):
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

    # ------------------------------------------------------------ its life

    async def run(self) -> None:
        """Keep the copy alive until cancelled.

        When it is stopped, the connection is closed first; then handlers may go on for
        up to 5 s with what waits for them; a second cancellation ends them at once.

        Raises:
            OptionsError: A second call.
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
            except BaseExceptionGroup as group:
                # Dead from here on, though the handlers may go on for a while.
                self._live.end(leaf_of(group))
                raise
            finally:
                self._live.stopping = True
                if not processor.done():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(DRAIN_SECONDS):
                            await self._processor.drained()

                processor.cancel()
