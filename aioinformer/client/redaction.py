"""Redaction of secrets and control characters in texts for logs and errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["MOST_CHARACTERS", "redacted", "redacted_url"]

# Escape sequences of terminals.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?")

# Shorter known values are not replaced: they may be parts of other words.
_KNOWN_CHARACTERS = 8

# Longest text to redact, which also bounds the time that the patterns take.
MOST_CHARACTERS = 8192

_PATTERNS = (
    # Keys and certificates, also if the end is missing.
    (re.compile(r"(?s)-----BEGIN [^-]*-----.*?(?:-----END [^-]*-----|\Z)"), "..."),
    # The user of a URL, and its query.
    (re.compile(r"(?<=://)\S{0,1000}@"), "...@"),
    (re.compile(r"(://[^\s?#]{0,1000})[?#][^\s\"'<>]*"), r"\1?..."),
    (re.compile(r"(?i)\b(bearer|basic|negotiate)\s+[^\s\"']+"), r"\1 ..."),
    # "password": "...", client_secret=..., X-Api-Key: ...
    (
        re.compile(
            r"(?i)((?:token|secret|passw|passphrase|pwd|key|credential|cookie"
            r"|authorization|session)[\w.-]{0,40}\\?[\"']?\s{0,9}[:=]\s{0,9})"
            r"(?!(?:bearer|basic|negotiate) \.\.\.)"
            r"(?:\"(?:[^\"\\]|\\.)*\"?|\\\"(?:[^\"\\]|\\[^\"])*\\?\"?"
            r"|'[^']*'?|[^\s,;}\]]+)"
        ),
        r"\1...",
    ),
    # Words that look like tokens or keys: long, or three parts with dots.
    (re.compile(r"[\w+=~-]{32,}|[\w-]{8,31}\.[\w-]{8,}\.[\w-]{8,}"), "..."),
)


def redacted(text: str, known: Iterable[str] = ()) -> str:
    """Return a text on one line, with possible secrets replaced by dots.

    The patterns only find what looks like a secret. Log texts of unknown content at
    DEBUG at most.

    Args:
        text: Text from a program, a proxy or a server. Only its beginning is used.
        known: Known secrets that may occur in it.
    """
    text = _ESCAPE.sub("", text[:MOST_CHARACTERS])
    for secret in sorted(known, key=len, reverse=True):
        if len(secret) >= _KNOWN_CHARACTERS:
            text = text.replace(secret, "...")

    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)

    # Direction marks are not printable either.
    printable = (each if each.isprintable() else " " for each in text)
    return " ".join("".join(printable).split())


def redacted_url(url: str) -> str:
    """Return an absolute or relative URL without user and query."""
    return redacted(re.sub(r"(?s)[?#].*", "?...", url, count=1))
