"""The debug page: tables as HTML and JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from aioinformer.web.debug import debug_responders
from aioinformer.web.responses import EndpointRequest

if TYPE_CHECKING:
    from aioinformer.web.debug import Tables
    from aioinformer.web.responses import HTTPResponse

TABLES: Tables = {
    "queues": [
        {"name": "<b>&'\"", "depth": 3, "age": 1.5, "open": True, "next": None},
        {"name": "second", "depth": 0, "age": 0.0, "open": False, "next": ["a", "b"]},
    ],
    "nothing": [],
}


async def page(accept: str = "", **query: str) -> HTTPResponse:
    responders = debug_responders("program <1>", lambda: TABLES)
    assert list(responders) == ["/debug", "/debug/"]
    return await responders["/debug"](EndpointRequest(accept, tuple(query.items())))


async def test_page_is_escaped_html() -> None:
    answer = await page("text/html,application/json;q=0.9")
    text = answer.body.decode()

    assert answer.content_type == "text/html; charset=utf-8"
    assert "<title>program &lt;1&gt;</title>" in text
    assert (
        "<td>&lt;b&gt;&amp;&#x27;&quot;</td><td>3</td><td>1.5</td><td>yes</td>" in text
    )
    assert "<td>0</td><td>0</td><td>no</td><td>a\nb</td>" in text
    assert "<h2>nothing</h2>\n<p>none</p>" in text
    assert "<script" not in text
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")


@pytest.mark.parametrize(
    ("accept", "query"),
    [("application/json", {}), ("text/html", {"format": "json"})],
)
async def test_page_is_json_on_request(accept: str, query: dict[str, str]) -> None:
    answer = await page(accept, **query)

    assert answer.content_type == "application/json"
    assert json.loads(answer.body) == TABLES
    assert answer.headers["Cache-Control"] == "no-store"
