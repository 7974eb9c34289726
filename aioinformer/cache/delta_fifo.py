"""`DeltaFIFO`: changes of objects, by key, on their way from the reflector to the store.

Whatever waits for one key is handed out together, in the order it came; keys take their
place in line with their first waiting change and keep it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar, cast

from aioinformer.cache.change_queue import ChangeQueue
from aioinformer.cache.deltas import (
    DeletedFinalStateUnknown,
    Delta,
    Deltas,
    DeltaType,
    Replacement,
)
from aioinformer.metrics import NULL_SINK
from aioinformer.model.keys import meta_namespace_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aioinformer.cache.queue import KnownObjects
    from aioinformer.metrics import MetricsSink

__all__ = ["DeltaFIFO"]

T = TypeVar("T")


class DeltaFIFO(ChangeQueue[T, Deltas[T] | Replacement[T]]):
    """Changes of objects, by key, waiting for the store.

    A list gets in by objects, with `replace`, as in client-go's DeltaFIFO, or whole,
    with `replace_all`: then what was queued before it is handed out before it, what
    comes later after it, and never together.

    Two deletions of one key in a row become one, the one that knows more of the object.

    All methods that change it are plain, and wake whoever waits; it belongs to one
    event loop. They raise `NoKey` for an object without a key, and `WrongLoop` while
    somebody waits in another loop or thread; then nothing has changed.

    Args:
        key_func: The key of an object; `"namespace/name"` of its metadata if left out.
        known_objects: What the consumer has, such as its store; only read. It tells
            which objects a list or a deletion is the end of, and what to resync.
        transformer: Called once with each object that gets in by itself, except with
            tombstones and resyncs; what it returns is queued. If it fails, nothing is.
        emit_replaced: Whether objects of a list come as REPLACED or, as if they were
            resynced, as SYNC.
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
        emit_replaced: bool = True,
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
        self._emit_replaced = emit_replaced

        # Invariants: the keys between two replacements in the queue are the keys of one
        # segment, each once. There is one segment more than replacements.
        self._queue: deque[str | Replacement[T]] = deque()
        self._segments: deque[dict[str, Delta[Any]]] = deque([{}])

    def __len__(self) -> int:
        return len(self._queue)

    # ------------------------------------------------------------ state changes

    def delete(self, obj: T | DeletedFinalStateUnknown[T]) -> None:
        """Queue that an object is gone.

        Of an object that is neither queued nor known, nothing is: there is nobody to be
        told. (Without known objects, as in client-go, the queue alone decides.)

        Args:
            obj: Its last state, or what stands for it.
        """
        self._check_loop()
        key = self.key_of(obj)
        if key in self._segments[-1] or self._known.has(key):
            self._change(DeltaType.DELETED, obj)
        else:
            self._initial = self._initial or 0

    def replace(self, objects: Iterable[T], resource_version: str = "") -> None:
        """Queue each object of a complete list, and the end of all that it has not.

        The objects come first, then the ends: of what is queued, with the state queued
        last, and of what is known, with the known state.

        Args:
            objects: All there is; one that comes twice is queued twice.
            resource_version: The version of the list.
        """
        self._check_loop()
        kind = DeltaType.REPLACED if self._emit_replaced else DeltaType.SYNC
        listed = self._listed(objects, kind)
        ends = list(self._ends({key for key, _ in listed}, self._segments[-1]))
        for key, delta in (*listed, *ends):
            self._put(key, delta)

        if resource_version:
            self._mark(resource_version)

        self._list_is_in()
        self._wake()

    def resync(self) -> None:
        """Queue each known object again for whose key nothing waits.

        Without known objects that is nothing. It takes about a microsecond for each, in
        one go.
        """
        self._resync_known()

    def take(self) -> Delta[T] | Replacement[T]:
        """As `pop_nowait`, but of the changes of a key only the newest.

        It has the others with it: see `Delta.older`. For a consumer that feeds batches
        and whole lists, in which there are no tombstones.
        """
        if not self._queue:
            self._check_filled()

        self._popped += 1
        entry = self._queue.popleft()
        if isinstance(entry, str):
            return self._segments[0].pop(entry)

        self._segments.popleft()
        if entry.contents is self._known.listed:
            self._known.listed = None

        return entry

    def newest(self, key: str) -> Delta[T] | None:
        """The newest change that waits for `key`, if it came behind any whole list."""
        return self._segments[-1].get(key)

    # ------------------------------------------------------------ helpers

    def _put(self, key: str, delta: Delta[Any]) -> None:
        waiting = self._segments[-1]
        before = waiting.get(key)
        if before is None:
            delta.older = None
            self._queue.append(key)
            self._queued += 1
        elif before.type is DeltaType.DELETED and delta.type is DeltaType.DELETED:
            # The first knows more, unless it does not know the final state.
            if type(before.object) is not DeletedFinalStateUnknown:
                return

            if _knows_nothing(delta.object):
                return

            delta.older = before.older
        else:
            # One list goes from the newest to the next newest: were it a chain, freeing
            # a long one would overflow the stack of the interpreter.
            older, before.older = before.older or [], None
            older.append(before)
            delta.older = older

        waiting[key] = delta

    def _put_whole(self, entry: Replacement[T]) -> None:
        self._queue.append(entry)
        self._segments.append({})
        self._queued += 1

    def _head_key(self) -> str | None:
        head = self._queue[0]
        return head if isinstance(head, str) else None

    def _take_first(self) -> Deltas[T] | Replacement[T]:
        entry = self.take()
        self._popped -= 1
        if isinstance(entry, Replacement):
            return entry

        deltas: list[Delta[Any]] = entry.oldest_first()
        entry.older = None
        return deltas

    def _put_back(
        self, entries: Mapping[str | None, Deltas[T] | Replacement[T]]
    ) -> None:
        for key, entry in entries.items():
            if isinstance(entry, Replacement):
                # In front: all that waits is newer, and of other objects too.
                self._queue.appendleft(entry)
                self._segments.appendleft({})
                self._known.listed = self._known.listed or entry.contents
                return  # it came alone

            if len(self._segments) == 1 and key not in self._segments[0]:
                self._put(cast("str", key), entry[-1])
                entry[-1].older = entry[:-1] or None

        # They keep their place no more, as other keys should not wait for theirs.
        self._hold_back()
        self._finish(entries)


def _knows_nothing(last: object) -> bool:
    return isinstance(last, DeletedFinalStateUnknown) and last.obj is None
