"""Results of checks, from the facts. Pure.

Arguments contain no tokens, keys or passwords, except for the URL of a proxy.
"""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aioinformer.cli.checks.findings import StepResult
from aioinformer.cli.error_messages import ANONYMOUS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from aioinformer.client import ClientConfig
    from aioinformer.client.rest_mapper import ServedResource

__all__ = [
    "address_of",
    "certificate",
    "configuration",
    "discovery",
    "identity",
    "listed",
    "name_in",
    "permissions",
    "plain",
    "reached",
    "served",
    "shards_permissions",
    "unreachable",
    "version",
]

WARNING_DAYS = 14

# Older servers have bookmarks, too, but are not tested.
OLDEST = (1, 24)

_SHOWN_NAMES = 4
_PORTS = {"http": 80, "https": 443}
_UNSAFE = "others on the network can read everything and act in your name"
_USER = re.compile(r'User "([^"]+)" cannot ')


# ------------------------------------------------------------ connection


def configuration(config: ClientConfig, source: str) -> StepResult:
    """Return the result for a configuration. Warn if certificates are not verified.

    Args:
        config: Configuration of the client.
        source: Source of the configuration.
    """
    who = str(config.credentials)
    if config.tls.certificate is not None:
        own = "a client certificate"
        who = own if who == "none" else f"{own} and {who}"

    other = dict(config.headers).get("Impersonate-User")
    acting = f", acting as {other!r}" if other else ""
    proxy = (
        f", through the proxy {_without_credentials(config.proxy)}"
        if config.proxy
        else ""
    )
    text = f"{source}: {config.server}, credentials: {who}{acting}{proxy}"
    if config.secure and not config.tls.verify:
        return StepResult(
            "warning",
            f"{text}. INSECURE: certificates are not verified (insecure-skip-tls-verify), "
            f"{_UNSAFE}",
        )

    return StepResult("ok", text)


def address_of(config: ClientConfig) -> tuple[str, int]:
    """Return the host and port to connect to: those of the server or the proxy."""
    parts = urlsplit(config.proxy or config.server)
    return parts.hostname or "", parts.port or _PORTS[parts.scheme.lower()]


def reached(
    config: ClientConfig, addresses: Sequence[str], seconds: float
) -> StepResult:
    """Return the result for a connection.

    Args:
        config: Configuration of the client.
        addresses: Addresses of the host, the connected one first.
        seconds: Duration of the connect.
    """
    host, port = address_of(config)
    what = "the proxy " if config.proxy else ""
    first, *more = addresses
    address = f" ({first})" if first != host else ""
    others = f", one of {1 + len(more)} addresses," if more else ""
    took = f"{seconds * 1000:.0f} ms"
    text = f"{what}{host}{address}{others} accepts connections on port {port}"
    return StepResult("ok", f"{text}, after {took}")


def unreachable(config: ClientConfig, error: OSError | UnicodeError) -> StepResult:
    """Return the result for a failed connection, with advice."""
    host, port = address_of(config)
    what, option = ("the proxy ", "proxy-url") if config.proxy else ("", "the URL")
    match error:
        case socket.gaierror() | UnicodeError():
            reason = getattr(error, "strerror", None) or error
            text = f"cannot resolve {what}{host}: {reason}. "
            text += f"Check {option}, and DNS."
        case ConnectionRefusedError():
            text = (
                f"{what}{host} refused the connection to port {port}. Check that it is "
            )
            text += f"running, and {option}."
        case _:
            reason = getattr(error, "strerror", None) or error
            text = f"cannot connect to {what}{host}, port {port}: {reason}. Check {option}, "
            text += "the network and firewalls."

    return StepResult("failed", text)


def plain(config: ClientConfig) -> StepResult:
    """Return the result for plain HTTP, which is safe on loopback only."""
    host = urlsplit(config.server).hostname or ""
    if host == "localhost" or host.startswith("127.") or host == "::1":
        return StepResult("skipped", "plain HTTP, to this machine")

    return StepResult("warning", f"INSECURE: plain HTTP to another machine, {_UNSAFE}")


def certificate(
    subject: str,
    ends: datetime | None,
    now: datetime,
    *,
    names: Sequence[str] = (),
    verified: bool = True,
) -> StepResult:
    """Return the result for a certificate.

    Args:
        subject: Description of the certificate.
        ends: Time of its expiry, or None if it cannot be parsed.
        now: Current time.
        names: Hosts of the certificate, if known.
        verified: False if certificates are not verified.
    """
    shown = ", ".join(names[:_SHOWN_NAMES]) + (", ..." * (len(names) > _SHOWN_NAMES))
    text = f"{subject}, for {shown}" if shown else subject
    text += "" if verified else ", NOT VERIFIED"
    if ends is None:
        return StepResult("ok" if verified else "warning", f"{text}, expiry unknown")

    days = (ends - now).days
    if days < 0:
        return StepResult("warning", f"{text}, EXPIRED on {ends:%Y-%m-%d %H:%M} UTC")

    text += f", valid until {ends:%Y-%m-%d %H:%M} UTC"
    if days < WARNING_DAYS:
        return StepResult("warning", f"{text}, {days} days left: renew it")

    return StepResult("ok" if verified else "warning", text)


