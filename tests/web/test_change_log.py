"""`ChangeLog` and its readers, compared with a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pytest
from fake_source import thing
from hypothesis import given, settings
from hypothesis import strategies as st

from aioinformer.informer.notifications import Added, Deleted, Updated
from aioinformer.web.change_log import (
    OBJECTS_PER_STEP,
    PAGE,
    ChangeLog,
    Reader,
    StreamEvent,
    StreamEventType,
)
from aioinformer.web.selection import StreamSelection

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject

    Steps: TypeAlias = Sequence[tuple[object, ...]]

ALL = StreamSelection()
PUBLIC = StreamSelection.of(label_selector="public=yes")


def pod_of(name: str, version: int = 1, *, public: bool = True) -> KubeObject:
    labels = {"public": "yes" if public else "no"}
    return thing(name, version, f"uid-of-{name}", labels=labels)


def journal_of(*names: str, history: int = 1000) -> ChangeLog:
    journal = ChangeLog(history)
    for name in names:
        journal.apply(Added(pod_of(name), initial=True))

    return journal


def events_of(reader: Reader) -> list[str]:
    """Return all pending events."""
    found = []
    while reader.pending:
        it = reader.step()
        if it is not None:
            found.append(text_of(it))

    return found


def text_of(it: StreamEvent) -> str:
    if it.obj is None:
        return it.kind.value

    return f"{it.kind.value} {it.obj.name}@{it.obj.resource_version}"


def caught_up(journal: ChangeLog, selection: StreamSelection = ALL) -> Reader:
    reader = journal.reader(selection)
    events_of(reader)
    return reader


# ---------------------------------------------------------------- events


def test_new_reader_gets_all_objects() -> None:
    reader = journal_of("a", "b").reader(ALL)

    assert events_of(reader) == ["reset", "added a@1", "added b@1", "synced"]
    assert reader.step() is None


def test_changes_follow_synced_event() -> None:
    journal = journal_of("a")
    reader = caught_up(journal)

    journal.apply(Updated(pod_of("a"), pod_of("a", 2)))
    assert events_of(reader) == ["updated a@2"]
    journal.apply(Added(pod_of("b", 3)))
    assert events_of(reader) == ["added b@3"]
    journal.apply(Deleted(pod_of("a", 4)))
    assert events_of(reader) == ["deleted a@4"]


def test_resync_has_no_event() -> None:
    journal = journal_of("a")
    reader = caught_up(journal)

    journal.apply(Updated(pod_of("a"), pod_of("a"), resync=True))

    assert not reader.pending
    assert reader.reached == 1


def test_pending_events_are_merged_at_first_position() -> None:
    journal = journal_of("a", "b")
    reader = caught_up(journal)
    journal.apply(Updated(pod_of("a"), pod_of("a", 2)))
    journal.apply(Updated(pod_of("b"), pod_of("b", 3)))
    journal.apply(Updated(pod_of("a", 2), pod_of("a", 4)))

    assert events_of(reader) == ["updated a@4", "updated b@3"]


def test_object_added_and_deleted_before_send_has_no_events() -> None:
    journal = journal_of()
    reader = caught_up(journal)
    journal.apply(Added(pod_of("a")))
    journal.apply(Deleted(pod_of("a")))

    assert events_of(reader) == []


def test_recreated_object_is_another_object() -> None:
    journal = journal_of("a")
    reader = caught_up(journal)
    journal.apply(Deleted(pod_of("a")))
    journal.apply(Added(thing("a", 9, "another", labels={})))

    assert events_of(reader) == ["deleted a@1", "added a@9"]


def test_object_changed_before_it_is_sent_is_sent_once() -> None:
    journal = journal_of("a", "b", "c")
    reader = journal.reader(ALL)
    assert reader.step() == StreamEvent(StreamEventType.RESET)
    journal.apply(Updated(pod_of("a"), pod_of("a", 2)))
    journal.apply(Deleted(pod_of("b")))

    assert events_of(reader) == ["added c@1", "added a@2", "synced"]


def test_reader_that_has_not_begun_keeps_no_state() -> None:
    journal = journal_of("a", "b")
    news: list[bool] = []
    reader = journal.reader(ALL, on_news=lambda: news.append(True))
    journal.apply(Updated(pod_of("a"), pod_of("a", 2)))
    journal.apply(Deleted(pod_of("b")))

    assert (reader._order, reader._waiting, news) == ([], {}, [])
    assert events_of(reader) == ["reset", "added a@2", "synced"]


def test_change_wakes_only_readers_that_select_it() -> None:
    journal = journal_of()
    woken: list[str] = []
    for selection, name in ((ALL, "all"), (PUBLIC, "public")):
        reader = journal.reader(selection, on_news=partial(woken.append, name))
        events_of(reader)

    journal.apply(Added(pod_of("a")))
    assert woken == ["all", "public"]
    journal.apply(Added(pod_of("b", public=False)))
    assert woken == ["all", "public", "all"]


@pytest.mark.parametrize("count", [7, 8, 9, 100])
def test_unselected_objects_are_skipped_in_bounded_steps(count: int) -> None:
    journal = ChangeLog()
    for number in range(count):
        journal.apply(Added(pod_of(f"hidden-{number}", public=False), initial=True))

    journal.apply(Added(pod_of("last"), initial=True))
    checked = []

    def accepts(obj: KubeObject) -> bool:
        checked.append(obj)
        return PUBLIC(obj)

    reader = journal.reader(accepts)
    assert reader.step() == StreamEvent(StreamEventType.RESET)
    first = reader.step()
    assert len(checked) == min(OBJECTS_PER_STEP, count + 1)
    assert (first is not None) is (count < OBJECTS_PER_STEP)
    assert first is None or text_of(first) == "added last@1"
    assert events_of(reader) == ["added last@1", "synced"][count < OBJECTS_PER_STEP :]


def test_readers_of_equal_selections_share_match() -> None:
    checked = 0

    @dataclass(frozen=True)
    class Counted:
        selection: StreamSelection

        def __call__(self, obj: KubeObject) -> bool:
            nonlocal checked
            checked += 1
            return self.selection(obj)

    journal = journal_of("a")
    readers = [journal.reader(Counted(PUBLIC)) for _ in range(100)]
    for reader in readers:
        events_of(reader)

    checked = 0
    journal.apply(Updated(pod_of("a"), pod_of("a", 2, public=False)))
    assert [events_of(it) for it in readers] == [["deleted a@1"]] * 100
    assert checked == 2, "as it was, and as it is"


def test_each_step_of_resume_matches_few_departures() -> None:
    names = [f"pod-{number}" for number in range(200)]
    journal = journal_of(*names)
    checked = 0

    def accepts(_: KubeObject) -> bool:
        nonlocal checked
        checked += 1
        return True

    for name in names:
        journal.apply(Deleted(pod_of(name)))

    reader = journal.reader(accepts, since=200)
    most, found = 0, 0
    while reader.pending:
        before = checked
        found += reader.step() is not None
        most = max(most, checked - before)

    assert found == 201
    assert most <= 2 * OBJECTS_PER_STEP


def test_reader_keeps_one_page_of_uids() -> None:
    count = 2 * PAGE + 10
    journal = journal_of(*(f"pod-{number}" for number in range(count)))
    reader = journal.reader(ALL)
    found: list[str] = []
    longest = 0
    while reader.pending:
        if len(found) == PAGE // 2:
            journal.apply(Updated(pod_of("pod-0"), pod_of("pod-0", 2)))
            journal.apply(Deleted(pod_of(f"pod-{count - 1}")))
            found.append("changed")

        it = reader.step()
        found += [] if it is None else [text_of(it)]
        longest = max(longest, len(reader._order))

    assert longest == PAGE
    assert found[-2:] == ["updated pod-0@2", "synced"]
    assert len([it for it in found if it.startswith("added")]) == count - 1
    assert len(set(found)) == len(found)


def test_object_leaving_selection_is_deleted_with_last_state() -> None:
    journal = journal_of("a")
    reader = caught_up(journal, PUBLIC)
    journal.apply(Updated(pod_of("a"), pod_of("a", 2)))
    journal.apply(Updated(pod_of("a", 2), pod_of("a", 3, public=False)))
    journal.apply(Updated(pod_of("a", 3, public=False), pod_of("a", 4, public=False)))

    assert events_of(reader) == ["deleted a@2"]


def test_never_selected_object_has_no_events() -> None:
    journal = ChangeLog()
    hidden = pod_of("a", public=False)
    journal.apply(Added(hidden, initial=True))
    reader = caught_up(journal, PUBLIC)
    journal.apply(Updated(hidden, pod_of("a", 2, public=False)))
    journal.apply(Deleted(pod_of("a", 3, public=False)))

    assert events_of(reader) == []
    assert events_of(journal.reader(PUBLIC, since=1)) == ["synced"]


def test_dismissed_reader_keeps_no_state() -> None:
    journal = journal_of("a")
    reader = caught_up(journal)
    journal.dismiss(reader)
    journal.apply(Added(pod_of("b")))

    assert not reader.pending


def test_reader_with_too_many_departures_is_reset() -> None:
    names = [f"pod-{number}" for number in range(10)]
    journal = journal_of(*names, history=3)
    reader = caught_up(journal)
    for name in names[:4]:
        journal.apply(Deleted(pod_of(name)))

    assert events_of(reader)[0] == "reset"
    assert not reader.pending


# ---------------------------------------------------------------- where it was


def test_resumed_reader_gets_missed_changes() -> None:
    journal = journal_of("a", "b", "c")
    before = caught_up(journal)
    assert before.reached == 3
    journal.dismiss(before)
    journal.apply(Updated(pod_of("a"), pod_of("a", 2)))
    journal.apply(Deleted(pod_of("b")))
    journal.apply(Added(pod_of("d", 4)))

    reader = journal.reader(ALL, since=3)

    assert events_of(reader) == ["updated a@2", "added d@4", "deleted b@1", "synced"]
    assert reader.reached == 6


@pytest.mark.parametrize("since", [-1, 5, 10**30])
def test_unknown_position_is_reset(since: int) -> None:
    journal = journal_of("a")
    for version in range(2, 5):
        journal.apply(Updated(pod_of("a", version - 1), pod_of("a", version)))

    assert events_of(journal.reader(ALL, since)) == ["reset", "added a@4", "synced"]


def test_position_before_forgotten_departure_is_unknown() -> None:
    journal = journal_of("a", "b", "c", history=2)
    for name in ("a", "b", "c"):
        journal.apply(Deleted(pod_of(name)))

    assert not journal.knows(3)
    assert journal.knows(4)
    assert events_of(journal.reader(ALL, 4)) == ["deleted b@1", "deleted c@1", "synced"]
    assert events_of(journal.reader(ALL, 3)) == ["reset", "synced"]


def test_deletion_of_object_in_flight_is_sent_after_resume() -> None:
    journal = ChangeLog()
    hidden = pod_of("b", public=False)
    for obj in (pod_of("a"), hidden):
        journal.apply(Added(obj, initial=True))

    before = caught_up(journal, PUBLIC)
    journal.apply(Updated(hidden, pod_of("b", 2)))
    journal.apply(Deleted(pod_of("a")))
    assert before.step() == StreamEvent(
        StreamEventType.ADDED, journal.live["uid-of-b"].obj
    )
    assert before.reached is None, "so the place is still the first one"

    reader = journal.reader(PUBLIC, since=2)
    assert reader.step() is None, "it has begun"
    journal.apply(Deleted(pod_of("b", 2)))

    assert sorted(events_of(reader)) == ["deleted a@1", "deleted b@2", "synced"]


def test_updates_do_not_count_against_history() -> None:
    journal = journal_of("a", history=2)
    for version in range(2, 100):
        journal.apply(Updated(pod_of("a", version - 1), pod_of("a", version)))

    assert events_of(journal.reader(ALL, 1)) == ["updated a@99", "synced"]


# ---------------------------------------------------------------- all of it


@dataclass
class Browser:
    """Objects of a page, and its source of events."""

    journal: ChangeLog
    selection: StreamSelection
    shown: dict[str, KubeObject] = field(default_factory=dict)
    last_id: int | None = None
    strict: bool = True
    """The connection knows exactly what is shown: nothing was on its way."""

    def __post_init__(self) -> None:
        self.reader = self.journal.reader(self.selection)

    def read(self, steps: int) -> None:
        for _ in range(steps):
            if not self.reader.pending:
                return

            it = self.reader.step()
            if it is not None:
                self.take(it)
                reached = self.reader.reached
                if reached is not None:
                    self.last_id = reached

    def take(self, it: StreamEvent) -> None:
        if it.kind is StreamEventType.RESET:
            self.shown.clear()
            self.strict = True
        elif it.kind is StreamEventType.SYNCED:
            assert self.shown.keys() == self.truth().keys()
            self.strict = True
        else:
            assert it.obj is not None
            uid, known = it.obj.uid, it.obj.uid in self.shown
            assert self.selection(it.obj)
            if self.strict:
                assert known is (it.kind is not StreamEventType.ADDED)

            if it.kind is StreamEventType.DELETED:
                self.shown.pop(uid, None)
            else:
                assert it.obj is self.journal.live[uid].obj
                self.shown[uid] = it.obj

    def reconnect(self) -> None:
        self.journal.dismiss(self.reader)
        self.strict = False
        self.reader = self.journal.reader(self.selection, self.last_id)

    def truth(self) -> dict[str, KubeObject]:
        return {
            uid: entry.obj
            for uid, entry in self.journal.live.items()
            if self.selection(entry.obj)
        }


@dataclass
class World:
    """Generate changes of pods, with two browsers that read them."""

    history: int
    count: int = 0

    def __post_init__(self) -> None:
        self.journal = ChangeLog(self.history)
        self.pods: dict[str, KubeObject] = {}
        for name in ("a", "b"):
            self.pods[name] = self.make(name, name == "a")
            self.journal.apply(Added(self.pods[name], initial=True))

        self.browsers = [Browser(self.journal, it) for it in (ALL, PUBLIC)]

    def make(self, name: str, public: bool, uid: str = "") -> KubeObject:
        self.count += 1
        labels = {"public": "yes" if public else "no"}
        return thing(name, self.count, uid or f"{name}-{self.count}", labels=labels)

    def change(self, name: str, public: bool, halfway: Steps = ()) -> None:
        old = self.pods.get(name)
        new = self.pods[name] = self.make(name, public, old.uid if old else "")
        self.apply(Updated(old, new) if old else Added(new), halfway)

    def delete(self, name: str, halfway: Steps = ()) -> None:
        if name in self.pods:
            self.apply(Deleted(self.pods.pop(name)), halfway)

    def apply(self, event: Notification, halfway: Steps) -> None:
        """Apply an event. Between its steps, readers read, resume and start."""
        todo = list(halfway)
        for _ in self.journal.applying(event):
            if todo:
                self.act(todo.pop(0))

    def act(self, step: tuple[object, ...]) -> None:
        match step:
            case ("read", int(number), int(count)):
                self.browsers[number].read(count)
            case ("reconnect", int(number)):
                self.browsers[number].reconnect()
            case _:
                raise AssertionError(step)


names = st.sampled_from("abc")
readings = st.one_of(
    st.tuples(st.just("read"), st.sampled_from([0, 1]), st.integers(1, 4)),
    st.tuples(st.just("reconnect"), st.sampled_from([0, 1])),
)
halfway = st.lists(readings, max_size=4)
steps = st.one_of(
    st.tuples(st.just("change"), names, st.booleans(), halfway),
    st.tuples(st.just("delete"), names, halfway),
    readings,
)


@settings(max_examples=400)
@given(
    history=st.integers(1, 4),
    page=st.sampled_from([1, 2, PAGE]),
    script=st.lists(steps, max_size=25),
)
def test_page_shows_current_objects_after_any_changes(
    history: int, page: int, script: list[tuple[object, ...]]
) -> None:
    world = World(history)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aioinformer.web.change_log.PAGE", page)
        for step in script:
            match step:
                case ("change", str(name), bool(public), list(between)):
                    world.change(name, public, between)
                case ("delete", str(name), list(between)):
                    world.delete(name, between)
                case _:
                    world.act(step)

        for browser in world.browsers:
            browser.read(1000)

    for browser in world.browsers:
        assert browser.shown == browser.truth()
        assert browser.reader.reached == world.journal.number
