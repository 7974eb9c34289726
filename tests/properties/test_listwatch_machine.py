"""The machine reaches the state of the server with any legal sequence of responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from fake_source import added, bookmark, deleted, modified, thing
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from list_watch_errors import ERRORS, KINDS, RESET

from aioinformer.errors import (
    ApiError,
    HistoryReset,
    Invalid,
    NotFound,
    ResourceExpired,
    ServerError,
    TransportError,
)
from aioinformer.informer.listwatch.machine import (
    Clear,
    Commit,
    Discard,
    Extend,
    Input,
    ListFailed,
    Listing,
    PageListed,
    Report,
    StreamListed,
    WatchEnded,
    Watching,
    advance,
    list_options,
    stream_options,
)
from aioinformer.informer.listwatch.watch_events import (
    InitialEvents,
    same_state,
    to_changes,
)
from aioinformer.model import KubeObject
from aioinformer.watch import EventType, WatchEvent
from examples import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioinformer.informer.listwatch.machine import Phase
    from aioinformer.watch import ListOptions, WatchOptions


State: TypeAlias = "dict[str, KubeObject]"

FIRST = 1
"""The version of the initial empty state; 0 would mean no version."""

EXPIRED = ResourceExpired("too old", status=410)
TOO_LARGE = ServerError(
    "wait",
    status=504,
    details={"causes": [{"reason": "ResourceVersionTooLarge"}]},
)
NOT_SERVED = NotFound("no such resource", status=404)
NO_STREAMS = Invalid("sendInitialEvents is forbidden", status=422)


class HistoryServer:
    """States and the events between them; every write makes a version.

    Attributes:
        states: The states; the first has version `FIRST`, each next one the next
            version.
        events: The events; the n-th one leads from the n-th state to the next.
        oldest: Version after which events can be watched.
        first_listable: Minimum version of lists.
        era: Number of restores.
        served: False while the resource does not exist.
        streams: Handling of a request for initial events: `"yes"`, `"refused"`, or
            `"ignored"`, a normal watch without an end of initial events.
    """

    def __init__(self) -> None:
        self.states: list[State] = [{}]
        self.events: list[WatchEvent] = []
        self.oldest = FIRST
        self.first_listable = FIRST
        self.era = 0
        self.served = True
        self.streams = "yes"

    @property
    def newest(self) -> int:
        return FIRST + len(self.events)

    def state(self, version: int) -> State:
        return self.states[version - FIRST]

    def since(self, version: int) -> list[WatchEvent]:
        """Return the events after a version."""
        return self.events[version - FIRST :]

    # ------------------------------------------------------------ changes and failures

    def write(self, name: str) -> None:
        version = self.newest + 1
        before = self.states[-1].get(f"default/{name}")
        uid = before.uid if before is not None else f"uid-{self.era}-{version}"
        # The same version of the same object is another state in another era.
        obj = thing(name, version, uid, spec={"nodeName": f"node-{self.era}"})
        self._next(added(obj) if before is None else modified(obj), obj.key, obj)

    def delete(self, name: str) -> None:
        removed = self.states[-1].get(f"default/{name}")
        if removed is not None:
            obj = thing(name, self.newest + 1, removed.uid)
            self._next(deleted(obj), obj.key, None)

    def _next(self, event: WatchEvent, key: str, obj: KubeObject | None) -> None:
        state = {k: v for k, v in self.states[-1].items() if k != key}
        self.states.append(state if obj is None else state | {key: obj})
        self.events.append(event)

    def forget(self, keep: int) -> None:
        """Keep only the given number of the last events."""
        self.oldest = max(self.oldest, self.newest - keep)

    def go_back(self, versions: int) -> None:
        """Restore a backup: the given number of last versions is undone."""
        left = max(len(self.events) - versions, 0)
        del self.states[left + 1 :]
        del self.events[left:]
        self.oldest = min(self.oldest, self.newest)
        self.first_listable = min(self.first_listable, self.newest)
        self.era += 1

    def go_away(self) -> None:
        """Remove the resource with all its objects."""
        for obj in list(self.states[-1].values()):
            self.delete(obj.name)

        self.served = False

    def come_again(self) -> None:
        """Serve the resource again, without its former objects."""
        if not self.served:
            self.served = True
            self.oldest = self.first_listable = self.newest

    # ------------------------------------------------------------ responses

    def list_from(self, options: ListOptions, staleness: int) -> tuple[int, str]:
        """Return the version of a page's state, and the key after which it starts.

        Raises:
            ApiError: The request is refused.
        """
        if not self.served:
            raise NOT_SERVED

        stale = max(self.newest - staleness, self.first_listable)
        if options.continue_token:
            era, version, after = options.continue_token.split(":")
            if int(era) != self.era or int(version) < self.oldest:
                raise EXPIRED

            return int(version), after

        match options.resource_version, options.resource_version_match:
            case "", "":
                return self.newest, ""
            case "0", "":
                return stale, ""
            case version, "NotOlderThan":
                return self._not_older(int(version), stale), ""
            case unknown:
                raise AssertionError(unknown)

    def page(
        self, version: int, after: str, limit: int
    ) -> tuple[list[KubeObject], str]:
        """Return the objects of a page, and the token of the next one."""
        state = self.state(version)
        keys = sorted(key for key in state if key > after)
        page = keys[: limit or None]
        token = f"{self.era}:{version}:{page[-1]}" if len(page) < len(keys) else ""
        return [state[key] for key in page], token

    def stream_from(self, options: WatchOptions, staleness: int) -> int:
        """Return the version of the initial objects of a stream.

        Raises:
            ApiError: The request is refused.
        """
        assert options.send_initial_events
        assert options.bookmarks
        if not self.served:
            raise NOT_SERVED

        if self.streams == "refused":
            raise NO_STREAMS

        stale = max(self.newest - staleness, self.first_listable, self.oldest)
        if not options.resource_version:
            return stale  # later changes come before the end

        return self._not_older(int(options.resource_version), stale)

    def _not_older(self, version: int, stale: int) -> int:
        if version > self.newest:
            raise TOO_LARGE

        return max(stale, version)

    def check_watch(self, version: int) -> None:
        """Return whether events after a version can be watched.

        Raises:
            ApiError: They cannot.
        """
        if not self.served:
            raise NOT_SERVED

        if version < self.oldest:
            raise EXPIRED


# Few names, so that they are created, deleted, and reused with another uid.
NAMES = "abcd"
KEYS = frozenset(f"default/{name}" for name in NAMES)

# Any end of a list or watch: first the kind, because most errors are of one kind.
# Another history is not reported without a reason.
ANY_ERROR = st.sampled_from(sorted(KINDS - {RESET})).flatmap(
    lambda kind: st.sampled_from([it for it, its in ERRORS.values() if its == kind])
)
CHANGES = st.lists(
    st.tuples(st.sampled_from(NAMES), st.booleans()), min_size=1, max_size=5
)
UNREADABLE = st.frozensets(st.sampled_from(sorted(KEYS)), max_size=1)
STALENESS = st.integers(0, 3)


def listing(machine: AnySequence) -> bool:
    return isinstance(machine.phase, Listing) and not machine.phase.streaming


def streaming(machine: AnySequence) -> bool:
    return isinstance(machine.phase, Listing) and machine.phase.streaming


def watching(machine: AnySequence) -> bool:
    return isinstance(machine.phase, Watching)


def end_of_initial_events(version: int) -> WatchEvent:
    metadata = {
        "resourceVersion": str(version),
        "annotations": {"k8s.io/initial-events-end": "true"},
    }
    return WatchEvent(EventType.BOOKMARK, KubeObject.of({"metadata": metadata}))


class AnySequence(RuleBasedStateMachine):
    """A state machine of server changes and responses to requests, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.server = HistoryServer()
        self.phase: Phase = Listing()
        self.store: State = {}
        self.staged: State = {}
        self.taken = 0
        """The version up to which everything is in the store."""
        self.lost = False
        """True if the server was restored to an older state, unnoticed."""
        self.unread: set[str] = set()
        """Unreadable objects: the store may have an older state of them."""
        self.unread_in_list: set[str] = set()

    @initialize(wanted=st.booleans(), streams=st.sampled_from(["yes", "refused"]))
    def begin(self, wanted: bool, streams: str) -> None:
        self.wanted = wanted
        self.phase = Listing(streaming=wanted)
        self.server.streams = streams

    # ------------------------------------------------------------ the server

    def hidden(self) -> bool:
        """Write one more version, after which the restore may be undetectable."""
        return self.lost and self.server.newest + 1 >= self.taken

    @precondition(lambda self: self.server.served)
    @rule(changes=CHANGES)
    def change(self, changes: list[tuple[str, bool]]) -> None:
        for name, removed in changes:
            if not self.hidden():
                (self.server.delete if removed else self.server.write)(name)

    @rule(keep=st.integers(0, 3))
    def compact(self, keep: int) -> None:
        self.server.forget(keep)

    @precondition(lambda self: self.server.served)
    @rule(versions=st.integers(1, 4), error=st.none() | ANY_ERROR)
    def put_back(self, versions: int, error: Exception | None) -> None:
        """Restore a backup, for which the server restarts: usually watches end."""
        self.server.go_back(versions)
        self.lost = self.taken > self.server.newest
        if watching(self) and error is not None:
            self.watch_ends(error, True, True)

    @precondition(lambda self: self.server.served and not self.lost)
    @rule()
    def go_away(self) -> None:
        self.server.go_away()

    @precondition(lambda self: not self.server.served)
    @rule()
    def come_again(self) -> None:
        self.server.come_again()

    @rule(streams=st.sampled_from(["yes", "yes", "refused", "ignored"]))
    def upgrade(self, streams: str) -> None:
        self.server.streams = streams

    # ------------------------------------------------------------ lists

    @precondition(listing)
    @rule(size=st.sampled_from([None, 1, 1, 2]), staleness=STALENESS, unread=UNREADABLE)
    def list_page(
        self, size: int | None, staleness: int, unread: frozenset[str]
    ) -> None:
        """Respond with a page; a token names its version and the last object."""
        assert isinstance(self.phase, Listing)
        options = list_options(self.phase, size)
        try:
            version, after = self.server.list_from(options, staleness)
        except ApiError as exc:
            self.happens(ListFailed(exc))
            return

        page, token = self.server.page(version, after, options.limit)
        self.stage([obj for obj in page if obj.key not in unread])
        skipped = unread & {obj.key for obj in page}
        self.unread_in_list |= skipped
        self.staged |= {key: self.store[key] for key in skipped if key in self.store}
        # A further page may name a later version, which is not that of its objects.
        named = max(version, self.server.newest) if options.continue_token else version
        self.happens(PageListed(str(named), token))

    @precondition(listing)
    @rule(error=ANY_ERROR, half=st.booleans())
    def list_fails(self, error: Exception, half: bool) -> None:
        if half:
            self.stage(list(self.server.states[-1].values())[:1])

        self.happens(ListFailed(error))

    @precondition(
        lambda self: isinstance(self.phase, Listing) and not self.server.served
    )
    @rule()
    def absent_for_long(self) -> None:
        self.happens(ListFailed(ERRORS["404"][0], absent=True))

    # ------------------------------------------------------------ lists as streams

    @precondition(streaming)
    @rule(
        staleness=STALENESS,
        sizes=st.lists(st.integers(1, 3), max_size=4),
        cut=st.none() | st.integers(0, 8),
    )
    def stream(self, staleness: int, sizes: list[int], cut: int | None) -> None:
        """Respond with a stream: the objects, later changes, and perhaps the end."""
        assert isinstance(self.phase, Listing)
        try:
            options = stream_options(self.phase, 300)
            version = self.server.stream_from(options, staleness)
        except ApiError as exc:
            self.happens(ListFailed(exc))
            return

        events = [
            *(
                WatchEvent(EventType.ADDED, obj)
                for obj in reversed(self.server.state(version).values())
            ),
            *self.server.since(version),
        ]
        if self.server.streams == "yes":
            end = end_of_initial_events(self.server.newest)
            events += [bookmark(self.server.newest), end]

        initial = InitialEvents()
        for batch in batches(events[:cut], sizes):
            portion = initial.take(batch, 0.0)
            self.stage(portion.present)
            self.staged = {
                key: obj
                for key, obj in self.staged.items()
                if key not in portion.deleted
            }

        if initial.complete:
            self.happens(StreamListed(initial.version))
        else:
            self.stream_fails(TransportError("cut"), cut is not None, cut is None)

    @precondition(streaming)
    @rule(error=ANY_ERROR, established=st.booleans())
    def stream_breaks(self, error: Exception, established: bool) -> None:
        self.stream_fails(error, established, False)

    def stream_fails(self, error: Exception, established: bool, endless: bool) -> None:
        self.happens(ListFailed(error, established or endless, endless))

    # ------------------------------------------------------------ watches

    @precondition(lambda self: watching(self) and not self.lost)
    @rule(
        number=st.integers(1, 4),
        marked=st.booleans(),
        repeated=st.integers(0, 2),
        unread=UNREADABLE,
    )
    def watch_batch(
        self, number: int, marked: bool, repeated: int, unread: frozenset[str]
    ) -> None:
        """Deliver some events, perhaps the last one again, perhaps with a bookmark.

        Unreadable objects, and those of another kind, are removed before.
        """
        try:
            self.server.check_watch(self.taken)
        except ApiError as exc:
            self.happens(WatchEnded(str(self.taken), exc, established=False))
            return

        events = self.server.since(self.taken)[:number]
        reached = self.taken + len(events)
        for event in events:
            # The next state of an object supersedes it.
            key = event.object.key
            (self.unread.add if key in unread else self.unread.discard)(key)

        events = [event for event in events if event.object.key not in unread]
        if marked:
            events.append(bookmark(reached))

        last = self.last_event()
        again = [] if last is None else [last] * repeated
        self.take(again + events, duplicates=len(again))

    def last_event(self) -> WatchEvent | None:
        """Return the version up to which everything was received, if it can be reused."""
        if self.taken == FIRST:
            return None

        last = self.server.since(self.taken - 1)[0]
        known = self.store.get(last.object.key)
        same = known is not None and same_state(known, last.object)
        return last if same else None

    @precondition(lambda self: watching(self) and self.lost)
    @rule(number=st.integers(0, 3), marked=st.booleans())
    def watch_from_the_future(self, number: int, marked: bool) -> None:
        """Return whether a version of the server is below the known one."""
        newest = self.server.newest
        events = self.server.since(max(newest - number, FIRST))
        if marked:
            events = [*events, bookmark(newest)]

        result = to_changes(events, str(self.taken), self.store.get)
        silent = HistoryReset(f"the newest version is {newest}")
        assert result.version == str(self.taken)
        assert isinstance(result.error, HistoryReset) or not marked
        self.happens(WatchEnded(result.version, result.error or silent))

    @precondition(watching)
    @rule(
        error=st.none() | ANY_ERROR,
        established=st.booleans(),
        persistent=st.booleans(),
    )
    def watch_ends(
        self, error: Exception | None, established: bool, persistent: bool
    ) -> None:
        accepted = established or error is None
        self.happens(WatchEnded(str(self.taken), error, accepted, persistent))

    # ------------------------------------------------------------ the client

    def stage(self, objects: Sequence[KubeObject]) -> None:
        """Apply as a store does: known states are kept."""
        assert isinstance(self.phase, Listing)
        for obj in objects:
            old = self.store.get(obj.key)
            keep = (
                old is not None
                and same_state(old, obj)
                and (not self.phase.after_reset or old == obj)
            )
            self.staged[obj.key] = old if keep and old is not None else obj

    def take(self, events: list[WatchEvent], *, duplicates: int) -> None:
        result = to_changes(events, str(self.taken), self.store.get)
        assert result.error is None, "this server's history is not broken"
        bookmarks = sum(event.type == "BOOKMARK" for event in events)
        assert result.duplicates == duplicates
        assert len(result.deltas) == len(events) - duplicates - bookmarks
        for delta in result.deltas:
            if delta.type == "Deleted":
                self.store.pop(delta.object.key, None)
            else:
                self.store[delta.object.key] = delta.object

        self.taken = int(result.version)

    def happens(self, outcome: Input) -> None:
        """Act as the reflector does."""
        before = self.phase
        self.phase, actions = advance(before, outcome)
        for action in actions:
            match action:
                case Commit(version=version):
                    assert isinstance(before, Listing)
                    self.commit(version, before)
                case Discard():
                    self.staged, self.unread_in_list = {}, set()
                case Clear():
                    assert not self.server.served
                    self.store, self.unread = {}, set()
                    self.taken, self.lost = 0, False
                case Extend():
                    raise AssertionError("the selection does not change here")
                case Report(error=error):
                    said = getattr(outcome, "error", None)
                    assert error is said or (said is None and self.lost)

    def commit(self, version: str, listing: Listing) -> None:
        assert self.phase == Watching(version, listing.streaming or listing.detour)
        assert self.lost is (int(version) < self.taken)
        assert listing.after_reset or not self.lost
        self.store, self.staged = self.staged, {}
        self.unread, self.unread_in_list = self.unread_in_list, set()
        self.taken, self.lost = int(version), False

    # ------------------------------------------------------------ invariants

    @invariant()
    def nothing_is_staged_but_in_the_middle_of_a_list(self) -> None:
        if not (isinstance(self.phase, Listing) and self.phase.token):
            assert not self.staged
            assert not self.unread_in_list

    @invariant()
    def lists_are_streams_only_if_they_are_to_be(self) -> None:
        phase = self.phase
        if isinstance(phase, Listing):
            assert not (phase.streaming and (phase.token or phase.detour))
            assert self.wanted or not (phase.streaming or phase.detour or phase.broken)

    @invariant()
    def the_store_is_a_state_of_the_server(self) -> None:
        """Assert the exact state of its version: nothing lost, nothing left over."""
        if self.taken and not self.lost:
            state = self.server.state(self.taken)
            assert readable(self.store, self.unread) == readable(state, self.unread)

    def teardown(self) -> None:
        """Let all requests succeed, and assert a sync within a minimum of steps.

        At most: the watch ends, streaming is refused, the list has an expired version,
        it is older than the known one, it succeeds, and so does the watch.
        """
        self.server.come_again()
        for _ in range(6):
            if streaming(self):
                self.stream(0, [], None)
            elif listing(self):
                self.list_page(None, 0, frozenset())
            elif self.lost:
                self.watch_from_the_future(0, False)
            elif self.taken < self.server.newest:
                self.watch_batch(self.server.newest, False, 0, frozenset())

        assert isinstance(self.phase, Watching)
        assert self.taken == self.server.newest
        assert readable(self.store, self.unread) == readable(
            self.server.states[-1], self.unread
        )


def batches(events: list[WatchEvent], sizes: list[int]) -> list[list[WatchEvent]]:
    """Split events into batches of these sizes, and one with the rest."""
    cut = []
    for size in sizes:
        cut.append(events[:size])
        events = events[size:]

    return [batch for batch in [*cut, events] if batch]


def readable(state: State, unread: set[str]) -> State:
    return {key: obj for key, obj in state.items() if key not in unread}


AnySequence.TestCase.settings = examples(50, stateful_step_count=40)
TestAnySequence = AnySequence.TestCase
