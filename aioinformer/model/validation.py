"""Validation of names as in the API server."""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "NAME_LENGTH",
    "NAME_RULE",
    "is_name",
    "is_subdomain",
    "qualified_name_problem",
    "shown",
]

NAME_LENGTH: Final = 63
NAME_RULE: Final = (
    "at most 63 letters, digits, '-', '_' and '.', first and last a letter or digit"
)

_SUBDOMAIN_LENGTH: Final = 253
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUBDOMAIN: Final = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
)


def is_name(text: str) -> bool:
    """Return whether a text is a valid label value, or key without a domain: `NAME_RULE`."""
    return len(text) <= NAME_LENGTH and _NAME.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Return whether a text is a DNS subdomain, as the names of most objects are."""
    return len(text) <= _SUBDOMAIN_LENGTH and _SUBDOMAIN.fullmatch(text) is not None


def qualified_name_problem(text: object, what: str) -> str:
    """Return what is wrong with a name that may have a domain prefix.

    Args:
        text: Name, such as `"app"` or `"example.com/tier"`.
        what: Description for the message, such as `"a label key"`.

    Returns:
        One sentence; empty if the name is valid.

    Example:
        >>> qualified_name_problem("Example/tier", "a label key")
        "the prefix of a label key must be a DNS subdomain, not 'Example'"
    """
    if not isinstance(text, str):
        return f"{what} must be a string, not {text!r}"

    prefix, slash, name = text.rpartition("/")
    if slash and not is_subdomain(prefix):
        return f"the prefix of {what} must be a DNS subdomain, not {prefix!r}"

    return "" if is_name(name) else f"{name!r} cannot be {what}: {NAME_RULE}"


def shown(given: object) -> str:
    """Return a value of a wrong type for an error message.

    Of anything but a name, number or type only the type: the text of an object may be
    that of a Secret.
    """
    is_plain = isinstance(given, str | int | float | type | None)
    return repr(given) if is_plain else type(given).__name__
