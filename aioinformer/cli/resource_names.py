"""Finds the resource that a word means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioinformer.cli.error_messages import CommandError
from aioinformer.errors import NotFound
from aioinformer.model.resources import built_in_resources, short_names

if TYPE_CHECKING:
    from aioinformer.client import Client
    from aioinformer.model.resource import Resource

__all__ = ["built_in", "find_resource", "known_names"]


def built_in(word: str) -> Resource | None:
    """Find a built-in resource; None if there is none of the name. Asks no server.

    Args:
        word: The plural, singular, kind or short name (`pods`, `pod`, `Pod`, `po`), in
            upper or lower case; perhaps with the group (`deployments.apps`), or version
            and group (`deployments.v1.apps`).

    Example:
        >>> built_in("Deployment").path()
        '/apis/apps/v1/deployments'
    """
    lower = word.lower()
    return next((it for it in built_in_resources() if lower in _names(it)), None)


async def find_resource(word: str, client: Client) -> Resource:
    """Find a resource by any of its names: a built-in one, or what the server has.

    Args:
        word: As for `built_in()`, of any resource.
        client: Whom to ask; entered.

    Raises:
        CommandError: The server has none; the text says what is similar.
        ApiError: The server refused to say what it has.
        TransportError: The network failed.
        DecodeError: The answer cannot be read.

    Cancellation:
        Safe.
    """
    known = built_in(word)
    if known is not None:
        return known

    try:
        return await client.discovery.resource(word)
    except NotFound as exc:
        raise CommandError(exc.message) from exc


def known_names() -> list[str]:
    """Return the plural and short names of the built-in resources, sorted."""
    known = built_in_resources()
    return sorted({name for it in known for name in (it.plural, *short_names(it))})


def _names(resource: Resource) -> set[str]:
    names = {resource.plural, resource.kind.lower(), *short_names(resource)}
    full = {f"{name}.{resource.group}" for name in names if resource.group}
    versioned = {f"{name}.{resource.version}" for name in names}
    return names | full | {f"{it}.{resource.group}".rstrip(".") for it in versioned}
