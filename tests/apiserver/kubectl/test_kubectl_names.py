"""Names of resources and discovery caches are equal to those of kubectl."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from discovery_helpers import define_widgets

from aioinformer.client import Client, Discovery
from aioinformer.errors import NotFound
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.looptime(False)]


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as server:
        async with server.client() as client:
            await define_widgets(client)

        yield server


async def kubectl(server: APIServer, folder: Path, *arguments: str) -> tuple[str, str]:
    """Run kubectl, and return its output and its requests."""
    command = ["kubectl", f"--cache-dir={folder}", "-s", server.url, "-v6", *arguments]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    out, err = await process.communicate()
    return out.decode(), err.decode()


WORDS = [
    "pods",
    "pod",
    "Pod",
    "po",
    "deploy",
    "deployments.apps",
    "deployments.v1.apps",
    "deployment.v1.apps",
    "Deployment.apps",
    "Deployment.v1.apps",
    "deploy.apps",
    "deploy.v1.apps",
    "deploy.app",
    "deployments.app",
    "deployments.v2.apps",
    "ev",
    "events",
    "events.events.k8s.io",
    "ev.events.k8s.io",
    "hpa",
    "hpa.autoscal",
    "horizontalpodautoscalers.v1.autoscaling",
    "HorizontalPodAutoscaler.v1.autoscaling",
    "hpa.v1.autoscal",
    "events.events",
    "Widget.e",
    "pods.v1.",
    "crd",
    "wd",
    "Widget",
    "widgets.example.com",
    "Widget.v1.example.com",
    "wd.example",
    "podz",
]


@pytest.mark.parametrize("word", WORDS)
async def test_resource_argument_matches_kubectl(
    server: APIServer, tmp_path: Path, word: str
) -> None:
    out, err = await kubectl(server, tmp_path, "get", word, "-A")
    async with server.client() as client:
        try:
            path = (await client.discovery.resource(word)).path()
        except NotFound:
            assert "doesn't have a resource type" in err
            return

    assert "doesn't have a resource type" not in err
    assert f"{server.url}{path}?" in err, out


async def test_kubectl_uses_our_discovery_cache(
    server: APIServer, tmp_path: Path
) -> None:
    async with server.client() as client:
        await Discovery(client, tmp_path / "discovery").resource("wd")

    out, err = await kubectl(server, tmp_path, "get", "wd", "-A")

    assert "No resources found" in out + err
    requested = [it.split()[0] for it in err.split(server.url)[1:]]
    assert [it.partition("?")[0] for it in requested] == [
        "/apis/example.com/v1/widgets"
    ]

    out, err = await kubectl(server, tmp_path, "api-resources", "-o", "wide")
    assert "widgets" in out
    other, _ = await kubectl(server, tmp_path / "new", "api-resources", "-o", "wide")
    assert out == other


async def test_aioinformer_uses_discovery_cache_of_kubectl(
    server: APIServer, tmp_path: Path
) -> None:
    await kubectl(server, tmp_path, "get", "wd", "-A")
    async with server.client() as client:
        expected = await client.discovery.resources()

    # The cache is that of a server which would refuse requests.
    stranger = Client.from_url(server.url)
    await stranger.start()
    await stranger.close()
    found = await Discovery(stranger, tmp_path / "discovery").resources()
    assert found == expected


async def test_discovery_caches_are_identical(
    server: APIServer, tmp_path: Path
) -> None:
    await kubectl(server, tmp_path / "kubectl", "get", "wd", "-A")
    async with server.client() as client:
        await Discovery(client, tmp_path / "ours" / "discovery").resource("wd")

    assert read(tmp_path / "ours") == read(tmp_path / "kubectl")


def read(folder: Path) -> dict[str, object]:
    files = (folder / "discovery").rglob("*.json")
    return {str(it.relative_to(folder)): json.loads(it.read_bytes()) for it in files}
