"""Judging: what the facts of a check-up mean, in plain words. Pure.

No text shows a token, a key or a password, as no fact that comes here holds one, but for
the URL of a proxy.
"""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aioinformer.cli.checks.findings import StepResult
from aioinformer.cli.checks.rbac_rules import ANONYMOUS

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
    "unreachable",
    "version",
]

WARNING_DAYS = 14

# What older servers lack: bookmarks on all watches have been there for longer, but
# nobody has tried informers of this kind on them.
OLDEST = (1, 24)

_SHOWN_NAMES = 4
_PORTS = {"http": 80, "https": 443}
_UNSAFE = "anybody in between can read everything and act in your name"
_USER = re.compile(r'User "([^"]+)" cannot ')


# ------------------------------------------------------------ the way there


def configuration(config: ClientConfig, source: str) -> StepResult:
    """Say where we go and as whom; loudly, if certificates are not checked.

    Args:
        config: What was read.
        source: Where it is from.
    """
    who = str(config.credentials)
    if config.tls.certificate is not None:
        own = "a client certificate"
        who = own if who == "none" else f"{own} and {who}"

    other = dict(config.headers).get("Impersonate-User")
    acting = f", acting as {other!r}" if other else ""
    proxy = f", through the proxy {_shown(config.proxy)}" if config.proxy else ""
    text = f"{source}: {config.server}, credentials: {who}{acting}{proxy}"
    if config.secure and not config.tls.verify:
        return StepResult(
            "warning",
            f"{text}. INSECURE: certificates are not checked (insecure-skip-tls-verify), "
            f"{_UNSAFE}",
        )

    return StepResult("ok", text)


def address_of(config: ClientConfig) -> tuple[str, int]:
    """Return host and port that connections go to: the server's, or the proxy's."""
    parts = urlsplit(config.proxy or config.server)
    return parts.hostname or "", parts.port or _PORTS[parts.scheme.lower()]


def reached(
    config: ClientConfig, addresses: Sequence[str], seconds: float
) -> StepResult:
    """Say what answered.

    Args:
        config: What was read.
        addresses: Those that the name stands for, the one that answered in front.
        seconds: How long it took to connect.
    """
    host, port = address_of(config)
    what = "the proxy " if config.proxy else ""
    first, *more = addresses
    resolved = f" ({first})" if first != host else ""
    others = f", one of {1 + len(more)} addresses" if more else ""
    took = f"{seconds * 1000:.0f} ms"
    text = f"{what}{host}{resolved}{others} answers on port {port}, after {took}"
    return StepResult("ok", text)


def unreachable(config: ClientConfig, error: OSError | UnicodeError) -> StepResult:
    """Say why nothing answered, and what to do."""
    host, port = address_of(config)
    what, named = ("the proxy ", "proxy-url") if config.proxy else ("", "the URL")
    match error:
        case socket.gaierror() | UnicodeError():
            reason = getattr(error, "strerror", None) or error
            text = f"{what}{host} is a name that cannot be looked up: {reason}. "
            text += f"Check {named}, and DNS."
        case ConnectionRefusedError():
            text = f"{what}{host} refused the connection to port {port}. Check that it "
            text += f"runs there, and {named}."
        case _:
            reason = getattr(error, "strerror", None) or error
            text = f"{what}{host} cannot be reached on port {port}: {reason}. Check "
            text += f"{named}, the network, and the firewalls in between."

    return StepResult("failed", text)


def plain(config: ClientConfig) -> StepResult:
    """Say what it means to go without TLS: nothing, on this machine."""
    host = urlsplit(config.server).hostname or ""
    if host == "localhost" or host.startswith("127.") or host == "::1":
        return StepResult("not asked", "plain HTTP, to this machine")

    return StepResult("warning", f"INSECURE: plain HTTP to another machine, {_UNSAFE}")


def certificate(
    whose: str,
    ends: datetime | None,
    now: datetime,
    *,
    names: Sequence[str] = (),
    verified: bool = True,
) -> StepResult:
    """Say until when a certificate is good.

    Args:
        whose: What the text begins with.
        ends: When it expires; None if that cannot be read.
        now: The time.
        names: Whom it is for, if that is known.
        verified: False if nobody has looked whether it can be trusted.
    """
    shown = ", ".join(names[:_SHOWN_NAMES]) + (", ..." * (len(names) > _SHOWN_NAMES))
    text = f"{whose}, for {shown}" if shown else whose
    text += "" if verified else ", NOT CHECKED"
    if ends is None:
        return StepResult(
            "ok" if verified else "warning", f"{text}; its end is not to be read"
        )

    days = (ends - now).days
    if days < 0:
        return StepResult("warning", f"{text}; EXPIRED since {ends:%Y-%m-%d %H:%M} UTC")

    text += f"; good until {ends:%Y-%m-%d %H:%M} UTC"
    if days < WARNING_DAYS:
        return StepResult("warning", f"{text}, in {days} days: renew it")

    return StepResult("ok" if verified else "warning", text)


