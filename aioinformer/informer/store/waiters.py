"""`StoreWaiters`: tasks that wait for states of a store.

Plain state. The pipeline calls it in the same step in which it changes the store. A
change only wakes the tasks that wait for it.
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_right, insort
from collections import deque
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, assert_never

from aioinformer.informer.listwatch.watch_events import same_state
from aioinformer.informer.notifications import Added, Deleted, Updated
from aioinformer.model.object_meta import version_number

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from aioinformer.informer.notifications import Notification
    from aioinformer.model.objects import KubeObject

__all__ = ["KeyWaiter", "StoreWaiters"]


class KeyWaiter:
    """Task that waits for changes of one key, with the states it has not read yet."""

    __slots__ = ("states", "wakeup")

    def __init__(self) -> None:
        self.wakeup: asyncio.Event = asyncio.Event()
        self.states: deque[KubeObject | None] = deque()

    def add(self, state: KubeObject | None) -> None:
        """Add a new state of the key; None for a deletion."""
        self.states.append(state)
        self.wakeup.set()


# A version, a unique number to order equal versions, and the event to set.
_VersionWaiter = tuple[float, int, asyncio.Event]


class StoreWaiters:
    """Tasks that wait for states of one informer's store."""

    def __init__(self) -> None:
        self.waiting: int = 0
        """Number of tasks that wait or were just woken. If 0, calls have no effect."""
        self._by_key: dict[str, list[KeyWaiter]] = {}
        self._steps: dict[asyncio.Event, None] = {}
        # By namespace, or None for the whole store; each list is sorted by version.
        self._versions: dict[str | None, list[_VersionWaiter]] = {}
        self._numbers = count()
        # True if states may have been missed since the last list.
        self._missed = False

    def __len__(self) -> int:
        by_key = sum(map(len, self._by_key.values()))
        return by_key + len(self._steps) + sum(map(len, self._versions.values()))

    def __repr__(self) -> str:
        return f"<StoreWaiters {len(self)}>"

    @property
    def keys(self) -> Collection[str]:
        """Keys that tasks wait for."""
        return self._by_key.keys()

    # ------------------------------------------------------------ waiting

    @contextmanager
    def for_key(self, key: str) -> Iterator[KeyWaiter]:
        """Wait for changes of one key."""
        waiter = KeyWaiter()
        waiters = self._by_key.setdefault(key, [])
        waiters.append(waiter)
        self.waiting += 1
        try:
            yield waiter
        finally:
            self.waiting -= 1
            waiters.remove(waiter)
            if not waiters:
                del self._by_key[key]

    @contextmanager
    def for_steps(self) -> Iterator[asyncio.Event]:
        """Wait for any change of the store; clear the event, then read the store."""
        wakeup = asyncio.Event()
        self._steps[wakeup] = None
        self.waiting += 1
        try:
            yield wakeup
        finally:
            self.waiting -= 1
            del self._steps[wakeup]

    @contextmanager
    def for_version(
        self, wanted: int, namespace: str | None
    ) -> Iterator[asyncio.Event]:
        """Wait once for a version of a namespace, or of the whole store for None."""
        waiter = (wanted, next(self._numbers), asyncio.Event())
        waiters = self._versions.setdefault(namespace, [])
        insort(waiters, waiter)
        self.waiting += 1
        try:
            yield waiter[-1]
        finally:
            self.waiting -= 1
            if not waiter[-1].is_set():
                waiters.remove(waiter)

            if not waiters and self._versions.get(namespace) is waiters:
                del self._versions[namespace]

    # ------------------------------------------------------------ waking

    def changed(self, batch: Iterable[Notification]) -> None:
        """Wake the tasks that wait for one of these changes."""
        by_key = self._by_key
        if not by_key:
            return

        for event in batch:
            state: KubeObject | None
            match event:
                case Added():
                    key, state = event.obj.key, event.obj
                case Updated():
                    key, state = event.new.key, event.new
                case Deleted():
                    key, state = event.obj.key, None
                case _:
                    assert_never(event)

            for waiter in by_key.get(key, ()):
                waiter.add(state)

    def replaced(
        self, before: Mapping[str, KubeObject], now: Mapping[str, KubeObject]
    ) -> None:
        """Wake the tasks that wait for a key that a list has changed."""
        missed, self._missed = self._missed, False
        for key, waiters in self._by_key.items():
            was, state = before.get(key), now.get(key)
            if _is_same(was, state) and not missed:
                continue

            for waiter in waiters:
                if was is not None and state is not None and was.uid != state.uid:
                    waiter.add(None)  # one was deleted, another created

                waiter.add(state)

    def note_missed(self) -> None:
        """Record that states may have been missed: the store before the next list is lost.

        That list wakes all tasks that wait for a key, also if there is no object.
        """
        self._missed = True

    def applied(self, version: Callable[[str | None], str]) -> None:
        """Wake the tasks that wait for any change, or for a version that is reached.

        Args:
            version: Function that returns the version of a namespace, or of the store
                for None.
        """
        for wakeup in self._steps:
            wakeup.set()

        for namespace, waiters in self._versions.items():
            number = version_number(version(namespace) or "0")
            # If versions cannot be compared, each task raises an error.
            _wake(waiters, math.inf if number < 0 else number)

    def wake_versions(self) -> None:
        """Wake the tasks that wait for versions, as the history may have been reset."""
        for waiters in self._versions.values():
            _wake(waiters, math.inf)

    def wake_all(self) -> None:
        """Wake all tasks, because the informer may have ended."""
        self.wake_versions()
        for wakeup in self._steps:
            wakeup.set()

        for waiters in self._by_key.values():
            for waiter in waiters:
                waiter.wakeup.set()


def _is_same(was: KubeObject | None, state: KubeObject | None) -> bool:
    """Return True if a list has not changed a key. Some stores copy what they read."""
    if was is state or was is None or state is None:
        return was is state

    return same_state(was, state) and was == state


def _wake(waiters: list[_VersionWaiter], reached: float) -> None:
    """Wake and remove the tasks whose version is reached."""
    due = bisect_right(waiters, reached, key=lambda waiter: waiter[0])
    for waiter in waiters[:due]:
        waiter[-1].set()

    del waiters[:due]
