"""Content negotiation of discovery documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from each_case import each_case

if TYPE_CHECKING:
    import aiohttp

# Served by the router of built-in kinds, which is strict about headers.
ROUTED = ["/version", "/api", "/api/v1", "/apis/apps/v1"]
# Served by other handlers.
OPEN = ["/apis", "/apis/apps", "/apis/example.com", "/apis/example.com/v1"]

ALL_TYPES = "application/json, application/yaml, application/vnd.kubernetes.protobuf"


async def refusal(
    http: aiohttp.ClientSession, path: str, **headers: str
) -> tuple[int, str, str]:
    """Request a document, and return the Status of the error."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with http.get(path, headers=named) as answer:
        status = await answer.json()
        assert answer.status == status["code"]
        assert status["details"] == {}
        return status["code"], status["reason"], status["message"]


@each_case("path", ROUTED)
@each_case("sent", ["*/*", "text/plain", "nonsense"])
async def test_unsupported_media_type_is_406(
    http: aiohttp.ClientSession, path: str, sent: str
) -> None:
    """Some clients send the content type `*/*` without a body."""
    reported = await refusal(http, path, content_type=sent)

    assert reported == (415, "UnsupportedMediaType", "415: Unsupported Media Type")


@each_case("path", ROUTED)
@each_case(
    "sent",
    ["", "application/json", "application/json; charset=utf-8", "x, application/json"],
)
async def test_supported_media_type_is_accepted(
    http: aiohttp.ClientSession, path: str, sent: str
) -> None:
    async with http.get(path, headers={"Content-Type": sent}) as answer:
        assert answer.status == 200


@each_case("path", OPEN)
async def test_group_documents_ignore_content_type(
    http: aiohttp.ClientSession, path: str
) -> None:
    async with http.get(path, headers={"Content-Type": "*/*"}) as answer:
        assert answer.status == 200


@each_case(
    "path, offer",
    [("/version", "application/json"), *((path, ALL_TYPES) for path in ROUTED[1:])],
)
@each_case("accept", ["text/html", "application/*"])
async def test_not_acceptable_error_lists_supported_types(
    http: aiohttp.ClientSession, path: str, offer: str, accept: str
) -> None:
    code, reason, message = await refusal(http, path, accept=accept)

    assert (code, reason) == (406, "NotAcceptable")
    assert message == f"406: Not Acceptable\n\nAvailable representations: {offer}"


async def test_version_document_supports_json_only(http: aiohttp.ClientSession) -> None:
    for media in ("application/yaml", "application/vnd.kubernetes.protobuf"):
        async with http.get("/version", headers={"Accept": media}) as answer:
            assert answer.status == 406

    async with http.get("/version", headers={"Accept": "text/html, */*"}) as answer:
        assert (answer.status, answer.content_type) == (200, "application/json")


@each_case(
    "path, code", [*((path, 405) for path in ROUTED), *((path, 200) for path in OPEN)]
)
async def test_head_is_supported_by_group_documents_only(
    http: aiohttp.ClientSession, path: str, code: int
) -> None:
    async with http.head(path) as answer:
        assert answer.status == code


@each_case("path", ["/api/v2", "/apis/apps/v7"])
async def test_unserved_path_is_404_for_any_media_type(
    http: aiohttp.ClientSession, path: str
) -> None:
    async with http.post(path, headers={"Content-Type": "*/*"}) as answer:
        assert answer.status == 404
