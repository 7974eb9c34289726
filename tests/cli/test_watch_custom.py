"""`aioinformer watch` of custom resources."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from canned import CannedServer
from discovery_helpers import OldServer, define_widgets
from processes import start

from aioinformer.cli.connection import ConnectionOptions
from aioinformer.cli.error_messages import CommandError
from aioinformer.cli.watch import WatchCommandOptions, watch
from aioinformer.errors import ServerError, TransportError
from aioinformer.model import Resource
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from pathlib import Path

WIDGETS = Resource("example.com", "v1", "widgets", "Widget")
COMMAND = "from aioinformer.cli.main import main; main()"


def widget(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata}


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_watch_finds_a_custom_resource(tmp_path: Path) -> None:
    async with APIServer() as server, server.client() as client:
        await define_widgets(client)
        await client.create(WIDGETS, widget("a"))
        config = str(server.kubeconfig(tmp_path / "config"))
        async with start(
            "-c", COMMAND, "watch", "wd", "--kubeconfig", config
        ) as process:
            assert (await process.line("ADDED")).split()[1] == "a"
            await client.create(WIDGETS, widget("b"))
            assert (await process.line("b ")).split()[:2] == ["ADDED", "b"]
            await client.delete(WIDGETS, "a", namespace="default")
            assert (await process.line("DELETED")).split()[1] == "a"

            process.interrupt()
            end = await process.end()

    assert (end.status, end.err) == (130, "")


async def test_watch_suggests_names_for_an_unknown_resource() -> None:
    async with APIServer() as server, server.client() as client:
        await define_widgets(client)
        with pytest.raises(CommandError) as caught:
            await watch(
                WatchCommandOptions(resource="widgts"),
                ConnectionOptions(server=server.url),
            )

    assert str(caught.value) == (
        "the server has no resource 'widgts'. Did you mean 'widgets'?"
    )


async def test_namespace_of_cluster_scoped_resource_is_refused() -> None:
    async with APIServer() as server, server.client() as client:
        await define_widgets(client, scope="Cluster")
        options = WatchCommandOptions(resource="Widget", namespaces=("shop",))
        with pytest.raises(CommandError, match="is cluster-scoped"):
            await watch(options, ConnectionOptions(server=server.url))


async def test_watch_fails_if_discovery_hangs() -> None:
    async with OldServer({}) as server:
        server.hold = asyncio.Event()
        server.held_paths = "/api"
        with pytest.raises(CommandError, match="did not respond within 5 s"):
            await watch(
                WatchCommandOptions(resource="wd"), ConnectionOptions(server=server.url)
            )

        server.hold.set()


async def test_watch_reports_server_that_is_not_kubernetes() -> None:
    async with CannedServer() as canned:
        canned.json({"hello": "world"})
        with pytest.raises(CommandError, match="Is the URL that of an API server"):
            await watch(
                WatchCommandOptions(resource="wd"), ConnectionOptions(server=canned.url)
            )


async def test_watch_reports_failed_discovery() -> None:
    async with OldServer({"/api": 503, "/apis": 503}) as server:
        with pytest.raises(ServerError):
            await watch(
                WatchCommandOptions(resource="wd"), ConnectionOptions(server=server.url)
            )

    with pytest.raises(TransportError):
        await watch(
            WatchCommandOptions(resource="wd"), ConnectionOptions(server=server.url)
        )
