"""Any split of the bytes of a watch or list decodes to the same events or objects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from conftest import pod
from hypothesis import example, given
from hypothesis import strategies as st
from json_helpers import (
    HARD_TEXTS,
    STYLES,
    chunks_of,
    pieces_of,
    styles,
    texts,
    values,
    written,
)

from aioinformer.errors import DecodeError
from aioinformer.model.resource import Resource
from aioinformer.watch.decoding import ListSplitter, ObjectDecoder, StreamDecoder
from examples import examples

if TYPE_CHECKING:
    from collections.abc import Iterable

FOOS = Resource("example.com", "v1", "foos", "Foo")
CUTS = st.lists(st.integers(0, 100_000), max_size=10)

metadata = st.fixed_dictionaries(
    {"name": st.text(min_size=1, max_size=3)},
    optional={
        "namespace": texts,
        "uid": texts,
        "resourceVersion": texts,
        "labels": st.dictionaries(texts, texts, max_size=2),
        "annotations": st.dictionaries(texts, texts, max_size=2),
        "managedFields": st.lists(values, max_size=2),
        "ownerReferences": st.lists(values, max_size=2),
    },
)
# Servers write the fields in either order.
objects = st.builds(
    lambda found, backwards: dict(reversed(found.items())) if backwards else found,
    st.fixed_dictionaries(
        {"metadata": metadata}, optional={"spec": values, "data": values, "x": values}
    ),
    st.booleans(),
)
TYPE = {"apiVersion": FOOS.api_version, "kind": FOOS.kind}


# ---------------------------------------------------------------- watch streams

Event = tuple[str, Any]
events = st.tuples(
    st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]), objects
)


def stream_of(found: Iterable[Event], style: str) -> bytes:
    """Return one line for each event, also in styles with several lines."""
    return b"".join(
        written({"type": kind, "object": obj}, style).replace(b"\n", b"") + b"\n"
        for kind, obj in found
    )


def watched(chunks: Iterable[bytes]) -> list[Event]:
    decoder = StreamDecoder(ObjectDecoder(FOOS))
    found = [event for chunk in chunks for event in decoder.feed(chunk)]
    found += decoder.finish()
    assert decoder.skipped == 0
    return [(str(event.type), event.object.to_dict()) for event in found]


@given(found=st.lists(events, max_size=4), style=styles, cuts=CUTS)
@examples(40)
def test_any_split_of_a_watch_gives_its_events(
    found: list[Event], style: str, cuts: list[int]
) -> None:
    stream = stream_of(found, style)

    assert watched(chunks_of(stream, cuts)) == found
    assert (
        watched(chunks_of(stream[:-1], cuts)) == found
    )  # the last newline arrives late


@given(found=st.lists(events, max_size=3), size=st.integers(1, 9))
@examples(20)
def test_small_pieces_of_a_watch_give_its_events(found: list[Event], size: int) -> None:
    assert watched(pieces_of(stream_of(found, "compact"), size)) == found


@given(found=st.lists(events, min_size=1, max_size=3), cuts=CUTS, data=st.data())
@examples(40)
def test_watch_that_is_cut_off_gives_the_whole_lines_only(
    found: list[Event], cuts: list[int], data: st.DataObject
) -> None:
    stream = stream_of(found, "compact")
    end = data.draw(st.integers(0, len(stream)))
    begun = stream[:end]
    lines = begun.count(b"\n")
    decoder = StreamDecoder(ObjectDecoder(FOOS))

    given_out = [it for chunk in chunks_of(begun, cuts) for it in decoder.feed(chunk)]

    assert [(str(it.type), it.object.to_dict()) for it in given_out] == found[:lines]
    if begun.endswith(b"\n") or not begun:
        assert decoder.finish() == []
    elif stream[end : end + 1] == b"\n":
        (last,) = decoder.finish()
        assert (str(last.type), last.object.to_dict()) == found[lines]
    else:
        with pytest.raises(DecodeError):
            decoder.finish()


def test_watch_of_pods_that_is_cut_off_anywhere_raises_decode_error() -> None:
    stream = stream_of([("ADDED", pod("web-0", spec={"a": {"b": {}}}))], "compact")

    for end in range(1, len(stream) - 1):
        decoder = StreamDecoder(ObjectDecoder(FOOS))
        assert decoder.feed(stream[:end]) == []
        with pytest.raises(DecodeError):
            decoder.finish()


# ---------------------------------------------------------------- list bodies


def typed_list(items: list[Any]) -> dict[str, Any]:
    """Write a list as servers write built-in kinds: the head comes first."""
    head = {"resourceVersion": "7", "continue": "next", "remainingItemCount": 5}
    head = {"kind": "FooList", "apiVersion": FOOS.api_version, "metadata": head}
    return {**head, "items": items}


def custom_list(items: list[Any]) -> dict[str, Any]:
    """Write a list as servers write custom objects: all keys are sorted."""
    return {
        "apiVersion": FOOS.api_version,
        "items": [dict(sorted({**TYPE, **item}.items())) for item in items],
        "kind": "FooList",
        "metadata": {"continue": "next", "resourceVersion": "7"},
    }


def odd_list(items: list[Any]) -> dict[str, Any]:
    """Write a list with items last, after fields that look like them."""
    decoy = {"items": [{"metadata": {"name": "decoy"}}]}
    return {"x": decoy, 'an "items': [decoy], **typed_list(items), "z": [decoy, decoy]}


SHAPES = [typed_list, custom_list, odd_list]
shapes = st.sampled_from(SHAPES)


def listed(chunks: Iterable[bytes]) -> tuple[list[Any], str, str]:
    splitter = ListSplitter(ObjectDecoder(FOOS))
    found = [obj for chunk in chunks for obj in splitter.feed(chunk)]
    found += splitter.finish()
    assert splitter.skipped == 0
    versions = splitter.resource_version, splitter.continue_token
    return [obj.to_dict() for obj in found], *versions


def whole(body: bytes) -> tuple[list[Any], str, str]:
    """Decode a whole list at once; items without a type get one."""
    found = json.loads(body)
    kind = {"apiVersion": found["apiVersion"], "kind": FOOS.kind}
    metadata = found["metadata"]
    items = [{**kind, **item} for item in found["items"] or []]
    return items, metadata["resourceVersion"], metadata["continue"]


@given(
    items=st.lists(objects, max_size=5) | st.none(),
    shape=shapes,
    style=styles,
    cuts=CUTS,
)
@examples(50)
@example(items=[], shape=typed_list, style="pretty", cuts=[])
@example(items=None, shape=typed_list, style="compact", cuts=[])
def test_any_split_of_a_list_gives_its_objects(
    items: list[Any] | None, shape: Any, style: str, cuts: list[int]
) -> None:
    found = shape(items or [])
    if items is None:
        found["items"] = None

    body = written(found, style)

    assert listed(chunks_of(body, cuts)) == whole(body)


@given(items=st.lists(objects, max_size=4), shape=shapes, size=st.integers(1, 9))
@examples(20)
def test_small_pieces_of_a_list_give_its_objects(
    items: list[Any], shape: Any, size: int
) -> None:
    body = written(shape(items))

    assert listed(pieces_of(body, size)) == whole(body)


def nested_items() -> list[Any]:
    """Make objects that contain similar borders and hard texts."""
    claim = {**TYPE, "metadata": {"name": "claim", "labels": {}}, "spec": {}}
    bare = {"metadata": {"name": "claim"}}
    return [
        {
            "metadata": {
                "name": f"n{n}",
                "annotations": dict(enumerate_texts(n)),
                "managedFields": [{"apiVersion": FOOS.api_version}] * (n % 3),
                "ownerReferences": [{**TYPE, "name": "o"}] * (n % 2),
            },
            "spec": {"claims": [claim] * (n % 3), "bare": [bare] * (n % 4)},
        }
        for n in range(6)
    ]


def enumerate_texts(number: int) -> Iterable[tuple[str, str]]:
    for text in HARD_TEXTS:
        yield text * number, text


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda it: it.__name__)
@pytest.mark.parametrize("size", [1, 3, 100, 1000, 4096])
def test_list_with_borders_inside_its_items_gives_its_objects(
    shape: Any, style: str, size: int
) -> None:
    body = written(shape(nested_items()), style)

    assert listed(pieces_of(body, size)) == whole(body)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda it: it.__name__)
def test_long_list_with_huge_items_gives_its_objects(shape: Any) -> None:
    huge = {"metadata": {"name": "huge"}, "data": {"x": '"},{[\\' * 60_000}}
    items = [*nested_items(), huge, *nested_items() * 20, huge, huge, *nested_items()]
    body = written(shape(items))

    assert listed(pieces_of(body, 64 * 1024)) == whole(body)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda it: it.__name__)
def test_list_that_is_cut_off_anywhere_raises_decode_error(
    shape: Any, style: str
) -> None:
    """And what was given out by then are the first objects, whole."""
    items = [{"metadata": {"name": name}, "a": [{"b": '"}]}'}]} for name in "xyz"]
    body = written(shape(items), style)
    expected, *_ = whole(body)

    for end in range(len(body)):
        for size in (11, len(body)):
            splitter = ListSplitter(ObjectDecoder(FOOS))
            pieces = pieces_of(body[:end], size)

            found = [obj for piece in pieces for obj in splitter.feed(piece)]

            assert [obj.to_dict() for obj in found] == expected[: len(found)]
            with pytest.raises(DecodeError):
                splitter.finish()


def test_pods_of_a_real_server_come_one_by_one() -> None:
    """However small the pieces, an object is there when the next one begins."""
    items = [pod(f"web-{n}", labels={"n": str(n)}) for n in range(20)]
    head = {"kind": "PodList", "apiVersion": "v1"}
    body = written({**typed_list(items), **head})
    splitter = ListSplitter(ObjectDecoder(Resource("", "v1", "pods", "Pod")))
    arrived = [
        body[: at + 1].count(b'},{"apiVersion":"v1","kind":"Pod","metadata":')
        for at in range(len(body))
    ]

    count = 0
    for at, expected in enumerate(arrived):
        count += len(splitter.feed(body[at : at + 1]))
        assert count == expected

    assert [obj.name for obj in splitter.finish()] == ["web-19"]
