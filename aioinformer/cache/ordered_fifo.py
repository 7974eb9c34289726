"""`OrderedFIFO`: all changes in the order in which they came, one entry for each.

client-go calls it RealFIFO. A consumer sees every state of every object, in the one
order in which the reflector saw them, also across objects.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from aioinformer.cache.change_queue import ChangeQueue
from aioinformer.cache.deltas import (
    DeletedFinalStateUnknown,
    Delta,
    Deltas,
    DeltaType,
    Replacement,
    ResyncAll,
)
from aioinformer.cache.store import Store
from aioinformer.metrics import NULL_SINK
from aioinformer.model.keys import meta_namespace_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aioinformer.cache.queue import KnownObjects
    from aioinformer.metrics import MetricsSink

__all__ = ["OrderedFIFO"]

T = TypeVar("T")
_Taken = Delta[T] | Replacement[T] | ResyncAll


class OrderedFIFO(ChangeQueue[T, Deltas[T] | Replacement[T] | ResyncAll]):
    """Changes of objects in the order they came, waiting for the store.

    Nothing is merged, and each deletion is queued, known or not. A list is one entry
    and a resync is one entry: the consumer, which has the store, compares and repeats
    by itself. With `known_objects` both come by objects instead, as if each had been
    queued alone. (In client-go these are two modes, with options that exclude each
    other; here there is just the one argument, and nothing that does not fit.)

    There is no bound and no back-pressure: a reflector that waited for room would not
    read its watch, which the server then ends. (client-go's holds its lock while 2000
    or more wait; here nobody holds one.)

    All methods that change it are plain, and wake whoever waits; it belongs to one
    event loop. They raise `NoKey` for an object without a key, and `WrongLoop` while
    somebody waits in another loop or thread; then nothing has changed.

    Args:
        key_func: The key of an object; `"namespace/name"` of its metadata if left out.
        known_objects: What the consumer has, such as its store; only read. None where
            lists and resyncs are to be one entry.
        transformer: Called once with each object that gets in, except with tombstones,
            resyncs and contents of `replace_all`; what it returns is queued. If it
            fails, nothing is.
        name: Names it in log, metrics and `repr()`.
        metrics: Takes `informer_queued_items`, a gauge, and for what `pop` processes
            `informer_processing_latency_seconds`; both with the label `name`.

    Raises:
        OptionsError: The transformer is no plain function.
    """

    def __init__(
        self,
        *,
        key_func: Callable[[T], str] = meta_namespace_key,
        known_objects: KnownObjects[T] | None = None,
        transformer: Callable[[T], T] | None = None,
        name: str = "",
        metrics: MetricsSink = NULL_SINK,
    ) -> None:
        super().__init__(
            key_func=key_func,
            known_objects=known_objects,
            transformer=transformer,
            name=name,
            metrics=metrics,
        )

        # Invariants: an entry without a key is about all objects. In `_newest` are the
        # keys that wait behind the last list, each with its newest change.
        self._queue: deque[tuple[str | None, _Taken[T]]] = deque()
        self._newest: dict[str, Delta[Any]] = {}

    def __len__(self) -> int:
        return len(self._queue)

    # ------------------------------------------------------------ state changes

    def delete(self, obj: T | DeletedFinalStateUnknown[T]) -> None:
        """Queue that an object is gone, known or not.

        Args:
            obj: Its last state, or what stands for it.
        """
        self._change(DeltaType.DELETED, obj)

    def replace(self, objects: Iterable[T], resource_version: str = "") -> None:
        """Queue a complete list: as one entry, or by objects with known objects.

        By objects, the ends of what is queued or known and not listed come first, then
        the objects in their order.

        Args:
            objects: All there is. In one entry, of several with one key the last wins.
            resource_version: The version of the list.
        """
        self._check_loop()
        listed = self._listed(objects, DeltaType.REPLACED)
        if self._known.objects is None:
            contents = Store[T](key_func=self._key_func).replacement()
            for key, delta in listed:
                contents.put(key, delta.object)

            self.replace_all(contents, resource_version)
            return

        ends = list(self._ends({key for key, _ in listed}, self._waiting()))
        for key, delta in (*ends, *listed):
            self._put(key, delta)

        if resource_version:
            self._mark(resource_version)

        self._list_is_in()
        self._wake()

    def resync(self) -> None:
        """Queue one entry that asks for everything to be told again.

        With known objects, queue each of those for whose key nothing waits instead:
        about a microsecond for each, in one go.
        """
        if self._known.objects is not None:
            self._resync_known()
            return

        self._check_loop()
        self._queue.append((None, ResyncAll()))
        self._queued += 1
        self._wake()

    def take(self) -> Delta[T] | Replacement[T] | ResyncAll:
        """As `pop_nowait`, but a change comes by itself, without a list around it.

        For a consumer that feeds batches and whole lists, in which there are no
        tombstones.
        """
        if not self._queue:
            self._check_filled()

        self._popped += 1
        key, entry = self._queue.popleft()
        if key is not None:
            if self._newest.get(key) is entry:
                del self._newest[key]

        elif isinstance(entry, Replacement) and entry.contents is self._known.listed:
            self._known.listed = None

        return entry

    def newest(self, key: str) -> Delta[T] | None:
        """The newest change that waits for `key`, if it came behind any whole list."""
        return self._newest.get(key)

    # ------------------------------------------------------------ helpers

    def _put(self, key: str, delta: Delta[Any]) -> None:
        delta.older = None
        self._queue.append((key, delta))
        self._newest[key] = delta
        self._queued += 1

    def _put_whole(self, entry: Replacement[T]) -> None:
        self._queue.append((None, entry))
        self._newest = {}
        self._queued += 1

    def _head_key(self) -> str | None:
        return self._queue[0][0]

    def _take_first(self) -> Deltas[T] | Replacement[T] | ResyncAll:
        entry: Any = self.take()
        self._popped -= 1
        return [entry] if isinstance(entry, Delta) else entry

    def _put_back(
        self, entries: Mapping[str | None, Deltas[T] | Replacement[T] | ResyncAll]
    ) -> None:
        # In front, for the sake of the order: whatever waits is newer.
        for key, entry in reversed([*entries.items()]):
            taken: Any = entry[0] if isinstance(entry, list) else entry
            self._queue.appendleft((key, taken))
            if isinstance(taken, Replacement):
                self._known.listed = self._known.listed or taken.contents
            elif key is not None and self._known.listed is None:
                self._newest.setdefault(key, taken)

    def _waiting(self) -> dict[str, Delta[Any]]:
        """The newest change of each key behind the last list, by first appearance."""
        waiting: dict[str, Any] = {}
        for key, entry in self._queue:
            if key is None:
                waiting = {}  # a list: by objects, there is no other entry without one
            else:
                waiting[key] = entry

        return waiting
