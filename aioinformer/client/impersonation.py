"""The headers by which a request is done in the name of somebody else."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["impersonation_headers"]

# What the name of a header may consist of, but for the sign that escapes.
_LEGAL = "!#$&'*+-.^_`|~"


def impersonation_headers(
    user: str,
    *,
    uid: str = "",
    groups: Iterable[str] = (),
    extra: Mapping[str, Iterable[str]] | None = None,
) -> tuple[tuple[str, str], ...]:
    """Make the headers for `ClientConfig.headers`.

    Args:
        user: In whose name; it takes the permission to `impersonate` that user.
        uid: The uid of that user.
        groups: The groups of that user.
        extra: What else is known of that user, by name.

    Raises:
        OptionsError: If there is no user, but something else of one. (As client-go.)
    """
    if not user:
        raise OptionsError("a uid, groups or extra are impersonated without a user")

    headers = [("Impersonate-User", user)]
    headers += [("Impersonate-Uid", uid)] if uid else []
    headers += [("Impersonate-Group", group) for group in groups]
    for name, values in (extra or {}).items():
        escaped = quote(name, safe=_LEGAL)
        headers += [(f"Impersonate-Extra-{escaped}", value) for value in values]

    return tuple(headers)
