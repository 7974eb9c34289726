"""`SharedInformerFactory`: informers that share one client, and their life."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioinformer._runnables import Runnable, Runnables
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
from aioinformer.informer.shared_informer import SharedInformer
from aioinformer.metrics import NULL_SINK
from aioinformer.model.callables import check_plain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from typing import Unpack

    from aioinformer.cache.index import IndexFunction
    from aioinformer.errors import HandlerError
    from aioinformer.informer.informer_spec import InformerSpec, Namespaces
    from aioinformer.metrics import MetricsSink
    from aioinformer.model.compression import Compression
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource
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


logger = guarded_logger(__name__)


class SharedInformerFactory(Lifecycle, WebLifespan):
    """Factory of informers that share one client, which it also runs.

    ::

        factory = SharedInformerFactory(Client.from_env())
        pods = factory.informer("v1", "pods")
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            print(len(pods.lister.list("app=web")))

    It may be entered in one task and left in another. A client that nobody has entered
    is entered, and left again, by the factory. The defaults are those that client-go's
    factories have.

    Args:
        client: Client for all requests.
        namespace: Default namespace of informers. Informers of cluster-scoped resources
            ignore it, and `namespace=""` selects all namespaces.
        label_selector: Selector of all informers, in addition to their own.
        field_selector: Selector of all informers, in addition to their own.
        transform: Default transform of informers.
        resync_period: Default resync period of informers, in seconds.
        custom_resync: Default resync periods by resource, which take precedence.
        on_error: Function called with each exception of handlers, index functions and
            transforms.
        metrics: Sink of measurements.

    Raises:
        OptionsError: If the client is none, a namespace or a period cannot be one, or
            `on_error` is no plain function.
        SelectorSyntaxError: If a selector cannot be parsed.
    """

    _metadata_only = False
    _any_resource = False

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
    ) -> None:
        if not isinstance(client, Client):
            raise OptionsError(
                "a factory needs a Client, as Client.from_env() makes one, or "
                f"Client.from_kubernetes_asyncio(...); not {client!r}"
            )

        if on_error is not None:
            check_plain(on_error, "on_error")

        self._client = client
        self._defaults = FactoryDefaults(
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            transform=transform,
            resync_period=resync_period,
            custom_resync=dict(custom_resync or {}),
            metadata_only=self._metadata_only,
            any_resource=self._any_resource,
        )
        self._on_error = on_error
        self._metrics = metrics
        self._entries: dict[tuple[object, ...], Entry] = {}
        self._runnables = Runnables(self._log_death)
        self._supervisor = Supervisor(self._life, "informer factory")
        self._loop: asyncio.AbstractEventLoop | None = None  # where it was started
        self._raised = False  # what an informer died of, to somebody

    def __repr__(self) -> str:
        names = ", ".join(informer.name for informer in self.informers)
        return f"<{type(self).__name__} {names or 'without informers'}>"

    # ------------------------------------------------------------ informers

    def informer(
        self,
        api_version: str | Resource,
        resource: str = "",
        *,
        namespace: Namespaces = None,
        label_selector: str = "",
        field_selector: str = "",
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
        name: str | None = None,
    ) -> SharedInformer:
        """Return the informer of a resource: a new one, or the existing one.

        There is one for each resource, namespaces, selectors and `metadata_only`;
        asking again adds the indexers to it, and must ask for the same transform and
        options (two functions are the same if they are equal, as two
        `drop("status.images")` are). On a factory that runs it is started at once.

        Args:
            api_version: Such as `"v1"` or `"apps/v1"`; or a `Resource`, whose kind may be
                left out: then what the server sends is not compared with it.
            resource: Plural or kind, such as `"pods"` or `"Pod"`. One that is not built in
                the server is asked for; its other names make other informers.
            namespace: Restricts it to one namespace, or to several: one list and watch
                for each of these, in one store. An empty text is all of them, None what
                the factory was told.
            label_selector: Label selector in kubectl's syntax.
            field_selector: Field selector in kubectl's syntax. The server decides which
                fields it supports.
            indexers: Index functions by name.
            transform: Function that makes objects smaller before they are stored, or
                leaves them out: see `SharedInformer`.
            compression: `"zstd"` keeps bodies compressed, for an eighth of the memory
                and some time for each reading; it takes the extra `zstd`: see there.
            resync_period: After how many seconds handlers are told of every object
                again, unless they say so themselves; 0 for never, None for what the
                factory was told.
            page_size: Objects in a page of a list; None for 500 where pages make sense.
            streaming_list: Ask for lists as streams, which spares an older server's
                memory; a server that does not do it is asked for pages instead.
            watch_seconds: Minimum duration of one watch; drawn from [w, 2w).
            watch_grace_seconds: Seconds after which the client ends a watch that the
                server should have ended.
            internal_error_seconds: Seconds for which watches that end in internal
                errors (500) in a row are resumed, before the informer relists.
            metadata_only: Ask for nothing but the metadata of objects, which are much
                smaller then. They are as the server sends them: of the kind
                `PartialObjectMetadata` of `meta.k8s.io/v1`, whatever they are of, which
                `obj.type_meta` tells.
            name: Makes a second informer of the same on purpose, and names it.

        Raises:
            OptionsError: There can be no such resource, an option cannot work, or it or
                the transform is another than that of the informer that there is; the
                text names both places of the code.
            SelectorSyntaxError: A selector cannot be parsed.
            InformerStopped: The factory has been left already, or that informer died.
            WrongLoop: The factory runs in another event loop or thread.
        """
        asked = self._defaults.spec(
            api_version,
            resource,
            {
                "namespace": namespace,
                "label_selector": label_selector,
                "field_selector": field_selector,
                "transform": transform,
                "compression": compression,
                "resync_period": resync_period,
                "page_size": page_size,
                "streaming_list": streaming_list,
                "watch_seconds": watch_seconds,
                "watch_grace_seconds": watch_grace_seconds,
                "internal_error_seconds": internal_error_seconds,
                "metadata_only": metadata_only,
                "name": name,
            },
        )
        entry = self._entry(asked, indexers or {})
        entry.lasting = True
        return entry.informer

    def use(
        self,
        api_version: str | Resource,
        resource: str = "",
        **options: Unpack[InformerOptions],
    ) -> AbstractAsyncContextManager[SharedInformer]:
        """An informer for a time: `async with factory.use("v1", "pods") as pods:`.

        The first of the blocks that use the same one starts it, and the last one stops
        it, as leaving the factory does, and forgets it. It is not synced yet when a
        block begins. One that is there for good is used as it is, and stays; one that
        is asked for by `informer()` meanwhile stays as well.

        Left by a handler of an informer of this factory, a block does not wait for the
        informer's end: that might wait for the handler.

        Args:
            api_version: API version or resource, as in `informer()`.
            resource: Plural or kind, as in `informer()`.
            **options: Options of `informer()`. All users of one informer must pass the
                same options.

        Raises:
            OptionsError: Invalid options, as in `informer()`. On entering: another
                block's options differ, or the factory does not run.
            SelectorSyntaxError: A selector cannot be parsed.
            InformerStopped: On entering, if the factory has been left, or the informer
                that others use has died.
            WrongLoop: On entering, if the factory runs in another event loop.

        Cancellation:
            On leaving it is deferred until the informer has ended, which takes 5 s at
            most if its handlers end when they are cancelled.
        """
        unknown = options.keys() - InformerOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"no options of an informer: {', '.join(sorted(unknown))}")

        indexers = options.get("indexers") or {}
        asked = self._defaults.spec(api_version, resource, options)
        return self._used(asked, indexers)

    @contextlib.asynccontextmanager
    async def _used(
        self, asked: InformerSpec, indexers: Indexers
    ) -> AsyncIterator[SharedInformer]:
        self._check_open()
        if not self._runnables.running:
            raise OptionsError(
                f"{asked.describe()!r} can be used while the factory runs: start it"
            )

        entry = self._entry(asked, indexers)
        entry.users += 1
        try:
            yield entry.informer
        finally:
            entry.users -= 1
            if not entry.users and not entry.lasting:
                # From here on who asks for the same gets a new one.
                del self._entries[asked.identity]
                wait = not self._supervisor.contains_caller()
                await self._runnables.stop(
                    entry.runnable,
                    wait=wait,
                    then=lambda: self._forget_metrics(entry.informer),
                )

    def _entry(self, asked: InformerSpec, indexers: Indexers) -> Entry:
        self._check_open()
        entry = self._entries.get(asked.identity)
        if entry is not None:
            entry.asked.check_same(asked, entry.informer.transform)
            entry.informer.add_indexers(indexers)
            return entry

        entry = self._entries[asked.identity] = self._new_entry(asked, indexers)
        self._runnables.add(entry.runnable)
        return entry

    def _new_entry(self, asked: InformerSpec, indexers: Indexers) -> Entry:
        informer = self._new(asked, indexers)
        runnable = Runnable(
            f"informer {informer.name}", informer.run, on_end=informer.abandon
        )
        # At once: its handlers may go on for a while after it has died.
        informer.set_death_handler(
            lambda failure: self._runnables.fail(runnable, failure),
            why_ending=lambda: self._runnables.unexpected_cancellation(runnable),
        )
        return Entry(asked, informer, runnable)

    def _new(self, asked: InformerSpec, indexers: Indexers) -> SharedInformer:
        sources = {it: self._source(asked, it) for it in asked.namespaces}
        return SharedInformer(
            # One namespace is an informer like any other; several have a state each.
            sources if len(sources) > 1 else self._source(asked, *asked.namespaces),
            name=asked.describe(),
            indexers=indexers,
            transform=asked.transform,
            compression=asked.compression,
            resync_period=asked.resync_period,
            options=asked.options,
            on_error=self._on_error,
            metrics=self._metrics,
        )

    def _source(
        self, asked: InformerSpec, namespace: str | None = None
    ) -> ListerWatcher:
        return (DiscoveredListWatch if asked.by_name else ListWatch)(
            self._client,
            asked.resource,
            namespace=namespace,
            label_selector=asked.label_selector,
            field_selector=asked.field_selector,
            metadata_only=asked.metadata_only,
        )

    # ------------------------------------------------------------ how they are doing

    @property
    def informers(self) -> tuple[SharedInformer, ...]:
        """All informers of this factory; those that are used for a time as well."""
        return tuple(entry.informer for entry in tuple(self._entries.values()))

    def not_ready(self) -> dict[str, str]:
        """The informers whose listers refuse to answer, and why: for a readiness route.

        Empty if all can be read: they are synced, and none has ended. That says nothing
        of how fresh they are: in an outage of the API server the answer stays empty, so
        that the web app goes on answering from what it has; `informer.status` says how
        old that is. Those that are used for a time are left out. May be called from any
        thread.
        """
        return not_ready(self.lasting)

    async def wait_for_cache_sync(
        self, timeout: Duration | None = None, *, fail_fast: bool = True
    ) -> None:
        """Wait until the first complete lists of all informers are in their stores.

        Of all that there are when it is called; those that are used for a time are left
        to who uses them. Before `start()` it waits for that, too, and warns in the log.

        Args:
            timeout: Seconds, or a timedelta, for all of them; None waits as long as it
                takes.
            fail_fast: Give up when one was refused twice in a row, as
                `SharedInformer.wait_synced` says.

        Raises:
            NotSynced: Not all of them are; the text and `results` say for each why.
            InformerStopped: One has ended, synced or not.

        Cancellation:
            Safe.
        """
        if not (self._supervisor.running or self._runnables.ended):
            logger.warning("waiting for caches of a factory that is not started")

        await wait_for_cache_sync(*self.lasting, timeout=timeout, fail_fast=fail_fast)

    async def failed(self) -> BaseException:
        """Wait until an informer dies of a bug of ours; returns its error, at once.

        Raises:
            InformerStopped: The factory was left, and none had died.
            WrongLoop: The factory runs in another event loop.

        Cancellation:
            Safe.
        """
        self._check_loop()
        failure = await self._runnables.wait_failed()
        if failure is None:
            raise InformerStopped("the factory was left; no informer has died")

        return failure

    @property
    def lasting(self) -> tuple[SharedInformer, ...]:
        """The same without those that are only used for a time."""
        entries = tuple(self._entries.values())
        return tuple(entry.informer for entry in entries if entry.lasting)

    # ------------------------------------------------------------ lifecycle

    @property
    def running(self) -> bool:
        """True from `start()` until it has ended."""
        return self._supervisor.running

    async def start(self) -> None:
        """Start the informers; returns as soon as they run, long before they are synced.

        Raises:
            OptionsError: The factory runs already, or there is no usable configuration to
                connect with; with another one it can be tried again.
            InformerStopped: The factory has been stopped; it cannot start again.
            AioInformerError: The factory was stopped meanwhile.
            WrongLoop: The factory runs in another event loop.

        Cancellation:
            Stops it again. If no informer had been started yet, it can be tried again.
        """
        self._check_loop()
        if self._runnables.ended:
            raise InformerStopped(
                "a factory runs once, and this one has ended: make a new one, such as "
                "one for each app"
            )

        self._loop = asyncio.get_running_loop()
        await self._supervisor.start()

    async def shutdown(self) -> None:
        """Stop the informers: connections first, then handlers may go on for up to 5 s.

        Idempotent. Nothing of it is left afterwards, but the data in the stores. Called
        from one of its handlers it asks for all that and does not wait, as the handlers
        are waited for themselves.

        Raises:
            Exception: If an informer had died of a bug of ours: its error, once.
            WrongLoop: Called from another event loop.

        Cancellation:
            Deferred until all has ended.
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
                informer.abandon()  # if it was never run

        if self._runnables.failure is not None and not self._raised:
            self._raised = True
            raise self._runnables.failure

    async def _life(self, ready: Callable[[], None]) -> None:
        try:
            async with keep_open(self._client):
                await self._runnables.run(ready)
        finally:
            for informer in self.informers:
                informer.forget_metrics()

    def _log_death(self, runnable: Runnable, failure: BaseException) -> None:
        logger.critical("%s died", runnable.name, exc_info=failure)

    def _forget_metrics(self, gone: SharedInformer) -> None:
        """Drop the series of an informer, unless the next one of its name has them."""
        if all(informer.name != gone.name for informer in self.informers):
            gone.forget_metrics()

    def _check_loop(self) -> None:
        if self._supervisor.running and self._loop is not running_loop():
            raise WrongLoop(
                "the factory runs in another event loop: call this from a coroutine there"
            )

    def _check_open(self) -> None:
        self._check_loop()
        if self._runnables.ended:
            raise InformerStopped("the factory has been left already")


