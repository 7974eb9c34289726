"""`DeltaFIFO.replace()`: lists by objects, deletions, resyncs, and sync."""

from __future__ import annotations

import pytest
from each_case import each_case
from fifo_helpers import Thing, holding, nothing, put, take_all, text_of, things

from aioinformer.cache import DeltaFIFO


def use(fifo: DeltaFIFO[Thing], text: str) -> list[str]:
    """Make calls: changes as in `put`, "[a1 b2]" a list by objects, "/" a pop."""
    popped = []
    for call in text.split(", "):
        if call[0] == "[":
            fifo.replace(things(call[1:-1]), "9")
        elif call == "/":
            popped.append(text_of(fifo.pop_nowait()))
        else:
            put(fifo, call)

    return popped


# ---------------------------------------------------------------- lists

LISTS = [
    # Lists and deletions; known objects; popped entries.
    pytest.param("[a1 b2]", "", ["*a1", "*b2"], id="in-list-order"),
    pytest.param("[a1 b1 a2]", "", ["*a1 *a2", "*b1"], id="one-key-twice"),
    pytest.param("[]", "", [], id="of-nothing"),
    pytest.param("+a1, [a2]", "", ["+a1 *a2"], id="added-and-listed"),
    pytest.param("-a1, [a2]", "a1", ["-a1 *a2"], id="deleted-and-listed"),
    # Objects that are only queued.
    pytest.param("+a1, []", "", ["+a1 !a1"], id="only-queued"),
    pytest.param("+a1, [a2], []", "", ["+a1 *a2 !a2"], id="only-listed-before"),
    pytest.param("+a1, -a2, []", "", ["+a1 -a2"], id="deleted-before"),
    pytest.param("+a1, [], []", "", ["+a1 !a1"], id="two-empty-lists"),
    pytest.param(
        "+a1, -a1, +a2, []", "", ["+a1 -a1 +a2 !a2"], id="deleted-and-added-before"
    ),
    # Known objects.
    pytest.param("[b1]", "a1 b0 c1", ["*b1", "!a1", "!c1"], id="known"),
    pytest.param("-a2, [b1]", "a1", ["-a2", "*b1"], id="known-but-deleted-before"),
    pytest.param("+a2, [b1]", "a1", ["+a2 !a2", "*b1"], id="queued-rather-than-known"),
    pytest.param(
        "-a2, +a3, [b1]", "a1", ["-a2 +a3 !a3", "*b1"], id="created-again-before"
    ),
    pytest.param("@, [b1]", "a1", [".a1 !a1", "*b1"], id="resynced-before"),
    # A queued whole list determines the known objects: a, b and c.
    pytest.param(
        "=5, [a1 d1]", "e1", ["=5", "*a1", "*d1", "!b0", "!c0"], id="whole-list"
    ),
    pytest.param("=5, /, [a1]", "e1", ["*a1", "!e1"], id="whole-list-taken"),
    pytest.param("=5, -b2, [a1 c1]", "", ["=5", "-b2", "*a1", "*c1"], id="since-then"),
]


@each_case("calls, known, entries", LISTS)
def test_replace_queues_listed_objects_and_deletions(
    calls: str, known: str, entries: list[str]
) -> None:
    fifo = DeltaFIFO(known_objects=holding(known))

    use(fifo, calls)

    assert take_all(fifo) == entries


@each_case(
    "calls, known, entries",
    [case for case in LISTS if not case.values[1]],
)
def test_replace_without_known_objects_queues_listed_objects(
    calls: str, known: str, entries: list[str]
) -> None:
    fifo = DeltaFIFO[Thing]()

    use(fifo, calls)

    assert take_all(fifo) == entries


def test_listed_objects_are_sync_without_emit_replaced() -> None:
    fifo = DeltaFIFO[Thing](emit_replaced=False)

    use(fifo, "+a1, [a2 b2], [b3]")

    assert take_all(fifo) == ["+a1 .a2 !a2", ".b2 .b3"]


def test_replace_applies_version_of_list() -> None:
    fifo = DeltaFIFO[Thing]()
    fifo.replace(things("a1 b1"), "7")

    history = [fifo.applied()]
    while len(fifo):
        fifo.pop_nowait()
        history.append(fifo.applied())

    assert history == [None, None, "7"]


def test_replace_without_version_applies_none() -> None:
    fifo = DeltaFIFO[Thing]()
    fifo.replace(things("a1"))

    fifo.pop_nowait()

    assert fifo.applied() is None


# ---------------------------------------------------------------- deletions


