"""`Taking`: the ways to take an item that call `done()` by themselves."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from aioinformer.errors import QueueShutDown
from aioinformer.workqueue.ownership import OwnedByLoop

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

__all__ = ["Taking"]

T = TypeVar("T")


class Taking(OwnedByLoop[T]):
    """The base of a queue whose items are taken by `get()` and given back by `done()`."""

    @abstractmethod
    async def get(self) -> T:
        """Wait for the next item and take it; `done()` must follow."""

    @abstractmethod
    def done(self, item: T) -> None:
        """Say that the work on `item` has ended, well or badly."""

    @asynccontextmanager
    async def item(self) -> AsyncIterator[T]:
        """Take the next item for one `async with` block, and call `done()` after it.

        `done()` is called however the block ends. To have the item again, add it (or
        `add_after`, `add_rate_limited`) inside of the block.

        Raises:
            QueueShutDown: If the queue is shutting down and nothing is queued.

        Cancellation:
            Safe while it waits: nothing is lost.
        """
        item = await self.get()
        try:
            yield item
        finally:
            self.done(item)

    async def __aiter__(self) -> AsyncGenerator[T, None]:
        """Yield items until the queue is shut down and empty.

        `done()` is called for an item when the loop asks for the next one. Where the
        loop is left early (`break`, `return`, an exception), it is called as soon as
        the event loop has closed the generator; `contextlib.aclosing(aiter(queue))`
        makes that certain and immediate.
        """
        while True:
            try:
                item = await self.get()
            except QueueShutDown:
                return

            try:
                yield item
            finally:
                self.done(item)
