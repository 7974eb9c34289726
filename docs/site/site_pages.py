"""Pages of the site: the Markdown of the repository, with links that work on the site.

`docs/README.md` is the landing page, and its sections are the navigation: each list item
`- [Title](page.md): description` is an entry. A linked `README.md` in a folder is an index
whose own list items are the entries below it. If they link to sections of pages, each of
these pages is one entry.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

__all__ = ["LANDING", "ROOT", "Item", "Pages", "Section", "SiteError"]

ROOT = Path(__file__).parents[2]
LANDING = "docs/README.md"

_FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(rf"({_FENCED.pattern}|`[^`\n]+`)", _FENCED.flags)
_LINK = re.compile(r"(\]\()([^()\s]+)(\))")
_HEADING = re.compile(r"^# (.*)$", re.MULTILINE)
_SECTION = re.compile(r"^## (.*)$", re.MULTILINE)
_ITEM = re.compile(r"^- \[([^\]]+)\]\(([^()\s]+)\)(?:: )?(.*(?:\n  .*)*)", re.MULTILINE)
_SCHEME = re.compile(r"[a-z]+:")
_FILES = {".png", ".svg", ".yaml"}


class SiteError(Exception):
    """Mistakes in the pages, one a line."""


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of the navigation: a page, and for an index the pages below it."""

    title: str
    page: str
    description: str
    below: tuple[Item, ...] = ()

    def walk(self) -> Iterator[Item]:
        """Yield this entry and all below it."""
        yield self
        for item in self.below:
            yield from item.walk()


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the navigation."""

    title: str
    items: tuple[Item, ...]


class Pages:
    """The pages of a checkout, by their path in it.

    Args:
        site: Address of the published site. Links to it become links within it.
        repository: Address of the repository. Links to files that are no pages lead there.
        generated: Further pages: the Markdown of each, by the path that it would have.
        root: Folder of the checkout.
    """

    def __init__(
        self,
        site: str,
        repository: str,
        generated: Mapping[str, str] | None = None,
        root: Path = ROOT,
    ) -> None:
        self._site = site.rstrip("/") + "/"
        self._repository = repository.rstrip("/")
        self._generated = generated or {}
        self._root = root
        docs = sorted((root / "docs").rglob("*.md"))
        outside = [
            root / name
            for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
        ]
        outside.append(root / "aioinformer_apiserver" / "README.md")
        found = [*docs, *(it for it in outside if it.exists())]
        # A page's path in the checkout, and its path on the site.
        paths = [*(it.relative_to(root).as_posix() for it in found), *self._generated]
        self.pages = {path: _place(path, paths) for path in paths}

    # -------------------------------------------------------------- navigation

    @cached_property
    def sections(self) -> list[Section]:
        """The navigation.

        Raises:
            SiteError: A page is in no list, or in two.
        """
        parts = _SECTION.split(self._text(LANDING))[1:]
        titles, texts = parts[::2], parts[1::2]
        found = [
            Section(title, tuple(self._items(text, LANDING)))
            for title, text in zip(titles, texts, strict=True)
        ]
        sections = [it for it in found if it.items]
        listed = [LANDING]
        for section in sections:
            listed += [it.page for item in section.items for it in item.walk()]

        mistakes = [
            f"{page} is in no list of {LANDING}"
            for page in self.pages
            if page not in listed
        ]
        mistakes += [
            f"{page} is in two lists of {LANDING}"
            for page in self.pages
            if listed.count(page) > 1
        ]
        if mistakes:
            raise SiteError("\n".join(mistakes))

        return sections

    def _items(self, text: str, source: str) -> Iterator[Item]:
        sections: dict[str, list[str]] = {}
        for title, target, description in _ITEM.findall(_FENCED.sub("", text)):
            page = self._resolve(source, target)
            if page not in self.pages:
                continue

            if "#" in target:
                sections.setdefault(page, []).append(title)
            else:
                is_index = page.endswith("/README.md") and source == LANDING
                below = self._items(self._text(page), page) if is_index else ()
                yield Item(title, page, " ".join(description.split()), tuple(below))

        for page, titles in sections.items():
            heading = _HEADING.findall(self._text(page))[0]
            yield Item(heading, page, f"{'; '.join(titles)}.")

    # -------------------------------------------------------------- pages

    def staged(self) -> Iterator[tuple[str, str]]:
        """Yield each page's path on the site, and its Markdown with links of the site."""
        for path, place in self.pages.items():
            yield place, self._with_links(path)

    def files(self) -> Iterator[tuple[Path, str]]:
        """Yield the images and manifests, and the path of each on the site."""
        for path in sorted((self._root / "docs").rglob("*")):
            if path.suffix in _FILES:
                yield path, path.relative_to(self._root / "docs").as_posix()

    def _with_links(self, path: str) -> str:
        def changed(match: re.Match[str]) -> str:
            return match[1] + self._link(path, match[2]) + match[3]

        return _outside_code(self._text(path), lambda it: _LINK.sub(changed, it))

    def _link(self, source: str, target: str) -> str:
        if target.startswith("#"):
            return target

        if _SCHEME.match(target) and not target.startswith(self._site):
            return target

        anchor = "".join(target.partition("#")[1:])
        path = self._resolve(source, target)
        if path == target and _SCHEME.match(target):
            return target

        place = self._places.get(path)
        if place is not None:
            folder = PurePosixPath(self.pages[source]).parent
            return os.path.relpath(place, folder).replace(os.sep, "/") + anchor

        return self._in_repository(source, path, anchor)

    @cached_property
    def _places(self) -> dict[str, str]:
        files = {f"docs/{place}": place for _, place in self.files()}
        return {**self.pages, **files}

    def _resolve(self, source: str, target: str) -> str:
        """Return the path in the checkout that a link of a page leads to.

        A link to the site leads to the page there. A file that is no page stays a link.
        """
        name = target.partition("#")[0]
        if name.startswith(self._site):
            folder = name.removeprefix(self._site).strip("/")
            places = {f"{folder}.md", f"{folder}/index.md".lstrip("/")}
            found = [page for page, it in self.pages.items() if it in places]
            return found[0] if found else target

        return os.path.normpath(PurePosixPath(source).parent / name).replace(
            os.sep, "/"
        )

    def _in_repository(self, source: str, path: str, anchor: str) -> str:
        file = self._root / path
        if not file.exists():
            message = f"{source} links to {path}, which does not exist"
            raise SiteError(message)

        if anchor and file.suffix == ".py":
            lines = file.read_text(encoding="utf-8").splitlines()
            named = re.compile(rf" *(async )?(def|class) {anchor[1:]}\b")
            found = [n for n, line in enumerate(lines, 1) if named.match(line)]
            if not found:
                message = f"{source} links to {path}{anchor}, which has no such name"
                raise SiteError(message)

            anchor = f"#L{found[0]}"

        kind = "tree" if file.is_dir() else "blob"
        return f"{self._repository}/{kind}/main/{path}{anchor}"

    def _text(self, path: str) -> str:
        if path in self._generated:
            return self._generated[path]

        return (self._root / path).read_text(encoding="utf-8")


def _place(page: str, pages: Collection[str]) -> str:
    """Return the path on the site of a page of the checkout."""
    path = PurePosixPath(page)
    match path.parts:
        case ("README.md",):
            return "overview.md"
        case ("aioinformer_apiserver", _):
            return "apiserver-architecture.md"
        case (name,):
            return name.lower()
        case ("docs", _, "README.md") if not _has_others(path, pages):
            # An index.md would become the page of its whole section.
            return f"{path.parent.name}.md"
        case ("docs", *_):
            place = path.relative_to("docs")
            return place.with_name(place.name.replace("README", "index")).as_posix()
        case _:
            raise AssertionError(path)


def _has_others(index: PurePosixPath, pages: Collection[str]) -> bool:
    """Tell whether the folder of a page has other pages."""
    return any(
        index.parent in PurePosixPath(it).parents for it in pages if it != f"{index}"
    )


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    return "".join(
        part if part.lstrip().startswith("`") else change(part)
        for part in _CODE.split(text)
    )
