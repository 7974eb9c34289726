"""`Follower`: tells the changes of a store on disk to the handlers of this process.

The follower works in slices. A slice is synchronous and one read transaction: the next
entries of the journal, and once there are none, whatever needs the store as of the last
entry. So a listener that starts reads the objects behind its cursor at the same version
at which it was told the changes of the objects up to its cursor.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from aioinformer._user_code import guarded_logger
from aioinformer.budget import LoopBudget
from aioinformer.cache.disk.failures import is_shortage
from aioinformer.cache.disk.header import WriterState, same_identity
from aioinformer.errors import CacheError
from aioinformer.informer.cached.journal import Behind, EntryKind
from aioinformer.informer.handlers.inbox import Snapshot
from aioinformer.informer.listwatch.watch_events import same_state
from aioinformer.informer.notifications import (
    Added,
    Deleted,
    Notification,
    Updated,
    object_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import NoReturn

    from aioinformer.cache.disk.contents import DiskContents
    from aioinformer.cache.disk.environment import Environment
    from aioinformer.cache.disk.header import Header
    from aioinformer.cache.disk.readers import ReaderSlot
    from aioinformer.cache.disk.records import Records
    from aioinformer.cache.interface import Building
    from aioinformer.informer.cached.journal import Entry, Journal
    from aioinformer.informer.handlers.inbox import Batch
    from aioinformer.informer.handlers.listener import Listener
    from aioinformer.informer.handlers.processor import Processor
    from aioinformer.informer.store.waiters import StoreWaiters
    from aioinformer.model.objects import KubeObject

__all__ = ["Follower"]

logger: Final = guarded_logger(__name__)

POLL_SECONDS = 1.0
"""Seconds between two looks at the store, in case a wake-up is lost. The state of the
writer and the directory are checked as often."""

RETRY_SECONDS = 0.05
"""Seconds until the next look for a difference that the writer is about to write."""

ROOM = 512
"""Number of queued notifications from which a listener gets no further objects."""

# Entries, or objects, between two checks of the budget: half a millisecond.
_CHUNK = 32

# Keys of a difference between two checks: a millisecond.
_PART = 256

_NOTHING: Final = Behind(number=0, known={})


@dataclass(slots=True)
class _Walk:
    """Walk of a listener through the stored objects, in the order of their keys."""

    cursor: str = ""
    """Key of the last object that it was told; empty before the first."""

    resync: bool = False
    initial: bool = True
    heir: bool = False
    """True for a listener that existed when the store was confirmed: it is also told
    the deletions since this process opened the store."""

    def batch(self, objects: list[KubeObject]) -> Batch:
        """Return the notifications of the next objects."""
        if self.resync:
            return [Updated(obj, obj, True) for obj in objects]

        return Snapshot(objects, initial=self.initial)


@dataclass(slots=True)
class _Gone:
    """Objects that were stored when this process opened the store, and deleted since."""

    decode: Callable[[str, bytes], KubeObject]
    records: dict[str, bytes] = field(default_factory=dict)
    """Last record by key. The key may have another object, or the same again."""

    _born: set[str] = field(default_factory=set)
    _listed: bool = False

    def note(self, entry: Entry) -> None:
        """Record a change."""
        key = entry.key
        match entry.kind:
            case EntryKind.ADDED:
                before = self.records.get(key)
                if before is None or self._uid(key, before) != self._uid(
                    key, entry.new
                ):
                    self._born.add(key)  # else it left the selection, and is back
            case EntryKind.DELETED | EntryKind.MISSED_DELETION:
                self.note_lost(key, entry.old)
            case EntryKind.LISTED | EntryKind.FIRST_LISTED:
                self.note_listed()
            case EntryKind.UPDATED:
                pass

    def _uid(self, key: str, record: bytes) -> str:
        return self.decode(key, record).uid

    def note_listed(self) -> None:
        """Record that a list came into the empty store: all that follows is new."""
        self._listed = True

    def note_lost(self, key: str, record: bytes) -> None:
        """Record the last record of an object that may be gone; empty for a new one."""
        if key in self.records or key in self._born or self._listed:
            return

        if record:
            self.records[key] = record
        else:
            self._born.add(key)


class Follower:
    """Reader of the journal, for listeners, waiters and the state of the informer.

    Every process of a cache has one, the writer's too. Handlers are told nothing before
    the store is confirmed. Then they get each stored object, and each change after it.

    A reader that was too slow for the journal is told the difference between what it
    knew and the store. Until that is done, changes of these objects are not told one by
    one.

    Args:
        env: Environment.
        records: Decoder of its records.
        journal: Journal to read.
        contents: Stored objects, with the indexes of this process.
        slot: Place among the readers of the store, for this follower alone.
        processor: Processor whose listeners are told.
        waiters: Tasks that wait for states of the store.
        on_change: Function called when `synced` or the state of the writer has changed;
            must neither wait nor raise.
        claims: Header with the identity of the objects that the informer wants.
        name: Name in errors.

    Raises:
        CacheError: If the store cannot be read.
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
        claims: Header,
        name: str = "informer",
    ) -> None:
        self._env = env
        self._records = records
        self._journal = journal
        self._contents = contents
        self._slot = slot
        self._processor = processor
        self._waiters = waiters
        self._on_change = on_change
        self._claims = claims
        self._name = name
        self.synced: bool = False
        """True once a confirmed list is in the store. Never becomes False again."""
        self.writer: WriterState = WriterState()
        """Newest state of the writer that was read."""
        self._silent = False
        # Indexes that only this process has, while they are built, and the rest of the
        # steps.
        self._building: tuple[Building, Iterator[None]] | None = None
        # Listeners that are not told everything yet. The others of the processor have
        # joined: they are told every change.
        self._starting: dict[Listener, _Walk] = {}
        self._resyncs: dict[Listener, _Walk] = {}
        # Records that the joined listeners know, by key, after entries were trimmed
        # that they have not been told; empty for an unknown object.
        self._pending: dict[str, bytes] = {}
        # Last part of a difference that is being read.
        self._lost = _NOTHING
        self._gone: _Gone | None = _Gone(records.decode)
        # True if everything in the store was told at the last look.
        self._current = False
        self._wakeup = asyncio.Event()
        self._header: Header
        with env.read():
            self._header = env.header
            self._slot.position = self._header.last

        self._next_check = 0.0

    def __repr__(self) -> str:
        state = "synced" if self.synced else "not synced"
        return f"<Follower {self._name} {state} position={self.position}>"

    # ------------------------------------------------------------ state

    @property
    def position(self) -> int:
        """Number of the last entry that was told."""
        return self._slot.position

    @property
    def behind(self) -> int:
        """Number of entries that were in the store at the last look, and are not told."""
        return self._header.last - self.position

    @property
    def version(self) -> str:
        """Version of the store at the last look; empty until it is confirmed."""
        return self._header.version if self.synced else ""

    @property
    def starting(self) -> dict[Listener, str]:
        """Last key told to each listener that is not told every object yet."""
        return {
            listener: self._starting[listener].cursor
            for listener in self._processor.listeners
            if listener in self._starting
        }

    # ------------------------------------------------------------ for the informer

    def add(self, listener: Listener) -> None:
        """Tell a listener each stored object, then each change. It is in the processor."""
        self._starting[listener] = _Walk()
        listener.on_progress = partial(self._made_room, listener)
        listener.resync_by(partial(self._resync, listener))
        self._wakeup.set()

    def advance(self, over: Callable[[], bool]) -> bool:
        """Tell the next changes, until time is up; in a read transaction.

        Listeners that start are told the other objects later.

        Args:
            over: Function that returns True once time is up.

        Returns:
            True if everything in the store is told.

        Raises:
            CacheError: If the store cannot be read.
        """
        self._slice(over, walk=False)
        return self._current

    @contextlib.contextmanager
    def reading(self) -> Iterator[bool]:
        """Read the store in a block as of the last change that was told.

        Tells a few changes first.

        Yields:
            False if there are more: read after one of the next steps, see
            `StoreWaiters.for_steps`.

        Raises:
            CacheError: If the store cannot be read.
        """
        with self._env.read():
            current = self.advance(_at_once)
            if not current:
                self._wakeup.set()

            yield current

    async def run(self) -> NoReturn:
        """Follow the store until cancelled.

        Raises:
            CacheError: If the store cannot be read any more. What listeners were told
                is the store at `position`, except for the listeners in `starting`.

        Cancellation:
            Stops it.
        """
        budget = LoopBudget.current()
        self._slot.start(self._woken)
        while True:
            self._wakeup.clear()
            await budget.start()
            pause = self._try_slice(budget.over)
            budget.end()
            if pause:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._wakeup.wait()

            self._check_directory()

    def _woken(self) -> None:
        """Look at the store, unless that can wait for the next poll."""
        if self._gone is not None or self._waiters.waiting or self._is_anybody_told():
            self._wakeup.set()

    def _check_directory(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._next_check:
            self._next_check = now + POLL_SECONDS
            self._env.check()

    def _made_room(self, listener: Listener) -> None:
        waits = listener in self._starting or listener in self._resyncs
        if waits and listener.depth < ROOM:
            self._wakeup.set()

    def _resync(self, listener: Listener) -> None:
        """Begin a resync, unless one is in progress or the listener is starting."""
        if listener not in self._starting and listener not in self._resyncs:
            self._resyncs[listener] = _Walk(resync=True)
            self._wakeup.set()

    # ------------------------------------------------------------ slices

    def _try_slice(self, over: Callable[[], bool]) -> float:
        """Do the work of one slice, unless the system lacks the memory to begin."""
        try:
            with self._env.read():
                pass  # LMDB keeps what it has allocated for the next transaction
        except CacheError as exc:
            if not is_shortage(exc):
                raise

            logger.debug("%s: cannot read the cache yet: %s", self._name, exc)
            return POLL_SECONDS

        return self._slice(over)

    def _slice(self, over: Callable[[], bool], *, walk: bool = True) -> float:
        """Do the work of one slice; return the seconds until the next one."""
        told = self.position, self._header.version, self._current
        self._drop_removed()
        with self._env.read():
            header = self._header = self._env.header
            changed = self._read_writer()
            pause = self._read_journal(header, over)
            self._current = False
            if self.behind == 0:
                self._current = self._settle(over) and self._tell_gone(over)
                ready = self._current and (not walk or self._build(over))
                if ready and not self.synced and self._is_confirmed(header):
                    self._begin()
                    changed = True
                    ready = self._current = self._tell_gone(over)

                complete = ready and (not walk or self._walk(over))
                pause = POLL_SECONDS if complete else 0.0

        if self._waiters.waiting and (
            changed or told != (self.position, header.version, self._current)
        ):
            self._waiters.applied(lambda _: self.version)

        if changed:
            self._on_change()

        return pause

    def _drop_removed(self) -> None:
        """Forget the listeners that were removed: nothing may be queued for them."""
        present = set(self._processor.listeners)
        for walks in (self._starting, self._resyncs):
            for listener in [it for it in walks if it not in present]:
                del walks[listener]

    def _read_writer(self) -> bool:
        """Read the state of the writer; return True if it has changed but for times."""
        before, state = self.writer, self._env.writer_state
        now = asyncio.get_running_loop().time()
        self.writer = state
        silent, self._silent = self._silent, state.silence(now) > 0
        if state == before:
            return silent != self._silent

        if state.history_resets != before.history_resets:
            self._waiters.wake_versions()

        if silent != self._silent:
            return True

        return before.without_times() != state.without_times()

    def _is_confirmed(self, header: Header) -> bool:
        now = asyncio.get_running_loop().time()
        # A writer may have confirmed objects of another cluster or transform.
        ours = same_identity(header, self._claims)
        believed = header.listed and self.writer.vouches(now) and ours
        if not (believed and self._env.is_of_writer(self.writer)):
            return False

        # Each read of an index that is not built yet reads all objects.
        return not self._contents.missing

    def _begin(self) -> None:
        """Start the listeners: the store is confirmed."""
        self.synced = True
        for walk in self._starting.values():
            walk.heir = True

        if not self._starting:
            self._gone = None

    # ------------------------------------------------------------ journal

    def _read_journal(self, header: Header, over: Callable[[], bool]) -> float:
        """Tell the entries after the position; return the seconds until the next try."""
        slot = self._slot
        while slot.position < header.last:
            if self._gone is None and not self._is_anybody_told():
                slot.position = header.last
                self._pending.clear()
                self._lost = _NOTHING
                break

            entries = self._journal.read(slot.position, _CHUNK)
            if entries is not None:
                self._tell(entries)
            else:
                start = self._lost.rest
                lost = self._journal.behind(slot.name, slot.position, start, _PART)
                if lost is None:
                    return RETRY_SECONDS

                self._fall_behind(lost)

            if over():
                break

        return 0.0

    def _is_anybody_told(self) -> bool:
        """Return True if some change may concern a listener, an index or a waiter."""
        return (
            bool(self._joined())
            or self._contents.private
            or any(walk.cursor for walk in self._starting.values())
            or bool(self._waiters.keys)
        )

    def _joined(self) -> list[Listener]:
        """Return the listeners that are told every change."""
        starting = self._starting
        return [it for it in self._processor.listeners if it not in starting]

    def _tell(self, entries: list[Entry]) -> None:
        """Tell entries to those whom they concern, and decode no others."""
        joined = bool(self._joined()) or self._contents.private
        cursor = max((it.cursor for it in self._starting.values()), default="")
        waited = self._waiters.keys
        batch: list[Notification] = []
        for entry in entries:
            if self._gone is not None:
                self._gone.note(entry)

            key = entry.key
            if entry.kind >= EntryKind.LISTED:
                self._publish(batch, entry.number)
                batch = []
                self._start_again(initial=entry.kind is EntryKind.FIRST_LISTED)
                joined, cursor = self._contents.private, ""
            elif key in self._pending:
                pass  # told as a difference, once no entries are left
            elif joined or key <= cursor or key in waited:
                batch.append(self._notification(entry))

        self._publish(batch, entries[-1].number)

    def _notification(self, entry: Entry) -> Notification:
        key, decode = entry.key, self._records.decode
        match entry.kind:
            case EntryKind.ADDED:
                return Added(decode(key, entry.new))
            case EntryKind.UPDATED:
                return Updated(decode(key, entry.old), decode(key, entry.new))
            case kind:
                unknown = kind is EntryKind.MISSED_DELETION
                return Deleted(decode(key, entry.old), unknown)

    def _publish(self, batch: list[Notification], position: int = 0) -> None:
        """Move to a position, and tell changes to all that know the keys."""
        if position:
            self._slot.position = position

        if not batch:
            return

        if self._contents.private:
            self._contents.follow(map(_states, batch))

        now = asyncio.get_running_loop().time()
        for listener in self._joined():
            listener.put(batch, now, now)

        for listener, walk in self._starting.items():
            if walk.cursor:
                part = [it for it in batch if object_of(it).key <= walk.cursor]
                listener.put(part, now, now)

        if self._waiters.waiting:
            self._waiters.changed(batch)

    def _start_again(self, *, initial: bool) -> None:
        """Tell all listeners each object anew: a list came into an empty store."""
        decode = self._records.decode
        known = [(key, record) for key, record in self._pending.items() if record]
        self._publish([Deleted(decode(key, record), True) for key, record in known])
        self._tell_gone(_never)
        for it in self._processor.listeners:
            self._starting.setdefault(it, _Walk(initial=initial)).cursor = ""

        self._contents.listed()
        self._resyncs.clear()
        # For the tasks that wait for a key.
        self._pending = dict.fromkeys(self._waiters.keys, b"")

    # ------------------------------------------------------------ differences

    def _fall_behind(self, lost: Behind) -> None:
        """Note what the listeners know of some objects whose entries were trimmed."""
        before, self._lost = self._lost, lost
        if before.rest and before.number != lost.number:
            self._lost = _NOTHING  # more was trimmed: begin again
            return

        gone = self._gone
        for key, record in lost.known.items():
            self._pending.setdefault(key, record)
            if gone is not None:
                gone.note_lost(key, record)

        if lost.rest:
            return

        if lost.listed is not None:
            if gone is not None:
                gone.note_listed()

            self._start_again(initial=lost.listed is EntryKind.FIRST_LISTED)

        self._slot.position = lost.number

    def _settle(self, over: Callable[[], bool]) -> bool:
        """Tell the pending differences; return False if time was up."""
        pending = self._pending
        batch: list[Notification] = []
        if pending and not self._is_anybody_told():
            pending.clear()

        try:
            while pending:
                key, record = pending.popitem()
                known = self._records.decode(key, record) if record else None
                batch += _difference(known, self._contents.objects.get(key))
                if over():
                    break
        finally:
            self._publish(batch)

        return not pending

    def _tell_gone(self, over: Callable[[], bool]) -> bool:
        """Tell the heirs which objects are gone; return False if time was up."""
        gone = self._gone
        if gone is None or not self.synced:
            return True

        heirs = {it: walk for it, walk in self._starting.items() if walk.heir}
        if not heirs:
            self._gone = None
            return True

        batch: list[tuple[str, Notification]] = []
        while gone.records:
            key, record = gone.records.popitem()
            known = self._records.decode(key, record)
            stored = self._contents.objects.get(key)
            if stored is None or stored.uid != known.uid:
                batch.append((key, Deleted(known, True)))

            if over():
                break

        now = asyncio.get_running_loop().time()
        for listener, walk in heirs.items():
            part = [event for key, event in batch if key > walk.cursor]
            listener.put(part, now, now)

        return not gone.records

    # ------------------------------------------------------------ walks

    def _build(self, over: Callable[[], bool]) -> bool:
        """Index the next objects for this process; return False if time was up."""
        while True:
            if self._building is None:
                missing = self._contents.missing
                if not missing:
                    return True

                building = self._contents.build(missing)
                self._building = building, iter(building.steps())

            building, steps = self._building
            for _ in steps:
                if over():
                    return False

            self._building = None
            building.publish()
            building.close()

    def _walk(self, over: Callable[[], bool]) -> bool:
        """Tell the next objects to all listeners with room; return False if time was up."""
        if not self.synced:
            return True

        for walks in (self._starting, self._resyncs):
            while ready := {it: walks[it] for it in walks if it.depth < ROOM}:
                for listeners in _together(ready):
                    self._step(walks, listeners)
                    if over():
                        return False

        return True

    def _step(self, walks: dict[Listener, _Walk], listeners: list[Listener]) -> None:
        """Tell the next objects to listeners whose walks are equal, up to the end."""
        walk = walks[listeners[0]]
        objects = self._contents.after(walk.cursor, _CHUNK)
        batch = walk.batch(objects)
        now = asyncio.get_running_loop().time()
        for listener in listeners:
            if objects:
                walks[listener].cursor = objects[-1].key
                listener.put(batch, now, None if walk.resync else now)

            if len(objects) < _CHUNK:
                del walks[listener]
                if not walk.resync:
                    listener.mark_synced()


def _together(walks: dict[Listener, _Walk]) -> list[list[Listener]]:
    """Return the listeners of equal walks, so that objects are read once for all."""
    groups: dict[tuple[str, bool], list[Listener]] = {}
    for listener, walk in walks.items():
        groups.setdefault((walk.cursor, walk.initial), []).append(listener)

    return list(groups.values())


def _difference(
    known: KubeObject | None, stored: KubeObject | None
) -> list[Notification]:
    """Return the changes from a known state of a key to the stored one."""
    if known is None:
        return [] if stored is None else [Added(stored)]

    if stored is None:
        return [Deleted(known, True)]

    if stored.uid != known.uid:
        return [Deleted(known, True), Added(stored)]

    if same_state(known, stored) and known == stored:
        return []

    return [Updated(known, stored)]


def _states(event: Notification) -> tuple[KubeObject | None, KubeObject | None]:
    """Return the states before and after a change."""
    match event:
        case Added():
            return None, event.obj
        case Updated():
            return event.old, event.new
        case Deleted():
            return event.obj, None


def _never() -> bool:
    return False


def _at_once() -> bool:
    return True
