"""Checks of a server: connection, TLS, certificates, version, identity, discovery."""

from __future__ import annotations

import asyncio
import functools
import re
import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from aioinformer import json_codec
from aioinformer._tasks import in_thread
from aioinformer.cli.checks import results
from aioinformer.cli.checks.findings import StepResult
from aioinformer.cli.error_messages import message_of
from aioinformer.client.auth.tls import expiry_of
from aioinformer.client.discovery_documents import AGGREGATED
from aioinformer.errors import ApiError, DecodeError, Forbidden, NotFound
from aioinformer.model.resource import Resource

if TYPE_CHECKING:
    from aioinformer.client import Client, ClientConfig
    from aioinformer.client.authenticator import RequestAuth

__all__ = [
    "Identity",
    "client_certificate",
    "connection",
    "discovery",
    "has_certificate",
    "identity",
    "tls",
    "version",
]


_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False
)


class Identity(NamedTuple):
    """Identity of the user, as known to the server."""

    user: str = ""
    """User name, or empty if unknown."""

    groups: tuple[str, ...] = ()


async def version(client: Client) -> StepResult:
    """Check the version, which shows that it is an API server.

    Raises:
        ApiError: If the server refused, for example with 401 for invalid credentials.
        TransportError: If the network failed.

    Cancellation:
        Safe: the connection is closed.
    """
    server = client.config.server
    try:
        async with client.stream("GET", "/version") as response:
            return results.version(json_codec.loads(await response.read()), server)

    except Forbidden:
        return StepResult("warning", "reading the version is not permitted")
    except json_codec.JSONDecodeError:
        return results.version(None, server)
    except DecodeError as exc:
        return StepResult("failed", message_of(exc))
    except NotFound as exc:
        text = f"{server} has no /version, as every API server has: {exc}"
        return StepResult("failed", text)


async def identity(client: Client) -> tuple[StepResult, Identity]:
    """Check the identity of the user.

    Raises:
        ApiError: If the server refused for another reason than permissions.
        TransportError: The network failed.

    Cancellation:
        Safe: the connection is closed.
    """
    try:
        review = await client.create(_REVIEWS, {})
    except NotFound:
        text = "not supported by the server: SelfSubjectReview needs Kubernetes 1.28"
        return StepResult("skipped", text), Identity()
    except Forbidden as exc:
        user = results.name_in(exc.message)
        if user:
            return results.identity(user, ()), Identity(user)

        return StepResult("warning", message_of(exc)), Identity()

    user = str(review.at("status.userInfo.username", ""))
    groups = tuple(review.at("status.userInfo.groups", ()))
    return results.identity(user, groups), Identity(user, groups)


async def discovery(client: Client) -> tuple[StepResult, bool]:
    """Check discovery.

    Returns:
        Result, and True if discovery succeeded.

    Raises:
        ApiError: If the server refused for another reason than permissions.
        TransportError: The network failed.
        DecodeError: If the response cannot be decoded.

    Cancellation:
        Safe: connections are closed.
    """
    try:
        count = len(await client.discovery.resources())
        async with client.stream("GET", "/apis", accept=AGGREGATED) as response:
            kind = response.headers.get("Content-Type", "")
    except Forbidden:
        text = "not permitted: only built-in resources are known"
        return StepResult("warning", text), False

    result = results.discovery(
        aggregated="APIGroupDiscoveryList" in kind,
        count=count,
        broken=client.discovery.broken,
    )
    return result, True


_DAYS_LEFT = re.compile(", [0-9]+ days left.*")

# Delay before further addresses are tried, as in aiohttp.
NEXT_ADDRESS_SECONDS = 0.25


async def connection(config: ClientConfig) -> StepResult:
    """Resolve the host, connect to it, and close the connection.

    Cancellation:
        Safe: the connection is closed.
    """
    host, port = results.address_of(config)
    loop = asyncio.get_running_loop()
    before = loop.time()
    try:
        # Not in a thread of the loop, which would wait for a slow name server at its
        # end.
        found = await in_thread(functools.partial(_addresses, host, port))
        _, writer = await asyncio.open_connection(
            host, port, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS
        )
    except (OSError, UnicodeError) as exc:
        return results.unreachable(config, exc)

    seconds = loop.time() - before
    peer = writer.get_extra_info("peername")[0]
    writer.transport.abort()
    return results.reached(config, list(dict.fromkeys([peer, *found])), seconds)


def _addresses(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(it[4][0]) for it in found]


async def tls(client: Client, auth: RequestAuth) -> StepResult:
    """Check the TLS handshake and the certificate of the server.

    Through a proxy, a request of the client checks the handshake, without access to the
    certificate.

    Args:
        client: Entered client.
        auth: Credentials and SSL context of the client.

    Raises:
        TransportError: If the handshake failed, or the certificate is not trusted.

    Cancellation:
        Safe: the connection is closed.
    """
    config = client.config
    if not config.secure:
        return results.plain(config)

    if config.proxy:
        await _send_request(client)
        text = "trusted, but its expiry is unknown because of the proxy"
        return StepResult("ok" if config.tls.verify else "warning", text)

    # It imports aiohttp, which the client has loaded.
    from aioinformer.client.error_mapping import map_errors

    host, port = results.address_of(config)
    with map_errors(config.server):
        _, writer = await asyncio.open_connection(
            host,
            port,
            ssl=auth.context,
            happy_eyeballs_delay=NEXT_ADDRESS_SECONDS,
            server_hostname=config.tls.server_name or host,
        )

    connected: ssl.SSLObject = writer.get_extra_info("ssl_object")
    binary = connected.getpeercert(binary_form=True) or b""
    names = _names(connected.getpeercert() or {})
    writer.transport.abort()
    return results.certificate(
        f"{connected.version()}, the server's certificate",
        expiry_of(ssl.DER_cert_to_PEM_cert(binary).encode()),
        datetime.now(tz=UTC),
        names=names,
        verified=config.tls.verify,
    )


def has_certificate(config: ClientConfig, auth: RequestAuth) -> bool:
    """Return True if the client sends a certificate."""
    given = config.tls.certificate is not None
    return config.secure and (given or auth.info.certificate is not None)


async def client_certificate(config: ClientConfig, auth: RequestAuth) -> StepResult:
    """Check the expiry of the client certificate.

    Cancellation:
        Safe.
    """
    now = datetime.now(tz=UTC)
    if auth.info.certificate is not None:
        ends = expiry_of(auth.info.certificate)
        result = results.certificate("from the exec plugin", ends, now)
        # They are valid for hours, and the plugin renews them: no warning.
        return StepResult("ok", _DAYS_LEFT.sub("", result.text))

    given = config.tls.certificate
    pem = await asyncio.to_thread(_read, given) if isinstance(given, Path) else given
    return results.certificate("from the configuration", expiry_of(pem or b""), now)


async def _send_request(client: Client) -> None:
    try:
        async with client.stream("GET", "/version"):
            pass
    except (ApiError, DecodeError):
        pass  # the next step reports it


def _names(certificate: dict[str, Any]) -> list[str]:
    return [str(value) for _, value in certificate.get("subjectAltName", ())]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # it was readable when the client was entered
