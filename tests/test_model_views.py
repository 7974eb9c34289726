"""Read-only views, and the cache of decoded bodies."""

from __future__ import annotations

import copy
import operator
import pickle
from collections import OrderedDict
from typing import Any

import pytest
from json_helpers import nested

from aioinformer.errors import DecodeError
from aioinformer.model.views import (
    DECODED_BODIES_KEPT,
    ObjectContext,
    ReadOnlyDict,
    ReadOnlyList,
    decode_json,
    read_only,
)

DATA: dict[str, Any] = {
    "text": "a",
    "number": 1,
    "nothing": None,
    "object": {"inner": {"x": 1}},
    "array": [{"x": 1}, [2, 3], "z"],
}


def body(number: int) -> bytes:
    return b'{"n":%d}' % number


# ---------------------------------------------------------------- views


@pytest.mark.parametrize("value", ["a", 1, 1.5, True, None])
def test_plain_value_is_its_own_view(value: object) -> None:
    assert read_only(value) is value


def test_everything_below_a_view_is_a_view() -> None:
    view = ReadOnlyDict(DATA)

    assert isinstance(view["object"]["inner"], ReadOnlyDict)
    assert isinstance(view["array"][0], ReadOnlyDict)
    assert isinstance(view["array"][1], ReadOnlyList)
    assert isinstance(view["array"][1:], ReadOnlyList)
    assert isinstance(view.get("object"), ReadOnlyDict)
    assert [type(it) for it in view.values()] == [
        *(str, int, type(None)),
        *(ReadOnlyDict, ReadOnlyList),
    ]
    assert [type(it) for it in view["array"]] == [ReadOnlyDict, ReadOnlyList, str]
    assert [type(it) for it in reversed(view["array"])] == [
        *(str, ReadOnlyList, ReadOnlyDict)
    ]


def test_view_of_an_object_reads_as_a_mapping() -> None:
    view = ReadOnlyDict(DATA)

    assert list(view) == list(DATA)
    assert len(view) == 5
    assert list(view.items()) == list(DATA.items())
    assert "text" in view
    assert "nothing" in view
    assert "other" not in view
    assert view.get("other", 7) == 7
    assert dict(view) == DATA
    with pytest.raises(KeyError):
        view["other"]


def test_view_of_an_array_reads_as_a_sequence() -> None:
    array = DATA["array"]
    view = ReadOnlyList(array)

    assert list(view) == array
    assert len(view) == 3
    assert view[-1] == "z"
    assert view[:2] == array[:2]
    assert {"x": 1} in view
    assert ReadOnlyDict({"x": 1}) in view
    assert 7 not in view
    assert view.index([2, 3]) == 1
    assert view.count("z") == 1
    with pytest.raises(IndexError):
        view[3]


def test_views_equal_what_they_show() -> None:
    view, array = ReadOnlyDict(DATA), ReadOnlyList(DATA["array"])

    for one, other in (
        (view, ReadOnlyDict(dict(DATA))),
        (view, DATA),
        (view, dict(view)),
        (array, ReadOnlyList(list(DATA["array"]))),
        (array, DATA["array"]),
        (array, tuple(DATA["array"])),
        (array, list(array)),
    ):
        assert operator.eq(one, other) is operator.eq(other, one) is True
        assert operator.ne(one, other) is operator.ne(other, one) is False


@pytest.mark.parametrize(
    "other",
    [{}, [], "", None, {**DATA, "text": "b"}, [*DATA["array"], 1], ReadOnlyDict({})],
    ids=repr,
)
def test_views_differ_from_anything_else(other: object) -> None:
    for view in (ReadOnlyDict(DATA), ReadOnlyList(DATA["array"])):
        assert operator.eq(view, other) is operator.eq(other, view) is False
        assert operator.ne(view, other) is operator.ne(other, view) is True


@pytest.mark.parametrize("view", [ReadOnlyDict({}), ReadOnlyList([])], ids=repr)
def test_views_are_not_hashable(view: object) -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(view)


def test_repr_of_a_view_shows_what_it_views() -> None:
    assert repr(ReadOnlyDict({"a": [1]})) == "ReadOnlyDict({'a': [1]})"
    assert repr(ReadOnlyList([{"a": 1}])) == "ReadOnlyList([{'a': 1}])"


def assign(view: Any) -> None:
    view[0 if isinstance(view, ReadOnlyList) else "x"] = 1


def delete(view: Any) -> None:
    del view[0 if isinstance(view, ReadOnlyList) else "x"]


def add(view: Any) -> None:
    view += [1]


def merge(view: Any) -> None:
    view |= {"x": 1}


def multiply(view: Any) -> None:
    view *= 2


CHANGES_OF_DICTS = ["clear", "pop", "popitem", "setdefault", "update"]
CHANGES_OF_LISTS = [
    *("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort")
]


