"""Changes in queues: keys, transformers, known objects, batches."""

from __future__ import annotations

from typing import Any

import pytest
from each_case import each_case
from fifo_helpers import (
    Fifo,
    Thing,
    again,
    deltas,
    holding,
    listing,
    nothing,
    put,
    take_all,
    text_of,
    things,
    tombstone,
)

from aioinformer.cache import (
    DeletedFinalStateUnknown,
    Delta,
    DeltaFIFO,
    DeltaType,
    OrderedFIFO,
    Replacement,
    Store,
)
from aioinformer.errors import OptionsError

each_kind = pytest.mark.parametrize("kind", [DeltaFIFO, OrderedFIFO])


@pytest.fixture(params=[DeltaFIFO, OrderedFIFO])
def fifo(request: pytest.FixtureRequest) -> Fifo:
    return request.param()


# ---------------------------------------------------------------- keys


@pytest.mark.parametrize(
    ("obj", "key"),
    [
        pytest.param(Thing("a"), "a", id="object"),
        pytest.param(tombstone("!b1"), "b", id="tombstone"),
        pytest.param(deltas("a", "c"), "c", id="newest-of-changes"),
        pytest.param(
            [Delta(DeltaType.DELETED, tombstone("!d?"))],
            "d",
            id="change-of-a-tombstone",
        ),
    ],
)
def test_key_of_returns_key_of_object_or_deltas(
    fifo: Fifo, obj: object, key: str
) -> None:
    assert fifo.key_of(obj) == key


def test_key_of_rejects_empty_list(fifo: Fifo) -> None:
    with pytest.raises(OptionsError, match="empty list"):
        fifo.key_of([])


@each_kind
def test_tombstone_needs_no_key_function(kind: Any) -> None:
    fifo = kind(key_func=lambda number: str(number % 10))
    fifo.add(11)

    fifo.delete(DeletedFinalStateUnknown("1", 11))

    entries = [fifo.pop_nowait() for _ in range(len(fifo))]
    assert entries[-1][-1].object == DeletedFinalStateUnknown("1", 11)
    assert fifo.key_of(entries[-1]) == "1"


CALLS: list[Any] = [
    pytest.param(lambda fifo, obj: fifo.add(obj), id="add"),
    pytest.param(lambda fifo, obj: fifo.update(obj), id="update"),
    pytest.param(lambda fifo, obj: fifo.delete(obj), id="delete"),
    pytest.param(lambda fifo, obj: fifo.replace([Thing("b"), obj], "9"), id="replace"),
]


@each_kind
@each_case("call", CALLS)
def test_queue_rejects_object_without_key(kind: Any, call: Any) -> None:
    fifo = kind(known_objects=holding("a1 b1"))

    with pytest.raises(OptionsError):
        call(fifo, object())

    assert (len(fifo), fifo.has_synced, fifo.applied()) == (0, False, None)


# ---------------------------------------------------------------- transforms


def stamped(thing: Thing) -> Thing:
    return Thing(thing.key, thing.version + 100)


@each_kind
@pytest.mark.parametrize("known", [None, "a5"], ids=["nothing-known", "a-known"])
async def test_each_object_passes_transformer_once(
    kind: Any, known: str | None
) -> None:
    store = None if known is None else holding(known)
    fifo = kind(transformer=stamped, known_objects=store)

    put(fifo, "+b1", "~b2", "-b3", "!b4", "+b5")
    fifo.feed([Delta(DeltaType.ADDED, Thing("c", 6))])
    fifo.replace(things("c7"), "9")

    entries = [fifo.pop_nowait() for _ in range(len(fifo))]
    by_object = [entry for entry in entries if isinstance(entry, list)]
    seen = sorted(" ".join(map(text_of, by_object)).split())
    queued = ["+b101", "+b105", "+c106", "-b103", "~b102"]
    ends = [] if known is None else ["!a5"]
    if isinstance(fifo, DeltaFIFO):
        # The tombstone knows less than the deletion before it. The deletion of b has
        # the queued state, which was transformed already.
        assert seen == sorted([*queued, *ends, "*c107", "!b105"])
    elif known is None:
        (whole,) = (entry for entry in entries if isinstance(entry, Replacement))
        assert whole.contents.objects == {"c": Thing("c", 107)}
        assert seen == sorted([*queued, "!b4"])
    else:
        assert seen == sorted([*queued, "!b4", *ends, "!b105", "*c107"])


