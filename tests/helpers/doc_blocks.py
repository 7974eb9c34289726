"""Code blocks of the documentation, and pytest runs of those that are test files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = [
    "Block",
    "Outcome",
    "blocks_of",
    "broken_links",
    "indented_code",
    "run_as_tests",
    "said",
]

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^):]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text, and its first line."""

    language: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Output of pytest, and the number of passed tests per file."""

    out: str
    passed: Mapping[str, int]

    def has_passed(self, name: str) -> bool:
        """Return whether a file has tests, and none of them failed."""
        failed = re.search(rf"^(FAILED|ERROR) {name}", self.out, re.MULTILINE)
        return self.passed.get(name, 0) > 0 and failed is None


def blocks_of(text: str, language: str = "") -> list[Block]:
    """Return the blocks of one language, or of all.

    Raises:
        AssertionError: A fence has no language, so its block would not be tested.
    """
    found = [
        Block(match[1], match[2], text.count("\n", 0, match.start()) + 1)
        for match in _BLOCK.finditer(text)
    ]
    assert text.count("```") == 2 * len(found), "a block without a language"
    return [it for it in found if language in {"", it.language}]


def indented_code(text: str) -> list[str]:
    """Return indented code, which would not be tested."""
    return re.findall(r"^\n {4}\S.*$", _BLOCK.sub("", text), re.MULTILINE)


def said(block: Block) -> list[tuple[str, str]]:
    """Return the commands of a `console` block, each with its output.

    A command continues on the next line after a backslash.
    """
    text = re.sub(r"\\\n\s*", "", block.text)
    commands = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert commands[0] == "", "a console block begins with a command"
    return [(it.partition("\n")[0], it.partition("\n")[2]) for it in commands[1:]]


def broken_links(path: Path) -> list[str]:
    """Return the links of a file that lead to no file, or to no heading in it."""
    links = _LINK.findall(_BLOCK.sub("", path.read_text(encoding="utf-8")))
    return [link for link in links if not _leads(path, link)]


def run_as_tests(folder: Path, files: Mapping[str, str], *options: str) -> Outcome:
    """Run pytest on files, as a separate project whose warnings are errors."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")

    clean = {name: it for name, it in os.environ.items() if "PYTEST" not in name}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rfEp", "-W", "error", *options],
        cwd=folder,
        env=clean,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    passed = re.findall(r"^PASSED ([^:]+)::", done.stdout, re.MULTILINE)
    return Outcome(done.stdout + done.stderr, {it: passed.count(it) for it in passed})


def _leads(path: Path, link: str) -> bool:
    """Return whether a link resolves; without a file name, within the same file."""
    name, _, anchor = link.partition("#")
    file = path.parent / name if name else path
    if not file.exists() or not anchor:
        return file.exists()

    if file.suffix == ".py":
        return (
            re.search(rf"^ *(async )?def {anchor}\(", file.read_text(), re.MULTILINE)
            is not None
        )

    text = _BLOCK.sub("", file.read_text(encoding="utf-8"))
    return anchor in {_anchor(it) for it in _HEADING.findall(text)}


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
