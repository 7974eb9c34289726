"""`SharedInformer`: one live copy of one collection, for any number of users."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioinformer._tasks import fail_when_any_ends, unwrap_group
from aioinformer.informer.events import AHEAD, Events
from aioinformer.informer.handled import HandledCopy
from aioinformer.informer.handler_options import HandlerOptions
from aioinformer.informer.handlers import Handlers
from aioinformer.model.callables import check_plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.model.objects import KubeObject
    from aioinformer.model.times import Duration

__all__ = ["SharedInformer"]

DRAIN_SECONDS = 5.0
"""How long handlers may go on with what waits for them when the informer is stopped."""


class SharedInformer(HandledCopy):
    """A local, eventually consistent copy of one collection, with change handlers.

    Usually made by `SharedInformerFactory.informer`, which also runs it.

    Guarantees (each has a test of its name in tests/contracts/):
        G1: For one object (one uid) a handler is given states that the server reported,
            in the order in which this informer learnt them, each at most once except as
            a resync. While handler and informer live, the last state follows the last
            change. States may be skipped (by a relist, or coalescing).
        G2: No order is promised between different objects.
        G3: When a handler runs, the store shows the notified state or a later one.
        G4: One handler is never called concurrently with itself. One that waits or
            fails delays no other, nor the store. One that blocks the event loop delays
            everything: calls over 50 ms are counted and logged; `thread=True` runs a
            plain handler in a thread.
        G5: A handler added late first gets every stored object as
            `Added(initial=True)`, then every later change: no gap, nothing twice.
        G6: An object that was gone while the connection was down gives
            `Deleted(final_state_unknown=True)` with its last known state; another uid
            under a known key gives that, then `Added`. `Deleted` means "no longer in
            this informer's selection".
        G7: Every end of a watch or list leads to another attempt; attempts that fail
            start at least 0.8 s apart, doubling up to 30 s, each with jitter.
        G8: A dead informer is never mistaken for a live one: `status`, every waiter,
            every iteration of its events and every read through its lister say so.
        G9: When `run()` has ended, no task, timer or connection of its own is left; and
            nothing of a waiter or a reader of events who has gone.
        G12: An exception in a handler, filter, index function, transform or watch error
            handler is logged (what repeats, in part) and counted, and stops nothing else;
            those of the first four are passed to `on_error`. One in a predicate is
            raised to who waits. A `CancelledError` that such code raises by itself
            counts as well, and any other `BaseException` that does not end the program.

    Several namespaces:
        Each has a list and a watch of its own, with their own troubles and versions;
        all share one store and one set of handlers. It is synced when each of them is.
        What is refused in one stops nothing in the others: `status.namespaces` tells,
        and reads in a namespace ask for no more than that this one is complete. The
        version of the store is the lowest that all have reached. A relist of one
        replaces its part in one step, and takes a microsecond for each object of the
        others.

    Lifetime:
        `run()` may be called once. It owns a task, two for each list and watch, and one
        for each handler.

    Args:
        source: What to list and watch; or several such by the namespace that each has,
            with nothing of any other.
        name: Names it in log, metrics and errors.
        indexers: Index functions by name; there is one by namespace already.
        transform: Called with each object before it is kept: once for each state,
            listed, watched or streamed, and for the final state of a deletion, but not
            again for what a relist shows unchanged. It returns what is to be stored
            and told, or None to leave the object out, as if it did not match the
            selector: if it was known, it goes as `Deleted`, in the state known last.
            Key, uid and version stay: where missing they are put back, changed they
            are an error. If it fails, the object is stored as the server sent it,
            `status.degraded` counts, and `on_error` is told. It runs in the loop and
            must not wait. See `strip_managed_fields`, `drop` and `transform_dict`.
        options: How to list and watch.
        on_error: Told of each exception in a user's code.
        metrics: Where measurements go.
        rng: Where the jitter of its attempts comes from.
        queue: What is between reflector and store: a `DeltaFIFO` if left out, which
            brings the changes of an object together; or an `OrderedFIFO`, which keeps
            the order of all. Made for this informer, by the key of its objects; not
            with several namespaces, which have a `DeltaFIFO` each.
        resync_period: That of handlers which give none: see `add_event_handler`.
        compression: `"zstd"` to keep bodies compressed, which takes the extra `zstd`:
            pods of 7 KB take 0.9. What is kept is read and told as ever, and each
            reading of a body takes 10 microseconds more; key, uid, version, labels and
            index values are kept as they are. Handlers are given the stored objects
            themselves, compressed, but for the final state of a deletion. The
            dictionary for it is made of the first 500 objects, in a thread; what comes
            in then waits for some 40 milliseconds, and nothing else does. Under 100
            objects there is none, and pods take 2.3 KB. It is made anew when later
            objects are of another kind, or many more. With `metadata_only` it works as
            well. None keeps bodies as they come.

    Raises:
        OptionsError: If an indexer is named like the index by namespace, the transform
            is no plain function, no namespaces are given, or one without a name, the
            resync period is negative or shorter than a second, or the compression is
            unknown or not installed.
    """

    # ------------------------------------------------------------ what it tells

    def events(
        self,
        *,
        resync_period: Duration | None = None,
        filter: Callable[[KubeObject], object] | None = None,  # noqa: A002 - as spoken
        coalesce: bool = False,
        name: str = "events",
    ) -> Events:
        """The changes as an async iterator, for the time of a block.

        ::

            async with pods.events() as events:
                async for event in events:
                    match event:
                        case Added(obj, initial): ...
                        case Updated(old, new, resync): ...
                        case Deleted(obj, final_state_unknown): ...

        What there is comes first, as `Added(initial=True)`, then every change, in the
        order in which a handler would be told. See `Events`.

        Args:
            resync_period: As of `add_event_handler`; those that follow, too.
            filter: Which objects the reader wants.
            coalesce: What waits for the reader is merged for each object.
            name: In log and metrics.

        Raises:
            OptionsError: A period under a second, or a filter that is no plain
                function.
        """
        options = HandlerOptions(
            resync_period=resync_period, filter=filter, coalesce=coalesce, name=name
        )
        return Events(
            lambda handler: self._add(Handlers(on_event=handler), options),
            self._live,
            # What was handed over cannot be merged any more.
            ahead=1 if coalesce else AHEAD,
        )

    def set_watch_error_handler(
        self, handler: Callable[[Exception], None] | None
    ) -> None:
        """Have a function told of each list or watch that fails.

        In the place of any before, and at any time: from here on it sees every failure,
        those in the middle of a watch too. The informer goes on by itself; there is
        nothing to return. (client-go's has to be set before it runs, and is not told of
        what breaks in mid-stream.)

        Args:
            handler: A plain function; called in the loop with the error, it must not
                wait. What it raises is logged and dropped. None tells nobody.

        Raises:
            OptionsError: If it is no plain function.
            InformerStopped: The informer has ended.
            WrongLoop: Called from another event loop or thread.
        """
        self._check_open()
        for part in self._parts:
            part.reflector.set_watch_error_handler(handler)

    # ------------------------------------------------------------ its life

    async def run(self) -> None:
        """Keep the copy alive until cancelled.

        When it is stopped, the connection is closed first; then handlers may go on for
        up to 5 s with what waits for them; what is left then is dropped, with a warning.
        A second cancellation ends them at once.

        Raises:
            OptionsError: A second call.
            InformerStopped: It was abandoned before.
            InternalError: Other code has cancelled one of its tasks, or a function of
                yours has cancelled the task that called it.
            Exception: A bug of ours; errors of the server and of handlers never end it.

        Cancellation:
            The way to stop it. Afterwards nothing of it is left but the data.
        """
        self._live.begin()
        failure = None
        try:
            await self._run()
        except BaseExceptionGroup as group:
            failure = unwrap_group(group)
        finally:
            self._processor.end()
            self._live.end(failure)

        if failure is not None:  # pragma: no branch - `_run()` never ends by itself
            raise failure

    def abandon(self, failure: BaseException | None = None) -> None:
        """Say that it is not going to be run any more, so that nobody waits for it.

        For those who run informers: a task that is cancelled before its first step has
        not called `run()`. One that has ended is ended already.

        Args:
            failure: The reason, if nobody has stopped it: it counts as dead of this.
        """
        self._processor.end()
        self._live.end(failure)

    def set_death_handler(
        self,
        handler: Callable[[BaseException], None],
        *,
        why_ending: Callable[[], BaseException | None] = lambda: None,
    ) -> None:
        """Have a function told what the informer dies of, in the moment it does.

        For those who run informers: `run()` raises the same, but only when the handlers
        have ended, and not if it is cancelled meanwhile.

        Args:
            handler: A plain function, called in the loop; it must neither wait nor raise.
            why_ending: Called in the same way when `run()` is cancelled. Returns the
                failure if nobody has stopped the informer, which is then dead at once.

        Raises:
            OptionsError: If one of them is no plain function.
        """
        check_plain(handler, "a death handler")
        check_plain(why_ending, "a reason")
        self._live.why_ending = why_ending
        self._live.on_death = handler

    def forget_metrics(self) -> None:
        """Have the metrics sink drop the series of this informer and its handlers.

        For those who run informers, when it has ended and they let go of it. Only a
        `ForgettingSink` does so. Series belong to names: another informer of the same
        name in the same sink begins new ones.
        """
        self._metrics.end()

    async def _run(self) -> None:
        """Two nested groups: what feeds the handlers dies first, then they drain."""
        async with asyncio.TaskGroup() as downstream:  # pragma: no branch - see above
            processor = downstream.create_task(
                self._processor.run(), name=f"{self.name} processor"
            )
            try:
                async with asyncio.TaskGroup() as upstream:
                    tasks = [processor]
                    for part in self._parts:
                        name = part.reflector.name
                        tasks += (
                            upstream.create_task(
                                part.pipeline.run(), name=f"{name} pipeline"
                            ),
                            upstream.create_task(
                                part.reflector.run(), name=f"{name} reflector"
                            ),
                        )

                    await fail_when_any_ends(tasks)
            except BaseExceptionGroup as group:
                # Dead from here on, though the handlers may go on for a while.
                self._live.die(unwrap_group(group))
                raise
            finally:
                # If the processor has failed, the group was cancelled for that.
                self._live.wind_down(cancelled=not processor.done())
                if not processor.done():
                    try:
                        async with asyncio.timeout(DRAIN_SECONDS):
                            await self._processor.drained()
                    except TimeoutError:
                        self._processor.tell_undelivered(DRAIN_SECONDS)

                processor.cancel()
