"""`ClientConfig`: everything a client must know before its first request."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote, urlsplit

from aioinformer.client.auth.credentials import Credentials
from aioinformer.client.auth.tls import TLSOptions
from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "ClientConfig",
    "ConfigSource",
    "impersonation_headers",
    "proxy_of_environment",
]


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


def proxy_of_environment(
    server: str, environment: Mapping[str, str] | None = None
) -> str:
    """The proxy for a server: `HTTPS_PROXY`, or `HTTP_PROXY` for a plain one.

    `NO_PROXY` lists what needs none, with commas between: `*`, addresses, networks
    (`10.0.0.0/8`), names (`example.com` and all below it; `.example.com` only what is
    below it), any of them but networks with a port. What is at this machine never
    needs one. All three may be written in lower case.

    Args:
        server: The URL of the API server.
        environment: The variables; None for those of this process.

    Returns:
        A URL; empty for none.
    """
    variables = os.environ if environment is None else environment

    def value(name: str) -> str:
        return variables.get(name) or variables.get(name.lower()) or ""

    try:
        parts = urlsplit(server if "://" in server else f"https://{server}")
    except ValueError:
        return ""  # of which whoever uses the URL complains

    plain = parts.scheme.lower() == "http"
    proxy = value("HTTP_PROXY" if plain else "HTTPS_PROXY").strip()
    host = (parts.hostname or "").removesuffix(".")
    try:
        port = parts.port or (80 if plain else 443)
    except ValueError:
        return ""  # of which whoever uses the URL complains

    if not proxy or _is_here(host) or _is_listed(value("NO_PROXY"), host, port):
        return ""

    return proxy if "://" in proxy else f"http://{proxy}"


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_listed(listed: str, host: str, port: int) -> bool:
    entries = (entry.strip().lower() for entry in listed.split(","))
    return any(_names(entry, host, port) for entry in entries if entry)


def _names(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True

    try:
        address = ip_address(host)
    except ValueError:
        return _names_domain(entry, host, port)

    try:
        return address in ip_network(entry, strict=False)
    except ValueError:
        wanted, wanted_port = _split_port(entry)
        return wanted.strip("[]") == host and wanted_port in {None, port}


def _names_domain(entry: str, host: str, port: int) -> bool:
    name, wanted_port = _split_port(entry)
    if wanted_port not in {None, port}:
        return False

    name = name.removeprefix("*")
    return host.endswith(name) if name.startswith(".") else _is_or_is_below(host, name)


def _is_or_is_below(host: str, name: str) -> bool:
    return host == name or host.endswith(f".{name}")


def _split_port(entry: str) -> tuple[str, int | None]:
    name, colon, port = entry.rpartition(":")
    if colon and port.isdecimal():
        return name, int(port)

    return entry, None


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
