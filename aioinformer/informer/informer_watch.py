"""`InformerWatch`: an informer that is read as a watch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NoReturn, Self, TypeAlias, assert_never

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
    """A watch that nothing ends but `stop()`: an informer lists again where it has to.

    ::

        async with InformerWatch(source) as watch:
            async for event in watch:
                print(event.type, event.object.key, len(watch.indexer))

    Entering it starts the informer, leaving it waits until that has ended.

    Gives first an ADDED for each object that is there, when the first list is complete;
    then ADDED, MODIFIED and DELETED as the informer learns of changes: for one object
    in their order, and the store shows that state or a later one. Where a watch cannot
    be resumed, a list follows, of which only the differences are given: changes in
    between may be skipped, and an object that is gone is DELETED with its last known
    state. One that was replaced by another of its name is DELETED, then ADDED. Nothing
    is repeated: there is no resync. Bookmarks and errors of the server are not given;
    of the latter tells `informer.status`.

    What was not read yet waits, however much that is.

    Lifetime:
        It runs once, and owns the tasks of its informer and two more; none is left when
        it has been left. `stop()` ends it at once for who reads, and asks the informer
        to end. If that dies of a bug of ours, whoever reads behind its last event is
        told by `InformerStopped`; if nobody was, leaving raises the bug itself.

    Args:
        source: ListerWatcher to list and watch.
        name: Name of the informer in logs and errors.
        indexers: Index functions by name, for `indexer`.
        options: Options of the reflector.
        rng: Source of jitter.

    Raises:
        OptionsError: If an indexer is named like the index by namespace.
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
        self._life = Supervisor(self._live, name)
        self._entered = False
        # Ended, whoever wanted it; `_running` is what `stop()` ends while it has not.
        self._over = False
        self._running: asyncio.Task[None] | None = None
        self._failure: Exception | None = None

        self._arrived: list[WatchEvent] = []
        self._bell = Notifier()

    def __repr__(self) -> str:
        return f"<InformerWatch {self._informer!r} waiting={len(self._arrived)}>"

    @property
    def informer(self) -> SharedInformer:
        """The informer itself: its status, its lister, its `wait_synced()`."""
        return self._informer

    @property
    def indexer(self) -> Indexer[KubeObject]:
        """The cache; it stays readable behind the end."""
        return self._informer.indexer

    @property
    def skipped(self) -> int:
        """Objects and events that could not be read so far."""
        return self._informer.status.degraded

    async def next_batch(self) -> list[WatchEvent]:
        """Wait for events: all that have arrived. An empty list means `stop()`.

        Raises:
            InformerStopped: The informer has ended by itself; `__cause__` is why.
            OptionsError: The watch was not entered.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        return await super().next_batch()

    async def __aenter__(self) -> Self:
        if self._entered:
            raise OptionsError(f"{self._informer.name} runs once")

        self._entered = True
        if self._stopped:
            return self

        self._informer.add_event_handler(on_event=self._note, name="watch")
        try:
            await self._life.start()
        except BaseException:
            self.stop()
            self._informer.abandon()  # which may not have come to its first step
            raise

        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        await self._life.stop()

    async def _fetch(self) -> list[WatchEvent]:
        if not self._entered:
            raise OptionsError(f"{self._informer.name} does not run: use `async with`")

        while not (self._arrived or self._over or self._stopped):
            await self._bell.wait()

        if not self._arrived and not self._stopped:
            await self._tell_end()

        arrived, self._arrived = self._arrived, []
        return arrived

    def _close(self) -> None:
        self._arrived = []
        self._bell.notify()
        if self._running is not None:
            self._running.cancel()

    def _note(self, event: Notification) -> None:
        """The informer's handler."""
        if self._stopped:
            return

        if not self._arrived:
            self._bell.notify()

        self._arrived.append(_event_of(event))

    async def _live(self, ready: Callable[[], None]) -> None:
        """Run the informer, in a task that `stop()` can end from outside."""
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
            self._informer.abandon()  # which may not have come to its first step
            self._running = None
            self._over = True
            self._bell.notify()

    async def _tell_end(self) -> NoReturn:
        """Raise what became of the informer; then leaving does not raise it again."""
        text = f"{self._informer.name} has ended"
        try:
            await self._life.stop()
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
"""Whether nothing has to be waited for; asked once, when the cache is complete."""


async def until_with_sync(
    source: ListerWatcher,
    *conditions: Condition,
    precondition: Precondition | None = None,
    timeout: Duration | None = None,
) -> WatchEvent | None:
    """List and watch until conditions were met, one after the other.

    What is there already counts: it comes as ADDED events first. The events are those
    of an `InformerWatch`, so no end of a watch, and no 410, ends the wait; but an
    object that is gone again between two lists is never seen. Each condition is offered
    events until it holds; the event that met one is offered to the next one first.

    Args:
        source: ListerWatcher, for example with the field selector `metadata.name=web`.
        *conditions: Plain or async functions of an event.
        precondition: Plain or async, called with the complete cache before any event is
            looked at; if it holds, there is nothing to wait for.
        timeout: Seconds, or a timedelta; None waits as long as it takes.

    Returns:
        The event that met the last condition; None if the precondition held, or
        without conditions.

    Raises:
        TimeoutError: The time is over; the text says what came last, and how the
            informer was doing.
        NotSynced: The time is over before the cache was complete, and there is a
            precondition that had to see it; or the server refused twice in a row what
            no patience mends (400, 401, 403, 404, 405, 422).
        InformerStopped: The informer died of a bug of ours, which is the `__cause__`.
        OptionsError: A condition or the precondition is a generator.
        Exception: Error of a condition.

    Cancellation:
        Safe: the informer is ended first, at once.

    Example:
        Wait until a pod runs, whether it does already or not::

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
    patience = asyncio.timeout(seconds)
    async with InformerWatch(source, name="until_with_sync") as watch:
        try:
            async with patience:
                # No event comes before that, but a refusal is told here, at once.
                await watch.informer.wait_synced()
                if precondition is None or not await holds(precondition(watch.indexer)):
                    return await waiting.meet(watch)

                return None
        except TimeoutError:
            if seconds is None or not patience.expired():
                raise  # a condition's own

            if precondition is not None and not watch.informer.has_synced:
                raise _not_synced(watch.informer, seconds) from None

            troubles = _troubles_of(watch.informer)
            raise waiting.timed_out(seconds, troubles) from None


def _not_synced(informer: SharedInformer, seconds: float) -> NotSynced:
    reason = informer.why_not_synced()
    return NotSynced(
        f"{informer.name} is not synced within {seconds:g} s: {reason}",
        results={informer.name: reason},
    )


def _troubles_of(informer: SharedInformer) -> str:
    if not informer.has_synced:
        return f"not synced: {informer.why_not_synced()}"

    error = informer.status.last_error
    return "" if error is None else f"the last attempt failed: {error}"
