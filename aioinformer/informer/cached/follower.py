"""`Follower`: tells the changes of a store on disk to the handlers of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from aioinformer.cache.disk.contents import DiskContents
    from aioinformer.cache.disk.environment import Environment
    from aioinformer.cache.disk.header import WriterState
    from aioinformer.cache.disk.readers import ReaderSlot
    from aioinformer.cache.disk.records import Records
    from aioinformer.informer.cached.journal import Journal
    from aioinformer.informer.handlers.listener import Listener
    from aioinformer.informer.handlers.processor import Processor
    from aioinformer.informer.store.waiters import StoreWaiters

__all__ = ["Follower"]


class Follower:
    """Reader of the journal, for listeners, waiters and the state of the informer.

    Every process of a cache has one, the writer's too. Handlers are told nothing before
    the store is confirmed.
    """

    def __init__(
        self,
        env: Environment,
        records: Records,
        journal: Journal,
        contents: DiskContents,
        slot: ReaderSlot,
        processor: Processor,
        waiters: StoreWaiters,
        on_change: Callable[[], None],
        *,
        name: str = "informer",
    ) -> None:
        raise NotImplementedError

    synced: bool
    """True once a confirmed list is in the store. Never becomes False again."""

    writer: WriterState
    """Newest state of the writer that was read."""

    def add(self, listener: Listener) -> None:
        """Tell a listener each stored object, then each change. It is in the processor."""
        raise NotImplementedError

    def catch_up(self) -> None:
        """Tell everything that is in the store now, at once; before a wait for a key."""
        raise NotImplementedError

    async def run(self) -> NoReturn:
        """Follow the store until cancelled.

        Raises:
            CacheError: If the store cannot be read any more.
        """
        raise NotImplementedError
