"""Helpers for the tests of kr8s."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import kr8s
import pytest
from kr8s.asyncio.objects import object_from_spec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

__all__ = ["NEWER_THAN_IT_KNOWS", "connected", "made"]

# kr8s supports Kubernetes up to 1.35, and warns about newer servers.
NEWER_THAN_IT_KNOWS = pytest.mark.filterwarnings(
    "ignore:Kubernetes version v.* is not supported:UserWarning"
)


@asynccontextmanager
async def connected(kubeconfig: Path | dict[str, Any]) -> AsyncIterator[Any]:
    """Open kr8s with a kubeconfig, as a file or as its content."""
    given = kubeconfig if isinstance(kubeconfig, dict) else str(kubeconfig)
    api = await kr8s.asyncio.api(kubeconfig=given)
    try:
        yield api
    finally:
        # kr8s has no public method to close its connections.
        await api._session.aclose()


async def made(api: Any, body: dict[str, Any]) -> Any:
    """Create an object with the class of its kind."""
    it = await object_from_spec(body, api=api, allow_unknown_type=True)
    await it.create()
    return it
