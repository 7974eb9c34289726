"""`until_with_sync`: wait for what an informer is going to tell."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from aioinformer.cache.store import Indexer
from aioinformer.errors import NotSynced
from aioinformer.informer.informer_watch import InformerWatch
from aioinformer.model.callables import check_runs
from aioinformer.model.objects import KubeObject
from aioinformer.model.times import timeout_of
from aioinformer.watch.tools.until import Conditions, holds

if TYPE_CHECKING:
    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.model.times import Duration
    from aioinformer.watch.events import WatchEvent
    from aioinformer.watch.interface import ListerWatcher
    from aioinformer.watch.tools.until import Condition

__all__ = ["Precondition", "until_with_sync"]

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
        source: What to list and watch; a field selector `metadata.name=web` spares the
            rest.
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
        Exception: What a condition raised, as it is.

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
