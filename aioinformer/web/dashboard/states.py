"""`StateHistory`: the states of objects that were replaced, and the rates of changes.

It keeps references to objects that informers have received anyway, in the steps that
change their stores. A change costs about a microsecond, an object of a first list
nothing.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import msgspec

from aioinformer.errors import InformerStopped
from aioinformer.informer.handlers.inbox import Relisted, Snapshot
from aioinformer.informer.notifications import Added, Deleted, Updated
from aioinformer.model.objects import KubeObject
from aioinformer.web.dashboard.step_counts import StepCounts

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.informer.handlers.inbox import Batch
    from aioinformer.informer.notifications import Notification
    from aioinformer.informer.shared_informer import SharedInformer

__all__ = [
    "MAX_BYTES",
    "RECORD_BYTES",
    "STATE_BYTES",
    "Change",
    "Details",
    "ShownState",
    "StateHistory",
    "Timeline",
]

MAX_BYTES: Final = 32 * 1024 * 1024
"""Default limit of all histories together."""

STATE_BYTES: Final = 650
"""Bytes of a kept state without its body, as measured by tracemalloc: the object with
its uid and version, and its place in the histories."""

RECORD_BYTES: Final = 400
"""Bytes of the history of one object without its states, measured likewise."""

# Changes of relists that are recorded in one turn of the loop: half a millisecond.
_CHANGES_AT_ONCE: Final = 512

Change: TypeAlias = Literal["listed", "added", "updated", "deleted"]
"""Kind of change by which a state became known.

