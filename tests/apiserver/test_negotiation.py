"""Content negotiation. Each case was compared with a real server."""

from __future__ import annotations

import pytest
from each_case import each_case

from aioinformer.errors import ApiError
from aioinformer_apiserver.serialization.negotiation import (
    Choice,
    check_route,
    negotiate,
    negotiate_plain,
)

META = "g=meta.k8s.io"
TABLE = f"application/json;as=Table;v=v1;{META}"
PARTIAL = f"application/json;as=PartialObjectMetadata;v=v1;{META}"

WHOLE = Choice()
YAML = Choice(media="application/yaml")


@each_case(
    "accept, choice",
    [
        ("", WHOLE),
        ("*/*", WHOLE),
        ("*", WHOLE),
        ("application/*", WHOLE),
        ("application/json", WHOLE),
        ("application/json; charset=utf-8", WHOLE),
        ("application/json;stream=watch", WHOLE),
        ("application/json;as=;stream=", WHOLE),
        ("application/yaml", YAML),
        ("application/yaml, application/json", YAML),
        ("application/json;q=0.1, application/yaml;q=0.9", YAML),
        ("application/json;q=x, application/yaml;q=0.1", YAML),
        ("*/*, application/yaml", YAML),
        ("text/html, application/json;q=0", WHOLE),
        ("nonsense, application/json", WHOLE),
        ("application/vnd.kubernetes.protobuf, application/json", WHOLE),
        ("application/cbor, application/yaml;q=0.9", YAML),
        (TABLE, Choice(transform="Table")),
        (f" application/json ; as=Table ; v=v1 ; {META}", Choice(transform="Table")),
        (f"{TABLE},*/*", Choice(transform="Table")),
        (f"{TABLE};q=0.5,application/json;q=0.6", WHOLE),
        (TABLE.replace("v1", "v1beta1"), Choice(transform="Table", version="v1beta1")),
        (
            TABLE.replace("json", "yaml"),
            Choice(transform="Table", media="application/yaml"),
        ),
        (TABLE.replace("v1", "v2") + ",application/json", WHOLE),
        (PARTIAL, Choice(transform="PartialObjectMetadata")),
        (
            PARTIAL.replace("Metadata;", "MetadataList;"),
            Choice(transform="PartialObjectMetadataList"),
        ),
        ("application/json;pretty=1", Choice(pretty=True)),
        ("application/json;pretty=true", WHOLE),
        ("application/json;drop=metadata.managedFields", WHOLE),
    ],
)
def test_negotiation_chooses_first_supported_format(
    accept: str, choice: Choice
) -> None:
    assert negotiate({"Accept": accept} if accept else {}, {}) == choice


@each_case(
    "accept",
    [
        "text/html",
        "text/*",
        "*/json",
        "APPLICATION/JSON",
        "application/cbor",
        "application/vnd.kubernetes.protobuf",
        "application/json;stream=other",
        "application/yaml;stream=watch",
        f"application/json;as=Other;v=v1;{META}",
        f"application/json;as=table;v=v1;{META}",
        f"application/json;as=Table;v=v2;{META}",
        f"application/json;v=v1;{META}",
        "application/json;as=Table",
        "application/json;as=Table;v=v1",
        f"application/json;as=Table;{META}",
        "application/json;as=Table;v=v1;g=",
    ],
)
def test_negotiation_rejects_unsupported_formats(accept: str) -> None:
    with pytest.raises(ApiError) as caught:
        negotiate({"Accept": accept}, {})

    refusal = caught.value
    assert (refusal.status, refusal.reason) == (406, "NotAcceptable")
    assert refusal.message == (
        "only the following media types are accepted: application/json, "
        "application/yaml, application/vnd.kubernetes.protobuf"
    )


def test_negotiation_rejects_yaml_for_watch() -> None:
    with pytest.raises(ApiError) as caught:
        negotiate({"Accept": "application/yaml,application/json"}, {}, watch=True)

    assert caught.value.message == (
        "only the following media types are accepted: application/json;stream=watch, "
        "application/vnd.kubernetes.protobuf;stream=watch"
    )


@each_case(
    "agent, query, pretty",
    [
        ("curl/8.1", None, True),
        ("Wget/1", None, True),
        ("Mozilla/5.0 (X11)", None, True),
        ("kubectl/v1.36", None, False),
        ("", None, False),
        ("curl/8.1", "", True),
        ("curl/8.1", "0", False),
        ("curl/8.1", "other", False),
        ("", "1", True),
        ("", "true", True),
        ("", "TRUE", True),
        ("", "false", False),
    ],
)
def test_negotiation_indents_json_for_browsers_and_curl(
    agent: str, query: str | None, *, pretty: bool
) -> None:
    requested = {} if query is None else {"pretty": query}

    assert negotiate({"User-Agent": agent}, requested).pretty is pretty


@each_case(
    "accept, choice",
    [
        ("", WHOLE),
        ("application/yaml", YAML),
        ("application/*", WHOLE),
        (TABLE, None),
        (f"{TABLE},application/json", WHOLE),
        ("application/json;stream=watch", WHOLE),
        ("text/html", None),
    ],
)
def test_negotiation_ignores_conversion_for_status(
    accept: str, choice: Choice | None
) -> None:
    assert negotiate_plain({"Accept": accept}, {}) == choice


@each_case(
    "accept", ["", "*/*", "application/json;q=0", "text/html, application/yaml", TABLE]
)
def test_router_requires_media_type_of_route(accept: str) -> None:
    check_route(accept, streams=False)


@pytest.mark.parametrize("accept", ["application/*", "*", "text/html", "garbage"])
def test_router_rejects_wildcards(accept: str) -> None:
    with pytest.raises(ApiError) as caught:
        check_route(accept, streams=False)

    assert caught.value.status == 406
    assert caught.value.message == (
        "406: Not Acceptable\n\nAvailable representations: application/json, "
        "application/yaml, application/vnd.kubernetes.protobuf"
    )


def test_router_accepts_stream_types_for_watchable_paths() -> None:
    with pytest.raises(ApiError) as caught:
        check_route("text/html", streams=True)

    assert caught.value.message.endswith(
        "application/json;stream=watch, "
        "application/vnd.kubernetes.protobuf;stream=watch"
    )
