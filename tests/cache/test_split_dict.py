"""`SplitDict`, compared with a dict."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioinformer.cache import split_dict
from aioinformer.cache.split_dict import (
    SplitDict,
    divided,
    entries_of,
    is_large,
    look_up,
    parts_of,
)

KEYS = [f"n/p{number}" for number in range(300)]

keys = st.sampled_from(KEYS)
entries = st.dictionaries(keys, st.integers())


@given(
    before=entries,
    changes=st.lists(
        st.one_of(
            st.tuples(st.just("put"), keys, st.integers()),
            st.tuples(st.just("pop"), keys, st.integers() | st.none()),
            st.tuples(st.just("delete"), keys),
        )
    ),
    read=st.lists(keys),
)
def test_holds_what_a_dict_holds(
    before: dict[str, int], changes: list[tuple[Any, ...]], read: list[str]
) -> None:
    model, split = dict(before), SplitDict(before)
    for kind, key, *arguments in changes:
        for mapping in (model, split):
            if kind == "put":
                mapping[key] = arguments[0]
            elif kind == "delete" and key in mapping:
                del mapping[key]

        if kind == "pop":
            assert split.pop(key, *arguments) == model.pop(key, *arguments)

    assert split == model
    assert len(split) == len(model)
    assert sorted(split) == sorted(model)
    assert sorted(split.items()) == sorted(model.items())
    assert sorted(split.values()) == sorted(model.values())
    assert sorted(split.keys()) == sorted(model)
    assert [split.get(key) for key in read] == [model.get(key) for key in read]
    assert [key in split for key in read] == [key in model for key in read]
    assert list(look_up(split, read)) == list(look_up(model, read))


def test_missing_keys_raise() -> None:
    split = SplitDict({"a": 1})

    assert split.get("b", 2) == 2
    with pytest.raises(KeyError):
        split["b"]

    with pytest.raises(KeyError):
        split.pop("b")

    with pytest.raises(KeyError):
        del split["b"]


def test_entries_are_spread_over_all_parts() -> None:
    """The dicts of the parts use other bits of the hashes."""
    split = SplitDict({f"namespace/pod-{number}": number for number in range(64_000)})

    sizes = [len(part) for part in split.parts]
    assert sum(sizes) == len(split) == 64_000
    assert min(sizes) > 800
    assert max(sizes) < 1200


def test_large_dict_is_divided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_dict, "LARGE", 3)
    small, large = {"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}

    assert not is_large(small)
    assert divided(small) is small
    assert parts_of(small) == [small]

    assert is_large(large)
    split = divided(large)
    assert isinstance(split, SplitDict)
    assert split == large
    del split["a"], split["b"]
    assert divided(split) is split
    assert parts_of(split) == [*split.parts]


@pytest.mark.parametrize("divide", [dict, SplitDict], ids=["dict", "SplitDict"])
def test_iterators_begin_to_read_when_they_are_iterated_over(divide: Any) -> None:
    """The first call has returned when another thread writes before the second one."""
    mapping, wanted = divide({"a": 1}), {"a": None}
    values, found = mapping.values(), look_up(mapping, wanted)
    mapping["b"] = 2
    wanted["b"] = None

    assert sorted(values) == [1, 2]
    assert list(found) == [1, 2]


@pytest.mark.parametrize("divide", [dict, SplitDict], ids=["dict", "SplitDict"])
def test_entries_of_buckets_are_each_found_once(divide: Any) -> None:
    buckets = divide({"x": {"a": 1, "b": 2}, "y": SplitDict({"b": 2, "c": 3}), "z": {}})

    assert entries_of(buckets, ["x", "y", "w"]) == {"a": 1, "b": 2, "c": 3}
    assert entries_of(buckets, []) == {}