@each_kind
def test_resynced_objects_do_not_pass_the_transformer(kind: Any) -> None:
    fifo = kind(transformer=stamped, known_objects=holding("a1 b1"))

    fifo.resync()

    assert take_all(fifo) == [".a1", ".b1"]


def test_listed_sync_objects_pass_the_transformer() -> None:
    fifo = DeltaFIFO[Thing](transformer=stamped, emit_replaced=False)

    fifo.replace(things("a1 b1"))

    assert take_all(fifo) == [".a101", ".b101"]


@each_kind
def test_replace_all_does_not_call_the_transformer(kind: Any) -> None:
    fifo = kind(transformer=stamped)

    fifo.replace_all(listing(Thing("a", 1)), "9")

    assert fifo.pop_nowait().contents.objects == {"a": Thing("a", 1)}


def failing(thing: Thing) -> Thing:
    if thing.version == 13:
        raise ZeroDivisionError

    return thing


@each_kind
@each_case("call", CALLS)
def test_object_is_not_queued_if_transformer_fails(kind: Any, call: Any) -> None:
    """Nor is any other object of the same call."""
    fifo = kind(transformer=failing, known_objects=holding("a1 b1"))

    with pytest.raises(ZeroDivisionError):
        call(fifo, Thing("a", 13))

    assert (len(fifo), fifo.has_synced, fifo.applied()) == (0, False, None)


@each_kind
async def test_batch_is_not_queued_if_transformer_fails(kind: Any) -> None:
    fifo = kind(transformer=failing)
    batch = [Delta(DeltaType.ADDED, thing) for thing in things("a1 b13 c1")]

    with pytest.raises(ZeroDivisionError):
        fifo.feed(batch, "9")

    assert (len(fifo), fifo.has_synced, fifo.applied()) == (0, False, None)


# ---------------------------------------------------------------- known objects


class Broken(Store[Thing]):
    """Store of a user that has keys, but fails to look up b."""

    def get_by_key(self, key: str) -> Thing | None:
        if key == "b":
            raise ZeroDivisionError

        return super().get_by_key(key)

    def list_keys(self) -> list[str]:
        return [*super().list_keys(), "gone"]


@pytest.fixture
def broken() -> Broken:
    store = Broken()
    store.replace(things("a1 b1"))
    return store


@each_kind
def test_replace_deletes_objects_whose_lookup_fails(
    kind: Any, broken: Broken, caplog: pytest.LogCaptureFixture
) -> None:
    fifo = kind(known_objects=broken)

    fifo.replace([], "9")

    assert take_all(fifo) == ["!a1", "!b?", "!gone?"]
    assert [record.getMessage() for record in caplog.records] == [
        "look-up of b in known_objects failed"
    ]


def test_deletion_is_queued_if_the_lookup_fails(
    broken: Broken, caplog: pytest.LogCaptureFixture
) -> None:
    fifo = DeltaFIFO(known_objects=broken)

    put(fifo, "-b2", "-c1")

    assert take_all(fifo) == ["-b2"]
    assert len(caplog.records) == 1


@each_kind
def test_resync_leaves_out_objects_whose_lookup_fails(
    kind: Any, broken: Broken, caplog: pytest.LogCaptureFixture
) -> None:
    fifo = kind(known_objects=broken)

    fifo.resync()

    assert take_all(fifo) == [".a1"]
    assert len(caplog.records) == 1


# ---------------------------------------------------------------- batches


class Batches(list[str]):
    """Record of batches, as "a b|c": two keys at once, then a single entry."""

    def __init__(self) -> None:
        self.initial: list[bool] = []

    def several(self, batch: list[Any], initial: bool) -> None:
        assert len(batch) > 1
        self.append(", ".join(map(text_of, batch)))
        self.initial.append(initial)

    def single(self, entry: Any, initial: bool) -> None:
        self.append(text_of(entry))
        self.initial.append(initial)


async def batches_of(fifo: Fifo, limit: int = 1000) -> Batches:
    seen = Batches()
    while len(fifo):
        await fifo.pop_batch(seen.several, seen.single, limit=limit)

    return seen