@pytest.mark.parametrize(
    "change",
    [assign, delete, merge, *CHANGES_OF_DICTS],
    ids=lambda it: getattr(it, "__name__", it),
)
def test_view_of_an_object_refuses_to(change: Any) -> None:
    data = {"x": 0}
    view = ReadOnlyDict(data)

    with pytest.raises(TypeError, match=r"read-only.*\.to_dict\(\)"):
        getattr(view, change)() if isinstance(change, str) else change(view)

    assert data == {"x": 0}


@pytest.mark.parametrize(
    "change",
    [assign, delete, add, multiply, *CHANGES_OF_LISTS],
    ids=lambda it: getattr(it, "__name__", it),
)
def test_view_of_an_array_refuses_to(change: Any) -> None:
    data = [2, 1]
    view = ReadOnlyList(data)

    with pytest.raises(TypeError, match=r"read-only.*\.to_dict\(\)"):
        getattr(view, change)() if isinstance(change, str) else change(view)

    assert data == [2, 1]


@pytest.mark.parametrize("name", [*CHANGES_OF_DICTS, *CHANGES_OF_LISTS])
def test_every_change_of_the_plain_type_is_refused_by_name(name: str) -> None:
    kinds = {dict: ReadOnlyDict, list: ReadOnlyList}

    for plain, view in kinds.items():
        assert hasattr(plain, name) == hasattr(view, name)


def test_copies_may_be_changed() -> None:
    view = ReadOnlyDict(DATA)
    untouched = repr(DATA)

    mine = view.to_dict()
    mine["object"]["inner"]["x"] = 2
    mine["array"][0]["x"] = 2
    array = view["array"].to_list()
    array[1].append(4)

    assert repr(DATA) == untouched
    assert mine["array"] == [{"x": 2}, [2, 3], "z"]
    assert array == [{"x": 1}, [2, 3, 4], "z"]


def test_copies_what_nests_as_deeply_as_can_be_decoded() -> None:
    """Deeper than `orjson` would encode."""
    value: Any = ReadOnlyDict(decode_json(nested(1000), "a body")).to_dict()

    depth = 0
    while isinstance(value, dict):
        value = value["a"]
        depth += 1

    assert depth == 1000


# ---------------------------------------------------------------- decoding


def test_decoding_what_is_no_json_says_what_and_where() -> None:
    with pytest.raises(DecodeError, match=r"^the body: ") as caught:
        decode_json(b'{"a":nonsense}', "the body")

    assert caught.value.offset == 5
    assert "nonsense" not in str(caught.value)


def test_context_decodes_a_body_once() -> None:
    context = ObjectContext()

    first = context.decoded(body(1), "it")

    assert first == {"n": 1}
    assert context.decoded(body(1), "it") is first


def test_context_keeps_the_bodies_that_were_looked_at_last() -> None:
    context = ObjectContext()
    first = [context.decoded(body(n), "it") for n in range(DECODED_BODIES_KEPT)]

    again = context.decoded(body(0), "it")
    context.decoded(body(-1), "it")

    assert again is first[0]
    assert len(context._decoded) == DECODED_BODIES_KEPT
    assert context.decoded(body(0), "it") is first[0]  # looked at since
    assert context.decoded(body(2), "it") is first[2]
    assert context.decoded(body(1), "it") is not first[1]  # the oldest went


def test_context_never_keeps_more_than_its_bound() -> None:
    context = ObjectContext()

    for number in range(5 * DECODED_BODIES_KEPT):
        context.decoded(body(number), "it")
        assert len(context._decoded) <= DECODED_BODIES_KEPT

    assert DECODED_BODIES_KEPT == 128


class DroppedMeanwhile(OrderedDict[bytes, dict[str, Any]]):
    """A cache of which another thread drops the entry that was just found."""

    def get(self, key: bytes, default: Any = None) -> Any:
        return self.pop(key, default)


def test_body_that_another_thread_drops_meanwhile_is_still_returned() -> None:
    context = ObjectContext()
    found = context.decoded(body(1), "it")
    context._decoded = DroppedMeanwhile(context._decoded)

    assert context.decoded(body(1), "it") is found
    assert context.decoded(body(1), "it") == found


def test_copy_of_a_context_is_empty() -> None:
    context = ObjectContext()
    context.decoded(body(1), "it")

    for copied in (copy.deepcopy(context), pickle.loads(pickle.dumps(context))):
        assert isinstance(copied, ObjectContext)
        assert copied is not context
        assert not copied._decoded


@pytest.mark.parametrize("raw", [b"[]", b"null", b"7", b'"a"', b"", b"{"])
def test_context_refuses_what_is_no_object(raw: bytes) -> None:
    context = ObjectContext()

    for _ in range(2):
        with pytest.raises(DecodeError, match=r"^it: "):
            context.decoded(raw, "it")

    assert not context._decoded


def test_keys_are_shown_without_their_values() -> None:
    view = ReadOnlyDict({"password": "sesame"})

    assert repr(view.keys()) == "ReadOnlyDict.keys(['password'])"
    assert view.keys() == {"password"}
    assert view.keys() & {"password", "user"} == {"password"}
