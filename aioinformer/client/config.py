"""`ClientConfig`: everything a client must know before its first request."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import urlsplit

from aioinformer.client.credentials import Credentials
from aioinformer.client.tls import TLSOptions
from aioinformer.errors import OptionsError

__all__ = ["ClientConfig", "ConfigSource"]

# Of a part between two dots: what DNS allows, and name look-ups check.
LABEL_CHARACTERS = 63

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Where the API server is, who we are, and how to speak to it.

    Raises:
        OptionsError: If a URL or a duration cannot work; the text says which.
    """

    server: str
    """`https://host:port`, perhaps with a path that comes before that of the API."""

    namespace: str = "default"
    """The namespace of the context or pod. The client itself never fills it in."""

    credentials: Credentials = field(default_factory=Credentials)
    """Belongs to the clients of one event loop at a time."""

    tls: TLSOptions = field(default_factory=TLSOptions)

    gzip: bool = False
    """Ask for compressed answers: for slow links only, it costs both sides time."""

    proxy: str = field(default="", repr=False)
    """An `http://` proxy to go through; empty for none. `proxy_of_environment()` gives
    that of `HTTPS_PROXY`, which is used by all clients that are not made of this."""

    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Sent with every request, such as those of `impersonation_headers()`; a name may
    come several times."""

    connect_seconds: float = 30.0
    """For the name look-up, the connection and TLS together."""

    head_seconds: float = 30.0
    """From the request sent to the head of its answer."""

    read_seconds: float = 30.0
    """Without a byte of an answer's body. No effect on watches, which may be silent."""

    user_agent: str = ""
    """Empty for `aioinformer/<version>`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "server", self.server.rstrip("/"))
        _check_url("server", self.server, ("http", "https"))

        if self.proxy:
            what = "proxy (see proxy-url, HTTPS_PROXY)"
            _check_url(what, self.proxy, ("http", "https"), with_user=True)

        for header in self.headers:
            _check_header(*header)

        for name in ("connect_seconds", "head_seconds", "read_seconds"):
            if not getattr(self, name) > 0:
                raise OptionsError(f"{name} must be more than 0")

    @property
    def secure(self) -> bool:
        """True if the server is spoken to by TLS."""
        return self.server.lower().startswith("https:")


ConfigSource: TypeAlias = Callable[[], ClientConfig]
"""Reads files and environment and gives the configuration; called in a thread."""


def _check_header(name: str, value: str) -> None:
    if not _HEADER_NAME.fullmatch(name):
        raise OptionsError(f"{name!r} cannot be the name of a header")

    if any(ord(character) < 32 or ord(character) == 127 for character in value):
        raise OptionsError(f"the header {name} has a line break or the like")


def _check_url(
    what: str, url: str, schemes: tuple[str, ...], *, with_user: bool = False
) -> None:
    # The messages, and causes, leave out the URL where it may hold a password.
    hidden = with_user or "@" in url
    expected = " or ".join(f"{scheme}://host[:port]" for scheme in schemes)
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - looking at it is what checks it
    except ValueError as exc:
        if hidden:
            raise OptionsError(f"the {what} is no URL like {expected}") from None

        raise OptionsError(f"the {what} is no URL like {expected}: {exc}") from exc

    if "@" in parts.netloc and not with_user:
        raise OptionsError(
            f"the {what}'s URL holds a user name or password: use credentials instead"
        )

    if parts.scheme not in schemes or not parts.hostname:
        shown = f"{parts.scheme}://{parts.hostname or ''}" if hidden else url
        raise OptionsError(f"the {what} must be a URL like {expected}, not {shown!r}")

    labels = parts.hostname.removesuffix(".").split(".")
    if not all(0 < len(label) <= LABEL_CHARACTERS for label in labels):
        raise OptionsError(
            f"the {what}'s URL has the host {parts.hostname!r}, which no name can be: "
            f"its parts must have 1 to {LABEL_CHARACTERS} characters"
        )

    if parts.query or parts.fragment:
        raise OptionsError(f"the {what}'s URL cannot have a query or a fragment")
