"""`MemoryLimiter`: keeps the stores of a factory within a `MemoryBudget`.

All changes of a store are small steps of one object each, in the loop's budget: an
object is replaced by an equal one whose body is compressed, or unpacked again. Handlers
get no notification, as nothing has changed. While a list is received for a store, its
objects stay as they are: the list refers to those that it shows unchanged. A list that
hardly fits beside the store is staged as differences from its compressed bodies. They are
compressed as usual once it has replaced the store.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final, NoReturn

from aioinformer._tasks import in_thread
from aioinformer._user_code import guarded_logger
from aioinformer.budget import LoopBudget
from aioinformer.errors import InternalError
from aioinformer.informer.memory_budget import MemoryStatus
from aioinformer.informer.store.compressor import uncompressed
from aioinformer.informer.store.stored_bytes import OBJECT_BYTES
from aioinformer.model.compression import SAMPLES
from aioinformer.model.views import DifferenceContext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioinformer.cache.store import Indexer
    from aioinformer.informer.memory_budget import MemoryBudget
    from aioinformer.informer.store.compressor import BodyCompressor
    from aioinformer.informer.store.stored_bytes import StoredBytes
    from aioinformer.model.objects import KubeObject

__all__ = ["BudgetedStore", "MemoryLimiter"]

logger: Final = guarded_logger(__name__)

_FULL: Final = 0.95
"""Share of the limit above which new bodies are compressed at once. The rest is for what
the allocator cannot use again: 15 % of the bodies, as measured with growing pods."""

_HIGH: Final = 0.9
"""Share of the limit above which bodies are compressed, those changed last at the end."""

_LOW: Final = 0.8
"""Share of the limit at which that ends."""

_ROOM: Final = 0.85
"""Share of the limit up to which compressed bodies that are read are unpacked again."""

_GROWTH: Final = 1.1
"""Growth of the stores after which a measure that did not suffice is repeated."""

_INDEX_BYTES: Final = 130
"""Bytes of an object in one more index, as measured by tracemalloc."""

_ORDER_BYTES: Final = 115
"""Bytes of an object in the order of changes, as measured by tracemalloc."""

_AT_ONCE: Final = 16
"""Objects that are compressed before another store is looked for."""

_OFTEN: Final = 2
"""Reads of a compressed body within a second after which it is unpacked."""


class MemoryLimiter:
    """Limiter of the memory that the stores of one factory take.

    Args:
        budget: Budget of the factory.

    Attributes:
        held: Bytes that the stores take.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self.held: int = 0
        self._budget = budget
        # Bytes; for a share, infinite until `run()` has read the memory of the machine.
        self._limit = math.inf if budget.is_share else budget.read()
        self._stores: list[BudgetedStore] = []
        self._needed = asyncio.Event()
        # True while each new body is compressed at once.
        self._packs = False
        # True while lists are stored as differences from the stored objects.
        self._differs = False
        # Bytes after the last measures beyond compression; 0 if there were none.
        self._measured = 0
        self._over = False
        self._drops = False

    def __repr__(self) -> str:
        return f"<MemoryLimiter {self.status()}>"

    def status(self) -> MemoryStatus:
        """Return the state. May be called from any thread."""
        counts = [store.count for store in tuple(self._stores)]
        return MemoryStatus(
            limit=0 if math.isinf(self._limit) else int(self._limit),
            held=self.held,
            objects=sum(it.objects for it in counts),
            compressed=sum(it.compressed for it in counts),
            differences=sum(it.differences for it in counts),
            managed_fields_dropped=self._drops,
            over=self._over,
        )

    # ------------------------------------------------------------ stores

    def join(self, store: BudgetedStore) -> None:
        """Count a store from now on."""
        self._stores.append(store)
        store.compressor.strips = self._drops
        store.compressor.on = self._packs or store.compressor.always
        store.compressor.differs = self._differs

    def leave(self, store: BudgetedStore) -> None:
        """Count a store no more."""
        self._stores.remove(store)
        self.held -= store.reported
        store.reported = 0

    def changed(self, by: int) -> None:
        """Record that a store takes so many bytes more, or less if that is negative."""
        self.held += by
        if self.held > self._limit * _FULL:
            self.pack_new(on=True)
            self._shorten_lists(on=True)
        elif self.held <= self._limit * _LOW:
            self.pack_new(on=False)
            self._shorten_lists(on=False)

        if self.is_short:
            self._needed.set()

    def pack_new(self, *, on: bool) -> None:
        """Compress new bodies at once, or not; always once managed fields are dropped."""
        on = on or self._drops
        if on is not self._packs:
            self._packs = on
            for store in self._stores:
                store.compressor.on = on or store.compressor.always

    def _shorten_lists(self, *, on: bool) -> None:
        """Store what is listed from now on as differences from stored bodies, or not."""
        if on is not self._differs:
            self._differs = on
            for store in self._stores:
                store.compressor.differs = on

    @property
    def is_short(self) -> bool:
        """True while the stores should become smaller."""
        return self.held > self._limit * _HIGH

    @property
    def _exceeded(self) -> bool:
        """True while the stores alone take too much, without lists being received."""
        staged = sum(store.staged for store in self._stores)
        return self.held - staged > self._limit

    def _is_unsettled(self) -> bool:
        """Return True while stores are replaced, or have bodies of two lists."""
        return any(store.busy or store.differences for store in self._stores)

    # ------------------------------------------------------------ measures

    async def run(self) -> NoReturn:
        """Keep the stores within the budget, until cancelled.

        Cancellation:
            Leaves them as they are.
        """
        if math.isinf(self._limit):
            self._limit = await in_thread(self._budget.read)
            self.changed(0)

        while True:
            await self._wait()
            self._needed.clear()
            await self._pack_differences()
            if self.is_short:
                await self._compress()
                if self._exceeded:
                    await self._reduce_further()
            else:
                await self._unpack()

            self._note()

    async def _wait(self) -> None:
        """Wait until the stores should become smaller, or for a second.

        That is the time between two looks at what was read, if bodies are compressed.
        """
        idle = not self.is_short and not any(it.count.compressed for it in self._stores)
        try:
            async with asyncio.timeout(None if idle else 1):
                await self._needed.wait()
        except TimeoutError:
            pass

    def replaced(self) -> None:
        """Record that a list has replaced objects, from which it may have differences."""
        self._needed.set()

    async def _pack_differences(self) -> None:
        """Compress the bodies that are differences from those of a former list."""
        budget = LoopBudget.current()
        await budget.start()
        for store in list(self._stores):
            while store.differences and not store.busy:
                keys = list(store.differences.pop())
                while keys and not store.busy:
                    store.pack_difference(keys.pop())
                    if budget.over():
                        await budget.start()

                if keys:
                    store.differences.append(tuple(keys))

        budget.end()

    async def _compress(self) -> None:
        """Compress the bodies that were not changed for the longest time."""
        enough = self._limit * _LOW
        budget = LoopBudget.current()
        await budget.start()
        while self.held > enough and (store := self._coldest()) is not None:
            if store.compressor.waits:
                budget.end()
                await store.compressor.begin(store.samples())
                await budget.start()

            for _ in range(_AT_ONCE):
                store.compress_coldest()
                if budget.over():
                    await budget.start()

        budget.end()

    def _coldest(self) -> BudgetedStore | None:
        """Return the store with the body that was not changed for the longest time."""
        stores = [it for it in self._stores if it.count.plain and not it.busy]
        return min(stores, key=BudgetedStore.coldest, default=None)

    async def _reduce_further(self) -> None:
        """Take the measures that cost more than compression, one after the other."""
        if self.held < self._measured * _GROWTH:
            return  # they were taken, and it has hardly grown since

        if self._is_unsettled():
            return  # the list that is received may have fewer objects

        for store in list(self._stores):
            if await store.train_again():
                await self._repack(store)

        if self._is_unsettled():
            return  # a list was received meanwhile

        if self._exceeded and self._budget.drop_managed_fields:
            if not self._drops:
                logger.warning(
                    "memory budget: dropping managed fields (%s)", self.status()
                )

            self._drops = True
            for store in [it for it in self._stores if not it.compressor.strips]:
                store.compressor.strips = True
                await self._repack(store)

        if not self._is_unsettled():
            self._measured = self.held

    async def _repack(self, store: BudgetedStore) -> None:
        """Compress all bodies of a store again."""
        budget = LoopBudget.current()
        await budget.start()
        for key in store.all_keys():
            store.repack(key)
            if budget.over():
                await budget.start()

        budget.end()

    async def _unpack(self) -> None:
        """Unpack compressed bodies that are read often, while there is room."""
        room = self._limit * _ROOM
        budget = LoopBudget.current()
        await budget.start()
        for store in list(self._stores):
            for key in store.often_read():
                if self.held > room:
                    break

                store.unpack(key)
                if budget.over():
                    await budget.start()

        budget.end()

    def _note(self) -> None:
        """Note whether the stores take too much, and log it if that has changed."""
        if any(store.differences for store in self._stores):
            return  # it is not known yet

        over = self._exceeded
        if self.held <= self._limit * _LOW:
            self._measured = 0

        if over is self._over:
            return

        self._over = over
        if over:
            logger.warning(
                "memory budget exceeded: all bodies are compressed, and all objects "
                "stay (%s). Raise the budget, or select fewer objects or fields",
                self.status(),
            )
        else:
            logger.info("memory budget: within the limit again (%s)", self.status())


