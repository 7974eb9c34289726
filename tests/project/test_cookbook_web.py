"""The recipes about web apps do what they say."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import aiohttp
import prometheus_client  # noqa: F401 - it reads files when it is imported
from cookbook import Program, recipes, running
from doc_blocks import said
from doc_requests import curl, listening
from ports import free_port

from aioinformer.model.resources import DEPLOYMENTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def serving(title: str, port: int = 8000) -> AsyncIterator[Program]:
    """Run a web app on a free port, and compare the output of the recipe's commands."""
    (recipe,) = [it for it in recipes() if it.title == title]
    commands = [
        it for each in recipe.blocks if each.language == "console" for it in said(each)
    ]
    assert commands
    free = free_port()
    edits = {f"port={port}": f"port={free}"}
    async with running(title, edits=edits) as program, aiohttp.ClientSession() as http:
        try:
            await listening(free)
            for command, shown in commands:
                mine = command.replace(f"localhost:{port}", f"http://127.0.0.1:{free}")
                await curl(http, mine, shown)

            yield program
        finally:
            if "uvicorn" in recipe.code:
                program.module.server.should_exit = True
                await program.main


async def test_share_one_watch_among_several_routes() -> None:
    async with serving("Share one watch among several routes") as program:
        pods = [it.verb for it in program.server.requests if it.resource == "pods"]

    assert pods == ["list", "watch"]


async def test_share_one_watch_among_the_routes_of_an_aiohttp_app() -> None:
    async with serving("Share one watch among the routes of an aiohttp app", 8080):
        pass


async def test_use_a_lister_in_routes_by_fastapi_s_depends() -> None:
    async with serving("Use a lister in routes by FastAPI's Depends"):
        pass


async def test_serve_a_list_as_json_without_decoding() -> None:
    async with serving("Serve a list as JSON without decoding"):
        pass


async def test_wait_for_a_deployment_from_a_request() -> None:
    async with serving("Wait for a Deployment from a request") as program:
        rollout = program.module.rollout
        waiting = asyncio.create_task(rollout("shop", "web"))
        await asyncio.sleep(10)
        assert not waiting.done()
        ready: dict[str, Any] = dict.fromkeys(
            ("replicas", "updatedReplicas", "availableReplicas"), 2
        )
        ready["observedGeneration"] = 1
        status = {"status": ready}
        program.server.patch(DEPLOYMENTS, "web", status, namespace="shop")
        assert await waiting == "shop/web is rolled out"


async def test_stream_changes_from_fastapi_with_authentication() -> None:
    async with serving("Stream changes from FastAPI with authentication"):
        pass


async def test_stream_changes_from_an_aiohttp_app_with_authentication() -> None:
    async with serving("Stream changes from an aiohttp app with authentication", 8080):
        pass


async def test_serve_health_and_metrics_without_a_web_app() -> None:
    async with serving("Serve health and metrics without a web app", 8080):
        pass
