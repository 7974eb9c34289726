"""Records: what is stored of an object, and dictionaries."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import hypothesis.strategies as st
import pytest
from compression_helpers import bodies, compressed, compressor_of, differing, web, webs
from disk_helpers import Disk, a_disk, listed, state, states, thing
from hypothesis import given

from aioinformer.cache.disk.records import (
    DICTIONARIES_KEPT,
    LONGEST_NAME,
    Records,
    key_of,
    name_of,
    state_of,
)
from aioinformer.errors import CacheError
from aioinformer.model import KubeObject
from aioinformer.model.compression import Codec, Compressor, _dictionary, train
from aioinformer.model.resource import Resource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with a_disk(tmp_path / "store") as made:
        yield made


def encoded(disk: Disk, obj: KubeObject, values: bytes = b"") -> bytes:
    with disk.env.write():
        return disk.records.encode(obj, values)


def new_compressor() -> Compressor:
    """Make a dictionary with a number of its own."""
    return Compressor(_dictionary(bodies()[:150]), 150)


# ---------------------------------------------------------------- records


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(thing("shop/web", 7, {"app": "wéb", "e": ""}), id="small"),
        pytest.param(web("web-0", 3), id="pod"),
        pytest.param(compressed(web("web-0", 3)), id="compressed"),
        pytest.param(
            compressed(web("web-0", 3), Compressor()), id="without-dictionary"
        ),
        pytest.param(KubeObject.of({"metadata": {}}), id="empty"),
        pytest.param(thing("é" * 400 + "/x"), id="long-key"),
        pytest.param(thing("x", note="ü" * 100_000), id="large"),
    ],
)
def test_another_process_reads_what_was_stored(disk: Disk, obj: KubeObject) -> None:
    record = encoded(disk, obj)
    other = Records(disk.env)
    with disk.env.read():
        found = other.decode(obj.key, record)

    assert found.body == obj.body
    assert states([found]) == states([obj])
    assert found == obj


def test_records_of_equal_states_differ_only_in_front(disk: Disk) -> None:
    obj = compressed(web("web-0"))
    values = disk.records.pack({7: "a", 8: None, 9: b'["a","b"]'})

    assert state_of(encoded(disk, obj, values)) == state_of(encoded(disk, obj))
    assert disk.records.head(encoded(disk, obj, values)).values == values
    assert disk.records.unpack(values) == {7: "a", 9: b'["a","b"]'}
    assert disk.records.unpack(b"") == {}


def test_records_of_metadata_only_objects_have_their_resource(disk: Disk) -> None:
    pods = Resource("", "v1", "pods", "Pod")
    record = encoded(disk, compressed(web("web-0")))
    found = Records(disk.env, pods).decode("default/web-0", record)

    assert found.context.resource == pods


def test_difference_is_stored_without_the_state_before(disk: Disk) -> None:
    obj = differing(web("web-0", 2), compressed(web("web-0", 1)))
    with disk.env.read():
        found = Records(disk.env).decode(obj.key, encoded(disk, obj))

    assert found == obj == web("web-0", 2)
    assert found.body == obj.raw


def test_objects_of_all_dictionaries_share_decoded_bodies(disk: Disk) -> None:
    records = Records(disk.env)
    objects = [web("a"), compressed(web("b")), compressed(web("c"), new_compressor())]
    found = [records.decode(it.key, encoded(disk, it)) for it in objects]

    assert len({id(it.context.decoded_bodies) for it in found}) == 1
    assert len({id(it.context.plain) for it in found}) == 1


@given(key=st.text(st.characters(codec="utf-8"), max_size=600))
def test_key_survives_as_a_name_of_lmdb(key: str) -> None:
    name = name_of(key)
    assert 0 < len(name) <= 511
    if len(key.encode()) <= LONGEST_NAME and key != "\0":
        assert key_of(name, b"") == key


@given(keys=st.lists(st.text(st.characters(codec="utf-8")), max_size=5))
def test_names_sort_like_keys(keys: list[str]) -> None:
    keys = [key for key in keys if key]
    assert sorted(keys) == sorted(keys, key=name_of)


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize("size", [0, 5, 12, 30, 45])
def test_truncated_record_raises_cache_error(disk: Disk, size: int) -> None:
    record = encoded(disk, thing("shop/a", labels={"app": "web"}))[:size]
    with pytest.raises(CacheError, match="record of 'shop/a' is damaged"):
        disk.records.decode("shop/a", record)


@given(place=st.integers(min_value=0), bit=st.integers(0, 7))
def test_damaged_record_raises_cache_error_or_is_another_state(
    place: int, bit: int
) -> None:
    damaged = bytearray(_RECORD)
    damaged[place % len(damaged)] ^= 1 << bit
    with suppress(CacheError):
        assert _READER.decode("shop/a", bytes(damaged)).key == "shop/a"


class _NoDictionaries:
    """An environment without dictionaries."""

    def damaged(self, what: str, why: object) -> CacheError:
        return CacheError(f"{what} is damaged: {why}")

    def database(self, name: str) -> str:
        return name

    def read(self) -> _NoDictionaries:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def get(self, key: bytes, default: bytes, db: str) -> bytes:
        return default


_READER = Records(_NoDictionaries())  # type: ignore[arg-type]
_RECORD = _READER.encode(thing("shop/a", labels={"app": "web"}))


def test_unknown_dictionary_raises_cache_error(disk: Disk) -> None:
    record = encoded(disk, compressed(web("a")))
    with pytest.raises(CacheError, match=r"unknown dictionary, \d+"):
        _READER.decode("default/a", record)


def test_damaged_dictionary_raises_cache_error(disk: Disk) -> None:
    obj = compressed(web("a"))
    record = encoded(disk, obj)
    codec = obj.context.codec
    assert isinstance(codec, Codec)
    for content in (b"nonsense" * 20, new_compressor().codec.dictionary):
        with disk.env.write() as txn:
            name = codec.number.to_bytes(4, "big")
            txn.put(name, content, db=disk.env.database("dict"))

        with pytest.raises(CacheError, match="its dictionary is"):
            Records(disk.env).decode(obj.key, record)


# ---------------------------------------------------------------- dictionaries


def test_newest_dictionary_compresses_again(disk: Disk) -> None:
    assert disk.records.newest_dictionary() == b""
    first, second = new_compressor(), new_compressor()
    encoded(disk, compressed(web("a"), first))
    assert disk.records.newest_dictionary() == first.codec.dictionary
    encoded(disk, compressed(web("a"), second))
    encoded(disk, compressed(web("b"), first))
    newest = Records(disk.env).newest_dictionary()
    assert newest == second.codec.dictionary

    again = Compressor(newest, 150)
    assert again.codec.number == second.codec.number
    assert again.pack(web("c").raw) == second.pack(web("c").raw)


def test_dictionary_of_an_aborted_transaction_is_stored_by_the_next(
    disk: Disk,
) -> None:
    obj = compressed(web("a"))

    def fail() -> None:
        with disk.env.write():
            disk.records.encode(obj)
            raise ZeroDivisionError

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            fail()

    assert disk.records.newest_dictionary() == b""
    record = encoded(disk, obj)
    assert Records(disk.env).decode(obj.key, record) == obj


def test_body_is_stored_plain_if_the_number_of_its_dictionary_is_taken(
    disk: Disk,
) -> None:
    one = compressor_of()
    other = train([*bodies("web"), *bodies("db")])
    number = one.codec.number.to_bytes(4, "little")
    dictionary = other.codec.dictionary
    forged = Compressor(dictionary[:4] + number + dictionary[8:], 1)
    assert forged.codec.number == one.codec.number

    first, second = compressed(web("a"), one), compressed(web("b"), forged)
    with disk.env.write() as txn:
        records = [disk.records.encode(it, txn=txn) for it in (first, second)]

    assert records[1] == encoded(disk, second)
    reader = Records(disk.env)
    assert reader.decode(first.key, records[0]) == first
    assert reader.decode(second.key, records[1]) == second


def test_dictionaries_are_dropped_once_nothing_names_them(disk: Disk) -> None:
    writer = disk.writer()
    kept = compressed(web("kept"), new_compressor())
    writer.put(kept.key, kept)
    for number in range(DICTIONARIES_KEPT + 5):
        with writer.step():
            obj = compressed(web(f"a{number}"), new_compressor())
            writer.put(obj.key, obj)
            writer.remove(obj.key)

    def stored() -> int:
        with disk.env.read() as txn:
            database = disk.env.database("dict")
            with txn.cursor(database) as cursor:
                return sum(len(it) == 4 for it in cursor.iternext(values=False))

    assert stored() == DICTIONARIES_KEPT + 6
    replacement = writer.replacement()
    replacement.keep(kept.key, kept, writer)
    with writer.step():
        writer = writer.replace_with(replacement, "2")

    assert stored() == DICTIONARIES_KEPT + 6
    writer = listed(writer, writer.objects.values(), "3")
    listed(writer, writer.objects.values(), "4")
    assert stored() == DICTIONARIES_KEPT + 1
    assert state(disk.reader()) == states([kept])


def test_threads_decode_with_one_context_for_each_dictionary(disk: Disk) -> None:
    objects = [compressed(it) for it in webs(200)]
    listed(disk.writer(), objects)
    reader = disk.reader()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(reader.objects.get, [it.key for it in objects]))

    assert found == objects
    assert len({id(it.context) for it in found if it is not None}) == 1
