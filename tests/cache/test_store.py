"""`Store` and `Indexer`: reads, writes, indexes, replacement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from each_case import each_case
from store_helpers import Thing, by_tag, by_version, contents_of, memory_of

from aioinformer.cache import DeletedFinalStateUnknown, Indexer, Store
from aioinformer.errors import HandlerError, NoKey, OptionsError
from aioinformer.model.keys import meta_namespace_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


each_write = pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda store, thing: store.add(thing), id="add"),
        pytest.param(lambda store, thing: store.update(thing), id="update"),
        pytest.param(lambda store, thing: store.replace([thing]), id="replace"),
    ],
)


@pytest.fixture
def indexer() -> Indexer[Thing]:
    return Indexer({"tag": by_tag, "version": by_version})


# ---------------------------------------------------------------- a store


def test_new_store_is_empty() -> None:
    store = Store[Thing]()

    assert len(store) == 0
    assert store.list() == []
    assert store.list_keys() == []
    assert store.resource_version == ""
    assert repr(store) == "<Store 0 objects>"


@each_write
def test_store_returns_written_objects(write: Callable[..., None]) -> None:
    store, thing = Store[Thing](), Thing("shop/web")

    write(store, thing)

    assert store.get_by_key("shop/web") is thing
    assert store.get(Thing("shop/web", version=9)) is thing
    assert store.list() == [thing]
    assert store.list_keys() == ["shop/web"]
    assert "shop/web" in store
    assert repr(store) == "<Store 1 objects>"


@each_write
def test_last_write_of_a_key_wins(write: Callable[..., None]) -> None:
    store = Store[Thing]()
    store.add(Thing("a", version=2))

    write(store, Thing("a", version=1))

    assert store.list() == [Thing("a", version=1)]


def test_reads_of_missing_objects_return_none() -> None:
    store = Store[Thing]()
    store.add(Thing("a"))

    assert store.get_by_key("b") is None
    assert store.get(Thing("b")) is None
    assert "b" not in store
    assert 7 not in store


@pytest.mark.parametrize(
    "deleted",
    [
        pytest.param(Thing("a", version=5), id="another-state"),
        pytest.param(DeletedFinalStateUnknown("a", None), id="tombstone"),
        pytest.param("a", id="key"),
    ],
)
def test_delete_removes_the_object_with_the_key(deleted: Any) -> None:
    store = Store[Any]()
    store.add(Thing("a"))
    store.add(Thing("b"))

    store.delete(deleted)

    assert store.list_keys() == ["b"]


def test_delete_of_missing_object_does_nothing(indexer: Indexer[Thing]) -> None:
    indexer.add(Thing("a", ("x",)))

    indexer.delete(Thing("b", ("x",)))

    assert contents_of(indexer) == {"x": {"a"}}


def test_store_uses_key_function() -> None:
    store = Store[Thing](key_func=lambda thing: f"v{thing.version}")

    store.add(Thing("a", version=3))

    assert store.list_keys() == ["v3"]


def no_name(obj: object) -> str:
    raise LookupError("no name")


@each_case(
    "key_func, cause",
    [
        pytest.param(meta_namespace_key, None, id="no-metadata"),
        pytest.param(no_name, LookupError, id="fails"),
        pytest.param(lambda obj: 7, None, id="no-string"),
        pytest.param(lambda obj: ["a"], None, id="not-hashable"),
        pytest.param(lambda obj: None, None, id="none"),
    ],
)
def test_store_rejects_object_without_key_before_any_change(
    key_func: Callable[[object], str], cause: type[Exception] | None
) -> None:
    nameless = object()

    def key_of(obj: object) -> str:
        return key_func(obj) if obj is nameless else meta_namespace_key(obj)

    store = Indexer[Any]({"key": lambda obj: [obj.key]}, key_func=key_of)
    store.add(Thing("a"))
    store.applied("7")

    for step in (store.add, store.update, store.delete, store.get):
        with pytest.raises(NoKey, match="object has no key") as caught:
            step(nameless)

        assert caught.value.obj is nameless
        assert isinstance(caught.value.__cause__, cause or type(None))

    with pytest.raises(NoKey):
        store.replace([Thing("b"), nameless], "8")

    assert store.list_keys() == store.list_index_func_values("key") == ["a"]
    assert store.resource_version == "7"


def test_store_returns_new_lists(indexer: Indexer[Thing]) -> None:
    indexer.add(Thing("a", ("x",)))
    by_index = indexer.by_index

    for answer in (indexer.list, indexer.list_keys, lambda: by_index("tag", "x")):
        answer().clear()

    indexer.indexers.clear()

    assert indexer.list() == by_index("tag", "x") == [Thing("a", ("x",))]
    assert indexer.list_keys() == ["a"]
    assert set(indexer.indexers) == {"tag", "version"}


def test_resync_does_nothing(indexer: Indexer[Thing]) -> None:
    indexer.add(Thing("a", ("x",)))

    indexer.resync()

    assert indexer.list() == [Thing("a", ("x",))]
    assert contents_of(indexer) == {"x": {"a"}}


def test_resource_version_is_that_applied_last() -> None:
    store = Store[Thing]()

    store.applied("9")
    first = store.resource_version
    store.replace([], "4")

    assert first == "9"
    assert store.resource_version == "4", "also if it went backwards"


def test_writes_do_not_change_resource_version() -> None:
    """Otherwise part of a batch would show a version that is not complete."""
    store = Store[Thing]()
    store.applied("7")

    store.add(Thing("a", version=9))
    store.update(Thing("a", version=10))
    store.delete(Thing("a", version=11))

    assert store.resource_version == "7"


# ---------------------------------------------------------------- indexes


def test_indexer_finds_objects_by_each_value(indexer: Indexer[Thing]) -> None:
    one, two = Thing("b", ("x", "y")), Thing("a", ("y",))
    indexer.add(one)
    indexer.add(two)

    assert indexer.by_index("tag", "x") == [one]
    assert indexer.by_index("tag", "y") == [one, two]
    assert indexer.by_index("tag", "z") == []
    assert indexer.index_keys("tag", "y") == ["a", "b"]  # sorted
    assert indexer.index_keys("tag", "z") == []
    assert sorted(indexer.list_index_func_values("tag")) == ["x", "y"]


def test_index_returns_objects_that_share_a_value(indexer: Indexer[Thing]) -> None:
    things = [Thing("a", ("x", "y")), Thing("b", ("y", "z")), Thing("c", ("z",))]
    for thing in things:
        indexer.add(thing)

    assert indexer.index("tag", Thing("new", ("x", "y"))) == things[:2]


def test_string_is_one_index_value() -> None:
    indexer = Indexer[Thing]({"key": lambda thing: thing.key})
    for key in ("a", "b", "ab"):
        indexer.add(Thing(key))

    assert indexer.index("key", Thing("ab")) == [Thing("ab")]


def test_index_raises_error_of_function() -> None:
    reported: list[HandlerError] = []
    indexer = Indexer({"tag": by_tag}, on_error=reported.append)

    with pytest.raises(ZeroDivisionError):
        indexer.index("tag", Thing("a", ("bad",)))

    assert reported == []


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda it: it.by_index("node", "x"), id="by_index"),
        pytest.param(lambda it: it.index_keys("node", "x"), id="index_keys"),
        pytest.param(lambda it: it.index("node", Thing("a")), id="index"),
        pytest.param(lambda it: it.list_index_func_values("node"), id="values"),
    ],
)
def test_unknown_index_error_lists_known_names(
    indexer: Indexer[Thing], read: Callable[[Indexer[Thing]], object]
) -> None:
    with pytest.raises(OptionsError, match=r"'node' \(indexes: tag, version\)"):
        read(indexer)

    with pytest.raises(OptionsError, match="indexes: none"):
        read(Indexer[Thing]())


def test_indexes_follow_updates_and_deletions(
    indexer: Indexer[Thing],
) -> None:
    history = []
    for tags in (("x",), ("x", "y"), ("y", "z"), (), ("x",)):
        indexer.update(Thing("a", tags))
        history.append(sorted(contents_of(indexer)))

    indexer.delete(Thing("a"))

    assert history == [["x"], ["x", "y"], ["y", "z"], [], ["x"]]
    assert contents_of(indexer) == contents_of(indexer, "version") == {}


def test_index_function_is_never_called_for_old_object() -> None:
    calls: list[int] = []

    def function(thing: Thing) -> Iterable[str]:
        calls.append(thing.version)
        return thing.tags

    indexer = Indexer({"tag": function})
    indexer.add(Thing("a", ("x",), 1))
    indexer.update(Thing("a", ("x", "y"), 2))
    replacement = indexer.replacement()
    replacement.keep("a", Thing("a", ("x", "y"), 2), indexer.contents)
    indexer.swap(replacement)
    indexer.delete(Thing("a"))

    assert calls == [1, 2]


class Untouchable(dict[str, Thing]):
    """Dict that allows look-ups by key, but no iteration."""

    def refuse(self, *args: object) -> Any:
        raise AssertionError("iterates over all objects")

    __iter__ = items = keys = values = refuse


def test_index_reads_touch_only_matching_objects() -> None:
    calls: list[Thing] = []

    def function(thing: Thing) -> Iterable[str]:
        calls.append(thing)
        return thing.tags

    indexer = Indexer({"tag": function})
    things = [Thing(f"t{n}", ("few" if n < 3 else "many",)) for n in range(1000)]
    indexer.replace(things)
    contents = memory_of(indexer)
    contents.objects = Untouchable(contents.objects)
    buckets = contents.indexes["tag"].buckets
    buckets["many"] = Untouchable(buckets["many"])
    calls.clear()

    assert indexer.by_index("tag", "few") == things[:3]
    assert indexer.index_keys("tag", "few") == ["t0", "t1", "t2"]
    assert indexer.index("tag", things[0]) == things[:3]
    assert indexer.by_index("tag", "none") == []
    assert indexer.index_keys("tag", "none") == []
    assert indexer.list_index_func_values("tag") == ["few", "many"]
    assert indexer.get_by_key("t7") is things[7]
    assert calls == [things[0]]
    with pytest.raises(AssertionError):
        indexer.list()


# ---------------------------------------------------------------- indexes added later


def test_index_added_later_has_all_stored_objects() -> None:
    indexer = Indexer[Thing]()
    indexer.add(Thing("a", ("x",)))

    indexer.add_indexers({"tag": by_tag})
    indexer.add(Thing("b", ("x",)))

    assert contents_of(indexer) == {"x": {"a", "b"}}
    assert indexer.indexers == {"tag": by_tag}


def test_add_indexers_of_same_index_changes_nothing() -> None:
    calls: list[str] = []

    def function(thing: Thing) -> Iterable[str]:
        calls.append(thing.key)
        return thing.tags

    indexer = Indexer({"tag": function})
    indexer.add(Thing("a", ("x",)))

    indexer.add_indexers({"tag": function})

    assert calls == ["a"]
    assert contents_of(indexer) == {"x": {"a"}}


def test_add_indexers_adds_nothing_if_a_name_is_taken(
    indexer: Indexer[Thing],
) -> None:
    indexer.add(Thing("a", ("x",)))

    with pytest.raises(OptionsError, match="'tag'"):
        indexer.add_indexers({"new": by_version, "tag": by_version})

    assert indexer.indexers == {"tag": by_tag, "version": by_version}
    assert contents_of(indexer) == {"x": {"a"}}
