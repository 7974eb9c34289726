"""Which objects a table shows, and in which order."""

from __future__ import annotations

from conftest import pod
from hypothesis import given
from hypothesis import strategies as st

from aioinformer.cache import Store
from aioinformer.cli.board import KEPT, MARKED_SECONDS, Board
from aioinformer.informer import Added, Deleted, Updated
from aioinformer.model import KubeObject


def thing(key: str) -> KubeObject:
    namespace, _, name = key.rpartition("/")
    return KubeObject.of(pod(name, namespace))


class Cache:
    """A store and a board that hear of the same changes."""

    def __init__(self, *keys: str) -> None:
        self.store: Store[KubeObject] = Store()
        self.board = Board(self.store)
        for key in keys:
            self.store.add(thing(key))
            self.board.note(Added(thing(key), initial=True), 0.0)

    def add(self, key: str, now: float) -> None:
        self.store.add(thing(key))
        self.board.note(Added(thing(key)), now)

    def change(self, key: str, now: float) -> None:
        self.board.note(Updated(thing(key), thing(key)), now)

    def delete(self, key: str, now: float) -> None:
        self.store.delete(thing(key))
        self.board.note(Deleted(thing(key)), now)

    def shown(self, room: int, now: float) -> list[str]:
        return [
            f"{it.mark} {it.obj.key}".strip() for it in self.board.choose(room, now)
        ]


def test_what_fits_is_ordered_by_namespace_then_name() -> None:
    cache = Cache("b/a", "a-b/c", "a/z", "a/b")

    assert cache.shown(4, 0.0) == ["a/b", "a/z", "a-b/c", "b/a"]


def test_what_the_first_list_brought_is_no_change() -> None:
    cache = Cache("a/b")

    assert (cache.board.events, cache.shown(9, 0.0)) == (0, ["a/b"])


def test_changes_are_marked_for_a_while() -> None:
    cache = Cache("a/1", "a/2", "a/3")
    cache.change("a/1", 10.0)
    cache.add("a/4", 10.0)
    cache.delete("a/2", 10.0)

    marked = ["modified a/1", "deleted a/2", "a/3", "added a/4"]
    assert cache.shown(9, 10.0 + MARKED_SECONDS - 0.1) == marked
    assert cache.shown(9, 10.0 + MARKED_SECONDS) == ["a/1", "a/3", "a/4"]
    assert cache.board.events == 3


def test_without_room_for_all_the_last_changed_ones_come_first() -> None:
    cache = Cache("a/1", "a/2", "a/3", "a/4", "a/5")
    cache.change("a/4", 10.0)
    cache.change("a/2", 11.0)
    cache.change("a/4", 12.0)

    assert cache.shown(4, 20.0) == ["a/4", "a/2", "a/1", "a/3"]
    assert cache.shown(1, 20.0) == ["a/4"]
    assert cache.shown(0, 20.0) == []


def test_what_is_gone_leaves_the_order_too() -> None:
    cache = Cache("a/1", "a/2", "a/3", "a/4")
    assert cache.shown(2, 0.0) == ["a/1", "a/2"]

    cache.delete("a/1", 1.0)

    assert cache.shown(2, 1.0) == ["deleted a/1", "a/2"]
    assert cache.shown(2, 9.0) == ["a/2", "a/3"]


def test_one_that_came_back_is_no_longer_deleted() -> None:
    cache = Cache("a/1")
    cache.delete("a/1", 1.0)
    cache.add("a/1", 1.5)

    assert cache.shown(5, 1.5) == ["added a/1"]
    assert cache.board.total(1.5) == 1


def test_remembers_a_bounded_number_of_changes() -> None:
    cache = Cache(*(f"a/{number}" for number in range(KEPT + 50)))
    for number in range(KEPT + 50):
        cache.change(f"a/{number}", 1.0)

    shown = cache.shown(KEPT + 10, 1.0)

    assert sum(it.startswith("modified") for it in shown) == KEPT
    assert len(shown) == len(set(shown)) == KEPT + 10


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "change", "delete"]),
        st.integers(0, 7),
        st.floats(0, 1.5),
    ),
    max_size=30,
)


@given(steps, st.integers(0, 10))
def test_never_shows_more_than_fits_nor_anything_twice(
    steps: list[tuple[str, int, float]], room: int
) -> None:
    cache, now = Cache(), 0.0
    for step, number, pause in steps:
        key = f"a/{number}"
        now += pause
        if step == "add":
            cache.add(key, now)
        elif key in cache.store:
            getattr(cache, step)(key, now)

        keys = [it.obj.key for it in cache.board.choose(room, now)]
        assert len(keys) == len(set(keys)) == min(room, cache.board.total(now))
        whole = {it.obj.key for it in cache.board.choose(100, now)}
        assert set(cache.store.list_keys()) <= whole
