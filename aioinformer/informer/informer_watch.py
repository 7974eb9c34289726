"""`InformerWatch`: an informer with the interface of a watch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NoReturn, Self, TypeAlias, assert_never, overload

from aioinformer._tasks import Notifier, Supervisor, unexpected_cancellation
from aioinformer.cache.store import Indexer
from aioinformer.errors import InformerStopped, NotSynced, OptionsError
from aioinformer.informer.notifications import Added, Deleted, Updated
from aioinformer.informer.shared_informer import SharedInformer
from aioinformer.model.callables import check_runs
from aioinformer.model.objects import KubeObject
from aioinformer.model.times import timeout_of
from aioinformer.watch.events import EventType, WatchEvent
from aioinformer.watch.interface import Watch
from aioinformer.watch.tools.until import Conditions, holds

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from aioinformer.cache.index import IndexFunction
    from aioinformer.informer.listwatch.reflector import ReflectorOptions
    from aioinformer.informer.notifications import Notification
    from aioinformer.model.times import Duration
    from aioinformer.watch.interface import ListerWatcher
    from aioinformer.watch.tools.until import Condition

__all__ = ["InformerWatch", "Precondition", "until_with_sync"]


class InformerWatch(Watch):
    """Watch that only ends by `stop()`: its informer relists where needed.

    ::

        async with InformerWatch(source) as watch:
            async for event in watch:
                print(event.type, event.object.key, len(watch.indexer))

    Entering it starts the informer. Leaving it waits until the informer has ended.

    When the first list is complete, there is an ADDED event for each object. Then there
    are ADDED, MODIFIED and DELETED events for changes, in order for each object. The
    store has the state of the event or a later one. If the watch cannot be resumed, the
    events are the differences to a new list: changes in between may be skipped, and a
    deleted object has its last known state. If an object was replaced by another one of
    the same name, DELETED comes first, then ADDED. There are no resyncs, and no
    BOOKMARK or ERROR events; for errors see `informer.status`.

    Unread events are queued without limit.

    Lifetime:
        It runs once, and owns the tasks of its informer and two more. None is left
        after the block. `stop()` ends the iteration at once, and stops the informer. If
        the informer dies of a bug, reading after the last event raises
        `InformerStopped`. If nothing has read that error, leaving the block raises the
        bug's exception.

    Args:
        source: ListerWatcher to list and watch.
        name: Name of the informer in logs and errors.
        indexers: Index functions by name, for `indexer`.
        options: Options of the reflector.
        rng: Source of jitter.

    Raises:
        OptionsError: If an indexer has the name of the namespace index.
    """

    def __init__(
        self,
        source: ListerWatcher,
        *,
        name: str = "informer watch",
        indexers: Mapping[str, IndexFunction[KubeObject]] | None = None,
        options: ReflectorOptions | None = None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__()
        self._informer = SharedInformer(
            source, name=name, indexers=indexers, options=options, rng=rng
        )
        self._supervisor = Supervisor(self._run, name)
        self._entered = False
        # True once the informer has ended, for any reason.
        self._over = False
        # Task that `stop()` cancels.
        self._running: asyncio.Task[None] | None = None
        self._failure: Exception | None = None

        self._arrived: list[WatchEvent] = []
        self._changed = Notifier()

    def __repr__(self) -> str:
        return f"<InformerWatch {self._informer!r} waiting={len(self._arrived)}>"

    @property
    def informer(self) -> SharedInformer:
        """Informer that the watch reads, with its status and its lister."""
        return self._informer

    @property
    def indexer(self) -> Indexer[KubeObject]:
        """Cache of the informer; still readable after the end."""
        return self._informer.indexer

    @property
    def skipped(self) -> int:
        """Number of objects and events that could not be read so far."""
        return self._informer.status.degraded

    async def next_batch(self) -> list[WatchEvent]:
        """Wait for events, and return all queued ones; an empty list after `stop()`.

        Raises:
            InformerStopped: If the informer has died; `__cause__` is the reason.
            OptionsError: If the watch was not entered.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        return await super().next_batch()

    async def __aenter__(self) -> Self:
        if self._entered:
            raise OptionsError(f"{self._informer.name} runs only once")

        self._entered = True
        if self._stopped:
            return self

        self._informer.add_event_handler(on_event=self._append, name="watch")
        try:
            await self._supervisor.start()
        except BaseException:
            self.stop()
            self._informer.abandon()  # it may not have made its first step
            raise

        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        await self._supervisor.stop()

    async def _fetch(self) -> list[WatchEvent]:
        if not self._entered:
            raise OptionsError(
                f"{self._informer.name} is not running: use `async with`"
            )

        while not (self._arrived or self._over or self._stopped):
            await self._changed.wait()

        if not self._arrived and not self._stopped:
            await self._raise_end()

        arrived, self._arrived = self._arrived, []
        return arrived

    def _close(self) -> None:
        self._arrived = []
        self._changed.notify()
        if self._running is not None:
            self._running.cancel()

    def _append(self, event: Notification) -> None:
        """Queue an event; called as a handler of the informer."""
        if self._stopped:
            return

        if not self._arrived:
            self._changed.notify()

        self._arrived.append(_event_of(event))

    async def _run(self, ready: Callable[[], None]) -> None:
        """Run the informer, in a task that `stop()` can cancel."""
        ready()
        try:
            async with asyncio.TaskGroup() as group:
                self._running = group.create_task(
                    self._informer.run(), name=self._informer.name
                )
                if self._stopped:
                    self._running.cancel()

            if not self._stopped:
                raise unexpected_cancellation(repr(self._informer.name))
        finally:
            self._informer.abandon()  # it may not have made its first step
            self._running = None
            self._over = True
            self._changed.notify()

    async def _raise_end(self) -> NoReturn:
        """Raise the error of the informer; `__aexit__` then does not raise it again."""
        text = f"{self._informer.name} has ended"
        try:
            await self._supervisor.stop()
        except Exception as exc:
            self._failure = exc
            raise InformerStopped(text) from exc

        raise InformerStopped(text) from self._failure


