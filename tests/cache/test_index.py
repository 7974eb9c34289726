"""Index functions, and one index."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from conftest import pod
from each_case import each_case
from hypothesis import given
from hypothesis import strategies as st

from aioinformer.cache.index import Index, by_namespace, index_by, index_by_label
from aioinformer.errors import OptionsError
from aioinformer.model.objects import KubeObject

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.model.paths import Path


@dataclass(frozen=True)
class Thing:
    """Object whose `tags` are the result of the index function."""

    tags: Any
    number: int = 0


def tags_of(thing: Thing) -> Iterable[str]:
    tags: Iterable[str] = thing.tags
    return tags


def recomputed_tags_of(thing: Thing) -> Iterable[str]:
    return tags_of(thing)


recomputed_tags_of.recomputable = True  # type: ignore[attr-defined]


class Color(enum.StrEnum):
    RED = "red"


both_kinds = pytest.mark.parametrize(
    "function",
    [
        pytest.param(tags_of, id="remembered"),
        pytest.param(recomputed_tags_of, id="recomputed"),
    ],
)


def keys_by_value(index: Index[Any]) -> dict[str, set[str]]:
    return {value: set(bucket) for value, bucket in index.buckets.items()}


# ---------------------------------------------------------------- index functions


@each_case(
    "path, more, values",
    [
        pytest.param("spec.nodeName", {}, ["node-1"], id="string"),
        pytest.param("spec.nodeName", {"spec": {"nodeName": None}}, [], id="null"),
        pytest.param("spec.absent.deeper", {}, [], id="absent"),
        pytest.param("spec", {}, [], id="object"),
        pytest.param("spec.priority", {"spec": {"priority": 7}}, ["7"], id="integer"),
        pytest.param("spec.part", {"spec": {"part": 1.5}}, ["1.5"], id="float"),
        pytest.param("spec.on", {"spec": {"on": True}}, ["true"], id="boolean"),
        pytest.param("spec.x", {"spec": {"x": ""}}, [""], id="empty-string"),
        pytest.param(
            "spec.ips", {"spec": {"ips": ["a", 1, None]}}, ["a", "1"], id="array"
        ),
        pytest.param("spec.ips", {"spec": {"ips": []}}, [], id="empty-array"),
        pytest.param(
            "spec.x", {"spec": {"x": [["a"], {"b": "c"}]}}, ["a"], id="array-in-array"
        ),
        pytest.param(
            "spec.containers.0.image", {}, ["registry.example/app:1"], id="array-step"
        ),
        pytest.param(
            ("metadata", "labels", "example.com/app"),
            {"metadata": {"labels": {"example.com/app": "web"}}},
            ["web"],
            id="key-with-dots",
        ),
    ],
)
def test_index_by_returns_values_at_path(
    path: Path, more: dict[str, Any], values: list[str]
) -> None:
    obj = KubeObject.of(pod("web", **more))

    assert list(index_by(path)(obj)) == values


@pytest.mark.parametrize("path", ["", "spec..nodeName", ()])
def test_index_by_rejects_malformed_path(path: Path) -> None:
    with pytest.raises(OptionsError):
        index_by(path)


@each_case(
    "labels, values",
    [
        pytest.param({"app": "web", "tier": "a"}, ["web"], id="has-it"),
        pytest.param({"app": ""}, [""], id="empty"),
        pytest.param({"tier": "a"}, [], id="has-another"),
        pytest.param({}, [], id="has-none"),
    ],
)
def test_index_by_label_returns_value_of_label(
    labels: dict[str, str], values: list[str]
) -> None:
    obj = KubeObject.of(pod("web", labels=labels))

    assert list(index_by_label("app")(obj)) == values


def test_namespace_index_returns_namespace() -> None:
    assert list(by_namespace(KubeObject.of(pod("web", "shop")))) == ["shop"]


# ---------------------------------------------------------------- entering, leaving


@both_kinds
@each_case(
    "tags, values",
    [
        pytest.param((), set(), id="none"),
        pytest.param([], set(), id="none-in-a-list"),
        pytest.param(("abc",), {"abc"}, id="one"),
        pytest.param(["abc"], {"abc"}, id="one-in-a-list"),
        pytest.param("abc", {"abc"}, id="string-is-one-value"),
        pytest.param("", {""}, id="empty-string"),
        pytest.param(Color.RED, {"red"}, id="enum"),
        pytest.param([Color.RED], {"red"}, id="enum-in-a-list"),
        pytest.param((Color.RED, "b"), {"red", "b"}, id="enum-of-several"),
        pytest.param(("b", "a", "b"), {"a", "b"}, id="several"),
        pytest.param({"a": 1, "b": 2}, {"a", "b"}, id="mapping"),
        pytest.param(
            ("a\x00b", 'quo"te', "ünï"), {"a\x00b", 'quo"te', "ünï"}, id="odd"
        ),
    ],
)
def test_index_finds_object_under_each_value(
    function: Any, tags: Any, values: set[str]
) -> None:
    index = Index[Thing](function)
    thing = Thing(tags)

    index.put("key", thing, None)

    assert index.buckets == {value: {"key": thing} for value in values}


def test_index_reads_generator_of_values_once() -> None:
    index = Index[str](lambda text: (word for word in text.split()))

    index.put("key", "a b a", None)
    entered = keys_by_value(index)
    index.remove("key", "a b a")

    assert entered == {"a": {"key"}, "b": {"key"}}
    assert index.buckets == {}


@both_kinds
@each_case(
    "before, after",
    [
        pytest.param("a", "a", id="same"),
        pytest.param("a", "b", id="moves"),
        pytest.param("a", "", id="loses-its-only-value"),
        pytest.param("", "a", id="gets-its-first-value"),
        pytest.param("a", "a b c", id="grows"),
        pytest.param("a b c", "b", id="shrinks-to-one"),
        pytest.param("a b c", "a c", id="shrinks"),
        pytest.param("a b c", "", id="shrinks-to-none"),
        pytest.param("a b", "b c", id="moves-partly"),
        pytest.param("a b", "c d", id="moves-wholly"),
        pytest.param("", "", id="never-had-any"),
    ],
)
def test_index_update_leaves_exactly_new_values(
    function: Any, before: str, after: str
) -> None:
    index = Index[Thing](function)
    other = Thing(("a", "x"))
    old, new = Thing(tuple(before.split()), 1), Thing(tuple(after.split()), 2)
    index.put("other", other, None)
    index.put("key", old, None)

    index.put("key", new, old)

    wanted: dict[str, dict[str, Thing]] = {"a": {"other": other}, "x": {"other": other}}
    for value in after.split():
        wanted.setdefault(value, {})["key"] = new

    assert index.buckets == wanted


@both_kinds
def test_index_removes_empty_bucket(function: Any) -> None:
    index = Index[Thing](function)
    one, two = Thing(("a", "b")), Thing(("b",))
    index.put("one", one, None)
    index.put("two", two, None)

    index.remove("one", one)
    left = keys_by_value(index)
    index.remove("two", two)

    assert left == {"b": {"two"}}
    assert index.buckets == {}


def test_index_remove_of_object_without_values_changes_nothing() -> None:
    index = Index[Thing](tags_of)
    index.put("a", Thing(("x",)), None)
    index.put("b", Thing(()), None)

    index.remove("b", Thing(()))

    assert keys_by_value(index) == {"x": {"a"}}


def test_index_drops_the_values_of_a_removed_object() -> None:
    index = Index[Thing](tags_of)
    for number, tags in enumerate([("a",), ("a", "b"), ()]):
        index.put(str(number), Thing(tags), None)

    index.put("0", Thing(()), Thing(("a",)))
    index.remove("1", Thing(("a", "b")))
    index.remove("2", Thing(()))

    assert index._values == {}


@pytest.mark.parametrize("count", [1, 2, 1500])
def test_index_updates_any_number_of_values(count: int) -> None:
    index = Index[Thing](tags_of)
    tags = tuple(f"10.0.{number}" for number in range(count))
    old, same, fewer = Thing(tags, 1), Thing(tags, 2), Thing(tags[1:], 3)
    index.put("key", old, None)

    index.put("key", same, old)
    index.put("key", fewer, same)

    assert index.buckets == {tag: {"key": fewer} for tag in tags[1:]}


# ---------------------------------------------------------------- the function


def test_index_function_is_called_once_for_each_object() -> None:
    calls: list[int] = []

    def function(thing: Thing) -> Iterable[str]:
        calls.append(thing.number)
        return tags_of(thing)

    index = Index[Thing](function)
    one, two = Thing(("a", "b"), 1), Thing(("b", "c"), 2)
    index.put("key", one, None)
    index.put("key", two, one)
    index.values_of("key", two)
    index.remove("key", two)

    assert calls == [1, 2]


@both_kinds
@each_case(
    "tags",
    [
        pytest.param(None, id="nothing"),
        pytest.param((None,), id="none"),
        pytest.param([None], id="none-in-a-list"),
        pytest.param((7,), id="number"),
        pytest.param([7, 8], id="numbers"),
        pytest.param(("a", 7), id="mixed"),
        pytest.param([("a", "b")], id="tuples"),
        pytest.param(("a", "\ud800"), id="not-unicode"),
    ],
)
def test_index_rejects_values_that_are_not_strings_before_any_change(
    function: Any, tags: Any
) -> None:
    index = Index[Thing](function)
    old = Thing(("a", "b"))
    index.put("key", old, None)

    with pytest.raises((TypeError, ValueError)):
        index.put("key", Thing(tags), old)

    assert index.buckets == {"a": {"key": old}, "b": {"key": old}}


def test_index_function_that_fails_on_removal_counts_as_no_value() -> None:
    """The function failed when the object was added, so it is in no bucket."""
    index = Index[Any](index_by_label("app"))
    with_label = KubeObject.of(pod("web", labels={"app": "a"}))

    index.remove("broken", object())
    index.put("key", with_label, object())

    assert index.values_of("broken", object()) is None
    assert index.buckets == {"a": {"key": with_label}}


class Watched(dict[str, Thing]):
    """Dict that checks what a reader in another thread could see."""

    def __delitem__(self, key: str) -> None:
        raise AssertionError(f"{key} was missing for a moment")


@both_kinds
def test_index_update_never_hides_object_under_kept_value(function: Any) -> None:
    index = Index[Thing](function)
    old, new = Thing(("a", "kept")), Thing(("b", "kept"))
    index.put("key", old, None)
    index.buckets["kept"] = Watched(index.buckets["kept"])

    index.put("key", new, old)

    assert index.buckets == {"b": {"key": new}, "kept": {"key": new}}


def test_index_enters_known_values_without_calling_function() -> None:
    def function(thing: Thing) -> Iterable[str]:
        raise AssertionError("not to be calls")

    source = Index[Thing](tags_of)
    target = Index[Thing](function)
    things = {"a": Thing(("x",)), "b": Thing(("x", "y")), "c": Thing(())}
    for key, thing in things.items():
        source.put(key, thing, None)

    for key, thing in things.items():
        target.put_values(key, thing, source.values_of(key, thing), None)

    assert target.buckets == source.buckets


def test_index_find_returns_each_object_that_shares_a_value_once() -> None:
    index = Index[Thing](tags_of)
    things = [Thing(("a", "b"), 1), Thing(("b", "c"), 2), Thing(("d",), 3)]
    for thing in things:
        index.put(str(thing.number), thing, None)

    assert index.find(Thing(("a", "b", "unknown"))) == things[:2]
    assert index.find(Thing("d")) == things[2:]
    assert index.find(Thing(())) == []


@both_kinds
def test_empty_copy_of_index_has_same_function(function: Any) -> None:
    index = Index[Thing](function)
    index.put("key", Thing(("a",)), None)

    copy = index.empty_copy()
    copy.put("other", Thing(("b",)), None)

    assert copy.function is function
    assert keys_by_value(copy) == {"b": {"other"}}
    assert keys_by_value(index) == {"a": {"key"}}


@both_kinds
@given(steps=st.lists(st.tuples(st.sampled_from("xyz"), st.none() | st.text("abc"))))
def test_index_buckets_follow_any_sequence_of_changes(
    function: Any, steps: list[tuple[str, str | None]]
) -> None:
    """A key is in the bucket of a value if and only if its object has the value."""
    index = Index[Thing](function)
    held: dict[str, Thing] = {}
    for number, (key, tags) in enumerate(steps):
        old = held.pop(key, None)
        if tags is not None:
            held[key] = Thing(tuple(tags), number)
            index.put(key, held[key], old)
        elif old is not None:
            index.remove(key, old)

    wanted: dict[str, dict[str, Thing]] = {}
    for key, thing in held.items():
        for value in thing.tags:
            wanted.setdefault(value, {})[key] = thing

    assert index.buckets == wanted
