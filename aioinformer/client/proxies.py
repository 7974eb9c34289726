"""The proxy that the environment names, as Go's programs read it."""

from __future__ import annotations

import os
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["proxy_of_environment"]


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