A state with `"listed"` was found in a list. With a time, that was a relist: the state may
be older, and states before it may have been missed.
"""


class Details(NamedTuple):
    """Details of a state, computed when somebody first looks at it."""

    size: int
    """Bytes of the JSON."""
    paths: list[str]
    """Paths that differ from the state before, up to a limit."""
    more: int
    """Number of further paths; -1 if there was too much to compare."""


class _State(msgspec.Struct, gc=False, eq=False):
    """One state of an object. Nothing in it refers back to it, so there are no cycles."""

    obj: KubeObject | None
    """The object; None for a current state of which only the store has the body."""
    time: float | None
    change: Change
    details: Details | None = None

    @property
    def bytes(self) -> int:
        size = STATE_BYTES
        if self.obj is not None:
            size += len(self.obj.body)

        if self.details is not None:
            size += sum(map(len, self.details.paths))

        return size


class _Record:
    """Kept states of one key, by their numbers, which have no gaps."""

    __slots__ = ("feed", "first", "key", "last", "states")

    def __init__(self, feed: _Feed, key: str) -> None:
        self.feed = feed
        self.key = key
        # All states before the first kept one are forgotten.
        self.first = 1
        self.last = 0
        self.states: dict[int, _State] = {}


class ShownState(NamedTuple):
    """One state of an object."""

    number: int
    """Number of the state, from 1. The states of a key count on when it is created
    again."""
    time: float | None
    """Time at which it became current, in seconds since 1970; None if unknown."""
    change: Change
    """Kind of change by which it became known."""
    obj: KubeObject
    """The object. For a deletion, its final state."""
    details: Details | None
    """Details that were kept with it."""


class Timeline(NamedTuple):
    """States of one key."""

    states: list[ShownState]
    """Last states, the oldest first. Unless the object was deleted, the last one is the
    current one."""
    earlier: int
    """Number of kept states before these."""
    forgotten: int
    """Number of states that are not kept any more."""


class _Feed:
    """Histories of the objects of one informer; its `Observer`."""

    def __init__(self, history: StateHistory) -> None:
        self._history = history
        self.records: dict[str, _Record] = {}
        """Histories by key, of the objects that have kept states."""
        self.watchers: dict[str, list[Callable[[], object]]] = {}
        """Functions to call after a change, by key."""
        self.counts: StepCounts = StepCounts()
        self.remove: Callable[[], None] = lambda: None

    def put(self, batch: Batch) -> None:
        """Receive changes; see `Observer`."""
        if isinstance(batch, Snapshot) and batch.initial:
            return

        now = asyncio.get_running_loop().time()
        self.counts.add(now, len(batch))
        if not isinstance(batch, Snapshot):
            self._history.receive(self, batch)

    def notify(self, event: Notification) -> None:
        """Receive one notification, as a handler."""
        if not (isinstance(event, Added) and event.initial):
            self.put([event])

    def mark_synced(self) -> None:
        """Receive that the first list is complete; see `Observer`."""

    def state_changed(self) -> None:
        """Receive a change of the phase; see `Observer`."""


class StateHistory:
    """Earlier states of the objects of informers, and the rates of their changes.

    A state that was replaced is kept with the time at which it became current. All
    histories together are bounded: the oldest states are forgotten first, whatever
    object they are of. The current state of an object is in the store. When it is the
    oldest one, only its body is dropped: its time, and the number of states that were
    forgotten before it, are kept until it is the oldest one again. Nothing is left of a
    deleted object whose states are forgotten.

    Objects of a list into an empty store have no history before they change.

    It belongs to the informers' event loop, and is synchronous. The changes of a relist
    are recorded in the next turns of the loop, as there may be many.

    Args:
        max_bytes: Maximum bytes of all histories together: bodies as stored, and an
            estimate of the rest.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._feeds: dict[SharedInformer, _Feed] = {}
        # All kept states, those that became current first, first.
        self._order: OrderedDict[_State, _Record] = OrderedDict()
        # Changes that wait to be recorded, with their times.
        self._late: deque[tuple[_Feed, float, Batch]] = deque()
        self._handle: asyncio.Handle | None = None
        self.bytes: int = 0
        """Bytes of all histories."""

    def __repr__(self) -> str:
        return f"<StateHistory states={len(self)} bytes={self.bytes}>"

    def __len__(self) -> int:
        """Return the number of kept states."""
        return len(self._order)

    # ------------------------------------------------------------ informers

    def follow(self, informer: SharedInformer) -> None:
        """Begin to keep the states of an informer. Idempotent.

        Informers that have ended are ignored.

        Raises:
            WrongLoop: If the informer belongs to another event loop.
        """
        if informer in self._feeds:
            return

        feed = _Feed(self)
        with suppress(InformerStopped):
            if informer.status.cache is None:
                feed.remove = informer.observe(feed)
            else:
                feed.remove = informer.add_event_handler(
                    on_event=feed.notify, name="dashboard", resync_period=0
                ).remove

            self._feeds[informer] = feed

    def forget(self, informer: SharedInformer) -> None:
        """End to follow an informer, and forget its objects. Idempotent.

        It takes about a microsecond for each of its states.
        """
        feed = self._feeds.pop(informer, None)
        if feed is None:
            return

        feed.remove()
        self._late = deque(it for it in self._late if it[0] is not feed)
        for record in feed.records.values():
            self.bytes -= RECORD_BYTES
            for state in record.states.values():
                self.bytes -= state.bytes
                del self._order[state]

        feed.records.clear()

    def close(self) -> None:
        """Forget everything, and remove all observers and handlers. Idempotent."""
        for informer in list(self._feeds):
            self.forget(informer)

        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    # ------------------------------------------------------------ reads

    def rates(self, informer: SharedInformer, now: float) -> list[float]:
        """Return the changes per second in the last 60 complete steps of 5 s.

        Objects of first lists do not count.

        Args:
            informer: The informer.
            now: Time on the loop's clock.

        Returns:
            Rates, the oldest first.
        """
        return self._counts_of(informer).rates(now)

    def per_second(self, informer: SharedInformer, now: float) -> float:
        """Return the changes per second in the last five to ten seconds.

        Args:
            informer: The informer.
            now: Time on the loop's clock.
        """
        return self._counts_of(informer).rate(now)

    def _counts_of(self, informer: SharedInformer) -> StepCounts:
        feed = self._feeds.get(informer)
        return StepCounts() if feed is None else feed.counts

    def timeline(
        self, informer: SharedInformer, key: str, limit: int | None = None
    ) -> Timeline:
        """Return the states of an object, with its current one from the store.

        Args:
            informer: The informer.
            key: Key of the object.
            limit: Number of kept states to return; None for all.

        Raises:
            InformerStopped: If the informer has ended, and its store is on disk.
            CacheError: If its store on disk is damaged.
        """
        current = informer.indexer.get_by_key(key)
        record = self._record_of(informer, key)
        kept: dict[int, _State] = {}
        oldest, last = 1, 0
        if record is not None:
            kept, oldest, last = record.states, record.first, record.last

        first = oldest if limit is None else max(oldest, last + 1 - limit)
        states: list[ShownState] = []
        for number in range(first, last + 1):
            it = kept[number]
            obj = current if it.obj is None else it.obj
            if obj is not None:
                states.append(ShownState(number, it.time, it.change, obj, it.details))

        if current is not None and not _is_last(current, states):
            states.append(ShownState(last + 1, None, "listed", current, None))

        return Timeline(states, first - oldest, oldest - 1)

    def state(
        self, informer: SharedInformer, key: str, number: int
    ) -> KubeObject | None:
        """Return one state of an object; None if it is not kept.

        Raises:
            InformerStopped, CacheError: See `timeline`.
        """
        record = self._record_of(informer, key)
        state = None if record is None else record.states.get(number)
        if state is not None and state.obj is not None:
            return state.obj

        states = self.timeline(informer, key, limit=1).states
        return states[-1].obj if states and states[-1].number == number else None

    def watch(
        self, informer: SharedInformer, key: str, wake: Callable[[], object]
    ) -> Callable[[], None]:
        """Call a function after each change of an object, until the result is called.

        Args:
            informer: Informer that is followed; otherwise nothing is called.
            key: Key of the object, which need not exist.
            wake: Function that must neither wait nor raise, such as
                `asyncio.Event.set`.

        Returns:
            Function that ends it. Idempotent.
        """
        feed = self._feeds.get(informer)
        if feed is None:
            return lambda: None

        watchers = feed.watchers
        watchers.setdefault(key, []).append(wake)

        def remove() -> None:
            waiting = watchers.get(key, [])
            if wake in waiting:
                waiting.remove(wake)
                if not waiting:
                    del watchers[key]

        return remove

    def keep_details(
        self, informer: SharedInformer, key: str, state: ShownState, details: Details
    ) -> None:
        """Keep the details of a state with it, as long as the state is kept."""
        record = self._record_of(informer, key)
        kept = None if record is None else record.states.get(state.number)
        if kept is not None and (kept.obj is None or kept.obj is state.obj):
            self.bytes -= kept.bytes
            kept.details = details
            self.bytes += kept.bytes
            self._trim()

    def _record_of(self, informer: SharedInformer, key: str) -> _Record | None:
        feed = self._feeds.get(informer)
        return None if feed is None else feed.records.get(key)

    # ------------------------------------------------------------ changes

    def receive(self, feed: _Feed, batch: Batch) -> None:
        """Record changes, at once or in one of the next turns of the loop."""
        # A relist publishes all its batches in one step, so those wait, and so does
        # what follows.
        if self._late or isinstance(batch, Relisted):
            self._late.append((feed, _now(), batch))
            if self._handle is None:
                self._handle = asyncio.get_running_loop().call_soon(self._record_late)
        else:
            self._record(feed, batch, _now())

    def _record_late(self) -> None:
        self._handle = None
        recorded = 0
        while self._late and recorded < _CHANGES_AT_ONCE:
            feed, time, batch = self._late.popleft()
            self._record(feed, batch, time)
            recorded += len(batch)

        if self._late:
            self._handle = asyncio.get_running_loop().call_soon(self._record_late)

    def _record(self, feed: _Feed, batch: Batch, time: float) -> None:
        records, watchers = feed.records, feed.watchers
        listed = isinstance(batch, Relisted)
        added: Change = "listed" if listed else "added"
        updated: Change = "listed" if listed else "updated"
        for event in batch:
            if type(event) is Updated:
                obj, change = event.new, updated
            elif type(event) is Added:
                obj, change = event.obj, added
            elif type(event) is Deleted:
                obj, change = event.obj, "deleted"
            else:
                continue

            key = obj.key
            record = records.get(key)
            if record is None:
                record = records[key] = _Record(feed, key)
                self.bytes += RECORD_BYTES

            if type(event) is Updated:
                self._keep_replaced(record, event.old)
            elif change == "deleted":
                self._lose_current(record)

            self._append(record, _State(obj, time, change))
            if key in watchers:
                for wake in watchers[key]:
                    wake()

        self._trim()

    def _append(self, record: _Record, state: _State) -> None:
        record.last += 1
        record.states[record.last] = state
        self._order[state] = record
        self.bytes += state.bytes

    def _keep_replaced(self, record: _Record, old: KubeObject) -> None:
        """Keep the body of a replaced state, if only the store had it."""
        latest = record.states.get(record.last)
        if latest is None or latest.change == "deleted":
            self._append(record, _State(old, None, "listed"))
        elif latest.obj is None:
            latest.obj = old
            self.bytes += len(old.body)

    def _lose_current(self, record: _Record) -> None:
        """Forget the last state before a deletion, if only the store had its body."""
        latest = record.states.get(record.last)
        if latest is None or latest.change == "deleted":
            record.last += 1
        elif latest.obj is None:
            self._drop(record.states.pop(record.last))
        else:
            return

        record.first = record.last + 1

    def _trim(self) -> None:
        """Forget the oldest states until all histories are within their limit."""
        order = self._order
        while self.bytes > self._max_bytes and order:
            state, record = next(iter(order.items()))
            only = record.first == record.last
            if only and state.obj is not None and state.change != "deleted":
                # The current state, which the store has.
                self.bytes -= len(state.obj.body)
                state.obj = None
                order.move_to_end(state)
                continue

            self._drop(record.states.pop(record.first))
            record.first += 1
            if only:
                del record.feed.records[record.key]
                self.bytes -= RECORD_BYTES

    def _drop(self, state: _State) -> None:
        del self._order[state]
        self.bytes -= state.bytes


def _is_last(current: KubeObject, states: list[ShownState]) -> bool:
    """Return True if the state in the store is the last one of a history."""
    if not states or states[-1].change == "deleted":
        return False

    last = states[-1].obj
    return (last.uid, last.resource_version) == (current.uid, current.resource_version)


def _now() -> float:
    return datetime.now(UTC).timestamp()
