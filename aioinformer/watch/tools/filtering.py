"""Watches over watches: `filtered()` leaves out and changes, `Recorder` remembers.

Neither has a task or a buffer of its own: an event is taken from below when somebody
asks for it above.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from aioinformer.budget import LoopBudget
from aioinformer.model.callables import check_plain
from aioinformer.watch.events import WatchEvent
from aioinformer.watch.interface import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Recorder", "filtered"]


def filtered(watch: Watch, f: Callable[[WatchEvent], WatchEvent | None]) -> Watch:
    """Give the events of `watch` as `f` changes them, without those it leaves out.

    Stopping one stops the other, and so does leaving an `async with` of either. An
    error of `f` is raised to the reader, in the place of its event and behind all that
    came before it; reading on gives what follows. (A panic there ends client-go's
    whole process.)

    Each event is looked at alone, as by client-go's `Filter`: an object that begins or
    ceases to match still comes as MODIFIED, never as ADDED or DELETED. Where that
    matters, let the server select (`label_selector=`), or filter an informer's handler.

    Args:
        watch: Read by nobody else from now on.
        f: Called once for each event, in order: gives back the event, another one in
            its place, or None to leave it out. Plain and quick: it runs in the reader's
            task.

    Returns: A watch whose `skipped` is that of the other: what `f` leaves out, it was
        told to. Its reader gets a `TypeError` where `f` gives back anything else, such
        as the True of a predicate.

    Raises:
        OptionsError: If `f` is no plain function.

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
        # Taken from below and not looked at yet.
        self._raw: deque[WatchEvent] = deque()
        # What stands between the events that were handed out and `_raw`.
        self._failure: Exception | None = None

    @property
    def skipped(self) -> int:
        """Events left out so far by the watch below."""
        return self._watch.skipped

    async def __anext__(self) -> WatchEvent:
        # One at a time down to the source, so that nothing is under way unseen.
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
        """Look at events until they are done, one fails, or the slice is used up."""
        events: list[WatchEvent] = []
        while self._raw:
            try:
                event = self._pass(self._raw.popleft())
            except Exception as exc:  # noqa: BLE001 - the user's code; raised in its turn
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

        raise TypeError(f"a filter gives back an event or None, not {found!r}")

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lstrip('_')} of {self._watch!r}>"


class Recorder(_Filtered):
    """A watch that gives what another one gives, and remembers it.

    Stopping one stops the other, and so does leaving an `async with` of either. As
    client-go's, it never forgets: it is made for tests.

    Args:
        watch: Read by nobody else from now on.
    """

    def __init__(self, watch: Watch) -> None:
        super().__init__(watch, self._record)
        self._events: list[WatchEvent] = []

    @property
    def events(self) -> list[WatchEvent]:
        """All that passed so far, in order; a copy."""
        return list(self._events)

    def _record(self, event: WatchEvent) -> WatchEvent:
        self._events.append(event)
        return event
