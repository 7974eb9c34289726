"""`until`: wait for events of a watch that meet conditions."""

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
"""Condition on an event, plain or async. Its errors are raised to the caller."""

# Events that conditions get. The object of a bookmark has nothing but a version, and
# that of an ERROR is a Status: they could meet a condition on missing fields.
_CHANGES: Final = {EventType.ADDED, EventType.MODIFIED, EventType.DELETED}


async def holds(answer: bool | Awaitable[bool]) -> bool:
    """Return the result of a plain or async function."""
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
    """Watch from a version on until conditions are met, one after the other.

    The watch is a `RetryWatch`: it survives the end of its connections. Each condition
    is called with ADDED, MODIFIED and DELETED events until it is met. The event that
    met one is passed to the next one first. Only changes after the version count. If
    the condition may be true already, use `until_with_sync`.

    Args:
        source: Source to watch; a field selector `metadata.name=web` avoids other
            events.
        resource_version: Version to start after: that of an object, or of a list.
        *conditions: Plain or async functions of an event. Without any it returns at
            once.
        timeout: Maximum time to wait, in seconds or as a timedelta; None for no limit.

    Returns:
        Event that met the last condition; None without conditions.

    Raises:
        TimeoutError: If the timeout expires. The text has the last event, and whether
            the server could not be reached.
        WatchClosed: If the server has dropped the history after the version (410), or
            refuses permanently (400, 401, 403, 422). `__cause__` is the reason,
            `last_event` the ERROR.
        OptionsError: If the version is `""` or `"0"`, or a condition is a generator.
        Exception: Error of a condition, unchanged.

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
            timeout_of(timeout), watch, lambda: _last_failure_of(watch)
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
    """Read a watch until conditions are met, one after the other; then stop it.

    It is like `until`, but the end of the watch ends the wait. The watch is always
    stopped.

    Args:
        watch: Watch to read. If its context was entered, the caller leaves it.
        *conditions: Plain or async functions of an event.
        timeout: Maximum time to wait, in seconds or as a timedelta; None for no limit.

    Returns:
        Event that met the last condition; None without conditions.

    Raises:
        WatchClosed: If the watch ended or broke off first. `last_event` is the last
            event, `__cause__` the error, if there was one.
        TimeoutError: If the timeout expires; the text has the last event.
        OptionsError: If a condition is a generator.
        Exception: Error of a condition, unchanged.

    Cancellation:
        Safe: the watch is stopped.
    """
    try:
        return await Conditions(conditions).meet_within(timeout_of(timeout), watch)
    finally:
        watch.stop()


class Conditions:
    """Conditions to be met one after the other by the events of a watch.

    Attributes:
        last_event: Last event, of any type; None if there was none.
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
        details: Callable[[], str] = lambda: "",
    ) -> WatchEvent | None:
        """Call `meet()` with a timeout, on the loop's clock.

        Args:
            seconds: Seconds until it gives up; None for no limit.
            watch: Source of the events.
            details: Function that returns further text for the `TimeoutError`, or "".

        Raises:
            TimeoutError: If the timeout expires.
            WatchClosed: If the watch has ended.

        Cancellation:
            Safe.
        """
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await self.meet(watch)
        except TimeoutError:
            if seconds is None or not limit.expired():
                raise  # raised by a condition

            raise self.timed_out(seconds, details()) from None

    async def meet(self, watch: Watch) -> WatchEvent | None:
        """Read the watch until all conditions are met; return the last event.

        Raises:
            WatchClosed: If the watch has ended.

        Cancellation:
            Safe.
        """
        for condition in self._conditions:
            # The event that met the condition before comes first, as in client-go.
            last = self.last_event
            if last is None or not await holds(condition(last)):
                await self._wait_for(condition, watch)

            self._met += 1

        return self.last_event

    def timed_out(self, seconds: float, details: str = "") -> TimeoutError:
        """Return the error of the timeout, with the progress so far."""
        more = f" ({details})" if details else ""
        return TimeoutError(f"timed out after {seconds:g} s: {self._progress()}{more}")

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
            f"the watch ended{why} ({self._progress()})", last_event=self.last_event
        )

    def _progress(self) -> str:
        return (
            f"{self._met} of {len(self._conditions)} conditions were met, "
            f"{_describe(self.last_event)}"
        )


def _describe(event: WatchEvent | None) -> str:
    """Describe an event for an error message."""
    if event is None:
        return "no event was received"

    obj = event.object
    key = f" {obj.key}" if obj.key else ""
    version = f" at version {obj.resource_version}" if obj.resource_version else ""
    return f"the last event was {event.type}{key}{version}"


def _reason_of(event: WatchEvent | None) -> Exception | None:
    """Return the error of an ERROR event; None for any other."""
    if event is None or event.type is not EventType.ERROR:
        return None

    try:
        return event.error()
    except DecodeError as exc:
        return exc


def _last_failure_of(watch: RetryWatch) -> str:
    error = watch.last_error
    return "" if error is None else f"the last attempt failed: {error}"