@pytest.mark.parametrize(
    ("listed", "changes", "limit", "batches", "initial"),
    [
        pytest.param("", "+a1 +b1 +c1", 1000, ["+a1, +b1, +c1"], [False], id="all"),
        pytest.param("", "+a1", 1000, ["+a1"], [False], id="one-comes-alone"),
        pytest.param(
            "a1 b1",
            "+c1 +d1",
            1000,
            ["*a1, *b1", "+c1, +d1"],
            [True, False],
            id="first",
        ),
        pytest.param(
            "", "+a1 +b1 +c1", 2, ["+a1, +b1", "+c1"], [False] * 2, id="limit"
        ),
        pytest.param(
            "a1 b1 c1",
            "+d1",
            2,
            ["*a1, *b1", "*c1", "+d1"],
            [True, True, False],
            id="end",
        ),
        pytest.param("", "+a1 +b1", 1, ["+a1", "+b1"], [False] * 2, id="limit-one"),
        pytest.param("", "=5 +a1 +b1", 1000, ["=5", "+a1, +b1"], None, id="whole-list"),
        pytest.param(
            "", "+a1 +b1 =5 =6 ~a2", 9, ["+a1, +b1", "=5", "=6", "~a2"], None, id="two"
        ),
    ],
)
@each_kind
async def test_pop_batch_pops_entries_up_to_limit(
    kind: Any,
    listed: str,
    changes: str,
    limit: int,
    batches: list[str],
    initial: list[bool] | None,
) -> None:
    fifo = kind(known_objects=Store[Thing]())
    if listed:
        fifo.replace(things(listed), "1")

    put(fifo, *changes.split())
    seen = await batches_of(fifo, limit)

    assert seen == batches
    if initial is not None:
        assert seen.initial == initial


@pytest.mark.parametrize(
    ("changes", "batches"),
    [
        pytest.param("+a1 ~a2 ~a3", ["+a1", "~a2", "~a3"], id="one-key"),
        pytest.param("+a1 +b1 ~b2", ["+a1, +b1", "~b2"], id="at-the-end"),
        pytest.param("+a1 ~a2 +b1 +c1", ["+a1", "~a2, +b1, +c1"], id="in-the-middle"),
        pytest.param("+a1 +b1 @ +c1 +d1", ["+a1, +b1", "@", "+c1, +d1"], id="resync"),
    ],
)
async def test_ordered_fifo_batch_has_each_key_once(
    changes: str, batches: list[str]
) -> None:
    fifo = OrderedFIFO[Thing]()
    put(fifo, *changes.split())

    assert await batches_of(fifo) == batches


async def test_delta_fifo_batch_has_all_changes_of_each_key() -> None:
    fifo = DeltaFIFO[Thing]()
    put(fifo, "+a1", "+b1", "~a2")

    assert await batches_of(fifo) == ["+a1 ~a2, +b1"]


async def test_queue_has_synced_after_feed(fifo: Fifo) -> None:
    fifo.feed([], "6")
    before = fifo.has_synced

    fifo.feed(deltas("a"), "7")

    assert (before, fifo.has_synced) == (False, True)


async def test_has_synced_after_the_batch_was_processed(fifo: Fifo) -> None:
    during: list[bool] = []
    fifo.replace_all(listing(), "5")
    fifo.add(Thing("a"))

    await fifo.pop_batch(nothing, lambda entry, initial: during.append(fifo.has_synced))

    assert (during, fifo.has_synced) == ([False], True)


async def test_requeued_batch_is_queued_again_as_a_whole(
    fifo: Fifo,
) -> None:
    fifo.feed(deltas("a", "b", "c"), "7")

    await fifo.pop_batch(again, again, limit=2)

    by_key = isinstance(fifo, DeltaFIFO)
    assert fifo.applied() is None
    assert take_all(fifo) == (
        ["~c0", "~a0", "~b0"] if by_key else ["~a0", "~b0", "~c0"]
    )
    assert fifo.applied() == "7"


async def test_failed_batch_counts_as_popped(fifo: Fifo) -> None:
    def fail(entries: object, initial: bool) -> None:
        raise ZeroDivisionError

    fifo.feed(deltas("a", "b"), "7")

    with pytest.raises(ZeroDivisionError):
        await fifo.pop_batch(fail, nothing)

    assert (len(fifo), fifo.applied()) == (0, "7")


@pytest.mark.parametrize("limit", [0, -1])
async def test_pop_batch_rejects_limit_below_one(fifo: Fifo, limit: int) -> None:
    fifo.add(Thing("a"))

    with pytest.raises(OptionsError, match="at least 1"):
        await fifo.pop_batch(nothing, nothing, limit=limit)

    assert len(fifo) == 1
