"""Rows of the live table: order, filter, and marks."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from conftest import pod
from hypothesis import given
from hypothesis import strategies as st

from aioinformer.model import KubeObject
from aioinformer.model.resources import PODS
from aioinformer.model.times import kube_time
from aioinformer.tables.columns import Columns
from aioinformer.tables.rows import (
    BY_CHANGE,
    MARKED_SECONDS,
    Arrangement,
    TableRows,
    sort_value,
)

if TYPE_CHECKING:
    from aioinformer.tables.rows import ChangeMark

DAY = datetime(2026, 1, 1, tzinfo=UTC)


def thing(key: str, *, hours: float = 1, restarts: int = 0, **more: Any) -> KubeObject:
    namespace, _, name = key.rpartition("/")
    born = kube_time(DAY - timedelta(hours=hours))
    status = {"containerStatuses": [{"name": "main", "restartCount": restarts}]}
    metadata = {"creationTimestamp": born}
    return KubeObject.of(
        {**pod(name, namespace, metadata=metadata), "status": {**status, **more}}
    )


class Table:
    """Rows that receive changes, and are always placed."""

    def __init__(self, *listed: str | KubeObject) -> None:
        self.reverse = False
        self.stored: dict[str, KubeObject] = {}
        columns = Columns(PODS, wide=False, namespaces=True)
        self.rows = TableRows(columns, self.stored.get, rearranged=True)
        for it in listed:
            obj = thing(it) if isinstance(it, str) else it
            self.put(obj, "", 0.0)

    def put(self, obj: KubeObject, mark: ChangeMark, now: float) -> None:
        self.stored[obj.key] = obj
        self.rows.note(obj, mark, now)

    def add(self, key: str, now: float) -> None:
        self.put(thing(key), "added", now)

    def change(self, key: str, now: float, **more: Any) -> None:
        self.put(thing(key, **more), "modified", now)

    def delete(self, key: str, now: float) -> None:
        self.rows.note(self.stored.pop(key), "deleted", now)

    def arrange(self, sort: str, *, reverse: bool = False, words: str = "") -> None:
        self.reverse = reverse
        self.rows.arrange(Arrangement(sort, reverse, words))

    def shown(
        self, now: float = 100.0, room: int = 100, offset: int = 0, day: datetime = DAY
    ) -> list[str]:
        while not self.rows.place(now, day):
            pass

        return [
            f"{it.mark} {it.obj.key}".strip()
            for it in self.rows.rows(offset, room, now, reverse=self.reverse)
        ]


def test_rows_are_ordered_by_namespace_then_name() -> None:
    table = Table("b/a", "a-b/c", "a/z", "a/b")

    assert table.shown() == ["a/b", "a/z", "a-b/c", "b/a"]


def test_objects_of_the_first_list_are_not_marked_as_changes() -> None:
    table = Table("a/b")

    assert (table.shown(0.0), table.rows.events) == (["a/b"], 0)


def test_changes_are_marked_for_two_seconds() -> None:
    table = Table("a/1", "a/2", "a/3")
    table.change("a/1", 10.0)
    table.add("a/4", 10.0)
    table.delete("a/2", 10.0)

    marked = ["modified a/1", "deleted a/2", "a/3", "added a/4"]
    assert table.shown(10.0 + MARKED_SECONDS - 0.1) == marked
    assert table.shown(10.0 + MARKED_SECONDS) == ["a/1", "a/3", "a/4"]
    assert (table.rows.events, table.rows.objects) == (3, 3)


def test_deleted_object_does_not_count_while_it_is_shown() -> None:
    table = Table("a/1", "a/2")
    table.delete("a/1", 10.0)

    assert table.shown(10.0) == ["deleted a/1", "a/2"]
    assert (table.rows.objects, len(table.rows)) == (1, 2)
    assert table.rows.matching == 1


def test_matching_counts_what_the_filter_shows_without_deleted_objects() -> None:
    table = Table("a/web-1", "a/web-2", "a/db-1")
    table.arrange("NAME", words="web")
    table.delete("a/web-1", 10.0)
    table.delete("a/db-1", 10.0)

    assert table.shown(10.0) == ["deleted a/web-1", "a/web-2"]
    assert (table.rows.matching, table.rows.objects) == (1, 1)


def test_object_created_again_is_not_marked_as_deleted() -> None:
    table = Table("a/1")
    table.delete("a/1", 1.0)
    table.add("a/1", 1.5)

    assert table.shown(1.5) == ["added a/1"]
    assert table.shown(9.0) == ["a/1"]


def test_rows_from_an_offset_fit_the_room() -> None:
    table = Table("a/1", "a/2", "a/3", "a/4", "a/5")

    assert table.shown(room=2, offset=1) == ["a/2", "a/3"]
    assert table.shown(room=9, offset=4) == ["a/5"]
    assert table.shown(room=0) == []

    table.arrange("NAMESPACE", reverse=True)
    assert table.shown(room=2, offset=1) == ["a/4", "a/3"]
    assert table.shown(room=9, offset=4) == ["a/1"]


@pytest.mark.parametrize(
    ("sort", "reverse", "names"),
    [
        ("NAMESPACE", False, "cab"),
        ("NAME", False, "abc"),
        ("NAME", True, "cba"),
        ("RESTARTS", False, "abc"),
        ("RESTARTS", True, "cba"),
        ("AGE", False, "bca"),
        ("STATUS", False, "cba"),
    ],
)
def test_rows_are_sorted_by_a_column(sort: str, reverse: bool, names: str) -> None:
    table = Table(
        thing("z/a", hours=300, restarts=0, reason="Zero"),
        thing("z/b", hours=0.5, restarts=9, reason="Some"),
        thing("y/c", hours=30, restarts=10, reason="Any"),
    )
    table.arrange(sort, reverse=reverse)

    assert [it[-1] for it in table.shown()] == list(names)


def test_rows_sorted_by_change_begin_with_the_newest() -> None:
    table = Table("a/1", "a/2", "a/3")
    table.arrange(BY_CHANGE)
    assert table.shown() == ["a/1", "a/2", "a/3"]

    table.change("a/3", 10.0)
    table.change("a/2", 11.0)

    assert table.shown() == ["a/2", "a/3", "a/1"]


def test_changed_row_moves_to_its_new_place() -> None:
    table = Table("a/1", "a/2", "a/3")
    table.arrange("RESTARTS")
    assert table.shown() == ["a/1", "a/2", "a/3"]

    table.change("a/1", 10.0, restarts=5)

    assert table.shown() == ["a/2", "a/3", "a/1"]


def test_ages_are_sorted_by_the_moment_they_refer_to() -> None:
    table = Table(thing("a/old", hours=1))
    table.arrange("AGE")
    table.shown()

    # An hour later, it is two hours old; its cells are those of its arrival.
    table.put(thing("a/new", hours=0), "added", 10.0)
    table.put(thing("a/older", hours=1.5), "added", 10.0)

    shown = table.shown(day=DAY + timedelta(hours=1))
    assert shown == ["a/new", "a/old", "a/older"]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("", ["web-0", "web-1", "db-0"]),
        ("web", ["web-0", "web-1"]),
        ("WEB crash", ["web-1"]),
        ("web -1", ["web-1"]),
        ("shop", ["web-0", "web-1"]),
        ("60m", []),
        ("nothing", []),
    ],
)
def test_filter_keeps_rows_with_all_words_in_any_column(
    words: str, names: list[str]
) -> None:
    table = Table(
        "shop/web-0", thing("shop/web-1", reason="CrashLoopBackOff"), "x/db-0"
    )
    table.arrange("NAMESPACE", words=words)

    assert [it.partition("/")[2] for it in table.shown()] == names
    assert table.rows.objects == 3


def test_filtered_rows_follow_changes() -> None:
    table = Table("a/1", "a/2")
    table.arrange("NAME", words="failed")
    assert table.shown() == []

    table.change("a/2", 10.0, reason="Failed")
    table.add("a/3", 10.0)
    assert table.shown() == ["a/2"]

    table.change("a/2", 11.0)
    assert table.shown() == []

    table.arrange("NAME")
    assert table.shown() == ["a/1", "a/2", "a/3"]


def test_many_rows_are_placed_some_at_a_time() -> None:
    table = Table("a/1", "a/2", "a/3")

    assert [table.rows.place(1.0, DAY, 2), len(table.rows)] == [False, 2]
    assert [table.rows.place(1.0, DAY, 2), len(table.rows)] == [True, 3]


def test_many_deleted_rows_are_removed_some_at_a_time() -> None:
    table = Table("a/1", "a/2", "a/3")
    table.shown()
    for key in ("a/1", "a/2", "a/3"):
        table.delete(key, 10.0)

    assert [table.rows.place(20.0, DAY, 2), len(table.rows)] == [False, 1]
    assert [table.rows.place(20.0, DAY, 2), len(table.rows)] == [True, 0]


class CountedColumns(Columns):
    """Columns that count the computed rows."""

    computed = 0

    def cells(self, obj: KubeObject, now: datetime) -> list[str]:
        self.computed += 1
        return super().cells(obj, now)


@pytest.mark.parametrize(
    ("sort", "words", "computed"),
    [
        ("NAMESPACE", "", 0),
        ("NAME", "", 0),
        ("AGE", "", 0),
        (BY_CHANGE, "", 0),
        ("READY", "", 3),
        ("NAME", "web", 3),
    ],
)
def test_cells_are_computed_only_where_order_or_filter_needs_them(
    sort: str, words: str, computed: int
) -> None:
    columns = CountedColumns(PODS, wide=False, namespaces=True)
    stored = {obj.key: obj for obj in map(thing, ["a/1", "a/2", "b/1"])}
    rows = TableRows(columns, stored.get, Arrangement(sort, filter=words))
    for obj in stored.values():
        rows.note(obj, "", 0.0)

    assert rows.place(0.0, DAY)
    assert columns.computed == computed


class Untouched(list[Any]):
    """List that cannot be changed."""

    def insert(self, *_: Any) -> None:
        raise AssertionError

    __delitem__ = insert


@pytest.mark.parametrize("sort", ["NAMESPACE", "NAME", "AGE", "RESTARTS"])
def test_change_that_keeps_its_place_does_not_touch_the_order(sort: str) -> None:
    table = Table("a/1", "a/2", "a/3")
    table.arrange(sort)
    before = table.shown()
    table.rows._places = Untouched(table.rows._places)

    table.change("a/2", 10.0, reason="Failed")

    assert table.shown(20.0) == before


def test_placed_objects_are_not_kept() -> None:
    obj = thing("a/1")
    references = sys.getrefcount(obj)
    columns = Columns(PODS, wide=False, namespaces=True)
    rows = TableRows(columns, lambda _: None, Arrangement("READY", filter="a"))
    rows.note(obj, "modified", 0.0)
    assert rows.place(0.0, DAY)

    assert sys.getrefcount(obj) == references
    assert (len(rows), list(rows.rows(0, 9, 0.0))) == (1, [])


def test_age_orders_objects_of_the_same_day_by_time_of_creation() -> None:
    day = 24.0
    table = Table(
        thing("a/1", hours=20 * day + 3),
        thing("a/2", hours=20 * day + 1),
        thing("a/3", hours=20 * day + 2),
    )
    table.arrange("AGE")

    assert table.shown() == ["a/2", "a/3", "a/1"]


def test_rows_have_objects_with_any_name() -> None:
    names = ["a/b\0c", "a/b/c", "\0", "a\0b/c", "a"]
    table = Table(*map(thing, names))

    assert sorted(table.shown()) == sorted(thing(name).key for name in names)


def test_sort_values_order_numbers_before_texts_before_none() -> None:
    cells = ["<none>", "b", "A", "10", "9 (5m ago)"]

    assert sorted(cells, key=sort_value) == ["9 (5m ago)", "10", "A", "b", "<none>"]


@pytest.mark.parametrize("digits", [400, 5000])
def test_sort_values_of_endless_numbers_are_texts(digits: int) -> None:
    endless = "9" * digits
    for cell in (endless, f"{endless}s", f"{endless}/1", f"1/{endless}"):
        assert sort_value(cell) == (1, 0.0, cell)


def test_sort_values_order_ready_replicas_by_their_share() -> None:
    cells = ["3/3", "1/3", "0/2", "10/20", "0/0"]

    assert sorted(cells, key=sort_value) == ["0/0", "0/2", "1/3", "10/20", "3/3"]


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "change", "delete", "arrange", "show"]),
        st.integers(0, 7),
        st.floats(0, 1.5),
    ),
    max_size=30,
)
CHOICES = ["NAMESPACE", "NAME", "READY", "AGE", BY_CHANGE]


@given(steps, st.integers(0, 10))
def test_rows_are_all_objects_and_recent_deletions_once(
    steps: list[tuple[str, int, float]], room: int
) -> None:
    table, now = Table(), 0.0
    alive: set[str] = set()
    deleted: dict[str, float] = {}
    for step, number, pause in steps:
        key = f"a/{number}"
        now += pause
        if step == "add" and key not in alive:
            table.add(key, now)
            alive.add(key)
            deleted.pop(key, None)
        elif step == "change" and key in alive:
            table.change(key, now)
        elif step == "delete" and key in alive:
            table.delete(key, now)
            alive.remove(key)
            deleted[key] = now
        elif step == "arrange":
            words = "1" if number == 7 else ""
            table.arrange(CHOICES[number % 5], reverse=pause > 1, words=words)
        elif step == "show":
            table.shown(now)

    table.arrange("NAMESPACE")
    recent = {key for key, at in deleted.items() if now - at < MARKED_SECONDS}
    shown = [it.rpartition(" ")[2] for it in table.shown(now)]
    assert shown == sorted(alive | recent)
    assert len(table.shown(now, room)) == min(room, len(shown))
    assert table.rows.objects == len(alive)


events = st.lists(
    st.tuples(
        st.sampled_from(["put", "delete", "place"]),
        st.integers(0, 5),
        st.integers(0, 3),
    ),
    max_size=40,
)


@given(
    events,
    st.sampled_from(["NAMESPACE", "NAME", "RESTARTS", "AGE"]),
    st.sampled_from(["", "1", "a 2"]),
)
def test_rows_after_changes_equal_those_of_a_new_table(
    events: list[tuple[str, int, int]], sort: str, words: str
) -> None:
    stored: dict[str, KubeObject] = {}
    columns = Columns(PODS, wide=False, namespaces=True)

    def table() -> TableRows:
        return TableRows(columns, stored.get, Arrangement(sort, filter=words))

    def shown(rows: TableRows, now: float) -> list[str]:
        while not rows.place(now, DAY, 1):
            pass

        return [it.obj.key for it in rows.rows(0, 99, now)]

    rows, now = table(), 0.0
    for event, number, value in events:
        now += 0.5
        key = f"a/{number}"
        if event == "put":
            stored[key] = thing(key, restarts=value, hours=value)
            rows.note(stored[key], "modified", now)
        elif event == "delete" and key in stored:
            rows.note(stored.pop(key), "deleted", now)
        else:
            rows.place(now, DAY, 2)

    fresh = table()
    for obj in stored.values():
        fresh.note(obj, "", now)

    assert shown(rows, now + MARKED_SECONDS) == shown(fresh, now)
    assert rows.objects == fresh.objects
    assert rows.matching == len(rows) == fresh.matching


def test_object_listed_after_its_deletion_is_not_marked() -> None:
    table = Table("a/1")
    table.delete("a/1", 1.0)
    table.put(thing("a/1"), "", 1.5)

    assert table.shown(1.5) == ["a/1"]
    assert table.shown(9.0) == ["a/1"]