def _without_credentials(proxy: str) -> str:
    """Return the URL of a proxy without its credentials."""
    parts = urlsplit(proxy)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}"


# ------------------------------------------------------------ the server


def version(document: object, server: str) -> StepResult:
    """Return the result for the version of a server.

    Args:
        document: Decoded response of `/version`.
        server: URL of the server.
    """
    name = document.get("gitVersion") if isinstance(document, dict) else None
    numbers = re.match(r"v?(\d+)\.(\d+)", name) if isinstance(name, str) else None
    if numbers is None:
        text = f"{server} does not return a Kubernetes version. Is this the URL of an "
        return StepResult("failed", f"{text}API server?")

    if (int(numbers[1]), int(numbers[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        text = f"Kubernetes {name} is older than {oldest}, which is untested"
        return StepResult("warning", text)

    return StepResult("ok", f"Kubernetes {name}")


def identity(user: str, groups: Sequence[str]) -> StepResult:
    """Return the result for the identity of the user."""
    if user == ANONYMOUS:
        text = (
            f"{user}: no credentials were sent. Pass a --token, or fix the user of the "
        )
        return StepResult("warning", f"{text}kubeconfig's context.")

    return StepResult("ok", f"{user}, in the groups {', '.join(groups) or '(none)'}")


def name_in(refusal: str) -> str:
    """Return the user that a refusal names, or an empty string.

    Example:
        >>> name_in('pods is forbidden: User "eve" cannot list resource "pods"')
        'eve'
    """
    found = _USER.search(refusal)
    return found[1] if found else ""


def discovery(*, aggregated: bool, count: int, broken: Mapping[str, str]) -> StepResult:
    """Return the result for discovery.

    Args:
        aggregated: True for aggregated discovery.
        count: Number of resources.
        broken: Reasons by API version that failed.
    """
    form = (
        "aggregated" if aggregated else "not aggregated, one request for each version"
    )
    text = f"{count} resources ({form})"
    if not broken:
        return StepResult("ok", text)

    missing = ", ".join(f"{name} ({why})" for name, why in broken.items())
    return StepResult("warning", f"{text}, unavailable: {missing}")


# ------------------------------------------------------------ a resource


def served(found: ServedResource, scope: str) -> StepResult:
    """Return the result for a resource that was found.

    Args:
        found: Resource as served, without verbs if discovery failed.
        scope: Description of the namespace.
    """
    resource = found.resource
    text = f"{resource}, {resource.kind} of {resource.api_version}, {scope}"
    missing = [verb for verb in ("list", "watch") if verb not in found.verbs]
    if not found.verbs or not missing:
        return StepResult("ok", text)

    cannot = " or ".join(missing)
    return StepResult(
        "failed",
        f"{text}: the server does not support {cannot}, so informers cannot use it."
        + (" Poll it instead." if "list" in found.verbs else ""),
    )


def permissions(denied: Collection[str]) -> StepResult:
    """Return the result for permissions.

    Args:
        denied: Missing verbs of `list`, `watch` and `get`.
    """
    missing = [verb for verb in ("list", "watch") if verb in denied]
    if missing:
        text = f"{' and '.join(missing)} not permitted: apply the rules below"
        return StepResult("failed", text)

    if "get" in denied:
        return StepResult(
            "ok", "list and watch permitted (get is not, and informers do not need it)"
        )

    return StepResult("ok", "list, watch and get permitted")


def shards_permissions(verbs: Collection[str], denied: Collection[str]) -> StepResult:
    """Return the result for the permissions of `Shards` on Leases or Events.

    Args:
        verbs: Verbs that are needed.
        denied: Missing verbs.
    """
    missing = [verb for verb in verbs if verb in denied]
    if missing:
        text = f"{' and '.join(missing)} not permitted: apply the rules below"
        return StepResult("failed", text)

    return StepResult("ok", f"{' and '.join(verbs)} permitted")


def listed(
    count: int, remaining: int | None, seconds: float, *, more: bool
) -> StepResult:
    """Return the result for a list.

    Args:
        count: Number of objects on the first page.
        remaining: Number of further objects, or None if unknown.
        seconds: Duration of the first page.
        more: True if there are further pages.
    """
    if remaining is not None:
        number = str(count + remaining)
    else:
        number = f"more than {count}" if more else str(count)

    objects = "object" if number == "1" else "objects"
    return StepResult(
        "ok", f"{number} {objects}, the first after {seconds * 1000:.0f} ms"
    )
