"""`SharedInformerFactory`: creates and runs informers that share one client."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aioinformer._runnables import Runnable, Runnables, wait_until_cancelled
from aioinformer._tasks import Supervisor, run_concurrently
from aioinformer._user_code import guarded_logger
from aioinformer.client.client import Client
from aioinformer.client.keep_open import keep_open
from aioinformer.client.list_watch import DiscoveredListWatch, ListWatch
from aioinformer.errors import InformerStopped, NotSynced, OptionsError, WrongLoop
from aioinformer.informer.informer_spec import FactoryDefaults, InformerOptions
from aioinformer.informer.lifecycle import Lifecycle, WebLifespan, running_loop
from aioinformer.informer.listwatch.interface import (
    INTERNAL_ERROR_SECONDS,
    WATCH_GRACE_SECONDS,
    WATCH_SECONDS,
)
from aioinformer.informer.memory_budget import MemoryBudget
from aioinformer.informer.shared_informer import SharedInformer
from aioinformer.informer.store.memory_limiter import MemoryLimiter
from aioinformer.metrics import NULL_SINK
from aioinformer.model.callables import check_plain
from aioinformer.model.misuse import keyword_advice, with_advice

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path
    from typing import Unpack

    from aioinformer.cache.index import IndexFunction
    from aioinformer.errors import HandlerError
    from aioinformer.informer.cached.place import CachePlace
    from aioinformer.informer.informer_spec import InformerSpec, Namespaces
    from aioinformer.metrics import MetricsSink
    from aioinformer.model.compression import Compression
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource
    from aioinformer.model.shards import ShardSelector
    from aioinformer.model.times import Duration
    from aioinformer.model.transforms import Transform
    from aioinformer.watch.interface import ListerWatcher

    Indexers = Mapping[str, IndexFunction[KubeObject]]

__all__ = [
    "DynamicInformerFactory",
    "Entry",
    "MetadataInformerFactory",
    "SharedInformerFactory",
    "not_ready",
    "wait_for_cache_sync",
    "why_not_ready",
]


logger: Final = guarded_logger(__name__)


class SharedInformerFactory(Lifecycle, WebLifespan):
    """Factory that creates and runs informers, which share one client.

    ::

        factory = SharedInformerFactory(Client.from_env())
        pods = factory.informer("v1", "pods")
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            print(len(pods.lister.list("app=web")))

    It may be started in one task and shut down in another. It opens and closes its
    client, unless the client is open already. Like client-go's factories, it has
    defaults for the options of informers.

    Args:
        client: Client for all requests.
        namespace: Default namespace of informers. Informers of cluster-scoped resources
            ignore it, and `namespace=""` selects all namespaces.
        label_selector: Label selector added to that of each informer.
        field_selector: Field selector added to that of each informer.
        transform: Default transform of informers.
        resync_period: Default resync period of informers, in seconds.
        custom_resync: Default resync periods by resource; they override
            `resync_period`.
        on_error: Function called with each exception of handlers, index functions and
            transforms.
        metrics: Sink of measurements.
        cache_dir: Directory on a local disk, in which informers keep their objects. All
            processes of this user on the machine that pass the same directory share one
            copy and one watch, and a restarted process reads what is stored without a
            list. Informers of several namespaces stay in memory, and Secrets unless
            they are requested with `cached=True`. Stored bodies are always compressed.
            If the directory cannot be used, informers continue in memory:
            `status.cache` says why. Requires the `shared` extra. None to keep all
            objects in memory.
        memory_budget: Limit of the memory of all stores of this factory: bytes, a text
            such as `"2GiB"` or `"50%"`, or a `MemoryBudget`. Near it, bodies that have
            not changed for the longest time are compressed. Objects on disk do not
            count. None for no limit.

    Raises:
        OptionsError: If the client, a namespace, a period, `cache_dir` or
            `memory_budget` is invalid, `on_error` is not a plain function, or a package
            for `cache_dir` or `memory_budget` is not installed.
        SelectorSyntaxError: If a selector cannot be parsed.
    """

    _metadata_only = False
    _any_resource = False

    @with_advice
    def __init__(
        self,
        client: Client,
        *,
        namespace: Namespaces = None,
        label_selector: str = "",
        field_selector: str = "",
        transform: Transform | None = None,
        resync_period: Duration | None = None,
        custom_resync: Mapping[Resource, Duration] | None = None,
        on_error: Callable[[HandlerError], None] | None = None,
        metrics: MetricsSink = NULL_SINK,
        cache_dir: str | os.PathLike[str] | None = None,
        memory_budget: MemoryBudget | int | str | None = None,
    ) -> None:
        if not isinstance(client, Client):
            raise OptionsError(
                "a factory needs a Client, from Client.from_env() or "
                f"Client.from_kubernetes_asyncio(...), not {client!r}"
            )

        if on_error is not None:
            check_plain(on_error, "on_error")

        self._client = client
        self._cache_root: Path | None = None
        if cache_dir is not None:
            # Loaded on demand: stores on disk are a sixth of the time of the import.
            from aioinformer.informer.cached.place import cache_root

            self._cache_root = cache_root(cache_dir)

        self._defaults = FactoryDefaults(
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            transform=transform,
            resync_period=resync_period,
            custom_resync=dict(custom_resync or {}),
            metadata_only=self._metadata_only,
            any_resource=self._any_resource,
            cached=self._cache_root is not None,
        )
        self._on_error = on_error
        self._metrics = metrics
        self._entries: dict[tuple[object, ...], Entry] = {}
        self._followers: list[Callable[[SharedInformer], None]] = []
        self._runnables = Runnables(self._log_death)
        budget = MemoryBudget.of(memory_budget)
        self._limiter = None if budget is None else MemoryLimiter(budget)
        if self._limiter is not None:
            self._runnables.add(Runnable("memory budget", self._limiter.run))

        self._supervisor = Supervisor(self._run_supervised, "informer factory")
        self._loop: asyncio.AbstractEventLoop | None = None  # loop of `start()`
        self._raised = False  # True once `shutdown()` has raised the failure

    def __repr__(self) -> str:
        names = ", ".join(informer.name for informer in self.informers)
        return f"<{type(self).__name__} {names or 'without informers'}>"

    @property
    def client(self) -> Client:
        """Client of its informers."""
        return self._client

    def set_metrics(self, sink: MetricsSink) -> None:
        """Set the sink of metrics, unless the factory has one.

        Its informers begin to measure. A `Manager` with a sink calls it.
        """
        if not self._metrics.enabled:
            self._metrics = sink
            for informer in self.informers:
                informer.set_metrics(sink)

    # ------------------------------------------------------------ informers

    @with_advice
    def informer(
        self,
        api_version: str | Resource,
        resource: str = "",
        *,
        namespace: Namespaces = None,
        label_selector: str = "",
        field_selector: str = "",
        shards: ShardSelector | None = None,
        indexers: Indexers | None = None,
        transform: Transform | None = None,
        compression: Compression | None = None,
        resync_period: Duration | None = None,
        page_size: int | None = None,
        streaming_list: bool = False,
        watch_seconds: Duration = WATCH_SECONDS,
        watch_grace_seconds: Duration = WATCH_GRACE_SECONDS,
        internal_error_seconds: Duration = INTERNAL_ERROR_SECONDS,
        metadata_only: bool = False,
        cached: bool | None = None,
        name: str | None = None,
    ) -> SharedInformer:
        """Return the informer of a resource: a new one, or the existing one.

        There is one informer for each combination of resource, namespaces, selectors
        and `metadata_only`. (`set_selection` of an informer does not change that: pass
        a name for an informer whose selection changes.) A later request for the same
        informer adds its indexers. It must have the same transform and options.
        (Transforms are compared by `==`; two `drop("status.images")` are equal.) If the
        factory runs, a new informer starts at once.

        Args:
            api_version: API version, such as `"v1"` or `"apps/v1"`, or a `Resource`.
                For a custom `Resource` without a kind, the kind of the objects is not
                checked.
            resource: Plural or kind, such as `"pods"` or `"Pod"`. Custom resources are
                found by discovery. Always use the same name for one: `"widgets"` and
                `"Widget"` are two informers.
            namespace: Namespace, or a sequence of namespaces. Each has its own list and
                watch, and all share one store. `""` for all namespaces, None for the
                factory's default.
            label_selector: Label selector in kubectl's syntax.
            field_selector: Field selector in kubectl's syntax. The server decides which
                fields it supports.
            shards: Selector by a hash of each object's uid or namespace; None for all.
                Servers with `ShardedListAndWatch` (Kubernetes 1.36) then send only the
                selected objects. Others send all, and the informer drops those that are
                not selected: see `status.sharded_by_server`.
            indexers: Index functions by name.
            transform: Function that shrinks objects before they are stored, or leaves
                them out: see `SharedInformer`.
            compression: `"zstd"` to compress stored bodies to about an eighth of their
                size. Requires the `zstd` extra. See `SharedInformer`. Without effect on
                objects on disk, which are always compressed.
            resync_period: Seconds between resyncs of handlers without a period of their
                own; 0 for none, None for the factory's default.
            page_size: Number of objects in a page of a list; None for the default: see
                `ReflectorOptions`.
            streaming_list: True to request lists as streams, which saves memory in
                older servers. If the server does not support them, lists are in pages.
            watch_seconds: Minimum duration of a watch; the actual one is random, up to
                twice as long.
            watch_grace_seconds: Seconds after which the client ends a watch that the
                server should have ended.
            internal_error_seconds: Seconds for which the informer resumes watches that
                keep ending with internal errors (500), before it relists.
            metadata_only: True to request only the metadata of objects, which makes
                them much smaller. Their kind is `PartialObjectMetadata` of
                `meta.k8s.io/v1`, whatever the resource; see `obj.type_meta`.
            cached: Whether to keep the objects in the factory's `cache_dir`. None for
                True if the factory has one, except for Secrets and several namespaces.
            name: Name of a separate, second informer with the same selection.

        Raises:
            OptionsError: If the resource is unknown, an option is invalid, or options
                or transform differ from those of the existing informer. The message has
                the lines of code of both requests.
            SelectorSyntaxError: If a selector cannot be parsed.
            InformerStopped: If the factory was shut down, or the informer has died.
            WrongLoop: If the factory runs in another event loop or thread.
        """
        spec = self._defaults.spec(
            api_version,
            resource,
            {
                "namespace": namespace,
                "label_selector": label_selector,
                "field_selector": field_selector,
                "shards": shards,
                "transform": transform,
                "compression": compression,
                "resync_period": resync_period,
                "page_size": page_size,
                "streaming_list": streaming_list,
                "watch_seconds": watch_seconds,
                "watch_grace_seconds": watch_grace_seconds,
                "internal_error_seconds": internal_error_seconds,
                "metadata_only": metadata_only,
                "cached": cached,
                "name": name,
            },
        )
        entry = self._entry(spec, indexers or {})
        entry.lasting = True
        return entry.informer

    @with_advice
    def use(
        self,
        api_version: str | Resource,
        resource: str = "",
        **options: Unpack[InformerOptions],
    ) -> AbstractAsyncContextManager[SharedInformer]:
        """Use an informer for a while: `async with factory.use("v1", "pods") as pods:`.

        The first block that uses an informer starts it. The last block stops and
        removes it, unless `informer()` has also returned it. The informer may not be
        synced when a block begins.

        If a handler of this factory leaves a block, it does not wait for the informer's
        end, as the informer may be waiting for that handler.

        Args:
            api_version: API version or resource, as in `informer()`.
            resource: Plural or kind, as in `informer()`.
            **options: Options of `informer()`. All users of one informer must pass the
                same options.

        Raises:
            OptionsError: If options are invalid, as in `informer()`. On entering, if
                another block's options differ, or the factory does not run.
            SelectorSyntaxError: If a selector cannot be parsed.
            InformerStopped: On entering, if the factory was shut down, or the shared
                informer has died.
            WrongLoop: On entering, if the factory runs in another event loop.

        Cancellation:
            On leaving, deferred until the informer has ended: up to 5 s, if its
            handlers end when cancelled.
        """
        known = InformerOptions.__annotations__
        unknown = sorted(options.keys() - known.keys())
        if unknown:
            advice = keyword_advice(unknown, ["resource", *known])
            raise TypeError(
                f"unknown options of an informer: {', '.join(unknown)}. {advice}".rstrip()
            )

        indexers = options.get("indexers") or {}
        spec = self._defaults.spec(api_version, resource, options)
        return self._used(spec, indexers)

    @contextlib.asynccontextmanager
    async def _used(
        self, spec: InformerSpec, indexers: Indexers
    ) -> AsyncIterator[SharedInformer]:
        self._check_open()
        if not self._runnables.running:
            raise OptionsError(
                f"cannot use {spec.describe()!r}: the factory is not running, start it first"
            )

        entry = self._entry(spec, indexers)
        entry.users += 1
        try:
            yield entry.informer
        finally:
            entry.users -= 1
            if not entry.users and not entry.lasting:
                # From here on, the same request gets a new informer.
                del self._entries[spec.identity]
                wait = not self._supervisor.contains_caller()
                await self._runnables.stop(
                    entry.runnable,
                    wait=wait,
                    then=lambda: self._forget_metrics(entry.informer),
                )

    def _entry(self, spec: InformerSpec, indexers: Indexers) -> Entry:
        self._check_open()
        entry = self._entries.get(spec.identity)
        if entry is not None:
            entry.spec.check_same(spec, entry.informer.transform)
            entry.informer.add_indexers(indexers)
            return entry

        entry = self._entries[spec.identity] = self._new_entry(spec, indexers)
        self._runnables.add(entry.runnable)
        return entry

    def _new_entry(self, spec: InformerSpec, indexers: Indexers) -> Entry:
        informer = self._new(spec, indexers)
        runnable = Runnable(
            f"informer {informer.name}", informer.run, on_end=informer.abandon
        )
        # Called at the moment of death. `run()` returns later, after the handlers.
        informer.set_death_handler(
            lambda failure: self._runnables.fail(runnable, failure),
            why_ending=lambda: self._runnables.unexpected_cancellation(runnable),
        )
        for follow in tuple(self._followers):
            follow(informer)

        return Entry(spec, informer, runnable)

    def follow(self, function: Callable[[SharedInformer], None]) -> Callable[[], None]:
        """Call a function with each informer: now, and with later ones when requested.

        Args:
            function: Plain function. Later calls must not raise.

        Returns:
            Function that ends this. Idempotent.

        Raises:
            Exception: Exception of the function, which is not called again then.
        """
        for informer in self.informers:
            function(informer)

        self._followers.append(function)  # last: the function may have raised

        def end() -> None:
            if function in self._followers:
                self._followers.remove(function)

        return end

    def _new(self, spec: InformerSpec, indexers: Indexers) -> SharedInformer:
        sources = {it: self._source(spec, it) for it in spec.namespaces}
        return SharedInformer(
            # Only several namespaces need a source by namespace, with a state for each.
            sources if len(sources) > 1 else self._source(spec, *spec.namespaces),
            name=spec.describe(),
            indexers=indexers,
            transform=spec.transform,
            compression=spec.compression,
            resync_period=spec.resync_period,
            options=spec.options,
            on_error=self._on_error,
            metrics=self._metrics,
            place=self._place(spec),
            limiter=self._limiter,
        )

    def _place(self, spec: InformerSpec) -> CachePlace | None:
        if self._cache_root is None or not spec.cached:
            return None

        from aioinformer.informer.cached.place import CachePlace

        metadata_of = spec.resource if spec.metadata_only else None
        return CachePlace(self._cache_root, spec.directory, spec.selection, metadata_of)

    def _source(
        self, spec: InformerSpec, namespace: str | None = None
    ) -> ListerWatcher:
        return (DiscoveredListWatch if spec.by_name else ListWatch)(
            self._client,
            spec.resource,
            namespace=namespace,
            label_selector=spec.label_selector,
            field_selector=spec.field_selector,
            metadata_only=spec.metadata_only,
            shards=spec.shards,
        )

    # ------------------------------------------------------------ state

    @property
    def informers(self) -> tuple[SharedInformer, ...]:
        """All informers of this factory, including those of `use()`."""
        return tuple(entry.informer for entry in tuple(self._entries.values()))

    def not_ready(self) -> dict[str, str]:
        """Return the informers that cannot be read, with the reasons.

        Empty if all informers are synced and none has ended. Freshness does not count:
        during an outage of the API server the result stays empty, so that a web app
        keeps serving from its caches. See `informer.status.age`. Informers of `use()`
        are left out. May be called from any thread.
        """
        return not_ready(self.lasting)

    async def wait_for_cache_sync(
        self, timeout: Duration | None = None, *, fail_fast: bool = True
    ) -> None:
        """Wait until the first complete lists of all informers are in their stores.

        Informers added later, and those of `use()`, are left out. If the factory is not
        started yet, this logs a warning and waits for the start as well.

        Args:
            timeout: Seconds, or a timedelta, for all informers; None for no limit.
            fail_fast: True to fail when one was refused twice in a row: see
                `SharedInformer.wait_synced`.

        Raises:
            NotSynced: If not all are synced. The message and `results` have the
                reasons.
            InformerStopped: If an informer has ended, synced or not.

        Cancellation:
            Safe.
        """
        if not (self._supervisor.running or self._runnables.ended):
            logger.warning(
                "waiting for the caches of a factory that has not been started"
            )

        await wait_for_cache_sync(*self.lasting, timeout=timeout, fail_fast=fail_fast)

    async def failed(self) -> BaseException:
        """Wait until an informer dies of a bug, and return its error.

        Raises:
            InformerStopped: If the factory was shut down, and no informer has died.
            WrongLoop: If the factory runs in another event loop.

        Cancellation:
            Safe.
        """
        self._check_loop()
        failure = await self._runnables.wait_failed()
        if failure is None:
            raise InformerStopped("the factory has ended, and no informer failed")

        return failure

    @property
    def lasting(self) -> tuple[SharedInformer, ...]:
        """Informers that `informer()` has returned, without those of `use()`."""
        entries = tuple(self._entries.values())
        return tuple(entry.informer for entry in entries if entry.lasting)

    # ------------------------------------------------------------ lifecycle

    @property
    def running(self) -> bool:
        """True from `start()` until it has ended."""
        return self._supervisor.running

    async def start(self) -> None:
        """Start the informers; returns when they run, before they are synced.

        Raises:
            OptionsError: If the factory runs already, or the client's configuration is
                unusable; correct that and call it again.
            InformerStopped: If the factory has been stopped; it cannot start again.
            AioInformerError: If the factory was stopped meanwhile.
            WrongLoop: If the factory runs in another event loop.

        Cancellation:
            Stops it again. If no informer was started yet, it can be called again.
        """
        self._check_loop()
        if self._runnables.ended:
            raise InformerStopped(
                "a factory runs only once, and this one has ended: create a new one, for "
                "example one for each app"
            )

        self._loop = asyncio.get_running_loop()
        await self._supervisor.start()

    async def shutdown(self) -> None:
        """Stop the informers: close connections, then give handlers up to 5 s to end.

        Idempotent. Afterwards, only the data in memory is left: stores on disk are
        closed. If a handler of the factory calls it, it requests the shutdown and
        returns at once.

        Raises:
            Exception: Error of an informer that has died of a bug; raised once.
            WrongLoop: If called from another event loop.

        Cancellation:
            Deferred until all informers have ended.
        """
        self._check_loop()
        self._runnables.close()
        if self._supervisor.contains_caller():
            await self._supervisor.stop()
            return

        try:
            await self._supervisor.stop()
        finally:
            for informer in self.informers:
                informer.abandon()  # in case it was never run

        if self._runnables.failure is not None and not self._raised:
            self._raised = True
            raise self._runnables.failure

    async def _run_supervised(self, ready: Callable[[], None]) -> None:
        async def started() -> None:
            ready()
            await wait_until_cancelled()

        try:
            async with keep_open(self._client):
                await self._runnables.run(started)
        finally:
            for informer in self.informers:
                informer.forget_metrics()

    def _log_death(self, runnable: Runnable, failure: BaseException) -> None:
        logger.critical("%s failed", runnable.name, exc_info=failure)

    def _forget_metrics(self, removed: SharedInformer) -> None:
        """Drop the series of an informer, unless another one has its name."""
        if all(informer.name != removed.name for informer in self.informers):
            removed.forget_metrics()

    def _check_loop(self) -> None:
        if self._supervisor.running and self._loop is not running_loop():
            raise WrongLoop(
                "the factory runs in another event loop: call it from a coroutine there"
            )

    def _check_open(self) -> None:
        self._check_loop()
        if self._runnables.ended:
            raise InformerStopped("the factory has ended")


@dataclass(slots=True, eq=False)
class Entry:
    """Informer of a factory, and its users.

    Attributes:
        spec: Spec of the informer.
        informer: Informer made from the spec.
        runnable: Runnable of the informer.
        lasting: True if `informer()` returned it, so that it stays.
        users: Number of open `use()` blocks.
    """

    spec: InformerSpec
    informer: SharedInformer
    runnable: Runnable
    lasting: bool = False
    users: int = 0


class DynamicInformerFactory(SharedInformerFactory):
    """Factory for resources that are only known at run time.

    `factory.informer("example.com/v1", "widgets")` does not use discovery: kind and
    namespace are read from the objects. If an informer or the factory has a namespace,
    pass cluster-scoped resources as `Resource.of("example.com/v1", "zones",
    namespaced=False)`. Names of kinds, such as `"Widget"`, still use discovery. If the
    server does not have the resource, nothing is
    raised: `status.not_served` becomes True, and the informer keeps retrying.

    Everything else is as in `SharedInformerFactory`.
    """

    _any_resource = True


class MetadataInformerFactory(DynamicInformerFactory):
    """Dynamic factory whose informers request only the metadata of objects.

    See `metadata_only` of `SharedInformerFactory.informer`.
    """

    _metadata_only = True


async def wait_for_cache_sync(
    *informers: SharedInformer,
    timeout: Duration | None = None,
    fail_fast: bool = True,
) -> None:
    """Wait until the first complete lists of all these informers are in their stores.

    Args:
        informers: Informers to wait for.
        timeout: Seconds, or a timedelta, for all informers; None for no limit.
        fail_fast: True to fail when one was refused twice in a row: see
            `SharedInformer.wait_synced`.

    Raises:
        NotSynced: If not all are synced. The message and `results` have the reasons.
        InformerStopped: If an informer has ended, synced or not.

    Cancellation:
        Safe.
    """
    try:
        # Concurrently, as a slow informer must not hide that another one is refused.
        await run_concurrently(
            *(each.wait_synced(timeout, fail_fast=fail_fast) for each in informers)
        )
    except NotSynced as exc:
        results = _results(informers)
        missing = _missing(informers, results)
        if missing:  # the last one may have synced at this moment
            raise NotSynced(
                f"not synced: {missing}", results=results
            ) from exc.__cause__


def not_ready(informers: Iterable[SharedInformer]) -> dict[str, str]:
    """Return the reasons of informers that cannot be read, by their names."""
    return {it.name: why for it in informers if (why := why_not_ready(it))}


def why_not_ready(informer: SharedInformer) -> str:
    """Return why an informer cannot be read; empty if it can."""
    status = informer.status
    if status.phase == "stopped":
        error = status.last_error
        return "stopped" if error is None else f"stopped: {error!r}"

    return "" if informer.has_synced else informer.why_not_synced()


def _missing(informers: Sequence[SharedInformer], results: Mapping[str, str]) -> str:
    """Return the reasons of informers that are not synced, each error only once."""
    by_name = {it.name: it for it in informers}
    first: dict[str, str] = {}
    parts = []
    for name, reason in results.items():
        if reason != "synced":
            error = str(by_name[name].status.last_error or "")
            known = first.setdefault(error, name)
            if error and known != name:
                reason = reason.replace(error, f"same error as {known}")

            parts.append(f"{name}: {reason.rstrip('.')}")

    return "; ".join(parts)


def _results(informers: Sequence[SharedInformer]) -> dict[str, str]:
    """Return `"synced"`, or why an informer is not synced, by name."""
    results: dict[str, str] = {}
    for informer in informers:
        if results.get(informer.name, "synced") == "synced":  # names may repeat
            results[informer.name] = informer.why_not_synced()

    return results
