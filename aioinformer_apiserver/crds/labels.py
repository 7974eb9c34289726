"""Labels: the names of which a definition is full. Pure."""

from __future__ import annotations

import re

__all__ = ["label_problem"]

_PATTERN = "[a-z]([-a-z0-9]*[a-z0-9])?"
_LENGTH = 63
_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start "
    "with an alphabetic character, and end with an alphanumeric character (e.g. "
    f"'my-name',  or 'abc-123', regex used for validation is '{_PATTERN}')"
)


def label_problem(text: str) -> str:
    """Say why a text cannot be a label of DNS as of RFC 1035; empty if it can."""
    if len(text) > _LENGTH:
        return f"must be no more than {_LENGTH} characters"

    return "" if re.fullmatch(_PATTERN, text) else _RULE
