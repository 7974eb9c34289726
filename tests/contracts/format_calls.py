"""Helpers of the format tests: requests with an `Accept` header."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import aiohttp

AS = "application/json;g=meta.k8s.io;v=v1;as="
TABLE, PARTIAL = AS + "Table", AS + "PartialObjectMetadata"
PARTIALS = AS + "PartialObjectMetadataList"
JSON, YAML = "application/json", "application/yaml"
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}


async def send(
    http: aiohttp.ClientSession,
    method: str,
    path: str,
    accept: str,
    body: object = None,
    headers: Mapping[str, str] | None = None,
    /,
    **params: str,
) -> tuple[int, str, str]:
    """Send one request and return the status, the media type and the text."""
    headers = {"Accept": accept, "User-Agent": "test", **(headers or {})}
    async with http.request(
        method, path, json=body, headers=headers, params=params
    ) as answer:
        return answer.status, answer.content_type, await answer.text()


async def get(
    http: aiohttp.ClientSession, path: str, accept: str, **params: str
) -> Any:
    """Send a GET request and return the decoded body."""
    code, media, text = await send(http, "GET", path, accept, **params)
    assert (code, media) == (200, JSON), text
    return json.loads(text)
