"""Decoding objects and watch streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from conftest import pod
from each_case import each_case
from json_helpers import nested, pieces_of, written

from aioinformer.errors import DecodeError, ResourceExpired
from aioinformer.model.resources import NODES, PODS
from aioinformer.watch.decoding import ObjectDecoder, StreamDecoder
from aioinformer.watch.events import EventType, WatchEvent

if TYPE_CHECKING:
    from aioinformer.model.resource import Resource

STATUS = {"kind": "Status", "code": 410, "reason": "Expired", "metadata": {}}


# ---------------------------------------------------------------- one object


def test_object_decoder_decodes_object() -> None:
    body = written(pod("web-0", "shop", {"app": "web"}))

    obj = ObjectDecoder(PODS).decode(body)

    assert obj.raw is body
    assert (obj.key, obj.resource_version) == ("shop/web-0", "1")
    assert obj.uid == pod("web-0", "shop")["metadata"]["uid"]
    assert obj.labels == {"app": "web"}


@each_case(
    "resource, metadata, key",
    [
        pytest.param(PODS, {"name": "a", "namespace": "s"}, "s/a", id="namespaced"),
        pytest.param(PODS, {"name": "a"}, "a", id="namespace-missing"),
        pytest.param(PODS, {"namespace": "s"}, "", id="name-missing"),
        pytest.param(PODS, {"name": "", "namespace": "s"}, "", id="name-empty"),
        pytest.param(NODES, {"name": "a"}, "a", id="cluster-scoped"),
        pytest.param(NODES, {}, "", id="cluster-scoped-name-missing"),
        pytest.param(NODES, None, "", id="null"),
    ],
)
def test_object_decoder_derives_key(
    resource: Resource, metadata: Any, key: str
) -> None:
    body = written({"metadata": metadata})

    assert ObjectDecoder(resource).decode(body).key == key


def test_objects_of_one_decoder_share_labels_and_cache() -> None:
    decoder = ObjectDecoder(PODS)
    one = decoder.decode(written(pod("a", labels={"app": "web"})))
    other = decoder.decode(written(pod("b", labels={"app": "web"})))
    stranger = ObjectDecoder(PODS).decode(written(pod("b", labels={"app": "web"})))

    assert one.label_set is other.label_set
    assert one.context is other.context
    assert stranger.label_set is not one.label_set
    assert stranger.context is not one.context


@pytest.mark.parametrize("body", [b"", b"[]", b'{"metadata":7}', b"{"])
def test_decoding_a_non_object_raises_decode_error(body: bytes) -> None:
    with pytest.raises(DecodeError):
        ObjectDecoder(PODS).decode(body)


# ---------------------------------------------------------------- watch streams


def line(kind: str, obj: object, style: str = "compact") -> bytes:
    return written({"type": kind, "object": obj}, style).replace(b"\n", b" ") + b"\n"


def decode(data: bytes, size: int = 0) -> tuple[list[WatchEvent], int]:
    """Return the events of a whole stream, and the number of skipped ones."""
    decoder = StreamDecoder(ObjectDecoder(PODS))
    pieces = pieces_of(data, size or len(data) or 1)
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events + decoder.finish(), decoder.skipped


def read(data: bytes, size: int = 0) -> tuple[list[tuple[str, Any]], int]:
    """Return types and decoded objects of a stream, and the number of skipped ones."""
    events, skipped = decode(data, size)
    return [(it.type, it.object.to_dict()) for it in events], skipped


@pytest.mark.parametrize("style", ["compact", "spaced", "pretty"])
def test_stream_decoder_reads_every_event_type(style: str) -> None:
    bookmark = {"kind": "Pod", "metadata": {"resourceVersion": "9"}}
    events: list[tuple[str, Any]] = [
        ("ADDED", pod("a")),
        ("MODIFIED", pod("a", metadata={"resourceVersion": "2"})),
        ("DELETED", pod("a", metadata={"resourceVersion": "3"})),
        ("BOOKMARK", bookmark),
        ("ERROR", STATUS),
    ]

    assert read(b"".join(line(*it, style) for it in events)) == (events, 0)


def test_error_event_has_status_object() -> None:
    decoder = StreamDecoder(ObjectDecoder(PODS))

    (event,) = decoder.feed(line("ERROR", STATUS))

    assert event.type is EventType.ERROR
    assert isinstance(event.error(), ResourceExpired)


@each_case(
    "text",
    [
        pytest.param(b'{"object":%s,"type":"ADDED"}\n', id="other-order"),
        pytest.param(b'{"type":"ADDED","more":{},"object":%s}\n', id="more-between"),
        pytest.param(b'{"type":"ADDED","object":%s,"more":7}\n', id="more-after"),
        pytest.param(b'{"type":"ADDED","object": %s }\n', id="blanks"),
        pytest.param(b' {"type":"ADDED","object":%s} \n', id="blanks-around"),
        pytest.param(b'{"type":"ADDED","object":%s}\r\n', id="carriage-return"),
        pytest.param(b'\n\r\n \n{"type":"ADDED","object":%s}\n\n', id="empty-lines"),
        pytest.param(b'{"type":"ADDED","object":%s}', id="no-newline"),
        pytest.param(b'{"type":"A\\u0044DED","object":%s}\n', id="escape"),
    ],
)
def test_stream_decoder_reads_lines_in_any_style(text: bytes) -> None:
    assert read(text % written(pod("a"))) == ([("ADDED", pod("a"))], 0)


@each_case(
    "text",
    [
        pytest.param(line("OTHER", pod("a")), id="unknown-type"),
        pytest.param(line("added", pod("a")), id="lower-case"),
        pytest.param(line("", pod("a")), id="empty-type"),
        pytest.param(line("ADDED", {}), id="no-metadata"),
        pytest.param(line("ADDED", {"metadata": {"namespace": "s"}}), id="no-name"),
        pytest.param(line("MODIFIED", {"metadata": 7}), id="metadata-is-a-number"),
        pytest.param(line("BOOKMARK", {"metadata": 7}), id="unreadable-bookmark"),
        pytest.param(line("ADDED", {"metadata": {"labels": 7}}), id="labels"),
        pytest.param(line("ADDED", [pod("a")]), id="array"),
        pytest.param(line("ADDED", None), id="null"),
        pytest.param(
            b'{"type":"ADDED","object":{"x":' + nested() + b"}}\n",
            id="too-deep-without-a-name",
        ),
        pytest.param(
            b'{"type":"OTHER","object":{"x":' + nested() + b"}}\n",
            id="too-deep-of-an-unknown-type",
        ),
    ],
)
def test_stream_decoder_counts_unusable_events(text: bytes) -> None:
    around = line("ADDED", pod("a")), line("DELETED", pod("a"))

    found = read(around[0] + text + around[1])

    assert found == ([("ADDED", pod("a")), ("DELETED", pod("a"))], 1)


@each_case(
    "text",
    [
        pytest.param(b"nonsense\n", id="nonsense"),
        pytest.param(b"<html>{}}</html>\n", id="html"),
        pytest.param(b"[]\n", id="array"),
        pytest.param(b"{}\n", id="no-fields"),
        pytest.param(b'{"type":"ADDED"}\n', id="no-object"),
        pytest.param(b'{"object":{}}\n', id="no-type"),
        pytest.param(b'{"type":7,"object":{}}\n', id="type-is-a-number"),
        pytest.param(b'{"type":"ADDED","object":{}\n', id="cut-off"),
        pytest.param(b'{"type":"ADDED","object":[{}}\n', id="crossed-brackets"),
        pytest.param(b'{"type":"\xff","object":{}}\n', id="not-utf8"),
        pytest.param(b'{"type":"ADDED","object":{"a":%b]}\n' % nested(), id="deep"),
        pytest.param(b'{"object":{"a":%b}}\n' % nested(), id="deep-without-a-type"),
        pytest.param(line("DELETED", {"metadata": 7}), id="deletion-of-nothing"),
        pytest.param(line("DELETED", {"metadata": {}}), id="deletion-without-a-name"),
        pytest.param(line("DELETED", pod("a") | {"kind": 7}), id="deletion-of-no-kind"),
        pytest.param(b'{"type":"ERROR","object":7}\n', id="error-without-status"),
        pytest.param(b'{"type":"ERROR","object":{"metadata":7}}\n', id="odd-status"),
    ],
)
@each_case("size", [1, 0])
def test_line_that_is_no_event_raises_decode_error(text: bytes, size: int) -> None:
    with pytest.raises(DecodeError):
        decode(line("ADDED", pod("a")) + text + line("ADDED", pod("b")), size)


DEEP_LINES = {
    "as-servers-write-it": b'{"type":"%b","object":{"apiVersion":"v1","data":%b,%b}}\n',
    "type-in-front": b'{"type":"%b","object":{"kind":"Pod","apiVersion":"v1","a":%b,%b}}\n',
    "in-the-metadata": b'{"type":"%b","object":{"metadata":{"x":%b},%b}}\n',
    "more-after": b'{"type":"%b","object":{"data":%b,%b},"more":{"x":1}}\n',
    "blanks": b'{"type": "%b", "object": {"data":%b,%b}}\n',
}


@each_case("text", DEEP_LINES.values(), ids=DEEP_LINES)
@each_case("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_stream_decoder_reads_metadata_of_deeply_nested_object(
    kind: str, text: bytes
) -> None:
    rest = written({"kind": "Pod", **pod("a", labels={"x": "y"})})[1:-1]
    deep = text % (kind.encode(), nested(1100), rest)

    events, skipped = decode(line("ADDED", pod("b")) + deep + line("ADDED", pod("c")))

    assert [it.object.name for it in events] == ["b", "a", "c"]
    obj = events[1].object
    assert (events[1].type, obj.key, skipped) == (kind, "default/a", 0)
    assert (obj.uid, obj.labels) == (pod("a")["metadata"]["uid"], {"x": "y"})
    assert obj.resource_version == "1"
    assert obj.raw in deep
    assert obj.raw.endswith(rest + b"}")
    with pytest.raises(DecodeError):
        obj.to_dict()


@pytest.mark.parametrize(
    "metadata", [{"labels": 7}, {"labels": {"x": 7}}, {"uid": 7}, {"generateName": 7}]
)
def test_deleted_event_requires_only_a_key(metadata: Any) -> None:
    gone = pod("a")
    gone["metadata"] = {**gone["metadata"], **metadata}

    (event,), skipped = decode(line("DELETED", gone))

    assert (event.type, event.object.key, skipped) == ("DELETED", "default/a", 0)


DEEP_STATUS = b"""{"kind":"Status","code":410,"reason":"Expired","message":"too old",\
"details":{"causes":%b,"retryAfterSeconds":3}}""" % nested()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b'{"type":"ERROR","object":%b}\n', id="as-servers-write-it"),
        pytest.param(b'{"object":%b,"type":"ERROR"}\n', id="other-order"),
        pytest.param(b'{"type":"ERROR","object":%b,"x":1}\n', id="more-after"),
    ],
)
def test_deeply_nested_error_event_has_code(text: bytes) -> None:
    (event,), skipped = decode(text % DEEP_STATUS)

    error = event.error()

    assert isinstance(error, ResourceExpired)
    assert (error.reason, error.message, error.retry_after) == ("Expired", "too old", 3)
    assert skipped == 0


def test_events_before_malformed_line_are_returned() -> None:
    decoder = StreamDecoder(ObjectDecoder(PODS))
    first, last = line("ADDED", pod("a")), line("ADDED", pod("b"))

    events = decoder.feed(first + b"nonsense\n" + last)

    assert [it.object.name for it in events] == ["a"]
    assert decoder.failure is not None
    with pytest.raises(DecodeError, match="cannot read a watch event"):
        decoder.feed(last)

    with pytest.raises(DecodeError, match="cannot read a watch event"):
        decoder.finish()


@pytest.mark.parametrize("size", [1, 100, 0])
def test_truncated_last_line_raises_decode_error(size: int) -> None:
    """Also if the rest ends like a whole line."""
    first = line("ADDED", pod("a"))
    last = line(
        "ADDED", pod("b", spec={"x": {"y": {}}}, status={"a": {"b": {"c": {}}}})
    )

    for end in range(1, len(last) - 1):
        with pytest.raises(DecodeError):
            decode(first + last[:end], size)


def test_events_before_truncated_line_are_returned() -> None:
    decoder = StreamDecoder(ObjectDecoder(PODS))
    first, second = line("ADDED", pod("a")), line("ADDED", pod("b"))

    events = decoder.feed(first + second[:-9])

    assert [it.object.name for it in events] == ["a"]
    with pytest.raises(DecodeError):
        decoder.finish()


def test_empty_stream_has_no_events() -> None:
    assert read(b"") == ([], 0)


def test_event_does_not_keep_the_stream_alive() -> None:
    decoder = StreamDecoder(ObjectDecoder(PODS))
    stream = line("ADDED", pod("a")) + line("ADDED", pod("b"), "spaced")

    for event in decoder.feed(stream):
        assert type(event.object.raw) is bytes
        assert len(event.object.raw) < len(stream) / 2
