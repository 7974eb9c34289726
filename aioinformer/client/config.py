"""`ClientConfig`: server, credentials and connection settings of a client."""

from __future__ import annotations

import hashlib
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
    "is_loopback",
    "proxy_of_environment",
]


# Longest part between two dots of a host name: the limit of DNS and of name look-ups.
LABEL_CHARACTERS = 63


_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Server, credentials and connection settings of a client.

    Raises:
        OptionsError: If a URL or a duration is invalid; the text says which.
    """

    server: str
    """URL of the server: `https://host:port`, optionally with a path prefix."""

    namespace: str = "default"
    """Namespace of the context or pod. The client itself never uses it."""

    credentials: Credentials = field(default_factory=Credentials)
    """Credentials, used by the clients of one event loop at a time."""

    tls: TLSOptions = field(default_factory=TLSOptions)

    gzip: bool = False
    """True to request compressed responses: for slow links only, as they cost CPU."""

    proxy: str = field(default="", repr=False)
    """Proxy URL, `http://...`; empty for none. `proxy_of_environment()` returns that of
    `HTTPS_PROXY`, which the constructors of `Client` use."""

    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Headers of every request, such as those of `impersonation_headers()`. A name may
    occur several times."""

    connect_seconds: float = 30.0
    """Time limit of name look-up, connection and TLS handshake together."""

    head_seconds: float = 30.0
    """Time limit from sending a request to the head of its response."""

    read_seconds: float = 30.0
    """Longest silence within a response body. Ignored for watches, which may be silent."""

    max_retries: int = 10
    """Maximum number of repetitions of a request after a 429 or 5xx with a `Retry-After`
    of at most 2 minutes; 0 for none. Informers and elections have a backoff of their
    own instead."""

    on_warning: Callable[[str], object] | None = field(default=None, repr=False)
    """Function called with the text of each `Warning:` header, such as that of a
    deprecated version; None to log each warning once."""

    user_agent: str = ""
    """Value of the User-Agent header; empty for `aioinformer/<version>`."""

    def __post_init__(self) -> None:
        if not isinstance(self.server, str):
            raise OptionsError(
                f"the server must be a URL like https://host[:port], not {self.server!r}"
            )

        object.__setattr__(self, "server", self.server.rstrip("/"))
        _check_url("server", self.server, ("http", "https"))

        if self.proxy:
            what = "proxy (see proxy-url, HTTPS_PROXY)"
            _check_url(what, self.proxy, ("http", "https"), with_user=True)

        for header in self.headers:
            _check_header(*header)

        for name in ("connect_seconds", "head_seconds", "read_seconds"):
            seconds = getattr(self, name)
            if not seconds > 0:
                raise OptionsError(f"{name} must be positive, not {seconds}")

        if self.max_retries < 0:
            raise OptionsError(
                f"max_retries must be at least 0, not {self.max_retries!r}"
            )

    @property
    def secure(self) -> bool:
        """True if the server is reached by TLS."""
        return self.server.lower().startswith("https:")

    def endpoint_print(self) -> str:
        """Return a print of the API server's certificate authority, or its address.

        A server may have several addresses, but its authority is that of the cluster.
        The address counts where the system's authorities are trusted, or any. A path of
        the URL counts always: a proxy may serve several clusters. Credentials do not.
        Blocks if the authority is in a file: call it in a thread.

        Raises:
            OSError: If the file cannot be read.
        """
        url = urlsplit(self.server.lower())
        trusted = self.tls.authorities() if self.secure else None
        if trusted is None:
            port = url.port or (443 if self.secure else 80)
            trusted = f"{url.scheme}://{url.hostname}:{port}".encode()

        path = urlsplit(self.server).path.encode()
        return hashlib.sha256(trusted.strip() + b"\0" + path).hexdigest()


ConfigSource: TypeAlias = Callable[[], ClientConfig]
"""Function that reads the configuration from files and environment, in a thread."""


def _check_header(name: str, value: str) -> None:
    if not _HEADER_NAME.fullmatch(name):
        raise OptionsError(f"{name!r} is not a valid header name")

    if any(ord(character) < 32 or ord(character) == 127 for character in value):
        raise OptionsError(f"the header {name} contains a control character")


