"""Contents on disk: indexes of writers and readers, lists, and two processes."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from conftest import pod
from disk_helpers import (
    FUNCTIONS,
    Disk,
    a_disk,
    buckets,
    build_indexes,
    by_tag,
    by_version,
    listed,
    selected,
    state,
    states,
    thing,
)
from store_helpers import reading_in_threads

from aioinformer.cache import Indexer, index_by_label
from aioinformer.cache.disk.staged import BATCH, BATCH_BYTES
from aioinformer.errors import CacheError, InternalError
from aioinformer.model import KubeObject

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


MANY = 3 * BATCH + 5


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with a_disk(tmp_path / "store") as made:
        yield made


def things(count: int = MANY, version: int = 1) -> list[KubeObject]:
    return [
        thing(
            f"shop/t{number:04}",
            version,
            {"app": f"a{number % 7}", "tier": "web"},
            [f"tag-{number % 5}"],
        )
        for number in range(count)
    ]


def keys_with_tag(objects: list[KubeObject], tag: str) -> set[str]:
    return {obj.key for obj in objects if tag in by_tag(obj)}


# ---------------------------------------------------------------- lists


@pytest.mark.parametrize("order", ["sorted", "reversed", "mixed"])
def test_list_in_any_order_replaces_all_objects_at_once(disk: Disk, order: str) -> None:
    objects = things()
    if order == "reversed":
        objects.reverse()
    elif order == "mixed":
        objects = objects[1::2] + objects[::2]

    reader = disk.reader()
    writer = listed(disk.writer(), [thing("shop/old")], "1")
    replacement = writer.replacement()
    for obj in objects:
        replacement.put(obj.key, obj)
        assert list(reader.objects) == ["shop/old"]

    with writer.step():
        writer = writer.replace_with(replacement, "2")
        assert reader.resource_version == "2"

    assert state(reader) == states(objects)
    assert selected(reader, "app=a3") == {it.key for it in things()[3::7]}
    assert buckets(reader, "tag")["tag-2"] == keys_with_tag(objects, "tag-2")
    assert disk.env.header.count == MANY
    assert disk.env.header.listed


async def test_released_replacement_leaves_current_objects(disk: Disk) -> None:
    writer = listed(disk.writer(), things(3))
    given_up = writer.replacement()
    given_up.put("shop/other", thing("shop/other"))
    given_up.flush()
    await given_up.release()

    assert state(writer) == states(things(3))
    await writer.release()  # current contents are kept
    assert state(writer) == states(things(3))
    with pytest.raises(InternalError, match="released"):
        given_up.objects.get("shop/other")


async def test_released_contents_of_an_older_list_leave_the_next_list(
    disk: Disk,
) -> None:
    old = listed(disk.writer(), things(3))
    new = listed(old, things(4))
    following = new.replacement()  # in the generation of `old`
    following.put("shop/next", thing("shop/next"))
    following.flush()
    await old.release()

    assert list(following.objects) == ["shop/next"]


def test_new_writer_frees_an_unfinished_list(disk: Disk) -> None:
    writer = listed(disk.writer(), things(3))
    replacement = writer.replacement()
    for obj in things():
        replacement.put(obj.key, obj)

    disk.writer()
    with disk.env.read() as txn:
        for letter in "oxc":
            unfinished = disk.env.database(f"{letter}{1 - disk.env.header.generation}")
            assert not txn.stat(unfinished)["entries"]

    assert state(disk.reader()) == states(things(3))


def test_large_objects_of_a_list_are_written_in_small_transactions(disk: Disk) -> None:
    replacement = disk.writer().replacement()
    for number in range(20):
        large = thing(f"shop/t{number:02}", text="x" * BATCH_BYTES)
        replacement.put(large.key, large)
        with disk.env.read() as txn:
            assert txn.stat(disk.env.database("o1"))["entries"] == number + 1


def test_failed_step_changes_nothing(disk: Disk) -> None:
    writer = listed(disk.writer(), things(3))
    before = disk.env.header

    def fail() -> None:
        with writer.step():
            writer.put("shop/new", thing("shop/new", labels={"app": "new"}))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert disk.env.header == before
    assert selected(disk.reader(), "app=new") == set()
    writer.put("shop/new", thing("shop/new", labels={"app": "new"}))
    assert selected(disk.reader(), "app=new") == {"shop/new"}


# ---------------------------------------------------------------- index functions


def test_object_with_failing_index_function_is_stored_and_reported(disk: Disk) -> None:
    writer = disk.writer()
    good = thing("shop/a", tags=["x"])
    writer.put(good.key, good)
    bad = thing("shop/a", 2, tags=["bad"])
    writer.put(bad.key, bad)

    assert state(disk.reader()) == states([bad])
    assert buckets(disk.reader(), "tag") == {}
    (failure,) = disk.errors
    assert "index function" in str(failure)
    assert isinstance(failure.__cause__, ZeroDivisionError)


def test_index_function_reads_the_cheaper_equal_object(disk: Disk) -> None:
    seen: list[KubeObject] = []

    def note(obj: KubeObject) -> list[str]:
        seen.append(obj)
        return []

    writer = disk.writer({"seen": note})
    stored, equal = thing("shop/a"), thing("shop/a")
    writer.put("shop/a", stored, equal)
    replacement = writer.replacement()
    replacement.put("shop/a", stored, equal)
    replacement.keep("shop/a", stored, writer)

    assert list(map(id, seen)) == [id(equal), id(equal)]


def test_new_writer_uses_stored_indexes_and_builds_others(disk: Disk) -> None:
    listed(disk.writer({"tag": by_tag, "old": by_version}), things())
    calls = 0

    def counted(obj: KubeObject) -> list[str]:
        nonlocal calls
        calls += 1
        return [obj.key[-1]]

    functions = {"tag": by_tag, "last": counted, "old": index_by_label("app")}
    writer = disk.writer(functions)
    assert set(writer.indexes) == {"tag"}
    assert set(writer.missing) == {"last", "old"}
    assert set(disk.env.header.indexes) == {"tag"}

    building = writer.build(writer.missing)
    steps = building.steps()
    next(steps)
    changed = thing("shop/t0000", 9, tags=["changed"])
    writer.put(changed.key, changed)
    gone = writer.remove("shop/t0001")
    assert gone is not None
    assert "last" not in disk.reader({}).indexes
    for _ in steps:
        pass

    building.publish()
    building.close()
    objects = [changed, *things()[2:]]
    for contents in (writer, disk.reader(functions)):
        assert set(contents.indexes) == set(functions)
        assert not contents.missing
        assert buckets(contents, "last")["7"] == {
            it.key for it in objects if it.key.endswith("7")
        }
        assert buckets(contents, "old")["a5"] == {
            it.key for it in objects if it.label_set.get("app") == "a5"
        }
        assert buckets(contents, "tag")["changed"] == {"shop/t0000"}

    assert calls <= MANY + 2
    with disk.env.read() as txn:
        entries = txn.stat(disk.env.database(f"x{disk.env.header.generation}"))
        # Those of the former index "old" were removed.
        assert entries["entries"] == 3 * len(objects) - 1


async def test_list_during_a_build_completes_the_indexes(disk: Disk) -> None:
    indexer: Indexer[KubeObject] = Indexer()
    indexer.use(listed(disk.writer(), things()))
    building = indexer.contents.build({"version": by_version})
    next(iter(building.steps()))

    replacement = indexer.replacement()
    for obj in things(10, 5):
        replacement.put(obj.key, obj)

    with indexer.contents.step():
        indexer.swap(replacement, "7")

    for _ in building.steps():
        pass

    building.publish()
    building.close()
    assert len(indexer.by_index("version", "5")) == 10
    assert indexer.list_index_func_values("version") == ["5"]


async def test_indexes_added_while_a_list_is_staged_have_its_objects(
    disk: Disk,
) -> None:
    indexer: Indexer[KubeObject] = Indexer()
    indexer.use(listed(disk.writer(), things()))
    replacement = indexer.replacement()
    for obj in things(10, 5):
        replacement.put(obj.key, obj)

    await indexer.build_indexers({"version": by_version})
    assert len(indexer.by_index("version", "1")) == MANY
    await indexer.complete(replacement)
    with indexer.contents.step():
        indexer.swap(replacement, "7")

    assert len(indexer.by_index("version", "5")) == 10
    assert set(disk.env.header.indexes) == {"tag", "app", "version"}


# ---------------------------------------------------------------- readers


def test_reader_scans_then_follows_an_index_that_is_not_stored(disk: Disk) -> None:
    writer = listed(disk.writer(), things())
    reader = disk.reader({**FUNCTIONS, "version": by_version})
    assert len(buckets(reader, "version")["1"]) == MANY  # of a scan

    build_indexes(reader, reader.missing)
    assert reader.private
    assert not reader.missing
    old, new = things()[0], thing("shop/t0000", 2)
    writer.put(new.key, new)
    assert new.key not in buckets(reader, "version")["1"]  # not followed yet
    reader.follow([(old, new)])
    assert buckets(reader, "version")["2"] == {new.key}
    writer.remove(new.key)
    reader.follow([(new, None)])
    assert set(buckets(reader, "version")) == {"1"}

    reader.listed()
    assert set(reader.missing) == {"version"}
    assert len(buckets(reader, "version")["1"]) == MANY - 1


def test_reader_scans_once_for_all_reads_of_a_snapshot(disk: Disk) -> None:
    writer = listed(disk.writer({}), things(5))
    calls = 0

    def counted(obj: KubeObject) -> list[str]:
        nonlocal calls
        calls += 1
        return [obj.resource_version]

    reader = disk.reader({"counted": counted})
    index = reader.indexes["counted"]
    assert index.values() == ["1"]
    for _ in range(3):
        assert index.values() == ["1"]

    assert calls == 5
    writer.put("shop/t0001", thing("shop/t0001", 2))
    assert sorted(index.values()) == ["1", "2"]
    assert calls == 10


def test_reader_keeps_an_index_that_a_new_writer_does_not_have(disk: Disk) -> None:
    listed(disk.writer(), things())
    reader = disk.reader()
    assert not reader.private
    disk.writer({})

    assert set(reader.missing) == {"tag", "app"}
    assert buckets(reader, "tag")["tag-3"] == keys_with_tag(things(), "tag-3")
    build_indexes(reader, reader.missing)
    assert buckets(reader, "tag")["tag-3"] == keys_with_tag(things(), "tag-3")


def test_index_that_a_reader_has_got_survives_another_writer(disk: Disk) -> None:
    listed(disk.writer(), things())
    reader = disk.reader()
    tags = reader.indexes["tag"]
    assert set(tags.keys_of("tag-3")) == keys_with_tag(things(), "tag-3")
    disk.writer({})
    assert set(tags.keys_of("tag-3")) == keys_with_tag(things(), "tag-3")
    listed(disk.writer(), things(4))
    assert tags.keys_of("tag-3") == ["shop/t0003"]


def test_reader_builds_added_index_and_follows_changes_meanwhile(disk: Disk) -> None:
    writer = listed(disk.writer(), things())
    reader = disk.reader()
    building = reader.build({"version": by_version})
    steps = building.steps()
    next(steps)
    old = things()
    for number, new in ((0, thing(old[0].key, 5)), (MANY - 1, thing(old[-1].key, 6))):
        writer.put(new.key, new)
        reader.follow([(old[number], new)])

    writer.remove(old[1].key)
    reader.follow([(old[1], None)])
    for _ in steps:
        pass

    building.publish()
    building.close()
    found = buckets(reader, "version")
    assert {value: len(keys) for value, keys in found.items()} == {
        "1": MANY - 3,
        "5": 1,
        "6": 1,
    }


def test_reads_in_threads_see_whole_steps(disk: Disk) -> None:
    writer = listed(disk.writer(), things(20))
    reader = disk.reader()

    def read() -> None:
        with reader.reading():
            objects = list(reader.objects.values())
            assert len({obj.resource_version for obj in objects}) == 1
            tagged = reader.indexes["tag"].objects_of("tag-1")
            assert {it.resource_version for it in tagged} == {
                objects[0].resource_version
            }

    with reading_in_threads(read, 3):
        for version in range(2, 60):
            if version % 3:
                with writer.step():
                    for obj in things(20, version):
                        writer.put(obj.key, obj)
            else:
                writer = listed(writer, things(20, version))


SCRIPT = """
import sys
from pathlib import Path

