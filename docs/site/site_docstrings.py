"""Docstrings as Markdown: a literal block becomes a fenced block, an example a session.

`griffe` loads the class `Docstrings` from this file, so it imports nothing of its folder.
"""

from __future__ import annotations

import ast
import re
import textwrap
from typing import Any

import griffe

__all__ = ["Docstrings", "as_markdown"]

_EXAMPLE = re.compile(r"^( *)Example:$", re.MULTILINE)
# A paragraph that ends with `::`, and the indented block after it.
_LITERAL = re.compile(
    r"^(?P<indent> *)(?P<before>\S.*?)?::\n\n?"
    r"(?P<block>(?:(?P=indent) +\S.*\n?|[ ]*\n)+)",
    re.MULTILINE,
)


class Docstrings(griffe.Extension):
    """Extension that converts each docstring when it is loaded."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Convert the docstring of an object."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """Convert the markup of our docstrings that is no Markdown."""
    # Only the plural is a section, whose sessions are code.
    return _LITERAL.sub(_fenced, _EXAMPLE.sub(r"\1Examples:", text))


def _fenced(match: re.Match[str]) -> str:
    code = textwrap.dedent(match["block"]).strip("\n")
    language = "python" if _is_python(code) else "text"
    lines = [f"```{language}", *code.splitlines(), "```"]
    if match["before"]:
        lines[:0] = [f"{match['before']}:", ""]

    # Blank lines end with the block, but separate it from what follows.
    return textwrap.indent("\n".join(lines), match["indent"]) + "\n\n"


def _is_python(code: str) -> bool:
    try:
        ast.parse(code)
    except SyntaxError:
        return False

    return True
