"""Calls of webhooks, and the ledger of the answers within one request. Pure."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioinformer import json_codec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "Answer",
    "CallsNeeded",
    "Endpoint",
    "Ledger",
    "WebhookCall",
    "endpoint_of",
    "key_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookCall:
    """Request to a webhook.

    Attributes:
        key: Identity of the call within its request.
        url: URL without the parameter `timeout`.
        body: Review to send.
        seconds: Maximum duration.
        ca: PEM certificates of the authorities to trust; empty for those of the system.
        server_name: Name in the certificate; empty for the host of the URL.
    """

    key: bytes
    url: str
    body: bytes
    seconds: float
    ca: str = ""
    server_name: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """Outcome of a call.

    Attributes:
        review: Decoded response.
        problem: Why there is none; empty for a response.
    """

    review: Any = None
    problem: str = ""


class CallsNeeded(Exception):
    """A write needs answers of webhooks. It has changed nothing, and must run again.

    Attributes:
        calls: Calls to send, all at once.
    """

    def __init__(self, calls: Sequence[WebhookCall]) -> None:
        super().__init__(f"{len(calls)} calls of webhooks")
        self.calls: Sequence[WebhookCall] = calls


class Ledger:
    """Answers that one request has received so far."""

    def __init__(self) -> None:
        self._answers: dict[bytes, Answer] = {}

    def answer(self, key: bytes) -> Answer | None:
        """Return the answer of a call; None if it has not been sent yet."""
        return self._answers.get(key)

    def record(self, call: WebhookCall, answer: Answer) -> None:
        """Keep the answer of a call."""
        self._answers[call.key] = answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Address of a webhook, or the reason why it has none.

    Attributes:
        url: URL; empty if there is a problem.
        ca: PEM certificates of the authorities to trust; empty for those of the system.
        server_name: Name in the certificate; empty for the host of the URL.
        problem: Reason why the webhook cannot be called; empty if it can.
    """

    url: str = ""
    ca: str = ""
    server_name: str = ""
    problem: str = ""


def endpoint_of(config: Mapping[str, Any], services: Mapping[str, str]) -> Endpoint:
    """Return the address in a `clientConfig`.

    Args:
        config: `clientConfig` of a webhook.
        services: Base URLs of services, by `"namespace/name"`.
    """
    try:
        bundle = b64decode(config.get("caBundle") or "", validate=True)
    except (Base64Error, ValueError) as exc:
        return Endpoint(problem=f"caBundle is not PEM in base64: {exc}")

    ca = bundle.decode("ascii", "ignore")  # PEM is, comments in it need not be
    service = config.get("service")
    if not service:
        url = config.get("url") or ""
        problem = "" if url else "webhook configuration must have either service or URL"
        return Endpoint(url=url, ca=ca, problem=problem)

    namespace, name = service.get("namespace", ""), service.get("name", "")
    base = services.get(f"{namespace}/{name}")
    if base is None:
        return Endpoint(
            problem=f"service {namespace}/{name} has no address, because this server "
            f'has no network of services: pass webhook_services={{"{namespace}/{name}": '
            '"https://127.0.0.1:9443"} to it, or set clientConfig.url'
        )

    path = (service.get("path") or "").lstrip("/")
    return Endpoint(
        url=f"{base.rstrip('/')}/{path}", ca=ca, server_name=f"{name}.{namespace}.svc"
    )


def key_of(*parts: object) -> bytes:
    """Return the identity of a call; equal parts give equal identities."""
    return json_codec.dumps(parts, option=json_codec.OPT_SORT_KEYS)
