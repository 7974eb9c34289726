"""Patterns: regular expressions of Go, understood by Python."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["go_pattern"]

_CLASSES = {
    "[:alnum:]": "0-9A-Za-z",
    "[:alpha:]": "A-Za-z",
    "[:ascii:]": r"\x00-\x7F",
    "[:blank:]": r"\t ",
    "[:cntrl:]": r"\x00-\x1F\x7F",
    "[:digit:]": "0-9",
    "[:graph:]": "!-~",
    "[:lower:]": "a-z",
    "[:print:]": " -~",
    "[:punct:]": r"!-/:-@\[-`{-~",
    "[:space:]": r"\t\n\v\f\r ",
    "[:upper:]": "A-Z",
    "[:word:]": "0-9A-Za-z_",
    "[:xdigit:]": "0-9A-Fa-f",
}
_TOKENS = re.compile(r"\\.|\[:\w+:\]|\[\^?\]?|\]|\$|.", re.DOTALL)


@lru_cache(maxsize=1024)
def go_pattern(text: str) -> re.Pattern[str] | None:
    """Compile a pattern as Go's `regexp` understands it.

    Returns:
        The pattern, to be used with `search`; None if Python cannot express it, such as
        classes of Unicode (`\\p{Greek}`).
    """
    pieces: list[str] = []
    inside = False
    for token in _TOKENS.findall(text):
        if inside and token in _CLASSES:
            pieces.append(_CLASSES[token])
            continue

        if not inside and token.startswith("["):
            inside = True
        elif inside and token == "]":
            inside = False

        # In Go the end is the end; in Python a newline may follow.
        ends = token == r"\z" or (token == "$" and not inside)
        pieces.append(r"\Z" if ends else token)

    try:
        return re.compile("".join(pieces), re.ASCII)
    except re.error:
        return None
