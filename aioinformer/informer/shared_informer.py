"""`SharedInformer`: a local, indexed copy of one collection, with change handlers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Unpack, overload

from aioinformer._tasks import unwrap_group
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
from aioinformer.informer.informer_metrics import InformerMetrics
from aioinformer.informer.lifecycle import RunState, run_tasks
from aioinformer.informer.lister import BodyJoiner, Lister
from aioinformer.informer.listwatch.interface import ReflectorOptions
from aioinformer.informer.listwatch.reflector import Reflector
from aioinformer.informer.namespace_sources import (
    NamespaceSources,
    make_sources,
    sources_of,
)
from aioinformer.informer.store.compressor import BodyCompressor
from aioinformer.informer.store.pipeline import Pipeline
from aioinformer.informer.store.transformer import Transformer
from aioinformer.informer.store.waiters import StoreWaiters
from aioinformer.informer.waits import InformerWaits
from aioinformer.metrics import NULL_SINK, GuardedSink, ScopedSink
from aioinformer.model.callables import check_plain
from aioinformer.model.misuse import with_advice
from aioinformer.model.transforms import drops_managed_fields

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from aioinformer.cache.index import IndexFunction
    from aioinformer.cache.queue import Queue
    from aioinformer.errors import HandlerError
    from aioinformer.informer.cached.place import CachePlace
    from aioinformer.informer.cached.source import CachedSource
    from aioinformer.informer.handlers.event_handlers import E, F, Outcome, U
    from aioinformer.informer.handlers.processor import Observer
    from aioinformer.informer.namespace_sources import NamespaceSource
    from aioinformer.informer.notifications import Notification
    from aioinformer.informer.status import InformerStatus
    from aioinformer.informer.store.memory_limiter import MemoryLimiter
    from aioinformer.metrics import MetricsSink
    from aioinformer.model.compression import Compression
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource
    from aioinformer.model.shards import ShardSelector
    from aioinformer.model.times import Duration
    from aioinformer.model.transforms import Transform
    from aioinformer.watch.interface import ListerWatcher, Selectors

__all__ = ["SharedInformer"]


class SharedInformer:
    """Local, indexed copy of one collection, usually made by a `SharedInformerFactory`.

    Guarantees (each has tests of its name in tests/contracts/):
        G1: For one object (one uid), a handler gets states that the server reported, in
            the order in which the informer received them, each at most once except in
            resyncs. While handler and informer run, the last state follows the last
            change. States may be skipped (by a relist, or by coalescing).
        G2: Different objects have no order.
        G3: When a handler runs, the store has the notified state or a later one.
        G4: A handler is never called concurrently with itself. A handler that waits or
            fails delays neither others nor the store. One that blocks the event loop
            delays everything: calls over 50 ms are counted and logged. `thread=True`
            runs a plain handler in a thread.
        G5: A late handler first gets every stored object as `Added(initial=True)`, then
            every later change, without gaps or repetitions.
        G6: An object deleted while disconnected gives
            `Deleted(final_state_unknown=True)` with its last known state. If the name
            has another uid, `Added` follows. `Deleted` means "no longer in this
            informer's selection".
        G7: After every end of a watch or list there is another attempt. Failed attempts
            start 0.8 to 60 s apart: delays double up to 30 s, and jitter adds up to 100 %.
        G8: A dead informer is never mistaken for a live one: `status` shows the end,
            and all waits, iterations of its events and reads through its lister raise.
        G9: After `run()` has ended, no task, timer or connection of it is left. Nothing
            is left of a waiter or an events iterator that has ended.
        G12: Exceptions of handlers, filters, index functions, transforms and watch
            error handlers are logged (repeated ones in part) and counted, and stop
            nothing else. Those of the first four are passed to `on_error`. An exception
            of a predicate is raised to its waiter. A `CancelledError` that such code
            raises itself counts as an exception. So does any other `BaseException` that
            does not end the program.
        G13: After `set_selection`, objects that enter give `Added`, objects that leave
            `Deleted(reason="moved")`, and objects that stay neither, without a gap. No
            object of another shard is stored, whatever the server sends.

    Several namespaces:
        Each namespace has a list and a watch, with errors and versions of its own. All
        share one store and one set of handlers. The informer is synced when all are. A
        refusal in one namespace stops nothing in the others: see `status.namespaces`.
        Reads in a namespace only require that this one is synced. The version of the
        store is the lowest one. A relist of one namespace replaces its objects in one
        step, and takes a microsecond for each object of the others.

    Lifetime:
        `run()` may be called once. It owns one task, two for each list-watch, and one
        for each handler. With a store on disk, it owns four, one for each handler, and
        three more in the process that writes the store.

    Args:
        source: Source to list and watch, or a source for each of several namespaces.
        name: Name in log, metrics and errors.
        indexers: Index functions by name, in addition to the index by namespace.
        transform: Function called with each object before it is stored: once for each
            state, and for the final state of a deletion, but not again for objects that
            a relist shows unchanged. It returns the object to store, or None to leave
            it out, as if it did not match the selector. A stored object that is left
            out later gives `Deleted`, with its last stored state. Key, uid and version
            must not change; missing ones are restored. If it fails, the object is
            stored as the server sent it, and `status.degraded` counts it. It runs in
            the event loop and must not wait. See `strip_managed_fields`, `drop` and
            `transform_dict`. With `strip_managed_fields`, servers with
            `ManagedFieldsOptOut` (Kubernetes 1.38) do not send managed fields at all.
        options: Options of lists and watches.
        on_error: Function called with each exception of the user's code.
        metrics: Sink of measurements.
        rng: Source of jitter.
        queue: Queue between reflector and store, with `KubeObject.key` as its key
            function. None for a `DeltaFIFO`, which groups the changes of an object. An
            `OrderedFIFO` keeps the order of all changes. Not allowed with several
            namespaces.
        resync_period: Default resync period of handlers: see `add_event_handler`.
        compression: `"zstd"` to keep bodies compressed; requires the `zstd` extra. Pods
            of 7 KB then take 0.9 KB, and each read of a body takes 10 microseconds
            more. Keys, uids, versions, labels and index values are not compressed. A
            thread trains a dictionary from the first 500 objects, and again if later
            ones differ. Below 100 objects there is none, and pods take 2.3 KB. None for
            no compression.
        place: Place of the store on disk, from a factory with `cache_dir`; None to keep
            the objects in memory.
        limiter: Limiter of the memory, from a factory with `memory_budget`; None for
            no limit.

    Raises:
        OptionsError: If an indexer has the name of the namespace index, the transform
            is not a plain function, a namespace is missing or has no name, the resync
            period is negative or below a second, or the compression is unknown or not
            installed.
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
        place: CachePlace | None = None,
        limiter: MemoryLimiter | None = None,
    ) -> None:
        self.name = name
        self._resync_seconds = resync_seconds(resync_period)
        self.options: ReflectorOptions = options or ReflectorOptions()
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
        self._limiter = limiter
        on_demand = limiter is not None
        self._compressor = BodyCompressor(compression, name, on_demand=on_demand)
        self._processor = Processor()
        list_watches = sources_of(source)
        pipeline = partial(
            Pipeline,
            self._indexer,
            self._processor,
            self._run_state.notify,
            self._transformer,
            waiters=self._waiters,
            compressor=self._compressor,
            limiter=limiter,
        )
        reflector = partial(
            Reflector,
            options=self.options,
            on_change=self._reflector_changed,
            drops_managed_fields=lambda: drops_managed_fields(self.transform),
            rng=rng,
        )
        sources = partial(
            make_sources, name, list_watches, queue, self._metrics, pipeline
        )
        self._cached: CachedSource | None = None
        if place is not None:
            self._cached = self._on_disk(place, list_watches, reflector, sources)

        self._sources = NamespaceSources(
            name,
            sources(reflector) if self._cached is None else (self._cached,),
            self._indexer,
            self._run_state,
        )
        self._gauges = InformerMetrics(
            name,
            self._sources,
            self._indexer,
            self._processor,
            self._run_state,
            self._metrics,
            limiter,
        )
        self._waits = InformerWaits(
            self._sources,
            self._indexer,
            self._waiters,
            self._run_state,
            GuardedSink(self._metrics, name, name=name),
        )
        self._bodies = BodyJoiner(name)
        self._lister = Lister(
            self._indexer,
            self._sources.check_live,
            self._sources.check_age,
            bodies=self._bodies,
        )
        self._resync_listing = ListOncePerTurn(self._indexer)

    def __repr__(self) -> str:
        return (
            f"<SharedInformer {self.name} {self.status.phase} "
            f"{len(self._indexer)} objects>"
        )

    # ------------------------------------------------------------ contents

    @property
    def resource(self) -> Resource | None:
        """Resource of the objects; None if the source does not know it."""
        return self._sources.resource

    def selects(self, obj: KubeObject) -> bool:
        """Return True if a source selects an object, or the sources cannot tell."""
        return self._sources.selects(obj)

    @property
    def selection(self) -> Selectors:
        """Selectors of the objects in the store, once it is synced.

        After `set_selection`, the previous ones, until the store has the new objects.
        """
        return self._sources.selection

    def set_selection(
        self,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        shards: ShardSelector | None = None,
    ) -> None:
        """Change which objects the informer has. What is not passed stays.

        The store follows, see `wait_selection`. Handlers get `Added` for each object
        that enters, and `Deleted` with the reason `"moved"` for each object that leaves.
        Objects that stay give neither, and none of their changes is missed or repeated.
        Several calls within 0.1 s are one change.

        If only shards change, those that are removed leave the store at once. Those
        that are added are listed, while the watch of the others continues. If that
        list fails, it is repeated with backoff. Then the watch begins again, at a
        version up to which all shards are known: `status.resource_version` may go back
        to the version of the list for a moment. Any other change leads to a list of the
        new selection, which is compared with the store. Until it is complete, the store
        shows the old objects without their changes.

        Args:
            label_selector: Label selector in kubectl's syntax; `""` for all. It
                replaces the whole selector, with the part that the factory has added.
            field_selector: Field selector in kubectl's syntax; `""` for all.
            shards: Selector by shard; `ShardSelector(ranges_of(1))` for all.

        Raises:
            SelectorSyntaxError: If a selector cannot be parsed.
            OptionsError: If the informer has several namespaces or a store on disk, its
                source cannot change its selection, or `shards` is no `ShardSelector`.
            InformerStopped: If the informer has ended.
            WrongLoop: If called from another event loop or thread.
        """
        self._run_state.check_open()
        changes: dict[str, Any] = {
            "label_selector": label_selector,
            "field_selector": field_selector,
            "shards": shards,
        }
        reflector = self._sources.reflector_to_select()
        passed = {name: it for name, it in changes.items() if it is not None}
        reflector.select(replace(reflector.wanted, **passed))

    async def wait_selection(
        self, timeout: Duration | None = None, *, other_than: Selectors | None = None
    ) -> None:
        """Wait until the store has the selection that was set last.

        Then `selection` has its selectors, and handlers' queues have all events of the
        change. Returns at once if the selection was never changed and the informer is
        synced.

        Args:
            timeout: Seconds, or a timedelta; None for no limit.
            other_than: Selectors to wait for the end of. The store may then have a part
                of the change, such as some of several shards. None to wait for all of it.

        Raises:
            TimeoutError: If the timeout expires. The message has the last error.
            InformerStopped: If the informer has ended.
            WrongLoop: If called from another event loop or thread.

        Cancellation:
            Safe.
        """
        await self._waits.wait_selection(timeout, other_than=other_than)

    @property
    def indexer(self) -> Indexer[KubeObject]:
        """Objects and indexes. Reads never raise because of the informer's state."""
        return self._indexer

    @property
    def store(self) -> Indexer[KubeObject]:
        """Alias of `indexer`."""
        return self._indexer

    @property
    def lister(self) -> Lister:
        """Lister, whose reads raise unless the cache is complete and live."""
        return self._lister

    def add_indexers(self, indexers: Mapping[str, IndexFunction[KubeObject]]) -> None:
        """Add indexes, and index all stored objects.

        May be called at any time. It takes some microseconds for each object and index:
        100,000 objects block the event loop for half a second. With so many, add
        indexes before the informer runs, or `await build_indexers`. Adding the same
        function under the same name again changes nothing.

        Raises:
            OptionsError: If a name has another function, or a function is not plain;
                nothing was added.
            InformerStopped: If the informer has ended.
            WrongLoop: If called from another event loop or thread.
        """
        self._run_state.check_open()
        self._indexer.add_indexers(indexers)

    async def build_indexers(
        self, indexers: Mapping[str, IndexFunction[KubeObject]]
    ) -> None:
        """Add indexes in slices that leave time for other tasks.

        Objects may change meanwhile. All indexes appear together, and complete, when
        this returns.

        Raises:
            OptionsError: If a name has another function, or a function is not plain;
                nothing was added.
            CacheError: If the store on disk is damaged; nothing was added.
            InformerStopped: If the informer has ended.
            WrongLoop: If called from another event loop or thread.

        Cancellation:
            Safe: none of them was added.
        """
        self._run_state.check_open()
        await self._indexer.build_indexers(indexers)

    @property
    def transform(self) -> Transform | None:
        """Function called with each object before it is stored, or None."""
        return self._transformer.function

    def set_transform(self, transform: Transform | None) -> None:
        """Replace the transform.

        Args:
            transform: Transform as in `SharedInformer`; None for no transform.

        Raises:
            OptionsError: If the informer has been run, as stored objects passed the old
                transform, or if it is not a plain function.
            InformerStopped: If the informer has ended.
            WrongLoop: If called from another event loop or thread.
        """
        self._run_state.check_open()
        if self._run_state.loop is not None:
            raise OptionsError(
                f"{self.name} has been started already: set the transform before"
            )

        self._transformer.function = transform

    # ------------------------------------------------------------ state

    @property
    def has_synced(self) -> bool:
        """True once store and handlers' queues have the first complete list.

        Never becomes False again; see `status.age` for freshness.
        """
        return self._sources.synced

    @property
    def status(self) -> InformerStatus:
        """Current state. May be read from any thread."""
        status = self._sources.status()
        failures = self._transformer.failures + self._bodies.failures
        return replace(
            status,
            degraded=status.degraded + failures,
            last_error=self._run_state.failure or status.last_error,
            memory=None if self._limiter is None else self._limiter.status(),
        )

    def why_not_synced(self) -> str:
        """Return `"synced"`, or the phase and the last error."""
        return "synced" if self.has_synced else self._sources.describe()

    # ------------------------------------------------------------ waiting

    async def wait_synced(
        self, timeout: Duration | None = None, *, fail_fast: bool = True
    ) -> None:
        """Wait until the first complete list, of all namespaces, is in the store.

        For handlers, use `Registration.wait_synced`.

        Args:
            timeout: Seconds, or a timedelta; None for no limit.
            fail_fast: True to fail after two permanent errors in a row: 400, 401, 403,
                404, 405 or 422. The informer itself keeps retrying.

        Raises:
            NotSynced: If the timeout expires, or two attempts were refused. The message
                and `results` have the phase and the last error.
            InformerStopped: If the informer has ended, synced or not.
            WrongLoop: If called from another event loop or thread.

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
        """Wait until the store has everything up to a version.

        After a write, use `has_seen`. With several namespaces, all of them have to
        reach it. One without changes only advances with bookmarks, about one a minute.

        Args:
            resource_version: Version from the server; must be a decimal number.
            timeout: Seconds, or a timedelta; None for no limit.
            namespace: Namespace to wait for. Without effect unless the informer has
                several.

        Raises:
            TimeoutError: If the timeout expires. The message has the version of the
                store.
            HistoryReset: If the server's versions go backwards meanwhile, so that this
                version may never be reached.
            OptionsError: If this version or the server's versions are not decimal
                numbers, or the informer does not have that namespace.
            InformerStopped: If the informer has ended.
            WrongLoop: If called from another event loop or thread.

        Cancellation:
            Safe.
        """
        await self._waits.wait_for_version(
            resource_version, timeout, namespace=namespace
        )

    async def has_seen(
        self,
        written: KubeObject,
        timeout: Duration | None = None,
        *,
        deleted: bool = False,
    ) -> None:
        """Wait until the store shows a write, or a later state of the object.

        ::

            web = await client.patch(DEPLOYMENTS, "web", change, namespace="shop")
            await deployments.has_seen(web, timeout=10)

        Reconciles wait by themselves: see `Context.client`.

        Args:
            written: Object that the write returned. If the informer neither selects nor
                has it, there is nothing to wait for.
            timeout: Seconds, or a timedelta; None for no limit.
            deleted: True after a deletion: wait until the store does not have this
                object, or has it with a deletion timestamp.

        Raises:
            TimeoutError: If the timeout expires. The message has the last state.
            NotSynced: If the first list was refused twice, for example by a 403.
            HistoryReset: If versions go backwards meanwhile: the write may be lost.
            OptionsError: If it is not an object of this informer's kind, or has no
                version that is a number (after a deletion, no uid).
            CacheError: If the store on disk is damaged. The informer is about to
                continue in memory: wait again.
            InformerStopped: If the informer has ended.
            WrongLoop: If called from another event loop or thread.

        Cancellation:
            Safe.
        """
        await self._waits.has_seen(written, timeout, deleted=deleted)

    @overload
    async def wait_until(
        self,
        predicate: Callable[[KubeObject | None], object],
        key: str,
        timeout: Duration | None = None,
    ) -> KubeObject | None: ...

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
    ) -> KubeObject | None:
        """Wait until a predicate is true, for one object or for the store.

        ::

            pod = await pods.wait_until(is_ready, key="shop/web-0", timeout=30)
            await pods.wait_until(lambda store: len(store) >= 3)

        The predicate is called with the current state, and then after changes until it
        is true. The first call waits for the first complete list: an object that was
        not listed yet is not considered absent.

        With a key, it is called with each state of the object in order, and with None
        when the object is deleted. So a state that lasted only for a moment counts,
        too, unless the informer missed it while disconnected. Changes of other keys
        cost nothing.

        Without a key, it is called with the store after each batch of changes.

        Args:
            predicate: Plain function of a `KubeObject | None` with a key, else of the
                store. It is called in the waiting task and must not wait.
            key: Key of an object: `"namespace/name"`, or the name if cluster-scoped.
            timeout: Seconds, or a timedelta; None for no limit.

        Returns:
            With a key the object that satisfied the predicate, else None. It is also
            None if the object is absent, and the predicate accepted that.

        Raises:
            Exception: Error of the predicate.
            TimeoutError: If the timeout expires. The message has the last state.
            NotSynced: If the first list was refused twice in a row: see `wait_synced`.
            OptionsError: If the predicate is not a plain function, or the informer does
                not have the key's namespace.
            CacheError: If the store on disk is damaged; see `has_seen`.
            InformerStopped: If the informer has ended.
            WrongLoop: If called from another event loop or thread.

        Cancellation:
            Safe.
        """
        return await self._waits.wait_until(predicate, key, timeout)

    # ------------------------------------------------------------ handlers

    @with_advice
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
        """Add handler functions, plain or async, which share one queue.

        May be called at any time: a late handler first gets every stored object.

        Args:
            on_add: Function called with each object that enters the selection.
            on_update: Function called with the old and the new state of a changed
                object.
            on_delete: Function called with the last state of an object that leaves.
            on_event: Function called with each `Added`, `Updated` or `Deleted`, instead
                of the other three.
            resync_period: Interval of resyncs in seconds, or a timedelta; at least 1 s,
                0 for none, None for the informer's. A resync calls the handler with
                each stored object as an update without a change (`Updated(obj, obj,
                resync=True)`), except for objects with a queued notification. It reads
                the store, not the server. To change the period, add the handler again.
            filter: Plain function that returns True for the objects of interest. It is
                called in the event loop when a notification is delivered. Objects that
                start to match give `Added`, those that stop to match `Deleted`. An
                object for which it fails matches.
            coalesce: True to merge the queued notifications of each object into one, or
                none if it was added and deleted. A slow handler then needs memory for
                each object, not for each change.
            thread: True to call plain functions in a thread, one at a time, for code
                that blocks. They have the context variables of the informer's run, as
                with `asyncio.to_thread`. A call that has not returned when the informer
                has stopped is abandoned with a warning, and does not keep the process
                alive.
            name: Name in log and metrics; by default the names of the functions.

        Returns:
            Registration of the handler: its state, and how to remove it.

        Raises:
            OptionsError: If there is no function, or `on_event` and another one, the
                period is below a second, the filter is not a plain function, or an
                async function has `thread=True`.
            InformerStopped: If the informer has ended.
            WrongLoop: If called from another event loop or thread.
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
        """Decorate a function to call with each object that enters the selection.

        Either `@pods.on_add`, or with options of `add_event_handler`:
        `@pods.on_add(filter=is_ready, coalesce=True)`.
        """
        return self._decorate("on_add", handler, options)

    @overload
    def on_update(self, handler: U, /) -> U: ...

    @overload
    def on_update(self, /, **options: Unpack[HandlerKeywords]) -> Callable[[U], U]: ...

    def on_update(self, handler: Any = None, /, **options: Any) -> Any:
        """Decorate a function to call with the old and the new state; see `on_add`."""
        return self._decorate("on_update", handler, options)

    @overload
    def on_delete(self, handler: F, /) -> F: ...

    @overload
    def on_delete(self, /, **options: Unpack[HandlerKeywords]) -> Callable[[F], F]: ...

    def on_delete(self, handler: Any = None, /, **options: Any) -> Any:
        """Decorate a function to call with the last state of a deletion; see `on_add`."""
        return self._decorate("on_delete", handler, options)

    @overload
    def on_event(self, handler: E, /) -> E: ...

    @overload
    def on_event(self, /, **options: Unpack[HandlerKeywords]) -> Callable[[E], E]: ...

    def on_event(self, handler: Any = None, /, **options: Any) -> Any:
        """Decorate a function to call with each notification; see `on_add`."""
        return self._decorate("on_event", handler, options)

    def events(
        self,
        *,
        resync_period: Duration | None = None,
        filter: Callable[[KubeObject], object] | None = None,  # noqa: A002 - as spoken
        coalesce: bool = False,
        name: str = "events",
    ) -> Events:
        """Return an async iterator of notifications, to be entered with `async with`.

        ::

            async with pods.events() as events:
                async for event in events:
                    match event:
                        case Added(obj, initial): ...
                        case Updated(old, new, resync): ...
                        case Deleted(obj, final_state_unknown): ...

        The stored objects come first, as `Added(initial=True)`, then every change, in
        the order of handlers. See `Events`.

        Args:
            resync_period: Interval of resyncs, as in `add_event_handler`.
            filter: Function that returns True for the objects of interest.
            coalesce: True to merge the queued notifications of each object.
            name: Name in log and metrics.

        Raises:
            OptionsError: If the period is below a second, or the filter is not a plain
                function.
        """
        options = HandlerOptions(
            resync_period=resync_period, filter=filter, coalesce=coalesce, name=name
        )
        return Events(
            lambda handler: self._add(EventHandlers(on_event=handler), options),
            self._run_state,
            # Notifications taken ahead cannot be merged.
            ahead=1 if coalesce else AHEAD,
        )

    def set_watch_error_handler(
        self, handler: Callable[[Exception], None] | None
    ) -> None:
        """Set a function to call with the error of every list or watch that fails.

        May be called at any time, and replaces an earlier handler. The informer retries
        by itself. (client-go's handler must be set before the informer runs, and is not
        called for errors in the middle of a watch.)

        Args:
            handler: Plain function, called in the event loop; it must not wait. Its
                errors are logged and dropped. None removes the handler.

        Raises:
            OptionsError: If it is not a plain function.
            InformerStopped: If the informer has ended.
            WrongLoop: If called from another event loop or thread.
        """
        self._run_state.check_open()
        for source in self._sources.all:
            source.set_watch_error_handler(handler)

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Tell an observer of all changes, in the steps that make them.

        For recorders: an observer costs less than a handler, and is told which changes
        were made by lists. The stored objects come first, as a `Snapshot`.

        Returns:
            Function that removes the observer. Idempotent.

        Raises:
            OptionsError: If the informer has a store on disk.
            InformerStopped: If the informer has ended.
            WrongLoop: If called from another event loop or thread.
        """
        self._run_state.check_open()
        if self._cached is not None:
            raise OptionsError(
                f"{self.name} has its objects on disk: use an informer without cache_dir"
            )

        processor = self._processor
        if len(self._indexer):
            observer.put(Snapshot(self._indexer.list()))

        if self.has_synced:
            observer.mark_synced()

        processor.observers += (observer,)

        def remove() -> None:
            processor.observers = tuple(
                it for it in processor.observers if it is not observer
            )

        return remove

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

        follower = None if self._cached is None else self._cached.follower
        if follower is not None:
            self._processor.add(listener)
            follower.add(listener)
        else:
            self._add_in_memory(listener)

        return Registration(
            listener, self._processor.remove, self._run_state.check_loop
        )

    def _add_in_memory(self, listener: Listener) -> None:
        # Atomic: no await between the snapshot and the changes after it.
        if len(self._indexer):
            now = asyncio.get_running_loop().time()
            listener.put(Snapshot(self._indexer.list()), now, now)

        self._processor.add(listener)
        if self.has_synced:
            listener.mark_synced()

    # ------------------------------------------------------------ lifecycle

    async def run(self) -> None:
        """Run the informer until cancelled.

        A cancellation closes the connection first. Then handlers have up to 5 s to
        process queued notifications; the rest is dropped, with a warning. A second
        cancellation ends them at once.

        Raises:
            OptionsError: If it was called before.
            InformerStopped: If the informer was abandoned before.
            InternalError: If other code has cancelled one of its tasks, or a user's
                function has cancelled the task that called it.
            Exception: Bug in this package. Errors of servers and handlers do not end
                it.

        Cancellation:
            Stops the informer. Only the data in memory is left afterwards: a store on
            disk is closed, and reads of it raise `InformerStopped`.
        """
        self._run_state.begin()
        failure = None
        try:
            await run_tasks(
                self.name, self._run_state, self._processor, self._sources.tasks()
            )
        except BaseExceptionGroup as group:
            failure = unwrap_group(group)
        finally:
            self._processor.end()
            self._run_state.end(failure)
            await self._sources.close()

        if failure is not None:  # pragma: no branch - `run_tasks()` never returns
            raise failure

    def abandon(self, failure: BaseException | None = None) -> None:
        """End an informer that will never run, and all waits for it.

        For code that runs informers: if a task is cancelled before its first step, it
        has not called `run()`. No effect after `run()` has ended.

        Args:
            failure: Error that the informer is considered to have died of, or None.
        """
        self._processor.end()
        self._run_state.end(failure)

    def set_death_handler(
        self,
        handler: Callable[[BaseException], None],
        *,
        why_ending: Callable[[], BaseException | None] = lambda: None,
    ) -> None:
        """Set a function to call with the error that ends the informer, at once.

        For code that runs informers: `run()` raises the same error, but only after the
        handlers have ended, and not if it is cancelled meanwhile.

        Args:
            handler: Plain function, called in the event loop; must neither wait nor
                raise.
            why_ending: Plain function, called when `run()` is cancelled. It returns
                None if the informer was stopped on purpose, else the error that the
                informer dies of.

        Raises:
            OptionsError: If one of them is not a plain function.
        """
        check_plain(handler, "a failure handler")
        check_plain(why_ending, "why_ending")
        self._run_state.why_ending = why_ending
        self._run_state.on_death = handler

    def report_failure(self, failure: HandlerError) -> None:
        """Log and count a failure of other user code, and pass it to `on_error`."""
        self._reporter.report(failure)

    def set_metrics(self, sink: MetricsSink) -> None:
        """Set the sink of metrics, unless the informer has one."""
        self._sources.wake()
        self._metrics.connect(sink)

    def forget_metrics(self) -> None:
        """Make the metrics sink drop the series of this informer and its handlers.

        For code that runs informers, after their end. Without effect unless the sink is
        a `ForgettingSink`. A later informer of the same name begins new series.
        """
        self._metrics.end()

    def _on_disk(
        self,
        place: CachePlace,
        list_watches: Mapping[str | None, ListerWatcher],
        reflector: Callable[..., Reflector],
        sources: Callable[[Callable[..., Reflector]], tuple[NamespaceSource, ...]],
    ) -> CachedSource:
        """Return the source of an informer whose objects are on disk."""
        from aioinformer.informer.cached.source import CachedSource, InformerParts

        (list_watch,) = list_watches.values()
        parts = InformerParts(
            name=self.name,
            list_watch=list_watch,
            indexer=self._indexer,
            processor=self._processor,
            waiters=self._waiters,
            transformer=self._transformer,
            reporter=self._reporter,
            run_state=self._run_state,
            metrics=self._metrics,
            on_change=self._reflector_changed,
            reflector=reflector,
            in_memory=sources,
        )
        return CachedSource(parts, place)

    def _reflector_changed(self) -> None:
        self._run_state.notify()
        if self._cached is not None:
            self._cached.state_changed()

        self._waiters.wake_versions()
        for observer in self._processor.observers:
            observer.state_changed()
