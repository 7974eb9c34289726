"""Errors about missing objects and unsupported patch types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from api_calls import WIDGETS_GROUP, ask
from each_case import each_case

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest


@each_case(
    "method, subresource",
    [
        ("GET", "pods/nope/log"),
        ("POST", "pods/nope/exec"),
        ("GET", "pods/nope/attach"),
        ("POST", "pods/nope/portforward"),
        ("DELETE", "pods/nope/proxy"),
        ("GET", "services/nope/proxy/some/path"),
        ("GET", "pods/nope/ephemeralcontainers"),
        ("GET", "pods/nope/resize"),
    ],
)
async def test_missing_object_error_names_object(
    target: ServerUnderTest, http: aiohttp.ClientSession, method: str, subresource: str
) -> None:
    plural, _, rest = subresource.partition("/")

    code, answer = await ask(http, method, f"{target.path(plural)}/{rest}", {})

    assert (code, answer["message"]) == (404, f'{plural} "nope" not found')
    assert answer["details"] == {"name": "nope", "kind": plural}


async def test_missing_custom_object_error_names_object_for_any_verb(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = f"{target.path('widgets', WIDGETS_GROUP)}/nope/anything"

    code, answer = await ask(http, "GET", path)

    assert (code, answer["message"]) == (404, 'widgets.example.com "nope" not found')


@each_case(
    "method, subresource, code",
    [
        ("GET", "pods/nope/anything", 404),
        ("GET", "pods/nope/log/more", 404),
        ("GET", "configmaps/nope/status", 404),
        ("DELETE", "pods/nope/log", 405),
        ("DELETE", "pods/nope/status", 405),
    ],
)
async def test_error_without_object_name_has_no_details(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    method: str,
    subresource: str,
    code: int,
) -> None:
    plural, _, rest = subresource.partition("/")

    got, answer = await ask(http, method, f"{target.path(plural)}/{rest}")

    assert (got, answer["details"]) == (code, {})


@each_case("name", ["nope", "nope/status"])
@each_case("media", ["application/json", "text/plain"])
async def test_unsupported_patch_type_is_rejected_before_lookup(
    target: ServerUnderTest, http: aiohttp.ClientSession, name: str, media: str
) -> None:
    path = f"{target.path('pods')}/{name}"

    code, answer = await ask(http, "PATCH", path, {}, content_type=media)

    assert (code, answer["message"]) == (415, "415: Unsupported Media Type")
    assert (answer["reason"], answer["details"]) == ("UnsupportedMediaType", {})


async def test_unsupported_patch_of_custom_resource_lists_types(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = f"{target.path('widgets', WIDGETS_GROUP)}/nope"

    code, answer = await ask(http, "PATCH", path, {})

    assert code == 415
    assert answer["message"].endswith(
        "application/json-patch+json, application/merge-patch+json, "
        "application/apply-patch+yaml"
    )
