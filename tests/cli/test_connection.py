"""Which cluster, and as whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioinformer.cli.connection import ConnectionOptions
from aioinformer.cli.error_messages import CommandError
from aioinformer.errors import OptionsError, Unauthorized
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer(token="right") as server:
        yield server


@pytest.fixture
def config(server: APIServer, tmp_path: Path) -> str:
    return str(server.kubeconfig(tmp_path / "config"))


async def listed(target: ConnectionOptions) -> int:
    async with target.client() as client:
        return len(await client.list(PODS))


async def test_uses_a_url_and_a_token(server: APIServer) -> None:
    assert await listed(ConnectionOptions(server=server.url, token="right")) == 0


async def test_uses_a_kubeconfig_file(config: str) -> None:
    assert await listed(ConnectionOptions(kubeconfig=config)) == 0


async def test_finds_a_kubeconfig_by_itself(
    config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", config)

    assert await listed(ConnectionOptions()) == 0


async def test_a_token_takes_the_place_of_the_kubeconfigs_user(config: str) -> None:
    with pytest.raises(Unauthorized):
        await listed(ConnectionOptions(kubeconfig=config, token="wrong"))


async def test_a_context_must_be_one_of_the_kubeconfig(config: str) -> None:
    assert await listed(ConnectionOptions(kubeconfig=config, context="test")) == 0

    with pytest.raises(OptionsError, match="nowhere"):
        await listed(ConnectionOptions(kubeconfig=config, context="nowhere"))


@pytest.mark.parametrize("other", ["kubeconfig", "context"])
def test_a_url_goes_with_no_kubeconfig(other: str) -> None:
    target = ConnectionOptions(server="http://127.0.0.1:1", **{other: "x"})

    with pytest.raises(CommandError, match="cannot be combined"):
        target.client()


def test_does_not_show_the_token() -> None:
    assert "secret" not in repr(ConnectionOptions(token="secret"))


async def test_means_the_namespace_of_the_context(config: str) -> None:
    target = ConnectionOptions(kubeconfig=config)
    async with target.client() as client:
        assert target.namespace(client.config) == "default"


async def test_a_url_means_all_namespaces(server: APIServer) -> None:
    target = ConnectionOptions(server=server.url, token="right")
    async with target.client() as client:
        assert target.namespace(client.config) is None


async def test_a_context_without_a_kubeconfig_is_refused_in_a_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    with pytest.raises(OptionsError, match="no context 'staging': there is no kube"):
        await listed(ConnectionOptions(context="staging"))
