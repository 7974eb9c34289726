"""`SharedInformerFactory`: the informers of one program, started and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Self

from aioinformer._tasks import Bell, Supervisor, together
from aioinformer.client.list_watch import ListWatch
from aioinformer.client.sharing import entered_together
from aioinformer.errors import InformerStopped, NotSynced, OptionsError, WrongLoop
from aioinformer.informer.liveness import running_loop
from aioinformer.informer.reflector import WATCH_SECONDS, ReflectorOptions
from aioinformer.informer.shared_informer import SharedInformer
from aioinformer.metrics import NULL_SINK
from aioinformer.model.resource import Resource
from aioinformer.model.resources import lookup

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from aioinformer.cache.index import IndexFunction
    from aioinformer.client.client import Client
    from aioinformer.errors import HandlerError
    from aioinformer.metrics import MetricsSink
    from aioinformer.model.durations import Duration
    from aioinformer.model.objects import KubeObject

__all__ = ["SharedInformerFactory", "wait_for_cache_sync"]

logger = logging.getLogger(__name__)


class SharedInformerFactory:
    """Makes informers that share one client, and runs them.

    ::

        factory = SharedInformerFactory(Client.from_env())
        pods = factory.informer("v1", "pods")
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            print(len(pods.lister.list("app=web")))

    It may be entered in one task and left in another. A client that nobody has entered
    is entered, and left again, by the factory.

    Args:
        client: Whom to ask.
        on_error: Told of each exception in a user's handlers and index functions.
        metrics: Where measurements go.
    """

    def __init__(
        self,
        client: Client,
        *,
        on_error: Callable[[HandlerError], None] | None = None,
        metrics: MetricsSink = NULL_SINK,
    ) -> None:
        self._client = client
        self._on_error = on_error
        self._metrics = metrics
        self._informers: dict[tuple[object, ...], SharedInformer] = {}
        self._supervisor = Supervisor(self._life, "informer factory")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._group: asyncio.TaskGroup | None = None
        self._ended = False
        # The first informer's that died; and whether somebody has been raised it.
        self._failure: BaseException | None = None
        self._raised = False
        self._news = Bell()

    def __repr__(self) -> str:
        names = ", ".join(informer.name for informer in self._informers.values())
        return f"<SharedInformerFactory {names or 'without informers'}>"

    # ------------------------------------------------------------ informers

    def informer(
        self,
        api_version: str | Resource,
        resource: str = "",
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        indexers: Mapping[str, IndexFunction[KubeObject]] | None = None,
        page_size: int | None = None,
        watch_seconds: Duration = WATCH_SECONDS,
        name: str | None = None,
    ) -> SharedInformer:
        """The informer of a resource: a new one, or the one there is already.

        There is one for each resource, namespace and selectors; asking again adds the
        indexers to it. On a factory that runs it is started at once.

        Args:
            api_version: Such as `"v1"` or `"apps/v1"`; or a `Resource`, for kinds that
                are not built in.
            resource: The plural name, such as `"pods"`.
            namespace: Restricts it to one namespace.
            label_selector: As kubectl takes it.
            field_selector: As kubectl takes it; the server decides what it supports.
            indexers: Index functions by name.
            page_size: Objects in a page of a list; None for 500 where pages make sense.
            watch_seconds: How long one watch should last; drawn from [w, 2w).
            name: Makes a second informer of the same on purpose, and names it.

        Raises:
            OptionsError: The resource is unknown, or an option contradicts those of the
                informer that there is.
            SelectorSyntaxError: A selector cannot be parsed.
            InformerStopped: The factory has been left already, or that informer died.
            WrongLoop: The factory runs in another event loop or thread.
        """
        self._check_loop()
        if self._ended:
            raise InformerStopped("the factory has been left already")

        kind = _resource(api_version, resource)
        namespace = namespace or None
        options = ReflectorOptions(page_size=page_size, watch_seconds=watch_seconds)
        identity = (kind, namespace, label_selector, field_selector, name)
        known = self._informers.get(identity)
        if known is not None:
            _check_same(known, options)
            known.add_indexers(indexers or {})
            return known

        source = ListWatch(
            self._client,
            kind,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
        )
        informer = SharedInformer(
            source,
            name=name or _describe(kind, namespace, label_selector, field_selector),
            indexers=indexers,
            options=options,
            on_error=self._on_error,
            metrics=self._metrics,
        )
        self._informers[identity] = informer
        if self._group is not None:
            self._start(self._group, informer)

        return informer

    @property
    def informers(self) -> tuple[SharedInformer, ...]:
        """All informers of this factory."""
        return tuple(self._informers.values())

    async def wait_for_cache_sync(
        self, timeout: Duration | None = None, *, fail_fast: bool = True
    ) -> None:
        """Wait until the first complete lists of all informers are in their stores.

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
        await wait_for_cache_sync(*self.informers, timeout=timeout, fail_fast=fail_fast)

    async def failed(self) -> BaseException:
        """Wait until an informer dies of a bug of ours; returns its error.

        Raises:
            InformerStopped: The factory was left, and none had died.

        Cancellation:
            Safe.
        """
        while self._failure is None:
            if self._ended:
                raise InformerStopped("the factory was left; no informer has died")

            await self._news.wait()

        return self._failure

    # ------------------------------------------------------------ its life

    async def start(self) -> None:
        """Start the informers; returns as soon as they run, long before they are synced.

        Raises:
            OptionsError: It runs already, or there is no usable configuration to
                connect with.
            InformerStopped: It has been stopped already; it cannot start again.

        Cancellation:
            Stops it again.
        """
        if self._ended:
            raise InformerStopped("a factory runs once; make a new one")

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
        self._ended = True
        if self._supervisor.contains_caller():
            await self._supervisor.stop()
            return

        try:
            await self._supervisor.stop()
        finally:
            self._abandon_all()

        if self._failure is not None and not self._raised:
            self._raised = True
            raise self._failure

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.shutdown()
        except Exception as failure:
            if error is None:
                raise

            # The reason for leaving is more than what was found on the way out.
            error.add_note(f"an informer had died, too: {failure!r}")

    def lifespan(self, app: Any = None) -> AbstractAsyncContextManager[None]:
        """Run with an ASGI app that serves at once: `FastAPI(lifespan=factory.lifespan)`.

        Until the caches are synced, reads through listers raise `NotSynced`.
        """
        return self._lifespan(synced=False)

    def lifespan_synced(
        self, timeout: Duration | None = 60.0
    ) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """The same, but the app serves when the caches are synced.

        Args:
            timeout: Seconds after which starting fails with `NotSynced`.
        """
        return lambda app: self._lifespan(synced=True, timeout=timeout)

    async def cleanup_ctx(self, app: Any = None) -> AsyncIterator[None]:
        """Run with an aiohttp app: `app.cleanup_ctx.append(factory.cleanup_ctx)`."""
        await self.start()
        try:
            yield
        finally:
            await self.shutdown()

    @contextlib.asynccontextmanager
    async def _lifespan(
        self, *, synced: bool, timeout: Duration | None = None
    ) -> AsyncIterator[None]:
        async with self:
            if synced:
                await self.wait_for_cache_sync(timeout)

            yield

    async def _life(self, ready: Callable[[], None]) -> None:
        async with entered_together(self._client):
            self._loop = asyncio.get_running_loop()
            try:
                async with asyncio.TaskGroup() as group:
                    self._group = group
                    for informer in self._informers.values():
                        self._start(group, informer)

                    try:
                        ready()
                        await asyncio.Event().wait()  # until cancelled
                    finally:
                        self._group = None
                        self._ended = True
            finally:
                self._abandon_all()

    def _abandon_all(self) -> None:
        """Nothing runs any more, and those that were never begun never will."""
        for informer in self._informers.values():
            informer.abandon()

        self._news.ring()

    def _check_loop(self) -> None:
        if self._group is not None and self._loop is not running_loop():
            raise WrongLoop("the factory runs in another event loop")

    def _start(self, group: asyncio.TaskGroup, informer: SharedInformer) -> None:
        group.create_task(self._run(informer), name=f"informer {informer.name}")

    async def _run(self, informer: SharedInformer) -> None:
        """Run one informer; one that dies of our bug ends alone."""
        try:
            await informer.run()
        except Exception as exc:
            logger.critical("informer %s died", informer.name, exc_info=exc)
            if self._failure is None:
                self._failure = exc
                self._news.ring()


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
        await together(
            *(each.wait_synced(timeout, fail_fast=fail_fast) for each in informers)
        )
    except NotSynced as exc:
        raise _not_synced(informers) from exc.__cause__


