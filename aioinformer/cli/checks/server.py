"""A server as a whole: its version, who we are there, what it serves."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from aioinformer.cli.checks import results as judging
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
    """Who we are, as far as the server says so."""

    user: str = ""
    """Empty if it is not known."""

    groups: tuple[str, ...] = ()


async def version(client: Client) -> StepResult:
    """Ask for the version, which shows that it is a server of Kubernetes.

    Raises:
        ApiError: The server refused otherwise, as with 401 for credentials that it does
            not accept.
        TransportError: The network failed.

    Cancellation:
        Safe: the connection is closed.
    """
    server = client.config.server
    try:
        async with client.stream("GET", "/version") as response:
            return judging.version(orjson.loads(await response.read()), server)

    except Forbidden:
        return StepResult("warning", "we may not ask for it")
    except orjson.JSONDecodeError:
        return judging.version(None, server)
    except DecodeError as exc:
        return StepResult("failed", message_of(exc))
    except NotFound as exc:
        text = f"{server} has no /version, which each server of Kubernetes has: {exc}"
        return StepResult("failed", text)


async def identity(client: Client) -> tuple[StepResult, Identity]:
    """Ask who we are.

    Raises:
        ApiError: The server refused for another reason than rights.
        TransportError: The network failed.

    Cancellation:
        Safe: the connection is closed.
    """
    try:
        review = await client.create(_REVIEWS, {})
    except NotFound:
        text = "the server cannot tell: it has no SelfSubjectReview (before 1.28)"
        return StepResult("not asked", text), Identity()
    except Forbidden as exc:
        user = judging.name_in(exc.message)
        if user:
            return judging.identity(user, ()), Identity(user)

        return StepResult("warning", message_of(exc)), Identity()

    user = str(review.at("status.userInfo.username", ""))
    groups = tuple(review.at("status.userInfo.groups", ()))
    return judging.identity(user, groups), Identity(user, groups)


async def discovery(client: Client) -> tuple[StepResult, bool]:
    """Ask what is served.

    Returns:
        The answer, and whether the server has told.

    Raises:
        ApiError: The server refused otherwise.
        TransportError: The network failed.
        DecodeError: What it says cannot be read.

    Cancellation:
        Safe: connections are closed.
    """
    try:
        count = len(await client.discovery.resources())
        async with client.stream("GET", "/apis", accept=AGGREGATED) as response:
            kind = response.headers.get("Content-Type", "")
    except Forbidden:
        text = "we may not ask: only built-in resources are known"
        return StepResult("warning", text), False

    answer = judging.discovery(
        aggregated="APIGroupDiscoveryList" in kind,
        count=count,
        broken=client.discovery.broken,
    )
    return answer, True


# When another address is tried besides, as aiohttp does it for the client.
NEXT_ADDRESS_SECONDS = 0.25


async def connection(config: ClientConfig) -> StepResult:
    """Look up the name, connect to what it stands for, and close that again.

    Cancellation:
        Safe: the connection is closed.
    """
    host, port = judging.address_of(config)
    loop = asyncio.get_running_loop()
    before = loop.time()
    try:
        found = await _looked_up(host, port)
        _, writer = await asyncio.open_connection(
            host, port, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS
        )
    except (OSError, UnicodeError) as exc:
        return judging.unreachable(config, exc)

    seconds = loop.time() - before
    peer = writer.get_extra_info("peername")[0]
    writer.transport.abort()
    return judging.reached(config, list(dict.fromkeys([peer, *found])), seconds)


async def _looked_up(host: str, port: int) -> list[str]:
    """Look up a name, in a thread that nobody has to wait for.

    The loop waits for its own when it ends, and a name server that says nothing would
    hold up Ctrl-C.

    Raises:
        OSError: There is no such name, or nobody who knows.
        UnicodeError: It can be no name.
    """
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    found: list[str] = []
    failures: list[OSError | UnicodeError] = []

    def look_up() -> None:
        try:
            told = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.extend(str(it[4][0]) for it in told)
        except (OSError, UnicodeError) as exc:
            failures.append(exc)

        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=look_up, name="look-up", daemon=True).start()
    await done.wait()
    for it in failures:
        raise it

    return found


async def tls(client: Client, ticket: RequestAuth) -> StepResult:
    """Speak TLS with the server, and look at its certificate.

    Through a proxy the client asks for something: what it hears from the server does not
    matter, but the certificate cannot be seen.

    Args:
        client: Entered.
        ticket: What its connections are secured by.

    Raises:
        TransportError: If TLS failed, or the certificate is not to be trusted.

    Cancellation:
        Safe: the connection is closed.
    """
    config = client.config
    if not config.secure:
        return judging.plain(config)

    if config.proxy:
        await _ask_anything(client)
        text = "accepted; through a proxy its end is not to be seen"
        return StepResult("ok" if config.tls.verify else "warning", text)

    # aiohttp comes with it, which the client has loaded by now.
    from aioinformer.client.error_mapping import map_errors

    host, port = judging.address_of(config)
    with map_errors(config.server):
        _, writer = await asyncio.open_connection(
            host,
            port,
            ssl=ticket.context,
            happy_eyeballs_delay=NEXT_ADDRESS_SECONDS,
            server_hostname=config.tls.server_name or host,
        )

    spoken: ssl.SSLObject = writer.get_extra_info("ssl_object")
    binary = spoken.getpeercert(binary_form=True) or b""
    names = _names(spoken.getpeercert() or {})
    writer.transport.abort()
    return judging.certificate(
        f"{spoken.version()}, the server's certificate",
        expiry_of(ssl.DER_cert_to_PEM_cert(binary).encode()),
        datetime.now(tz=UTC),
        names=names,
        verified=config.tls.verify,
    )


def has_certificate(config: ClientConfig, ticket: RequestAuth) -> bool:
    """Say whether we show the server a certificate of our own."""
    given = config.tls.certificate is not None
    return config.secure and (given or ticket.info.certificate is not None)


async def client_certificate(config: ClientConfig, ticket: RequestAuth) -> StepResult:
    """Say until when our own certificate is good.

    Cancellation:
        Safe.
    """
    now = datetime.now(tz=UTC)
    if ticket.info.certificate is not None:
        ends = expiry_of(ticket.info.certificate)
        answer = judging.certificate("given by the exec plugin", ends, now)
        # Such ones live for hours, and the plugin is asked for others in time.
        return StepResult("ok", answer.text.partition(", in ")[0])

    given = config.tls.certificate
    pem = await asyncio.to_thread(_read, given) if isinstance(given, Path) else given
    return judging.certificate("of the configuration", expiry_of(pem or b""), now)


async def _ask_anything(client: Client) -> None:
    try:
        async with client.stream("GET", "/version"):
            pass
    except (ApiError, DecodeError):
        pass  # of which the next step complains


def _names(certificate: dict[str, Any]) -> list[str]:
    return [str(value) for _, value in certificate.get("subjectAltName", ())]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # it was read a moment ago, when the client was entered
