"""Coalescing: a handler with merged events ends with the same state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fake_source import thing
from hypothesis import example, given
from hypothesis import strategies as st

from aioinformer.informer import Added, Deleted, Updated
from aioinformer.informer.handlers.inbox import CoalescingInbox
from aioinformer.informer.notifications import object_of
from examples import examples

if TYPE_CHECKING:
    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject

STEPS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from(["write", "write", "delete", "lose", "replace", "resync"]),
        # Number of events taken at a time.
        st.sampled_from([0, 0, 0, 1, 2, 9]),
    ),
    max_size=40,
)


class History:
    """Random events of a server about a few objects."""

    def __init__(self) -> None:
        self.objects: dict[str, KubeObject] = {}
        self.version = 0

    def step(self, name: str, how: str) -> list[Notification]:
        self.version += 1
        old = self.objects.get(name)
        if how == "resync" and old is not None:
            return [Updated(old, old, True)]

        if how in {"delete", "lose", "resync"}:
            if old is None:
                return []

            del self.objects[name]
            unseen = how == "lose"
            last = old if unseen else thing(name, self.version, old.uid)
            return [Deleted(last, unseen)]

        another = old is None or how == "replace"
        uid = f"uid-{self.version}" if another or old is None else old.uid
        new = self.objects[name] = thing(name, self.version, uid)
        if old is None:
            return [Added(new)]

        return [Deleted(old, True), Added(new)] if another else [Updated(old, new)]


def folded(events: list[Notification]) -> dict[str, KubeObject]:
    """Return the state after these events; raise on contradictions."""
    held: dict[str, KubeObject] = {}
    for event in events:
        match event:
            case Added(obj):
                assert obj.key not in held
                held[obj.key] = obj
            case Updated(old, new):
                assert held[old.key] == old
                held[new.key] = new
            case Deleted(obj):
                assert held.pop(obj.key).uid == obj.uid

    return held


async def take(inbox: CoalescingInbox, most: int) -> list[Notification]:
    """Return the next few events, in bursts like those of a listener."""
    received: list[Notification] = []
    while inbox.depth and len(received) < most:
        for event in await inbox.take():
            assert event is not None
            received.append(event)
            inbox.delivered += 1
            if len(received) == most:
                break

    return received


@examples(60)
@given(steps=STEPS)
@example(steps=[("a", "write", 0), ("a", "delete", 0), ("a", "write", 0)])
@example(steps=[("a", "write", 1), ("a", "replace", 0), ("a", "delete", 0)])
async def test_coalesced_events_equal_coalesced_history(
    steps: list[tuple[str, str, int]],
) -> None:
    history, inbox = History(), CoalescingInbox()
    everything: list[Notification] = []
    received: list[Notification] = []

    for name, how, taken in steps:
        events = history.step(name, how)
        if events:
            inbox.put(events, 0.0)

        everything += events
        received += await take(inbox, taken)

    received += await take(inbox, 10**9)

    assert folded(received) == folded(everything)
    assert (inbox.depth, inbox.finished) == (0, inbox.queued)


@examples(50)
@given(steps=STEPS)
async def test_coalescing_queue_holds_at_most_two_events_per_object(
    steps: list[tuple[str, str, int]],
) -> None:
    history, inbox = History(), CoalescingInbox()
    for name, how, _ in steps:
        if events := history.step(name, how):
            inbox.put(events, 0.0)

    await inbox.merge()
    left = inbox.depth
    received = await take(inbox, 10**9)

    names = [object_of(event).name for event in received]
    assert left == len(received)
    assert all(names.count(name) <= 2 for name in names)
    twice = [event for event in received if names.count(object_of(event).name) == 2]
    for name in {object_of(event).name for event in twice}:
        first, second = (it for it in twice if object_of(it).name == name)
        assert isinstance(first, Deleted)
        assert isinstance(second, Added)
