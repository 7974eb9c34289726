"""Debug page: tables of what a program does, as HTML or JSON.

It shows rows of plain values and knows nothing of their meaning. It needs neither
scripts nor other files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from aioinformer.web.responses import HTTPResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioinformer.web.responses import EndpointRequest, Responder

__all__ = ["Tables", "Value", "debug_responders"]

Value: TypeAlias = str | int | float | bool | list[str] | None
"""Value of a cell."""

Tables: TypeAlias = Mapping[str, Sequence[Mapping[str, Value]]]
"""Rows of each table, by the title of the table. All rows of one have the same keys."""

_HEADERS = {
    "Cache-Control": "no-store",
    # Nothing is loaded or run, should a text ever get past the escaping.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

_HEAD = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark }}
body {{ font: 14px/1.4 system-ui, sans-serif; margin: 1rem }}
h2 {{ font-size: 1rem; margin: 1.2rem 0 .3rem }}
div {{ overflow-x: auto }}
table {{ border-collapse: collapse }}
th, td {{ border-bottom: 1px solid #8886; padding: .15rem .8rem .15rem 0;
  text-align: left; vertical-align: top }}
td {{ font-family: ui-monospace, monospace; white-space: pre-line }}
</style></head><body>
<h1>{title}</h1>
<p><a href="?format=json">JSON</a></p>
"""


def debug_responders(
    title: str, tables: Callable[[], Tables], *, path: str = "/debug"
) -> dict[str, Responder]:
    """Return the responder of the page, by its path with and without a slash.

    The page is HTML, or JSON with `?format=json` or `Accept: application/json`.

    Args:
        title: Title of the page.
        tables: Function called for each request, in the event loop.
        path: Path of the page.
    """

    async def page(request: EndpointRequest) -> HTTPResponse:
        shown = tables()
        if _wants_json(request):
            body = msgspec.json.encode(shown)
            return HTTPResponse(200, body, "application/json", dict(_HEADERS))

        text = "".join(_html(title, shown))
        kind = "text/html; charset=utf-8"
        return HTTPResponse(200, text.encode(), kind, dict(_HEADERS))

    return {path: page, f"{path}/": page}


def _wants_json(request: EndpointRequest) -> bool:
    formats = request.values("format")
    if formats:
        return formats[-1] == "json"

    return "application/json" in request.accept and "text/html" not in request.accept


def _html(title: str, tables: Tables) -> Iterable[str]:
    yield _HEAD.format(title=escape(title))
    for heading, rows in tables.items():
        yield f"<h2>{escape(heading)}</h2>\n"
        if not rows:
            yield "<p>none</p>\n"
            continue

        yield "<div><table><tr>"
        yield from (f"<th>{escape(name.replace('_', ' '))}</th>" for name in rows[0])
        yield "</tr>\n"
        for row in rows:
            yield "<tr>"
            yield from (f"<td>{escape(_text(value))}</td>" for value in row.values())
            yield "</tr>\n"

        yield "</table></div>\n"

    yield "</body></html>\n"


def _text(value: Value) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.3f}".rstrip("0").rstrip(".")
        case list():
            return "\n".join(value)
        case _:
            return str(value)
