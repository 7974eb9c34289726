"""`ConnectionOptions`: cluster and credentials."""

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


async def test_server_option_sets_url_and_token(server: APIServer) -> None:
    assert await listed(ConnectionOptions(server=server.url, token="right")) == 0


async def test_kubeconfig_option_is_read(config: str) -> None:
    assert await listed(ConnectionOptions(kubeconfig=config)) == 0


async def test_default_kubeconfig_is_found(
    config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", config)

    assert await listed(ConnectionOptions()) == 0


async def test_token_replaces_user_of_kubeconfig(config: str) -> None:
    with pytest.raises(Unauthorized):
        await listed(ConnectionOptions(kubeconfig=config, token="wrong"))


async def test_unknown_context_is_refused(config: str) -> None:
    assert await listed(ConnectionOptions(kubeconfig=config, context="test")) == 0

    with pytest.raises(OptionsError, match="nowhere"):
        await listed(ConnectionOptions(kubeconfig=config, context="nowhere"))


@pytest.mark.parametrize("other", ["kubeconfig", "context"])
def test_server_cannot_be_combined_with_kubeconfig_options(other: str) -> None:
    target = ConnectionOptions(server="http://127.0.0.1:1", **{other: "x"})

    with pytest.raises(CommandError, match="cannot be combined"):
        target.client()


def test_repr_hides_token() -> None:
    assert "secret" not in repr(ConnectionOptions(token="secret"))


async def test_default_namespace_is_that_of_context(config: str) -> None:
    target = ConnectionOptions(kubeconfig=config)
    async with target.client() as client:
        assert target.namespace(client.config) == "default"


async def test_server_option_defaults_to_all_namespaces(server: APIServer) -> None:
    target = ConnectionOptions(server=server.url, token="right")
    async with target.client() as client:
        assert target.namespace(client.config) is None


async def test_context_without_kubeconfig_is_refused_in_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    with pytest.raises(OptionsError, match="no context 'staging': there is no kube"):
        await listed(ConnectionOptions(context="staging"))
