"""Indexes built while the store changes, and errors reported after a write."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from store_helpers import Thing, by_tag, by_version, contents_of, memory_of

from aioinformer.cache import Contents, Indexer, index_by_label
from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioinformer.errors import HandlerError

MANY = 100


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the loop turn several times after a few objects each."""
    monkeypatch.setattr("aioinformer.budget.SLICE_SECONDS", 0.0)


@pytest.fixture
def indexer() -> Indexer[Thing]:
    made: Indexer[Thing] = Indexer({"version": by_version})
    made.replace([Thing(f"t{n}", ("x",), 1) for n in range(MANY)], "1")
    return made


def tags_of(indexer: Indexer[Thing]) -> dict[str, set[str]]:
    """Return the expected content of the index by tag."""
    found: dict[str, set[str]] = {}
    for thing in indexer.list():
        for tag in () if "bad" in thing.tags else thing.tags:
            found.setdefault(tag, set()).add(thing.key)

    return found


# ---------------------------------------------------------------- in slices


@pytest.mark.usefixtures("slices")
async def test_build_indexers_works_in_slices_and_publishes_complete_indexes(
    indexer: Indexer[Thing],
) -> None:
    building = asyncio.create_task(
        indexer.build_indexers({"tag": by_tag, "more": lambda it: [it.key]})
    )
    turns = 0
    while not building.done():
        assert set(indexer.indexers) == {"version"}
        with pytest.raises(OptionsError, match="indexes: version"):
            indexer.by_index("tag", "x")

        turns += 1
        await asyncio.sleep(0)

    assert turns > 10
    assert set(indexer.indexers) == {"version", "tag", "more"}
    assert indexer.by_index("tag", "x") == indexer.list()
    assert indexer.list_index_func_values("more") == indexer.list_keys()
    assert memory_of(indexer).growing == []


def replace(indexer: Indexer[Thing]) -> None:
    indexer.replace([Thing(f"t{n}", ("z",), 2) for n in range(0, 2 * MANY, 3)], "2")


def swap_in_what_was_kept(indexer: Indexer[Thing]) -> None:
    replacement = indexer.replacement()
    for thing in indexer.list()[::2]:
        replacement.keep(thing.key, thing, indexer.contents)

    indexer.swap(replacement)


def change_everything(indexer: Indexer[Thing]) -> None:
    for number, thing in enumerate(indexer.list()):
        if number % 3:
            indexer.update(Thing(thing.key, ("y", "z"), 2))
        else:
            indexer.delete(thing)


def come_and_go(indexer: Indexer[Thing]) -> None:
    for _ in range(3):
        indexer.add(Thing("new", ("x", "new")))
        indexer.delete(Thing("t7"))
        indexer.delete(Thing("new"))
        indexer.add(Thing("t7", ("again",)))


def fail(indexer: Indexer[Thing]) -> None:
    for number in range(0, MANY, 2):
        indexer.update(Thing(f"t{number}", ("bad",)))


def add_another(indexer: Indexer[Thing]) -> None:
    indexer.add_indexers({"another": by_tag})


@pytest.mark.usefixtures("slices")
@pytest.mark.parametrize(
    "write",
    [replace, swap_in_what_was_kept, change_everything, come_and_go, fail, add_another],
)
@pytest.mark.parametrize("turns", [0, 5, 12, 20])
async def test_index_build_includes_objects_written_meanwhile(
    indexer: Indexer[Thing], write: Callable[[Indexer[Thing]], None], turns: int
) -> None:
    building = asyncio.create_task(indexer.build_indexers({"tag": by_tag}))
    for _ in range(turns):
        await asyncio.sleep(0)

    before = memory_of(indexer)
    write(indexer)
    under_way = not building.done()
    await building
    write(indexer)

    assert under_way
    assert contents_of(indexer) == tags_of(indexer)
    assert before.growing == memory_of(indexer).growing == []


@pytest.mark.usefixtures("slices")
async def test_index_build_calls_the_function_once_for_each_object(
    indexer: Indexer[Thing],
) -> None:
    calls: list[Thing] = []

    def function(thing: Thing) -> Iterable[str]:
        calls.append(thing)
        return thing.tags

    building = asyncio.create_task(indexer.build_indexers({"tag": function}))
    await asyncio.sleep(0)
    come_and_go(indexer)
    await building

    assert len(calls) == len(set(calls)) == MANY
    assert contents_of(indexer) == tags_of(indexer)


