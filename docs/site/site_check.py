"""Check of the built site, and links from names in its pages to the API reference.

zensical checks all links of the pages. The browser checks what they load.
"""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from site_reference import PUBLIC_MODULES, page_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from site_reference import Reference

__all__ = ["link_names", "linked", "missing_names"]

_TAG = re.compile(r"(<[^>]*>)")
_ID = re.compile(r'<[^>]* id="?([^"\s>]+)')
_NAME = re.compile(r"[A-Za-z][\w.]*(?:\(\w*=?\))?")
# In these, a name is no link: it is one already, or part of code or a heading.
_NO_LINKS = {"a", "pre", "h1", "h2", "h3", "h4", "h5", "h6", "label", "nav"}


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of an HTML page."""
    return set(_ID.findall(page.read_text(encoding="utf-8")))


def missing_names(site: Path, reference: Reference) -> Iterator[str]:
    """Yield a problem for each public name that the API reference does not show."""
    anchors = {path: anchors_of(site / _file_of(path)) for path in PUBLIC_MODULES}
    yield from (f"{it}: no anchor" for it in PUBLIC_MODULES if it not in anchors[it])
    for entry in reference.entries.values():
        wanted = [entry.path]
        if reference.home(entry) is entry:
            wanted += [f"{entry.path}.{it}" for it in reference.described(entry)]

        missing = [it for it in wanted if it not in anchors[entry.module]]
        yield from (f"{it}: no anchor" for it in missing)


def _file_of(module: str) -> str:
    return f"reference/{page_of(module).removesuffix('.md')}/index.html"


# -------------------------------------------------------------------- links to names


def link_names(site: Path, reference: Reference) -> None:
    """Link names of the public API, where they are code in a text, to their reference."""
    anchors: dict[str, str] = {}
    for module in PUBLIC_MODULES:
        ids = anchors_of(site / _file_of(module))
        anchors |= {name: f"{_file_of(module)}#{name}" for name in ids}

    for path in site.rglob("index.html"):
        folder = PurePosixPath(path.relative_to(site).as_posix()).parent
        text = path.read_text(encoding="utf-8")

        def target(name: str, folder: PurePosixPath = folder) -> str:
            found = reference.find(name)
            place = next((anchors[it] for it in found if it in anchors), "")
            if not place:
                return ""

            file, _, anchor = place.partition("#")
            page = os.path.relpath(PurePosixPath(file).parent, folder)
            return f"{page}/#{anchor}"

        path.write_text(linked(text, target), encoding="utf-8")


def linked(text: str, target: Callable[[str], str]) -> str:
    """Return an HTML page whose inline code is linked, where `target` returns a link."""
    head, start, rest = text.partition("<article")
    body, end, tail = rest.partition("</article>")
    parts = _TAG.split(body)
    within: list[str] = []
    for n, part in enumerate(parts):
        if not part.startswith("<"):
            continue

        tag = part.strip("</>").split(maxsplit=1)[0] if len(part) > 2 else ""
        if tag in _NO_LINKS:
            if not part.startswith("</"):
                within.append(tag)
            elif within:
                within.pop()
        elif part == "<code>" and not within and parts[n + 2] == "</code>":
            name = parts[n + 1]
            if _NAME.fullmatch(name) and (link := target(name)):
                parts[n] = f'<a class="name" href="{link}"><code>'
                parts[n + 2] = "</code></a>"

    return f"{head}{start}{''.join(parts)}{end}{tail}"
