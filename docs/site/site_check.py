"""Checks of the built site, and links from names in its pages to the API reference."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from site_reference import PUBLIC_MODULES, page_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from site_reference import Reference

__all__ = ["Document", "link_names", "linked", "problems", "read"]

_TAG = re.compile(r"(<[^>]*>)")
_NAME = re.compile(r"[A-Za-z][\w.]*(?:\(\w*=?\))?")
# In these, a name is no link: it is one already, or part of code or a heading.
_NO_LINKS = {"a", "pre", "h1", "h2", "h3", "h4", "h5", "h6", "label", "nav"}
_FOREIGN = re.compile(r"""(?:url\(|@import)\s*["']?(?:https?:)?//""")
# Links that a browser does not load.
_NOT_LOADED = {"canonical", "edit", "next", "prev"}


@dataclass(slots=True)
class Document:
    """The anchors and links of a page, and what a browser loads for it."""

    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)


def read(text: str) -> Document:
    """Return the anchors and links of an HTML page."""
    reader = _Reader()
    reader.feed(text)
    return reader.document


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.document = Document()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.document.ids.append(values["id"])

        if tag == "a":
            self.document.links += [values["href"]] if "href" in values else []
        elif tag != "link" or values.get("rel") not in _NOT_LOADED:
            loaded = [values[it] for it in ("src", "href", "data") if it in values]
            loaded += [
                it.split()[0] for it in values.get("srcset", "").split(",") if it
            ]
            self.document.loaded += loaded


# -------------------------------------------------------------------- checks


def problems(site: Path, url: str, reference: Reference) -> list[str]:
    """Return broken links, resources of other hosts, and missing names."""
    documents = {
        path.relative_to(site).as_posix(): read(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
    }
    return [
        *_broken_links(site, url, documents),
        *_foreign_resources(site, url, documents),
        *_missing_names(documents, reference),
    ]


def _broken_links(
    site: Path, url: str, documents: dict[str, Document]
) -> Iterator[str]:
    for path, document in documents.items():
        here = urljoin(url, path)
        for link in {*document.links, *document.loaded}:
            target, anchor = urldefrag(urljoin(here, link))
            if not target.startswith(url):
                continue

            place = unquote(urlsplit(target).path.removeprefix(urlsplit(url).path))
            if not place or place.endswith("/"):
                place += "index.html"

            if not (site / place).is_file():
                yield f"{path}: {link} leads to no page"
            elif anchor and unquote(anchor) not in documents[place].ids:
                yield f"{path}: {link} leads to no anchor"


def _foreign_resources(
    site: Path, url: str, documents: dict[str, Document]
) -> Iterator[str]:
    for path, document in documents.items():
        for link in document.loaded:
            target = urljoin(urljoin(url, path), link)
            if not target.startswith((url, "data:")):
                yield f"{path}: loads {link} from another host"

    for style in sorted(site.rglob("*.css")):
        if _FOREIGN.search(style.read_text(encoding="utf-8")):
            yield f"{style.relative_to(site)}: loads from another host"


def _missing_names(
    documents: dict[str, Document], reference: Reference
) -> Iterator[str]:
    for path in PUBLIC_MODULES:
        ids = set(documents[_file_of(path)].ids)
        yield from (f"{it}: no anchor" for it in {path} - ids)

    for entry in reference.entries.values():
        ids = set(documents[_file_of(entry.module)].ids)
        wanted = [entry.path]
        if reference.home(entry) is entry:
            wanted += [f"{entry.path}.{it}" for it in reference.described(entry)]

        yield from (f"{name}: no anchor" for name in wanted if name not in ids)


def _file_of(module: str) -> str:
    return f"reference/{page_of(module).removesuffix('.md')}/index.html"


# -------------------------------------------------------------------- links to names


def link_names(site: Path, reference: Reference) -> None:
    """Link names of the public API, where they are code in a text, to their reference."""
    anchors: dict[str, str] = {}
    for module in PUBLIC_MODULES:
        ids = read((site / _file_of(module)).read_text(encoding="utf-8")).ids
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
