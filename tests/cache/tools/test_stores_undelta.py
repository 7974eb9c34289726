"""`UndeltaStore`: all objects are pushed after each write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from store_helpers import Thing

from aioinformer.cache import UndeltaStore
from aioinformer.errors import HandlerError, NoKey

if TYPE_CHECKING:
    from collections.abc import Callable


class Pushes(list[list[Thing]]):
    """Record of pushed lists."""

    def push(self, things: list[Thing]) -> None:
        self.append(things)


@pytest.fixture
def pushes() -> Pushes:
    return Pushes()


@pytest.fixture
def store(pushes: Pushes) -> UndeltaStore[Thing]:
    made = UndeltaStore(pushes.push)
    made.replace([Thing("a"), Thing("b")])
    pushes.clear()
    return made


@pytest.mark.parametrize(
    ("write", "content"),
    [
        pytest.param(lambda it: it.add(Thing("c")), ["a0", "b0", "c0"], id="add"),
        pytest.param(
            lambda it: it.update(Thing("a", version=2)), ["a2", "b0"], id="update"
        ),
        pytest.param(lambda it: it.delete(Thing("a")), ["b0"], id="delete"),
        pytest.param(
            lambda it: it.delete(Thing("none")), ["a0", "b0"], id="delete-nothing"
        ),
        pytest.param(
            lambda it: it.replace([Thing("x"), Thing("y")]), ["x0", "y0"], id="replace"
        ),
        pytest.param(lambda it: it.replace([]), [], id="replace-by-nothing"),
        pytest.param(
            lambda it: it.swap(it.replacement()), [], id="replacement-put-in-place"
        ),
    ],
)
def test_undelta_store_pushes_all_objects_after_each_write(
    store: UndeltaStore[Thing],
    pushes: Pushes,
    write: Callable[[UndeltaStore[Thing]], None],
    content: list[str],
) -> None:
    write(store)

    assert [[f"{it.key}{it.version}" for it in push] for push in pushes] == [content]
    assert pushes == [store.list()]


def test_undelta_store_reads_push_nothing(
    store: UndeltaStore[Thing], pushes: Pushes
) -> None:
    store.list()
    store.list_keys()
    store.get(Thing("a"))
    store.get_by_key("a")
    store.resync()

    assert pushes == []
    assert len(store) == 2


def test_refused_write_pushes_nothing(pushes: Pushes) -> None:
    def key_func(thing: Thing) -> str:
        raise ZeroDivisionError

    store = UndeltaStore(pushes.push, key_func=key_func)
    for write in (store.add, store.update, store.delete):
        with pytest.raises(NoKey):
            write(Thing("a"))

    with pytest.raises(NoKey):
        store.replace([Thing("a")])

    assert pushes == []


def test_pushed_list_is_a_new_list(store: UndeltaStore[Thing], pushes: Pushes) -> None:
    store.add(Thing("c"))
    pushes[0].clear()

    assert len(store) == 3


def test_failing_push_is_reported_after_the_write() -> None:
    reported: list[HandlerError] = []

    def push(things: list[Thing]) -> None:
        raise ZeroDivisionError

    store = UndeltaStore(push, on_error=reported.append)
    store.add(Thing("a"))

    assert store.list() == [Thing("a")]
    [failure] = reported
    assert (failure.where, failure.subject) == ("push function", [Thing("a")])
    assert failure.name.endswith("push")
    assert isinstance(failure.__cause__, ZeroDivisionError)
