"""`FIFO`: the newest state of each object, and reads of queued objects."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest
from fifo_helpers import Thing, nothing, things
from queue_helpers import settle

from aioinformer.cache import FIFO
from aioinformer.errors import OptionsError


@pytest.fixture
def fifo() -> FIFO[Thing]:
    return FIFO()


def take_all(fifo: FIFO[Thing]) -> list[str]:
    taken = [fifo.pop_nowait() for _ in range(len(fifo))]
    return [f"{thing.key}{thing.version}" for thing in taken]


async def test_fifo_keeps_order_of_each_producer(
    fifo: FIFO[Thing],
) -> None:
    seen: dict[str, list[int]] = defaultdict(list)

    async def produce(name: str) -> None:
        for number in range(500):
            fifo.add(Thing(f"{name}{number}", number))
            if number % 7 == 0:
                await asyncio.sleep(0)

    def process(thing: Thing, initial: bool) -> None:
        seen[thing.key[0]].append(thing.version)

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        for name in "ab":
            tasks.create_task(produce(name))

        for _ in range(1000):
            await fifo.pop(process)

    assert seen == {"a": list(range(500)), "b": list(range(500))}


def test_fifo_pops_newest_state_once(fifo: FIFO[Thing]) -> None:
    fifo.add(Thing("a", 1))
    fifo.update(Thing("a", 2))

    assert take_all(fifo) == ["a2"]
    assert fifo.get_by_key("a") is None


def test_fifo_object_that_changes_keeps_its_place(fifo: FIFO[Thing]) -> None:
    for thing in things("a1 b1 c1 a2"):
        fifo.add(thing)

    assert take_all(fifo) == ["a2", "b1", "c1"]


def test_fifo_changed_objects_do_not_overtake_others(fifo: FIFO[Thing]) -> None:
    for thing in things("a1 b1 c1"):
        fifo.add(thing)

    first = fifo.pop_nowait()
    fifo.add(Thing("a", 2))

    assert first == Thing("a", 1)
    assert take_all(fifo) == ["b1", "c1", "a2"]


def test_fifo_does_not_pop_deleted_object(fifo: FIFO[Thing]) -> None:
    for thing in things("a1 b1"):
        fifo.add(thing)

    fifo.delete(Thing("a"))
    fifo.delete(Thing("x"))  # no error

    assert take_all(fifo) == ["b1"]


def test_recreated_object_is_queued_at_the_end(fifo: FIFO[Thing]) -> None:
    for thing in things("a1 b1"):
        fifo.add(thing)

    fifo.delete(Thing("a"))
    fifo.add(Thing("a", 2))

    assert take_all(fifo) == ["b1", "a2"]


def test_fifo_replace_replaces_all_queued_objects(fifo: FIFO[Thing]) -> None:
    fifo.add(Thing("x"))

    fifo.replace(things("b1 a1 b2"), "7")

    assert take_all(fifo) == ["b2", "a1"]


def test_object_added_and_listed_has_the_listed_state(fifo: FIFO[Thing]) -> None:
    fifo.add(Thing("a", 1))
    fifo.replace(things("a2"))

    assert take_all(fifo) == ["a2"]


def test_fifo_can_be_read_like_a_store(fifo: FIFO[Thing]) -> None:
    for thing in things("b1 a1"):
        fifo.add(thing)

    assert fifo.list() == things("b1 a1")
    assert fifo.list_keys() == ["b", "a"]
    assert fifo.get_by_key("a") == Thing("a", 1)
    assert fifo.get(Thing("a", 9)) == Thing("a", 1)
    assert fifo.get(Thing("x")) is None
    assert ("a" in fifo, "x" in fifo) == (True, False)
    assert repr(fifo) == "<FIFO open waiting=2>"


def test_resync_of_a_fifo_changes_nothing(fifo: FIFO[Thing]) -> None:
    for thing in things("a1 b1"):
        fifo.add(thing)

    fifo.pop_nowait()
    fifo.resync()

    assert take_all(fifo) == ["b1"]


def test_fifo_rejects_object_without_key() -> None:
    fifo = FIFO[object]()

    for call in (fifo.add, fifo.delete, lambda obj: fifo.replace([obj])):
        with pytest.raises(OptionsError):
            call(object())

    assert (len(fifo), fifo.has_synced) == (0, False)


# ---------------------------------------------------------------- has_synced


@pytest.mark.parametrize(
    ("listed", "pops"),
    [
        pytest.param("", 0, id="empty-list"),
        pytest.param("a1 b1", 2, id="list"),
        pytest.param("a1 a2", 1, id="a-key-twice"),
    ],
)
async def test_fifo_has_synced_after_first_list_was_processed(
    fifo: FIFO[Thing], listed: str, pops: int
) -> None:
    before = fifo.has_synced
    fifo.replace(things(listed))
    fifo.add(Thing("x"))
    history, flags = [], list[bool]()
    while len(fifo):
        history.append(fifo.has_synced)
        await fifo.pop(lambda thing, initial: flags.append(initial))

    assert not before
    assert history.index(True) == pops
    assert flags == [not synced for synced in history]


def test_fifo_has_synced_after_add_without_list(fifo: FIFO[Thing]) -> None:
    fifo.add(Thing("a"))
    fifo.replace(things("b1"))

    assert fifo.has_synced


def test_fifo_has_synced_after_delete_without_list(fifo: FIFO[Thing]) -> None:
    fifo.delete(Thing("a"))

    assert fifo.has_synced


def test_sync_does_not_wait_for_deleted_objects_of_the_first_list(
    fifo: FIFO[Thing],
) -> None:
    fifo.replace(things("a1 b1"))

    fifo.pop_nowait()
    before = fifo.has_synced
    fifo.delete(Thing("b"))

    assert (before, fifo.has_synced) == (False, True)


def test_sync_does_not_wait_for_objects_missing_in_a_second_list(
    fifo: FIFO[Thing],
) -> None:
    fifo.replace(things("a1 b1"))
    fifo.replace(things("b2 c2"))

    before = fifo.has_synced
    fifo.pop_nowait()

    assert (before, fifo.has_synced) == (False, True)


# ---------------------------------------------------------------- waiting


@pytest.mark.parametrize("call", ["add", "replace"])
async def test_waiting_fifo_pop_is_notified_of_each_change(
    fifo: FIFO[Thing], call: str
) -> None:
    popper = asyncio.create_task(fifo.pop(nothing))
    await settle()

    if call == "add":
        fifo.add(Thing("a"))
    else:
        fifo.replace(things("a1"))

    async with asyncio.timeout(1):
        await popper

    assert len(fifo) == 0
