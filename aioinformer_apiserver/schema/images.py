"""Images: what the name of a container's image tells."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["pull_policy"]

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[a-zA-Z0-9.-]+|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_NAME = re.compile(
    rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?P<digest>@[A-Za-z][\w+.-]*:[0-9a-fA-F]{32,})?",
    re.ASCII,
)


@lru_cache(maxsize=4096)
def pull_policy(image: str) -> str:
    """Return when an image is pulled unless its container says so.

    `"Always"` for the tag `latest`, which is also meant by a name without tag and
    digest; else, and for what is no name of an image, `"IfNotPresent"`.
    """
    found = _NAME.fullmatch(image)
    if not found:
        return "IfNotPresent"

    tag = found["tag"] or ("" if found["digest"] else "latest")
    return "Always" if tag == "latest" else "IfNotPresent"
