"""`Events`: what a handler would be told, for whoever would rather ask for it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Self

from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.informer.handlers.event_handlers import Outcome
    from aioinformer.informer.handlers.registration import Registration
    from aioinformer.informer.lifecycle import RunState
    from aioinformer.informer.notifications import Notification

__all__ = ["AHEAD", "Events"]

AHEAD = 64
"""Notifications that are handed over at once, which saves most of the switching between
tasks. What waits behind them waits as for any handler."""


class Events:
    """The changes of an informer's objects, as an async iterator.

    Made by `SharedInformer.events`. To the informer it is a handler like any other, and
    what is true of those is true here: one that is slow delays nobody else, what waits
    for it is in no way bounded, and it counts in log and metrics. Up to 64 notifications
    are handed over ahead of the reader.

    Guarantees:
        Nothing is lost and nothing comes twice, also if waiting for it is cancelled.
        The iteration ends by leaving the block; if the informer ends, by
        `InformerStopped`: never silently.

    Args:
        register: Makes a function a handler of the informer.
        live: The informer's life.
        ahead: How many notifications to take ahead, at least 1.
    """

    def __init__(
        self,
        register: Callable[[Callable[[Notification], Outcome]], Registration],
        live: RunState,
        ahead: int = AHEAD,
    ) -> None:
        self._register = register
        self._live = live
        self._ahead = ahead
        self._registration: Registration | None = None
        self._left = False

        # What was handed over and not taken; a full one holds the call that filled it
        # until all of it has been taken, and more is wanted.
        self._offered: deque[Notification] = deque()
        self._news = asyncio.Event()
        self._wanted = asyncio.Event()
        self._holding = False

    def __repr__(self) -> str:
        if self._registration is None:
            return "<Events not entered>"

        return f"<Events {self._registration.name} depth={self.depth}>"

    @property
    def depth(self) -> int:
        """Notifications that wait to be taken."""
        if self._registration is None:
            return 0

        if self._live.over:
            return len(self._offered)  # nobody hands over the rest any more

        # The one whose call is held was handed over already.
        return self._registration.depth - self._holding + len(self._offered)

    async def __aenter__(self) -> Self:
        """Begin: what there is comes first, as `Added(initial=True)`.

        Raises:
            OptionsError: It has been entered before.
            InformerStopped: The informer has ended.
            WrongLoop: The informer belongs to another event loop.

        Cancellation:
            Safe: it does not wait.
        """
        if self._registration is not None:
            raise OptionsError("these events were asked for already: ask for others")

        self._registration = self._register(self._offer)
        self._live.followers.append(self._news.set)
        return self

    async def __aexit__(self, *_: object) -> None:
        registration = self._registration
        assert registration is not None
        self._left = True
        self._live.followers.remove(self._news.set)
        registration.remove()
        self._offered.clear()
        self._news.set()
        self._wanted.set()
        await registration.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notification:
        """Wait for the next notification.

        Raises:
            InformerStopped: The informer has ended; `__cause__` is why, if it was an
                error. What it had to tell has been told before, but for what waited
                longer than handlers are waited for.
            StopAsyncIteration: The block has been left.
            OptionsError: It has not been entered.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        if self._registration is None:
            raise OptionsError("ask for events in a block: `async with ...events()`")

        while not self._offered:
            if self._left:
                raise StopAsyncIteration

            if self._live.over:
                self._live.check_not_stopped()

            # Each time: another reader may have taken what was offered.
            self._wanted.set()
            self._news.clear()
            await self._news.wait()

        return self._offered.popleft()

    def _offer(self, event: Notification) -> Outcome:
        """The informer's handler."""
        self._offered.append(event)
        self._news.set()
        return None if len(self._offered) < self._ahead else self._until_wanted()

    async def _until_wanted(self) -> None:
        self._wanted.clear()
        self._holding = True
        try:
            await self._wanted.wait()
        finally:
            self._holding = False