@dataclass(slots=True, eq=False)
class Entry:
    """Informer of a factory, and its users.

    Attributes:
        asked: Spec of the informer.
        informer: Informer made from the spec.
        runnable: Runnable of the informer.
        lasting: True if `informer()` returned it, so that it stays.
        users: Number of open `use()` blocks.
    """

    asked: InformerSpec
    informer: SharedInformer
    runnable: Runnable
    lasting: bool = False
    users: int = 0


class DynamicInformerFactory(SharedInformerFactory):
    """Factory for resources that are known only when the program runs.

    `factory.informer("example.com/v1", "widgets")` does not use discovery: the server is
    not asked which resources it has, and objects tell their own kind and namespace. If a
    namespace is given, for one informer or for the factory, name cluster-scoped resources
    by `Resource.of("example.com/v1", "zones", namespaced=False)`. Names of kinds, such as
    `"Widget"`, still use discovery. An unknown resource is no error:
    `status.not_served` becomes True, and the informer keeps retrying.

    Everything else is as in `SharedInformerFactory`.
    """

    _any_resource = True


class MetadataInformerFactory(SharedInformerFactory):
    """Dynamic factory whose informers request only the metadata of objects.

    See `DynamicInformerFactory`, and `metadata_only` of `SharedInformerFactory.informer`.
    """

    _any_resource = True
    _metadata_only = True


