"""`DeltaFIFO`: order, deltas that are popped together, and applied versions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from conftest import pod
from each_case import each_case
from fifo_helpers import Thing, deltas, holding, listing, put, take_all
from queue_helpers import settle

from aioinformer.cache import DeletedFinalStateUnknown, DeltaFIFO
from aioinformer.cache.deltas import Delta, DeltaType, Replacement
from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def fifo() -> DeltaFIFO[Thing]:
    return DeltaFIFO()


# ---------------------------------------------------------------- order


@each_case(
    "changes, entries",
    [
        pytest.param("", [], id="nothing"),
        pytest.param("+a1 +b1 +c1", ["+a1", "+b1", "+c1"], id="first-in-first-out"),
        pytest.param("+a1 +b1 ~a2 -a3", ["+a1 ~a2 -a3", "+b1"], id="keeps-its-place"),
        pytest.param("-a1 +a2", ["-a1 +a2"], id="created-again"),
        pytest.param("-a1 -a2 -a3", ["-a1"], id="one-deletion-is-left"),
        pytest.param("+a1 -a2 -a3 +b1", ["+a1 -a2", "+b1"], id="the-first-of-two"),
        pytest.param("-a1 +a2 -a3", ["-a1 +a2 -a3"], id="not-in-a-row"),
        pytest.param("~a1 ~a1", ["~a1 ~a1"], id="equal-updates-stay"),
        pytest.param("+a1 =5 ~a2", ["+a1", "=5", "~a2"], id="replacement-between"),
        pytest.param("-a1 =5 -a2", ["-a1", "=5", "-a2"], id="no-merging-across"),
        pytest.param("=5", ["=5"], id="only-a-replacement"),
        pytest.param("=5 =6", ["=5", "=6"], id="two-replacements"),
        pytest.param(
            "+b1 +a1 =5 ~a2 ~b2 ~a3 =6 ~a4",
            ["+b1", "+a1", "=5", "~a2 ~a3", "~b2", "=6", "~a4"],
            id="each-segment-has-its-own-order",
        ),
    ],
)
def test_delta_fifo_pops_changes_by_key_in_order(
    changes: str, entries: list[str]
) -> None:
    fifo = DeltaFIFO(known_objects=holding("a0 b0 c0"))
    put(fifo, *changes.split())

    length = len(fifo)

    assert take_all(fifo) == entries
    assert length == len(entries)


def test_delta_fifo_queues_popped_key_at_the_end(
    fifo: DeltaFIFO[Thing],
) -> None:
    put(fifo, "+a1", "+b1", "+c1")
    fifo.pop_nowait()

    put(fifo, "~a2", "~b2")

    assert take_all(fifo) == ["+b1 ~b2", "+c1", "~a2"]


def test_deletion_is_queued_again_after_the_first_was_popped() -> None:
    fifo = DeltaFIFO(known_objects=holding("a0"))
    put(fifo, "-a1")
    fifo.pop_nowait()

    put(fifo, "-a2")

    assert take_all(fifo) == ["-a2"]


def test_delta_fifo_uses_key_function() -> None:
    fifo = DeltaFIFO[int](key_func=lambda number: str(number % 10))

    for number in (1, 2, 11):
        fifo.update(number)

    entry = fifo.pop_nowait()
    assert isinstance(entry, list)
    assert [delta.object for delta in entry] == [1, 11]
    assert fifo.key_of(entry) == "1"


def test_delta_fifo_accepts_decoded_json() -> None:
    fifo = DeltaFIFO[dict[str, Any]]()

    fifo.add(pod("web", "shop"))
    fifo.update(pod("web", "shop"))
    fifo.add(pod("web", "other"))

    assert len(fifo) == 2


@pytest.mark.parametrize("method", ["add", "update", "delete"])
def test_delta_fifo_rejects_object_without_key(method: str) -> None:
    fifo = DeltaFIFO[object]()

    with pytest.raises(OptionsError):
        getattr(fifo, method)(object())

    assert len(fifo) == 0


async def test_feed_rejects_whole_batch_with_object_without_key() -> None:
    fifo = DeltaFIFO[object]()
    objects: list[object] = ["a", object(), "b"]

    with pytest.raises(OptionsError):
        fifo.feed([Delta(DeltaType.ADDED, obj) for obj in objects], "7")

    assert len(fifo) == 0
    assert fifo.applied() is None


async def test_feed_rejects_whole_batch_whose_iteration_fails(
    fifo: DeltaFIFO[Thing],
) -> None:
    def failing() -> Iterator[Delta[Thing]]:
        yield from deltas("a", "b")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fifo.feed(failing(), "7")

    assert len(fifo) == 0


# ---------------------------------------------------------------- what waits


def test_newest_returns_delta_after_last_replacement(
    fifo: DeltaFIFO[Thing],
) -> None:
    def newest() -> Thing | None:
        delta = fifo.newest("a")
        return delta.object if delta else None

    seen = [newest()]
    for change in ("+a1", "~a2", "=5", "~a3"):
        put(fifo, change)
        seen.append(newest())

    while len(fifo):
        fifo.pop_nowait()
        seen.append(newest())

    one, two, three = (Thing("a", version) for version in (1, 2, 3))
    assert seen == [None, one, two, None, three, three, three, None]


def test_delta_fifo_repr_shows_state(fifo: DeltaFIFO[Thing]) -> None:
    put(fifo, "+a1", "~a2", "=5")

    assert repr(fifo) == "<DeltaFIFO open waiting=2>"


async def test_delta_fifo_repr_shows_that_it_is_closed(fifo: DeltaFIFO[Thing]) -> None:
    fifo.close()

    assert repr(fifo) == "<DeltaFIFO closed waiting=0>"


# ---------------------------------------------------------------- versions


async def test_version_is_applied_after_its_batch_was_popped(
    fifo: DeltaFIFO[Thing],
) -> None:
    fifo.feed(deltas("a", "b"), "7")

    history = [fifo.applied()]
    for _ in range(2):
        fifo.pop_nowait()
        history.append(fifo.applied())

    assert history == [None, None, "7"]
    assert fifo.applied() is None  # no other than last time


async def test_deletion_has_version_of_its_event(
    fifo: DeltaFIFO[Thing],
) -> None:
    fifo.feed([Delta(DeltaType.DELETED, Thing("a"))], "7")
    fifo.pop_nowait()
    brought = fifo.applied()

    # A deletion that was not seen has no version.
    fifo.add(Thing("b"))
    fifo.delete(DeletedFinalStateUnknown("b", Thing("b")))
    fifo.pop_nowait()

    assert (brought, fifo.applied()) == ("7", None)


async def test_version_is_applied_after_all_earlier_batches(
    fifo: DeltaFIFO[Thing],
) -> None:
    """The second batch changes only the first entry, but waits for the others too."""
    fifo.feed(deltas("a", "b"), "7")
    fifo.feed(deltas("a"), "8")

    fifo.pop_nowait()
    after_a = fifo.applied()
    fifo.pop_nowait()

    assert after_a is None
    assert fifo.applied() == "8"


async def test_newest_of_several_versions_is_applied(
    fifo: DeltaFIFO[Thing],
) -> None:
    for number, key in enumerate("abc"):
        fifo.feed(deltas(key), str(number))

    fifo.pop_nowait()
    fifo.pop_nowait()

    assert fifo.applied() == "1"


async def test_empty_batch_applies_its_version(
    fifo: DeltaFIFO[Thing],
) -> None:
    fifo.feed([], "7")

    await fifo.wait_filled()

    assert fifo.applied() == "7"


async def test_version_of_empty_batch_waits_for_earlier_batches(
    fifo: DeltaFIFO[Thing],
) -> None:
    fifo.feed(deltas("a"), "7")
    fifo.feed([], "8")
    before = fifo.applied()

    fifo.pop_nowait()

    assert before is None
    assert fifo.applied() == "8"


async def test_batch_of_unknown_version_applies_no_version(
    fifo: DeltaFIFO[Thing],
) -> None:
    fifo.feed(deltas("a"), "7")
    fifo.feed(deltas("b"))

    fifo.pop_nowait()
    first = fifo.applied()
    fifo.pop_nowait()

    assert first == "7"
    assert fifo.applied() is None


async def test_replacement_applies_its_version(fifo: DeltaFIFO[Thing]) -> None:
    fifo.feed(deltas("a"), "7")
    fifo.replace_all(listing(Thing("b")), "8")
    fifo.pop_nowait()
    first = fifo.applied()

    entry = fifo.pop_nowait()

    assert first == "7"
    assert fifo.applied() == "8"
    assert isinstance(entry, Replacement)
    assert entry.contents.objects == {"b": Thing("b")}


async def test_version_can_be_read_after_pop(
    fifo: DeltaFIFO[Thing],
) -> None:
    fifo.feed([], "7")
    popper = asyncio.create_task(fifo.pop(lambda entry, initial: None))
    await settle()

    waited = not popper.done()
    fifo.feed(deltas("a"))
    await popper

    assert waited
    assert fifo.applied() == "7"


async def test_versions_that_are_never_read_do_not_accumulate(
    fifo: DeltaFIFO[Thing],
) -> None:
    put(fifo, "+x1")
    for number in range(50):
        fifo.feed([], str(number))  # bookmarks after a queued change

    lengths = [len(fifo._progress.versions)]
    for number in range(50):
        fifo.feed(deltas("a"), str(number))
        await fifo.pop(lambda entry, initial: None)
        lengths.append(len(fifo._progress.versions))

    assert max(lengths) <= 2
    assert fifo.applied() == "49"
