"""Framing: lines of a watch, items of a list."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from each_case import each_case
from hypothesis import given, settings
from hypothesis import strategies as st
from json_helpers import calls_of, chunks_of, nested, pieces_of, styles, values, written

from aioinformer.errors import DecodeError
from aioinformer.watch.framing import ItemFramer, LineFramer, split_deep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


KIB = 1024
CUTS = st.lists(st.integers(0, 100_000), max_size=8)


# ---------------------------------------------------------------- lines


def lines_of(chunks: Iterable[bytes]) -> tuple[list[bytes], bytes]:
    framer = LineFramer()
    fed = [framer.feed(chunk) for chunk in chunks]
    assert all(it == b"" or it.endswith(b"\n") for it in fed)
    return fed, framer.rest()


@each_case(
    "chunks, fed, rest",
    [
        pytest.param([b"a\nb\n"], [b"a\nb\n"], b"", id="whole-lines"),
        pytest.param([b"a\nb"], [b"a\n"], b"b", id="incomplete-line"),
        pytest.param([b"a", b"b\nc"], [b"", b"ab\n"], b"c", id="a-line-in-two"),
        pytest.param([b"a", b"\n"], [b"", b"a\n"], b"", id="newline-alone"),
        pytest.param([b"a", b"b", b"c"], [b"", b"", b""], b"abc", id="no-newline"),
        pytest.param([b"", b"a", b"", b"\n"], [b"", b"", b"", b"a\n"], b"", id="empty"),
        pytest.param([], [], b"", id="nothing"),
    ],
)
def test_line_framer_splits_after_last_newline(
    chunks: list[bytes], fed: list[bytes], rest: bytes
) -> None:
    assert lines_of(chunks) == (fed, rest)


@given(data=st.lists(st.sampled_from([b"a", b"\n", b"\r", b"{}"])), cuts=CUTS)
def test_line_framer_returns_same_bytes_for_any_split(
    data: list[bytes], cuts: Any
) -> None:
    whole = b"".join(data)

    fed, rest = lines_of(chunks_of(whole, cuts))

    assert b"".join(fed) + rest == whole
    assert b"\n" not in rest


def test_line_framer_rest_is_returned_once() -> None:
    framer = LineFramer()
    framer.feed(b"abc")

    assert [framer.rest(), framer.rest()] == [b"abc", b""]


def test_line_framer_does_not_copy_whole_lines() -> None:
    chunk = b"line\n"

    assert LineFramer().feed(chunk) is chunk


def test_line_framer_joins_long_line_once() -> None:
    framer = LineFramer()
    chunks = pieces_of(bytes(200), 2)

    for chunk in chunks:
        assert framer.feed(chunk) == b""

    kept = framer.parts
    assert all(one is other for one, other in zip(kept, chunks, strict=True))
    assert framer.feed(b"\n") == bytes(200) + b"\n"


# ---------------------------------------------------------------- items


class CountingFramer(ItemFramer):
    """Framer that counts the bytes passed to the decoder."""

    decoded = 0

    def _take(self, comma: int, split: Any) -> list[memoryview]:
        self.decoded += comma - self._start
        return super()._take(comma, split)


def body_of(items: Iterable[bytes], rest_text: bytes = b"}") -> bytes:
    """Return the text after the opening bracket of a list."""
    return b",".join(items) + b"]" + rest_text


def framed(
    chunks: Iterable[bytes], framer: ItemFramer | None = None
) -> tuple[list[bytes], list[bytes], bytes]:
    """Return the items returned early, the items at the end, and the rest."""
    framer = framer or ItemFramer()
    early = [bytes(item) for chunk in chunks for item in framer.feed(chunk)]
    late, rest_text = split_deep(framer.rest())
    return early, [bytes(item) for item in late], rest_text


def objects(count: int, **more: Any) -> list[bytes]:
    return [written({"metadata": {"name": f"n{n}"}, **more}) for n in range(count)]


def custom(count: int) -> list[bytes]:
    """Return custom objects whose managed fields and owners start like items."""
    kind = {"apiVersion": "example.com/v1", "kind": "Foo"}
    manager = {"apiVersion": "example.com/v1", "fieldsType": "FieldsV1", "manager": "m"}
    owner = {**kind, "name": "o", "uid": "u"}
    return [
        written(
            {
                **kind,
                "metadata": {
                    "managedFields": [manager, manager],
                    "name": f"n{n}",
                    "ownerReferences": [owner, owner],
                },
            }
        )
        for n in range(count)
    ]


def claims(count: int) -> list[bytes]:
    """Return objects that contain objects starting like items, as in a StatefulSet.

    They are scanned for brackets, so a chunk may end after a backslash of the text.
    """
    inner = [{"metadata": {"name": "data"}}, {"metadata": {"name": "logs"}}]
    return objects(count, spec={"volumeClaimTemplates": inner}, text='"},{"\\')


LISTS = [
    pytest.param(objects(40), id="typed"),
    pytest.param(custom(20), id="custom"),
    pytest.param(claims(20), id="borders-inside"),
    pytest.param(
        [written({"metadata": {"name": '},{"metadata":'}})] * 20,
        id="border-in-a-string",
    ),
    pytest.param(
        [written({"metadata": {"name": "\\"}, "a": '"}]}{["'})] * 20, id="hard-strings"
    ),
    pytest.param(
        [b" " + written({"metadata": {"name": "a"}}, "pretty")] * 20, id="pretty"
    ),
    pytest.param([b'{"b":1}', b'{"a":{"b":{}}}', b"{}"] * 9, id="unlike"),
    pytest.param([b"1", b'"a,]"', b"null", b"[1,[2]]", b"{}"] * 9, id="no-objects"),
    pytest.param([b"{}"], id="one"),
    pytest.param([], id="none"),
]


@each_case("size", [1, 2, 7, 64, 255, 256, 257, 1000, 100_000])
@each_case("items", LISTS)
def test_item_framer_returns_items_for_any_chunk_size(
    items: list[bytes], size: int
) -> None:
    rest_text = b',"metadata":{"a":[{"metadata":1},{"metadata":2}]}}'
    chunks = pieces_of(body_of(items, rest_text), size)

    early, late, rest = framed(chunks)

    assert early + late == [item.strip() for item in items]
    assert rest == rest_text


@each_case("size", [999, 1000, 1001])
def test_bracket_scan_follows_escapes_across_chunks(size: int) -> None:
    """An item longer than the limit of guesses, full of escapes before brackets."""
    (large,) = objects(1, text="\n}]},\t[{" * 40_000)
    items = [large, *claims(20)]

    early, late, rest = framed(pieces_of(body_of(items, b"}"), size))

    assert early[0] == large
    assert len(early) > 10
    assert early + late == items
    assert rest == b"}"


@given(
    items=st.lists(values, max_size=6),
    rest_text=st.dictionaries(st.just("x"), values),
    style=styles,
    cuts=CUTS,
)
@settings(max_examples=60)
def test_item_framer_returns_any_items_for_any_split(
    items: list[Any], rest_text: Any, style: str, cuts: list[int]
) -> None:
    rest = written(rest_text, style).replace(b"{", b",", 1)
    body = written(items, style)[1:] + rest

    early, late, found_rest = framed(chunks_of(body, cuts))

    assert [json.loads(item) for item in early + late] == items
    assert found_rest == rest


@pytest.mark.parametrize("items", LISTS[:2])
def test_item_framer_returns_items_as_they_arrive(items: list[bytes]) -> None:
    """Each is returned when the start of the next one has arrived."""
    framer = ItemFramer()
    chunks = [item + b"," for item in items]
    chunks[-1] = items[-1] + b"]}"

    early = [[bytes(it) for it in framer.feed(chunk)] for chunk in chunks]

    assert early == [[], *([item] for item in items[:-1])]
    assert framer._scan is None


@pytest.mark.parametrize("items", [claims(20), LISTS[3].values[0]], ids=["in", "text"])
def test_item_framer_returns_items_early_after_wrong_guess(items: Any) -> None:
    framer = ItemFramer()

    early = [bytes(item) for it in items for item in framer.feed(it + b",")]

    assert early == items[: len(early)]
    assert len(early) >= len(items) - 1


@pytest.mark.parametrize(
    "items",
    [
        pytest.param(
            [b'{ "metadata": {"name": "%d", "x": [{}]} }' % n for n in range(9000)],
            id="spaced",
        ),
        pytest.param([b'{"n%d":{"x":"]}"}}' % n for n in range(20_000)], id="unlike"),
        pytest.param([b"%d" % n for n in range(60_000)], id="numbers"),
    ],
)
def test_items_without_border_are_found_by_scanning(items: list[bytes]) -> None:
    framer = ItemFramer()
    chunks = pieces_of(b" , ".join(items) + b"]}", 16 * KIB)
    held = []
    found: list[bytes] = []

    for chunk in chunks:
        found += [bytes(item) for item in framer.feed(chunk)]
        held.append(framer._end - framer._start)

    late, rest_text = split_deep(framer.rest())
    assert found + [bytes(item) for item in late] == items
    assert rest_text == b"}"
    assert max(held) <= (256 + 16) * KIB
    assert held[-1] < 100


@pytest.mark.parametrize("size", [1000, 64 * KIB])
def test_huge_item_does_not_affect_neighbours(size: int) -> None:
    huge = written({"metadata": {"name": "huge"}, "data": {"a": '{"\\' * 150_000}})
    small = objects(3)
    items = [*small, huge, *small, huge, *small]

    early, late, _ = framed(pieces_of(body_of(items), size))

    assert early + late == items


def test_item_framer_ignores_empty_chunks() -> None:
    early, late, _ = framed([b"", b'{"a":1}', b"", b',{"a":2}', b"", b"]}", b""])

    assert early + late == [b'{"a":1}', b'{"a":2}']


def test_item_framer_accepts_leading_white_space() -> None:
    items = objects(30)
    body = b" " * 1000 + body_of(items)

    for size in (100, 5000):
        early, late, _ = framed(pieces_of(body, size))
        assert early + late == items


# ---------------------------------------------------------------- what is no list


@each_case(
    "body",
    [
        pytest.param(b'{"a":1},nonsense,{"a":2},', id="nonsense"),
        pytest.param(b'{"a":1},,{"a":2},', id="no-item"),
        pytest.param(b'{"a":1]},{"a":2},', id="crossed-brackets"),
        pytest.param(b'{"a":"\x00"},{"a":2},', id="control-character"),
        pytest.param(b'{"a":1}{"a":1},{"a":2},', id="no-comma"),
    ],
)
@each_case("size", [1, 5, 1000])
def test_malformed_items_raise_decode_error(body: bytes, size: int) -> None:
    chunks = pieces_of(body + b'{"a":3},{"a":4},{"a":5}]}', size)

    with pytest.raises(DecodeError, match=r"cannot read list items|incomplete"):
        framed(chunks)


@each_case(
    "text",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"a":1}', id="no-end"),
        pytest.param(b'{"a":1}}', id="wrong-end"),
        pytest.param(b'{"a":"]', id="open-string"),
        pytest.param(b'{"a":1},]', id="comma-at-the-end"),
        pytest.param(b",]", id="comma-alone"),
        pytest.param(b"nonsense]", id="nonsense"),
    ],
)
def test_split_deep_rejects_malformed_list(text: bytes) -> None:
    with pytest.raises(DecodeError, match=r"incomplete|cannot read list items"):
        split_deep(text)


# ---------------------------------------------------------------- what nests deeply


@pytest.mark.parametrize("size", [5000, 10**7])
def test_deeply_nested_item_does_not_affect_others(size: int) -> None:
    deep = b'{"metadata":{"name":"deep"},"a":' + nested() + b"}"
    items = [*objects(2), deep, *objects(2)]

    early, late, rest_text = framed(pieces_of(body_of(items, b',"x":1}'), size))

    assert early + late == items
    assert rest_text == b',"x":1}'


# ---------------------------------------------------------------- linear cost


LONG = [
    pytest.param(objects, 4000, id="typed"),
    pytest.param(custom, 1000, id="custom"),
    pytest.param(claims, 1000, id="borders-inside"),
]


@pytest.mark.parametrize(("make", "count"), LONG)
def test_item_framer_makes_linear_number_of_calls(
    make: Callable[[int], list[bytes]], count: int
) -> None:
    def cost(count: int) -> int:
        chunks = pieces_of(body_of(make(count)), 4 * KIB)
        return calls_of(lambda: framed(chunks))

    first, second, fourth = cost(count), cost(2 * count), cost(4 * count)
    assert fourth - second < 2.2 * (second - first)


@pytest.mark.parametrize(("make", "count"), LONG)
def test_item_framer_decodes_each_byte_about_once(
    make: Callable[[int], list[bytes]], count: int
) -> None:
    body = body_of(make(count))
    framer = CountingFramer()

    framed(pieces_of(body, 4 * KIB), framer)

    # All bytes once, and the cost of one wrong guess.
    assert len(body) - 8 * KIB < framer.decoded < len(body) + 256 * KIB


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize("scanning", [False, True], ids=["guessing", "scanning"])
def test_item_framer_copies_huge_item_a_few_times(size: int, scanning: bool) -> None:
    framer = CountingFramer()
    if scanning:
        for chunk in (*claims(2), b""):
            framer.feed(chunk + b",")

    assert (framer._scan is not None) is scanning
    huge = written({"metadata": {"name": "huge"}, "data": "x{[" * (size * 50 + 500)})
    buffers = set()
    decoded = framer.decoded
    for chunk in pieces_of(huge, size):
        assert framer.feed(chunk) == []
        buffers.add(len(framer._buffer))

    # The buffer grows by doubling, and nothing else is copied or decoded.
    assert len(buffers) < 2 * math.log2(len(huge))
    assert framer.decoded == decoded
    assert [bytes(it) for it in framer.feed(b',{"metadata":')] == [huge]
    assert framer.decoded == decoded + len(huge)


@given(data=st.data())
@settings(max_examples=30)
def test_unterminated_text_takes_linear_time(data: st.DataObject) -> None:
    """Brackets, quotes and backslashes in any order cause no repeated backtracking."""
    unit = data.draw(st.text('{}[]",\\a', min_size=1, max_size=4)).encode()

    def cost(count: int) -> int:
        chunks = pieces_of(unit * count, 500)

        def feed() -> None:
            framer = ItemFramer()
            framer.feed(b"{" + b" " * (257 * KIB))  # from here on it scans
            for chunk in chunks:
                try:
                    framer.feed(chunk)
                except DecodeError:
                    break

        return calls_of(feed)

    assert cost(2000) < 2.2 * cost(1000) + 100