def _event_of(event: Notification) -> WatchEvent:
    match event:
        case Added(obj=obj):
            return WatchEvent(EventType.ADDED, obj)
        case Updated(new=obj):
            return WatchEvent(EventType.MODIFIED, obj)
        case Deleted(obj=obj):
            return WatchEvent(EventType.DELETED, obj)
        case never:
            assert_never(never)


Precondition: TypeAlias = Callable[[Indexer[KubeObject]], bool | Awaitable[bool]]
"""Function called once with the complete cache. It returns True if there is nothing to
wait for."""


@overload
async def until_with_sync(
    source: ListerWatcher,
    condition: Condition,
    /,
    *conditions: Condition,
    precondition: None = None,
    timeout: Duration | None = None,
) -> WatchEvent: ...


@overload
async def until_with_sync(
    source: ListerWatcher,
    *conditions: Condition,
    precondition: Precondition | None = None,
    timeout: Duration | None = None,
) -> WatchEvent | None: ...


async def until_with_sync(
    source: ListerWatcher,
    *conditions: Condition,
    precondition: Precondition | None = None,
    timeout: Duration | None = None,
) -> WatchEvent | None:
    """List and watch until conditions are met, one after the other.

    Existing objects count: they come first, as ADDED events. The events are those of an
    `InformerWatch`, so the wait survives the end of a watch and a 410. An object that
    is created and deleted between two lists is not seen. Each condition is called with
    events until it is true. The event that meets a condition is passed to the next one.

    Args:
        source: ListerWatcher, for example with the field selector `metadata.name=web`.
        *conditions: Plain or async functions of an event.
        precondition: Plain or async function, called with the complete cache before any
            condition. If it returns True, there is nothing to wait for.
        timeout: Seconds, or a timedelta; None for no limit.

    Returns:
        Event that met the last condition; None if the precondition was met, or without
        conditions.

    Raises:
        TimeoutError: If the timeout expires. The message has the last event and the
            state of the informer.
        NotSynced: If the timeout expires before the cache was complete, as the
            precondition requires, or after two permanent errors in a row (400, 401,
            403, 404, 405, 422).
        InformerStopped: If the informer died of a bug, whose exception is `__cause__`.
        OptionsError: If a condition or the precondition is a generator.
        Exception: Error of a condition.

    Cancellation:
        Safe: the informer is ended first.

    Example:
        Wait until a pod is running::

            source = ListWatch(client, PODS, field_selector="metadata.name=web")
            await until_with_sync(
                source,
                lambda event: event.object.at("status.phase") == "Running",
                timeout=60,
            )
    """
    if not conditions and precondition is None:
        return None

    if precondition is not None:
        check_runs(precondition, "a precondition")

    waiting, seconds = Conditions(conditions), timeout_of(timeout)
    limit = asyncio.timeout(seconds)
    async with InformerWatch(source, name="until_with_sync") as watch:
        try:
            async with limit:
                # There are no events before the sync, and this raises refusals early.
                await watch.informer.wait_synced()
                if precondition is None or not await holds(precondition(watch.indexer)):
                    return await waiting.meet(watch)

                return None
        except TimeoutError:
            if seconds is None or not limit.expired():
                raise  # raised by a condition

            if precondition is not None and not watch.informer.has_synced:
                raise _not_synced(watch.informer, seconds) from None

            failure = _failure_of(watch.informer)
            raise waiting.timed_out(seconds, failure) from None


def _not_synced(informer: SharedInformer, seconds: float) -> NotSynced:
    reason = informer.why_not_synced()
    return NotSynced(
        f"{informer.name} did not sync within {seconds:g} s: {reason}",
        results={informer.name: reason},
    )


def _failure_of(informer: SharedInformer) -> str:
    if not informer.has_synced:
        return f"not synced: {informer.why_not_synced()}"

    error = informer.status.last_error
    return "" if error is None else f"the last attempt failed: {error}"
