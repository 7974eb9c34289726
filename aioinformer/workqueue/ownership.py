"""`OwnedByLoop`: which event loop a queue belongs to, and the way in from elsewhere."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from threading import get_ident
from typing import Generic, TypeVar

from aioinformer.errors import WrongLoop

__all__ = ["OwnedByLoop"]

T = TypeVar("T")


class OwnedByLoop(ABC, Generic[T]):
    """The base of a queue that belongs to the loop in which it is first used.

    Asking for the running loop costs as much as the rest of `add()`; asking for the
    thread does not. So the methods of a queue compare `_thread` with theirs first,
    and call `_check_loop()` where it differs, or where they are slow anyway.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

        # 0 is no thread, so that every call takes a closer look: the queue is not
        # bound to a loop yet, or it is shutting down.
        self._thread = 0
        self._inbox: deque[T] = deque()

    @property
    @abstractmethod
    def shutting_down(self) -> bool:
        """True once the queue takes no more items."""

    @abstractmethod
    def add(self, item: T) -> None:
        """Ask for `item` to be worked on; called in the loop."""

    def add_threadsafe(self, item: T) -> None:
        """Ask for `item` to be worked on, from any thread.

        It is added in one of the next turns of the queue's loop; if the queue has not
        been used in a loop yet, with its first use there. Items of one thread keep
        their order. A shut-down that follows finds them added.

        Raises:
            WrongLoop: If the loop of this queue was closed, and the queue was not shut
                down before.
        """
        hash(item)  # an unhashable item is its caller's error, not the loop's

        # In this order: whoever binds the loop looks into the inbox afterwards.
        self._inbox.append(item)
        loop = self._loop
        if loop is None:
            return

        try:
            loop.call_soon_threadsafe(self._take_inbox)
        except RuntimeError as exc:
            if not self.shutting_down:
                raise WrongLoop(f"the event loop of {self!r} has been closed") from exc

    def _take_inbox(self) -> None:
        while self._inbox:
            self.add(self._inbox.popleft())

    def _check_loop(self) -> asyncio.AbstractEventLoop | None:
        """Bind to the running loop if there is none yet; return the loop bound to.

        None outside of any loop, for a queue that is filled before its loop runs.

        Raises:
            WrongLoop: If the running loop is not the one bound to.
        """
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None

        if self._loop is running:
            return running

        if self._loop is not None or running is None:
            raise WrongLoop(f"{self!r} belongs to another event loop or thread")

        self._loop = running
        self._thread = 0 if self.shutting_down else get_ident()
        self._take_inbox()
        return running

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        loop = self._check_loop()
        if loop is None:
            raise WrongLoop(f"{self!r} needs a running event loop for this")

        return loop
