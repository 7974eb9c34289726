"""Mapping of HTTP failures to the errors of this package.

Each message names the server, the failure, and the remedy. The error of the HTTP
library is the `__cause__`.
"""

from __future__ import annotations

import re
import ssl
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from aiohttp import RequestInfo
from aiohttp.http import HttpProcessingError
from multidict import CIMultiDict, CIMultiDictProxy

from aioinformer import json_codec
from aioinformer._user_code import guarded_logger
from aioinformer.client.auth.credentials import is_transient
from aioinformer.client.redaction import MOST_CHARACTERS, redacted, redacted_url
from aioinformer.errors import AioInformerError, ApiError, DecodeError, TransportError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "NETWORK_ERRORS",
    "api_error",
    "map_errors",
    "refuse_web_page",
    "retry_after_seconds",
    "transport_error",
]

logger: Final = guarded_logger(__name__)

NETWORK_ERRORS = (aiohttp.ClientError, HttpProcessingError, OSError, UnicodeError)
"""Errors of the HTTP library for network failures."""

# Plain-text answer of API servers for an unknown API group.
_NO_SUCH_PATH = "404 page not found"

# Path of Secrets, and the kind in an object that a server quotes.
_SECRETS = re.compile(r"/api/v1/(?:namespaces/[^/]+/)?secrets\b")
_QUOTED_SECRET = re.compile(rb'kind\\*"\s*:\s*\\*"Secret')
_INVALID_VALUE = re.compile(r'(Invalid value: )"(?:[^"\\]|\\.)*"?')
# After an apply, up to the end: nothing marks the end of a value.
_WRONG_TYPE = re.compile(r"(: expected \w+, got )&.*", re.DOTALL)

# Length of the excerpt from an error body that is not a Status.
EXCERPT_CHARACTERS = 200


@contextmanager
def map_errors(
    server: str, *, proxied: bool = False, answered: bool = False
) -> Iterator[None]:
    """Map the errors of the block, other than those of this package.

    Args:
        server: Server, for the messages.
        proxied: True if connections go to a proxy.
        answered: True if the head of a response has arrived.

    Raises:
        TransportError: If the network or the operating system failed.
    """
    try:
        yield
    except AioInformerError:
        raise
    except Exception as exc:
        raise transport_error(exc, server, proxied=proxied, answered=answered) from exc


def transport_error(
    exc: Exception, server: str, *, proxied: bool = False, answered: bool = False
) -> TransportError:
    """Return the error for a failed request: what failed, and the remedy."""
    _remove_headers(exc)
    cause = getattr(exc, "os_error", None) or exc
    match exc:
        case aiohttp.ClientConnectorCertificateError() | ssl.CertificateError():
            reason = getattr(exc, "certificate_error", exc)
            what = (
                f"has a certificate that cannot be verified: {reason}. "
                "If it has expired, renew it. Else set the authority that signed it "
                "(certificate-authority, ca_file), or tls-server-name if only the "
                "name differs."
            )
        case aiohttp.ClientSSLError() | ssl.SSLError() if _is_plain_http(cause):
            what = (
                f"failed the TLS handshake: {cause}. The port seems to speak plain "
                "HTTP: use http:// in its URL."
            )
        case aiohttp.ClientSSLError() | ssl.SSLError():
            what = (
                f"failed the TLS handshake: {cause}. Check that it uses TLS on "
                "this port and accepts the client's certificate."
            )
        case aiohttp.ClientConnectorDNSError(os_error=local) if is_transient(local):
            what = (
                f"could not be looked up: {local.strerror}. This machine is out of "
                "resources"
            )
        case aiohttp.ClientConnectorDNSError() | UnicodeError() if proxied:
            what = (
                "is behind a proxy whose name cannot be looked up: "
                f"{cause}. Check proxy-url and DNS."
            )
        case aiohttp.ClientConnectorDNSError() | UnicodeError():
            what = f"has a name that cannot be looked up: {cause}. Check name and DNS."
        case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
            what = (
                f"is behind a proxy that failed: {redacted(str(exc))}. Check proxy-url."
            )
        case aiohttp.ConnectionTimeoutError() if proxied:
            what = (
                "is behind a proxy, and one of the two does not accept connections. "
                "Check proxy-url, the server's address, and the firewalls in between."
            )
        case aiohttp.ConnectionTimeoutError():
            what = (
                "does not accept connections. Check its address, and the firewalls "
                "in between."
            )
        case aiohttp.ClientPayloadError():
            reason = redacted(str(exc))
            what = f"sent an incomplete response: {reason}"
        case aiohttp.ServerDisconnectedError():
            what = "closed the connection without a response"
        case _ if isinstance(cause, ConnectionRefusedError):
            what = (
                f"refused the connection: {cause}. Check that the API server runs "
                "there, and the port."
            )
        case aiohttp.ClientConnectorError():
            what = f"cannot be reached: {cause}. Check its address and the network."
        case aiohttp.ClientResponseError() | HttpProcessingError():
            what = (
                f"sent a response that is not HTTP: {redacted(exc.message)}. "
                "Check the port."
            )
        case _ if isinstance(exc, NETWORK_ERRORS):
            reason = redacted(str(exc)) or type(exc).__name__
            what = f"broke the connection: {reason}"
        case _:
            # A bug of a library, or an error that it does not expect.
            what = f"request failed: {type(exc).__name__}: {redacted(str(exc))}"
            logger.error("%s %s", server, what)

    unreachable = not answered and _is_connection_failure(exc)
    return TransportError(f"{server} {what}", unreachable=unreachable)


