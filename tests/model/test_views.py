"""Read-only views, and the cache of decoded bodies."""

from __future__ import annotations

import copy
import json
import operator
import pickle
from collections import OrderedDict
from typing import Any

import msgspec
import orjson
import pytest
from each_case import each_case
from fastapi.encoders import jsonable_encoder
from json_helpers import nested
from pydantic import TypeAdapter

from aioinformer import json_codec
from aioinformer.errors import DecodeError
from aioinformer.model import KubeObject
from aioinformer.model.views import (
    DECODED_BODIES_KEPT,
    DECODED_BYTES_KEPT,
    LARGEST_DECODED_KEPT,
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


@each_case("value", ["a", 1, 1.5, True, None])
def test_read_only_returns_scalars_unchanged(value: object) -> None:
    assert read_only(value) is value


def test_nested_values_of_view_are_views() -> None:
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


def test_read_only_dict_is_a_mapping() -> None:
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


def test_read_only_list_is_a_sequence() -> None:
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


def test_views_equal_their_values() -> None:
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


@each_case(
    "other",
    [{}, [], "", None, {**DATA, "text": "b"}, [*DATA["array"], 1], ReadOnlyDict({})],
)
def test_views_differ_from_other_values(other: object) -> None:
    for view in (ReadOnlyDict(DATA), ReadOnlyList(DATA["array"])):
        assert operator.eq(view, other) is operator.eq(other, view) is False
        assert operator.ne(view, other) is operator.ne(other, view) is True


@pytest.mark.parametrize("view", [ReadOnlyDict({}), ReadOnlyList([])], ids=repr)
def test_views_are_not_hashable(view: object) -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(view)


def test_repr_of_view_shows_value() -> None:
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


@each_case("change", [assign, delete, merge, *CHANGES_OF_DICTS])
def test_read_only_dict_rejects_changes(change: Any) -> None:
    data = {"x": 0}
    view = ReadOnlyDict(data)

    with pytest.raises(TypeError, match=r"read-only.*\.to_dict\(\)"):
        getattr(view, change)() if isinstance(change, str) else change(view)

    assert data == {"x": 0}


@each_case("change", [assign, delete, add, multiply, *CHANGES_OF_LISTS])
def test_read_only_list_rejects_changes(change: Any) -> None:
    data = [2, 1]
    view = ReadOnlyList(data)

    with pytest.raises(TypeError, match=r"read-only.*\.to_dict\(\)"):
        getattr(view, change)() if isinstance(change, str) else change(view)

    assert data == [2, 1]


@each_case("name", [*CHANGES_OF_DICTS, *CHANGES_OF_LISTS])
def test_views_override_every_mutating_method(name: str) -> None:
    kinds = {dict: ReadOnlyDict, list: ReadOnlyList}

    for plain, view in kinds.items():
        assert hasattr(plain, name) == hasattr(view, name)


def test_deep_copies_of_views_can_be_changed() -> None:
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


def test_to_dict_copies_deepest_decodable_nesting() -> None:
    """`orjson` cannot encode this depth. `msgspec` cannot decode 1000 levels."""
    levels = 1000 if json_codec.loads is orjson.loads else 800
    value: Any = ReadOnlyDict(decode_json(nested(levels), "a body")).to_dict()

    depth = 0
    while isinstance(value, dict):
        value = value["a"]
        depth += 1

    assert depth == levels


# ---------------------------------------------------------------- decoding


def test_decode_json_error_has_name_and_offset() -> None:
    with pytest.raises(DecodeError, match=r"^the body: ") as caught:
        decode_json(b'{"a":nonsense}', "the body")

    # At the wrong word: orjson reports its begin.
    assert 5 <= caught.value.offset <= 12
    assert "nonsense" not in str(caught.value)


def test_context_decodes_body_once() -> None:
    context = ObjectContext()

    first = context.decoded(body(1), "it")

    assert first == {"n": 1}
    assert context.decoded(body(1), "it") is first


def test_context_caches_bodies_used_last() -> None:
    context = ObjectContext()
    first = [context.decoded(body(n), "it") for n in range(DECODED_BODIES_KEPT)]

    again = context.decoded(body(0), "it")
    context.decoded(body(-1), "it")

    assert again is first[0]
    assert len(context.decoded_bodies) == DECODED_BODIES_KEPT
    assert context.decoded(body(0), "it") is first[0]  # used since
    assert context.decoded(body(2), "it") is first[2]
    assert context.decoded(body(1), "it") is not first[1]  # the oldest was dropped


def test_context_cache_has_bounded_number_of_bodies() -> None:
    context = ObjectContext()

    for number in range(5 * DECODED_BODIES_KEPT):
        context.decoded(body(number), "it")
        assert len(context.decoded_bodies) <= DECODED_BODIES_KEPT

    assert DECODED_BODIES_KEPT == 128


class DroppedMeanwhile(OrderedDict[bytes, tuple[dict[str, Any], int]]):
    """Cache from which another thread drops the entry that was just found."""

    def get(self, key: bytes, default: Any = None) -> Any:
        return self.pop(key, default)


def test_body_dropped_by_other_thread_is_still_returned() -> None:
    context = ObjectContext()
    found = context.decoded(body(1), "it")
    context.decoded_bodies.bodies = DroppedMeanwhile(context.decoded_bodies.bodies)

    assert context.decoded(body(1), "it") is found
    assert context.decoded(body(1), "it") == found


def text(number: int, size: int) -> bytes:
    """Return a body of exactly so many bytes."""
    front = b'{"n":%d,"x":"' % number
    return front + b"x" * (size - len(front) - 2) + b'"}'


def sizes_of(context: ObjectContext) -> list[int]:
    return [size for _, size in context.decoded_bodies.bodies.values()]


@pytest.mark.parametrize("size", [20_000, 100_000, LARGEST_DECODED_KEPT])
def test_context_cache_has_bounded_size(size: int) -> None:
    context = ObjectContext()

    for number in range(300):
        found = context.decoded(text(number, size), "it")
        assert context.decoded(text(number, size), "it") is found
        assert sum(sizes_of(context)) <= DECODED_BYTES_KEPT

    assert sum(sizes_of(context)) > DECODED_BYTES_KEPT - size
    assert DECODED_BYTES_KEPT == 2 * 1024 * 1024


def test_context_does_not_cache_large_body() -> None:
    context = ObjectContext()
    small = context.decoded(body(1), "it")

    for number in range(160):
        context.decoded(text(number, LARGEST_DECODED_KEPT + 1), "it")

    assert sizes_of(context) == [len(body(1))]
    assert context.decoded(body(1), "it") is small


def test_inexact_byte_count_is_corrected() -> None:
    context = ObjectContext()
    context.decoded_bodies._size = 10 * DECODED_BYTES_KEPT

    for number in range(10):
        context.decoded(text(number, 1000), "it")

    assert sizes_of(context) == [1000] * 10
    assert context.decoded_bodies._size == 10_000


def test_drop_unused_drops_bodies_without_object() -> None:
    context = ObjectContext()
    bodies = [text(number, 1000) for number in range(10)]
    for it in bodies:
        context.decoded(it, "it")

    context.decoded_bodies.drop_unused()
    assert len(context.decoded_bodies) == 10

    del bodies[3:], it
    context.decoded_bodies.drop_unused()

    assert list(context.decoded_bodies.bodies) == bodies
    assert context.decoded_bodies._size == 3000


def test_copied_context_has_empty_cache() -> None:
    context = ObjectContext()
    context.decoded(body(1), "it")

    for copied in (copy.deepcopy(context), pickle.loads(pickle.dumps(context))):
        assert isinstance(copied, ObjectContext)
        assert copied is not context
        assert not copied.decoded_bodies


@each_case("raw", [b"[]", b"null", b"7", b'"a"', b"", b"{"])
def test_context_rejects_body_that_is_no_object(raw: bytes) -> None:
    context = ObjectContext()

    for _ in range(2):
        with pytest.raises(DecodeError, match=r"^object 'it': "):
            context.decoded(raw, "it")

    assert not context.decoded_bodies


def test_repr_of_keys_hides_values() -> None:
    view = ReadOnlyDict({"password": "sesame"})

    assert repr(view.keys()) == "ReadOnlyDict.keys(['password'])"
    assert view.keys() == {"password"}
    assert view.keys() & {"password", "user"} == {"password"}


# ---------------------------------------------------------------- returned values


def inside(value: Any) -> list[Any]:
    """Return the objects and arrays in a result."""
    values = value.values() if isinstance(value, dict) else value
    return [it for it in values if isinstance(it, dict | list)]


HELD = ReadOnlyDict({"object": {"x": 1}, "array": [1], "text": "a"})
ROW = ReadOnlyList([{"x": 1}, [1], "a"])


def keywords(**given: Any) -> dict[str, Any]:
    return given


def first_and_rest(values: list[Any]) -> list[Any]:
    match values:
        case [first, *rest]:
            return [first, *rest]
        case _:
            raise AssertionError(values)


def captured(value: dict[str, Any]) -> dict[str, Any]:
    match value:
        case {"object": taken, **rest}:
            return {"object": taken, **rest}
        case _:
            raise AssertionError(value)


def extended(values: list[Any], more: list[Any]) -> list[Any]:
    values += more
    return values


@each_case(
    "handed_out",
    [
        pytest.param(lambda: dict(HELD), id="dict"),
        pytest.param(lambda: {**HELD}, id="unpacked"),
        pytest.param(lambda: keywords(**HELD), id="keywords"),
        pytest.param(lambda: HELD | {}, id="or"),
        pytest.param(lambda: {} | HELD, id="or-from-the-right"),
        pytest.param(HELD.copy, id="copy-of-a-dict"),
        pytest.param(lambda: OrderedDict(HELD), id="ordered"),
        pytest.param(lambda: {}.__class__(HELD.items()), id="items"),
        pytest.param(lambda: list(HELD.values()), id="values"),
        pytest.param(lambda: list(operator.itemgetter(*HELD)(HELD)), id="itemgetter"),
        pytest.param(lambda: [HELD.get("object"), HELD.get("array")], id="get"),
        pytest.param(lambda: captured(HELD), id="a-pattern"),
        pytest.param(lambda: dict(ReadOnlyDict(HELD)), id="a-view-of-a-view"),
        pytest.param(lambda: list(ROW), id="list"),
        pytest.param(lambda: tuple(ROW), id="tuple"),
        pytest.param(lambda: [*ROW], id="unpacked-list"),
        pytest.param(lambda: operator.add(ROW, []), id="plus"),
        pytest.param(lambda: operator.add([], ROW), id="plus-from-the-right"),
        pytest.param(lambda: extended([], ROW), id="extended"),
        pytest.param(lambda: ROW * 2, id="times"),
        pytest.param(lambda: 2 * ROW, id="times-from-the-right"),
        pytest.param(ROW.copy, id="copy-of-a-list"),
        pytest.param(lambda: ROW[:], id="slice"),
        pytest.param(lambda: list(reversed(ROW)), id="reversed"),
        pytest.param(lambda: sorted(ROW, key=str), id="sorted"),
        pytest.param(lambda: first_and_rest(ROW), id="a-list-pattern"),
    ],
)
def test_values_returned_by_view_are_read_only(handed_out: Any) -> None:
    found = inside(handed_out())

    assert len(found) >= 2
    assert {type(it) for it in found} == {ReadOnlyDict, ReadOnlyList}


@pytest.mark.parametrize("plain_type", [dict, list])
def test_views_cover_every_method_of_plain_types(plain_type: type) -> None:
    """Each method is overridden in the view, or returns no held value."""
    view = ReadOnlyDict if plain_type is dict else ReadOnlyList
    harmless = {
        *dir(object),
        *("__class_getitem__", "__contains__", "__delitem__", "__len__"),
        *("__ge__", "__gt__", "__le__", "__lt__", "__reversed__"),
        *("fromkeys", "count", "index"),
    }

    assert set(vars(plain_type)) - set(vars(view)) - harmless == set()


# ---------------------------------------------------------------- as JSON


@each_case(
    "encoded",
    [
        pytest.param(lambda it: json.dumps(it), id="json"),
        pytest.param(lambda it: orjson.dumps(it), id="orjson"),
        pytest.param(lambda it: msgspec.json.encode(it), id="msgspec"),
        pytest.param(lambda it: json.dumps(jsonable_encoder(it)), id="fastapi"),
        pytest.param(
            lambda it: TypeAdapter(dict[str, Any]).dump_json({"it": it})[6:-1],
            id="pydantic",
        ),
    ],
)
@each_case(
    "value",
    [DATA, [{"name": "web", "image": "shop"}], [["-v", "-x"], ["--all"]], {}, []],
    ids=["object", "pairs", "texts", "empty-object", "empty-array"],
)
def test_encoders_accept_views(encoded: Any, value: Any) -> None:
    assert json.loads(encoded(read_only(value))) == value


def test_fastapi_route_can_return_object() -> None:
    obj = KubeObject.of(
        {"kind": "Pod", "spec": {"containers": [{"name": "a", "image": "b"}]}}
    )

    assert jsonable_encoder(obj) == obj.to_dict()
