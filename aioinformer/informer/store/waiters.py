"""`StoreWaiters`: who waits for what a store shows, each woken by what concerns it.

Plain state. Whoever changes the store says so in the same step; who waits is woken then,
and looks when its turn comes. What nobody waits for costs a look into a dict.
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_right, insort
from collections import deque
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

from aioinformer.informer.notifications import Deleted, Updated
from aioinformer.model.keys import version_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from aioinformer.informer.notifications import Notification
    from aioinformer.model.objects import KubeObject

__all__ = ["KeyWaiter", "StoreWaiters"]


class KeyWaiter:
    """One who waits for changes of one key, and those it has not looked at yet."""

    __slots__ = ("news", "states")

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self.states: deque[KubeObject | None] = deque()

    def tell(self, state: KubeObject | None) -> None:
        """The key has this state now; None if it is gone."""
        self.states.append(state)
        self.news.set()


# A version, a number that orders equal ones, and whom to wake.
_VersionWaiter = tuple[float, int, asyncio.Event]


class StoreWaiters:
    """Those who wait for what the store of one informer shows."""

    def __init__(self) -> None:
        self._by_key: dict[str, list[KeyWaiter]] = {}
        self._steps: dict[asyncio.Event, None] = {}
        # By namespace, or None for all of the store; each sorted by version.
        self._versions: dict[str | None, list[_VersionWaiter]] = {}
        self._numbers = count()

    def __len__(self) -> int:
        by_key = sum(map(len, self._by_key.values()))
        return by_key + len(self._steps) + sum(map(len, self._versions.values()))

    def __repr__(self) -> str:
        return f"<StoreWaiters {len(self)}>"

    # ------------------------------------------------------------ who waits

    @contextmanager
    def for_key(self, key: str) -> Iterator[KeyWaiter]:
        """Wait for changes of one key."""
        waiter = KeyWaiter()
        waiters = self._by_key.setdefault(key, [])
        waiters.append(waiter)
        try:
            yield waiter
        finally:
            waiters.remove(waiter)
            if not waiters:
                del self._by_key[key]

    @contextmanager
    def for_steps(self) -> Iterator[asyncio.Event]:
        """Wait for any change of the store; clear the event before looking."""
        news = asyncio.Event()
        self._steps[news] = None
        try:
            yield news
        finally:
            del self._steps[news]

    @contextmanager
    def for_version(
        self, wanted: int, namespace: str | None
    ) -> Iterator[asyncio.Event]:
        """Wait for a version of all of the store, or of a namespace; wakes once."""
        waiter = (wanted, next(self._numbers), asyncio.Event())
        waiters = self._versions.setdefault(namespace, [])
        insort(waiters, waiter)
        try:
            yield waiter[-1]
        finally:
            if not waiter[-1].is_set():
                waiters.remove(waiter)

            if not waiters and self._versions.get(namespace) is waiters:
                del self._versions[namespace]

    # ------------------------------------------------------------ who is woken

    def changed(self, batch: Iterable[Notification]) -> None:
        """These changes are in the store."""
        by_key = self._by_key
        if not by_key:
            return

        for event in batch:
            obj = event.new if isinstance(event, Updated) else event.obj
            for waiter in by_key.get(obj.key, ()):
                waiter.tell(None if isinstance(event, Deleted) else obj)

    def replaced(
        self, before: Mapping[str, KubeObject], now: Mapping[str, KubeObject]
    ) -> None:
        """Other objects have taken the place of some in the store."""
        for key, waiters in self._by_key.items():
            was, state = before.get(key), now.get(key)
            if was is state:
                continue

            for waiter in waiters:
                if was is not None and state is not None and was.uid != state.uid:
                    waiter.tell(None)  # one has gone, another has come

                waiter.tell(state)

    def applied(self, version: Callable[[str | None], str]) -> None:
        """The store has changed.

        Args:
            version: Up to which version everything is in the store, by namespace, or
                for all of them.
        """
        for news in self._steps:
            news.set()

        for namespace, waiters in self._versions.items():
            number = version_number(version(namespace) or "0")
            # Versions that cannot be compared are an error, for each of them to raise.
            _wake(waiters, math.inf if number < 0 else number)

    def wake_versions(self) -> None:
        """Versions may not mean any more what they meant."""
        for waiters in self._versions.values():
            _wake(waiters, math.inf)

    def wake_all(self) -> None:
        """Everybody is to look whether there is anything left to wait for."""
        self.wake_versions()
        for news in self._steps:
            news.set()

        for waiters in self._by_key.values():
            for waiter in waiters:
                waiter.news.set()


def _wake(waiters: list[_VersionWaiter], reached: float) -> None:
    """Wake, and take out, those who wait for no more than what is reached."""
    due = bisect_right(waiters, reached, key=lambda waiter: waiter[0])
    for waiter in waiters[:due]:
        waiter[-1].set()

    del waiters[:due]