def _shown(proxy: str) -> str:
    """A proxy without the name and password that its URL may hold."""
    parts = urlsplit(proxy)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}"


# ------------------------------------------------------------ the server


def version(said: object, server: str) -> StepResult:
    """Say whether it is a server of Kubernetes, and not too old.

    Args:
        said: What it answers at `/version`, decoded.
        server: Its URL.
    """
    name = said.get("gitVersion") if isinstance(said, dict) else None
    numbers = re.match(r"v?(\d+)\.(\d+)", name) if isinstance(name, str) else None
    if numbers is None:
        text = f"{server} does not tell a version as Kubernetes does. Is its URL that "
        return StepResult("failed", f"{text}of an API server?")

    if (int(numbers[1]), int(numbers[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        text = f"Kubernetes {name} is older than {oldest}: nobody has tried that"
        return StepResult("warning", text)

    return StepResult("ok", f"Kubernetes {name}")


def identity(user: str, groups: Sequence[str]) -> StepResult:
    """Say who we are, as the server sees it."""
    if user == ANONYMOUS:
        text = f"{user}: the server was given no credentials. Give a --token, or mend "
        return StepResult("warning", f"{text}the user of the kubeconfig's context.")

    return StepResult("ok", f"{user}, in the groups {', '.join(groups) or '(none)'}")


def name_in(refusal: str) -> str:
    """Find out who was refused something, from the server's words; empty if unknown.

    Example:
        >>> name_in('pods is forbidden: User "eve" cannot list resource "pods"')
        'eve'
    """
    found = _USER.search(refusal)
    return found[1] if found else ""


def discovery(*, aggregated: bool, count: int, broken: Mapping[str, str]) -> StepResult:
    """Say what is served.

    Args:
        aggregated: The server tells it in one document.
        count: How many resources there are.
        broken: What it could not tell of, and why.
    """
    form = "aggregated" if aggregated else "plain, a request for each version"
    text = f"{count} kinds ({form})"
    if not broken:
        return StepResult("ok", text)

    missing = ", ".join(f"{name} ({why})" for name, why in broken.items())
    return StepResult("warning", f"{text}; it cannot tell what is in {missing}")


# ------------------------------------------------------------ a resource


def served(found: ServedResource, place: str) -> StepResult:
    """Say what a word means, and whether an informer can follow it.

    Args:
        found: What the server says of it; without verbs if it was not asked.
        place: Where it is looked at, in words.
    """
    resource = found.resource
    text = f"{resource}, {resource.kind} of {resource.api_version}, {place}"
    missing = [verb for verb in ("list", "watch") if verb not in found.verbs]
    if not found.verbs or not missing:
        return StepResult("ok", text)

    cannot = " or ".join(missing)
    return StepResult(
        "failed",
        f"{text}: the server cannot {cannot} it for anybody, so no informer can follow "
        "it. Read it from time to time instead.",
    )


def permissions(denied: Collection[str]) -> StepResult:
    """Say what is allowed, of `list`, `watch` and `get`.

    Args:
        denied: What is not.
    """
    missing = [verb for verb in ("list", "watch") if verb in denied]
    if missing:
        text = f"may not {' and '.join(missing)} it: see the rules to apply"
        return StepResult("failed", text)

    if "get" in denied:
        return StepResult(
            "ok", "may list and watch it; not get, which informers do not do"
        )

    return StepResult("ok", "may list, watch and get it")


def listed(
    count: int, remaining: int | None, seconds: float, *, more: bool
) -> StepResult:
    """Say how many objects there are.

    Args:
        count: How many came on the first page.
        remaining: How many follow; None if the server does not say.
        seconds: How long the page took.
        more: Some follow.
    """
    if remaining is not None:
        number = str(count + remaining)
    else:
        number = f"more than {count}" if more else str(count)

    objects = "object" if number == "1" else "objects"
    return StepResult(
        "ok", f"{number} {objects}, the first after {seconds * 1000:.0f} ms"
    )