from disk_helpers import Disk, buckets, selected, state

disk = Disk(Path(sys.argv[1]))
reader = disk.reader()
print("ready", flush=True)
for _ in sys.stdin:
    print(
        len(state(reader)),
        reader.resource_version,
        sorted(selected(reader, "app=a1")),
        len(buckets(reader, "tag").get("tag-1", ())),
        flush=True,
    )
"""


def test_other_process_reads_each_step(disk: Disk) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(disk.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None

        def reads() -> str:
            assert other.stdin is not None
            assert other.stdout is not None
            other.stdin.write("\n")
            other.stdin.flush()
            return other.stdout.readline().strip()

        assert other.stdout.readline() == "ready\n"
        writer = listed(disk.writer(), things(10), "5")
        assert reads() == "10 5 ['shop/t0001', 'shop/t0008'] 2"
        writer.remove("shop/t0001")
        assert reads() == "9 5 ['shop/t0008'] 1"
        listed(writer, things(2), "8")
        assert reads() == "2 8 ['shop/t0001'] 1"
        other.stdin.close()


# ---------------------------------------------------------------- selectors


def test_select_in_a_large_namespace_searches_columns(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioinformer.cache.disk.contents._SMALL_NAMESPACE", 10)
    objects = [*things(50), thing("other/x", labels={"tier": "web"})]
    listed(disk.writer({}), objects)
    reader = disk.reader({})

    expected = {it.key for it in things(50)}
    assert selected(reader, "tier=web", "shop") == expected
    assert selected(reader, "tier=web") == expected | {"other/x"}
    assert selected(reader, "tier=web", "other") == {"other/x"}


@pytest.mark.parametrize("key", ['a"b', "a\\b", "a\tb", "é", "x" * 600, ""])
@pytest.mark.parametrize("namespace", ["", "odd"])
def test_select_finds_any_key(disk: Disk, namespace: str, key: str) -> None:
    full = f"{namespace}/{key}" if namespace else key
    listed(disk.writer({}), [thing(full, labels={"tier": "web"}), *things(3)])
    reader = disk.reader({})

    assert selected(reader, "tier=web", namespace) == {full}
    assert full in selected(reader, "tier=web")


def test_sparse_label_chunks_get_new_objects(disk: Disk) -> None:
    writer = listed(disk.writer({}), things(1000))
    for obj in things(1000):
        if int(obj.key[-1]):
            writer.remove(obj.key)

    for number in range(800):
        writer.put(f"shop/u{number}", thing(f"shop/u{number}", labels={"app": "u"}))

    with disk.env.read() as txn:
        columns = disk.env.database(f"c{disk.env.header.generation}")
        assert txn.stat(columns)["entries"] <= 11

    assert len(selected(disk.reader({}), "app=u")) == 800


def test_metadata_of_pods_survives(disk: Disk) -> None:
    obj = KubeObject.of(pod("web-0", labels={"app": "wéb"}))
    disk.writer().put(obj.key, obj)
    (found,) = disk.reader().objects.values()

    assert found == obj
    assert found.labels == {"app": "wéb"}
    assert found.uid == obj.uid
    assert selected(disk.reader({}), "app") == {obj.key}


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize("text", [b"x", b"x\ny", b'{"tier":"web"}\nno key'])
def test_damaged_label_chunk_raises_cache_error(disk: Disk, text: bytes) -> None:
    writer = listed(disk.writer({}), things(3))
    with disk.env.write() as txn:
        columns = disk.env.database(f"c{disk.env.header.generation}")
        txn.put(b"\0\0\0\1", text, db=columns)

    with pytest.raises(CacheError, match="label chunk is damaged"):
        selected(writer, "tier")

    if b"\n" not in text:
        with pytest.raises(CacheError, match="label chunk is damaged"):
            writer.remove("shop/t0001")


def test_damaged_record_raises_cache_error(disk: Disk) -> None:
    writer = listed(disk.writer(), things(3))
    with disk.env.write() as txn:
        objects = disk.env.database(f"o{disk.env.header.generation}")
        txn.put(b"shop/t0001", b"damaged", db=objects)

    message = "record of .* is damaged"
    with pytest.raises(CacheError, match=message):
        writer.objects.get("shop/t0001")

    with pytest.raises(CacheError, match=message):
        list(disk.reader().objects.values())

    with pytest.raises(CacheError, match=message):
        writer.put("shop/t0001", things()[1])

    assert disk.reader().objects["shop/t0002"] == things()[2]
