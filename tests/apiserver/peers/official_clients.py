"""Helpers for the clients that are generated from the OpenAPI description.

These are `kubernetes_asyncio`, `kubernetes.aio` of the official client, and the blocking
official client. They have nearly the same names.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

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
    "types_and_names",
]

# Both are generated from the same description, so `make test` runs most tests with the
# first one only.
ASYNC_CLIENTS = [
    "kubernetes_asyncio",
    pytest.param("kubernetes.aio", marks=pytest.mark.e2e),
]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

_PARTS = ("client", "config", "dynamic", "utils", "watch")


@asynccontextmanager
async def connected(name: str, kubeconfig: Path) -> AsyncIterator[SimpleNamespace]:
    """Load an asynchronous client, and open it with this kubeconfig.

    Yields:
        Namespace with the modules, the API client `api`, and the groups `core` and `apps`.
    """
    parts = {part: import_module(f"{name}.{part}") for part in _PARTS}
    config: Any = parts["config"]
    async with await config.new_client_from_config(config_file=str(kubeconfig)) as api:
        client: Any = parts["client"]
        yield SimpleNamespace(
            **parts, api=api, core=client.CoreV1Api(api), apps=client.AppsV1Api(api)
        )


def established(it: Any) -> bool:
    """Return whether a definition is established; a new one has no conditions."""
    conditions = {one.type: one.status for one in it.status.conditions or ()}
    return conditions.get("Established") == "True"


def types_and_names(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the type and name of each event."""
    return [(it["type"], it["raw_object"]["metadata"]["name"]) for it in events]
