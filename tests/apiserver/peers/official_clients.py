"""The three clients that are generated from the API's own description.

`kubernetes_asyncio`, the official client's `kubernetes.aio`, and the official client that
blocks have nearly the same names. What is needed of each is here under one.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

__all__ = [
    "APPLY",
    "ASYNC_CLIENTS",
    "JSON_PATCH",
    "MERGE_PATCH",
    "STRATEGIC_PATCH",
    "connected",
    "established",
    "told",
]

ASYNC_CLIENTS = ["kubernetes_asyncio", "kubernetes.aio"]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

_PARTS = ("client", "config", "dynamic", "utils", "watch")


@asynccontextmanager
async def connected(name: str, kubeconfig: Path) -> AsyncIterator[SimpleNamespace]:
    """Load an asynchronous client, and open it with this kubeconfig.

    Yields its modules, its connection as `api`, and its two most used groups.
    """
    parts = {part: import_module(f"{name}.{part}") for part in _PARTS}
    config: Any = parts["config"]
    async with await config.new_client_from_config(config_file=str(kubeconfig)) as api:
        client: Any = parts["client"]
        yield SimpleNamespace(
            **parts, api=api, core=client.CoreV1Api(api), apps=client.AppsV1Api(api)
        )


def established(it: Any) -> bool:
    """Tell if the objects of a definition are served; it has no conditions at first."""
    conditions = {one.type: one.status for one in it.status.conditions or ()}
    return conditions.get("Established") == "True"


def told(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Reduce events to (type, name)."""
    return [(it["type"], it["raw_object"]["metadata"]["name"]) for it in events]