def _check_url(
    what: str, url: str, schemes: tuple[str, ...], *, with_user: bool = False
) -> None:
    # The messages and causes leave out the URL if it may contain a password.
    hidden = with_user or "@" in url
    expected = " or ".join(f"{scheme}://host[:port]" for scheme in schemes)
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - reading it validates it
    except ValueError as exc:
        if hidden:
            raise OptionsError(f"the {what} is not a URL like {expected}") from None

        raise OptionsError(f"the {what} is not a URL like {expected}: {exc}") from exc

    if "@" in parts.netloc and not with_user:
        raise OptionsError(
            f"the {what}'s URL contains a user name or password: use credentials instead"
        )

    if parts.scheme not in schemes or not parts.hostname:
        shown = f"{parts.scheme}://{parts.hostname or ''}" if hidden else url
        raise OptionsError(f"the {what} must be a URL like {expected}, not {shown!r}")

    labels = parts.hostname.removesuffix(".").split(".")
    if not all(0 < len(label) <= LABEL_CHARACTERS for label in labels):
        raise OptionsError(
            f"the {what}'s URL has the invalid host name {parts.hostname!r}: "
            f"its parts must have 1 to {LABEL_CHARACTERS} characters"
        )

    if parts.query or parts.fragment:
        raise OptionsError(f"the {what}'s URL cannot have a query or a fragment")


def proxy_of_environment(
    server: str, environment: Mapping[str, str] | None = None
) -> str:
    """Return the proxy for a server: `HTTPS_PROXY`, or `HTTP_PROXY` for plain HTTP.

    `NO_PROXY` lists exceptions, separated by commas: `*`, addresses, networks
    (`10.0.0.0/8`), names (`example.com` and its subdomains; `.example.com` only its
    subdomains). All but networks may have a port. Loopback addresses never use a proxy.
    All three variables may be in lower case. The rules are those of Go programs.

    Args:
        server: URL of the API server.
        environment: Environment variables; None for those of this process.

    Returns:
        URL of the proxy; empty for none.
    """
    variables = os.environ if environment is None else environment

    def value(name: str) -> str:
        return variables.get(name) or variables.get(name.lower()) or ""

    try:
        parts = urlsplit(server if "://" in server else f"https://{server}")
    except (TypeError, ValueError):
        return ""  # the user of the URL reports that

    plain = parts.scheme.lower() == "http"
    proxy = value("HTTP_PROXY" if plain else "HTTPS_PROXY").strip()
    host = (parts.hostname or "").removesuffix(".")
    try:
        port = parts.port or (80 if plain else 443)
    except ValueError:
        return ""  # the user of the URL reports that

    if not proxy or is_loopback(host) or _is_listed(value("NO_PROXY"), host, port):
        return ""

    return proxy if "://" in proxy else f"http://{proxy}"


def is_loopback(host: str) -> bool:
    """Return True for `localhost`, in any case and with a final dot, and a loopback address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower().removesuffix(".") == "localhost"


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


# Characters of a header name, except for `%`, which escapes others.
_LEGAL = "!#$&'*+-.^_`|~"


def impersonation_headers(
    user: str,
    *,
    uid: str = "",
    groups: Iterable[str] = (),
    extra: Mapping[str, Iterable[str]] | None = None,
) -> tuple[tuple[str, str], ...]:
    """Return headers that make requests act as another user: `ClientConfig.headers`.

    Args:
        user: User to impersonate. That requires the permission `impersonate`.
        uid: Uid of that user.
        groups: Groups of that user.
        extra: Further attributes of that user, by name.

    Raises:
        OptionsError: If other attributes are given without a user, as in client-go.
    """
    if not user:
        raise OptionsError("impersonating a uid, groups or extra requires a user")

    headers = [("Impersonate-User", user)]
    headers += [("Impersonate-Uid", uid)] if uid else []
    headers += [("Impersonate-Group", group) for group in groups]
    for name, values in (extra or {}).items():
        escaped = quote(name, safe=_LEGAL)
        headers += [(f"Impersonate-Extra-{escaped}", value) for value in values]

    return tuple(headers)