def _not_synced(informers: Sequence[SharedInformer]) -> NotSynced:
    results: dict[str, str] = {}
    for informer in informers:
        if results.get(informer.name, "synced") == "synced":  # two may have one name
            results[informer.name] = informer.why_not_synced()

    missing = [f"{name}: {why}" for name, why in results.items() if why != "synced"]
    return NotSynced(f"not synced: {'; '.join(missing)}", results=results)


def _resource(api_version: str | Resource, plural: str) -> Resource:
    if isinstance(api_version, Resource):
        if plural:
            raise OptionsError(f"give a Resource, or two names: not also {plural!r}")

        return api_version

    known = lookup(api_version, plural)
    if known is None:
        raise OptionsError(
            f"{plural!r} of {api_version!r} is not a built-in resource; for a custom "
            f"one give a Resource: Resource.of({api_version!r}, {plural!r}, Kind)"
        )

    return known


def _describe(kind: Resource, namespace: str | None, labels: str, fields: str) -> str:
    """`pods`, or `pods in shop where app=web`: short, and different where they are."""
    plural = kind.plural if kind.version == "v1" else f"{kind.plural}.{kind.version}"
    return (
        plural
        + (f".{kind.group}" if kind.group else "")
        + (f" in {namespace}" if namespace else "")
        + (f" where {labels}" if labels else "")
        + (f" having {fields}" if fields else "")
    )


def _check_same(known: SharedInformer, options: ReflectorOptions) -> None:
    if known.options != options:
        raise OptionsError(
            f"there is an informer {known.name!r} with {known.options}; asked again "
            f"with {options}: give name= for a second one"
        )
