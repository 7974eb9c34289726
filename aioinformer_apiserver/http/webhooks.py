"""Calls of webhooks over HTTP, and what they learn about a request."""

from __future__ import annotations

import asyncio
import ssl
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import aiohttp
from yarl import URL

from aioinformer import json_codec
from aioinformer_apiserver.errors.statuses import quote
from aioinformer_apiserver.webhooks.admission import AdmittedRequest
from aioinformer_apiserver.webhooks.calls import Answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioinformer_apiserver.auth.rbac import User
    from aioinformer_apiserver.requests.request import APIRequest
    from aioinformer_apiserver.requests.routes import Target
    from aioinformer_apiserver.webhooks.calls import Ledger, WebhookCall

__all__ = ["admitted_request", "send_calls"]

_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, */*",
    "User-Agent": "kube-apiserver-admission",
}
_SHOWN_BYTES = 2048


def admitted_request(
    request: APIRequest, target: Target, user: User
) -> AdmittedRequest:
    """Return what webhooks learn about a request.

    Raises:
        ApiError: 400 or 422 if the options of a deletion are invalid.
    """
    options = _options(request, target)
    return AdmittedRequest(
        collection=target.collection,
        subresource=target.subresource,
        namespace=target.namespace,
        name=target.name,
        user={"username": user.name, "groups": list(user.groups)},
        options=options,
        dry_run=bool(options.get("dryRun")),
        warn=lambda text: _warn(request, text),
    )


def _warn(request: APIRequest, text: str) -> None:
    if text not in request.warnings:
        request.warnings.append(text)


def _options(request: APIRequest, target: Target) -> dict[str, Any]:
    """Return the options of a request as a webhook sees them, without kind."""
    query = request.query
    if target.verb in {"delete", "deletecollection"}:
        body = request.document() if request.body else {}
        given = body if isinstance(body, dict) else {}
        found = {k: v for k, v in given.items() if k not in {"kind", "apiVersion"}}
        fields = {"propagationPolicy": query.get("propagationPolicy")}
    else:
        found = {}
        fields = {it: query.get(it) for it in ("fieldManager", "fieldValidation")}

    found |= {name: text for name, text in fields.items() if text}
    if query.get("dryRun"):
        found["dryRun"] = [query["dryRun"]]

    return found


async def send_calls(calls: Sequence[WebhookCall], ledger: Ledger) -> None:
    """Send calls at once, and record their answers.

    Cancellation:
        Closes the connections.
    """
    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(_send(call, ledger), name=f"webhook {call.url}")


async def _send(call: WebhookCall, ledger: Ledger) -> None:
    url = f"{call.url}?timeout={call.seconds:g}s"
    try:
        async with asyncio.timeout(call.seconds):
            answer = await _post(call, url)
    except TimeoutError:
        answer = Answer(problem=_problem(url, "context deadline exceeded"))
    except (aiohttp.ClientError, OSError, ValueError) as exc:
        answer = Answer(problem=_problem(url, str(exc) or type(exc).__name__))

    ledger.record(call, answer)


async def _post(call: WebhookCall, url: str) -> Answer:
    context = _tls(call.ca) if url.startswith("https:") else True
    # One call for one connection, so that none outlives the server.
    connector = aiohttp.TCPConnector(ssl=context, force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(
            URL(url, encoded=True),
            data=call.body,
            headers=_HEADERS,
            server_hostname=call.server_name or None,
            allow_redirects=False,
        ) as response,
    ):
        return _answer(response.status, await response.read())


def _answer(status: int, body: bytes) -> Answer:
    if status != HTTPStatus.OK:
        return Answer(problem=_refusal(status, body))

    try:
        return Answer(json_codec.loads(body))
    except json_codec.JSONDecodeError as exc:
        return Answer(
            problem=f"couldn't get version/kind; json parse error: {exc}",
        )


def _refusal(status: int, body: bytes) -> str:
    """Return the message of a client for an error without a Status."""
    if status == HTTPStatus.NOT_FOUND:
        return "the server could not find the requested resource"

    text = quote(body[:_SHOWN_BYTES].decode(errors="replace").strip())
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        why = f"an error on the server ({text}) has prevented the request from "
        return f"{why}succeeding"

    return f"the server responded with the status code {status} ({text})"


def _problem(url: str, why: str) -> str:
    return f"Post {quote(url)}: {why}"


@lru_cache(maxsize=16)
def _tls(ca: str) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=ca or None)
