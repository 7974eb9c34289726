"""Watches of watches: `filtered()` drops and changes events, `Recorder` keeps them.

Neither has a task or a buffer of its own. An event is read from the source when it is
requested.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from aioinformer.budget import LoopBudget
from aioinformer.model.callables import check_plain
from aioinformer.model.validation import shown
from aioinformer.watch.events import WatchEvent
from aioinformer.watch.interface import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Recorder", "filtered"]


def filtered(watch: Watch, f: Callable[[WatchEvent], WatchEvent | None]) -> Watch:
    """Return a watch of the events of `watch`, changed or dropped by `f`.

    Stopping one stops the other, and so does leaving an `async with` of either. An
    error of `f` is raised to the reader, in place of its event and after all earlier
    ones. Reading on returns the events after it. (In client-go a panic there ends the
    process.)

    Each event is filtered alone, as by client-go's `Filter`: an object that starts or
    stops matching is still MODIFIED, never ADDED or DELETED. If that matters, let the
    server select (`label_selector=`), or filter an informer's handler.

    Args:
        watch: Watch to read; nothing else may read it.
        f: Function called once for each event, in order. It returns the event, another
            one in its place, or None to drop it. Plain and quick: it runs in the
            reader's task.

    Returns:
        Watch with the `skipped` of the other one: events that `f` drops do not count.
        Its reader gets a `TypeError` if `f` returns anything else, such as the True of
        a predicate.

    Raises:
        OptionsError: If `f` is not a plain function.

    Example:
        ::

            async with client.watch(PODS) as pods:
                async for event in filtered(pods, lambda it: it if is_mine(it) else None):
                    ...
    """
    check_plain(f, "a filter")
    return _Filtered(watch, f)


class _Filtered(Watch):
    def __init__(
        self, watch: Watch, f: Callable[[WatchEvent], WatchEvent | None]
    ) -> None:
        super().__init__()
        self._watch = watch
        self._f = f
        # Read from the source and not filtered yet.
        self._raw: deque[WatchEvent] = deque()
        # Error to raise between the returned events and `_raw`.
        self._failure: Exception | None = None

    @property
    def skipped(self) -> int:
        """Number of events left out so far by the source."""
        return self._watch.skipped

    async def __anext__(self) -> WatchEvent:
        # One at a time from the source, so that no event is buffered here.
        while True:
            self._raise_failure()
            if not self._raw:
                self._raw.append(await anext(self._watch))

            event = self._pass(self._raw.popleft())
            if self._stopped:
                raise StopAsyncIteration

            if event is not None:
                return event

    async def _fetch(self) -> list[WatchEvent]:
        budget = LoopBudget.current()
        while not self._stopped:
            self._raise_failure()
            if not self._raw:
                self._raw.extend(await self._watch.next_batch())

            if not self._raw:
                break

            await budget.start()
            try:
                events = self._pass_some(budget)
            finally:
                budget.end()

            if events:
                return events

        return []

    def _close(self) -> None:
        self._raw.clear()
        self._failure = None
        self._watch.stop()

    def _pass_some(self, budget: LoopBudget) -> list[WatchEvent]:
        """Filter events until they are done, one fails, or the slice is used up."""
        events: list[WatchEvent] = []
        while self._raw:
            try:
                event = self._pass(self._raw.popleft())
            except Exception as exc:  # noqa: BLE001 - the user's code; raised later
                self._failure = exc
                break

            if event is not None:
                events.append(event)

            if budget.over():
                break

        return events

    def _pass(self, event: WatchEvent) -> WatchEvent | None:
        found = self._f(event)
        if found is None or isinstance(found, WatchEvent):
            return found

        raise TypeError(f"a filter must return an event or None, not {shown(found)}")

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lstrip('_')} of {self._watch!r}>"


class Recorder(_Filtered):
    """Watch of the events of another one, which keeps them.

    Stopping one stops the other, and so does leaving an `async with` of either. As in
    client-go it never drops an event: it is made for tests.

    Args:
        watch: Watch to read; nothing else may read it.
    """

    def __init__(self, watch: Watch) -> None:
        super().__init__(watch, self._record)
        self._events: list[WatchEvent] = []

    @property
    def events(self) -> list[WatchEvent]:
        """Events read so far, in order, in a new list."""
        return list(self._events)

    def _record(self, event: WatchEvent) -> WatchEvent:
        self._events.append(event)
        return event