@each_case(
    "calls, known, entries",
    [
        pytest.param("-a1", "", [], id="unknown"),
        pytest.param("-a1", "a0", ["-a1"], id="known"),
        pytest.param("-b1", "a0", [], id="another-is-known"),
        pytest.param("+a1, -a2", "", ["+a1 -a2"], id="queued"),
        pytest.param("+a1, /, -a2", "", [], id="queued-no-more"),
        pytest.param("=5, -a2", "", ["=5", "-a2"], id="in-a-whole-list"),
        pytest.param("=5, -d2", "d1", ["=5"], id="not-in-a-whole-list"),
        pytest.param("!a1", "a0", ["!a1"], id="tombstone"),
        # Two in a row: the one with more information stays.
        pytest.param("-a1, !a2", "a0", ["-a1"], id="final-state-then-tombstone"),
        pytest.param("!a1, -a2", "a0", ["-a2"], id="tombstone-then-final-state"),
        pytest.param("!a1, !a2", "a0", ["!a2"], id="two-tombstones"),
        pytest.param("!a1, !a?", "a0", ["!a1"], id="the-second-knows-nothing"),
        pytest.param("!a?, !a1", "a0", ["!a1"], id="the-first-knew-nothing"),
        pytest.param("+a1, !a1, -a2", "", ["+a1 -a2"], id="what-was-older-stays"),
    ],
)
def test_deletion_is_queued_if_object_is_queued_or_known(
    calls: str, known: str, entries: list[str]
) -> None:
    fifo = DeltaFIFO(known_objects=holding(known))

    use(fifo, calls)

    assert take_all(fifo) == entries


def test_deletion_without_known_objects_is_queued_if_object_is_queued() -> None:
    fifo = DeltaFIFO[Thing]()

    use(fifo, "-a1, +b1, -b2")

    assert take_all(fifo) == ["+b1 -b2"]


# ---------------------------------------------------------------- resyncs


@each_case(
    "calls, known, entries",
    [
        pytest.param("@", "a1 b1", [".a1", ".b1"], id="each-known-one"),
        pytest.param("@, @", "a1", [".a1"], id="once"),
        pytest.param("~a2, @", "a1 b1", ["~a2", ".b1"], id="not-after-a-change"),
        pytest.param("-a2, @", "a1", ["-a2"], id="not-after-a-deletion"),
        pytest.param("~a2, /, @", "a1", [".a1"], id="after-the-change-was-taken"),
        pytest.param("~d1, @", "", ["~d1"], id="not-what-is-only-queued"),
        pytest.param(
            "=5, ~a2, @", "d1", ["=5", "~a2", ".b0", ".c0"], id="of-a-whole-list"
        ),
    ],
)
def test_resync_queues_known_objects_without_queued_deltas(
    calls: str, known: str, entries: list[str]
) -> None:
    fifo = DeltaFIFO(known_objects=holding(known))

    use(fifo, calls)

    assert take_all(fifo) == entries


def test_resync_without_known_objects_queues_nothing() -> None:
    fifo = DeltaFIFO[Thing]()

    fifo.resync()

    assert len(fifo) == 0


# ---------------------------------------------------------------- has_synced


@pytest.mark.parametrize(
    ("calls", "known", "pops"),
    [
        # Number of entries to pop until it has synced.
        pytest.param("+a1", "", 0, id="a-change-alone"),
        pytest.param("-a1", "", 0, id="a-deletion-that-was-left-out"),
        pytest.param("[]", "", 0, id="empty-list"),
        pytest.param("=5", "", 1, id="whole-list"),
        pytest.param("[a1 b1]", "", 2, id="list"),
        pytest.param("[a1 a2]", "", 1, id="list-with-a-key-twice"),
        pytest.param("[a1]", "b0 c0", 3, id="with-its-deletions"),
        pytest.param("[a1 b1], +c1", "", 2, id="not-what-came-after"),
        pytest.param("[a1 b1], [c1]", "", 2, id="only-the-first-list"),
        pytest.param("=5, =6", "", 1, id="only-the-first-whole-list"),
        pytest.param("+a1, [b1 c1]", "", 0, id="a-change-before-the-list"),
    ],
)
async def test_delta_fifo_has_synced_after_first_list_was_popped(
    calls: str, known: str, pops: int
) -> None:
    fifo = DeltaFIFO(known_objects=holding(known))
    before = fifo.has_synced
    use(fifo, calls)
    flags: list[bool] = []

    history = []
    while len(fifo):
        history.append(fifo.has_synced)
        await fifo.pop(lambda entry, initial: flags.append(initial))

    assert not before
    assert [*history, fifo.has_synced].index(True) == pops
    assert flags == [not synced for synced in history]
    use(fifo, "+x1, [y1]")
    assert fifo.has_synced


async def test_empty_feed_does_not_make_the_queue_synced() -> None:
    fifo = DeltaFIFO[Thing]()
    fifo.feed([], "7")

    assert not fifo.has_synced
    with pytest.raises(StopIteration):
        fifo.wait_filled().send(None)


async def test_deletions_of_first_list_are_initial() -> None:
    fifo = DeltaFIFO(known_objects=holding("a1 b1 c1"))
    fifo.replace([], "7")

    synced = []
    while len(fifo):
        synced.append(fifo.has_synced)
        await fifo.pop(nothing)

    assert [*synced, fifo.has_synced] == [False, False, False, True]