def _is_plain_http(exc: BaseException) -> bool:
    """Return whether the other side did not answer the handshake with TLS."""
    return "WRONG_VERSION_NUMBER" in str(exc)


def _is_connection_failure(exc: Exception) -> bool:
    """Return whether there was no connection, or it was closed without a response."""
    match exc:
        case ssl.SSLEOFError() | aiohttp.ConnectionTimeoutError():
            return True
        case aiohttp.ClientSSLError():
            return isinstance(exc.__cause__, ssl.SSLEOFError | ConnectionResetError)
        case ssl.SSLError() | aiohttp.ClientHttpProxyError():
            return False
        case _:
            return isinstance(exc, OSError | aiohttp.ServerDisconnectedError)


def api_error(
    status: int,
    phrase: str,
    headers: Any,
    body: bytes,
    server: str,
    request: str = "",
) -> ApiError:
    """Return the error for a refused request.

    Args:
        status: HTTP status code.
        phrase: Reason phrase of the status line.
        headers: Headers of the response, a case-insensitive mapping.
        body: Body of the response or its beginning: a Status, or a proxy's page.
        server: Server, for the message.
        request: Method and path, for the message of a Status that does not say what
            it is about; empty to leave them out.
    """
    wait = retry_after_seconds(headers.get("Retry-After", ""))
    decoded = _status_object(body)
    secret = bool(_SECRETS.search(request) or _QUOTED_SECRET.search(body))
    if decoded is not None:
        if secret:
            _hide_values(decoded)

        error = ApiError.from_status(decoded, code=status, retry_after=wait)
        # Those of an object name it, by its group and kind as the server knows them.
        if request and status in {404, 405} and not error.details.get("kind"):
            error.message += f": {request}{_subresource_advice(status, request)}"

        return error

    message = f"{server} answered {status} {redacted(phrase)}".rstrip()
    if 300 <= status < 400:
        target = redacted_url(headers.get("Location", "nowhere"))
        message += f", a redirect to {target}: use the URL of the API server itself"
    else:
        kind = headers.get("Content-Type", "no content type").partition(";")[0]
        kind = redacted(kind)
        message += f" with {kind} and not a Kubernetes Status"
        # The beginning of a longer Status may quote a Secret.
        text = "" if secret else _excerpt(body)
        message += f": {text!r}" if text else ""
        if status == 404 and text == _NO_SUCH_PATH:
            answer = f"{text} for {request}" if request else text
            message = (
                f"{server} serves no such resource ({answer}): check its name, version and "
                "group, and that its CustomResourceDefinition is installed, or "
                "that the URL is that of an API server"
            )
        else:
            message += ". Check for a proxy in between, and the API server's URL"

    return ApiError.from_status({"message": message}, code=status, retry_after=wait)


def _subresource_advice(status: int, request: str) -> str:
    """Return advice for a write to a path that the server does not serve."""
    method, _, path = request.partition(" ")
    if status != 404 or method not in {"PATCH", "PUT"}:
        return ""

    if not path.endswith(("/status", "/scale")):
        return ""

    name = path.rpartition("/")[2]
    value = "{}" if name == "status" else "{...}"
    return f". If the resource is custom, does its CRD have `subresources: {{{name}: {value}}}`?"


def refuse_web_page(headers: Any, server: str) -> None:
    """Raise if a successful response is a web page, such as that of a proxy.

    Args:
        headers: Headers of the response, a case-insensitive mapping.
        server: Server, for the message.

    Raises:
        DecodeError: If it is a web page.
    """
    # Not aiohttp's `content_type`, which raises for a malformed header.
    kind = headers.get("Content-Type", "").partition(";")[0]
    if kind.strip().lower() == "text/html":
        raise DecodeError(
            f"{server} answered with a web page. Check for a proxy or a login page in "
            "between, and the API server's URL."
        )


def retry_after_seconds(value: str) -> float | None:
    """Parse a `Retry-After` header: seconds, or a date; None if it is neither."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value)

    try:
        when = parsedate_to_datetime(value)
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)

        return max(0.0, (when - datetime.now(tz=UTC)).total_seconds())
    except (ValueError, OverflowError):
        return None


def _remove_headers(exc: BaseException) -> None:
    """Remove the token, which the `repr()` of such an error shows."""
    if isinstance(exc, aiohttp.ClientResponseError):
        info = exc.request_info
        empty = CIMultiDictProxy[str](CIMultiDict())
        exc.request_info = RequestInfo(info.url, info.method, empty, info.real_url)
        exc.args = ()


def _status_object(body: bytes) -> dict[str, Any] | None:
    try:
        decoded = json_codec.loads(body)
    except json_codec.JSONDecodeError:
        return None

    is_status = isinstance(decoded, dict) and decoded.get("kind") == "Status"
    return decoded if is_status else None


def _hide_values(status: dict[str, Any]) -> None:
    """Remove quoted values from a Status: after a bad patch, that is the whole object."""
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    for part in (status, *(causes if isinstance(causes, list) else ())):
        if isinstance(part, dict) and isinstance(part.get("message"), str):
            text = _INVALID_VALUE.sub(r'\1"..."', part["message"])
            part["message"] = _WRONG_TYPE.sub(r"\1...", text)


def _excerpt(body: bytes) -> str:
    # Unclosed markup takes quadratic time.
    text = body[:MOST_CHARACTERS].decode("utf-8", "replace")
    text = re.sub(r"(?is)<(script|style)\b.*?</\1\s*>|<[^>]*>", " ", text)
    text = redacted(text)
    cut = text[:EXCERPT_CHARACTERS]
    return cut if cut == text else f"{cut}..."