class BudgetedStore:
    """Objects of one pipeline, as a `MemoryLimiter` sees them.

    Args:
        limiter: Limiter of the factory.
        indexer: Store that has them, perhaps with others.
        compressor: Compressor of the store.
        count: Count of their bytes, with their order.
        stored: Function that returns them, by key.
        changing: Function that returns True while the store is being replaced.

    Attributes:
        reported: Bytes that the limiter knows of.
        staged: Bytes of the list that is being received.
        differences: Keys of objects whose bodies may be differences from those of a
            former list, some together.
    """

    def __init__(
        self,
        limiter: MemoryLimiter,
        indexer: Indexer[KubeObject],
        compressor: BodyCompressor,
        count: StoredBytes,
        stored: Callable[[], Mapping[str, KubeObject]],
        changing: Callable[[], bool],
    ) -> None:
        self.compressor = compressor
        self.count = count
        self.reported: int = 0
        self.staged: int = 0
        self.differences: list[tuple[str, ...]] = []
        self._limiter = limiter
        self._indexer = indexer
        self._stored = stored
        self._changing = changing
        self._left = False

    @property
    def busy(self) -> bool:
        """True while no object can be replaced, as the store is counted or replaced.

        Also after its pipeline has ended.
        """
        return self._left or self.count.counting or self._changing()

    def join(self) -> None:
        """Begin to count."""
        self._limiter.join(self)
        self.settle()

    def leave(self) -> None:
        """End counting, as the pipeline has ended."""
        self._left = True
        self._limiter.leave(self)

    def settle(self) -> None:
        """Tell the limiter what has changed."""
        indexes = _INDEX_BYTES * (len(self._indexer.contents.indexes) - 1)
        count = self.count
        now = count.held + count.objects * (OBJECT_BYTES + indexes) + self.staged
        now += _ORDER_BYTES * len(count.plain or ())
        if by := now - self.reported:
            self.reported = now
            self._limiter.changed(by)

    def received(self, staged: int) -> None:
        """Record the bytes of the list that is being received.

        If there is no room for them, its bodies are compressed from then on.
        """
        self.staged = staged
        self.settle()
        if staged and self._limiter.is_short:
            self._limiter.pack_new(on=True)

    def replaced(self, differences: list[tuple[str, ...]]) -> None:
        """Record that a list has replaced the objects.

        Args:
            differences: Keys of those whose bodies are differences.
        """
        if differences:
            self.differences += differences
            self._limiter.replaced()

    # ------------------------------------------------------------ bodies

    def coldest(self) -> float:
        """Return the time of the change that is the longest ago."""
        plain = self.count.plain
        return next(iter(plain.values())) if plain else math.inf

    def samples(self) -> list[KubeObject]:
        """Return objects from all parts of the store, as many as a training needs."""
        stored = self._stored()
        return list(islice(stored.values(), 0, None, max(1, len(stored) // SAMPLES)))

    async def train_again(self) -> bool:
        """Train another dictionary, and return True if it is better than the last one."""
        try:
            return await self.compressor.train_again(self.samples())
        except InternalError:
            return False  # who reads the damaged body gets the error

    def all_keys(self) -> list[str]:
        """Return the keys of all objects."""
        return list(self._stored())

    def compress_coldest(self) -> None:
        """Compress the body that was not changed for the longest time."""
        plain = self.count.plain
        if plain and not self.busy:
            key, _ = plain.popitem(last=False)  # also if it cannot become smaller
            obj = self._stored().get(key)
            if obj is not None:
                self._replace(key, self.compressor.pack(obj))

    def pack_difference(self, key: str) -> None:
        """Compress a body, if it is a difference."""
        obj = self._stored().get(key)
        if obj is not None and isinstance(obj.context, DifferenceContext):
            self.repack(key)

    def repack(self, key: str) -> None:
        """Compress a body again, with the newest dictionary."""
        obj = self._plain(key)
        if obj is not None:
            self._replace(key, self.compressor.pack(obj))

    def unpack(self, key: str) -> None:
        """Store a body as it is."""
        obj = self._plain(key)
        if obj is not None:
            self._replace(key, obj)

    def often_read(self) -> list[str]:
        """Return the keys of compressed bodies that were read often since the last call."""
        reads = self.compressor.reads
        if reads is None:
            return []

        times = Counter(reads.popleft() for _ in range(len(reads)))
        return [key for key, number in times.items() if number >= _OFTEN]

    def _plain(self, key: str) -> KubeObject | None:
        """Return a stored object with its JSON; None if it is gone or unreadable."""
        obj = self._stored().get(key)
        if obj is None or self.busy:
            return None

        try:
            return uncompressed(obj)
        except InternalError:
            return None  # who reads the damaged body gets the error

    def _replace(self, key: str, new: KubeObject) -> None:
        contents, old = self._indexer.contents, self._stored()[key]
        if new is not old:
            with contents.step():
                contents.keep(key, new, contents)

            self.count.changed(old, new)
            self.settle()
