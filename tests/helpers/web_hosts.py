"""Web servers on a free port of the test's own loop: uvicorn and aiohttp."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING

import aiohttp
import pytest
import uvicorn
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastapi import FastAPI

_AIOHTTP = tuple(int(it) for it in re.findall(r"\d+", aiohttp.__version__)[:3])

needs_timeout_of_heads = pytest.mark.skipif(
    _AIOHTTP < (3, 14, 4), reason="older aiohttp waits forever for the first head"
)


def config_of(app: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        app, host="127.0.0.1", port=0, lifespan="on", log_config=None, ws="none"
    )


@contextlib.asynccontextmanager
async def by_uvicorn(app: FastAPI) -> AsyncIterator[str]:
    """Serve an app on a free port of this loop, and yield its URL."""
    server = uvicorn.Server(config_of(app))
    serving = asyncio.create_task(server.serve())
    try:
        while not server.started:
            await asyncio.sleep(0.01)

        (listening,) = server.servers[0].sockets
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


@contextlib.asynccontextmanager
async def by_aiohttp(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
