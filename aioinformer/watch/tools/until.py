"""`until`: wait for what a watch is going to tell."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Final, TypeAlias, overload

from aioinformer.errors import DecodeError, TransportError, WatchClosed
from aioinformer.model.callables import check_runs
from aioinformer.model.times import timeout_of
from aioinformer.watch.events import EventType, WatchEvent
from aioinformer.watch.tools.retry_watch import RetryWatch

if TYPE_CHECKING:
    from aioinformer.model.times import Duration
    from aioinformer.watch.interface import ListerWatcher, Watch

__all__ = ["Condition", "Conditions", "holds", "until", "until_without_retry"]

Condition: TypeAlias = Callable[[WatchEvent], bool | Awaitable[bool]]
"""What an event has to be like; plain or async. Its errors are raised to who waits."""

# What conditions are about. A bookmark's object has nothing but a version, and that of
# an ERROR is a Status: they would meet a condition that asks what an object lacks.
_CHANGES: Final = {EventType.ADDED, EventType.MODIFIED, EventType.DELETED}


async def holds(answer: bool | Awaitable[bool]) -> bool:
    """What a plain or async function has answered."""
    return bool(await answer if isawaitable(answer) else answer)


@overload
async def until(
    source: ListerWatcher,
    resource_version: str,
    condition: Condition,
    /,
    *conditions: Condition,
    timeout: Duration | None = None,
) -> WatchEvent: ...


@overload
async def until(
    source: ListerWatcher,
    resource_version: str,
    /,
    *,
    timeout: Duration | None = None,
) -> None: ...


async def until(
    source: ListerWatcher,
    resource_version: str,
    *conditions: Condition,
    timeout: Duration | None = None,
) -> WatchEvent | None:
    """Watch from a version on until conditions were met, one after the other.

    The watch is a `RetryWatch`: it outlives its connections. Each condition is offered
    ADDED, MODIFIED and DELETED events until it holds; the event that met one is offered
    to the next one first. Only what changes behind the version counts: where it may be
    true already, use `until_with_sync`.

    Args:
        source: What to watch; a field selector `metadata.name=web` spares the rest.
        resource_version: Changes after this one: that of an object, or of a list.
        *conditions: Plain or async functions of an event; without any it returns at
            once.
        timeout: Seconds, or a timedelta; None waits as long as it takes.

    Returns:
        The event that met the last condition; None without conditions.

    Raises:
        TimeoutError: The time is over; the text says what came last, and whether the
            server could not be reached.
        WatchClosed: The server has forgotten what comes next (410), or refuses for good
            (400, 401, 403, 422); `__cause__` says which, `last_event` is the ERROR.
        OptionsError: The version is `""` or `"0"`, or a condition is a generator.
        Exception: What a condition raised, as it is.

    Cancellation:
        Safe: the connection is closed.

    Example:
        Wait until a pod that was just created runs::

            source = ListWatch(client, PODS, field_selector="metadata.name=web")
            await until(
                source, pod.resource_version,
                lambda event: event.object.at("status.phase") == "Running",
                timeout=60,
            )
    """
    watch = RetryWatch(source, resource_version, name="until")
    waiting = Conditions(conditions)
    async with watch:
        return await waiting.meet_within(
            timeout_of(timeout), watch, lambda: _troubles_of(watch)
        )


@overload
async def until_without_retry(
    watch: Watch,
    condition: Condition,
    /,
    *conditions: Condition,
    timeout: Duration | None = None,
) -> WatchEvent: ...


@overload
async def until_without_retry(
    watch: Watch, /, *, timeout: Duration | None = None
) -> None: ...


async def until_without_retry(
    watch: Watch, *conditions: Condition, timeout: Duration | None = None
) -> WatchEvent | None:
    """Read a watch until conditions were met, one after the other; then stop it.

    As `until`, but the end of the watch is the end of the wait. The watch is stopped
    whatever happens.

    Args:
        watch: Any; its context is left by whoever entered it.
        *conditions: Plain or async functions of an event.
        timeout: Seconds, or a timedelta; None waits as long as it takes.

    Returns:
        The event that met the last condition; None without conditions.

    Raises:
        WatchClosed: The watch ended or broke off first; `last_event` is what came
            last, `__cause__` the error, if there was one.
        TimeoutError: The time is over; the text says what came last.
        OptionsError: A condition is a generator.
        Exception: What a condition raised, as it is.

    Cancellation:
        Safe: the watch is stopped.
    """
    try:
        return await Conditions(conditions).meet_within(timeout_of(timeout), watch)
    finally:
        watch.stop()


class Conditions:
    """Conditions that are to be met one after the other, by the events of a watch.

    Attributes:
        last_event: What came last, whatever its type; None if nothing did.
    """

    def __init__(self, conditions: tuple[Condition, ...]) -> None:
        for condition in conditions:
            check_runs(condition, "a condition")

        self.last_event: WatchEvent | None = None
        self._conditions = conditions
        self._met = 0

    async def meet_within(
        self,
        seconds: float | None,
        watch: Watch,
        troubles: Callable[[], str] = lambda: "",
    ) -> WatchEvent | None:
        """`meet()` for so long, on the loop's clock; None for as long as it takes.

        Args:
            seconds: Until it gives up.
            watch: Where the events come from.
            troubles: What else is to be said if it does; empty for nothing.

        Raises:
            TimeoutError: The time is over.
            WatchClosed: The watch has ended.

        Cancellation:
            Safe.
        """
        patience = asyncio.timeout(seconds)
        try:
            async with patience:
                return await self.meet(watch)
        except TimeoutError:
            if seconds is None or not patience.expired():
                raise  # a condition's own

            raise self.timed_out(seconds, troubles()) from None

    async def meet(self, watch: Watch) -> WatchEvent | None:
        """Read the watch until all are met; returns the event that met the last.

        Raises:
            WatchClosed: The watch has ended.

        Cancellation:
            Safe.
        """
        for condition in self._conditions:
            # What met the one before comes first, as in client-go.
            last = self.last_event
            if last is None or not await holds(condition(last)):
                await self._wait_for(condition, watch)

            self._met += 1

        return self.last_event

    def timed_out(self, seconds: float, troubles: str = "") -> TimeoutError:
        """The error that says how far it came in `seconds`, and what troubles it had."""
        return TimeoutError(
            f"not within {seconds:g} s: {self._progress()}"
            f"{'; ' if troubles else ''}{troubles}"
        )

    async def _wait_for(self, condition: Condition, watch: Watch) -> None:
        while True:
            self.last_event = event = await self._next(watch)
            if event.type in _CHANGES and await holds(condition(event)):
                return

    async def _next(self, watch: Watch) -> WatchEvent:
        try:
            async for event in watch:
                return event
        except (TransportError, DecodeError) as exc:
            raise self._closed(exc) from exc

        reason = _reason_of(self.last_event)
        raise self._closed(reason) from reason

    def _closed(self, reason: Exception | None) -> WatchClosed:
        why = "" if reason is None else f": {reason}"
        return WatchClosed(
            f"the watch ended{why}; {self._progress()}", last_event=self.last_event
        )

    def _progress(self) -> str:
        return (
            f"{self._met} of {len(self._conditions)} conditions were met, "
            f"{_told(self.last_event)}"
        )


def _told(event: WatchEvent | None) -> str:
    """An event in the words of a person who has to find it again."""
    if event is None:
        return "and no event came"

    obj = event.object
    key = f" {obj.key}" if obj.key else ""
    version = f" at version {obj.resource_version}" if obj.resource_version else ""
    return f"the last event was {event.type}{key}{version}"


def _reason_of(event: WatchEvent | None) -> Exception | None:
    """What an ERROR event says; None for any other."""
    if event is None or event.type is not EventType.ERROR:
        return None

    try:
        return event.error()
    except DecodeError as exc:
        return exc


def _troubles_of(watch: RetryWatch) -> str:
    error = watch.last_error
    return "" if error is None else f"the last attempt failed: {error}"
