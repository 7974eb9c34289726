"""`FIFO`: the newest state of each object, in the order in which they were first queued.

The oldest of client-go's queues: it tells what is, not what happened. Deletions are not
handed out, they only take an object out of the line.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from aioinformer._condition import LoopCondition
from aioinformer.cache.queue import process_entries
from aioinformer.errors import QueueShutDown
from aioinformer.metrics import NULL_SINK, GuardedSink
from aioinformer.model.keys import key_of, meta_namespace_key

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterable, Mapping

    from aioinformer.metrics import MetricsSink

__all__ = ["FIFO"]

T = TypeVar("T")


class FIFO(Generic[T]):
    """Objects that wait to be processed, each once and in its newest state.

    It can be read and written like a `Store` of what waits; popped objects are in it no
    more. Unlike a store it belongs to one event loop, also for reading.

    All methods that change it are plain, and wake whoever waits. They raise `NoKey` for
    an object without a key, and `WrongLoop` while somebody waits in another loop or
    thread; then nothing has changed.

    Args:
        key_func: The key of an object; `"namespace/name"` of its metadata if left out.
        name: Names it in log, metrics and `repr()`.
        metrics: Takes `informer_queued_items`, a gauge, and for what `pop` processes
            `informer_processing_latency_seconds`; both with the label `name`.
    """

    def __init__(
        self,
        *,
        key_func: Callable[[T], str] = meta_namespace_key,
        name: str = "",
        metrics: MetricsSink = NULL_SINK,
    ) -> None:
        self.name = name
        self._metrics = GuardedSink(metrics, name, name=name)
        self._condition = LoopCondition(f"FIFO {name}".rstrip())
        self._closed = False
        self.key_func = key_func

        # The line; an object that changes stays where it is.
        self._objects: OrderedDict[str, T] = OrderedDict()

        # Of the first list, the keys that were neither processed nor deleted; None
        # before anything came.
        self._initial: set[str] | None = None

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        name = f"{self.name} " if self.name else ""
        return f"<FIFO {name}{state} waiting={len(self)}>"

    @property
    def closed(self) -> bool:
        """True after `close()`. Queued objects can still be popped."""
        return self._closed

    @property
    def has_synced(self) -> bool:
        """True when all of the first list was processed, or an object came before it."""
        return self._initial is not None and not self._initial

    # ------------------------------------------------------------ reads

    def get_by_key(self, key: str) -> T | None:
        """The object that waits under `key`, or None."""
        return self._objects.get(key)

    def get(self, obj: T) -> T | None:
        """The object that waits with the key of `obj`, or None."""
        return self._objects.get(key_of(obj, self.key_func))

    def list(self) -> builtins.list[T]:
        """All objects that wait, in their order, in a fresh list."""
        return [*self._objects.values()]

    def list_keys(self) -> builtins.list[str]:
        """The keys of all objects that wait, in their order, in a fresh list."""
        return [*self._objects]

    # ------------------------------------------------------------ state changes

    def add(self, obj: T) -> None:
        """Queue an object, or put it in the place of the one with its key."""
        self._condition.check_loop()
        self._objects[key_of(obj, self.key_func)] = obj
        self._begin()
        self._notify()

    update = add

    def delete(self, obj: T) -> None:
        """Take the object with the key of `obj` out of the line, if it is there.

        If it comes again, it stands at the end. (In client-go it finds its old place.)
        """
        self._condition.check_loop()
        key = key_of(obj, self.key_func)
        self._objects.pop(key, None)
        self._begin().discard(key)
        self._notify()

    def replace(self, objects: Iterable[T], resource_version: str = "") -> None:
        """Put `objects` in the place of everything; of those with one key the last.

        Args:
            objects: All there is, in the order in which they are to come.
            resource_version: Takes no part here; stores and queues are given it.
        """
        self._condition.check_loop()
        key_func = self.key_func
        self._objects = OrderedDict((key_of(obj, key_func), obj) for obj in objects)
        if self._initial is None:
            self._initial = set(self._objects)
        else:
            self._initial &= self._objects.keys()

        self._notify()

    def resync(self) -> None:
        """Do nothing: whatever is here stands in line already."""

    async def close(self) -> None:
        """End all waits; queued objects can still be popped. Idempotent.

        Cancellation:
            Safe: it does not suspend.
        """
        self._condition.check_loop()
        self._closed = True
        self._notify()

    # ------------------------------------------------------------ popping

    def pop_nowait(self) -> T:
        """Pop the next object.

        Raises:
            asyncio.QueueEmpty: If there is none.
            QueueShutDown: If there is none, and the queue is closed.
        """
        if not self._objects:
            raise QueueShutDown("closed") if self._closed else asyncio.QueueEmpty

        key, obj = self._objects.popitem(last=False)
        self._done((key,))
        self._measure_depth()
        return obj

    async def pop(self, process: Callable[[T, bool], None]) -> None:
        """Wait for the next object, pop it and call `process`; see `DeltaFIFO.pop`.

        Cancellation:
            Safe: nothing was popped, or the object was processed.
        """
        await self._condition.wait_for(lambda: self._closed or self._objects)
        if not self._objects:
            raise QueueShutDown("closed")

        initial = not self.has_synced
        key, obj = self._objects.popitem(last=False)
        await process_entries(
            {key: obj},
            lambda: process(obj, initial),
            queue=self,
            name=self.name or "FIFO",
            metrics=self._metrics,
            done=self._done,
            put_back=self._put_back,
        )

    # ------------------------------------------------------------ helpers

    def _begin(self) -> set[str]:
        if self._initial is None:
            self._initial = set()

        return self._initial

    def _done(self, keys: Iterable[str | None]) -> None:
        self._begin().difference_update(keys)

    def _put_back(self, entries: Mapping[str | None, T]) -> None:
        for key, obj in entries.items():
            self._objects.setdefault(cast("str", key), obj)

    def _notify(self) -> None:
        self._condition.notify_all()
        self._measure_depth()

    def _measure_depth(self) -> None:
        self._metrics.gauge("informer_queued_items", len(self._objects))
