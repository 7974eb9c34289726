"""`SharedInformer`: local, indexed copy of one collection, with change handlers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from aioinformer._tasks import unwrap_group
from aioinformer.cache.delta_fifo import DeltaFIFO
from aioinformer.cache.index import NAMESPACE_INDEX, by_namespace
from aioinformer.cache.store import Indexer
from aioinformer.errors import OptionsError
from aioinformer.informer.handlers.error_reporter import ErrorReporter
from aioinformer.informer.handlers.event_handlers import (
    EventHandlers,
    HandlerKeywords,
    HandlerOptions,
)
from aioinformer.informer.handlers.inbox import Snapshot
from aioinformer.informer.handlers.listener import Listener
from aioinformer.informer.handlers.processor import Processor
from aioinformer.informer.handlers.registration import AHEAD, Events, Registration
from aioinformer.informer.handlers.resync import ListOncePerTurn, Resync, resync_seconds
from aioinformer.informer.lifecycle import RunState, run_tasks
from aioinformer.informer.lister import BodyJoiner, Lister
from aioinformer.informer.listwatch.interface import ReflectorOptions
from aioinformer.informer.listwatch.reflector import Reflector
from aioinformer.informer.namespace_sources import (
    NamespaceSource,
    NamespaceSources,
    sources_of,
)
from aioinformer.informer.store.compressor import BodyCompressor
from aioinformer.informer.store.pipeline import Pipeline, SharedStore
from aioinformer.informer.store.transformer import Transformer
from aioinformer.informer.store.waiters import StoreWaiters
from aioinformer.informer.waits import InformerWaits
from aioinformer.metrics import NULL_SINK, GuardedSink, ScopedSink
from aioinformer.model.callables import check_plain
from aioinformer.watch.interface import Selection

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from aioinformer.cache.index import IndexFunction
    from aioinformer.cache.queue import Queue
    from aioinformer.errors import HandlerError
    from aioinformer.informer.handlers.event_handlers import Outcome
    from aioinformer.informer.notifications import Notification
    from aioinformer.informer.status import InformerStatus
    from aioinformer.metrics import MetricsSink
    from aioinformer.model.compression import Compression
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource
    from aioinformer.model.times import Duration
    from aioinformer.model.transforms import Transform
    from aioinformer.watch.interface import ListerWatcher

__all__ = ["SharedInformer"]

F = TypeVar("F", bound="Callable[..., Any]")


class SharedInformer:
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
            index values are kept as they are. EventHandlers are given the stored objects
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

    def __init__(
        self,
        source: ListerWatcher | Mapping[str, ListerWatcher],
        *,
        name: str = "informer",
        indexers: Mapping[str, IndexFunction[KubeObject]] | None = None,
        transform: Transform | None = None,
        options: ReflectorOptions | None = None,
        on_error: Callable[[HandlerError], None] | None = None,
        metrics: MetricsSink = NULL_SINK,
        rng: random.Random | None = None,
        queue: Queue[KubeObject] | None = None,
        resync_period: Duration | None = None,
        compression: Compression | None = None,
    ) -> None:
        self.name = name
        self._resync_seconds = resync_seconds(resync_period)
        self.options = options or ReflectorOptions()
        self._metrics = ScopedSink(metrics, name)
        self._reporter = ErrorReporter(name, on_error, self._metrics)
        self._indexer: Indexer[KubeObject] = Indexer(
            {NAMESPACE_INDEX: by_namespace},
            key_func=attrgetter("key"),
            on_error=self._reporter.report,
        )
        self._indexer.add_indexers(indexers or {})
        self._run_state = RunState(name)
        self._waiters = StoreWaiters()
        self._run_state.followers.append(self._waiters.wake_all)
        self._transformer = Transformer(self._reporter)
        self._transformer.function = transform
        self._compressor = BodyCompressor(compression, name)
        self._processor = Processor()
        sources = sources_of(source)
        self._selections = tuple(
            it for it in sources.values() if isinstance(it, Selection)
        )
        if queue is not None and len(sources) > 1:
            raise OptionsError(
                "several namespaces cannot share the queue that is given"
            )

        shared = None if None in sources else SharedStore()
        self._sources = NamespaceSources(
            name,
            tuple(
                self._new_source(namespace, it, shared, queue, rng)
                for namespace, it in sources.items()
            ),
            self._indexer,
            self._run_state,
        )
        self._waits = InformerWaits(
            self._sources, self._indexer, self._waiters, self._run_state
        )
        self._bodies = BodyJoiner(name)
        self._lister = Lister(
            self._indexer,
            self._sources.check_live,
            self._sources.check_age,
            bodies=self._bodies,
        )
        self._resync_listing = ListOncePerTurn(self._indexer)

    def _new_source(
        self,
        namespace: str | None,
        list_watch: ListerWatcher,
        shared: SharedStore | None,
        queue: Queue[KubeObject] | None,
        rng: random.Random | None,
    ) -> NamespaceSource:
        """Make a source: of everything, or of one of several namespaces."""
        name = self.name if namespace is None else f"{self.name}/{namespace}"
        if queue is None:
            queue = DeltaFIFO(
                key_func=attrgetter("key"), name=name, metrics=self._metrics
            )

        pipeline = Pipeline(
            self._indexer,
            self._processor,
            self._run_state.notify,
            self._transformer,
            queue,
            self._waiters,
            self._compressor,
            GuardedSink(self._metrics, name, name=name),
            namespace=namespace or "",
            shared=shared,
        )
        reflector = Reflector(
            list_watch,
            pipeline,
            name=name,
            options=self.options,
            on_change=self._reflector_changed,
            metrics=self._metrics,
            rng=rng,
        )
        return NamespaceSource(namespace, reflector, pipeline)

    def __repr__(self) -> str:
        return (
            f"<SharedInformer {self.name} {self.status.phase} "
            f"{len(self._indexer)} objects>"
        )

    # ------------------------------------------------------------ contents

    @property
    def resource(self) -> Resource | None:
        """What its objects are; None if its source does not say."""
        return self._selections[0].resource if self._selections else None

    def selects(self, obj: KubeObject) -> bool:
        """Whether an object of its resource belongs here, as far as can be told.

        True if its source does not say.
        """
        selections = self._selections
        return not selections or any(it.selects(obj) for it in selections)

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

        At any time. That takes some microseconds for each object and index, in one go:
        with 100,000 objects the event loop stands still for half a second. With so
        many, add them before the informer runs, or `await build_indexers`. Adding the
        same function under the same name again changes nothing.

        Raises:
            OptionsError: A name is taken by another function, or one is no plain
                function; nothing was added.
            InformerStopped: The informer has ended.
            WrongLoop: Called from another event loop or thread.
        """
        self._run_state.check_open()
        self._indexer.add_indexers(indexers)

    async def build_indexers(
        self, indexers: Mapping[str, IndexFunction[KubeObject]]
    ) -> None:
        """The same as `add_indexers`, in slices that leave time for everything else.

        What comes and goes meanwhile is in the indexes too. They are there, all of them
        and complete, when this returns, and not before.

        Raises:
            OptionsError, InformerStopped, WrongLoop: As `add_indexers`.

        Cancellation:
            Safe: none of them is there.
        """
        self._run_state.check_open()
        await self._indexer.build_indexers(indexers)

    @property
    def transform(self) -> Transform | None:
        """What each object passes before it is kept; None for nothing."""
        return self._transformer.function

    def set_transform(self, transform: Transform | None) -> None:
        """Set what each object passes before it is kept, in the place of any before.

        Args:
            transform: As the argument of `SharedInformer`; None for nothing.

        Raises:
            OptionsError: If the informer has been run: what is kept then, and told, has
                passed the one before. Or if it is no plain function.
            InformerStopped: The informer has ended.
            WrongLoop: Called from another event loop or thread.
        """
        self._run_state.check_open()
        if self._run_state.loop is not None:
            raise OptionsError(f"{self.name} runs: set its transform before")

        self._transformer.function = transform

    # ------------------------------------------------------------ state

    @property
    def has_synced(self) -> bool:
        """True once the first complete list is in the store and in the handlers' queues.

        Never becomes False again: freshness is in `status`.
        """
        return self._sources.synced

    @property
    def status(self) -> InformerStatus:
        """How it is doing now. May be read from any thread."""
        status = self._sources.status()
        failures = self._transformer.failures + self._bodies.failures
        return replace(
            status,
            degraded=status.degraded + failures,
            last_error=self._run_state.failure or status.last_error,
        )

    def why_not_synced(self) -> str:
        """`"synced"`, or the phase and last error: what a person wants to know."""
        return "synced" if self.has_synced else self._sources.describe()

    # ------------------------------------------------------------ waiting

    async def wait_synced(
        self, timeout: Duration | None = None, *, fail_fast: bool = True
    ) -> None:
        """Wait until the first complete list is in the store; of all namespaces.

        Says nothing about handlers; for these use `Registration.wait_synced`.

        Args:
            timeout: Seconds, or a timedelta; None waits as long as it takes.
            fail_fast: Give up when two attempts in a row ended in a refusal that no
                patience mends: 400, 401, 403, 404, 405 or 422. The informer itself
                keeps trying. A failing transform is no reason: what it fails for is
                stored as it came.

        Raises:
            NotSynced: The time is over, or two attempts were refused; the text and
                `results` say the phase and the last error.
            InformerStopped: The informer has ended, synced or not.
            WrongLoop: Called from another event loop or thread.

        Cancellation:
            Safe.
        """
        await self._waits.wait_synced(timeout, fail_fast=fail_fast)

    async def wait_for_version(
        self,
        resource_version: str,
        timeout: Duration | None = None,
        *,
        namespace: str | None = None,
    ) -> None:
        """Wait until the store shows everything up to a version.

        With the version that a write answered, a read behind it sees that write.

        Of an informer of several namespaces that is when each of them has got so far,
        and one in which nothing happens learns only from bookmarks, about one a minute,
        how far that is. So for a write, name its namespace.

        Args:
            resource_version: As the server gave it; it must be a decimal number.
            timeout: Seconds, or a timedelta; None waits as long as it takes.
            namespace: Wait for what is in this namespace alone. Without effect unless
                the informer lists its namespaces one by one.

        Raises:
            TimeoutError: The time is over; the text says how far the store is.
            HistoryReset: The server's versions went backwards meanwhile, so that this
                one may never come.
            OptionsError: Not a decimal version, or those of the server are not: such
                cannot be compared. Or the informer has nothing of that namespace.
            InformerStopped: The informer has ended.
            WrongLoop: Called from another event loop or thread.

        Cancellation:
            Safe.
        """
        await self._waits.wait_for_version(
            resource_version, timeout, namespace=namespace
        )

    @overload
    async def wait_until(
        self,
        predicate: Callable[[KubeObject | None], object],
        key: str,
        timeout: Duration | None = None,
    ) -> None: ...

    @overload
    async def wait_until(
        self,
        predicate: Callable[[Indexer[KubeObject]], object],
        key: None = None,
        timeout: Duration | None = None,
    ) -> None: ...

    async def wait_until(
        self,
        predicate: Callable[[Any], object],
        key: str | None = None,
        timeout: Duration | None = None,
    ) -> None:
        """Wait until something holds in the store.

        ::

            await pods.wait_until(is_ready, key="shop/web-0", timeout=30)
            await pods.wait_until(lambda store: len(store) >= 3)

        It is asked about the state now, and then about changes, for as long as it does
        not hold. The first complete list is waited for: what has not been listed yet is
        not told to be absent.

        With a key it is asked about each state that this object comes to, in order, and
        about None when it goes; so what held only for a moment is seen, too, though the
        store may have moved on. States that the informer itself never learnt, because
        it was disconnected, are not. Waiting for one key costs nothing while others
        change.

        Without one it is asked about the store as it is after a change, by each waiter
        and for each batch of changes that has been applied.

        Args:
            predicate: A plain function that does not wait: of a `KubeObject | None`
                with a key, else of the store. It is called in the task that waits.
            key: `"namespace/name"`, or the bare name of a cluster-scoped object.
            timeout: Seconds, or a timedelta; None waits as long as it takes.

        Raises:
            Exception: What the predicate raised, as it is.
            TimeoutError: The time is over; the text says what was seen last.
            NotSynced: The first list was refused twice in a row: see `wait_synced`.
            OptionsError: The predicate is no plain function, or the informer has
                nothing of the key's namespace.
            InformerStopped: The informer has ended.
            WrongLoop: Called from another event loop or thread.

        Cancellation:
            Safe.
        """
        await self._waits.wait_until(predicate, key, timeout)

    # ------------------------------------------------------------ handlers

    def add_event_handler(
        self,
        on_add: Callable[[KubeObject], Outcome] | None = None,
        on_update: Callable[[KubeObject, KubeObject], Outcome] | None = None,
        on_delete: Callable[[KubeObject], Outcome] | None = None,
        on_event: Callable[[Notification], Outcome] | None = None,
        *,
        resync_period: Duration | None = None,
        filter: Callable[[KubeObject], object] | None = None,  # noqa: A002 - as spoken
        coalesce: bool = False,
        thread: bool = False,
        name: str | None = None,
    ) -> Registration:
        """Add handlers, plain or async; they share one queue and are called in order.

        May be called at any time: a late one first gets every stored object.

        Args:
            on_add: Called with each object that comes into the selection.
            on_update: Called with its old and new state when it changes.
            on_delete: Called with its last state when it leaves the selection.
            on_event: Instead of the other three, called with the `Added`, `Updated` or
                `Deleted`, which has the flags.
            resync_period: Seconds, or a timedelta, at least 1 s: after each the handler
                is reminded of every stored object, as of an update from a state to
                itself (`Updated(obj, obj, resync=True)`), but for those of which
                something waits for it. Asks the store, not the server. 0 for none; the
                informer's own if left out. For another period, remove the handler and
                add it anew.
            filter: Which objects the handler wants: a plain function, which is called
                in the loop when a notification is delivered. What it begins to accept
                is told as `Added`, what it ceases to accept as `Deleted`. The handler is
                synced when the filter has seen all. If it raises, that is reported, and
                counts as accepting.
            coalesce: What waits for the handler is merged for each object: it is told
                what became of it, not each step, and nothing of what came and went
                meanwhile. A slow handler then costs memory for each object, and not
                for each change.
            thread: Call the handlers, which must be plain, in a thread of their own, one
                call at a time: for code that blocks. They have the context variables of
                the informer's run, as with `asyncio.to_thread`. A call that has not
                returned when the informer has stopped is left alone, with a warning; it
                does not keep the process from ending.
            name: In log and metrics; made of the functions' names if left out.

        Returns:
            The hold on it: how it is doing, and its removal.

        Raises:
            OptionsError: No handler was given, or `on_event` together with others; a
                period under a second, a filter that is no plain function, or an async
                handler with `thread=True`.
            InformerStopped: The informer has ended.
            WrongLoop: Called from another event loop or thread.
        """
        handlers = EventHandlers(
            on_add=on_add, on_update=on_update, on_delete=on_delete, on_event=on_event
        )
        options = HandlerOptions(
            resync_period=resync_period,
            filter=filter,
            coalesce=coalesce,
            thread=thread,
            name=name,
        )
        return self._add(handlers, options)

    @overload
    def on_add(self, handler: F, /) -> F: ...

    @overload
    def on_add(self, /, **options: Unpack[HandlerKeywords]) -> Callable[[F], F]: ...

    def on_add(self, handler: Any = None, /, **options: Any) -> Any:
        """Decorate a function to be called with each object that comes in.

        As it is, `@pods.on_add`, or with the options of `add_event_handler`:
        `@pods.on_add(filter=is_ready, coalesce=True)`.
        """
        return self._decorate("on_add", handler, options)

    @overload
    def on_update(self, handler: F, /) -> F: ...

    @overload
    def on_update(self, /, **options: Unpack[HandlerKeywords]) -> Callable[[F], F]: ...

    def on_update(self, handler: Any = None, /, **options: Any) -> Any:
        """Decorate a function to be called with old and new state of a change.

        With or without the options of `add_event_handler`, as `on_add`.
        """
        return self._decorate("on_update", handler, options)

    @overload
    def on_delete(self, handler: F, /) -> F: ...

    @overload
    def on_delete(self, /, **options: Unpack[HandlerKeywords]) -> Callable[[F], F]: ...

    def on_delete(self, handler: Any = None, /, **options: Any) -> Any:
        """Decorate a function to be called with the last state of what leaves.

        With or without the options of `add_event_handler`, as `on_add`.
        """
        return self._decorate("on_delete", handler, options)

    @overload
    def on_event(self, handler: F, /) -> F: ...

    @overload
    def on_event(self, /, **options: Unpack[HandlerKeywords]) -> Callable[[F], F]: ...

    def on_event(self, handler: Any = None, /, **options: Any) -> Any:
        """Decorate a function to be called with every `Added | Updated | Deleted`.

        With or without the options of `add_event_handler`, as `on_add`.
        """
        return self._decorate("on_event", handler, options)

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
            lambda handler: self._add(EventHandlers(on_event=handler), options),
            self._run_state,
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
        self._run_state.check_open()
        for source in self._sources.all:
            source.reflector.set_watch_error_handler(handler)

    def _decorate(self, kind: str, handler: Any, options: dict[str, Any]) -> Any:
        def add(function: F) -> F:
            functions: dict[str, Any] = {kind: function}
            self.add_event_handler(**functions, **options)
            return function

        return add if handler is None else add(handler)

    def _add(self, handlers: EventHandlers, options: HandlerOptions) -> Registration:
        self._run_state.check_open()
        options.check(handlers)
        seconds = options.seconds_of_resync(self._resync_seconds)
        listener = Listener(
            f"{self.name}/{options.name or handlers.describe()}",
            handlers,
            self._reporter,
            options,
            resync=Resync(seconds, self._resync_listing) if seconds else None,
            metrics=self._metrics,
        )

        # Atomic: the snapshot is queued and changes follow from here on, no await
        # between them.
        if len(self._indexer):
            snapshot = Snapshot(self._indexer.list())
            listener.put(snapshot, asyncio.get_running_loop().time())

        self._processor.add(listener)
        if self.has_synced:
            listener.mark_synced()

        return Registration(
            listener, self._processor.remove, self._run_state.check_loop
        )

    # ------------------------------------------------------------ lifecycle

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
        self._run_state.begin()
        failure = None
        try:
            await run_tasks(
                self.name,
                self._run_state,
                self._processor,
                [(source.reflector, source.pipeline) for source in self._sources.all],
            )
        except BaseExceptionGroup as group:
            failure = unwrap_group(group)
        finally:
            self._processor.end()
            self._run_state.end(failure)

        if failure is not None:  # pragma: no branch - `run_tasks()` never returns
            raise failure

    def abandon(self, failure: BaseException | None = None) -> None:
        """Say that it is not going to be run any more, so that nobody waits for it.

        For those who run informers: a task that is cancelled before its first step has
        not called `run()`. One that has ended is ended already.

        Args:
            failure: The reason, if nobody has stopped it: it counts as dead of this.
        """
        self._processor.end()
        self._run_state.end(failure)

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
        self._run_state.why_ending = why_ending
        self._run_state.on_death = handler

    def forget_metrics(self) -> None:
        """Have the metrics sink drop the series of this informer and its handlers.

        For those who run informers, when it has ended and they let go of it. Only a
        `ForgettingSink` does so. Series belong to names: another informer of the same
        name in the same sink begins new ones.
        """
        self._metrics.end()

    # ------------------------------------------------------------ callbacks

    def _reflector_changed(self) -> None:
        self._run_state.notify()
        self._waiters.wake_versions()
