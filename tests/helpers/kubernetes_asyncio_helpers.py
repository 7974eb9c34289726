"""List and watch calls through the client of kubernetes_asyncio."""

from __future__ import annotations

from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from aioinformer.client import ListWatch
from aioinformer.watch import ListOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LIBRARIES = ["kubernetes_asyncio", "kubernetes.aio"]


@asynccontextmanager
async def listing(
    url: str, library: Any = None, *, token: str = "", **settings: Any
) -> AsyncIterator[ListWatch]:
    """Return a source of the pods of all namespaces, with a client of its own."""
    library = library or import_module("kubernetes_asyncio.client")
    configuration = library.Configuration(host=url)
    if token:
        configuration.api_key = {"BearerToken": token}
        configuration.api_key_prefix = {"BearerToken": "Bearer"}

    for name, value in settings.items():
        setattr(configuration, name, value)

    async with library.ApiClient(configuration) as api:
        pods = library.CoreV1Api(api).list_pod_for_all_namespaces
        yield ListWatch.from_kubernetes_asyncio(pods)


async def read(source: ListWatch) -> list[str]:
    async with source.list(ListOptions()) as page:
        return [it.name async for objects in page for it in objects]
