"""`OrderedFIFO`: one entry for each change, with lists whole or by objects."""

from __future__ import annotations

import pytest
from each_case import each_case
from fifo_helpers import Thing, deltas, holding, nothing, put, take_all, text_of, things

from aioinformer.cache import OrderedFIFO, Replacement, Store


@pytest.fixture
def fifo() -> OrderedFIFO[Thing]:
    return OrderedFIFO()


def use(fifo: OrderedFIFO[Thing], text: str) -> None:
    """Make calls: changes as in `put`, "[a1 b2]" a list, "/" a pop."""
    for number, call in enumerate(text.split(", ")):
        if call[0] == "[":
            fifo.replace(things(call[1:-1]), str(number))
        elif call == "/":
            fifo.pop_nowait()
        else:
            put(fifo, call)


# ---------------------------------------------------------------- order


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param("+a1 ~a2 -a3", id="one-key"),
        pytest.param("+a1 +b1 +c1 ~a2 ~b2", id="in-order"),
        pytest.param("-a1 -a2 !a3", id="deletions-of-what-is-unknown"),
        pytest.param("~a1 ~a1", id="equal-updates"),
        pytest.param("+a1 =5 ~a2 =6 =7 -a3", id="whole-lists-stay-where-they-came"),
        pytest.param("+a1 @ ~a2 @ @", id="resyncs-stay-where-they-came"),
    ],
)
def test_ordered_fifo_pops_changes_in_order(
    fifo: OrderedFIFO[Thing], changes: str
) -> None:
    put(fifo, *changes.split())

    length = len(fifo)

    assert take_all(fifo) == changes.split()
    assert length == len(changes.split())


def test_ordered_newest_returns_the_delta_after_the_last_list(
    fifo: OrderedFIFO[Thing],
) -> None:
    def newest() -> int | None:
        delta = fifo.newest("a")
        return delta.object.version if delta else None

    seen = [newest()]
    for change in ("+a1", "~a2", "@", "=5", "~a3"):
        put(fifo, change)
        seen.append(newest())

    while len(fifo):
        fifo.pop_nowait()
        seen.append(newest())

    assert seen == [None, 1, 2, 2, None, 3, 3, 3, 3, 3, None]


# ---------------------------------------------------------------- in one entry


def test_ordered_fifo_queues_list_as_one_entry(fifo: OrderedFIFO[Thing]) -> None:
    use(fifo, "+a1, [a2 b2 a3], []")

    entries = [fifo.pop_nowait() for _ in range(len(fifo))]

    assert text_of(entries[0]) == "+a1"
    whole = [entry for entry in entries if isinstance(entry, Replacement)]
    assert [entry.contents.objects for entry in whole] == [
        {"a": Thing("a", 3), "b": Thing("b", 2)},
        {},
    ]
    assert [entry.resource_version for entry in whole] == ["1", "2"]


def test_ordered_fifo_list_can_be_swapped_into_indexer() -> None:
    fifo = OrderedFIFO[str](key_func=lambda text: text[0])
    store = Store[str](key_func=lambda text: text[0])
    fifo.replace(["apple", "banana"], "7")

    entry = fifo.pop_nowait()
    assert isinstance(entry, Replacement)
    store.swap(entry.contents, entry.resource_version)

    assert store.get_by_key("b") == "banana"


@pytest.mark.parametrize(
    ("calls", "pops"),
    [
        pytest.param("+a1", 0, id="a-change-alone"),
        pytest.param("-a1", 0, id="a-deletion"),
        pytest.param("[]", 1, id="empty-list"),
        pytest.param("[a1 a2 b1]", 1, id="list"),
        pytest.param("[a1], +b1", 1, id="not-what-came-after"),
        pytest.param("@, [a1]", 2, id="with-what-came-before"),
        pytest.param("[a1], [b1]", 1, id="only-the-first"),
    ],
)
async def test_ordered_fifo_has_synced_after_first_list_was_processed(
    fifo: OrderedFIFO[Thing], calls: str, pops: int
) -> None:
    before = fifo.has_synced
    use(fifo, calls)
    history = []
    while len(fifo):
        history.append(fifo.has_synced)
        await fifo.pop(nothing)

    assert not before
    assert [*history, fifo.has_synced].index(True) == pops


def test_resync_does_not_make_the_queue_synced(fifo: OrderedFIFO[Thing]) -> None:
    use(fifo, "@, /")

    assert not fifo.has_synced


# ---------------------------------------------------------------- bookmarks


async def test_bookmark_moves_the_version_without_an_entry(
    fifo: OrderedFIFO[Thing],
) -> None:
    fifo.feed(deltas("a"), "7")
    fifo.bookmark("8")
    fifo.bookmark("9")
    length, before = len(fifo), fifo.applied()

    fifo.pop_nowait()

    assert (length, before, fifo.applied()) == (1, None, "9")


