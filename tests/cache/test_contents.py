"""What `Contents` promise, in memory and on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contents_helpers import INDEXES, KINDS, Kind, index_of, made, opened, stored_in

from aioinformer.cache import Indexer, index_by
from aioinformer.cache.index import unpack_values
from aioinformer.model.selectors import LabelSelector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from aioinformer.cache import Contents
    from aioinformer.cache.disk.environment import Environment
    from aioinformer.errors import HandlerError
    from aioinformer.model import KubeObject

A = made("shop/a", 1, node="n1", app="web", owner="x.y")
B = made("shop/b", 2, node="n2", app="web", owner="y")
C = made("c", 3, node="n1", app="db")
BAD = made("shop/a", 9, node="n3", app="web", owner="bad")

ALL = LabelSelector()


@pytest.fixture(params=KINDS)
def env(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Environment | None]:
    env = opened(request.param, tmp_path)
    yield env
    if env is not None:
        env.close()


@pytest.fixture
def failures() -> list[HandlerError]:
    return []


@pytest.fixture
def indexer(
    env: Environment | None, failures: list[HandlerError]
) -> Indexer[KubeObject]:
    return stored_in(env, on_error=failures.append)


@pytest.fixture
def contents(indexer: Indexer[KubeObject]) -> Contents[KubeObject]:
    with indexer.step():
        for obj in (A, B, C):
            indexer.contents.put(obj.key, obj)

        indexer.applied("3")

    return indexer.contents


def keys(objects: Iterable[KubeObject]) -> list[str]:
    return sorted(obj.key for obj in objects)


# ---------------------------------------------------------------- objects


def test_objects_are_those_put_last(contents: Contents[KubeObject]) -> None:
    objects = contents.objects
    newer = made("shop/a", 4, node="n2")
    with contents.step():
        contents.put(A.key, newer, newer)

    found = objects.get(A.key)
    assert found == newer
    assert found is not None
    assert (found.key, found.uid, found.resource_version) == (A.key, A.uid, "4")
    assert dict(found.labels) == {}
    assert objects.get("a") is None
    assert "a" not in objects
    assert "shop/a" in objects
    assert sorted(objects) == ["c", "shop/a", "shop/b"]
    assert keys(objects.values()) == sorted(objects)
    assert {key: obj.key for key, obj in objects.items()} == {it: it for it in objects}
    assert len(objects) == 3
    assert bool(objects)


def test_remove_returns_the_object_or_none(contents: Contents[KubeObject]) -> None:
    with contents.step():
        removed = [contents.remove(B.key), contents.remove(B.key), contents.remove("?")]

    assert removed == [B, None, None]
    assert sorted(contents.objects) == ["c", "shop/a"]


def test_version_is_that_of_the_last_step(contents: Contents[KubeObject]) -> None:
    before = contents.resource_version
    with contents.step():
        contents.resource_version = "7"

    assert (before, contents.resource_version) == ("3", "7")


def test_new_contents_have_no_version(env: Environment | None) -> None:
    contents = stored_in(env).contents

    assert contents.resource_version == ""
    assert not contents.objects
    assert list(contents.objects) == []


def test_steps_may_be_nested(contents: Contents[KubeObject]) -> None:
    with contents.step():
        contents.remove(A.key)
        with contents.step():
            contents.put("d", made("d"))

    assert sorted(contents.objects) == ["c", "d", "shop/b"]


# ---------------------------------------------------------------- indexes


def test_indexes_have_the_values_of_stored_objects(
    indexer: Indexer[KubeObject], contents: Contents[KubeObject]
) -> None:
    with contents.step():
        contents.put(A.key, made(A.key, 4, node="n2", app="db", owner="z"))
        contents.remove(C.key)

    assert set(contents.indexes) == set(INDEXES)
    assert index_of(indexer, "node") == {"n2": {"shop/a", "shop/b"}}
    assert index_of(indexer, "app") == {"db": {"shop/a"}, "web": {"shop/b"}}
    assert index_of(indexer, "owner") == {"z": {"shop/a"}, "y": {"shop/b"}}
    assert index_of(indexer, "namespace") == {"shop": {"shop/a", "shop/b"}}


def test_index_has_values_keys_and_objects(contents: Contents[KubeObject]) -> None:
    index = contents.indexes["owner"]

    assert index.function == INDEXES["owner"]
    assert set(index.values()) == {"x", "y", ""}
    assert sorted(index.keys_of("y")) == ["shop/a", "shop/b"]
    assert keys(index.objects_of("y")) == ["shop/a", "shop/b"]
    assert keys(index.objects_of("x")) == ["shop/a"]
    assert index.keys_of("none") == index.objects_of("none") == []
    assert list(unpack_values(index.values_of(A.key, A))) == ["x", "y"]


@pytest.mark.parametrize(
    ("value", "namespace", "found"),
    [
        ("x", "shop", ["shop/a"]),
        ("y", "shop", ["shop/a", "shop/b"]),
        ("y", "", []),
        ("y", "sho", []),
        ("", "", ["c"]),
        ("", "shop", []),
        ("none", "shop", []),
    ],
)
def test_objects_of_a_namespace_are_read_by_index(
    contents: Contents[KubeObject], value: str, namespace: str, found: list[str]
) -> None:
    assert keys(contents.by_index("owner", value, namespace)) == found


def test_find_returns_objects_that_share_a_value(
    contents: Contents[KubeObject],
) -> None:
    found = contents.indexes["owner"].find(made("other", owner="x.y"))

    assert keys(found) == ["shop/a", "shop/b"]


def test_long_index_values_are_told_apart(
    indexer: Indexer[KubeObject], contents: Contents[KubeObject]
) -> None:
    long = "n" * 600
    with contents.step():
        contents.put("1", made("1", node=long + "1"))
        contents.put("2", made("2", node=long + "2"))

    assert indexer.index_keys("node", long + "1") == ["1"]
    assert indexer.index_keys("node", long + "2") == ["2"]
    assert indexer.index_keys("node", long) == []


def test_object_whose_index_function_fails_is_in_no_bucket(
    indexer: Indexer[KubeObject],
    contents: Contents[KubeObject],
    failures: list[HandlerError],
) -> None:
    with indexer.step():
        contents.put(BAD.key, BAD)
        during = list(failures)

    index = contents.indexes["owner"]
    assert contents.objects.get(BAD.key) == BAD
    assert index_of(indexer, "owner") == {"y": {"shop/b"}, "": {"c"}}
    assert index_of(indexer, "node")["n3"] == {"shop/a"}
    assert index.values_of(BAD.key, BAD) is None
    assert during == [], "in the middle of a step"
    assert [(it.name, it.subject) for it in failures] == [("owner", BAD)]
    with pytest.raises(ZeroDivisionError):
        index.find(BAD)

    indexer.add(A)
    assert index_of(indexer, "owner")["x"] == {"shop/a"}
    assert len(failures) == 1


@pytest.mark.parametrize("at_once", [True, False])
async def test_late_index_has_all_objects(
    indexer: Indexer[KubeObject], contents: Contents[KubeObject], at_once: bool
) -> None:
    late = {"version": index_by("metadata.resourceVersion")}
    if at_once:
        indexer.add_indexers(late)
    else:
        await indexer.build_indexers(late)

    indexer.add(made("d", 3))
    assert index_of(indexer, "version") == {
        "1": {"shop/a"},
        "2": {"shop/b"},
        "3": {"c", "d"},
    }


# ---------------------------------------------------------------- selections


@pytest.mark.parametrize(
    "selector",
    [
        "",
        "app=web",
        "app in (web,db)",
        "app!=web",
        "app",
        "!app",
        "owner=y",
        "owner,app=web",
        "app=none",
        "app=web,owner=y",
        "app notin (db)",
    ],
)
@pytest.mark.parametrize("namespace", [None, "shop", "", "none"])
def test_select_returns_the_matching_objects(
    contents: Contents[KubeObject], selector: str, namespace: str | None
) -> None:
    with contents.step():
        contents.put("shop/d", made("shop/d", 4))
        contents.put("shopping/e", made("shopping/e", 5, app="web", owner="y"))

    wanted = LabelSelector.parse(selector)
    expected = [
        obj.key
        for obj in contents.objects.values()
        if wanted.matches(obj) and namespace in {None, obj.namespace}
    ]
    found = contents.select(wanted, namespace, None)

    assert keys(found) == sorted(expected)
    assert all(found == contents.objects[found.key] for found in found)
    for limit in range(3):
        limited = keys(contents.select(wanted, namespace, limit))
        assert len(limited) == min(limit, len(expected))
        assert set(limited) <= set(expected)


def test_reads_in_a_block_are_one_snapshot(contents: Contents[KubeObject]) -> None:
    with contents.reading():
        version = contents.resource_version
        found = contents.select(ALL, "shop", None)
        count = len(contents.objects)

    assert (version, keys(found), count) == ("3", ["shop/a", "shop/b"], 3)


# ---------------------------------------------------------------- replacements


async def test_replacement_becomes_readable_in_one_step(
    indexer: Indexer[KubeObject], contents: Contents[KubeObject]
) -> None:
    staged = indexer.replacement()
    newer = made("shop/a", 5, node="n5")
    staged.put(newer.key, newer, newer)
    staged.keep(B.key, B, contents)
    staged.put("gone", made("gone"))
    staged.remove("gone")

    assert sorted(staged.objects) == ["shop/a", "shop/b"]
    assert staged.objects.get("shop/a") == newer
    assert indexer.get_by_key("shop/a") == A
    assert len(indexer) == 3
    assert index_of(indexer, "node") == {"n1": {"shop/a", "c"}, "n2": {"shop/b"}}

    with indexer.step():
        old = indexer.swap(staged, "5")

    assert sorted(old.objects) == ["c", "shop/a", "shop/b"], "until it is released"
    await old.release()
    assert indexer.list_keys() == ["shop/a", "shop/b"]
    assert indexer.resource_version == "5"
    assert index_of(indexer, "node") == {"n5": {"shop/a"}, "n2": {"shop/b"}}
    assert index_of(indexer, "owner") == {"": {"shop/a"}, "y": {"shop/b"}}


async def test_replacements_follow_each_other(
    indexer: Indexer[KubeObject], contents: Contents[KubeObject]
) -> None:
    for number in range(1, 5):
        staged = indexer.replacement()
        assert not staged.objects
        staged.put("a", made("a", number))
        staged.put(f"b{number}", made(f"b{number}"))
        with indexer.step():
            old = indexer.swap(staged, str(number))

        await old.release()
        assert indexer.list_keys() == ["a", f"b{number}"]
        assert index_of(indexer, "node") == {"": {"a", f"b{number}"}}


async def test_replacement_that_was_given_up_leaves_nothing(
    indexer: Indexer[KubeObject], contents: Contents[KubeObject]
) -> None:
    staged = indexer.replacement()
    for number in range(100):
        staged.put(f"x{number}", made(f"x{number}", node="nx"))

    await staged.release()
    indexer.add(made("shop/d", node="n4"))
    second = indexer.replacement()

    assert indexer.list_keys() != []
    assert "nx" not in index_of(indexer, "node")
    assert len(second.objects) == 0
    assert set(second.indexes) == set(INDEXES)


async def test_replacement_gets_indexes_that_were_added_later(
    indexer: Indexer[KubeObject], contents: Contents[KubeObject]
) -> None:
    staged = indexer.replacement()
    staged.keep(A.key, A, contents)
    staged.put("d", made("d", 4))
    indexer.add_indexers({"version": index_by("metadata.resourceVersion")})

    await indexer.complete(staged)
    staged.put("e", made("e", 5))
    with indexer.step():
        old = indexer.swap(staged, "5")

    await old.release()
    assert index_of(indexer, "version") == {"1": {"shop/a"}, "4": {"d"}, "5": {"e"}}


def test_keep_takes_index_values_without_calling_the_function(
    env: Environment | None,
) -> None:
    calls: list[str] = []

    def counted(obj: KubeObject) -> Iterable[str]:
        calls.append(obj.key)
        return [obj.resource_version]

    indexer = stored_in(env, {"counted": counted})
    indexer.add(A)
    staged = indexer.replacement()
    staged.keep(A.key, A, indexer.contents)
    staged.keep(A.key, A, staged)
    with indexer.step():
        indexer.swap(staged, "2")

    assert calls == [A.key]
    assert index_of(indexer, "counted") == {"1": {"shop/a"}}


def test_keep_leaves_out_objects_whose_index_function_failed(
    indexer: Indexer[KubeObject], failures: list[HandlerError]
) -> None:
    indexer.add(BAD)
    staged = indexer.replacement()
    staged.keep(BAD.key, BAD, indexer.contents)
    with indexer.step():
        indexer.swap(staged, "2")

    assert indexer.list() == [BAD]
    assert index_of(indexer, "owner") == {}
    assert len(failures) == 1


# ---------------------------------------------------------------- steps that fail


@pytest.mark.parametrize("kind", ["disk"])
def test_step_that_fails_writes_nothing(kind: Kind, tmp_path: Path) -> None:
    """In memory, the code of a step does not fail."""
    env = opened(kind, tmp_path)
    assert env is not None
    indexer = stored_in(env)
    indexer.replace([A, B], "2")
    staged = indexer.replacement()
    staged.put("c", C)

    def fail() -> None:
        with indexer.step():
            indexer.contents.put("d", made("d"))
            indexer.contents.remove(A.key)
            indexer.swap(staged, "5")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert indexer.list_keys() == ["shop/a", "shop/b"]
    assert indexer.resource_version == "2"
    assert index_of(indexer, "node") == {"n1": {"shop/a"}, "n2": {"shop/b"}}
    indexer.replace([C], "6")
    assert indexer.list() == [C]
    env.close()