@pytest.mark.usefixtures("slices")
async def test_index_build_follows_changes_with_a_recomputable_function() -> None:
    """Results are not stored: an object that was not entered must not be removed."""
    indexer = Indexer[Any]()
    labels = Labelled
    indexer.replace([labels(f"t{n}", {"app": "x"}) for n in range(MANY)])
    building = asyncio.create_task(indexer.build_indexers({"a": index_by_label("app")}))
    for _ in range(12):
        await asyncio.sleep(0)

    for number in range(MANY):
        indexer.update(labels(f"t{number}", {"app": f"v{number % 3}"}))
        if number % 5 == 0:
            indexer.delete(labels(f"t{number}", {}))

    under_way = not building.done()
    await building

    assert under_way
    assert sorted(indexer.list_index_func_values("a")) == ["v0", "v1", "v2"]
    assert sum(len(indexer.by_index("a", f"v{n}")) for n in range(3)) == len(indexer)


class Labelled:
    """Object with labels, for an index by label."""

    def __init__(self, key: str, label_set: dict[str, str]) -> None:
        self.key = key
        self.label_set = label_set


@pytest.mark.usefixtures("slices")
async def test_cancelled_index_build_leaves_no_index(
    indexer: Indexer[Thing],
) -> None:
    building = asyncio.create_task(indexer.build_indexers({"tag": by_tag}))
    for _ in range(12):
        await asyncio.sleep(0)

    building.cancel()
    await asyncio.wait({building})
    indexer.add(Thing("new", ("x",)))

    assert building.cancelled()
    assert set(indexer.indexers) == {"version"}
    assert memory_of(indexer).growing == []


@pytest.mark.usefixtures("slices")
async def test_index_name_is_taken_when_its_build_starts(
    indexer: Indexer[Thing],
) -> None:
    building = asyncio.create_task(indexer.build_indexers({"tag": by_tag}))
    await asyncio.sleep(0)

    with pytest.raises(OptionsError, match="'tag'"):
        indexer.add_indexers({"more": by_version, "tag": by_version})

    with pytest.raises(OptionsError, match="'tag'"):
        await indexer.build_indexers({"tag": by_version})

    await building
    assert indexer.indexers == {"version": by_version, "tag": by_tag}


@pytest.mark.usefixtures("slices")
async def test_index_can_be_built_by_several_tasks_at_once(
    indexer: Indexer[Thing],
) -> None:
    first = asyncio.create_task(indexer.build_indexers({"tag": by_tag}))
    second = asyncio.create_task(indexer.build_indexers({"tag": by_tag}))
    await asyncio.sleep(0)
    indexer.add_indexers({"tag": by_tag})
    at_once = contents_of(indexer)
    indexer.add(Thing("new", ("y",)))

    await first
    await second
    indexer.delete(Thing("t0"))

    assert at_once == {"x": {f"t{n}" for n in range(MANY)}}
    assert contents_of(indexer) == tags_of(indexer)


async def test_build_of_existing_index_does_nothing(indexer: Indexer[Thing]) -> None:
    before = indexer.contents.indexes["version"]

    await indexer.build_indexers({"version": by_version})
    await indexer.build_indexers({})

    assert indexer.contents.indexes == {"version": before}


# ---------------------------------------------------------------- late indexes