def test_bookmark_does_not_make_the_queue_synced(fifo: OrderedFIFO[Thing]) -> None:
    fifo.bookmark("8")

    assert not fifo.has_synced
    assert fifo.applied() == "8"


async def test_bookmarks_keep_their_place_between_changes(
    fifo: OrderedFIFO[Thing],
) -> None:
    put(fifo, "+a1")
    fifo.bookmark("7")
    put(fifo, "+b1")
    fifo.bookmark("8")

    history = []
    while len(fifo):
        fifo.pop_nowait()
        history.append(fifo.applied())

    assert history == ["7", "8"]


# ---------------------------------------------------------------- by objects


@each_case(
    "calls, known, entries",
    [
        pytest.param("[a1 b1]", "", "*a1 *b1", id="in-list-order"),
        pytest.param("[a1 a2]", "", "*a1 *a2", id="one-key-twice"),
        pytest.param("[]", "", "", id="of-nothing"),
        pytest.param("+a1, [a2]", "", "+a1 *a2", id="added-and-listed"),
        pytest.param("-a1, [a2]", "", "-a1 *a2", id="deleted-and-listed"),
        # Deletions come first: of queued objects in their order, then of known ones.
        pytest.param("+a1, []", "", "+a1 !a1", id="only-queued"),
        pytest.param("+a1, -a2, []", "", "+a1 -a2", id="deleted-before"),
        pytest.param("+a1, [], []", "", "+a1 !a1", id="two-empty-lists"),
        pytest.param(
            "+a1, -a1, +a2, []", "", "+a1 -a1 +a2 !a2", id="deleted-and-added-before"
        ),
        pytest.param("[b1]", "a1 b0 c1", "!a1 !c1 *b1", id="known"),
        pytest.param(
            "+d1, +e1, ~d2, [b1]", "a1 d0", "+d1 +e1 ~d2 !d2 !e1 !a1 *b1", id="both"
        ),
        pytest.param("-a2, [b1]", "a1", "-a2 *b1", id="known-but-deleted-before"),
        pytest.param("@, [b1]", "a1", ".a1 !a1 *b1", id="resynced-before"),
        pytest.param("[a1], [b1]", "", "*a1 !a1 *b1", id="two-lists"),
        pytest.param("+d1, =5, [a1]", "e1", "+d1 =5 !b0 !c0 *a1", id="whole-list"),
        pytest.param("=5, /, [a1]", "e1", "!e1 *a1", id="whole-list-taken"),
        # Resyncs.
        pytest.param("@", "a1 b1", ".a1 .b1", id="resync"),
        pytest.param("~a2, @", "a1 b1", "~a2 .b1", id="resync-after-a-change"),
        pytest.param("-a2, @", "a1", "-a2", id="resync-after-a-deletion"),
        pytest.param("~a2, /, @", "a1", ".a1", id="resync-after-it-was-taken"),
    ],
)
def test_ordered_fifo_with_known_objects_queues_lists_by_objects(
    calls: str, known: str, entries: str
) -> None:
    fifo = OrderedFIFO(known_objects=holding(known))

    use(fifo, calls)

    assert take_all(fifo) == entries.split()


@pytest.mark.parametrize(
    ("calls", "known", "pops"),
    [
        pytest.param("[]", "", 0, id="empty-list"),
        pytest.param("[a1 b1]", "", 2, id="list"),
        pytest.param("[a1 a2]", "", 2, id="a-key-twice"),
        pytest.param("[a1]", "b0 c0", 3, id="with-its-deletions"),
        pytest.param("[a1], [b1]", "", 1, id="only-the-first"),
    ],
)
async def test_ordered_fifo_by_objects_has_synced_after_each_was_processed(
    calls: str, known: str, pops: int
) -> None:
    fifo = OrderedFIFO(known_objects=holding(known))
    use(fifo, calls)
    history, flags = [], list[bool]()
    while len(fifo):
        history.append(fifo.has_synced)
        await fifo.pop(lambda entry, initial: flags.append(initial))

    assert [*history, fifo.has_synced].index(True) == pops
    assert flags == [not synced for synced in history]


def test_ordered_fifo_list_by_objects_applies_its_version() -> None:
    fifo = OrderedFIFO(known_objects=holding("c0"))
    fifo.replace(things("a1"), "7")

    history = []
    while len(fifo):
        fifo.pop_nowait()
        history.append(fifo.applied())

    assert history == [None, "7"]


def test_ordered_fifo_list_by_objects_without_version_applies_none() -> None:
    fifo = OrderedFIFO(known_objects=holding(""))
    fifo.replace(things("a1"))
    fifo.pop_nowait()

    assert fifo.applied() is None
