"""Server-sent events as bytes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from conftest import pod
from json_helpers import nested
from web_helpers import SentEvents

from aioinformer.model import KubeObject, Resource
from aioinformer.model.resources import CONFIG_MAPS, SECRETS
from aioinformer.web.change_log import StreamEventType
from aioinformer.web.responses import (
    EventID,
    HTTPResponse,
    encode_event,
    heartbeat,
    redacted,
    refusal,
)

HERE = EventID("ab12", 7, "00ff00ff")


def test_event_has_name_id_and_stored_bytes() -> None:
    obj = KubeObject.of(pod("web"))

    sent = encode_event(StreamEventType.ADDED, obj.raw, HERE)

    id_line = b"id: ab12-7-00ff00ff\n"
    assert sent == b"event: added\n" + id_line + b"data: " + obj.raw + b"\n\n"


def test_event_without_object_has_data() -> None:
    assert encode_event(StreamEventType.RESET) == b"event: reset\ndata: {}\n\n"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["lf", "crlf", "cr"])
def test_multiline_body_is_one_event(end: str) -> None:
    text = '{"kind":"Pod",\n "metadata":{"name":"a","annotations":{"x":"1\\n2"}}\n}'
    obj = KubeObject.of(text.replace("\n", end).encode())
    page = SentEvents()

    page.feed(encode_event(StreamEventType.UPDATED, obj.raw))

    assert page.names == ["updated a"]
    assert page.events[0].data["metadata"]["annotations"]["x"] == "1\n2"


def test_heartbeat_is_comment_with_optional_id() -> None:
    page = SentEvents()
    page.feed(heartbeat())
    page.feed(heartbeat(HERE))

    assert (page.names, page.last_id) == ([], str(HERE))
    assert page.comments == 2


def test_event_id_round_trips() -> None:
    assert EventID.parse(str(HERE)) == HERE


@pytest.mark.parametrize(
    "text",
    ["", "7", "a-b", "a-x-b", "a--b", "a-\u0661-b", "a-1-b-c", "a-+1-b", "-" * 100_000],
    ids=lambda text: text[:10],
)
def test_invalid_event_id_is_none(text: str) -> None:
    assert EventID.parse(text) is None


def test_very_long_number_in_event_id_is_parsed_quickly() -> None:
    found = EventID.parse(f"a-{'9' * 5000}-b")

    assert found is not None
    assert found.number < 10**20


@pytest.mark.parametrize(
    "body",
    [
        {"data": {"k": "c2VzYW0="}},
        {"stringData": {"k": "c2VzYW0="}},
        {
            "metadata": {
                "name": "s",
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": "c2VzYW0="
                },
            }
        },
    ],
    ids=["data", "string-data", "last-applied"],
)
def test_data_of_secret_is_removed(body: dict[str, Any]) -> None:
    metadata = {"name": "s", "namespace": "default"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, **body}
    obj = KubeObject.of(secret)

    assert b"c2VzYW0=" in obj.raw
    assert b"c2VzYW0=" not in redacted(obj)


@pytest.mark.parametrize(
    ("kind", "resource", "shown"),
    [
        ("Secret", None, False),
        ("Secret", SECRETS, False),
        ("Secret", CONFIG_MAPS, False),
        ("", SECRETS, False),
        ("Renamed", SECRETS, False),
        ("", None, False),
        ("", CONFIG_MAPS, True),
        ("ConfigMap", None, True),
        ("ConfigMap", CONFIG_MAPS, True),
        ("Sealed", Resource("example.com", "v1", "secrets"), True),
    ],
    ids=str,
)
def test_secret_is_recognized_by_kind_or_resource(
    kind: str, resource: Resource | None, shown: bool
) -> None:
    body = {"metadata": {"name": "s"}, "data": {"k": "c2VzYW0="}}
    obj = KubeObject.of({"kind": kind, **body} if kind else body)

    assert (b"c2VzYW0=" in redacted(obj, resource)) is shown


@pytest.mark.parametrize("annotated", [True, False])
def test_metadata_only_object_may_be_secret(annotated: bool) -> None:
    last = {"kubectl.kubernetes.io/last-applied-configuration": "c2VzYW0="}
    metadata = {"name": "s", "annotations": {"mine": "x"} | (last if annotated else {})}
    api = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata"}
    obj = KubeObject.of({**api, "metadata": metadata})

    sent = redacted(obj)

    assert b"c2VzYW0=" not in sent
    assert b'"mine":"x"' in sent.replace(b" ", b"")
    assert (sent == obj.raw) is not annotated


def test_data_of_other_kinds_is_unchanged() -> None:
    obj = KubeObject.of(pod("web") | {"data": {"a": "b"}})

    assert redacted(obj) == obj.raw


def undecodable(kind: str, body: bytes) -> KubeObject:
    obj = KubeObject.of(pod("a", labels={"x": "y"}) | {"kind": kind})
    return msgspec.structs.replace(obj, body=obj.raw[:-1] + b"," + body + b"}")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'"data":' + nested() + b',"x":"c2VzYW0="', id="too-deep"),
        pytest.param(b'"data":{"x":"c2VzYW0="]', id="no-json"),
    ],
)
def test_undecodable_secret_is_sent_as_identity(body: bytes) -> None:
    obj = undecodable("Secret", body)

    sent = redacted(obj)

    assert json.loads(sent)["metadata"]["name"] == "a"
    assert b"c2VzYW0=" not in sent


def test_deeply_nested_object_is_sent_unchanged() -> None:
    obj = undecodable("Widget", b'"data":' + nested())

    assert redacted(obj) == obj.raw


def test_refusal_is_one_line_of_text() -> None:
    nosniff = {"X-Content-Type-Options": "nosniff"}
    answer = refusal(503, "ends", Retry_After="5")

    assert answer == HTTPResponse(
        503, b"ends\n", headers={**nosniff, "Retry-After": "5"}
    )
    assert answer.content_type.startswith("text/plain")
