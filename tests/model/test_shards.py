"""Tests of shard selectors."""

import itertools
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioinformer.errors import OptionsError
from aioinformer.model.objects import KubeObject
from aioinformer.model.shards import (
    HASHES,
    HashRange,
    ShardSelector,
    hash_of,
    ranges_of,
)


def an_object(uid: str = "1", namespace: str = "") -> KubeObject:
    return KubeObject.of(
        {"metadata": {"name": "a", "namespace": namespace, "uid": uid}}
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0xCBF29CE484222325),
        ("a", 0xAF63DC4C8601EC8C),
        ("foobar", 0x85944171F73967E8),
    ],
)
def test_hash_is_FNV_1a(text: str, expected: int) -> None:
    assert hash_of(text) == expected


def test_ranges_of_a_number_share_all_hashes() -> None:
    ranges = ranges_of(64)

    assert ranges[0].start == 0
    assert ranges[-1].end == HASHES
    assert all(a.end == b.start for a, b in itertools.pairwise(ranges))
    assert {it.end - it.start for it in ranges} == {1 << 58}


def test_selector_is_text_as_the_server_reads_it() -> None:
    first, second, *_, last = ranges_of(64)

    text = str(ShardSelector((last, second, first), "namespace"))

    assert text == (
        "shardRange(object.metadata.namespace, '0x0000000000000000', "
        "'0x0800000000000000') || "
        "shardRange(object.metadata.namespace, '0xfc00000000000000', "
        "'0x10000000000000000')"
    )


def test_selectors_of_all_ranges_select_each_object_once() -> None:
    selectors = [ShardSelector((it,)) for it in ranges_of(16)]
    for _ in range(100):
        obj = an_object(str(uuid.uuid4()))
        assert sum(it.selects(obj) for it in selectors) == 1


def test_selector_by_namespace_hashes_the_namespace() -> None:
    value = hash_of("shop")
    selector = ShardSelector((HashRange(value, value + 1),), "namespace")

    assert selector.selects(an_object(namespace="shop"))
    assert not selector.selects(an_object(namespace="default"))


def test_selector_without_ranges_selects_nothing() -> None:
    assert not ShardSelector(()).selects(an_object())


def test_selector_without_ranges_asks_the_server_for_almost_nothing() -> None:
    one = "shardRange(object.metadata.uid, '0x0000000000000000', '0x0000000000000001')"

    assert str(ShardSelector(())) == one


def test_selector_is_whole_if_it_has_all_hashes() -> None:
    assert ShardSelector(ranges_of(4)).whole
    assert not ShardSelector(ranges_of(4)[:3]).whole
    assert not ShardSelector(()).whole


def test_selector_has_ranges_that_it_selects_as_a_whole() -> None:
    first, second, third, fourth = ranges_of(4)
    selector = ShardSelector((first, second, fourth))

    assert selector.has_range(HashRange(first.start, second.end))
    assert selector.has_range(HashRange(first.start + 1, first.end - 1))
    assert not selector.has_range(HashRange(second.start, third.start + 1))
    assert not selector.has_range(third)


@given(st.sets(st.integers(0, 15)), st.sets(st.integers(0, 15)))
def test_selector_without_another_has_the_rest(one: set[int], other: set[int]) -> None:
    def of(numbers: set[int]) -> ShardSelector:
        return ShardSelector(tuple(ranges_of(16)[it] for it in numbers))

    assert of(one).without(of(other)) == of(one - other)


@pytest.mark.parametrize(
    "bad", [HashRange(1, 1), HashRange(-1, 1), HashRange(0, HASHES + 1)]
)
def test_invalid_range_is_refused(bad: HashRange) -> None:
    with pytest.raises(OptionsError, match="range of hashes"):
        ShardSelector((bad,))


def test_unknown_field_is_refused() -> None:
    with pytest.raises(OptionsError, match="'uid' or by 'namespace', not 'name'"):
        ShardSelector((), "name")  # type: ignore[arg-type]
