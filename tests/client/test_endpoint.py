"""Entering and leaving a client."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import orjson
import pytest
from canned import CannedServer
from conftest import pod

from aioinformer.client import Client, ClientConfig, ListWatch
from aioinformer.errors import (
    OptionsError,
    TransportError,
    WrongLoop,
)
from aioinformer.model.resources import PODS
from aioinformer.watch import WatchOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

POD = pod("a", "x")


@pytest.fixture
async def server() -> AsyncIterator[CannedServer]:
    async with CannedServer() as server:
        yield server


# ---------------------------------------------------------------- lifetime


@pytest.mark.realtime
def test_client_import_loads_no_http_library() -> None:
    code = (
        "import sys, aioinformer.client\n"
        "print({'aiohttp', 'kubernetes_asyncio', 'yaml'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert done.stdout.decode().strip() == "set()"


def test_client_reads_nothing_before_it_is_entered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    clients = [
        Client.from_env(),
        Client.from_kubeconfig(tmp_path / "absent"),
        Client.in_cluster(),
        Client.from_url("https://api.example", ca_file=tmp_path / "absent"),
    ]

    assert not any(client.entered for client in clients)
    assert repr(clients[0]) == "<Client not entered>"


@pytest.mark.parametrize("way", ["from_env", "from_kubeconfig", "in_cluster"])
async def test_entering_raises_for_unreadable_configuration(
    way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    client: Client = getattr(Client, way)()

    with pytest.raises(OptionsError):
        await client.start()

    assert not client.entered


@pytest.mark.parametrize("way", ["from_env", "from_kubeconfig"])
async def test_client_uses_server_of_kubeconfig(
    way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: CannedServer
) -> None:
    context = {"cluster": "c", "namespace": "shop"}
    content = {
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "contexts": [{"name": "other", "context": context}],
    }
    (tmp_path / "config").write_bytes(orjson.dumps(content))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))

    async with getattr(Client, way)(context="other", gzip=True) as client:
        assert repr(client) == f"<Client {server.url} entered>"
        assert client.namespace == "shop"
        assert client.config.gzip


async def test_entering_raises_for_unreadable_token_file(tmp_path: Path) -> None:
    client = Client.from_url("http://api.example", token_file=tmp_path / "absent")

    with pytest.raises(OptionsError, match="cannot read a token"):
        await client.start()

    assert not client.entered


async def test_client_reads_configuration_in_thread_on_each_entry(
    server: CannedServer,
) -> None:
    threads = []

    def read() -> ClientConfig:
        threads.append(threading.current_thread())
        return ClientConfig(server=server.url)

    client = Client(read)
    for _ in range(2):
        async with client:
            assert client.entered

    assert len(threads) == 2
    assert threading.main_thread() not in threads


async def test_unentered_client_raises_options_error() -> None:
    client = Client.from_env()

    with pytest.raises(OptionsError, match="async with client"):
        await client.get(PODS, "a", namespace="x")

    with pytest.raises(OptionsError, match="async with client"):
        _ = client.namespace


async def test_closed_client_raises_transport_error(server: CannedServer) -> None:
    async with Client.from_url(server.url) as client:
        pass

    with pytest.raises(TransportError, match="was closed"):
        await client.list(PODS)

    with pytest.raises(TransportError, match="was closed"):
        async with ListWatch(client, PODS).watch(WatchOptions()):
            pass


async def test_entered_client_cannot_be_entered_again(server: CannedServer) -> None:
    async with Client.from_url(server.url) as client:
        with pytest.raises(OptionsError, match="already entered"):
            await client.start()

        assert client.entered


async def test_client_cannot_be_entered_concurrently(server: CannedServer) -> None:
    client = Client.from_url(server.url)
    first = asyncio.create_task(client.start())
    second = asyncio.create_task(client.start())

    with pytest.raises(OptionsError, match="already entered"):
        await second

    await first
    await client.close()


async def test_client_can_be_entered_and_left_by_different_tasks(
    server: CannedServer,
) -> None:
    server.json(POD)
    client = Client.from_url(server.url)
    await asyncio.create_task(client.start())
    assert (await client.get(PODS, "a", namespace="x")).key == "x/a"

    await asyncio.create_task(client.close())

    assert not client.entered


async def test_second_close_does_nothing(server: CannedServer) -> None:
    client = Client.from_url(server.url)
    await client.close()
    await client.start()
    await client.close()
    await client.close()

    assert not client.entered


async def test_cancelled_start_can_be_repeated(server: CannedServer) -> None:
    client = Client.from_url(server.url)
    start = asyncio.create_task(client.start())
    await asyncio.sleep(0)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start

    async with client:
        assert client.entered


@pytest.mark.realtime
async def test_client_in_another_loop_raises_wrong_loop(server: CannedServer) -> None:
    def elsewhere() -> None:
        with pytest.raises(WrongLoop):
            asyncio.run(client.get(PODS, "a", namespace="x"))

        with pytest.raises(WrongLoop):
            asyncio.run(client.close())

    async with Client.from_url(server.url) as client:
        await asyncio.to_thread(elsewhere)

        assert client.entered
