"""`ChangeLog`: the objects of an informer, and their recent changes.

All readers of an event stream share it. A `Reader` keeps only which objects have
pending events, and the last states of deleted ones. A slow reader therefore costs
memory for each object, not for each change, and gets current states instead of a
history.

Readers with equal selections form a group: a change is matched once for all of them.

Plain state, without waits, sockets or times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from aioinformer.informer.notifications import Added, Deleted, Updated
from aioinformer.model.objects import KubeObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from aioinformer.informer.notifications import Notification

    Accepts: TypeAlias = Callable[[KubeObject], bool]

__all__ = [
    "HISTORY",
    "ChangeLog",
    "Departure",
    "LoggedObject",
    "Reader",
    "ReaderGroup",
    "StreamEvent",
    "StreamEventType",
]

HISTORY = 1000
"""Maximum number of departures (deletions and changes of labels) that a log remembers,
and that wait for a reader. Each holds the body of an object that no longer exists."""

OBJECTS_PER_STEP = 8
"""Objects matched in one step: 10 us, or 50 us with the longest selector."""


PAGE = 4096
"""Objects that a reader looks up at once. Each page takes a millisecond for 100,000
objects, and 32 KiB for each reader."""


class StreamEventType(Enum):
    """Type of an event. The values are the names in the stream."""

    RESET = "reset"
    """Forget all earlier events: all objects follow."""
    ADDED = "added"
    UPDATED = "updated"
    DELETED = "deleted"
    """The object left the selection, in its last state there."""
    SYNCED = "synced"
    """All existing objects were sent: changes follow."""


class StreamEvent(NamedTuple):
    """Event for one reader."""

    kind: StreamEventType
    obj: KubeObject | None = None
    """Object of an added, updated or deleted event."""


class LoggedObject(msgspec.Struct, frozen=True, gc=False):
    """Existing object. The garbage collector does not track it."""

    obj: KubeObject
    last: int
    """Number of its last change."""
    created: int
    """Number of the change that added it."""


class _Change(NamedTuple):
    """Latest change of one object."""

    number: int
    uid: str
    before: LoggedObject | None
    after: KubeObject | None
    alike: bool
    """True if every selection matches both or neither, as labels are equal."""


class _Match(NamedTuple):
    """Match of a selection with a change."""

    was: bool
    """True if it accepts the object before the change."""
    now: bool
    """True if it accepts the object after the change."""


class Departure(NamedTuple):
    """Former state of an object, which selections may have accepted."""

    number: int
    """Number of the change that ended it."""
    state: KubeObject


class _DepartureMatch(NamedTuple):
    """Match of a selection with a departure."""

    had: bool
    """True if it accepted that state."""
    entry: LoggedObject | None = None
    """Current entry of the object, if it accepted that state."""
    still: bool = False
    """True if it accepts the current object, too."""


class ChangeLog:
    """Current objects, and a bounded history of their changes.

    Changes are numbered from 1, including those that add the initial objects. Objects
    are identified by uid: a recreated object is another one.
    """

    def __init__(self, history: int = HISTORY) -> None:
        self.number: int = 0
        """Number of the last change."""
        self.live: dict[str, LoggedObject] = {}
        """Objects by uid, in the order of their last changes."""
        self.history = history
        """Maximum number of departures to remember."""
        self._departures: deque[Departure] = deque()
        self._forgotten = 0  # number of the last dropped departure
        self.change: _Change | None = None
        """Last change. Invariant: all readers have recorded the changes before it."""
        self._groups: dict[Accepts, ReaderGroup] = {}

    def __repr__(self) -> str:
        return f"<ChangeLog number={self.number} objects={len(self.live)}>"

    def apply(self, event: Notification) -> None:
        """Apply a notification of the informer at once."""
        for _ in self.applying(event):
            pass

    def applying(self, event: Notification) -> Iterator[None]:
        """Apply a notification of the informer, in steps of some microseconds.

        The first step makes the change, and the others notify the readers that it
        concerns. A reader that reads in between notes the change by itself. Finish all
        steps before the next change.
        """
        change: _Change | None = None
        match event:
            case Updated(resync=True):
                pass  # no change
            case Added(obj=obj) | Updated(new=obj):
                change = self._put(obj)
            case Deleted(obj=obj):
                change = self._drop(obj)

        if change is None:
            return

        self.change = change
        for group in list(self._groups.values()):
            yield
            if not any(group.match_of(change)):
                continue

            for reader in list(group.readers):
                reader.note()
                yield

    def knows(self, number: int) -> bool:
        """Return True if the changes since then are known."""
        return self._forgotten <= number <= self.number

    def reader(
        self,
        accepts: Accepts,
        since: int | None = None,
        *,
        on_news: Callable[[], object] = lambda: None,
    ) -> Reader:
        """Return a new reader, which gets events until it is dismissed.

        Args:
            accepts: Function that returns True for objects in the reader's selection.
                It may look at the identity and the labels only. Readers with equal
                functions share its results.
            since: Number of the last change that the reader knows. For None, or a
                number that the log does not know, all objects follow a `RESET`.
            on_news: Callback, called when there are new pending events.
        """
        group = self._groups.get(accepts)
        if group is None:
            group = self._groups[accepts] = ReaderGroup(accepts)

        reader = Reader(self, group, since, on_news)
        group.readers[reader] = None
        return reader

    def dismiss(self, reader: Reader) -> None:
        """Stop a reader."""
        reader.dismissed = True
        group = reader.group
        del group.readers[reader]
        if not group.readers:
            del self._groups[group.accepts]

    def changed_since(self, number: int) -> list[str]:
        """Return one page of uids of objects changed since then, oldest change last.

        It takes a millisecond for 100,000 objects, however many have changed.
        """
        live = self.live
        uids = list(live)
        start = bisect_right(uids, number, key=lambda uid: live[uid].last)
        page = uids[start : start + PAGE]
        page.reverse()
        return page

    def departed_since(self, number: int) -> list[Departure]:
        """Return the departures since then, in order."""
        return [it for it in self._departures if it.number > number]

    def _put(self, obj: KubeObject) -> _Change:
        self.number += 1
        uid = identity(obj)
        before = self.live.pop(uid, None)  # to insert it last
        created = self.number if before is None else before.created
        self.live[uid] = LoggedObject(obj, self.number, created)
        alike = before is not None and before.obj.labels == obj.labels
        if before is not None and not alike:
            self._remember(before.obj)

        return _Change(self.number, uid, before, obj, alike)

    def _drop(self, final: KubeObject) -> _Change | None:
        uid = identity(final)
        before = self.live.pop(uid, None)
        if before is None:
            return None

        self.number += 1
        if before.obj.labels == final.labels:
            before = LoggedObject(
                final, before.last, before.created
            )  # the final state is newer

        self._remember(before.obj)
        return _Change(self.number, uid, before, None, alike=False)

    def _remember(self, state: KubeObject) -> None:
        self._departures.append(Departure(self.number, state))
        if len(self._departures) > self.history:
            self._forgotten = self._departures.popleft().number


class ReaderGroup:
    """Readers of equal selections.

    Args:
        accepts: Function that returns True for objects in their selection.
    """

    def __init__(self, accepts: Accepts) -> None:
        self.accepts = accepts
        self.readers: dict[Reader, None] = {}
        """Readers in order of arrival."""
        self._checked = 0
        self._match = _Match(was=False, now=False)

    def match_of(self, change: _Change) -> _Match:
        """Return the match with a change, computed once for all readers."""
        if self._checked != change.number:
            before, after = change.before, change.after
            was = before is not None and self.accepts(before.obj)
            now = was if change.alike else after is not None and self.accepts(after)
            self._checked, self._match = change.number, _Match(was, now)

        return self._match


class Reader:
    """Pending events of one reader. Made by `ChangeLog.reader`.

    Guarantees: the last event of an object follows its last change. No event is
    repeated, except for those in flight when an earlier reader stopped and this one
    resumed. An object that was added and deleted before it was sent has no events.

    It costs a few bytes for each object during the initial list, some 200 for each
    object with a pending change, and nothing before its first `step`.
    """

    def __init__(
        self,
        log: ChangeLog,
        group: ReaderGroup,
        since: int | None,
        on_news: Callable[[], object],
    ) -> None:
        self.group = group
        self.dismissed = False
        """True if it gets no more events."""
        self._log = log
        self._accepts = group.accepts
        self._on_news = on_news
        # Last change that was recorded. Others did not concern this reader.
        self._noted = log.number
        # Change up to which an earlier reader got; None without one.
        self._since = since
        self._begun = False
        # Walk over the changes up to `_until`, page by page with the next one last. It
        # has reached `_at`. Later changes have higher numbers, and wait.
        self._order: list[str] = []
        self._pages = False  # there may be a further page
        self._at = 0
        self._until = 0
        # Departures to match before the walk, and the results.
        self._unchecked: list[Departure] | None = None
        self._checked: dict[int, _DepartureMatch] = {}
        # Departed objects: True if the earlier reader had got them.
        self._had: dict[str, bool] = {}
        # Objects with later changes, in order of the first one: True if the reader
        # knows them. Invariant: an object is either accepted now, or was known, and
        # `_final_states` has the last state that was accepted.
        self._waiting: OrderedDict[str, bool] = OrderedDict()
        self._final_states: dict[str, KubeObject] = {}
        self._synced = False

    @property
    def pending(self) -> bool:
        """True while there are events to send, or objects to look at."""
        self.note()
        return not self._synced or bool(self._waiting)

    @property
    def reached(self) -> int | None:
        """Number of the change up to which everything was sent, or None in between."""
        return None if self.pending else self._log.number

    def step(self) -> StreamEvent | None:
        """Return the next event, or None if this step found none.

        Call it again while there is something `pending`.
        """
        self.note()
        if self._order or self._pages:
            return self._walk()

        if not self._begun:
            return None if self._prepare() else self._begin()

        if self._waiting:
            uid, known = self._waiting.popitem(last=False)
            final = self._final_states.pop(uid, None)
            if final is not None:
                return StreamEvent(StreamEventType.DELETED, final)

            return _shown(self._log.live[uid].obj, known)

        if not self._synced:
            self._synced = True
            self._had.clear()
            return StreamEvent(StreamEventType.SYNCED)

        return None

    def note(self) -> None:
        """Record the last change of the log, once."""
        change = self._log.change
        if change is None or change.number <= self._noted or self.dismissed:
            return

        self._noted = change.number
        if not self._begun:
            return  # the walk will see it

        uid, before = change.uid, change.before
        was, now = self.group.match_of(change)
        if not (was or now):
            return

        if uid not in self._waiting:
            # A new reader knows only what the walk has passed. A resumed one may know
            # all accepted objects: events were in flight when it left.
            unseen = before is not None and self._at < before.last <= self._until
            self._waiting[uid] = was and not (unseen and self._since is None)

        if now:
            self._final_states.pop(uid, None)
        elif not self._waiting[uid]:
            del self._waiting[uid]  # never sent, or added and deleted
        elif was and before is not None:
            self._depart(uid, before.obj)

        self._on_news()

    def _depart(self, uid: str, state: KubeObject) -> None:
        self._final_states[uid] = state
        if len(self._final_states) > self._log.history:
            self._begin_again()  # cheaper than keeping all of them

    def _begin_again(self) -> None:
        self._begun = self._synced = False
        self._since = None
        self._unchecked = None
        self._order.clear()
        self._pages = False
        self._had.clear()
        self._waiting.clear()
        self._final_states.clear()

    def _prepare(self) -> bool:
        """Match some departures. Return False if none are left."""
        if self._since is not None and not self._log.knows(self._since):
            self._since = None

        if self._since is None:
            return False

        if self._unchecked is None:
            self._unchecked = self._log.departed_since(self._since)

        some = self._unchecked[:OBJECTS_PER_STEP]
        del self._unchecked[:OBJECTS_PER_STEP]
        self._checked.update((it.number, self._check(it.state)) for it in some)
        return bool(self._unchecked)

    def _check(self, state: KubeObject) -> _DepartureMatch:
        if not self._accepts(state):
            return _DepartureMatch(had=False)

        entry = self._log.live.get(identity(state))
        still = entry is not None and self._accepts(entry.obj)
        return _DepartureMatch(True, entry, still)

    def _begin(self) -> StreamEvent | None:
        self._begun = True
        self._at, self._until = self._since or 0, self._log.number
        self._turn_page()
        if self._since is None:
            return StreamEvent(StreamEventType.RESET)

        self._take_back(self._since)
        return None

    def _take_back(self, since: int) -> None:
        """Queue deletions of objects that the earlier reader may have got."""
        for number, state in self._log.departed_since(since):
            uid = identity(state)
            found, entry = self._checked.get(number), self._log.live.get(uid)
            if found is None or (found.had and found.entry is not entry):
                found = self._check(state)  # departed or changed meanwhile

            self._had.setdefault(uid, found.had)  # the first one is the state it got
            if found.had and not found.still:
                # Even if it was added later: the reader may have got more events than
                # it acknowledged.
                self._waiting[uid] = True
                self._final_states[uid] = state

        self._checked.clear()

    def _walk(self) -> StreamEvent | None:
        """Look for the next accepted object, in a bounded number of steps."""
        if not self._order:
            self._turn_page()

        order, live, until = self._order, self._log.live, self._until
        for _ in range(min(OBJECTS_PER_STEP, len(order))):
            uid = order.pop()
            entry = live.get(uid)
            if entry is None or entry.last > until:
                continue  # deleted or changed meanwhile: in `_waiting`

            self._at = entry.last
            if self._accepts(entry.obj):
                return _shown(entry.obj, self._knew(uid, entry))

        return None

    def _turn_page(self) -> None:
        self._order = self._log.changed_since(self._at)
        newest = self._log.live[self._order[0]].last if self._order else 0
        self._pages = len(self._order) == PAGE and newest < self._until

    def _knew(self, uid: str, entry: LoggedObject) -> bool:
        since = self._since
        return since is not None and entry.created <= since and self._had.get(uid, True)


def _shown(obj: KubeObject, known: bool) -> StreamEvent:
    return StreamEvent(StreamEventType.UPDATED if known else StreamEventType.ADDED, obj)


def identity(obj: KubeObject) -> str:
    """Return the uid of an object, or its key without one."""
    return obj.uid or obj.key
