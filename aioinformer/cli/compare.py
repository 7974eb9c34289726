"""Compares what a cache holds with what the server holds. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aioinformer.model import KubeObject

__all__ = ["differences"]


def differences(
    held: Iterable[Mapping[str, Any]], cached: Iterable[KubeObject]
) -> list[str]:
    """Say what is missing in the cache, what is too much, and what is different.

    Args:
        held: The server's objects, complete.
        cached: The cache's.

    Returns:
        A phrase for each object that differs, by key; nothing if they are equal.
    """
    theirs = {_key(body): body for body in held}
    ours = {obj.key: obj for obj in cached}
    found = {key: f"{key} is missing" for key in theirs.keys() - ours.keys()}
    found |= {key: f"{key} is too much" for key in ours.keys() - theirs.keys()}
    found |= {
        key: f"{key} is different"
        for key in theirs.keys() & ours.keys()
        if ours[key].to_dict() != theirs[key]
    }
    return [found[key] for key in sorted(found)]


def _key(body: Mapping[str, Any]) -> str:
    metadata = body["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])
