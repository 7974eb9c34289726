"""Any legal sequence of answers brings the machine to the state of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fake_source import added, bookmark, deleted, modified, thing
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aioinformer.errors import (
    ApiError,
    DecodeError,
    Forbidden,
    NotFound,
    ResourceExpired,
    ServerError,
    TransportError,
)
from aioinformer.informer.machine import (
    Commit,
    Discard,
    Input,
    ListFailed,
    Listing,
    PageListed,
    Report,
    WatchEnded,
    Watching,
    advance,
    list_options,
    sift,
)

if TYPE_CHECKING:
    from aioinformer.informer.machine import Phase
    from aioinformer.model import KubeObject
    from aioinformer.watch import ListOptions, WatchEvent

# Names are few, so that they come, go, and come again under another uid.
NAMES = "abcd"
KEYS = {f"default/{name}" for name in NAMES}

# What may end a list or a watch, whatever the server holds.
ERRORS: list[Exception] = [
    TransportError("broken"),
    DecodeError("unreadable"),
    ApiError("?", status=405),
    Forbidden("no", status=403),
    NotFound("not served", status=404),
    ServerError("busy", status=503),
    ResourceExpired("too old", status=410),
]

State = dict[str, "KubeObject"]


class Server:
    """Keeps every state it was in, and the events between them."""

    def __init__(self) -> None:
        self.states: list[State] = [{}]
        self.events: list[WatchEvent] = []
        self.oldest = 0
        """Events behind this version can be watched; versions count from 0."""

    @property
    def newest(self) -> int:
        return len(self.events)

    def write(self, name: str) -> None:
        version = self.newest + 1
        before = self.states[-1].get(f"default/{name}")
        uid = before.uid if before is not None else f"uid-{version}"
        obj = thing(name, version, uid)
        self._next(added(obj) if before is None else modified(obj), obj.key, obj)

    def delete(self, name: str) -> None:
        gone = self.states[-1].get(f"default/{name}")
        if gone is not None:
            obj = thing(name, self.newest + 1, gone.uid)
            self._next(deleted(obj), obj.key, None)

    def _next(self, event: WatchEvent, key: str, obj: KubeObject | None) -> None:
        state = {k: v for k, v in self.states[-1].items() if k != key}
        self.states.append(state if obj is None else state | {key: obj})
        self.events.append(event)

    def state_for(self, options: ListOptions, staleness: int) -> int:
        """The version of the state in which such a list may be answered."""
        match options.resource_version, options.resource_version_match:
            case "", "":
                return self.newest
            case "0", "":
                return max(self.newest - staleness, 0)
            case version, "NotOlderThan":
                return max(self.newest - staleness, int(version))
            case unknown:
                raise AssertionError(unknown)


class AnySequence(RuleBasedStateMachine):
    """Writes to the server, and answers to what the machine asks, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.server = Server()
        self.phase: Phase = Listing()
        self.store: State = {}
        self.staged: State = {}
        self.page_size = 0
        self.taken = 0
        """Of the running watch, the version up to which it has been taken."""

    # ------------------------------------------------------------ the server

    @rule(name=st.sampled_from(NAMES))
    def write(self, name: str) -> None:
        self.server.write(name)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        self.server.delete(name)

    @rule(keep=st.integers(0, 3))
    def compact(self, keep: int) -> None:
        self.server.oldest = max(self.server.oldest, self.server.newest - keep)

    # ------------------------------------------------------------ lists

    @precondition(lambda self: isinstance(self.phase, Listing))
    @rule(size=st.none() | st.integers(1, 3), staleness=st.integers(0, 3))
    def list_page(self, size: int | None, staleness: int) -> None:
        """Answer with a page; a token says of which state, and behind which object."""
        assert isinstance(self.phase, Listing)
        options = list_options(self.phase, size)
        if options.continue_token:
            version, _, after = options.continue_token.partition(":")
            state = int(version)
            if state < self.server.oldest:
                self.happens(ListFailed(ResourceExpired("too old", status=410)))
                return
        else:
            state, after = self.server.state_for(options, staleness), ""

        keys = sorted(key for key in self.server.states[state] if key > after)
        page = keys[: options.limit or None]
        self.staged |= {key: self.server.states[state][key] for key in page}
        token = f"{state}:{page[-1]}" if len(page) < len(keys) else ""
        self.happens(PageListed(str(state), token))

    @precondition(lambda self: isinstance(self.phase, Listing))
    @rule(error=st.sampled_from(ERRORS), half=st.booleans())
    def list_fails(self, error: Exception, half: bool) -> None:
        if half:
            self.staged |= dict(list(self.server.states[-1].items())[:1])

        self.happens(ListFailed(error))

    # ------------------------------------------------------------ watches

    @precondition(lambda self: isinstance(self.phase, Watching))
    @rule(
        number=st.integers(1, 4),
        marked=st.booleans(),
        repeated=st.integers(0, 2),
    )
    def watch_batch(self, number: int, marked: bool, repeated: int) -> None:
        """Some events arrive, perhaps the last one again, perhaps with a bookmark."""
        if self.expired():
            self.watch_ends(ResourceExpired("too old", status=410))
            return

        events = self.server.events[self.taken : self.taken + number]
        if marked:
            events = [*events, bookmark(self.taken + len(events))]

        last = self.server.events[self.taken - 1] if self.taken else None
        known = last is not None and last.object.key in self.store
        if last is not None and known and repeated:
            events = [last] * repeated + events

        self.take(events, duplicates=repeated if known else 0)

    @precondition(lambda self: isinstance(self.phase, Watching))
    @rule(error=st.none() | st.sampled_from(ERRORS))
    def watch_ends(self, error: Exception | None) -> None:
        self.happens(WatchEnded(str(self.taken), error))

    def expired(self) -> bool:
        return self.taken < self.server.oldest

    # ------------------------------------------------------------ the client

    def take(self, events: list[WatchEvent], *, duplicates: int) -> None:
        result = sift(events, str(self.taken), self.store.get)
        assert result.error is None, "this server's history is never broken"
        changes = [event for event in events if event.type != "BOOKMARK"]
        assert result.duplicates == duplicates
        assert len(result.deltas) == len(changes) - duplicates
        for delta in result.deltas:
            if delta.type == "Deleted":
                del self.store[delta.object.key]
            else:
                self.store[delta.object.key] = delta.object

        self.taken = int(result.version)

    def happens(self, outcome: Input) -> None:
        """What the reflector does."""
        before = self.phase
        self.phase, actions = advance(before, outcome)
        for action in actions:
            match action:
                case Commit(version=version):
                    assert isinstance(self.phase, Watching)
                    assert version == self.phase.version
                    self.store, self.staged = self.staged, {}
                case Discard():
                    self.staged = {}
                case Report(error=error):
                    assert error is getattr(outcome, "error", None)

        if isinstance(self.phase, Watching):
            reached = int(self.phase.version)
            assert reached >= self.taken, "it went back in time"
            self.taken = reached

    # ------------------------------------------------------------ what always holds

    @invariant()
    def nothing_is_staged_but_in_the_middle_of_a_list(self) -> None:
        if not (isinstance(self.phase, Listing) and self.phase.token):
            assert not self.staged

    @invariant()
    def a_watched_store_is_a_state_of_the_server(self) -> None:
        """Exactly the one of its version: nothing lost, nothing left over."""
        if isinstance(self.phase, Watching):
            assert self.store == self.server.states[self.taken]

    def teardown(self) -> None:
        """From here on all goes well: it must arrive, in as few steps as it can."""
        for _ in range(len(KEYS) + 3):
            if isinstance(self.phase, Listing):
                self.list_page(None, 0)
            elif self.taken < self.server.newest:
                self.watch_batch(self.server.newest, marked=False, repeated=0)

        assert isinstance(self.phase, Watching)
        assert self.taken == self.server.newest
        assert self.store == self.server.states[-1]


AnySequence.TestCase.settings = settings(max_examples=200, stateful_step_count=30)
TestAnySequence = AnySequence.TestCase