async def wait_for_cache_sync(
    *informers: SharedInformer,
    timeout: Duration | None = None,
    fail_fast: bool = True,
) -> None:
    """Wait until the first complete lists of all these informers are in their stores.

    Args:
        informers: Whom to wait for.
        timeout: Seconds, or a timedelta, for all of them together; None waits as long
            as it takes.
        fail_fast: Give up when one was refused twice in a row, as
            `SharedInformer.wait_synced` says.

    Raises:
        NotSynced: Not all of them are; the text and `results` say for each why.
        InformerStopped: One has ended, synced or not.

    Cancellation:
        Safe.
    """
    try:
        # At the same time: one that is just slow must not hide that another is refused.
        await run_concurrently(
            *(each.wait_synced(timeout, fail_fast=fail_fast) for each in informers)
        )
    except NotSynced as exc:
        results = _results(informers)
        missing = [f"{name}: {it}" for name, it in results.items() if it != "synced"]
        if missing:  # the last one may have come in the very moment
            raise NotSynced(
                f"not synced: {'; '.join(missing)}", results=results
            ) from exc.__cause__


def not_ready(informers: Iterable[SharedInformer]) -> dict[str, str]:
    """Of each whose lister refuses to answer, by its name: why."""
    return {it.name: why for it in informers if (why := why_not_ready(it))}


def why_not_ready(informer: SharedInformer) -> str:
    """Why its lister refuses to answer; empty if it does answer."""
    status = informer.status
    if status.phase == "stopped":
        died = status.last_error
        return "stopped" if died is None else f"stopped: {died!r}"

    return "" if informer.has_synced else informer.why_not_synced()


def _results(informers: Sequence[SharedInformer]) -> dict[str, str]:
    """Of each name why it is not synced, or `"synced"`."""
    results: dict[str, str] = {}
    for informer in informers:
        if results.get(informer.name, "synced") == "synced":  # two may have one name
            results[informer.name] = informer.why_not_synced()

    return results
