"""A server as a whole: its version, who we are there, what it serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import orjson

from aioinformer.cli.checkup import judging
from aioinformer.cli.checkup.findings import Answer
from aioinformer.cli.explain import explain
from aioinformer.client.discovery_documents import AGGREGATED
from aioinformer.errors import DecodeError, Forbidden, NotFound
from aioinformer.model.resource import Resource

if TYPE_CHECKING:
    from aioinformer.client import Client

__all__ = ["Identity", "discovery", "identity", "version"]

_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False
)


class Identity(NamedTuple):
    """Who we are, as far as the server says so."""

    user: str = ""
    """Empty if it is not known."""

    groups: tuple[str, ...] = ()


async def version(client: Client) -> Answer:
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
        return Answer("warning", "we may not ask for it")
    except orjson.JSONDecodeError:
        return judging.version(None, server)
    except DecodeError as exc:
        return Answer("failed", explain(exc))
    except NotFound as exc:
        text = f"{server} has no /version, which each server of Kubernetes has: {exc}"
        return Answer("failed", text)


async def identity(client: Client) -> tuple[Answer, Identity]:
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
        return Answer("not asked", text), Identity()
    except Forbidden as exc:
        user = judging.name_in(exc.message)
        if user:
            return judging.identity(user, ()), Identity(user)

        return Answer("warning", explain(exc)), Identity()

    user = str(review.at("status.userInfo.username", ""))
    groups = tuple(review.at("status.userInfo.groups", ()))
    return judging.identity(user, groups), Identity(user, groups)


async def discovery(client: Client) -> tuple[Answer, bool]:
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
        return Answer("warning", text), False

    answer = judging.discovery(
        aggregated="APIGroupDiscoveryList" in kind,
        count=count,
        broken=client.discovery.broken,
    )
    return answer, True
