"""`aioinformer dashboard`, and the dashboard of the demo."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from conftest import pod
from ports import free_port
from web_helpers import SentEvents

from aioinformer.cli.connection import ConnectionOptions
from aioinformer.cli.dashboard import DEFAULT_RESOURCES, DashboardOptions, dashboard
from aioinformer.cli.demo import DemoOptions, demo
from aioinformer.cli.error_messages import CommandError
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    Captured = pytest.CaptureFixture[str]


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer(auto_namespaces=True) as server:
        for namespace in ("shop", "media"):
            body = pod("web-0", namespace, {"app": "web"})
            del body["metadata"]["resourceVersion"]
            server.create(PODS, body)

        yield server


async def overview(port: int, **headers: str) -> dict[str, Any]:
    """Wait for the dashboard, and return its overview once all informers are synced."""
    sent = SentEvents()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
        while True:
            try:
                async with http.get("/api/overview", headers=headers) as response:
                    response.raise_for_status()
                    async for chunk in response.content.iter_any():
                        sent.feed(chunk)
                        if sent.events and all(
                            it["synced"] for it in sent.events[-1].data["informers"]
                        ):
                            data: dict[str, Any] = sent.events[-1].data
                            return data
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.1)


async def test_command_serves_the_usual_resources_on_this_machine_only(
    server: APIServer, capfd: Captured
) -> None:
    port = free_port()
    options = DashboardOptions(port=port, namespaces=("shop",))
    serving = asyncio.create_task(
        dashboard(options, ConnectionOptions(server=server.url))
    )
    found = await overview(port)
    async with aiohttp.ClientSession() as http:
        url = f"http://127.0.0.1:{port}/"
        by_name = [
            (await http.get(url, headers={"Host": host})).status
            for host in (
                f"localhost:{port}",
                f"evil.example:{port}",
                "127.0.0.1.evil.example",
            )
        ]

    serving.cancel()
    await asyncio.wait([serving])

    plurals = [it["resource"] for it in found["informers"]]
    assert plurals == list(DEFAULT_RESOURCES)
    assert found["informers"][0]["objects"] == 1
    assert (found["actions"], found["trouble"]) == (False, [])
    assert by_name == [200, 403, 403]
    assert f"http://127.0.0.1:{port}/" in capfd.readouterr().out


async def test_command_ends_after_a_duration(server: APIServer) -> None:
    options = DashboardOptions(
        resources=("pods", "nodes"), port=0, all_namespaces=True, seconds=5
    )

    assert await dashboard(options, ConnectionOptions(server=server.url)) == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"resources": ("podz",)}, "podz"),
        ({"namespaces": ("shop",), "all_namespaces": True}, "-n and -A"),
    ],
)
async def test_wrong_options_are_one_clear_error(
    server: APIServer, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(CommandError, match=text):
        await dashboard(
            DashboardOptions(port=0, **options), ConnectionOptions(server=server.url)
        )


async def test_port_in_use_is_one_clear_error(server: APIServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=rf"port {port}.*--port"):
            await dashboard(
                DashboardOptions(port=port), ConnectionOptions(server=server.url)
            )


async def test_demo_shows_its_controller() -> None:
    port = free_port()
    running = asyncio.create_task(demo(DemoOptions(plain=True, port=port)))
    found = await overview(port)
    running.cancel()
    await asyncio.wait([running])

    assert [it["name"] for it in found["controllers"]] == ["apps"]
    assert found["actions"]
