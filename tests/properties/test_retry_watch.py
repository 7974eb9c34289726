"""`RetryWatch` yields each event once, for any cuts, repetitions and bookmarks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

from fake_source import (
    END,
    FakeSource,
    Stream,
    added,
    bookmark,
    deleted,
    error_event,
    modified,
    thing,
)
from hypothesis import given
from hypothesis import strategies as st
from informer_helpers import Even

from aioinformer.errors import DecodeError, ServerError, TransportError
from aioinformer.watch import EventType, RetryWatch
from examples import examples

if TYPE_CHECKING:
    from fake_source import Step

    from aioinformer.watch import WatchEvent, WatchOptions

FOREVER = 1e6
CHANGES = [added, modified, deleted]

# A history: distances between the versions of its events, and their types.
histories = st.lists(
    st.tuples(st.integers(1, 30), st.sampled_from(CHANGES)), max_size=12
)

END_OF_WATCH: list[Step] = [
    END,
    TransportError("broken"),
    DecodeError("what?"),
    [error_event(500)],
    [error_event(504, details={"retryAfterSeconds": 3})],
]


class Answer:
    """Script of one watch: changes to the events it would deliver."""

    def __init__(
        self, cut: int, batch: int, back: int, bookmarks: list[int], end: Step
    ) -> None:
        self.cut = cut
        """So many events of the rest of the history come."""
        self.batch = batch
        """So many of them at once."""
        self.back = back
        """So many events before are repeated first."""
        self.bookmarks = bookmarks
        """Behind which of its events there is a bookmark, of that or an older version."""
        self.end = end

    def __repr__(self) -> str:
        return f"Answer{vars(self)}"


answers = st.builds(
    Answer,
    cut=st.integers(0, 6),
    batch=st.integers(1, 4),
    back=st.integers(0, 4),
    bookmarks=st.lists(st.integers(0, 10), max_size=4),
    end=st.sampled_from(END_OF_WATCH),
)
refusals = st.sampled_from([TransportError("no"), ServerError("busy", status=503)])
Script: TypeAlias = "list[Answer | TransportError | ServerError]"


class Server(FakeSource):
    """A server that answers each watch from its history, as scripted."""

    def __init__(self, history: list[WatchEvent], script: Script) -> None:
        super().__init__()
        self.history = history
        self.script = script

    def watch(self, options: WatchOptions) -> Any:
        step = self.script.pop(0) if self.script else Answer(99, 99, 0, [], 1.0)
        known = [
            it for it in self.history if version_of(it) <= int(options.resource_version)
        ]
        if isinstance(step, Answer):
            self.watches.append(Stream(*self._steps(step, len(known))))
        else:
            self.watches.append(step)

        return super().watch(options)

    def _steps(self, answer: Answer, known: int) -> list[Step]:
        first, last = max(known - answer.back, 0), known + answer.cut
        events: list[WatchEvent] = []
        for number, event in enumerate(self.history[first:last]):
            events.append(event)
            if number in answer.bookmarks:
                events.append(bookmark(version_of(events[number // 2])))

            if number + 1 in answer.bookmarks:
                events.append(bookmark(version_of(event)))
                events.append(event)  # and once more

        steps: list[Step] = [
            events[start : start + answer.batch]
            for start in range(0, len(events), answer.batch)
        ]
        return [*steps, answer.end]


def version_of(event: WatchEvent) -> int:
    return int(event.object.resource_version)


@given(
    start=st.integers(1, 50),
    history=histories,
    old=st.integers(0, 4),
    script=st.lists(answers | refusals, max_size=8),
    stops=st.lists(st.integers(0, 40), max_size=4),
)
@examples(60)
async def test_each_event_after_the_first_version_is_yielded_once_and_in_order(
    start: int,
    history: list[tuple[int, type]],
    old: int,
    script: Script,
    stops: list[int],
) -> None:
    version, events = start, []
    for distance, change in history:
        version += distance
        events.append(change(thing(f"o{version}", version)))

    first = start if old >= len(events) or not old else version_of(events[old - 1])
    wanted = [event for event in events if version_of(event) > first]
    server = Server(events, script)
    got: list[WatchEvent] = []

    async with RetryWatch(server, str(first), rng=Even()) as watch:
        while len(got) < len(wanted):
            # A reader that is sometimes cancelled loses nothing, either.
            patience = stops.pop() / 10 if stops else FOREVER
            try:
                async with asyncio.timeout(patience):
                    got += await watch.next_batch()
            except TimeoutError:
                assert patience < FOREVER, f"waits for {wanted[len(got)]}"

    assert got == wanted
    assert EventType.ERROR not in {event.type for event in got}
    assert server.open == 0
    asked = [int(request.version) for request in server.requests]
    assert asked == sorted(asked), "versions of requests never decrease"
