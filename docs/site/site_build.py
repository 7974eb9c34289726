"""Builds the documentation site with zensical, in strict mode, and checks it.

`build/docs` has the pages as zensical reads them, `build/site` the result.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING, Any

from site_browser import browser_problems, find_chromium
from site_check import link_names, missing_names
from site_pages import ROOT, Pages, SiteError
from site_reference import PUBLIC_MODULES, Reference, page_of

if TYPE_CHECKING:
    from pathlib import Path

    from site_pages import Item, Section

__all__ = ["SITE", "main", "settings"]

STAGE = ROOT / "build" / "docs"
SITE = ROOT / "build" / "site"
SOURCE = ROOT / "docs" / "site"
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
# The section that readers of llms.txt may skip.
OPTIONAL = "Project"
# Advice to readers of llms.txt.
_ADVICE = """\
To write a program, read the cheat sheet, then the page of the cookbook about its theme. The
guides translate from other clients, the FAQ says what there is not, and the reference has all
signatures. `llms-full.txt` has all pages in one file."""


def settings() -> dict[str, Any]:
    """Return the settings of the site."""
    text = (SOURCE / "zensical.toml").read_text(encoding="utf-8")
    found: dict[str, Any] = tomllib.loads(text)["project"]
    return found


def main(arguments: list[str]) -> int:
    """Build the site, print its problems, and return the exit status."""
    parser = argparse.ArgumentParser(prog="scripts/docs", description=__doc__)
    parser.add_argument(
        "--browser", action="store_true", help="also check it in Chromium, if installed"
    )
    options = parser.parse_args(arguments)
    try:
        found = build()
    except SiteError as error:
        found = str(error).splitlines()

    if options.browser and not found:
        chromium = find_chromium()
        if chromium:
            found = asyncio.run(browser_problems(SITE, chromium))
        else:
            print("Check in a browser skipped: Chromium is not installed.")

    for problem in found:
        print(problem, file=sys.stderr)

    if not found:
        print(f"The site is in {SITE.relative_to(ROOT)}.")

    return 1 if found else 0


def build() -> list[str]:
    """Build the site and return its problems.

    Raises:
        SiteError: The pages have mistakes, or zensical fails.
    """
    project = settings()
    reference = Reference()
    pages = Pages(project["site_url"], project["repo_url"], reference.pages())
    _stage(pages)
    _run_zensical()
    link_names(SITE, reference)
    _write(SITE / "search.json", json.dumps(searched(_read_json(SITE / "search.json"))))
    for path, text in texts(pages, reference, project).items():
        _write(SITE / path, text)

    return list(missing_names(SITE, reference))


def _stage(pages: Pages) -> None:
    for folder in (STAGE, SITE):
        shutil.rmtree(folder, ignore_errors=True)

    sections = pages.sections
    for path, text in pages.staged():
        _write(STAGE / path, text)

    for source, path in pages.files():
        _write(STAGE / path, source.read_bytes())

    shutil.copy(SOURCE / "site.css", STAGE)
    text = (SOURCE / "zensical.toml").read_text(encoding="utf-8")
    places = f'docs_dir = "docs"\nsite_dir = "site"\n{navigation(pages, sections)}'
    head = "[project]\n"
    assert text.count(head) == 1
    _write(STAGE.parent / "zensical.toml", text.replace(head, f"{head}{places}\n"))


def _read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def navigation(pages: Pages, sections: list[Section]) -> str:
    """Return the navigation as a setting of zensical."""

    def entry(item: Item) -> str:
        page = json.dumps(pages.pages[item.page])
        if not item.below:
            return f"{{ {json.dumps(item.title)} = {page} }}"

        below = ", ".join([page, *map(entry, item.below)])
        return f"{{ {json.dumps(item.title)} = [{below}] }}"

    lines = ['  "index.md",']
    for section in sections:
        items = section.items
        # A section of one index is that index.
        if len(items) == 1 and items[0].below:
            below = [
                json.dumps(pages.pages[items[0].page]),
                *map(entry, items[0].below),
            ]
        else:
            below = [*map(entry, items)]

        lines.append(f"  {{ {json.dumps(section.title)} = [{', '.join(below)}] }},")

    return "nav = [\n" + "\n".join(lines) + "\n]"


def _run_zensical() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean"],
        cwd=STAGE.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    output = _COLOUR.sub("", done.stdout)
    # Warnings of the reader of docstrings do not fail a strict build.
    if done.returncode or "warning" in output.lower():
        if "Aborted because --strict" in output:
            output = output.partition("Traceback")[0]

        raise SiteError(f"In build/docs, made of docs/ and docstrings:\n{output}")


def searched(index: dict[str, Any]) -> dict[str, Any]:
    """Return the index of the search, so that guides come before details.

    A member of a class whose name is one word, such as `retry`, is found by its class. The
    table of conformance is left out.
    """
    found: list[dict[str, Any]] = []
    for item in index["items"]:
        page, _, anchor = item["location"].partition("/#")
        if page.startswith("reference/"):
            item = {**item, "path": item["path"][:1]}
            name = anchor.removeprefix(f"{page.removeprefix('reference/')}.")
            if "." in name and "_" not in item["title"]:
                found[-1]["text"] += f" {item['text']}"
                continue

        if page != "conformance":
            found.append(item)

    return {**index, "items": found}


def texts(
    pages: Pages, reference: Reference, project: dict[str, Any]
) -> dict[str, str]:
    """Return the site for language models, by path: see https://llmstxt.org.

    `llms.txt` is the index, `llms-full.txt` has all pages except optional ones. Each page
    is also published as Markdown.
    """
    found = dict(pages.staged())
    for path in PUBLIC_MODULES:
        found[f"reference/{page_of(path)}"] = reference.text(path)

    index = [f"# {project['site_name']}", f"> {project['site_description']}", _ADVICE]
    full = [found["index.md"]]
    for section in pages.sections:
        items = [it for item in section.items for it in item.walk()]
        is_optional = section.title == OPTIONAL
        index.append(f"## {'Optional' if is_optional else section.title}")
        index.append(
            "\n".join(
                f"- [{it.title}]({project['site_url']}{pages.pages[it.page]}): "
                f"{it.description}"
                for it in items
            )
        )
        full += [] if is_optional else [found[pages.pages[it.page]] for it in items]

    return {
        **found,
        "llms.txt": "\n\n".join(index) + "\n",
        "llms-full.txt": "\n\n".join(full),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