@pytest.mark.usefixtures("slices")
@pytest.mark.parametrize("sliced", [True, False], ids=["complete", "swap-alone"])
async def test_replacement_gets_indexes_added_since_it_was_made(
    indexer: Indexer[Thing], sliced: bool
) -> None:
    calls: list[str] = []

    def late(thing: Thing) -> Iterable[str]:
        calls.append(f"{thing.key}@{thing.version}")
        return by_tag(thing)

    replacement = indexer.replacement()
    for thing in indexer.list()[: MANY // 2]:
        replacement.keep(thing.key, thing, indexer.contents)

    replacement.put("new", Thing("new", ("y",)))
    indexer.add_indexers({"tag": late})
    if sliced:
        completing = asyncio.create_task(indexer.complete(replacement))
        await asyncio.sleep(0)
        replacement.put("newer", Thing("newer", ("y",)))
        under_way = not completing.done()
        await completing
        assert under_way
        assert set(replacement.indexes) == {"version", "tag"}

    calls_before_swap = len(calls)
    indexer.swap(replacement, "2")

    assert contents_of(indexer) == tags_of(indexer)
    assert len(calls) == len(set(calls)), "once for each object"
    assert not sliced or len(calls) == calls_before_swap
    assert memory_of(indexer).growing == []


@pytest.mark.usefixtures("slices")
async def test_index_build_follows_a_store_that_uses_other_contents(
    indexer: Indexer[Thing],
) -> None:
    """A store may go on in memory, or on disk, at any time."""
    other = Indexer[Thing]({"version": by_version})
    other.replace([Thing(f"o{n}", ("y",)) for n in range(MANY)], "7")
    building = asyncio.create_task(indexer.build_indexers({"tag": by_tag}))
    for _ in range(5):
        await asyncio.sleep(0)

    before = indexer.contents
    assert indexer.use(other.contents) is before
    with pytest.raises(OptionsError, match="'tag' already exists"):
        indexer.add_indexers({"tag": by_version})

    await building

    assert indexer.resource_version == "7"
    assert contents_of(indexer) == {"y": set(indexer.list_keys())}
    assert len(indexer) == MANY
    assert memory_of(indexer).growing == []


async def test_failure_in_a_late_index_is_reported_once() -> None:
    failures: list[HandlerError] = []
    indexer = Indexer[Thing](on_error=failures.append)
    bad = Thing("a", ("bad",))
    indexer.add(bad)
    replacement = indexer.replacement()
    replacement.keep("a", bad, indexer.contents)

    indexer.add_indexers({"tag": by_tag})
    await indexer.complete(replacement)
    indexer.swap(replacement)

    assert len(failures) == 1
    assert indexer.list() == [bad]


async def test_complete_does_nothing_if_no_index_is_missing(
    indexer: Indexer[Thing],
) -> None:
    replacement = indexer.replacement()
    indexes = dict(replacement.indexes)

    await indexer.complete(replacement)

    assert replacement.indexes == indexes


# ---------------------------------------------------------------- errors after the write


@pytest.mark.parametrize(
    ("write", "found"),
    [
        pytest.param(
            lambda it: it.add(Thing("a", ("bad",), 2)), {"2": {"a"}}, id="add"
        ),
        pytest.param(
            lambda it: it.replace([Thing("a", ("bad",), 2), Thing("b")]),
            {"2": {"a"}, "0": {"b"}},
            id="replace",
        ),
        pytest.param(lambda it: keep_from_elsewhere(it), {"2": {"a"}}, id="keep"),
    ],
)
def test_on_error_sees_the_finished_write(
    write: Callable[[Indexer[Thing]], None], found: dict[str, set[str]]
) -> None:
    seen: list[tuple[Thing | None, dict[str, set[str]]]] = []

    def look(failure: HandlerError) -> None:
        contents = latest[-1] if latest else indexer.contents
        by_version = contents.indexes["version"]
        seen.append(
            (
                contents.objects.get("a"),
                {it: set(by_version.keys_of(it)) for it in by_version.values()},
            )
        )

    # The failing index comes first.
    indexer = Indexer[Thing]({"tag": by_tag, "version": by_version}, on_error=look)
    latest: list[Contents[Thing]] = []
    replacement = indexer.replacement

    def remembered() -> Contents[Thing]:
        latest.append(replacement())
        return latest[-1]

    indexer.replacement = remembered  # type: ignore[method-assign]
    write(indexer)

    assert seen == [(Thing("a", ("bad",), 2), found)]


def keep_from_elsewhere(indexer: Indexer[Thing]) -> None:
    source = Indexer[Thing]().contents
    indexer.replacement().keep("a", Thing("a", ("bad",), 2), source)


@pytest.mark.parametrize("late", [False, True], ids=["on-arrival", "in-a-late-index"])
def test_on_error_may_delete_the_object(late: bool) -> None:
    def delete(failure: HandlerError) -> None:
        assert isinstance(failure.subject, Thing)
        made.delete(failure.subject)

    made: Indexer[Thing] = Indexer({"version": by_version}, on_error=delete)
    if not late:
        made.add_indexers({"tag": by_tag})

    for thing in (Thing("a", ("x",)), Thing("b", ("bad",)), Thing("c", ("x", "bad"))):
        made.add(thing)

    if late:
        made.add_indexers({"tag": by_tag})

    assert made.list_keys() == ["a"]
    assert contents_of(made) == {"x": {"a"}}
    assert contents_of(made, "version") == {"0": {"a"}}


def test_on_error_may_replace_the_object() -> None:
    def mend(failure: HandlerError) -> None:
        assert isinstance(failure.subject, Thing)
        made.update(Thing(failure.subject.key, ("mended",), 2))

    made: Indexer[Thing] = Indexer(on_error=mend)
    for number in range(40):
        made.add(Thing(f"t{number}", ("bad",) if number % 2 else ("x",)))

    made.add_indexers({"tag": by_tag})

    assert contents_of(made) == tags_of(made)
    assert len(made.by_index("tag", "mended")) == 20
